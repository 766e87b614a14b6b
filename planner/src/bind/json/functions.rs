//! The functions of `jsonb`, over whole columns.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Int32Builder, LargeBinaryBuilder, ListArray, ListBuilder, StringArray,
    StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion_common::{DataFusionError, Result, exec_err};
use spate_engine::types::error::{ErrorKind, SpateError};
use spate_engine::types::jsonb::{self, Json};

use super::{Kind, Values, text_list, texts, to_json};

/// The result of a function for rows of arguments, whose types are those that it was coerced to.
pub(super) fn evaluate(kind: Kind, args: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
    match (kind, args) {
        (Kind::Get, [j, key]) => parts(rows, j, &mut step_of(key)?, false),
        (Kind::GetText, [j, key]) => parts(rows, j, &mut step_of(key)?, true),
        (Kind::Path | Kind::PathText, [j, path]) => {
            let path = Lists::new(path)?;
            let as_text = kind == Kind::PathText;
            let walk: Step<'_> = &mut |row, json| {
                let steps = path.row(row)?;
                steps.iter().try_fold(json, |at, step| step.and_then(|s| step_into(at, s)))
            };
            parts(rows, j, walk, as_text)
        }
        (Kind::Extract | Kind::ExtractText, [j, path @ ..]) => {
            let path = path.iter().map(texts).collect::<Result<Vec<_>>>()?;
            let as_text = kind == Kind::ExtractText;
            let walk: Step<'_> = &mut |row, json| {
                path.iter().try_fold(json, |at, p| p.is_valid(row).then(|| p.value(row)).and_then(|s| step_into(at, s)))
            };
            parts(rows, j, walk, as_text)
        }
        (Kind::Contains, [a, b]) => {
            let (a, b) = (Values::new(a)?, Values::new(b)?);
            let mut out = BooleanBuilder::with_capacity(rows);
            let mut read = Parsed::default();
            for row in 0..rows {
                out.append_option(match (a.get(row)?, b.get(row)?) {
                    (Some(a), Some(b)) => Some(tree(a)?.contains(read.of(b)?)),
                    _ => None,
                });
            }
            Ok(Arc::new(out.finish()))
        }
        (Kind::Exists, [j, key]) => {
            let (j, key) = (Values::new(j)?, texts(key)?);
            let mut out = BooleanBuilder::with_capacity(rows);
            let mut key_of = Key::default();
            for row in 0..rows {
                out.append_option(match j.get(row)? {
                    Some(j) if key.is_valid(row) => Some(has(j, key_of.written(key.value(row)))),
                    _ => None,
                });
            }
            Ok(Arc::new(out.finish()))
        }
        (Kind::ExistsAny | Kind::ExistsAll, [j, keys]) => {
            let (j, keys) = (Values::new(j)?, Lists::new(keys)?);
            let mut out = BooleanBuilder::with_capacity(rows);
            let mut key_of = Key::default();
            for row in 0..rows {
                out.append_option(match (j.get(row)?, keys.row(row)) {
                    (Some(j), Some(keys)) => {
                        // A key that is NULL is left out.
                        let mut found = keys.iter().flatten().map(|k| has(j, key_of.written(k)));
                        Some(if kind == Kind::ExistsAny { found.any(|f| f) } else { found.all(|f| f) })
                    }
                    _ => None,
                });
            }
            Ok(Arc::new(out.finish()))
        }
        (Kind::Concat, [a, b]) => {
            let (a, b) = (Values::new(a)?, Values::new(b)?);
            made(rows, |row| match (a.get(row)?, b.get(row)?) {
                (Some(a), Some(b)) => Ok(Some(concat(tree(a)?, tree(b)?))),
                _ => Ok(None),
            })
        }
        (Kind::Delete, [j, key]) => delete(rows, j, key),
        (Kind::Length, [j]) => {
            let j = Values::new(j)?;
            let mut out = Int32Builder::with_capacity(rows);
            for row in 0..rows {
                out.append_option(match j.get(row)? {
                    Some(j) => {
                        only("get array length of", "array", j)?;
                        i32::try_from(jsonb::elements(j).count()).ok()
                    }
                    None => None,
                });
            }
            Ok(Arc::new(out.finish()))
        }
        (Kind::TypeOf, [j]) => {
            let j = Values::new(j)?;
            let mut out = StringBuilder::with_capacity(rows, rows * 8);
            for row in 0..rows {
                out.append_option(j.get(row)?.map(jsonb::kind));
            }
            Ok(Arc::new(out.finish()))
        }
        (Kind::Elements, [j]) => {
            let j = Values::new(j)?;
            let field = Arc::new(Field::new_list_field(jsonb::TYPE, true));
            let mut out = ListBuilder::new(LargeBinaryBuilder::new()).with_field(field);
            for row in 0..rows {
                if let Some(j) = j.get(row)? {
                    only("extract elements from", "array", j)?;
                    jsonb::elements(j).for_each(|e| out.values().append_value(e));
                }
                out.append(j.0.is_valid(row));
            }
            Ok(Arc::new(out.finish()))
        }
        (Kind::ElementsText | Kind::Keys, [j]) => {
            let j = Values::new(j)?;
            let mut out =
                ListBuilder::new(StringBuilder::new()).with_field(Field::new_list_field(DataType::Utf8, true));
            for row in 0..rows {
                match j.get(row)? {
                    Some(j) if kind == Kind::Keys => {
                        only("call jsonb_object_keys on", "object", j)?;
                        jsonb::members(j).for_each(|(k, _)| out.values().append_option(jsonb::text(k)));
                    }
                    Some(j) => {
                        only("extract elements from", "array", j)?;
                        jsonb::elements(j).for_each(|e| out.values().append_option(jsonb::text(e)));
                    }
                    None => {}
                }
                out.append(j.0.is_valid(row));
            }
            Ok(Arc::new(out.finish()))
        }
        (Kind::BuildObject, all) => build_object(rows, all),
        (Kind::BuildArray, all) => {
            let items = all.iter().map(|a| to_json::writer(a.as_ref())).collect::<Result<Vec<_>>>()?;
            written(rows, |row, text| {
                text.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        text.push_str(", ");
                    }
                    item(row, text);
                }
                text.push(']');
                Ok(true)
            })
        }
        // NULL stays NULL, unless it is in something.
        (Kind::ToJson | Kind::OfList, [value]) => {
            let (write, nulls) = (to_json::writer(value.as_ref())?, value.logical_nulls());
            written(rows, |row, text| {
                let there = nulls.as_ref().is_none_or(|n| n.is_valid(row));
                if there {
                    write(row, text);
                }
                Ok(there)
            })
        }
        _ => exec_err!("wrong number of arguments of a jsonb function"),
    }
}

/// Rows of `jsonb` from text that is canonical; `false` makes NULL.
fn written(rows: usize, mut write: impl FnMut(usize, &mut String) -> Result<bool>) -> Result<ArrayRef> {
    let mut out = LargeBinaryBuilder::with_capacity(rows, rows * 16);
    let mut text = String::new();
    for row in 0..rows {
        text.clear();
        if write(row, &mut text)? { out.append_value(&text) } else { out.append_null() }
    }
    Ok(Arc::new(out.finish()))
}

fn made(rows: usize, mut of: impl FnMut(usize) -> Result<Option<Json>>) -> Result<ArrayRef> {
    written(rows, |row, text| {
        let value = of(row)?;
        if let Some(v) = &value {
            jsonb::write(v, text);
        }
        Ok(value.is_some())
    })
}

/// Finds a part of a row's value.
type StepFn<'f> = dyn for<'a> FnMut(usize, &'a str) -> Option<&'a str> + 'f;
type Step<'f> = &'f mut StepFn<'f>;

/// The parts that `step` finds, as they are or as text.
fn parts(rows: usize, json: &ArrayRef, step: Step<'_>, as_text: bool) -> Result<ArrayRef> {
    let json = Values::new(json)?;
    if as_text {
        let mut out = StringBuilder::with_capacity(rows, rows * 8);
        for row in 0..rows {
            out.append_option(json.get(row)?.and_then(|j| step(row, j)).and_then(jsonb::text));
        }
        return Ok(Arc::new(out.finish()));
    }
    let mut out = LargeBinaryBuilder::with_capacity(rows, rows * 8);
    for row in 0..rows {
        out.append_option(json.get(row)?.and_then(|j| step(row, j)));
    }
    Ok(Arc::new(out.finish()))
}

/// The step of `->`: by a key into objects, by a number into arrays.
fn step_of(key: &ArrayRef) -> Result<Box<StepFn<'static>>> {
    if key.data_type().is_integer() {
        let places = cast(key, &DataType::Int64)?.as_primitive::<Int64Type>().clone();
        return Ok(Box::new(move |row, json| {
            places.is_valid(row).then(|| places.value(row)).and_then(|p| jsonb::element(json, p))
        }));
    }
    let keys = texts(key)?;
    let mut key_of = Key::default();
    Ok(Box::new(move |row, json| {
        if keys.is_null(row) {
            return None;
        }
        jsonb::entry(json, key_of.written(keys.value(row)))
    }))
}

/// A step of a path: a key of an object, or a place in an array.
fn step_into<'a>(json: &'a str, step: &str) -> Option<&'a str> {
    match jsonb::kind(json) {
        "object" => jsonb::entry(json, Key::default().written(step)),
        "array" => jsonb::element(json, step.trim().parse().ok()?),
        _ => None,
    }
}

/// A key as it is written, kept as long as the next one is the same.
#[derive(Default)]
struct Key {
    raw: String,
    written: String,
}

impl Key {
    fn written(&mut self, key: &str) -> &str {
        if self.written.is_empty() || self.raw != key {
            key.clone_into(&mut self.raw);
            self.written.clear();
            jsonb::string(key, &mut self.written);
        }
        &self.written
    }
}

/// A value that was read, kept as long as the next text is the same.
#[derive(Default)]
struct Parsed {
    text: String,
    value: Option<Json>,
}

impl Parsed {
    fn of(&mut self, text: &str) -> Result<&Json> {
        if self.text != text {
            self.value = None;
            text.clone_into(&mut self.text);
        }
        if self.value.is_none() {
            self.value = Some(tree(text)?);
        }
        match &self.value {
            Some(v) => Ok(v),
            None => exec_err!("a jsonb was not read"),
        }
    }
}

fn tree(json: &str) -> Result<Json> {
    jsonb::parse(json).map_err(|e| DataFusionError::Execution(format!("invalid jsonb: {e}")))
}

/// Whether an object has a key, or an array or string is or holds that string; as it is written.
fn has(json: &str, written: &str) -> bool {
    match jsonb::kind(json) {
        "object" => jsonb::entry(json, written).is_some(),
        "array" => jsonb::elements(json).any(|e| e == written),
        _ => json == written,
    }
}

fn concat(a: Json, b: Json) -> Json {
    match (a, b) {
        (Json::Object(mut a), Json::Object(b)) => {
            a.extend(b);
            Json::object(a)
        }
        (Json::Array(mut a), Json::Array(b)) => {
            a.extend(b);
            Json::Array(a)
        }
        (Json::Array(mut a), b) => {
            a.push(b);
            Json::Array(a)
        }
        (a, Json::Array(mut b)) => {
            b.insert(0, a);
            Json::Array(b)
        }
        (a, b) => Json::Array(vec![a, b]),
    }
}

fn delete(rows: usize, json: &ArrayRef, key: &ArrayRef) -> Result<ArrayRef> {
    let json = Values::new(json)?;
    if key.data_type().is_integer() {
        let places = cast(key, &DataType::Int64)?.as_primitive::<Int64Type>().clone();
        return made(rows, |row| {
            let (Some(j), true) = (json.get(row)?, places.is_valid(row)) else { return Ok(None) };
            let place = places.value(row);
            match tree(j)? {
                Json::Array(mut items) => {
                    let n = i64::try_from(items.len()).unwrap_or(i64::MAX);
                    let at = if place < 0 { place.checked_add(n) } else { Some(place) };
                    if let Some(at) = at.and_then(|p| usize::try_from(p).ok()).filter(|p| *p < items.len()) {
                        items.remove(at);
                    }
                    Ok(Some(Json::Array(items)))
                }
                Json::Object(_) => fail("cannot delete from object using integer index"),
                _ => fail("cannot delete from scalar"),
            }
        });
    }
    let keys = texts(key)?;
    made(rows, |row| {
        let (Some(j), true) = (json.get(row)?, keys.is_valid(row)) else { return Ok(None) };
        let key = keys.value(row);
        match tree(j)? {
            Json::Object(mut members) => {
                members.retain(|(k, _)| k != key);
                Ok(Some(Json::Object(members)))
            }
            Json::Array(mut items) => {
                items.retain(|i| !matches!(i, Json::String(s) if s == key));
                Ok(Some(Json::Array(items)))
            }
            _ => fail("cannot delete from scalar"),
        }
    })
}

fn build_object(rows: usize, args: &[ArrayRef]) -> Result<ArrayRef> {
    let mut members = Vec::with_capacity(args.len() / 2);
    for pair in args.chunks_exact(2) {
        members.push((texts(&pair[0])?, to_json::writer(pair[1].as_ref())?));
    }
    let mut out: Vec<(&str, String)> = Vec::with_capacity(members.len());
    written(rows, |row, text| {
        out.clear();
        for (i, (keys, value)) in members.iter().enumerate() {
            if keys.is_null(row) {
                return fail(&format!("argument {}: key must not be null", 2 * i + 1));
            }
            let mut v = String::new();
            value(row, &mut v);
            let key = keys.value(row);
            out.retain(|(k, _)| *k != key);
            out.push((key, v));
        }
        out.sort_by(|(a, _), (b, _)| (a.len(), a.as_bytes()).cmp(&(b.len(), b.as_bytes())));
        text.push('{');
        for (i, (key, value)) in out.iter().enumerate() {
            if i > 0 {
                text.push_str(", ");
            }
            jsonb::string(key, text);
            text.push_str(": ");
            text.push_str(value);
        }
        text.push('}');
        Ok(true)
    })
}

/// Lists of texts.
struct Lists {
    lists: ListArray,
    items: StringArray,
}

impl Lists {
    fn new(array: &ArrayRef) -> Result<Self> {
        let lists = cast(array, &text_list())?.as_list::<i32>().clone();
        let items = texts(lists.values())?;
        Ok(Self { lists, items })
    }

    fn row(&self, row: usize) -> Option<Vec<Option<&str>>> {
        if self.lists.is_null(row) {
            return None;
        }
        let offsets = self.lists.value_offsets();
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        Some(range.map(|i| self.items.is_valid(i).then(|| self.items.value(i))).collect())
    }
}

fn only(what: &str, wanted: &str, json: &str) -> Result<()> {
    match jsonb::kind(json) {
        found if found == wanted => Ok(()),
        found @ ("array" | "object") => fail(&format!("cannot {what} an {found}")),
        _ => fail(&format!("cannot {what} a scalar")),
    }
}

fn fail<T>(message: &str) -> Result<T> {
    Err(SpateError::new(ErrorKind::Evaluation, message).into())
}
