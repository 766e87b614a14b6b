//! `CREATE INDEX`.

use datafusion_sql::sqlparser::tokenizer::Token;
use spate_engine::types::error::Result;

use super::super::statement::{CreateIndex, Statement};
use super::Cursor;

impl Cursor<'_> {
    /// `INDEX [IF NOT EXISTS] [name] ON t [USING btree] (column [ASC | DESC] [NULLS FIRST | LAST], …)`.
    /// An index serves both directions, so the words for one change nothing.
    pub(super) fn create_index(&mut self) -> Result<Statement> {
        self.expect("INDEX")?;
        if self.is("CONCURRENTLY") {
            return Err(self.refuse("CONCURRENTLY"));
        }
        let if_not_exists = self.eat("IF NOT EXISTS");
        let name = if self.is("ON") { None } else { Some(self.ident("an index name")?) };
        self.expect("ON")?;
        let on = self.name("a table name")?;
        if self.eat("USING") && !self.eat("BTREE") {
            let method = self.word().unwrap_or_default();
            return Err(self.refuse(&format!("USING {method}")).with_hint("indexes here are ordered: USING btree"));
        }
        self.expect_token(&Token::LParen)?;
        let mut columns: Vec<String> = Vec::new();
        loop {
            let at = self.found();
            if *self.peek(0) == Token::LParen || *self.peek(1) == Token::LParen {
                return Err(self.refuse("an index of an expression").with_hint("index a generated column"));
            }
            let column = self.ident("a column name")?;
            if columns.contains(&column) {
                return Err(super::locate(
                    spate_engine::types::error::SpateError::invalid(format!(
                        "column \"{column}\" specified more than once"
                    )),
                    &at,
                ));
            }
            columns.push(column);
            if !self.eat("ASC") {
                self.eat("DESC");
            }
            if !self.eat("NULLS FIRST") {
                self.eat("NULLS LAST");
            }
            if self.eat_token(&Token::RParen) {
                break;
            }
            self.expect_token(&Token::Comma)?;
        }
        for clause in ["INCLUDE", "WHERE", "WITH", "TABLESPACE", "NULLS"] {
            if self.is(clause) {
                return Err(self.refuse(&format!("{clause} in CREATE INDEX")));
            }
        }
        Ok(Statement::CreateIndex(CreateIndex { name, if_not_exists, on, columns }))
    }
}
