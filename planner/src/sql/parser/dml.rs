//! `INSERT`, `UPDATE`, `DELETE`, `TRUNCATE`, `COPY`.

use datafusion_sql::sqlparser::ast::{Expr, SelectItem, TableWithJoins};
use datafusion_sql::sqlparser::tokenizer::Token;
use spate_engine::types::error::{Result, SpateError};

use super::super::options::{self, Style};
use super::super::statement::{Copy, Delete, Insert, Options, Statement, Update};
use super::query::Tail;
use super::{Cursor, is_word};

impl Cursor<'_> {
    pub(super) fn insert(&mut self) -> Result<Statement> {
        self.expect("INSERT INTO")?;
        let table = self.name("a table name")?;
        let alias = if self.eat("AS") { Some(self.ident("an alias")?) } else { None };
        let inner_query = ["select", "with", "values", "table"].iter().any(|w| is_word(self.peek(1), w))
            || *self.peek(1) == Token::LParen;
        let columns =
            if *self.peek(0) == Token::LParen && !inner_query { self.name_list("a column name")? } else { Vec::new() };
        if self.is("OVERRIDING") {
            return Err(self.refuse("INSERT OVERRIDING"));
        }
        let source =
            if columns.is_empty() && self.eat("DEFAULT VALUES") { None } else { Some(self.query(Tail::Insert)?.query) };
        if self.is("ON CONFLICT") {
            return Err(self
                .refuse("ON CONFLICT in INSERT")
                .with_hint("say ON CONFLICT DO OVERWRITE or NOTHING at CREATE TABLE"));
        }
        let returning = self.returning()?;
        Ok(Statement::Insert(Insert { table, alias, columns, source, returning }))
    }

    /// `RETURNING` and its list, if it is next.
    fn returning(&mut self) -> Result<Vec<SelectItem>> {
        if !self.eat("RETURNING") {
            return Ok(Vec::new());
        }
        if self.at_end() {
            return Err(self.unexpected("a list of expressions"));
        }
        self.delegate(|p| p.parse_projection())
    }

    fn tables(&mut self) -> Result<Vec<TableWithJoins>> {
        self.delegate(|p| p.parse_comma_separated(|p| p.parse_table_and_joins()))
    }

    /// `TRUNCATE [TABLE] a, b`.
    pub(super) fn truncate(&mut self) -> Result<Statement> {
        self.expect("TRUNCATE")?;
        self.eat("TABLE");
        let mut names = Vec::new();
        loop {
            names.push(self.name("a table name")?);
            if !self.eat_token(&Token::Comma) {
                break;
            }
        }
        if self.is("RESTART IDENTITY") {
            return Err(self.refuse("RESTART IDENTITY"));
        }
        self.eat("CONTINUE IDENTITY");
        if self.is("CASCADE") {
            return Err(self.refuse("TRUNCATE … CASCADE").with_hint("there are no foreign keys; leave it out"));
        }
        self.eat("RESTRICT");
        Ok(Statement::Truncate(names))
    }

    /// `AS alias`, or a bare alias that is none of the words that go on.
    fn alias(&mut self, stop: &[&str]) -> Result<Option<String>> {
        if self.eat("AS") {
            return Ok(Some(self.ident("an alias")?));
        }
        match self.peek(0) {
            Token::Word(w) if w.quote_style.is_some() || !stop.iter().any(|s| w.value.eq_ignore_ascii_case(s)) => {
                Ok(Some(self.ident("an alias")?))
            }
            _ => Ok(None),
        }
    }

    fn selection(&mut self) -> Result<Option<Expr>> {
        if self.is("WHERE CURRENT OF") {
            return Err(self.refuse("WHERE CURRENT OF"));
        }
        if self.eat("WHERE") { Ok(Some(self.expr()?)) } else { Ok(None) }
    }

    pub(super) fn update(&mut self) -> Result<Statement> {
        self.expect("UPDATE")?;
        let table = self.name("a table name")?;
        let alias = self.alias(&["SET"])?;
        self.expect("SET")?;
        let mut assignments: Vec<(String, Expr)> = Vec::new();
        loop {
            if *self.peek(0) == Token::LParen {
                return Err(self.refuse("assigning to several columns at once"));
            }
            let at = self.found();
            let column = self.ident("a column name")?;
            if matches!(self.peek(0), Token::Period | Token::LBracket) {
                return Err(self.refuse("assigning to a part of a column"));
            }
            self.expect_token(&Token::Eq)?;
            let value = self.expr()?;
            if assignments.iter().any(|(c, _)| *c == column) {
                return Err(SpateError::invalid(format!("multiple assignments to same column \"{column}\""))
                    .at(at.position.0, at.position.1));
            }
            assignments.push((column, value));
            if !self.eat_token(&Token::Comma) {
                break;
            }
        }
        let from = if self.eat("FROM") { self.tables()? } else { Vec::new() };
        let selection = self.selection()?;
        let returning = self.returning()?;
        Ok(Statement::Update(Update { table, alias, assignments, from, selection, returning }))
    }

    pub(super) fn delete(&mut self) -> Result<Statement> {
        self.expect("DELETE FROM")?;
        let table = self.name("a table name")?;
        let alias = self.alias(&["WHERE", "USING", "RETURNING"])?;
        let using = if self.eat("USING") { self.tables()? } else { Vec::new() };
        let selection = self.selection()?;
        let returning = self.returning()?;
        Ok(Statement::Delete(Delete { table, alias, using, selection, returning }))
    }

    pub(super) fn copy(&mut self) -> Result<Statement> {
        self.expect("COPY")?;
        if *self.peek(0) == Token::LParen {
            return Err(self.refuse("COPY (query) TO").with_hint("use CREATE SINK, or spate -c with --format"));
        }
        let table = self.name("a table name")?;
        let columns = if *self.peek(0) == Token::LParen { self.name_list("a column name")? } else { Vec::new() };
        if self.is("TO") {
            return Err(self.refuse("COPY … TO").with_hint("use CREATE SINK, or spate -c with --format"));
        }
        self.expect("FROM")?;
        for from in ["STDIN", "PROGRAM"] {
            if self.is(from) {
                return Err(self.refuse(&format!("COPY FROM {from}")));
            }
        }
        let path = self.string("a file's path as a string")?;
        let with = self.eat("WITH");
        let options = if with || *self.peek(0) == Token::LParen {
            options::parse_list(self, Style::Loose)?
        } else {
            Options::new()
        };
        if self.is("WHERE") {
            return Err(self.refuse("WHERE in COPY"));
        }
        Ok(Statement::Copy(Copy { table, columns, path, options }))
    }
}
