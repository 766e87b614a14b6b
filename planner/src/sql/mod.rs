//! SQL text to statements: dialect, statement parser, options, splitting, types.
//!
//! Names are folded here, once: lower case unless quoted. Positions in errors and in the
//! syntax trees count lines and characters from the start of the whole text.

pub mod dialect;
pub mod error;
pub mod options;
pub mod parameters;
mod parser;
mod place;
pub mod split;
pub mod statement;
pub mod types;
mod watermark;

#[cfg(test)]
mod tests;

pub use datafusion_sql::sqlparser::ast::{Expr, Ident, Query};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

pub use dialect::{DIALECT, SpateDialect, left_condition, partition_argument, table_argument};
pub use error::did_you_mean;
pub use place::place_of;
pub use split::{is_complete, split};
pub use statement::{Name, Options, Parsed, Statement};

/// Reads all statements of `text`; empty ones are skipped.
///
/// Fails with `Syntax`, or with `Unsupported` for statements and clauses of PostgreSQL
/// that Spate does not have; either way with the position in `text`.
pub fn parse(text: &str) -> Result<Vec<Parsed>> {
    let tokens = split::Tokens::new(text)?;
    tokens.statements().iter().map(|slice| parser::parse_slice(text, slice)).collect()
}

/// Reads a text that holds exactly one statement.
pub fn parse_one(text: &str) -> Result<Parsed> {
    let mut all = parse(text)?;
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(SpateError::new(ErrorKind::Syntax, "there is no statement").at(1, 1)),
        (Some(_), false) => Err(SpateError::new(ErrorKind::Syntax, "expected one statement, found several")),
    }
}

/// Reads a text that holds exactly one query, such as a view's `query_text`.
pub fn parse_query(text: &str) -> Result<Box<Query>> {
    match parse_one(text)?.statement {
        Statement::Query(query) => Ok(query),
        other => Err(SpateError::new(ErrorKind::Syntax, format!("expected a query, found {}", other.verb())).at(1, 1)),
    }
}

/// Reads a text that holds exactly one expression, such as a stored default.
pub fn parse_expr(text: &str) -> Result<Expr> {
    let tokens = split::Tokens::new(text)?;
    match tokens.statements().as_slice() {
        [one] => parser::parse_expression(text, one),
        _ => Err(SpateError::new(ErrorKind::Syntax, "expected one expression").at(1, 1)),
    }
}

/// The name that an identifier stands for: lower case unless quoted.
pub fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// A name as it must be written: in double quotes if folding would change it, if it holds
/// other characters than letters, digits and `_`, or if it is a reserved word.
pub fn quote(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && !parser::is_reserved(name);
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
