//! Parts of a canonical text, found by walking over it: nothing is built but what is asked for.
//! A text that is not canonical gives parts that mean nothing, and no panic.

use std::borrow::Cow;

/// What a value is, as PostgreSQL's `jsonb_typeof` calls it.
pub fn kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') | None => "null",
        Some(_) => "number",
    }
}

/// Where the value that starts at `at` ends.
fn end_of(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while let Some(b) = bytes.get(at) {
        match b {
            b'"' => {
                at = end_of_string(bytes, at);
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b',' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Where the string that starts at `at` ends.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while let Some(b) = bytes.get(at) {
        match b {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The elements of an array, in order; none of any other value.
pub fn elements(json: &str) -> impl Iterator<Item = &str> {
    let bytes = json.as_bytes();
    let array = bytes.first() == Some(&b'[');
    let mut at = 1;
    std::iter::from_fn(move || {
        if !array || matches!(bytes.get(at), None | Some(b']')) {
            return None;
        }
        let end = end_of(bytes, at);
        let item = json.get(at..end)?;
        // Past the comma and the space after it.
        at = if bytes.get(end) == Some(&b',') { end + 2 } else { bytes.len() };
        Some(item)
    })
}

/// The members of an object in order: keys as they are written, and values; none of any other
/// value.
pub fn members(json: &str) -> impl Iterator<Item = (&str, &str)> {
    let bytes = json.as_bytes();
    let object = bytes.first() == Some(&b'{');
    let mut at = 1;
    std::iter::from_fn(move || {
        if !object || bytes.get(at) != Some(&b'"') {
            return None;
        }
        let key = json.get(at..end_of_string(bytes, at))?;
        let start = at + key.len() + 2;
        let end = end_of(bytes, start);
        let value = json.get(start..end)?;
        at = if bytes.get(end) == Some(&b',') { end + 2 } else { bytes.len() };
        Some((key, value))
    })
}

/// The element of an array at a place, counted from 0, or from the end and −1.
pub fn element(json: &str, place: i64) -> Option<&str> {
    match usize::try_from(place) {
        Ok(n) => elements(json).nth(n),
        Err(_) => {
            let back = usize::try_from(place.unsigned_abs()).ok()?;
            let n = elements(json).count().checked_sub(back)?;
            elements(json).nth(n)
        }
    }
}

/// The value under a key of an object; the key as it is written, with quotes and escapes.
pub fn entry<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    members(json).find(|(k, _)| *k == key).map(|(_, v)| v)
}

/// A value as text: a string without its quotes and escapes, anything else as it is written;
/// nothing for `null`.
pub fn text(json: &str) -> Option<Cow<'_, str>> {
    match json.as_bytes().first() {
        None | Some(b'n') => None,
        Some(b'"') if json.contains('\\') => match super::parse(json) {
            Ok(super::Json::String(s)) => Some(Cow::Owned(s)),
            _ => None,
        },
        Some(b'"') => json.get(1..json.len().checked_sub(1)?).map(Cow::Borrowed),
        Some(_) => Some(Cow::Borrowed(json)),
    }
}
