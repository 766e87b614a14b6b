//! Which types sources deliver, and how the types of files become them.
//!
//! Timestamps are in µs, strings are `Utf8`, integers are the SQL ones (int2, int4, int8);
//! dictionaries are unpacked.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};

use super::nested::{has_maps, repeated, repeated_key};
use super::options::suggest;
use crate::types::float::canonical;

use crate::types::textual::{Way, convert, way};
use crate::types::{ErrorKind, Result, SpateError, jsonb};

/// The type that a source delivers for a type found in a file.
pub(super) fn normal_type(t: &DataType) -> DataType {
    let child = |f: &FieldRef| Arc::new(Field::new(f.name(), normal_type(f.data_type()), f.is_nullable()));
    match t {
        DataType::Null | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
        DataType::Timestamp(_, tz) => DataType::Timestamp(TimeUnit::Microsecond, tz.clone()),
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Dictionary(_, v) => normal_type(v),
        DataType::RunEndEncoded(_, v) => normal_type(v.data_type()),
        DataType::List(f) | DataType::LargeList(f) => DataType::List(child(f)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(child).collect()),
        other => other.clone(),
    }
}

/// The schema that a source delivers for the schema of a file.
pub(super) fn normal_schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<Field> =
        schema.fields().iter().map(|f| Field::new(f.name(), normal_type(f.data_type()), f.is_nullable())).collect();
    Arc::new(Schema::new(fields))
}

/// The name SQL has for a type.
pub(super) fn sql_name(t: &DataType) -> String {
    match t {
        DataType::Boolean => "boolean".into(),
        DataType::Int16 => "smallint".into(),
        DataType::Int32 => "integer".into(),
        DataType::Int64 => "bigint".into(),
        DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => format!("numeric({p},{s})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".into(),
        t if *t == jsonb::TYPE => "jsonb".into(),
        DataType::Binary | DataType::BinaryView => "bytea".into(),
        DataType::FixedSizeBinary(16) => "uuid".into(),
        DataType::Date32 => "date".into(),
        DataType::Time64(_) => "time".into(),
        DataType::Timestamp(_, None) => "timestamp".into(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".into(),
        DataType::Interval(_) => "interval".into(),
        DataType::List(f) => format!("{}[]", sql_name(f.data_type())),
        other => other.to_string(),
    }
}

/// Where the column `name` stands among `names`: an exact match first, then one that differs
/// only in case.
pub(super) fn position_of(names: &[String], name: &str) -> Option<usize> {
    names.iter().position(|n| n == name).or_else(|| names.iter().position(|n| n.to_lowercase() == name.to_lowercase()))
}

/// The error for a declared column that a file does not have.
pub(super) fn missing_column(file: &str, name: &str, names: &[String]) -> SpateError {
    let error = SpateError::new(ErrorKind::NotFound, format!("file \"{file}\" has no column \"{name}\""));
    match suggest(name, names.iter().map(String::as_str)) {
        Some(s) => error.with_hint(format!("did you mean \"{s}\"?")),
        None => {
            let shown: Vec<&str> = names.iter().take(20).map(String::as_str).collect();
            error.with_hint(format!("it has {}{}", shown.join(", "), if names.len() > 20 { ", …" } else { "" }))
        }
    }
}

/// A row that does not fit its declared types.
pub(super) struct BadRow {
    /// Row in the batch.
    pub(super) row: usize,
    /// Why.
    pub(super) error: String,
}

/// Casts `columns` to the types of `schema`. Rows with a value that does not fit, or a NULL where
/// none may be, are taken out and named.
pub(super) fn conform(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<(RecordBatch, Vec<BadRow>)> {
    let mut bad: Vec<Option<String>> = Vec::new();
    let mut mark = |row: usize, error: String| {
        if bad.is_empty() {
            bad.resize(rows, None);
        }
        if let Some(slot) = bad.get_mut(row) {
            slot.get_or_insert(error);
        }
    };
    let mut out: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for (field, column) in schema.fields().iter().zip(columns) {
        let cast = if way(column.data_type(), field.data_type()) == Way::Convert {
            convert(&column, field.data_type(), true)?
        } else if column.data_type() == field.data_type() {
            column.clone()
        } else {
            cast_with_options(&column, field.data_type(), &CastOptions { safe: true, ..Default::default() })?
        };
        if cast.null_count() > column.null_count() {
            for row in (0..rows).filter(|&r| cast.is_null(r) && column.is_valid(r)) {
                let value = arrow::util::display::array_value_to_string(&column, row).unwrap_or_default();
                mark(row, mismatch(field, &value));
            }
        }
        if !field.is_nullable() && column.null_count() > 0 {
            for row in (0..rows).filter(|&r| column.is_null(r)) {
                mark(row, not_null(field));
            }
        }
        if has_maps(cast.data_type()) {
            for row in 0..rows {
                if let Some(key) = repeated_key(&cast, row)? {
                    mark(row, format!("column \"{}\": {}", field.name(), repeated(&key)));
                }
            }
        }
        out.push(cast);
    }
    if !bad.is_empty() {
        let keep: BooleanArray = bad.iter().map(|b| Some(b.is_none())).collect();
        out = out.iter().map(|c| arrow::compute::filter(c, &keep)).collect::<Result<_, _>>()?;
    }
    let bad: Vec<BadRow> =
        bad.into_iter().enumerate().filter_map(|(row, e)| e.map(|error| BadRow { row, error })).collect();
    Ok((batch(schema, out, rows - bad.len())?, bad))
}

/// A batch that knows its number of rows even without columns, with its floats in their one form.
pub(super) fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let columns = columns.iter().map(canonical).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// The fields of `schema` at `projection`.
pub(super) fn project(schema: &Schema, projection: &[usize]) -> Result<SchemaRef> {
    let fields = projection
        .iter()
        .map(|&i| {
            schema.fields().get(i).cloned().ok_or_else(|| {
                SpateError::internal(format!("projection names column {i} of {}", schema.fields().len()))
            })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

/// The error of a value that does not fit its column; long values are cut.
pub(super) fn mismatch(field: &Field, found: &str) -> String {
    let shown: String = found.chars().take(64).collect();
    let dots = if shown.len() < found.len() { "…" } else { "" };
    format!("column \"{}\": expected {}, found {shown}{dots}", field.name(), sql_name(field.data_type()))
}

/// The error of a NULL in a column that may have none.
pub(super) fn not_null(field: &Field) -> String {
    format!("column \"{}\" must not be NULL", field.name())
}
