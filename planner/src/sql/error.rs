//! Parser errors as users see them: what stood where, what was expected instead,
//! and a hint for a word that looks misspelt.

use datafusion_sql::sqlparser::parser::ParserError;
use datafusion_sql::sqlparser::tokenizer::TokenizerError;
use spate_engine::types::error::{ErrorKind, SpateError};

/// The token a parser stopped at.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// As written; `None` at the end of the statement.
    pub text: Option<String>,
    /// Line and column, from 1.
    pub position: (u64, u64),
}

/// Longest excerpt of a token in a message, in characters.
const EXCERPT_CHARS: usize = 40;

/// `syntax error at or near "x": expected y`.
pub(super) fn unexpected(found: &Found, expected: &str) -> SpateError {
    let near = match &found.text {
        Some(text) => format!("at or near \"{}\"", excerpt(text)),
        None => "at end of input".to_string(),
    };
    let message = if expected.is_empty() {
        format!("syntax error {near}")
    } else {
        format!("syntax error {near}: expected {expected}")
    };
    SpateError::new(ErrorKind::Syntax, message).at(found.position.0, found.position.1)
}

fn excerpt(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() > EXCERPT_CHARS || line.len() < text.len() {
        let head: String = line.chars().take(EXCERPT_CHARS).collect();
        format!("{head}…")
    } else {
        line.to_string()
    }
}

/// The known word nearest to `word` that is near enough to be what was meant.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let most = match word.chars().count() {
        0..=2 => return None,
        3..=5 => 1,
        6..=9 => 2,
        _ => 3,
    };
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(&word, &k.to_lowercase()), k))
        .filter(|(distance, _)| *distance <= most)
        // Ties go to the first by name, so that the answer does not depend on the order given.
        .min_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1)))
        .map(|(_, k)| k)
}

/// Splits ` at Line: 1, Column: 2` off a message.
fn take_position(message: &str) -> (&str, Option<(u64, u64)>) {
    let Some(at) = message.rfind(" at Line: ") else { return (message, None) };
    let (head, tail) = message.split_at(at);
    let position = tail
        .strip_prefix(" at Line: ")
        .and_then(|t| t.split_once(", Column: "))
        .and_then(|(l, c)| Some((l.parse().ok()?, c.trim().parse().ok()?)));
    match position {
        Some(p) => (head, Some(p)),
        None => (message, None),
    }
}

/// An error of sqlparser's; `end` is what stands where its tokens ended.
pub(super) fn from_parser(error: ParserError, end: &Found) -> SpateError {
    let text = match error {
        ParserError::RecursionLimitExceeded => return too_deep(end.position),
        ParserError::TokenizerError(t) | ParserError::ParserError(t) => t,
    };
    let (message, position) = take_position(&text);
    if let Some(rest) = message.strip_prefix("Expected: ")
        && let Some((expected, found)) = rest.rsplit_once(", found: ")
    {
        let found = match position {
            Some(position) if found != "EOF" => Found { text: Some(found.to_string()), position },
            _ => end.clone(),
        };
        return unexpected(&found, plain_words(expected));
    }
    let message = message.trim_start_matches("sql parser error: ").trim_end_matches('.');
    let (line, column) = position.unwrap_or(end.position);
    SpateError::new(ErrorKind::Syntax, format!("syntax error: {}", decapitalise(message))).at(line, column)
}

fn plain_words(expected: &str) -> &str {
    match expected {
        "identifier" | "an identifier" => "a name",
        "SELECT, VALUES, or a subquery in the query body" => "SELECT, VALUES or a subquery",
        "an SQL statement" => "a statement",
        "a data type name" => "a type",
        "an expression" | "an expression:" => "an expression",
        other => other.trim_end_matches(':'),
    }
}

fn decapitalise(message: &str) -> String {
    let mut chars = message.chars();
    match (chars.next(), chars.clone().next()) {
        // Words in capitals are keywords and stay.
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => message.to_string(),
    }
}

/// Nested deeper than the parser's stack allows.
pub(super) fn too_deep(position: (u64, u64)) -> SpateError {
    SpateError::new(ErrorKind::Limit, "the statement is nested too deeply")
        .with_hint("split it with CTEs or views")
        .at(position.0, position.1)
}

/// An error of the tokenizer.
pub(super) fn from_tokenizer(error: TokenizerError) -> SpateError {
    let message = match error.message.as_str() {
        "Unterminated string literal" | "Unterminated encoded string literal" => {
            "unterminated quoted string".to_string()
        }
        "Unexpected EOF while in a multi-line comment" => "unterminated /* comment".to_string(),
        m if m.starts_with("Unterminated dollar-quoted") => "unterminated dollar-quoted string".to_string(),
        m if m.starts_with("Expected close delimiter") => "unterminated quoted identifier".to_string(),
        m => format!("syntax error: {}", decapitalise(m.trim_end_matches('.'))),
    };
    SpateError::new(ErrorKind::Syntax, message).at(error.location.line, error.location.column)
}

/// Whether more text could mend the error: something was opened and not closed.
pub(super) fn wants_more(error: &TokenizerError) -> bool {
    let m = error.message.as_str();
    m.starts_with("Unterminated") || m.starts_with("Unexpected EOF") || m.ends_with("before EOF.")
}
