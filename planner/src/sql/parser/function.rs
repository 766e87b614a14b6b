//! `CREATE FUNCTION … LANGUAGE sql`.

use arrow::datatypes::DataType;
use datafusion_sql::sqlparser::ast::{self, Expr};
use datafusion_sql::sqlparser::tokenizer::Token;
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::super::error::Found;
use super::super::statement::{CreateFunction, DropKind, Statement};
use super::super::{parse_query, types};
use super::query::once;
use super::{Cursor, locate};

impl Cursor<'_> {
    /// `FUNCTION f(a int, …) RETURNS int LANGUAGE sql AS 'SELECT …'`, or with `RETURN expr`.
    pub(super) fn create_function(&mut self, or_replace: bool) -> Result<Statement> {
        self.expect("FUNCTION")?;
        let name = self.name("a function name")?;
        let args = self.function_arguments()?;
        self.expect("RETURNS")?;
        for what in ["TABLE", "SETOF", "TRIGGER", "VOID"] {
            if self.is(what) {
                return Err(self.refuse(&format!("RETURNS {what}")));
            }
        }
        let returns = self.data_type()?;
        let mut language = None;
        let mut strict = None;
        let mut volatility = None;
        let mut body: Option<Expr> = None;
        while !self.at_end() {
            let at = self.found();
            if self.eat("LANGUAGE") {
                let said = match self.peek(0) {
                    Token::SingleQuotedString(s) => s.to_lowercase(),
                    _ => self.word().unwrap_or_default(),
                };
                if said != "sql" {
                    return Err(self.refuse(&format!("LANGUAGE {said}")).with_hint("functions are written in SQL"));
                }
                self.advance();
                once(&mut language, (), &at)?;
            } else if self.eat("IMMUTABLE") || self.eat("STABLE") || self.eat("VOLATILE") {
                // What the expression is shows by itself: a view may not use one that varies.
                once(&mut volatility, (), &at)?;
            } else if self.eat("STRICT") || self.eat("RETURNS NULL ON NULL INPUT") {
                once(&mut strict, true, &at)?;
            } else if self.eat("CALLED ON NULL INPUT") {
                once(&mut strict, false, &at)?;
            } else if self.eat("RETURN") {
                let expr = self.expr()?;
                once(&mut body, expr, &at)?;
            } else if self.eat("AS") {
                let text_at = self.found();
                let text = self.string("the function's text")?;
                let expr = expression_of(&text, &text_at)?;
                once(&mut body, expr, &at)?;
            } else {
                for clause in ["PARALLEL", "COST", "ROWS", "SECURITY", "EXTERNAL", "SET", "WINDOW", "LEAKPROOF"] {
                    if self.is(clause) {
                        return Err(self.refuse(&format!("{clause} in CREATE FUNCTION")));
                    }
                }
                const CLAUSES: &[&str] = &["AS", "IMMUTABLE", "LANGUAGE", "RETURN", "STABLE", "STRICT", "VOLATILE"];
                return Err(self.unexpected_word("LANGUAGE, AS or RETURN", CLAUSES));
            }
        }
        let Some(body) = body else { return Err(self.unexpected("AS and the function's text")) };
        let strict = strict.unwrap_or(false);
        Ok(Statement::CreateFunction(CreateFunction { name, or_replace, args, returns, strict, body }))
    }

    fn data_type(&mut self) -> Result<DataType> {
        let at = self.found();
        let sql = self.delegate(|p| p.parse_data_type())?;
        types::to_arrow(&sql).map_err(|e| locate(e, &at))
    }

    fn function_arguments(&mut self) -> Result<Vec<(String, DataType)>> {
        self.expect_token(&Token::LParen)?;
        let mut args: Vec<(String, DataType)> = Vec::new();
        if self.eat_token(&Token::RParen) {
            return Ok(args);
        }
        loop {
            for mode in ["OUT", "INOUT", "VARIADIC"] {
                if self.is(mode) {
                    return Err(self.refuse(&format!("{mode} arguments")));
                }
            }
            if self.is("IN") {
                self.advance();
            }
            let start = self.at;
            let at = self.found();
            // A type alone, or a name and a type.
            let alone = self.data_type().ok().filter(|_| matches!(self.peek(0), Token::Comma | Token::RParen));
            let (name, data_type) = match alone {
                Some(t) => (String::new(), t),
                None => {
                    self.go_to(start);
                    let name = self.ident("an argument's name")?;
                    (name, self.data_type()?)
                }
            };
            if self.is("DEFAULT") || *self.peek(0) == Token::Eq {
                return Err(self.refuse("a default of an argument"));
            }
            if !name.is_empty() && args.iter().any(|(n, _)| *n == name) {
                return Err(SpateError::invalid(format!("argument \"{name}\" specified more than once"))
                    .at(at.position.0, at.position.1));
            }
            args.push((name, data_type));
            if self.eat_token(&Token::RParen) {
                return Ok(args);
            }
            if !self.eat_token(&Token::Comma) {
                return Err(self.unexpected("\",\" or \")\""));
            }
        }
    }

    /// `()` after a function's name: there is one function of a name, so its arguments need not be
    /// said.
    pub(super) fn empty_arguments(&mut self, kind: DropKind) -> Result<()> {
        if kind == DropKind::Function && self.eat_token(&Token::LParen) && !self.eat_token(&Token::RParen) {
            return Err(self.refuse("the types of arguments here").with_hint("the function's name is enough"));
        }
        Ok(())
    }
}

/// The expression `e` of `SELECT e`.
fn expression_of(text: &str, at: &Found) -> Result<Expr> {
    let place = |e: SpateError| {
        // A position within the text would be taken for one in the statement.
        let plain = SpateError::new(e.kind(), e.message()).at(at.position.0, at.position.1);
        match e.hint() {
            Some(hint) => plain.with_hint(hint),
            None => plain,
        }
    };
    let query = parse_query(text.trim_end().trim_end_matches(';')).map_err(place)?;
    let bare =
        query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    if let (ast::SetExpr::Select(select), true) = (query.body.as_ref(), bare)
        && let [ast::SelectItem::UnnamedExpr(e) | ast::SelectItem::ExprWithAlias { expr: e, .. }] =
            select.projection.as_slice()
        && select.from.is_empty()
        && select.selection.is_none()
        && select.distinct.is_none()
        && select.having.is_none()
        && matches!(&select.group_by, ast::GroupByExpr::Expressions(e, m) if e.is_empty() && m.is_empty())
    {
        return Ok(e.clone());
    }
    Err(place(
        SpateError::new(
            ErrorKind::Unsupported,
            "a function's text other than SELECT and one expression is not supported",
        )
        .with_hint("write AS 'SELECT a + b', or RETURN a + b"),
    ))
}
