//! The statement parser: leading words decide, clauses are read by hand, queries,
//! expressions and types are sqlparser's.
//!
//! A query inside a longer statement is cut out of the tokens first, at the clause that
//! follows it (`EMIT ON WINDOW CLOSE`, `WITH (…)`, `FORMAT …`), since sqlparser would take
//! those words for aliases and table hints.

mod alter;
mod create;
mod dml;
mod function;
mod index;
mod query;
mod utility;

use std::ops::Range;

use datafusion_sql::sqlparser::ast::Expr;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::dialect::DIALECT;
use super::error::{self, Found, did_you_mean};
use super::split::{self, Slice};
use super::statement::{Name, Parsed, Statement};

/// Words that PostgreSQL reserves: not names of tables or columns unless quoted. Sorted.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_date",
    "current_time",
    "current_timestamp",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// Whether a word in lower case is reserved.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.binary_search(&word).is_ok()
}

/// Reads the statement in `slice` of `text`.
pub(super) fn parse_slice(text: &str, slice: &Slice<'_>) -> Result<Parsed> {
    split::check_chains(slice)?;
    let mut cursor = Cursor::new(text, slice);
    let statement = cursor.statement()?;
    cursor.expect_end()?;
    let range = cursor.byte_range(0, slice.tokens.len());
    let text = text.get(range.clone()).unwrap_or_default().to_string();
    Ok(Parsed { statement, range, text })
}

/// Reads the expression that `slice` is.
pub(super) fn parse_expression(text: &str, slice: &Slice<'_>) -> Result<Expr> {
    split::check_chains(slice)?;
    let mut cursor = Cursor::new(text, slice);
    let expr = cursor.expr()?;
    cursor.expect_end()?;
    Ok(expr)
}

/// A place in the tokens of one statement.
pub(super) struct Cursor<'a> {
    text: &'a str,
    tokens: &'a [TokenWithSpan],
    bytes: &'a [Range<usize>],
    end: (u64, u64),
    /// Index of the next token; never on whitespace.
    at: usize,
    /// One parser for all expressions and types, so that tokens are copied once.
    parser: Parser<'static>,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str, slice: &Slice<'a>) -> Self {
        let parser = Parser::new(&DIALECT).with_tokens_with_locations(slice.tokens.to_vec());
        Self { text, tokens: slice.tokens, bytes: slice.bytes, end: slice.end, at: 0, parser }
    }

    // --- looking ---

    /// Index of the `n`th token from here that is not whitespace.
    fn nth(&self, n: usize) -> usize {
        let mut left = n;
        let mut i = self.at;
        while let Some(t) = self.tokens.get(i) {
            if !matches!(t.token, Token::Whitespace(_)) {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            i += 1;
        }
        i
    }

    /// The `n`th token from here, `EOF` behind the last.
    pub(super) fn peek(&self, n: usize) -> &'a Token {
        self.tokens.get(self.nth(n)).map_or(&Token::EOF, |t| &t.token)
    }

    fn at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// Whether the next tokens are these words, none of them quoted.
    fn is(&self, words: &str) -> bool {
        words.split(' ').enumerate().all(|(n, word)| is_word(self.peek(n), word))
    }

    /// The next token's word in lower case, if it is an unquoted word.
    fn word(&self) -> Option<String> {
        match self.peek(0) {
            Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_lowercase()),
            _ => None,
        }
    }

    /// The token that is next, for a message.
    pub(super) fn found(&self) -> Found {
        self.found_at(self.at)
    }

    fn found_at(&self, index: usize) -> Found {
        match self.tokens.get(index) {
            Some(t) => Found {
                text: self.bytes.get(index).and_then(|b| self.text.get(b.clone())).map(str::to_string),
                position: (t.span.start.line, t.span.start.column),
            },
            None => Found { text: None, position: self.end },
        }
    }

    /// A syntax error at the next token.
    pub(super) fn unexpected(&self, expected: &str) -> SpateError {
        error::unexpected(&self.found(), expected)
    }

    /// As `unexpected`, with "did you mean" if the next word is nearly one of `known`.
    fn unexpected_word(&self, expected: &str, known: &[&'static str]) -> SpateError {
        let error = self.unexpected(expected);
        match self.word().and_then(|w| did_you_mean(&w, known.iter().copied())) {
            Some(near) => error.with_hint(format!("did you mean {near}?")),
            None => error,
        }
    }

    /// "… is not supported", at the next token.
    fn refuse(&self, what: &str) -> SpateError {
        refuse_at(&self.found(), what)
    }

    // --- moving ---

    /// Steps over the next token.
    pub(super) fn advance(&mut self) {
        self.go_to(self.nth(0) + 1);
    }

    fn go_to(&mut self, index: usize) {
        self.at = index;
        self.at = self.nth(0);
    }

    /// Steps over `token` if it is next.
    pub(super) fn eat_token(&mut self, token: &Token) -> bool {
        let there = self.peek(0) == token;
        if there {
            self.advance();
        }
        there
    }

    /// Steps over `token` or fails.
    pub(super) fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.eat_token(token) { Ok(()) } else { Err(self.unexpected(&format!("\"{token}\""))) }
    }

    /// Steps over these words if they are next, all of them or none.
    fn eat(&mut self, words: &str) -> bool {
        let there = self.is(words);
        if there {
            self.go_to(self.nth(words.split(' ').count()));
        }
        there
    }

    /// Steps over these words or fails at the first that is missing.
    fn expect(&mut self, words: &'static str) -> Result<()> {
        for word in words.split(' ') {
            if !self.eat(word) {
                return Err(self.unexpected_word(words, &[word]));
            }
        }
        Ok(())
    }

    fn expect_end(&self) -> Result<()> {
        if self.at_end() { Ok(()) } else { Err(self.unexpected("the end of the statement")) }
    }

    // --- pieces ---

    /// A name of something, folded; `what` is what it should be, such as "a table name".
    fn ident(&mut self, what: &str) -> Result<String> {
        let Token::Word(w) = self.peek(0) else { return Err(self.unexpected(what)) };
        let name = match w.quote_style {
            Some(_) if w.value.is_empty() => return Err(self.unexpected(what).with_hint("a name must not be empty")),
            Some(_) => w.value.clone(),
            None => {
                let name = w.value.to_ascii_lowercase();
                if is_reserved(&name) {
                    let hint = format!("{} is a reserved word; as a name, write it in double quotes", w.value);
                    return Err(self.unexpected(what).with_hint(hint));
                }
                name
            }
        };
        self.advance();
        Ok(name)
    }

    /// `name` or `schema.name`.
    fn name(&mut self, what: &str) -> Result<Name> {
        let found = self.found();
        let mut parts = vec![self.ident(what)?];
        while self.eat_token(&Token::Period) {
            parts.push(self.ident(what)?);
        }
        let position = Some(found.position);
        match (parts.pop(), parts.pop(), parts.is_empty()) {
            (Some(name), schema, true) => Ok(Name { schema, name, position }),
            (name, schema, _) => {
                let written: Vec<String> = [schema, name].iter().flatten().map(|part| super::quote(part)).collect();
                Err(SpateError::unsupported("names with a database are not supported")
                    .with_hint(format!("write {}", written.join(".")))
                    .at(found.position.0, found.position.1))
            }
        }
    }

    /// `(a, b, …)`, names without repeats; the opening parenthesis is next.
    fn name_list(&mut self, what: &str) -> Result<Vec<String>> {
        self.expect_token(&Token::LParen)?;
        let mut out: Vec<String> = Vec::new();
        loop {
            let at = self.found();
            let name = self.ident(what)?;
            if out.contains(&name) {
                return Err(SpateError::invalid(format!("column \"{name}\" specified more than once"))
                    .at(at.position.0, at.position.1));
            }
            out.push(name);
            if self.eat_token(&Token::RParen) {
                return Ok(out);
            }
            if !self.eat_token(&Token::Comma) {
                return Err(self.unexpected("\",\" or \")\""));
            }
        }
    }

    fn string(&mut self, what: &str) -> Result<String> {
        let value = match self.peek(0) {
            Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => s.clone(),
            Token::DollarQuotedString(s) => s.value.clone(),
            _ => return Err(self.unexpected(what)),
        };
        self.advance();
        Ok(value)
    }

    fn number(&mut self, what: &str) -> Result<u64> {
        let Token::Number(n, _) = self.peek(0) else { return Err(self.unexpected(what)) };
        let value = n.replace('_', "").parse().map_err(|_| self.unexpected(what))?;
        self.advance();
        Ok(value)
    }

    /// Lets sqlparser read from here on.
    fn delegate<T>(&mut self, read: impl FnOnce(&mut Parser<'static>) -> Result<T, ParserError>) -> Result<T> {
        // The parser has no way to jump; it walks to where the cursor is.
        while self.parser.index() < self.at {
            self.parser.next_token();
        }
        while self.parser.index() > self.at {
            self.parser.prev_token();
        }
        let end = Found { text: None, position: self.end };
        let value = read(&mut self.parser).map_err(|e| error::from_parser(e, &end))?;
        self.go_to(self.parser.index().min(self.tokens.len()));
        Ok(value)
    }

    fn expr(&mut self) -> Result<Expr> {
        self.delegate(|p| p.parse_expr())
    }

    /// The text's bytes from token `from` up to before token `to`, without whitespace at the end.
    fn byte_range(&self, from: usize, to: usize) -> Range<usize> {
        let last = self.tokens[..to.min(self.tokens.len())]
            .iter()
            .rposition(|t| !matches!(t.token, Token::Whitespace(_)))
            .unwrap_or(0);
        let start = self.bytes.get(from).map_or(0, |b| b.start);
        let end = self.bytes.get(last).map_or(start, |b| b.end);
        start..end.max(start)
    }

    // --- dispatch ---

    fn statement(&mut self) -> Result<Statement> {
        let Some(word) = self.word() else {
            return match self.peek(0) {
                Token::LParen => self.query_statement(),
                _ => Err(self.unexpected("a statement")),
            };
        };
        match word.as_str() {
            "create" => self.create(),
            "alter" => self.alter(),
            "comment" => self.comment(),
            "drop" => self.drop_statement(),
            "insert" => self.insert(),
            "update" => self.update(),
            "delete" => self.delete(),
            "truncate" => self.truncate(),
            "copy" => self.copy(),
            "select" | "with" | "values" | "table" => self.query_statement(),
            "subscribe" => self.subscribe(),
            "explain" => self.explain(),
            "show" => self.show(),
            "describe" | "desc" => self.describe(),
            "set" => self.set(),
            "reset" => self.reset(),
            "cancel" => self.cancel(),
            "flush" => {
                self.advance();
                Ok(Statement::Flush)
            }
            _ => Err(self.other_statement(&word)),
        }
    }

    /// An error for a statement that starts with a word we do nothing with.
    fn other_statement(&self, word: &str) -> SpateError {
        let (what, hint) = match word {
            "begin" | "start" | "commit" | "rollback" | "end" | "abort" | "savepoint" | "release" => {
                ("transactions are not supported".to_string(), Some("every statement commits by itself"))
            }
            "refresh" => {
                ("REFRESH is not supported".to_string(), Some("materialized views are always kept up to date"))
            }
            "merge" => {
                ("MERGE is not supported".to_string(), Some("use INSERT into a table with ON CONFLICT DO OVERWRITE"))
            }
            "use" => ("USE is not supported".to_string(), Some("use SET search_path TO …")),
            "grant" | "revoke" | "vacuum" | "analyze" | "analyse" | "prepare" | "execute" | "deallocate"
            | "declare" | "fetch" | "close" | "move" | "listen" | "unlisten" | "notify" | "lock" | "call" | "do"
            | "reindex" | "cluster" | "checkpoint" | "discard" | "load" | "security" | "import" | "pragma"
            | "attach" | "detach" | "kill" | "replace" => (format!("{} is not supported", word.to_uppercase()), None),
            _ => {
                const LEADING: &[&str] = &[
                    "ALTER",
                    "CANCEL",
                    "COMMENT",
                    "COPY",
                    "CREATE",
                    "DELETE",
                    "DESCRIBE",
                    "DROP",
                    "EXPLAIN",
                    "FLUSH",
                    "INSERT",
                    "RESET",
                    "SELECT",
                    "SET",
                    "SHOW",
                    "SUBSCRIBE",
                    "TABLE",
                    "TRUNCATE",
                    "UPDATE",
                    "VALUES",
                    "WITH",
                ];
                return self.unexpected_word("a statement", LEADING);
            }
        };
        let at = self.found().position;
        let error = SpateError::unsupported(what).at(at.0, at.1);
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

fn refuse_at(found: &Found, what: &str) -> SpateError {
    SpateError::unsupported(format!("{what} is not supported")).at(found.position.0, found.position.1)
}

/// Puts a position on an error that has none.
fn locate(error: SpateError, found: &Found) -> SpateError {
    match error.position() {
        Some(_) => error,
        None => error.at(found.position.0, found.position.1),
    }
}

/// An error about a name that a list of columns does not have.
fn no_column(name: &str, columns: &[String], found: &Found) -> SpateError {
    let error = SpateError::new(ErrorKind::NotFound, format!("column \"{name}\" does not exist"))
        .at(found.position.0, found.position.1);
    match did_you_mean(name, columns.iter().map(String::as_str)) {
        Some(near) => error.with_hint(format!("did you mean \"{near}\"?")),
        None => error,
    }
}
