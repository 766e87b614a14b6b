//! JSON as PostgreSQL's `to_json` makes it: numbers bare (`NaN` and infinities as strings),
//! timestamps in ISO 8601, arrays and rows nested, NULL as `null`, everything else as a
//! string in text format.

use std::fmt::Write as _;
use std::io::Write;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use spate_engine::types::{Result, jsonb};

use super::{RowWriter, WriteError};
use crate::text::scalar::{self, Unit};
use crate::text::{self, Column};

/// Writes objects, in one array or one per line.
pub struct Json {
    array: bool,
    endless: bool,
    rows: u64,
}

impl Json {
    /// One array.
    pub fn array(endless: bool) -> Self {
        Self { array: true, endless, rows: 0 }
    }

    /// One object per line.
    pub fn lines(endless: bool) -> Self {
        Self { array: false, endless, rows: 0 }
    }
}

impl RowWriter for Json {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
        let schema = batch.schema();
        let mut names = Vec::new();
        let mut values = Vec::new();
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            names.push(key(field.name()));
            values.push(Value::new(array.as_ref())?);
        }
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            text.clear();
            if self.array {
                text.push_str(if self.rows == 0 { "[" } else { ",\n " });
            }
            self.rows += 1;
            object(&names, &values, row, &mut text);
            if !self.array {
                text.push('\n');
            }
            out.write_all(text.as_bytes())?;
        }
        if self.endless {
            out.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), WriteError> {
        if self.array {
            out.write_all(if self.rows == 0 { b"[]\n" } else { b"]\n" })?;
        }
        Ok(())
    }
}

/// `"name":`
fn key(name: &str) -> String {
    let mut key = String::new();
    string(name, &mut key);
    key.push(':');
    key
}

fn object(names: &[String], values: &[Value<'_>], row: usize, out: &mut String) {
    out.push('{');
    for (i, (name, value)) in names.iter().zip(values).enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(name);
        value.write(row, out);
    }
    out.push('}');
}

/// A JSON string, quoted and escaped.
fn string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

type ValueWriter<'a> = Box<dyn Fn(usize, &mut String) + 'a>;

/// One column, ready to be printed as JSON.
struct Value<'a> {
    nulls: Option<NullBuffer>,
    write: ValueWriter<'a>,
}

impl<'a> Value<'a> {
    fn new(array: &'a dyn Array) -> Result<Self> {
        Ok(Self { nulls: array.logical_nulls(), write: writer(array)? })
    }

    fn write(&self, row: usize, out: &mut String) {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.push_str("null");
        } else {
            (self.write)(row, out);
        }
    }
}

fn writer<'a>(array: &'a dyn Array) -> Result<ValueWriter<'a>> {
    macro_rules! stamp {
        ($kind:ty, $unit:expr, $zone:expr) => {{
            let (array, zone) = (array.as_primitive::<$kind>(), if $zone.is_some() { "+00:00" } else { "" });
            Box::new(move |row, out: &mut String| {
                out.push('"');
                scalar::timestamp(array.value(row), $unit, 'T', zone, out);
                out.push('"');
            })
        }};
    }
    Ok(match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean();
            Box::new(move |row, out| out.push_str(if array.value(row) { "true" } else { "false" }))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            Box::new(move |row, out| {
                let value = array.value(row);
                bare_or_quoted(value.is_finite(), out, |out| scalar::float4(value, out));
            })
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            Box::new(move |row, out| {
                let value = array.value(row);
                bare_or_quoted(value.is_finite(), out, |out| scalar::float8(value, out));
            })
        }
        DataType::Timestamp(TimeUnit::Second, zone) => stamp!(TimestampSecondType, Unit::SECOND, zone),
        DataType::Timestamp(TimeUnit::Millisecond, zone) => stamp!(TimestampMillisecondType, Unit::MILLI, zone),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => stamp!(TimestampMicrosecondType, Unit::MICRO, zone),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => stamp!(TimestampNanosecondType, Unit::NANO, zone),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            items(list.values().as_ref(), move |row| offsets[row] as usize..offsets[row + 1] as usize)?
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let offsets = list.value_offsets();
            items(list.values().as_ref(), move |row| offsets[row] as usize..offsets[row + 1] as usize)?
        }
        DataType::FixedSizeList(_, size) => {
            let (list, size) = (array.as_fixed_size_list(), *size as usize);
            items(list.values().as_ref(), move |row| {
                let start = list.value_offset(row) as usize;
                start..start + size
            })?
        }
        DataType::Struct(fields) => {
            let mut names = Vec::new();
            let mut values = Vec::new();
            for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                names.push(key(field.name()));
                values.push(Value::new(column.as_ref())?);
            }
            Box::new(move |row, out| object(&names, &values, row, out))
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let keys = Column::new(map.keys().as_ref())?;
            let values = Value::new(map.values().as_ref())?;
            let offsets = map.value_offsets();
            Box::new(move |row, out| {
                out.push('{');
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                for entry in range.clone() {
                    if entry > range.start {
                        out.push(',');
                    }
                    string(&keys.text(entry).unwrap_or_default(), out);
                    out.push(':');
                    values.write(entry, out);
                }
                out.push('}');
            })
        }
        kind if *kind == jsonb::TYPE => {
            let column = Column::new(array)?;
            Box::new(move |row, out| column.write(row, out))
        }
        kind if text::is_numeric(kind) && !matches!(kind, DataType::Float16) => {
            let column = Column::new(array)?;
            Box::new(move |row, out| column.write(row, out))
        }
        _ => return as_text(array),
    })
}

fn bare_or_quoted(bare: bool, out: &mut String, write: impl FnOnce(&mut String)) {
    if bare {
        write(out);
    } else {
        out.push('"');
        write(out);
        out.push('"');
    }
}

fn as_text<'a>(array: &'a dyn Array) -> Result<ValueWriter<'a>> {
    let column = Column::new(array)?;
    Ok(Box::new(move |row, out| string(&column.text(row).unwrap_or_default(), out)))
}

fn items<'a>(values: &'a dyn Array, range: impl Fn(usize) -> std::ops::Range<usize> + 'a) -> Result<ValueWriter<'a>> {
    let values = Value::new(values)?;
    Ok(Box::new(move |row, out| {
        out.push('[');
        let range = range(row);
        for item in range.clone() {
            if item > range.start {
                out.push(',');
            }
            values.write(item, out);
        }
        out.push(']');
    }))
}
