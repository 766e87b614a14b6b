//! Lists, structs and maps within JSON: what is wrong with one, and arrays of them. Arrow's decoder makes
//! the arrays; it takes numbers for others that are near, text that holds NUL, and keys that come twice
//! in a map.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::row::{RowConverter, SortField};

use super::json::{Cursor, Token, unescape};
use crate::types::{Result, SpateError};

/// What is wrong with a value of this type, if text or keys within it are.
pub(super) fn fault(text: &str, t: &DataType) -> Option<String> {
    check(Token::Nested(text), t).err()
}

/// What stands in a map more than once.
pub(super) fn repeated(key: &str) -> String {
    format!("the key \"{key}\" comes twice in a map")
}

fn check(token: Token<'_>, t: &DataType) -> std::result::Result<(), String> {
    let (text, t) = match (token, t) {
        (Token::Text(text, true), _) => return unescape(text, true).map(drop),
        (Token::Nested(text), DataType::List(_) | DataType::Struct(_) | DataType::Map(..)) => (text, t),
        _ => return Ok(()),
    };
    let mut found = Ok(());
    let mut one = |token: Token<'_>, t: &DataType| {
        if found.is_ok() {
            found = check(token, t);
        }
    };
    let mut cursor = Cursor::new(text);
    let walked = match t {
        DataType::List(f) if text.starts_with('[') => cursor.elements(0, &mut |token| one(token, f.data_type())),
        DataType::Struct(fields) if text.starts_with('{') => cursor.record(&mut |key, escaped, token| {
            let field = unescape(key, escaped).ok().and_then(|key| fields.iter().find(|f| *f.name() == *key));
            if let Some(field) = field {
                one(token, field.data_type());
            }
        }),
        DataType::Map(entries, _) if text.starts_with('{') => {
            let value = match entries.data_type() {
                DataType::Struct(pair) => pair.get(1).map_or(&DataType::Null, |f| f.data_type()),
                _ => &DataType::Null,
            };
            let mut keys = HashSet::new();
            let mut wrong = None;
            let walked = cursor.record(&mut |key, escaped, token| {
                match unescape(key, escaped) {
                    Ok(key) if keys.contains(&key) => wrong = wrong.take().or(Some(repeated(&key))),
                    Ok(key) => {
                        keys.insert(key);
                    }
                    Err(e) => wrong = wrong.take().or(Some(e)),
                }
                one(token, value);
            });
            match wrong {
                Some(e) => return Err(e),
                None => walked,
            }
        }
        _ => Ok(()),
    };
    walked.and(found)
}

/// Whether no number within `json` would be bent to become a whole one of type `t`.
pub(super) fn exact(json: &serde_json::Value, t: &DataType) -> bool {
    use serde_json::Value as Json;
    match (t, json) {
        (DataType::List(f), Json::Array(items)) => items.iter().all(|v| exact(v, f.data_type())),
        (DataType::Struct(fields), Json::Object(members)) => {
            fields.iter().all(|f| members.get(f.name()).is_none_or(|v| exact(v, f.data_type())))
        }
        (DataType::Map(entries, _), Json::Object(members)) => match entries.data_type() {
            DataType::Struct(pair) => pair.get(1).is_none_or(|f| members.values().all(|v| exact(v, f.data_type()))),
            _ => true,
        },
        (t, Json::Number(n)) if t.is_integer() => {
            // Beyond 2^53 a number with a point or an exponent is not known exactly.
            n.is_i64() || n.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() < 9_007_199_254_740_992.0)
        }
        _ => true,
    }
}

/// Decodes lines of `{"v": …}` into one array of the field's type.
pub(super) fn decoded(field: &Field, lines: &[u8], rows: usize) -> Result<ArrayRef> {
    let schema = Arc::new(Schema::new(vec![Field::new("v", field.data_type().clone(), true)]));
    let mut decoder = arrow::json::ReaderBuilder::new(schema.clone()).with_batch_size(rows.max(1)).build_decoder()?;
    decoder.decode(lines)?;
    let out = decoder.flush()?.unwrap_or_else(|| RecordBatch::new_empty(schema));
    match out.columns().first() {
        Some(c) if c.len() == rows => Ok(c.clone()),
        _ => Err(SpateError::internal("a nested column has lost rows")),
    }
}

/// Whether values of a type hold maps.
pub(super) fn has_maps(t: &DataType) -> bool {
    match t {
        DataType::Map(..) => true,
        DataType::List(f) => has_maps(f.data_type()),
        DataType::Struct(fields) => fields.iter().any(|f| has_maps(f.data_type())),
        _ => false,
    }
}

/// A key that comes twice in a map of a row, as text.
pub(super) fn repeated_key(array: &ArrayRef, row: usize) -> Result<Option<String>> {
    if array.is_null(row) || !has_maps(array.data_type()) {
        return Ok(None);
    }
    let any = |values: &ArrayRef| {
        (0..values.len()).map(|i| repeated_key(values, i)).find(|r| !matches!(r, Ok(None))).unwrap_or(Ok(None))
    };
    match array.data_type() {
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let [keys, values] = entries.columns() else { return Ok(None) };
            let rows = RowConverter::new(vec![SortField::new(keys.data_type().clone())])?
                .convert_columns(std::slice::from_ref(keys))?;
            let mut seen = HashSet::new();
            match rows.iter().position(|key| !seen.insert(key)) {
                Some(i) => Ok(Some(arrow::util::display::array_value_to_string(keys, i)?)),
                None => any(values),
            }
        }
        DataType::List(_) => any(&array.as_list::<i32>().value(row)),
        DataType::Struct(_) => {
            let parts = array.as_struct().columns().iter();
            parts.map(|c| repeated_key(c, row)).find(|r| !matches!(r, Ok(None))).unwrap_or(Ok(None))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow::array::{Int32Builder, MapBuilder, StringBuilder};

    use super::*;

    #[test]
    fn faults_are_found_at_any_depth() {
        let pair = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)];
        let map = DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair.into()), false)), false);
        let maps = DataType::List(Arc::new(Field::new_list_field(map.clone(), true)));
        assert_eq!(fault(r#"{"a":"x","b":"y"}"#, &map), None);
        assert!(fault(r#"{"a":"x","\u0061":"y"}"#, &map).unwrap().contains("comes twice"));
        assert!(fault(r#"[{"a":"x"},{"a":"\u0000"}]"#, &maps).unwrap().contains("\\u0000"));
        assert!(fault(r#"{"\u0000":"x"}"#, &map).unwrap().contains("\\u0000"));
    }

    #[test]
    fn a_key_that_comes_twice_in_a_file_of_maps_is_found() {
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        for keys in [["a", "b"], ["c", "c"]] {
            for key in keys {
                maps.keys().append_value(key);
                maps.values().append_value(1);
            }
            maps.append(true).unwrap();
        }
        let maps: ArrayRef = Arc::new(maps.finish());
        assert_eq!(repeated_key(&maps, 0).unwrap(), None);
        assert_eq!(repeated_key(&maps, 1).unwrap().as_deref(), Some("c"));
    }
}
