//! `jsonb`: the canonical text of a JSON value, in an Arrow array of `LargeBinary` (which holds
//! nothing else here).
//!
//! Canonical means as PostgreSQL prints it: no space but one after each comma and colon, each key
//! once (the last one counts), keys by length and then by bytes, strings with no more escapes than
//! they need. Numbers have one form too: `1.0`, `1e0` and `1` are `1`. So values are equal where
//! their texts are, and a part of a canonical text is canonical itself.

mod access;
mod number;
mod parse;
mod write;

use arrow::datatypes::DataType;

pub use access::{element, elements, entry, kind, members, text};
pub use parse::parse;
pub use write::string;

/// The Arrow type.
pub const TYPE: DataType = DataType::LargeBinary;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// The canonical text of a number.
    Number(String),
    /// A string without its escapes.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object: keys in canonical order, each once.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// An object of these members; of a key that comes twice the last one counts.
    pub fn object(mut members: Vec<(String, Json)>) -> Self {
        // Stable, so that of equal keys the last one stays last.
        members.sort_by(|(a, _), (b, _)| (a.len(), a.as_bytes()).cmp(&(b.len(), b.as_bytes())));
        let mut out: Vec<(String, Json)> = Vec::with_capacity(members.len());
        for (key, value) in members {
            match out.last_mut() {
                Some(last) if last.0 == key => last.1 = value,
                _ => out.push((key, value)),
            }
        }
        Self::Object(out)
    }

    /// Whether `self` contains `other`, as PostgreSQL's `@>` has it.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            // An array may contain a plain value.
            (Self::Array(items), Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_)) => {
                items.contains(other)
            }
            _ => self.holds(other),
        }
    }

    fn holds(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(a), Self::Object(b)) => {
                b.iter().all(|(key, value)| a.iter().any(|(k, v)| k == key && v.holds(value)))
            }
            (Self::Array(a), Self::Array(b)) => b.iter().all(|value| a.iter().any(|v| v.holds(value))),
            (a, b) => a == b,
        }
    }
}

/// The canonical form of a text.
///
/// # Errors
/// What is wrong with it, and where.
pub fn canonical(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    write::value(&parse(text)?, &mut out);
    Ok(out)
}

/// Appends the canonical text of a value.
pub fn write(value: &Json, out: &mut String) {
    write::value(value, out);
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
