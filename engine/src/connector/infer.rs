//! Columns and their types from the first records of text files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::csv::{CsvOptions, Fields, header_of};
use super::json::{Cursor, Token, unescape};
use super::lines::{FileId, Lines, Scan, Style};
use super::scalar;
use crate::types::{Result, SpateError};

/// How many records are looked at.
const RECORDS: usize = 1000;
/// How many bytes are looked at, when records are long.
const BYTES: usize = 16 << 20;

/// What the values of a column have been so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guess {
    Nothing,
    Bool,
    Int,
    /// Whole numbers beyond bigint.
    Wide,
    Float,
    Date,
    Stamp,
    Text,
}

impl Guess {
    fn join(self, other: Self) -> Self {
        use Guess::{Date, Float, Int, Nothing, Stamp, Text, Wide};
        match (self, other) {
            (a, b) if a == b => a,
            (Nothing, x) | (x, Nothing) => x,
            (Int, Wide) | (Wide, Int) => Wide,
            (Int | Wide, Float) | (Float, Int | Wide) => Float,
            (Date, Stamp) | (Stamp, Date) => Stamp,
            _ => Text,
        }
    }

    fn number(text: &str) -> Self {
        if text.parse::<i64>().is_ok() {
            Self::Int
        } else if text.bytes().all(|b| b.is_ascii_digit() || b == b'-') && text.len() <= 38 {
            Self::Wide
        } else {
            Self::Float
        }
    }

    fn time(text: &str) -> Self {
        if scalar::date_days(text).is_some() {
            Self::Date
        } else if scalar::timestamp_us(text).is_some() {
            Self::Stamp
        } else {
            Self::Text
        }
    }

    /// Of a CSV field.
    fn field(text: &str) -> Self {
        if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            return Self::Bool;
        }
        let number = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'));
        // A leading zero means a code, not a number.
        let digits = text.trim_start_matches('-');
        let code = digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
        if number && !code && text.parse::<f64>().is_ok() { Self::number(text) } else { Self::time(text) }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::Wide => DataType::Decimal128(38, 0),
            Self::Float => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Stamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Nothing | Self::Text => DataType::Utf8,
        }
    }
}

fn cannot(path: Option<&PathBuf>, why: &str) -> SpateError {
    let place = path.map_or_else(String::new, |p| format!(" of \"{}\"", p.display()));
    SpateError::invalid(format!("cannot infer the columns{place}: {why}"))
        .with_hint("declare the columns, or give a file with records")
}

/// Records of the files (which may grow) until enough are seen; `each` is called with valid UTF-8 only.
fn records(
    files: &[PathBuf],
    style: Style,
    max_record: usize,
    grows: bool,
    each: &mut dyn FnMut(u64, &str),
) -> Result<()> {
    let (mut n, mut bytes_seen) = (0, 0);
    for path in files {
        let mut lines = Lines::open(FileId::of(path, grows)?, 0, None, style, max_record)?;
        loop {
            if n >= RECORDS || bytes_seen >= BYTES {
                return Ok(());
            }
            match lines.next(None)? {
                Scan::Record { offset, bytes } => {
                    bytes_seen += bytes.len();
                    if let Ok(text) = std::str::from_utf8(bytes)
                        && !text.trim().is_empty()
                    {
                        n += 1;
                        each(offset, text);
                    }
                }
                Scan::Bad { .. } => n += 1,
                Scan::Wait | Scan::End => break,
            }
        }
    }
    Ok(())
}

/// Columns of JSON files, in the order in which they first appear.
pub(super) fn json(files: &[PathBuf], max_record: usize, grows: bool) -> Result<SchemaRef> {
    let mut columns: Vec<(String, Guess)> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    let (mut good, mut array) = (0usize, false);
    records(files, Style::Lines, max_record, grows, &mut |offset, text| {
        let mut members: Vec<(String, Guess)> = Vec::new();
        let scanned = Cursor::new(text).record(&mut |key, escaped, token| {
            let Ok(name) = unescape(key, escaped) else { return };
            let guess = match token {
                Token::Null => Guess::Nothing,
                Token::Bool(_) => Guess::Bool,
                Token::Number(t) => Guess::number(t),
                Token::Text(t, false) => Guess::time(t),
                Token::Text(_, true) | Token::Nested(_) => Guess::Text,
            };
            members.push((name.into_owned(), guess));
        });
        if scanned.is_err() {
            array |= offset == 0 && text.trim_start().starts_with('[');
            return;
        }
        good += 1;
        for (name, guess) in members {
            match index.get(&name).and_then(|i| columns.get_mut(*i)) {
                Some(c) => c.1 = c.1.join(guess),
                None => {
                    index.insert(name.clone(), columns.len());
                    columns.push((name, guess));
                }
            }
        }
    })?;
    if array && good == 0 {
        return Err(SpateError::unsupported(format!(
            "file \"{}\" is one JSON array",
            files.first().map(|f| f.display().to_string()).unwrap_or_default()
        ))
        .with_hint("write one object per line (jq -c '.[]' does)"));
    }
    if columns.is_empty() {
        return Err(cannot(files.first(), "no line is a JSON object with members"));
    }
    let fields: Vec<Field> = columns.into_iter().map(|(n, g)| Field::new(n, g.data_type(), true)).collect();
    Ok(Arc::new(Schema::new(fields)))
}

/// Columns of CSV files; without a header they are called `column1`, `column2`, …
pub(super) fn csv(files: &[PathBuf], options: &CsvOptions, max_record: usize, grows: bool) -> Result<SchemaRef> {
    let mut names: Option<Vec<String>> = None;
    let mut guesses: Vec<Guess> = Vec::new();
    if options.header {
        for path in files {
            names = header_of(path, options, max_record)?;
            if names.is_some() {
                break;
            }
        }
        if names.is_none() {
            return Err(cannot(files.first(), "there is no header"));
        }
    }
    let mut fields = Fields::default();
    records(files, Style::Csv(options.delimiter), max_record, grows, &mut |offset, text| {
        if options.header && offset == 0 {
            return;
        }
        let n = fields.cut(text, options.delimiter);
        if names.is_none() {
            names = Some((1..=n).map(|i| format!("column{i}")).collect());
        }
        let width = names.as_ref().map_or(0, Vec::len);
        guesses.resize(width, Guess::Nothing);
        if n != width {
            return;
        }
        for (i, g) in guesses.iter_mut().enumerate() {
            *g = match fields.get(text, i) {
                Some((s, false)) if s == options.null => *g,
                Some((s, false)) => g.join(Guess::field(s)),
                Some((s, true)) => g.join(if s.is_empty() { Guess::Text } else { Guess::field(s) }),
                None => *g,
            };
        }
    })?;
    let Some(names) = names else { return Err(cannot(files.first(), "there are no records")) };
    guesses.resize(names.len(), Guess::Nothing);
    for (i, n) in names.iter().enumerate() {
        if names.iter().take(i).any(|m| m == n) {
            return Err(cannot(files.first(), &format!("column \"{n}\" stands twice in the header")));
        }
    }
    let fields: Vec<Field> = names.into_iter().zip(guesses).map(|(n, g)| Field::new(n, g.data_type(), true)).collect();
    Ok(Arc::new(Schema::new(fields)))
}
