//! `ALTER …` and `COMMENT ON`.

use datafusion_sql::sqlparser::tokenizer::Token;
use spate_engine::types::error::{Result, SpateError};

use super::super::statement::{Alter, AlterAction, Comment, DropKind, Name, Statement};
use super::Cursor;
use super::create::Body;

impl Cursor<'_> {
    /// `ALTER kind [IF EXISTS] name action`.
    pub(super) fn alter(&mut self) -> Result<Statement> {
        let start = self.at;
        self.expect("ALTER")?;
        let kind = match self.object_kind() {
            Some(kind) if kind != DropKind::Schema => kind,
            _ => {
                let what = self.word().unwrap_or_default().to_uppercase();
                self.go_to(start);
                return Err(if what.is_empty() {
                    self.unexpected("what to alter")
                } else {
                    self.refuse(&format!("ALTER {what}"))
                });
            }
        };
        let if_exists = self.eat("IF EXISTS");
        if self.is("ONLY") {
            return Err(self.refuse("ONLY in ALTER"));
        }
        let name = self.name(&format!("a {kind} name"))?;
        self.empty_arguments(kind)?;
        let action = self.alter_action(kind)?;
        if *self.peek(0) == Token::Comma {
            return Err(self.refuse("several actions in one ALTER").with_hint("write one ALTER for each"));
        }
        Ok(Statement::Alter(Alter { kind, name, if_exists, action }))
    }

    fn alter_action(&mut self, kind: DropKind) -> Result<AlterAction> {
        let table = kind == DropKind::Table;
        let at = self.found();
        if self.eat("RENAME TO") {
            return Ok(AlterAction::Rename(self.ident("a name")?));
        }
        if self.eat("SET SCHEMA") {
            return Ok(AlterAction::SetSchema(self.ident("a schema name")?));
        }
        if self.is("RENAME") && table {
            self.advance();
            self.eat("COLUMN");
            if self.is("CONSTRAINT") {
                return Err(self.refuse("RENAME CONSTRAINT"));
            }
            let from = self.ident("a column name")?;
            self.expect("TO")?;
            return Ok(AlterAction::RenameColumn { from, to: self.ident("a column name")? });
        }
        if self.is("ADD") && table {
            self.advance();
            self.eat("COLUMN");
            for clause in ["CONSTRAINT", "PRIMARY KEY", "UNIQUE", "CHECK", "FOREIGN KEY"] {
                if self.is(clause) {
                    return Err(self.refuse(&format!("ADD {clause}")));
                }
            }
            let if_not_exists = self.eat("IF NOT EXISTS");
            let mut body = Body::default();
            let column = self.column(&mut body)?;
            if body.key.is_some() {
                return Err(SpateError::unsupported("a primary key cannot be added to a table")
                    .with_hint("create the table anew: CREATE TABLE …, INSERT INTO … SELECT")
                    .at(at.position.0, at.position.1));
            }
            return Ok(AlterAction::AddColumn { column: Box::new(column), if_not_exists });
        }
        if self.is("DROP") && table {
            self.advance();
            self.eat("COLUMN");
            if self.is("CONSTRAINT") {
                return Err(self.refuse("DROP CONSTRAINT"));
            }
            let if_exists = self.eat("IF EXISTS");
            let name = self.ident("a column name")?;
            if self.is("CASCADE") {
                return Err(self
                    .refuse("DROP COLUMN … CASCADE")
                    .with_hint("drop what uses the column first; without CASCADE the error names it"));
            }
            self.eat("RESTRICT");
            return Ok(AlterAction::DropColumn { name, if_exists });
        }
        const ACTIONS: &[&str] = &["ADD", "DROP", "RENAME", "SET"];
        Err(match self.word() {
            Some(word) if ["add", "alter", "drop", "rename", "set", "owner", "swap"].contains(&word.as_str()) => {
                let next = match self.peek(1) {
                    Token::Word(w) => format!(" {}", w.value.to_uppercase()),
                    _ => String::new(),
                };
                let what = kind.to_string().to_uppercase();
                self.refuse(&format!("ALTER {what} … {}{next}", word.to_uppercase()))
            }
            _ => self.unexpected_word("ADD, DROP, RENAME or SET SCHEMA", ACTIONS),
        })
    }

    /// `COMMENT ON kind name IS 'text' | NULL`.
    pub(super) fn comment(&mut self) -> Result<Statement> {
        self.expect("COMMENT ON")?;
        let (kind, object, column) = if self.eat("COLUMN") {
            let found = self.found();
            let mut parts = vec![self.ident("a relation name")?];
            while self.eat_token(&Token::Period) {
                parts.push(self.ident("a name")?);
            }
            let column = parts.pop();
            let position = Some(found.position);
            match (parts.pop(), parts.pop(), parts.is_empty()) {
                (Some(name), schema, true) => (None, Name { schema, name, position }, column),
                _ => {
                    return Err(SpateError::invalid("a column is named as relation.column")
                        .at(found.position.0, found.position.1));
                }
            }
        } else {
            match self.object_kind() {
                Some(kind) if kind != DropKind::Schema => {
                    let name = self.name(&format!("a {kind} name"))?;
                    self.empty_arguments(kind)?;
                    (Some(kind), name, None)
                }
                _ => {
                    let what = self.word().unwrap_or_default().to_uppercase();
                    return Err(self.refuse(&format!("COMMENT ON {what}")));
                }
            }
        };
        self.expect("IS")?;
        let text = if self.eat("NULL") { None } else { Some(self.string("a text, or NULL")?) };
        Ok(Statement::Comment(Comment { kind, object, column, text }))
    }
}
