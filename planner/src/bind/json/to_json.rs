//! Values of any type as canonical JSON, as PostgreSQL's `to_jsonb` makes it.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::{Result, plan_err};
use spate_engine::types::jsonb::{self, Json, string};
use spate_engine::types::uuid;

use crate::sql::types::display;

/// Dates and times in ISO 8601.
const ISO: FormatOptions<'static> = FormatOptions::new()
    .with_timestamp_format(Some("%Y-%m-%dT%H:%M:%S%.f"))
    .with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%S%.f%:z"));

/// Refuses types that have no JSON form.
pub(super) fn check(t: &DataType) -> Result<()> {
    match t {
        DataType::Null | DataType::Boolean | DataType::Utf8 | DataType::Binary => Ok(()),
        DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..) => Ok(()),
        t if t.is_numeric() || *t == jsonb::TYPE || *t == uuid::TYPE => Ok(()),
        DataType::List(f) => check(f.data_type()),
        DataType::Struct(fields) => fields.iter().try_for_each(|f| check(f.data_type())),
        other => plan_err!("to_jsonb of type {} is not supported", display(other)),
    }
}

type Writer<'a> = Box<dyn Fn(usize, &mut String) + 'a>;

/// Appends the JSON of the value in a row of `array`, `null` for NULL.
pub(super) fn writer<'a>(array: &'a dyn Array) -> Result<Writer<'a>> {
    let value = value_writer(array)?;
    let nulls = array.logical_nulls();
    Ok(Box::new(move |row, out| match &nulls {
        Some(n) if n.is_null(row) => out.push_str("null"),
        _ => value(row, out),
    }))
}

fn value_writer<'a>(array: &'a dyn Array) -> Result<Writer<'a>> {
    Ok(match array.data_type() {
        DataType::Null => Box::new(|_, out| out.push_str("null")),
        DataType::Boolean => {
            let a = array.as_boolean();
            Box::new(move |row, out| out.push_str(if a.value(row) { "true" } else { "false" }))
        }
        DataType::Float32 => {
            let a = array.as_primitive::<Float32Type>();
            Box::new(move |row, out| float(f64::from(a.value(row)), &a.value(row).to_string(), out))
        }
        DataType::Float64 => {
            let a = array.as_primitive::<Float64Type>();
            Box::new(move |row, out| float(a.value(row), &a.value(row).to_string(), out))
        }
        DataType::Utf8 => {
            let a = array.as_string::<i32>();
            Box::new(move |row, out| string(a.value(row), out))
        }
        DataType::Binary => {
            let a = array.as_binary::<i32>();
            Box::new(move |row, out| {
                let hex: String = a.value(row).iter().map(|b| format!("{b:02x}")).collect();
                string(&format!("\\x{hex}"), out);
            })
        }
        t if *t == uuid::TYPE => {
            let a = array.as_fixed_size_binary();
            Box::new(move |row, out| {
                out.push('"');
                uuid::write(a.value(row), out);
                out.push('"');
            })
        }
        t if *t == jsonb::TYPE => {
            let a = array.as_binary::<i64>();
            Box::new(move |row, out| out.push_str(std::str::from_utf8(a.value(row)).unwrap_or("null")))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let items = writer(list.values().as_ref())?;
            let offsets = list.value_offsets();
            Box::new(move |row, out| {
                out.push('[');
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                for item in range.clone() {
                    if item > range.start {
                        out.push_str(", ");
                    }
                    items(item, out);
                }
                out.push(']');
            })
        }
        DataType::Struct(fields) => {
            let whole = array.as_struct();
            let mut parts: Vec<(String, Writer<'a>)> = Vec::with_capacity(fields.len());
            for (f, c) in fields.iter().zip(whole.columns()) {
                parts.push((f.name().clone(), writer(c.as_ref())?));
            }
            parts.sort_by(|(a, _), (b, _)| (a.len(), a.as_bytes()).cmp(&(b.len(), b.as_bytes())));
            Box::new(move |row, out| {
                out.push('{');
                for (i, (name, part)) in parts.iter().enumerate() {
                    if i > 0 {
                        out.push_str(", ");
                    }
                    string(name, out);
                    out.push_str(": ");
                    part(row, out);
                }
                out.push('}');
            })
        }
        t if t.is_numeric() => {
            let format = ArrayFormatter::try_new(array, &ISO)?;
            Box::new(move |row, out| number(&format.value(row).to_string(), out))
        }
        _ => {
            let format = ArrayFormatter::try_new(array, &ISO)?;
            Box::new(move |row, out| string(&without_zeros(&format.value(row).to_string()), out))
        }
    })
}

fn float(value: f64, text: &str, out: &mut String) {
    match () {
        () if value.is_nan() => out.push_str("\"NaN\""),
        () if value.is_infinite() => out.push_str(if value > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" }),
        () => number(text, out),
    }
}

/// The text of a number in its one form.
fn number(text: &str, out: &mut String) {
    match jsonb::parse(text) {
        Ok(n @ Json::Number(_)) => jsonb::write(&n, out),
        _ => string(text, out),
    }
}

/// A time without zeros at the end of its fraction.
fn without_zeros(time: &str) -> String {
    let Some(point) = time.find('.') else { return time.to_owned() };
    let (before, rest) = time.split_at(point);
    let end = rest[1..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |n| n + 1);
    let (fraction, zone) = rest.split_at(end);
    let fraction = fraction.trim_end_matches('0');
    format!("{before}{}{zone}", if fraction == "." { "" } else { fraction })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions() {
        for (time, expect) in [
            ("10:00:00", "10:00:00"),
            ("10:00:00.500", "10:00:00.5"),
            ("10:00:00.000", "10:00:00"),
            ("2024-01-01T10:00:00.120+00:00", "2024-01-01T10:00:00.12+00:00"),
        ] {
            assert_eq!(without_zeros(time), expect);
        }
    }
}
