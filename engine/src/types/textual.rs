//! Types whose values are written as text of a certain form, and the casts between them and text,
//! which Arrow does not know: `uuid` and `jsonb`. Lists and structs are cast by their parts; lists are
//! read from text as PostgreSQL writes arrays.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryBuilder, GenericListArray, LargeBinaryBuilder, StringBuilder, StructArray,
    new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, can_cast_types, cast, cast_with_options};
use arrow::datatypes::{DataType, Field};

use super::{ErrorKind, Result, SpateError, jsonb, uuid};

/// How a cast between two types is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As Arrow does it, if it does.
    Native,
    /// By [`convert`].
    Convert,
    /// Not at all.
    None,
}

/// Whether values of this type have a text form that Arrow does not know.
pub fn is_textual(t: &DataType) -> bool {
    *t == uuid::TYPE || *t == jsonb::TYPE
}

/// Whether this type is one, or is made of one.
pub fn contains_textual(t: &DataType) -> bool {
    match t {
        DataType::List(f) => contains_textual(f.data_type()),
        DataType::Struct(fields) => fields.iter().any(|f| contains_textual(f.data_type())),
        DataType::Map(entries, _) => contains_textual(entries.data_type()),
        other => is_textual(other),
    }
}

fn is_text(t: &DataType) -> bool {
    matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// How `from` is cast to `to`.
pub fn way(from: &DataType, to: &DataType) -> Way {
    if from == to || *from == DataType::Null {
        return Way::Native;
    }
    match (from, to) {
        // Arrow would make a list of one element.
        (a, DataType::List(f)) if is_text(a) => {
            return if super::arrays::readable(f.data_type()) { Way::Convert } else { Way::None };
        }
        (DataType::List(a), DataType::List(b)) if way(a.data_type(), b.data_type()) != Way::Native => {
            return way(a.data_type(), b.data_type());
        }
        _ => {}
    }
    if !(contains_textual(from) || contains_textual(to)) {
        return Way::Native;
    }
    let parts = match (from, to) {
        (a, b) if is_text(a) && is_textual(b) => true,
        (a, b) if is_textual(a) && is_text(b) => true,
        (a, b) if *a == jsonb::TYPE => b.is_numeric() || *b == DataType::Boolean,
        (DataType::List(a), DataType::List(b)) => casts(a.data_type(), b.data_type()),
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| casts(a.data_type(), b.data_type()))
        }
        _ => false,
    };
    if parts { Way::Convert } else { Way::None }
}

/// Whether there is a cast from one type to another, of Arrow's or by [`convert`].
pub fn casts(from: &DataType, to: &DataType) -> bool {
    match way(from, to) {
        Way::Native => can_cast_types(from, to),
        Way::Convert => true,
        Way::None => false,
    }
}

/// Casts `array` to `to`. With `safe` a value that does not fit becomes NULL.
///
/// # Errors
/// `Evaluation` for a value that does not fit, unless `safe`.
pub fn convert(array: &ArrayRef, to: &DataType, safe: bool) -> Result<ArrayRef> {
    let from = array.data_type();
    if from == to {
        return Ok(Arc::clone(array));
    }
    Ok(match (from, to) {
        (DataType::Null, _) => new_null_array(to, array.len()),
        (a, b) if is_text(a) && *b == uuid::TYPE => {
            let text = cast(array, &DataType::Utf8)?;
            let mut out = FixedSizeBinaryBuilder::with_capacity(array.len(), uuid::LEN);
            for value in text.as_string::<i32>() {
                match value.map(|v| uuid::parse(v).ok_or(v)) {
                    Some(Ok(bytes)) => out.append_value(bytes)?,
                    Some(Err(v)) if !safe => return Err(invalid("uuid", v)),
                    _ => out.append_null(),
                }
            }
            Arc::new(out.finish())
        }
        (a, b) if *a == uuid::TYPE && is_text(b) => {
            let bytes = array.as_fixed_size_binary();
            let mut out = StringBuilder::with_capacity(array.len(), array.len() * 36);
            let mut text = String::with_capacity(36);
            for value in bytes {
                match value {
                    Some(v) => {
                        text.clear();
                        uuid::write(v, &mut text);
                        out.append_value(&text);
                    }
                    None => out.append_null(),
                }
            }
            cast(&(Arc::new(out.finish()) as ArrayRef), to)?
        }
        (a, b) if is_text(a) && *b == jsonb::TYPE => {
            let text = cast(array, &DataType::Utf8)?;
            let mut out = LargeBinaryBuilder::with_capacity(array.len(), 0);
            for value in text.as_string::<i32>() {
                match value.map(jsonb::canonical) {
                    Some(Ok(json)) => out.append_value(json),
                    Some(Err(e)) if !safe => {
                        return Err(SpateError::new(ErrorKind::Evaluation, format!("invalid JSON: {e}")));
                    }
                    _ => out.append_null(),
                }
            }
            Arc::new(out.finish())
        }
        (a, b) if *a == jsonb::TYPE && is_text(b) => {
            let mut out = StringBuilder::with_capacity(array.len(), 0);
            for value in array.as_binary::<i64>() {
                out.append_option(value.map(json_text).transpose()?);
            }
            cast(&(Arc::new(out.finish()) as ArrayRef), to)?
        }
        (a, b) if *a == jsonb::TYPE && (b.is_numeric() || *b == DataType::Boolean) => {
            let boolean = *b == DataType::Boolean;
            let mut out = StringBuilder::with_capacity(array.len(), 0);
            for value in array.as_binary::<i64>() {
                let json = value.map(json_text).transpose()?;
                let kind = json.map_or("null", jsonb::kind);
                match json {
                    Some(j) if kind == if boolean { "boolean" } else { "number" } => {
                        out.append_value(if b.is_integer() { whole(j) } else { j });
                    }
                    Some(_) if !safe => {
                        let to = if boolean { "boolean" } else { "a number" };
                        let what = format!("cannot cast jsonb {kind} to {to}");
                        return Err(SpateError::new(ErrorKind::Evaluation, what));
                    }
                    _ => out.append_null(),
                }
            }
            cast_with_options(&out.finish(), to, &CastOptions { safe, ..Default::default() })?
        }
        (a, DataType::List(item)) if is_text(a) => super::arrays::read(array, item, safe)?,
        (DataType::List(_), DataType::List(item)) => {
            let list: &GenericListArray<i32> = array.as_list();
            // Only what this array holds: a slice has all values of the whole.
            let (first, last) = (list.value_offsets()[0], list.value_offsets()[list.len()]);
            let values = list.values().slice(first as usize, (last - first) as usize);
            let values = convert(&values, item.data_type(), safe)?;
            let offsets = OffsetBuffer::<i32>::from_lengths(list.offsets().lengths());
            Arc::new(GenericListArray::try_new(Arc::clone(item), offsets, values, list.nulls().cloned())?)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let whole = array.as_struct();
            let parts = whole.columns().iter().zip(fields);
            let parts = parts.map(|(c, f)| convert(c, f.data_type(), safe)).collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), parts, whole.nulls().cloned(), whole.len())?)
        }
        _ => cast_with_options(array, to, &CastOptions { safe, ..Default::default() })?,
    })
}

fn json_text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| SpateError::new(ErrorKind::Evaluation, "these bytes are no jsonb"))
}

/// A canonical number without its fraction: casts of decimals to whole numbers cut it off too.
fn whole(number: &str) -> &str {
    match number.split_once('.') {
        Some(("-0", _)) => "0",
        Some((whole, _)) => whole,
        None if number.contains("e-") => "0",
        None => number,
    }
}

fn invalid(name: &str, text: &str) -> SpateError {
    let shown: String = text.chars().take(64).collect();
    let dots = if shown.len() < text.len() { "…" } else { "" };
    SpateError::new(ErrorKind::Evaluation, format!("invalid input syntax for type {name}: \"{shown}{dots}\""))
}

/// The type in which files hold values of this type; `json` if they can hold JSON as what it is.
pub fn written(t: &DataType, json: bool) -> DataType {
    let part = |f: &Arc<Field>| Arc::new(f.as_ref().clone().with_data_type(written(f.data_type(), json)));
    match t {
        DataType::List(f) => DataType::List(part(f)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(part).collect()),
        t if json && *t == jsonb::TYPE => t.clone(),
        t if is_textual(t) => DataType::Utf8,
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow::array::{ListArray, StringArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    const ONE: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";

    #[test]
    fn text_and_back() {
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some(ONE), None, Some("x")]));
        assert!(convert(&text, &uuid::TYPE, false).unwrap_err().to_string().contains("for type uuid: \"x\""));
        let ids = convert(&text, &uuid::TYPE, true).unwrap();
        let back = convert(&ids, &DataType::Utf8, false).unwrap();
        assert_eq!(back.as_string::<i32>(), &StringArray::from(vec![Some(ONE), None, None]));
    }

    #[test]
    fn a_slice_of_lists_is_cast_alone() {
        let mut lists = arrow::array::ListBuilder::new(StringBuilder::new());
        for item in ["bad", ONE] {
            lists.values().append_value(item);
            lists.append(true);
        }
        lists.append(false);
        let whole: ArrayRef = Arc::new(lists.finish());
        let to = DataType::List(Arc::new(Field::new_list_field(uuid::TYPE, true)));
        assert_eq!(way(whole.data_type(), &to), Way::Convert);
        assert!(convert(&whole, &to, false).is_err());
        let ids = convert(&whole.slice(1, 2), &to, false).unwrap();
        assert_eq!((ids.len(), ids.null_count(), ids.as_list::<i32>().value_length(0)), (2, 1, 1));
    }

    #[test]
    fn no_other_casts() {
        let numbers = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])]);
        for other in [DataType::Binary, DataType::Int64, numbers.data_type().clone()] {
            assert_eq!((way(&other, &uuid::TYPE), way(&uuid::TYPE, &other)), (Way::None, Way::None));
        }
        assert_eq!(way(&DataType::Null, &uuid::TYPE), Way::Native);
        assert_eq!(way(&DataType::Utf8, &DataType::Int64), Way::Native);
    }
}
