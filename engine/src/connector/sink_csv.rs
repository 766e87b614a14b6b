//! Writes rows as CSV so that the source reads the same back: NULL stands unquoted, the empty string
//! and whatever looks like NULL in quotes.

use std::fmt::Write as _;
use std::io::Write;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::csv::CsvOptions;
use crate::types::{ErrorKind, Result, SpateError};

/// Bytes of text that are written at once.
const FLUSH: usize = 256 << 10;

/// Writes `rows`, below the names of their columns if `header`.
pub(super) fn write(
    rows: &RecordBatch,
    options: &CsvOptions,
    header: bool,
    stamp: &str,
    out: &mut dyn Write,
) -> Result<()> {
    let format = FormatOptions::new().with_timestamp_format(Some(stamp));
    let schema = rows.schema();
    let mut columns = Vec::with_capacity(rows.num_columns());
    for (field, column) in schema.fields().iter().zip(rows.columns()) {
        if field.data_type().is_nested() {
            return Err(SpateError::unsupported(format!(
                "column \"{}\" is nested, which CSV has no form for",
                field.name()
            )));
        }
        columns.push((column, ArrayFormatter::try_new(column, &format)?));
    }
    let mut text = String::new();
    if header && options.header {
        for (i, field) in schema.fields().iter().enumerate() {
            separate(&mut text, i, options);
            let from = text.len();
            text.push_str(field.name());
            quote(&mut text, from, options);
        }
        text.push('\n');
    }
    for row in 0..rows.num_rows() {
        for (i, (column, formatter)) in columns.iter().enumerate() {
            separate(&mut text, i, options);
            if column.is_null(row) {
                text.push_str(&options.null);
                continue;
            }
            let from = text.len();
            match special(column, row) {
                Some(name) => text.push_str(name),
                None => write!(text, "{}", formatter.value(row))
                    .map_err(|_| SpateError::internal("a value cannot be written"))?,
            }
            quote(&mut text, from, options);
        }
        text.push('\n');
        if text.len() >= FLUSH {
            put(&mut text, out)?;
        }
    }
    put(&mut text, out)
}

fn put(text: &mut String, out: &mut dyn Write) -> Result<()> {
    out.write_all(text.as_bytes()).map_err(|e| SpateError::new(ErrorKind::Io, format!("cannot write: {e}")))?;
    text.clear();
    Ok(())
}

fn separate(text: &mut String, column: usize, options: &CsvOptions) {
    if column > 0 {
        text.push(char::from(options.delimiter));
    }
}

/// The name of a float that is no number, as PostgreSQL writes it.
pub(super) fn special(column: &dyn Array, row: usize) -> Option<&'static str> {
    let value = match column.data_type() {
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row),
        DataType::Float32 => f64::from(column.as_primitive::<Float32Type>().value(row)),
        _ => return None,
    };
    match value {
        v if v.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}

/// Puts what stands behind `from` in quotes if it would be read as something else without.
fn quote(text: &mut String, from: usize, options: &CsvOptions) {
    let field = &text[from..];
    let odd = |b: u8| matches!(b, b'"' | b'\n' | b'\r') || b == options.delimiter;
    if field.is_empty() || field == options.null || field.bytes().any(odd) {
        let quoted = format!("\"{}\"", field.replace('"', "\"\""));
        text.truncate(from);
        text.push_str(&quoted);
    }
}
