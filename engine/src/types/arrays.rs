//! Lists from PostgreSQL's text form of arrays: `{1,NULL,"a \"b\""}`, nested as deep as the type is.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, StringArray, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field};

use super::textual::{casts, convert};
use super::{ErrorKind, Result, SpateError};

/// Whether text can be read as a list of such elements.
pub(super) fn readable(element: &DataType) -> bool {
    match element {
        DataType::List(f) => readable(f.data_type()),
        // Arrow would take the letters of `\x01` for the bytes.
        DataType::Binary | DataType::Struct(_) | DataType::Map(..) => false,
        other => casts(&DataType::Utf8, other),
    }
}

/// Reads texts as lists of `item`. With `safe` a text that is none becomes NULL.
///
/// # Errors
/// `Evaluation` for a text that is no array or has an element that does not fit, unless `safe`.
pub(super) fn read(array: &ArrayRef, item: &Arc<Field>, safe: bool) -> Result<ArrayRef> {
    let text = cast(array, &DataType::Utf8)?;
    let texts: Vec<Option<&str>> = text.as_string::<i32>().iter().collect();
    match all(&texts, item) {
        Err(_) if safe => {}
        done => return done,
    }
    // One by one, to tell those that fail.
    let to = DataType::List(Arc::clone(item));
    let one = |t: &Option<&str>| all(&[*t], item).unwrap_or_else(|_| new_null_array(&to, 1));
    let rows: Vec<ArrayRef> = texts.iter().map(one).collect();
    let rows: Vec<&dyn Array> = rows.iter().map(AsRef::as_ref).collect();
    Ok(if rows.is_empty() { new_null_array(&to, 0) } else { concat(&rows)? })
}

fn all(texts: &[Option<&str>], item: &Arc<Field>) -> Result<ArrayRef> {
    let depth = depth(item.data_type());
    let lists = texts.iter().map(|t| t.map(|t| Reader::whole(t, depth)).transpose()).collect::<Result<Vec<_>>>()?;
    build(lists, item)
}

fn depth(element: &DataType) -> usize {
    match element {
        DataType::List(f) => 1 + depth(f.data_type()),
        _ => 1,
    }
}

enum Item {
    Null,
    Text(String),
    List(Vec<Item>),
}

fn build(lists: Vec<Option<Vec<Item>>>, item: &Arc<Field>) -> Result<ArrayRef> {
    let nulls: NullBuffer = lists.iter().map(Option::is_some).collect::<Vec<bool>>().into();
    let offsets = OffsetBuffer::<i32>::from_lengths(lists.iter().map(|l| l.as_ref().map_or(0, Vec::len)));
    let items = lists.into_iter().flatten().flatten();
    let values = match item.data_type() {
        DataType::List(inner) => {
            let lists = items.map(|i| match i {
                Item::List(all) => Some(all),
                Item::Null | Item::Text(_) => None,
            });
            build(lists.collect(), inner)?
        }
        element => {
            let texts: StringArray = items
                .map(|i| match i {
                    Item::Text(t) => Some(t),
                    Item::Null | Item::List(_) => None,
                })
                .collect();
            let array: ArrayRef = Arc::new(texts);
            convert(&array, element, false).map_err(|e| fitting(&array, element).unwrap_or(e))?
        }
    };
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, values, Some(nulls))?))
}

/// An error that names the first text that is no `element`.
fn fitting(texts: &ArrayRef, element: &DataType) -> Option<SpateError> {
    let bad = (0..texts.len()).find(|i| convert(&texts.slice(*i, 1), element, false).is_err())?;
    let text: String = texts.as_string::<i32>().value(bad).chars().take(64).collect();
    Some(SpateError::new(ErrorKind::Evaluation, format!("invalid element in an array literal: \"{text}\"")))
}

/// Reads one text.
struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn whole(text: &'a str, depth: usize) -> Result<Vec<Item>> {
        let mut reader = Reader { whole: text, rest: text };
        reader.space();
        let list = reader.list(depth)?;
        reader.space();
        if !reader.rest.is_empty() {
            return Err(reader.malformed("junk after the closing brace"));
        }
        Ok(list)
    }

    fn malformed(&self, why: &str) -> SpateError {
        let shown: String = self.whole.chars().take(64).collect();
        let dots = if shown.len() < self.whole.len() { "…" } else { "" };
        SpateError::new(ErrorKind::Evaluation, format!("malformed array literal: \"{shown}{dots}\": {why}"))
            .with_hint("write {1,2} or {\"a b\",NULL}, and nested braces for an array of arrays")
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    }

    fn eat(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// `{…}`, which holds as many levels.
    fn list(&mut self, depth: usize) -> Result<Vec<Item>> {
        if !self.eat('{') {
            return Err(self.malformed("an opening brace is missing"));
        }
        let mut items = Vec::new();
        self.space();
        if self.eat('}') {
            return Ok(items);
        }
        loop {
            self.space();
            items.push(self.item(depth)?);
            self.space();
            if self.eat('}') {
                return Ok(items);
            }
            if !self.eat(',') {
                return Err(self.malformed("a comma or the closing brace is missing"));
            }
        }
    }

    fn item(&mut self, depth: usize) -> Result<Item> {
        if self.rest.starts_with('{') {
            if depth < 2 {
                return Err(self.malformed("it has more dimensions than its type"));
            }
            return Ok(Item::List(self.list(depth - 1)?));
        }
        let (text, plain) = if self.rest.starts_with('"') { (self.quoted()?, false) } else { self.bare()? };
        if plain && text.eq_ignore_ascii_case("null") {
            return Ok(Item::Null);
        }
        if depth > 1 {
            return Err(self.malformed("it has fewer dimensions than its type"));
        }
        Ok(Item::Text(text))
    }

    fn quoted(&mut self) -> Result<String> {
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, escaped)) => out.push(escaped),
                    None => break,
                },
                other => out.push(other),
            }
        }
        Err(self.malformed("a quoted element has no end"))
    }

    /// An element without quotes, and whether it has no escapes either.
    fn bare(&mut self) -> Result<(String, bool)> {
        let mut out = String::new();
        let mut plain = true;
        // Space at the end does not count, unless it is escaped.
        let mut kept = 0;
        let mut end = self.rest.len();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                ',' | '}' => {
                    end = at;
                    break;
                }
                '{' | '"' => return Err(self.malformed("an element with braces or quotes in it needs quotes")),
                '\\' => {
                    plain = false;
                    let Some((_, escaped)) = chars.next() else { return Err(self.malformed("it ends in an escape")) };
                    out.push(escaped);
                    kept = out.len();
                }
                other => {
                    out.push(other);
                    if !other.is_ascii_whitespace() {
                        kept = out.len();
                    }
                }
            }
        }
        self.rest = &self.rest[end..];
        out.truncate(kept);
        if out.is_empty() {
            return Err(self.malformed("an element is missing"));
        }
        Ok((out, plain))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow::datatypes::Int64Type;

    use super::*;

    fn texts(all: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(all.to_vec()))
    }

    fn item(t: DataType) -> Arc<Field> {
        Arc::new(Field::new_list_field(t, true))
    }

    #[test]
    fn elements_are_read_as_postgresql_reads_them() {
        let got =
            read(&texts(&[r#" { a , "b c" , NULL, "NULL", \NULL, x\ , "q\"\\" } "#]), &item(DataType::Utf8), false);
        let got = got.unwrap();
        let list = got.as_list::<i32>().value(0);
        let got: Vec<Option<&str>> = list.as_string::<i32>().iter().collect();
        let expect = [Some("a"), Some("b c"), None, Some("NULL"), Some("NULL"), Some("x "), Some("q\"\\")];
        assert_eq!(got, expect);
    }

    #[test]
    fn malformed_ones_are_refused_or_null() {
        let bad = ["", "1", "{1", "{1,}", "{,1}", "{1 2", "{1}}", "{\"1}", "{1\\", "{{1}}", "{a\"b\"}", "{1}x"];
        for text in bad {
            let error = read(&texts(&[text]), &item(DataType::Int64), false).unwrap_err().to_string();
            assert!(error.contains("malformed array literal"), "{text}: {error}");
        }
        let got = read(&texts(&["{1", "{2}", "{x}"]), &item(DataType::Int64), true).unwrap();
        assert_eq!((got.is_null(0), got.is_null(1), got.is_null(2)), (true, false, true));
        assert_eq!(got.as_list::<i32>().value(1).as_primitive::<Int64Type>().value(0), 2);
    }

    #[test]
    fn nesting_is_that_of_the_type() {
        let nested = item(DataType::List(item(DataType::Int64)));
        let got = read(&texts(&["{{1,2},{},NULL}", "{}"]), &nested, false).unwrap();
        let list = got.as_list::<i32>();
        assert_eq!((list.value_length(0), list.value_length(1)), (3, 0));
        assert!(read(&texts(&["{1}"]), &nested, false).is_err());
        assert!(read(&texts(&["{{{1}}}"]), &nested, false).is_err());
    }
}
