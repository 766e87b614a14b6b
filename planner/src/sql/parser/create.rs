//! `CREATE …` and `DROP …`.

use datafusion_sql::sqlparser::ast::Expr;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::super::dialect::DIALECT;
use super::super::error::{self, Found};
use super::super::options::{self, Style};
use super::super::statement::{
    ColumnDef, CreateMaterializedView, CreateSink, CreateTable, CreateTableAs, CreateView, Drop, DropKind,
    FormatClause, Input, Name, OnConflict, Options, Statement, WatermarkDef,
};
use super::super::{types, watermark};
use super::query::{Tail, once};
use super::{Cursor, is_word, locate, no_column};

/// What stands between `CREATE` and the object's kind, and before its name.
struct Head {
    or_replace: bool,
    if_not_exists: bool,
    name: Name,
}

/// What the parentheses of `CREATE TABLE` hold.
#[derive(Default)]
pub(super) struct Body {
    columns: Vec<ColumnDef>,
    /// Names of the key's columns, and where the clause stands.
    pub(super) key: Option<(Vec<String>, Found)>,
    watermark: Option<(WatermarkDef, Found)>,
}

impl Cursor<'_> {
    pub(super) fn create(&mut self) -> Result<Statement> {
        self.expect("CREATE")?;
        let or_replace = self.eat("OR REPLACE");
        if self.eat("MATERIALIZED VIEW") {
            return self.create_materialized_view(or_replace);
        }
        let Some(word) = self.word() else { return Err(self.unexpected("what to create")) };
        match word.as_str() {
            "table" => self.create_table(or_replace, false),
            "source" => self.create_table(or_replace, true),
            "view" => self.create_view(or_replace),
            "sink" => self.create_sink(or_replace),
            "function" => self.create_function(or_replace),
            "schema" if !or_replace => self.create_schema(),
            "index" if !or_replace => self.create_index(),
            "unique" if is_word(self.peek(1), "index") => {
                Err(self.refuse("CREATE UNIQUE INDEX").with_hint("a PRIMARY KEY tells rows apart"))
            }
            "temp" | "temporary" | "unlogged" | "external" | "recursive" | "foreign" | "global" | "local" => {
                let next = match self.peek(1) {
                    Token::Word(w) => format!(" {}", w.value.to_uppercase()),
                    _ => String::new(),
                };
                Err(self.refuse(&format!("CREATE {}{next}", word.to_uppercase())))
            }
            "aggregate" | "type" | "domain" | "database" | "user" | "role" | "sequence" | "trigger" | "extension"
            | "procedure" | "policy" | "rule" | "server" | "publication" | "subscription" | "cast" | "collation"
            | "operator" | "connection" | "secret" | "macro" | "catalog" | "language" => {
                Err(self.refuse(&format!("CREATE {}", word.to_uppercase())))
            }
            _ => {
                const KINDS: &[&str] = &["MATERIALIZED", "SCHEMA", "SINK", "SOURCE", "TABLE", "VIEW"];
                Err(self.unexpected_word("TABLE, SOURCE, VIEW, MATERIALIZED VIEW, SINK or SCHEMA", KINDS))
            }
        }
    }

    fn head(&mut self, or_replace: bool, what: &str) -> Result<Head> {
        let at = self.found();
        let if_not_exists = self.eat("IF NOT EXISTS");
        if or_replace && if_not_exists {
            return Err(SpateError::new(ErrorKind::Syntax, "OR REPLACE and IF NOT EXISTS exclude each other")
                .at(at.position.0, at.position.1));
        }
        Ok(Head { or_replace, if_not_exists, name: self.name(what)? })
    }

    fn create_schema(&mut self) -> Result<Statement> {
        self.expect("SCHEMA")?;
        let if_not_exists = self.eat("IF NOT EXISTS");
        let name = self.ident("a schema name")?;
        Ok(Statement::CreateSchema { name, if_not_exists })
    }

    fn create_table(&mut self, or_replace: bool, source: bool) -> Result<Statement> {
        self.advance();
        let head = self.head(or_replace, if source { "a source name" } else { "a table name" })?;
        if !source && self.at_table_as() {
            return self.create_table_as(head);
        }
        let body = if *self.peek(0) == Token::LParen { self.table_body()? } else { Body::default() };
        let mut append_only = None;
        let mut on_conflict = None;
        let mut options = None;
        let mut format = None;
        loop {
            let at = self.found();
            if self.eat("APPEND ONLY") {
                once(&mut append_only, true, &at)?;
            } else if self.eat("ON CONFLICT") {
                self.eat("DO");
                let action = self.conflict_action()?;
                once(&mut on_conflict, action, &at)?;
            } else if self.is("WITH") {
                let list = self.with_options()?;
                once(&mut options, list, &at)?;
            } else if self.is("FORMAT") {
                let clause = self.format_clause()?;
                once(&mut format, clause, &at)?;
            } else if self.is("AS") && source {
                return Err(self.unexpected("WITH (…)"));
            } else if self.is("AS") {
                return Err(self
                    .refuse("AS with types of columns, or with clauses before it")
                    .with_hint("write CREATE TABLE t [(names)] AS query, or CREATE TABLE and INSERT INTO … SELECT"));
            } else if self.at_end() {
                break;
            } else {
                const CLAUSES: &[&str] = &["APPEND", "FORMAT", "WITH"];
                return Err(self.unexpected_word("APPEND ONLY, ON CONFLICT, WITH or FORMAT", CLAUSES));
            }
        }
        let options = options.unwrap_or_default();
        if body.columns.is_empty() && options.is_empty() {
            let what = if source { "source" } else { "table" };
            return Err(self
                .unexpected(if source { "WITH (…)" } else { "\"(\" and columns" })
                .with_hint(format!("a {what} needs columns, or WITH (connector = …) to take them from")));
        }
        let (columns, primary_key) = resolve_key(&head.name, body.columns, body.key)?;
        let watermark = body.watermark.map(|(def, at)| check_watermark(def, &columns, &at)).transpose()?;
        Ok(Statement::CreateTable(CreateTable {
            name: head.name,
            source,
            or_replace: head.or_replace,
            if_not_exists: head.if_not_exists,
            columns,
            primary_key,
            watermark,
            append_only: append_only.unwrap_or(false),
            on_conflict: on_conflict.unwrap_or_default(),
            options,
            format,
        }))
    }

    /// Whether `AS`, or names in parentheses and `AS`, come next.
    fn at_table_as(&self) -> bool {
        let mut n = 0;
        if *self.peek(0) == Token::LParen {
            while matches!(self.peek(n + 1), Token::Word(_)) && *self.peek(n + 2) == Token::Comma {
                n += 2;
            }
            if !matches!(self.peek(n + 1), Token::Word(_)) || *self.peek(n + 2) != Token::RParen {
                return false;
            }
            n += 3;
        }
        is_word(self.peek(n), "as")
    }

    /// `CREATE TABLE t [(names)] AS query [WITH [NO] DATA]`, from the names on.
    fn create_table_as(&mut self, head: Head) -> Result<Statement> {
        let columns = self.view_columns()?;
        self.expect("AS")?;
        let cut = self.query(Tail::Table)?;
        let with_data = if self.eat("WITH NO DATA") {
            false
        } else {
            self.eat("WITH DATA");
            true
        };
        Ok(Statement::CreateTableAs(CreateTableAs {
            name: head.name,
            or_replace: head.or_replace,
            if_not_exists: head.if_not_exists,
            columns,
            query: cut.query,
            with_data,
        }))
    }

    fn conflict_action(&mut self) -> Result<OnConflict> {
        if self.eat("OVERWRITE") {
            Ok(OnConflict::Overwrite)
        } else if self.eat("NOTHING") {
            Ok(OnConflict::Nothing)
        } else if self.eat("ERROR") {
            Ok(OnConflict::Error)
        } else if self.is("UPDATE") {
            Err(self.refuse("ON CONFLICT DO UPDATE").with_hint("use ON CONFLICT DO OVERWRITE"))
        } else {
            Err(self.unexpected_word("OVERWRITE or NOTHING", &["OVERWRITE", "NOTHING"]))
        }
    }

    /// `(column …, PRIMARY KEY (…), WATERMARK FOR …)`.
    fn table_body(&mut self) -> Result<Body> {
        self.expect_token(&Token::LParen)?;
        let mut body = Body::default();
        if self.eat_token(&Token::RParen) {
            return Ok(body);
        }
        loop {
            self.table_element(&mut body)?;
            if self.eat_token(&Token::RParen) {
                return Ok(body);
            }
            if !self.eat_token(&Token::Comma) {
                return Err(self.unexpected_word("\",\" or \")\"", &["DEFAULT", "NOT", "NULL", "PRIMARY"]));
            }
        }
    }

    fn table_element(&mut self, body: &mut Body) -> Result<()> {
        let at = self.found();
        if self.eat("WATERMARK FOR") {
            let column = self.ident("a column name")?;
            self.expect("AS")?;
            let delay_at = self.found();
            let expr = self.expr()?;
            let delay_us = watermark::delay_us(&column, &expr).map_err(|e| locate(e, &delay_at))?;
            return once(&mut body.watermark, (WatermarkDef { column, delay_us }, at.clone()), &at);
        }
        if self.eat("CONSTRAINT") {
            self.ident("a constraint name")?;
        }
        if self.eat("PRIMARY KEY") {
            let names = self.name_list("a column name")?;
            return add_key(body, names, at);
        }
        for clause in ["CHECK", "UNIQUE", "FOREIGN KEY", "EXCLUDE", "LIKE"] {
            let next = self.peek(clause.split(' ').count());
            if self.is(clause) && (*next == Token::LParen || clause == "LIKE" || clause == "EXCLUDE") {
                return Err(self.refuse(clause));
            }
        }
        let column = self.column(body)?;
        if body.columns.iter().any(|c| c.name == column.name) {
            return Err(SpateError::invalid(format!("column \"{}\" specified more than once", column.name))
                .at(at.position.0, at.position.1));
        }
        body.columns.push(column);
        Ok(())
    }

    /// `name type [NOT NULL] [DEFAULT e | [GENERATED ALWAYS] AS (e) [STORED]] [PRIMARY KEY]`.
    pub(super) fn column(&mut self, body: &mut Body) -> Result<ColumnDef> {
        let name = self.ident("a column name")?;
        let type_at = self.found();
        if matches!(self.peek(0), Token::Comma | Token::RParen | Token::EOF) {
            return Err(self.unexpected(&format!("a type for column \"{name}\"")));
        }
        let sql_type = self.delegate(|p| p.parse_data_type())?;
        let data_type = types::to_arrow(&sql_type).map_err(|e| locate(e, &type_at))?;
        let mut nullable = None;
        let mut default = None;
        let mut generated = None;
        loop {
            let at = self.found();
            if self.eat("CONSTRAINT") {
                self.ident("a constraint name")?;
            }
            if self.eat("NOT NULL") {
                once(&mut nullable, false, &at)?;
            } else if self.eat("NULL") {
                once(&mut nullable, true, &at)?;
            } else if self.eat("DEFAULT") {
                let expr = self.column_expr()?;
                once(&mut default, expr, &at)?;
            } else if self.eat("PRIMARY KEY") {
                add_key(body, vec![name.clone()], at)?;
            } else if self.is("AS") || self.is("GENERATED ALWAYS AS") {
                if !self.eat("AS") {
                    self.expect("GENERATED ALWAYS AS")?;
                    if self.is("IDENTITY") {
                        return Err(self.refuse("an identity column"));
                    }
                    if *self.peek(0) != Token::LParen {
                        return Err(self.unexpected("\"(\" and an expression"));
                    }
                }
                let expr = self.column_expr()?;
                once(&mut generated, expr, &at)?;
                if !self.eat("STORED") {
                    self.eat("VIRTUAL");
                }
            } else {
                for clause in ["GENERATED", "UNIQUE", "CHECK", "REFERENCES", "COLLATE", "INCLUDE"] {
                    if self.is(clause) {
                        return Err(self.refuse(&format!("{clause} in a column")));
                    }
                }
                break;
            }
        }
        if default.is_some() && generated.is_some() {
            return Err(SpateError::new(
                ErrorKind::Syntax,
                format!("both default and generation expression specified for column \"{name}\""),
            )
            .at(type_at.position.0, type_at.position.1));
        }
        let nullable = nullable.unwrap_or(true);
        Ok(ColumnDef { name, sql_type, data_type, nullable, default, generated, primary_key: false })
    }

    /// An expression before further words about the column: sqlparser would take `NOT NULL` for
    /// a part of it.
    fn column_expr(&mut self) -> Result<Expr> {
        let start = self.at;
        let mut depth = 0usize;
        let mut end = self.tokens.len();
        for (index, t) in self.tokens.iter().enumerate().skip(start) {
            match &t.token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket if depth > 0 => depth -= 1,
                Token::RParen | Token::Comma if depth == 0 => {
                    end = index;
                    break;
                }
                token if depth == 0 && index > start && is_word(token, "not") => {
                    let next = self.tokens[index + 1..].iter().find(|t| !matches!(t.token, Token::Whitespace(_)));
                    let before = self.tokens[..index].iter().rev().find(|t| !matches!(t.token, Token::Whitespace(_)));
                    let is_null = next.is_some_and(|t| is_word(&t.token, "null"));
                    if is_null && !before.is_some_and(|t| is_word(&t.token, "is")) {
                        end = index;
                        break;
                    }
                }
                _ => {}
            }
        }
        let until = self.found_at(end);
        let mut parser = Parser::new(&DIALECT).with_tokens_with_locations(self.tokens[start..end].to_vec());
        let expr = parser.parse_expr().map_err(|e| error::from_parser(e, &until))?;
        self.go_to((start + parser.index()).min(end));
        Ok(expr)
    }

    fn with_options(&mut self) -> Result<Options> {
        self.expect("WITH")?;
        options::parse_list(self, Style::With)
    }

    /// `FORMAT PLAIN ENCODE JSON [(…)]`.
    fn format_clause(&mut self) -> Result<FormatClause> {
        const FORMATS: &[&str] = &["plain", "upsert", "debezium"];
        const ENCODINGS: &[&str] = &["json", "avro", "csv", "parquet", "arrow"];
        self.expect("FORMAT")?;
        let format = self.choice("PLAIN, UPSERT or DEBEZIUM", FORMATS)?;
        self.expect("ENCODE")?;
        let encode = self.choice("JSON, AVRO, CSV, PARQUET or ARROW", ENCODINGS)?;
        let options =
            if *self.peek(0) == Token::LParen { options::parse_list(self, Style::With)? } else { Options::new() };
        Ok(FormatClause { format, encode, options })
    }

    fn choice(&mut self, what: &str, of: &[&'static str]) -> Result<String> {
        match self.word() {
            Some(word) if of.contains(&word.as_str()) => {
                self.advance();
                Ok(word)
            }
            _ => Err(self.unexpected_word(what, of)),
        }
    }

    fn view_columns(&mut self) -> Result<Vec<String>> {
        if *self.peek(0) == Token::LParen { self.name_list("a column name") } else { Ok(Vec::new()) }
    }

    fn create_view(&mut self, or_replace: bool) -> Result<Statement> {
        self.expect("VIEW")?;
        let head = self.head(or_replace, "a view name")?;
        let columns = self.view_columns()?;
        if self.is("WITH") {
            return Err(self.refuse("WITH (…) of a plain view"));
        }
        self.expect("AS")?;
        let cut = self.query(Tail::Query)?;
        Ok(Statement::CreateView(CreateView {
            name: head.name,
            or_replace: head.or_replace,
            if_not_exists: head.if_not_exists,
            columns,
            query: cut.query,
            query_text: cut.text,
        }))
    }

    fn create_materialized_view(&mut self, or_replace: bool) -> Result<Statement> {
        let head = self.head(or_replace, "a view name")?;
        let columns = self.view_columns()?;
        let options = if self.is("WITH") { self.with_options()? } else { Options::new() };
        self.expect("AS")?;
        let cut = self.query(Tail::View)?;
        if self.is("WITH") {
            return Err(self.unexpected("the end of the statement").with_hint("WITH (…) stands before AS"));
        }
        Ok(Statement::CreateMaterializedView(CreateMaterializedView {
            name: head.name,
            or_replace: head.or_replace,
            if_not_exists: head.if_not_exists,
            columns,
            options,
            query: cut.query,
            query_text: cut.text,
            emit_on_window_close: cut.emit_on_window_close,
        }))
    }

    fn create_sink(&mut self, or_replace: bool) -> Result<Statement> {
        self.expect("SINK")?;
        let head = self.head(or_replace, "a sink name")?;
        let input = if self.eat("FROM") {
            Input::Relation(self.name("a relation name")?)
        } else if self.eat("AS") {
            let cut = self.query(Tail::Sink)?;
            Input::Query { query: cut.query, text: cut.text, emit_on_window_close: cut.emit_on_window_close }
        } else {
            return Err(self.unexpected_word("FROM or AS", &["FROM"]));
        };
        let mut options = None;
        let mut format = None;
        while !self.at_end() {
            let at = self.found();
            if self.is("WITH") {
                let list = self.with_options()?;
                once(&mut options, list, &at)?;
            } else if self.is("FORMAT") {
                let clause = self.format_clause()?;
                once(&mut format, clause, &at)?;
            } else {
                return Err(self.unexpected_word("WITH or FORMAT", &["FORMAT", "WITH"]));
            }
        }
        let Some(options) = options else {
            return Err(self.unexpected("WITH (connector = …)"));
        };
        Ok(Statement::CreateSink(CreateSink {
            name: head.name,
            or_replace: head.or_replace,
            if_not_exists: head.if_not_exists,
            input,
            options,
            format,
        }))
    }

    pub(super) fn drop_statement(&mut self) -> Result<Statement> {
        self.expect("DROP")?;
        let kind = match self.object_kind() {
            Some(kind) => kind,
            None => {
                let word = self.word().unwrap_or_default();
                return Err(match word.as_str() {
                    "index" | "aggregate" | "type" | "database" | "user" | "role" | "sequence" | "trigger"
                    | "extension" | "procedure" | "connection" | "secret" | "owned" => {
                        self.refuse(&format!("DROP {}", word.to_uppercase()))
                    }
                    _ => {
                        const KINDS: &[&str] = &["MATERIALIZED", "SCHEMA", "SINK", "SOURCE", "TABLE", "VIEW"];
                        self.unexpected_word("TABLE, SOURCE, VIEW, MATERIALIZED VIEW, SINK or SCHEMA", KINDS)
                    }
                });
            }
        };
        let if_exists = self.eat("IF EXISTS");
        let what = format!("a {kind} name");
        let mut names = Vec::new();
        loop {
            names.push(if kind == DropKind::Schema {
                let position = Some(self.found().position);
                Name { schema: None, name: self.ident(&what)?, position }
            } else {
                let name = self.name(&what)?;
                self.empty_arguments(kind)?;
                name
            });
            if !self.eat_token(&Token::Comma) {
                break;
            }
        }
        let cascade = self.eat("CASCADE");
        if !cascade {
            self.eat("RESTRICT");
        }
        Ok(Statement::Drop(Drop { kind, names, if_exists, cascade }))
    }

    /// Steps over the word for a kind of object, if one is next.
    pub(super) fn object_kind(&mut self) -> Option<DropKind> {
        const KINDS: &[(&str, DropKind)] = &[
            ("MATERIALIZED VIEW", DropKind::MaterializedView),
            ("TABLE", DropKind::Table),
            ("SOURCE", DropKind::Source),
            ("VIEW", DropKind::View),
            ("SINK", DropKind::Sink),
            ("SCHEMA", DropKind::Schema),
            ("FUNCTION", DropKind::Function),
            ("INDEX", DropKind::Index),
        ];
        KINDS.iter().find(|(words, _)| self.eat(words)).map(|(_, kind)| *kind)
    }
}

fn add_key(body: &mut Body, names: Vec<String>, at: Found) -> Result<()> {
    if body.key.is_some() {
        return Err(SpateError::invalid("multiple primary keys are not allowed")
            .with_hint("write PRIMARY KEY (a, b) after the columns")
            .at(at.position.0, at.position.1));
    }
    body.key = Some((names, at));
    Ok(())
}

fn resolve_key(
    table: &Name,
    mut columns: Vec<ColumnDef>,
    key: Option<(Vec<String>, Found)>,
) -> Result<(Vec<ColumnDef>, Vec<usize>)> {
    let Some((names, at)) = key else { return Ok((columns, Vec::new())) };
    if columns.is_empty() {
        return Err(SpateError::unsupported("a primary key on inferred columns is not supported")
            .with_hint(format!("list the columns of {table}"))
            .at(at.position.0, at.position.1));
    }
    let mut indices = Vec::with_capacity(names.len());
    for name in names {
        let Some(index) = columns.iter().position(|c| c.name == name) else {
            let known: Vec<String> = columns.iter().map(|c| c.name.clone()).collect();
            return Err(no_column(&name, &known, &at));
        };
        if let Some(column) = columns.get_mut(index) {
            column.primary_key = true;
            column.nullable = false;
        }
        indices.push(index);
    }
    Ok((columns, indices))
}

fn check_watermark(def: WatermarkDef, columns: &[ColumnDef], at: &Found) -> Result<WatermarkDef> {
    use arrow::datatypes::DataType;
    if columns.is_empty() {
        // The column's existence and type show when the columns are inferred.
        return Ok(def);
    }
    match columns.iter().find(|c| c.name == def.column) {
        None => {
            let known: Vec<String> = columns.iter().map(|c| c.name.clone()).collect();
            Err(no_column(&def.column, &known, at))
        }
        Some(c) if !matches!(c.data_type, DataType::Timestamp(..)) => Err(SpateError::new(
            ErrorKind::Type,
            format!("watermark column \"{}\" must be a timestamp, not {}", c.name, types::display(&c.data_type)),
        )
        .at(at.position.0, at.position.1)),
        Some(_) => Ok(def),
    }
}
