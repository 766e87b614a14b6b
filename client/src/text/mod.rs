//! Values of Arrow arrays in PostgreSQL's text format. A [`Column`] looks at the type once
//! and then prints one row after the other; NULL is the caller's business.

pub mod scalar;

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowDictionaryKeyType, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType,
    IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use spate_engine::types::{Result, jsonb, uuid};

use scalar::Unit;

type CellWriter<'a> = Box<dyn Fn(usize, &mut String) + 'a>;

/// One column of a batch, ready to be printed.
pub struct Column<'a> {
    nulls: Option<NullBuffer>,
    write: CellWriter<'a>,
}

impl<'a> Column<'a> {
    /// A column of these values.
    pub fn new(array: &'a dyn Array) -> Result<Self> {
        Ok(Self { nulls: array.logical_nulls(), write: writer(array)? })
    }

    /// All columns of a batch.
    pub fn all(batch: &'a RecordBatch) -> Result<Vec<Self>> {
        batch.columns().iter().map(|array| Self::new(array.as_ref())).collect()
    }

    /// Whether the value is NULL.
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends the value's text; what it appends for NULL has no meaning.
    pub fn write(&self, row: usize, out: &mut String) {
        (self.write)(row, out);
    }

    /// The value's text, `None` for NULL.
    pub fn text(&self, row: usize) -> Option<String> {
        if self.is_null(row) {
            return None;
        }
        let mut out = String::new();
        self.write(row, &mut out);
        Some(out)
    }
}

/// Whether values of this type are aligned to the right.
pub fn is_numeric(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_numeric(value),
        other => other.is_numeric(),
    }
}

macro_rules! primitive {
    ($array:expr, $kind:ty, |$value:ident, $out:ident| $body:expr) => {{
        let array = $array.as_primitive::<$kind>();
        Box::new(move |row, $out: &mut String| {
            let $value = array.value(row);
            $body;
        })
    }};
}

macro_rules! display {
    ($array:expr, $kind:ty) => {
        primitive!($array, $kind, |value, out| {
            let _ = write!(out, "{value}");
        })
    };
}

macro_rules! decimal {
    ($array:expr, $kind:ty) => {{
        let array = $array.as_primitive::<$kind>();
        Box::new(move |row, out: &mut String| out.push_str(&array.value_as_string(row)))
    }};
}

/// Picks the printer of a type.
fn writer<'a>(array: &'a dyn Array) -> Result<CellWriter<'a>> {
    let write: CellWriter<'a> = match array.data_type() {
        DataType::Null => Box::new(|_, _| {}),
        DataType::Boolean => {
            let array = array.as_boolean();
            Box::new(move |row, out| out.push(if array.value(row) { 't' } else { 'f' }))
        }
        DataType::Int8 => display!(array, Int8Type),
        DataType::Int16 => display!(array, Int16Type),
        DataType::Int32 => display!(array, Int32Type),
        DataType::Int64 => display!(array, Int64Type),
        DataType::UInt8 => display!(array, UInt8Type),
        DataType::UInt16 => display!(array, UInt16Type),
        DataType::UInt32 => display!(array, UInt32Type),
        DataType::UInt64 => display!(array, UInt64Type),
        DataType::Float16 => primitive!(array, Float16Type, |v, out| scalar::float4(f32::from(v), out)),
        DataType::Float32 => primitive!(array, Float32Type, |v, out| scalar::float4(v, out)),
        DataType::Float64 => primitive!(array, Float64Type, |v, out| scalar::float8(v, out)),
        DataType::Decimal32(..) => decimal!(array, Decimal32Type),
        DataType::Decimal64(..) => decimal!(array, Decimal64Type),
        DataType::Decimal128(..) => decimal!(array, Decimal128Type),
        DataType::Decimal256(..) => decimal!(array, Decimal256Type),
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            Box::new(move |row, out| out.push_str(array.value(row)))
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            Box::new(move |row, out| out.push_str(array.value(row)))
        }
        DataType::Utf8View => {
            let array = array.as_string_view();
            Box::new(move |row, out| out.push_str(array.value(row)))
        }
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            Box::new(move |row, out| scalar::bytea(array.value(row), out))
        }
        t if *t == jsonb::TYPE => {
            let array = array.as_binary::<i64>();
            Box::new(move |row, out| out.push_str(&String::from_utf8_lossy(array.value(row))))
        }
        DataType::BinaryView => {
            let array = array.as_binary_view();
            Box::new(move |row, out| scalar::bytea(array.value(row), out))
        }
        t if *t == uuid::TYPE => {
            let array = array.as_fixed_size_binary();
            Box::new(move |row, out| uuid::write(array.value(row), out))
        }
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary();
            Box::new(move |row, out| scalar::bytea(array.value(row), out))
        }
        DataType::Date32 => primitive!(array, Date32Type, |v, out| scalar::date(i64::from(v), out)),
        DataType::Date64 => primitive!(array, Date64Type, |v, out| scalar::date(v.div_euclid(86_400_000), out)),
        DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => {
            return temporal(array);
        }
        DataType::Interval(unit) => match unit {
            IntervalUnit::YearMonth => {
                primitive!(array, IntervalYearMonthType, |v, out| scalar::interval(i64::from(v), 0, 0, out))
            }
            IntervalUnit::DayTime => primitive!(array, IntervalDayTimeType, |v, out| {
                scalar::interval(0, i64::from(v.days), i64::from(v.milliseconds) * 1_000_000, out)
            }),
            IntervalUnit::MonthDayNano => primitive!(array, IntervalMonthDayNanoType, |v, out| {
                scalar::interval(i64::from(v.months), i64::from(v.days), v.nanoseconds, out)
            }),
        },
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            list_writer(list.values(), move |row| (offsets[row] as usize, offsets[row + 1] as usize))?
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let offsets = list.value_offsets();
            list_writer(list.values(), move |row| (offsets[row] as usize, offsets[row + 1] as usize))?
        }
        DataType::FixedSizeList(_, size) => {
            let (list, size) = (array.as_fixed_size_list(), *size as usize);
            list_writer(list.values(), move |row| {
                let start = list.value_offset(row) as usize;
                (start, start + size)
            })?
        }
        DataType::ListView(_) => {
            let list = array.as_list_view::<i32>();
            list_writer(list.values(), move |row| {
                let start = list.value_offset(row) as usize;
                (start, start + list.value_size(row) as usize)
            })?
        }
        DataType::Struct(_) => {
            let parts: Vec<Column<'a>> =
                array.as_struct().columns().iter().map(|column| Column::new(column.as_ref())).collect::<Result<_>>()?;
            Box::new(move |row, out| record(&parts, row, out))
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let keys = Column::new(map.keys().as_ref())?;
            let values = Column::new(map.values().as_ref())?;
            let offsets = map.value_offsets();
            Box::new(move |row, out| map_entries(&keys, &values, offsets[row] as usize..offsets[row + 1] as usize, out))
        }
        DataType::Dictionary(key, _) => match key.as_ref() {
            DataType::Int8 => return dictionary::<Int8Type>(array),
            DataType::Int16 => return dictionary::<Int16Type>(array),
            DataType::Int32 => return dictionary::<Int32Type>(array),
            DataType::Int64 => return dictionary::<Int64Type>(array),
            DataType::UInt8 => return dictionary::<UInt8Type>(array),
            DataType::UInt16 => return dictionary::<UInt16Type>(array),
            DataType::UInt32 => return dictionary::<UInt32Type>(array),
            DataType::UInt64 => return dictionary::<UInt64Type>(array),
            _ => return fallback(array),
        },
        _ => return fallback(array),
    };
    Ok(write)
}

/// Times of day, timestamps and durations of all units.
fn temporal<'a>(array: &'a dyn Array) -> Result<CellWriter<'a>> {
    let stamp = |unit: Unit, zone: &'static str, value: i64, out: &mut String| {
        scalar::timestamp(value, unit, ' ', zone, out);
    };
    let duration = |unit: Unit, value: i64, out: &mut String| {
        scalar::interval(0, 0, value.saturating_mul(1_000_000_000 / unit.per_second), out);
    };
    Ok(match array.data_type() {
        DataType::Time32(TimeUnit::Second) => {
            primitive!(array, Time32SecondType, |v, out| scalar::time(i64::from(v), Unit::SECOND, out))
        }
        DataType::Time32(TimeUnit::Millisecond) => {
            primitive!(array, Time32MillisecondType, |v, out| scalar::time(i64::from(v), Unit::MILLI, out))
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            primitive!(array, Time64MicrosecondType, |v, out| scalar::time(v, Unit::MICRO, out))
        }
        DataType::Time64(TimeUnit::Nanosecond) => {
            primitive!(array, Time64NanosecondType, |v, out| scalar::time(v, Unit::NANO, out))
        }
        DataType::Timestamp(unit, zone) => {
            // A timestamp with a zone is an instant; sessions show it in UTC.
            let zone = if zone.is_some() { "+00" } else { "" };
            match unit {
                TimeUnit::Second => {
                    primitive!(array, TimestampSecondType, |v, out| stamp(Unit::SECOND, zone, v, out))
                }
                TimeUnit::Millisecond => {
                    primitive!(array, TimestampMillisecondType, |v, out| stamp(Unit::MILLI, zone, v, out))
                }
                TimeUnit::Microsecond => {
                    primitive!(array, TimestampMicrosecondType, |v, out| stamp(Unit::MICRO, zone, v, out))
                }
                TimeUnit::Nanosecond => {
                    primitive!(array, TimestampNanosecondType, |v, out| stamp(Unit::NANO, zone, v, out))
                }
            }
        }
        DataType::Duration(unit) => match unit {
            TimeUnit::Second => primitive!(array, DurationSecondType, |v, out| duration(Unit::SECOND, v, out)),
            TimeUnit::Millisecond => {
                primitive!(array, DurationMillisecondType, |v, out| duration(Unit::MILLI, v, out))
            }
            TimeUnit::Microsecond => {
                primitive!(array, DurationMicrosecondType, |v, out| duration(Unit::MICRO, v, out))
            }
            TimeUnit::Nanosecond => primitive!(array, DurationNanosecondType, |v, out| duration(Unit::NANO, v, out)),
        },
        _ => return fallback(array),
    })
}

/// Types that PostgreSQL has no counterpart of, as Arrow prints them.
fn fallback<'a>(array: &'a dyn Array) -> Result<CellWriter<'a>> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array, &options)?;
    // The options must outlive the formatter, so it is made again per value; such types are rare.
    drop(formatter);
    Ok(Box::new(move |row, out| {
        let options = FormatOptions::default();
        if let Ok(formatter) = ArrayFormatter::try_new(array, &options) {
            let _ = write!(out, "{}", formatter.value(row));
        }
    }))
}

fn dictionary<'a, K: ArrowDictionaryKeyType>(array: &'a dyn Array) -> Result<CellWriter<'a>> {
    let array = array.as_dictionary::<K>();
    let values = writer(array.values().as_ref())?;
    Ok(Box::new(move |row, out| {
        if let Some(key) = array.key(row) {
            values(key, out);
        }
    }))
}

/// `{1,2,"a b",NULL}`: arrays nest without quotes, everything else is quoted where needed.
fn list_writer<'a>(values: &'a ArrayRef, range: impl Fn(usize) -> (usize, usize) + 'a) -> Result<CellWriter<'a>> {
    let nested = is_list(values.data_type());
    let items = Column::new(values.as_ref())?;
    Ok(Box::new(move |row, out| {
        let (start, end) = range(row);
        out.push('{');
        for item in start..end {
            if item > start {
                out.push(',');
            }
            if items.is_null(item) {
                out.push_str("NULL");
            } else if nested {
                items.write(item, out);
            } else {
                let from = out.len();
                items.write(item, out);
                quote_item(out, from);
            }
        }
        out.push('}');
    }))
}

fn is_list(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
            | DataType::ListView(_)
            | DataType::LargeListView(_)
    )
}

/// Quotes `out[from..]` as an array's element where array syntax needs it.
fn quote_item(out: &mut String, from: usize) {
    let text = &out[from..];
    let special = |c: char| matches!(c, '"' | '\\' | '{' | '}' | ',') || is_space(c);
    if !text.is_empty() && !text.eq_ignore_ascii_case("null") && !text.contains(special) {
        return;
    }
    let text = out.split_off(from);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// `(1,"a b",)`: the fields of a row; NULL is nothing.
fn record(parts: &[Column<'_>], row: usize, out: &mut String) {
    out.push('(');
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if part.is_null(row) {
            continue;
        }
        let from = out.len();
        part.write(row, out);
        let special = |c: char| matches!(c, '"' | '\\' | '(' | ')' | ',') || is_space(c);
        if out.len() == from || out[from..].contains(special) {
            let text = out.split_off(from);
            out.push('"');
            for c in text.chars() {
                if matches!(c, '"' | '\\') {
                    out.push(c);
                }
                out.push(c);
            }
            out.push('"');
        }
    }
    out.push(')');
}

/// `"k"=>"v", "l"=>NULL`, the form of PostgreSQL's hstore.
fn map_entries(keys: &Column<'_>, values: &Column<'_>, range: std::ops::Range<usize>, out: &mut String) {
    let quoted = |column: &Column<'_>, row: usize, out: &mut String| {
        let mut text = String::new();
        column.write(row, &mut text);
        out.push('"');
        for c in text.chars() {
            if matches!(c, '"' | '\\') {
                out.push('\\');
            }
            out.push(c);
        }
        out.push('"');
    };
    let start = range.start;
    for entry in range {
        if entry > start {
            out.push_str(", ");
        }
        quoted(keys, entry, out);
        out.push_str("=>");
        if values.is_null(entry) {
            out.push_str("NULL");
        } else {
            quoted(values, entry, out);
        }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests;
