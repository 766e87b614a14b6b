//! DataFusion's messages in the words of SQL: `integer` for `Int32`, and which operator or function
//! does not take which types.

use arrow::datatypes::DataType;
use spate_engine::types::error::{ErrorKind, SpateError};

use crate::sql::types::display;

/// An operator or function that does not take the types it is given.
pub(super) fn mismatch(message: &str) -> Option<SpateError> {
    const OPERATOR: &[&str] =
        &["Cannot coerce arithmetic expression ", "Cannot infer common ", "Cannot get result type for temporal"];
    const CANDIDATES: &str = "No function matches the given name and argument types '";
    const COERCION: &str = "Failed to coerce arguments to satisfy a call to '";
    const VALUES: &str = "Inconsistent data type across values list";
    let line = |at: usize| message[at..].lines().next().unwrap_or_default();
    let error = if let Some(at) = message.find(CANDIDATES) {
        let call = in_sql_types(line(at + CANDIDATES.len()).split('\'').next()?);
        match unmatched(&call) {
            Some(error) => return Some(error),
            None => format!("function {call} does not exist"),
        }
    } else if let Some(at) = message.find(COERCION) {
        let (name, rest) = line(at + COERCION.len()).split_once('\'')?;
        let types = rest.split_once("coercion from ")?.1.split_once(" to the signature")?.0;
        let call = format!("{name}({})", in_sql_types(types));
        match unmatched(&call) {
            Some(error) => return Some(error),
            None => format!("function {call} does not exist"),
        }
    } else if let Some(at) = message.find(VALUES) {
        let (_, types) = line(at + VALUES.len()).split_once("Was ")?;
        let (a, b) = types.trim_end_matches('.').split_once(" but found ")?;
        return Some(cannot_match("VALUES", &in_sql_types(a), &in_sql_types(b)));
    } else {
        let (at, start) = OPERATOR.iter().find_map(|start| message.find(start).map(|at| (at, *start)))?;
        let said = line(at + start.len());
        let said = match said.split_once(" operation ") {
            Some((_, operation)) => operation.split_once(": ").map_or(operation, |(operation, _)| operation),
            None => said.strip_suffix(" to valid types")?,
        };
        format!("operator does not exist: {}", in_sql_types(said))
    };
    Some(SpateError::new(ErrorKind::Type, error).with_hint("it does not take these types; a CAST may help"))
}

/// PostgreSQL's error for a call of a function whose arguments are to have one type.
fn unmatched(call: &str) -> Option<SpateError> {
    let (name, types) = call.strip_suffix(')')?.split_once('(')?;
    let name = match name {
        "coalesce" => "COALESCE",
        "greatest" => "GREATEST",
        "least" => "LEAST",
        "make_array" => "ARRAY",
        _ => return None,
    };
    let first = types.split(", ").next()?;
    let other = types.split(", ").find(|t| *t != first)?;
    Some(cannot_match(name, first, other))
}

fn cannot_match(what: &str, a: &str, b: &str) -> SpateError {
    SpateError::new(ErrorKind::Type, format!("{what} types {a} and {b} cannot be matched"))
        .with_hint("cast one to the type of the other")
}

/// `message` with Arrow's type names, such as `Utf8` and `Decimal128(10, 2)`, as SQL has them.
pub(super) fn in_sql_types(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let starts = c.is_ascii_uppercase() && !(before.is_alphanumeric() || matches!(before, '_' | '"' | '.'));
        let taken = match starts.then(|| type_name(rest)).flatten() {
            Some((name, length)) => {
                out.push_str(&name);
                length
            }
            None => {
                out.push(c);
                c.len_utf8()
            }
        };
        before = rest[..taken].chars().next_back().unwrap_or(' ');
        rest = &rest[taken..];
    }
    out
}

/// The type that `text` starts with, and the bytes of its name.
fn type_name(text: &str) -> Option<(String, usize)> {
    let word = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    // These are English words too.
    if matches!(&text[..word], "Binary" | "Null" | "Union" | "Map" | "List") && !text[word..].starts_with('(') {
        return None;
    }
    let whole = word + arguments(&text[word..]);
    [whole, word].into_iter().find_map(|end| Some((display(&text[..end].parse::<DataType>().ok()?), end)))
}

/// The length of `(…)` at the start of `text`.
fn arguments(text: &str) -> usize {
    if !text.starts_with('(') {
        return 0;
    }
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_types_become_sql_types() {
        for (message, expected) in [
            ("Int32 + Utf8", "integer + text"),
            ("f(Decimal128(10, 2), Timestamp(µs))", "f(numeric(10,2), timestamp without time zone)"),
            ("List(Int64) = Boolean", "bigint[] = boolean"),
            ("column \"Int32\" of t.Int64", "column \"Int32\" of t.Int64"),
            ("Binary operator, Mapping, Int32x", "Binary operator, Mapping, Int32x"),
            ("(Int32", "(integer"),
            ("Decimal128(10", "Decimal128(10"),
        ] {
            assert_eq!(in_sql_types(message), expected);
        }
    }
}
