//! CSV after RFC 4180: quoted fields may hold delimiters, quotes and line ends. An unquoted field
//! that equals the null string (empty by default) is NULL; a quoted one never is.

use std::path::Path;

use super::DeadLetter;
use super::columns::{RowBuilder, Value};
use super::lines::{FileId, Lines, Scan, Style};
use super::text::Decode;
use crate::types::{ErrorKind, Result, SpateError};

/// How a CSV file is written.
#[derive(Debug, Clone)]
pub(super) struct CsvOptions {
    /// Whether the first record names the columns.
    pub(super) header: bool,
    /// Between fields; an ASCII byte.
    pub(super) delimiter: u8,
    /// What stands for NULL.
    pub(super) null: String,
}

/// One field of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    start: usize,
    end: usize,
    quoted: bool,
    /// The range is one in the buffer of fields with escaped quotes.
    unescaped: bool,
}

/// Cuts records into fields.
#[derive(Debug, Default)]
pub(super) struct Fields {
    cells: Vec<Cell>,
    unescaped: String,
}

impl Fields {
    /// Cuts `text`, whose quotes are known to be right. Returns the number of fields.
    pub(super) fn cut(&mut self, text: &str, delimiter: u8) -> usize {
        self.cells.clear();
        self.unescaped.clear();
        let bytes = text.as_bytes();
        let mut i = 0;
        loop {
            if bytes.get(i) == Some(&b'"') {
                i += 1;
                let start = i;
                let mut escapes = false;
                while i < bytes.len() {
                    if bytes.get(i) == Some(&b'"') {
                        if bytes.get(i + 1) != Some(&b'"') {
                            break;
                        }
                        escapes = true;
                        i += 1;
                    }
                    i += 1;
                }
                let end = i.min(bytes.len());
                let mut cell = Cell { start, end, quoted: true, unescaped: false };
                if escapes {
                    cell.start = self.unescaped.len();
                    self.unescaped.push_str(&text.get(start..end).unwrap_or_default().replace("\"\"", "\""));
                    cell.end = self.unescaped.len();
                    cell.unescaped = true;
                }
                self.cells.push(cell);
                // Behind the closing quote; a carriage return may stand before the delimiter.
                i += 1;
                while i < bytes.len() && bytes.get(i) != Some(&delimiter) {
                    i += 1;
                }
            } else {
                let start = i;
                while i < bytes.len() && bytes.get(i) != Some(&delimiter) {
                    i += 1;
                }
                self.cells.push(Cell { start, end: i, quoted: false, unescaped: false });
            }
            if i >= bytes.len() {
                return self.cells.len();
            }
            i += 1;
        }
    }

    /// Field `i` of the record that was cut last, and whether it was quoted.
    pub(super) fn get<'a>(&'a self, text: &'a str, i: usize) -> Option<(&'a str, bool)> {
        let c = self.cells.get(i)?;
        let of = if c.unescaped { self.unescaped.as_str() } else { text };
        Some((of.get(c.start..c.end).unwrap_or_default(), c.quoted))
    }
}

/// The first record's fields: the header's names.
pub(super) fn header_of(path: &Path, options: &CsvOptions, max_record: usize) -> Result<Option<Vec<String>>> {
    let mut lines = Lines::open(FileId::of(path, true)?, 0, None, Style::Csv(options.delimiter), max_record)?;
    match lines.next(None)? {
        Scan::Record { bytes, .. } => {
            let text = std::str::from_utf8(bytes).map_err(|_| header_error(path, "is not UTF-8"))?;
            Ok(Some(names(text, options)))
        }
        Scan::Bad { error, .. } => Err(header_error(path, &format!("cannot be read: {error}"))),
        Scan::Wait => {
            // A header without a line end is all there is; an empty file has none.
            let text = std::fs::read(path).unwrap_or_default();
            let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
            match std::str::from_utf8(text) {
                Ok("") => Ok(None),
                Ok(t) => Ok(Some(names(t, options))),
                Err(_) => Err(header_error(path, "is not UTF-8")),
            }
        }
        Scan::End => Ok(None),
    }
}

fn names(text: &str, options: &CsvOptions) -> Vec<String> {
    let mut fields = Fields::default();
    let n = fields.cut(text, options.delimiter);
    let name = |i: usize| match fields.get(text, i).map_or("", |(s, _)| s.trim()) {
        "" => format!("column{}", i + 1),
        s => s.to_owned(),
    };
    (0..n).map(name).collect()
}

fn header_error(path: &Path, what: &str) -> SpateError {
    SpateError::new(ErrorKind::Io, format!("header of \"{}\" {what}", path.display()))
}

/// Decodes CSV records into the projected columns.
pub(super) struct CsvDecoder {
    /// For each projected column its field in the record.
    pub(super) places: Vec<usize>,
    /// Fields that every record has.
    pub(super) width: usize,
    /// How the file is written.
    pub(super) options: CsvOptions,
    /// Scratch.
    pub(super) fields: Fields,
}

impl Decode for CsvDecoder {
    fn decode(&mut self, offset: u64, text: &str, out: &mut RowBuilder, letter: &dyn Fn(String) -> DeadLetter) {
        if text.is_empty() || (self.options.header && offset == 0) {
            return;
        }
        if text.as_bytes().contains(&0) {
            out.dead(letter("a NUL character (0x00) cannot be text".to_owned()));
            return;
        }
        let n = self.fields.cut(text, self.options.delimiter);
        if n != self.width {
            out.dead(letter(format!("expected {} fields, found {n}", self.width)));
            return;
        }
        let (places, fields, null) = (&self.places, &self.fields, self.options.null.as_str());
        let value = |i: usize| match places.get(i).and_then(|p| fields.get(text, *p)) {
            Some((s, false)) if s == null => Value::Null,
            Some((s, _)) => Value::Text(s),
            None => Value::Null,
        };
        out.push(value, letter);
    }
}
