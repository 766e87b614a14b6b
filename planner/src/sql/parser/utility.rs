//! `SHOW`, `DESCRIBE`, `SET`, `RESET`, `CANCEL`.

use datafusion_sql::sqlparser::tokenizer::Token;
use spate_engine::types::error::{Result, SpateError};

use super::super::statement::{DropKind, JobRef, ShowKind, Statement};
use super::Cursor;

const LISTS: &[(&str, ShowKind)] = &[
    ("SCHEMAS", ShowKind::Schemas),
    ("TABLES", ShowKind::Tables),
    ("SOURCES", ShowKind::Sources),
    ("VIEWS", ShowKind::Views),
    ("MATERIALIZED VIEWS", ShowKind::MaterializedViews),
    ("SINKS", ShowKind::Sinks),
    ("FUNCTIONS", ShowKind::Functions),
    ("INDEXES", ShowKind::Indexes),
    ("JOBS", ShowKind::Jobs),
    ("WORKERS", ShowKind::Workers),
];

impl Cursor<'_> {
    pub(super) fn show(&mut self) -> Result<Statement> {
        self.expect("SHOW")?;
        if let Some((_, kind)) = LISTS.iter().find(|(words, _)| self.eat(words)) {
            let schema = if self.eat("FROM") || self.eat("IN") { Some(self.ident("a schema name")?) } else { None };
            for clause in ["LIKE", "WHERE"] {
                if self.is(clause) {
                    return Err(self.refuse(&format!("{clause} in SHOW")).with_hint("query information_schema.tables"));
                }
            }
            return Ok(Statement::ShowObjects { kind: *kind, schema });
        }
        if self.eat("CREATE") {
            let kind = self.object_kind();
            if kind == Some(DropKind::Schema) {
                return Err(self.refuse("SHOW CREATE SCHEMA"));
            }
            return Ok(Statement::ShowCreate { kind, name: self.name("a name")? });
        }
        if self.eat("COLUMNS") {
            if !self.eat("FROM") {
                self.expect("IN")?;
            }
            return Ok(Statement::Describe(self.name("a relation name")?));
        }
        if self.eat("ALL") {
            return Ok(Statement::ShowAll);
        }
        if self.is("MATERIALIZED") {
            self.advance();
            return Err(self.unexpected_word("VIEWS", &["VIEWS"]));
        }
        Ok(Statement::ShowVariable(self.variable()?))
    }

    /// A variable's name, perhaps dotted; PostgreSQL's spellings of several words are known.
    fn variable(&mut self) -> Result<String> {
        if self.eat("TIME ZONE") {
            return Ok("timezone".into());
        }
        if self.eat("TRANSACTION ISOLATION LEVEL") {
            return Ok("transaction_isolation".into());
        }
        let mut name = self.ident("a variable's name")?.to_lowercase();
        while self.eat_token(&Token::Period) {
            name.push('.');
            name.push_str(&self.ident("a variable's name")?.to_lowercase());
        }
        Ok(name)
    }

    pub(super) fn describe(&mut self) -> Result<Statement> {
        self.advance();
        self.object_kind();
        Ok(Statement::Describe(self.name("a relation name")?))
    }

    pub(super) fn set(&mut self) -> Result<Statement> {
        self.expect("SET")?;
        for what in ["LOCAL", "TRANSACTION", "CONSTRAINTS", "ROLE"] {
            if self.is(what) && !matches!(self.peek(1), Token::Eq) {
                return Err(self.refuse(&format!("SET {what}")));
            }
        }
        if !matches!(self.peek(1), Token::Eq) && !self.is("SESSION TO") {
            self.eat("SESSION");
        }
        let zone = self.is("TIME ZONE");
        let name = self.variable()?;
        if !self.eat_token(&Token::Eq) && !self.eat("TO") && !zone {
            return Err(self.unexpected("TO or \"=\""));
        }
        if self.eat("DEFAULT") || (zone && self.eat("LOCAL")) {
            return Ok(Statement::Reset(Some(name)));
        }
        let mut values = vec![self.set_value()?];
        while self.eat_token(&Token::Comma) {
            values.push(self.set_value()?);
        }
        Ok(Statement::Set { name, value: values.join(", ") })
    }

    fn set_value(&mut self) -> Result<String> {
        let sign = if self.eat_token(&Token::Minus) { "-" } else { "" };
        let value = match self.peek(0) {
            Token::Number(n, _) => format!("{sign}{n}"),
            _ if !sign.is_empty() => return Err(self.unexpected("a number")),
            Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => s.clone(),
            Token::Word(w) if w.quote_style.is_some() => w.value.clone(),
            Token::Word(w) => w.value.to_ascii_lowercase(),
            _ => return Err(self.unexpected("a value")),
        };
        self.advance();
        Ok(value)
    }

    pub(super) fn reset(&mut self) -> Result<Statement> {
        self.expect("RESET")?;
        if self.eat("ALL") {
            return Ok(Statement::Reset(None));
        }
        Ok(Statement::Reset(Some(self.variable()?)))
    }

    pub(super) fn cancel(&mut self) -> Result<Statement> {
        self.expect("CANCEL")?;
        if !self.eat("JOB") && !self.eat("JOBS") {
            return Err(self.unexpected_word("JOB", &["JOB"]));
        }
        let job = match self.peek(0) {
            Token::Number(..) => JobRef::Id(self.number("a job's number")?),
            Token::SingleQuotedString(s) => {
                let id = s.trim().parse().map_err(|_| SpateError::invalid(format!("\"{s}\" is not a job's number")))?;
                self.advance();
                JobRef::Id(id)
            }
            _ => JobRef::Name(self.name("a job's number or the name of its view or sink")?),
        };
        Ok(Statement::CancelJob(job))
    }
}
