//! Rows into columns, value by value, for the text formats. A value that does not fit spoils its
//! row only: the row becomes a dead letter and its neighbours survive.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanArray, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder,
    Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder, LargeBinaryBuilder, RecordBatch,
    StringArray, StringBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use arrow::compute::kernels::cast_utils::parse_decimal;
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, SchemaRef, TimeUnit};

use super::nested::{decoded, exact, fault};
use super::types::{batch, mismatch, not_null};
use super::{DeadLetter, scalar};
use crate::types::{Result, SpateError, jsonb, uuid};

/// A value as the text formats have it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    /// NULL, or absent.
    Null,
    /// A JSON `true` or `false`.
    Bool(bool),
    /// A number's text.
    Number(&'a str),
    /// A string without its quotes and escapes.
    Text(&'a str),
    /// The text of a JSON object or array.
    Nested(&'a str),
}

impl Value<'_> {
    fn describe(self) -> String {
        match self {
            Value::Null => "NULL".into(),
            Value::Bool(b) => b.to_string(),
            Value::Number(n) => n.into(),
            Value::Text(t) => format!("\"{t}\""),
            Value::Nested(n) => n.into(),
        }
    }
}

enum Col {
    Bool(BooleanBuilder),
    I16(Int16Builder),
    I32(Int32Builder),
    I64(Int64Builder),
    F32(Float32Builder),
    F64(Float64Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Json(LargeBinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Stamp(TimestampMicrosecondBuilder),
    Decimal(Decimal128Builder, u8, i8),
    /// Any other type that a cast from text makes; checked value by value, cast as one.
    Cast(StringBuilder),
    /// Lists, structs, maps: the JSON text of `{"v": value}`, one line per row.
    Nested(Vec<u8>),
}

/// Builds a batch and its dead letters.
pub(super) struct RowBuilder {
    /// All columns that are looked at.
    schema: SchemaRef,
    /// The leading ones, which are delivered.
    out: SchemaRef,
    cols: Vec<Col>,
    rows: usize,
    in_json: bool,
    bad: Vec<usize>,
    dead: Vec<DeadLetter>,
    bytes: usize,
}

impl RowBuilder {
    /// For rows of `schema`. Errors when a column's type cannot be read from text.
    pub(super) fn new(schema: SchemaRef) -> Result<Self> {
        let cols = schema.fields().iter().map(column_for).collect::<Result<Vec<_>>>()?;
        let out = schema.clone();
        Ok(Self { out, schema, cols, rows: 0, in_json: false, bad: Vec::new(), dead: Vec::new(), bytes: 0 })
    }

    /// For values of a JSON text: a string in a `jsonb` column is a string, not the text of a value.
    pub(super) fn in_json(mut self) -> Self {
        self.in_json = true;
        self
    }

    /// Delivers only the first `n` columns; the others are but checked.
    pub(super) fn delivering(mut self, n: usize) -> Result<Self> {
        self.out = Arc::new(self.schema.project(&(0..n).collect::<Vec<_>>())?);
        Ok(self)
    }

    /// Rows so far, bad ones included.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Dead letters so far and bytes of the records read so far.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.dead.len(), self.bytes)
    }

    /// A record without a row.
    pub(super) fn dead(&mut self, letter: DeadLetter) {
        self.dead.push(letter);
    }

    /// Counts bytes that were read.
    pub(super) fn read(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Adds a row: `value(i)` for each column. `letter` makes a dead letter of an error. Gives
    /// whether the row is good.
    pub(super) fn push<'v>(
        &mut self,
        mut value: impl FnMut(usize) -> Value<'v>,
        letter: impl FnOnce(String) -> DeadLetter,
    ) -> bool {
        let mut error: Option<String> = None;
        for (i, (col, field)) in self.cols.iter_mut().zip(self.schema.fields()).enumerate() {
            // A row that is lost already is filled up, to be filtered out.
            let v = if error.is_some() { Value::Null } else { value(i) };
            if matches!(v, Value::Null) {
                col.append_null();
                if error.is_none() && !field.is_nullable() {
                    error = Some(not_null(field));
                }
            } else if !col.append(v, field, self.in_json) {
                col.append_null();
                error = Some(refusal(v, field));
            }
        }
        let good = error.is_none();
        if let Some(e) = error {
            self.bad.push(self.rows);
            self.dead.push(letter(e));
        }
        self.rows += 1;
        good
    }

    /// Takes back a good row, whose record turned out to be bad further on.
    pub(super) fn take_back(&mut self, row: usize) {
        self.bad.push(row);
    }

    /// The rows and dead letters; the builder is empty afterwards.
    pub(super) fn finish(&mut self) -> Result<(RecordBatch, Vec<DeadLetter>)> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.cols.len());
        for (col, field) in self.cols.iter_mut().zip(self.schema.fields()) {
            columns.push(col.finish(field, self.rows)?);
        }
        columns.truncate(self.out.fields().len());
        let rows = std::mem::take(&mut self.rows);
        let bad = std::mem::take(&mut self.bad);
        if !bad.is_empty() {
            let mut keep = vec![true; rows];
            for &b in &bad {
                if let Some(k) = keep.get_mut(b) {
                    *k = false;
                }
            }
            let keep = BooleanArray::from(keep);
            columns = columns.iter().map(|c| arrow::compute::filter(c, &keep)).collect::<Result<_, _>>()?;
        }
        self.bytes = 0;
        Ok((batch(&self.out, columns, rows - bad.len())?, std::mem::take(&mut self.dead)))
    }
}

/// Whether a column of this field can spoil a row: any text fits where NULL does.
pub(super) fn can_spoil(field: &Field) -> bool {
    *field.data_type() != DataType::Utf8 || !field.is_nullable()
}

fn column_for(field: &FieldRef) -> Result<Col> {
    Ok(match field.data_type() {
        DataType::Boolean => Col::Bool(BooleanBuilder::new()),
        DataType::Int16 => Col::I16(Int16Builder::new()),
        DataType::Int32 => Col::I32(Int32Builder::new()),
        DataType::Int64 => Col::I64(Int64Builder::new()),
        DataType::Float32 => Col::F32(Float32Builder::new()),
        DataType::Float64 => Col::F64(Float64Builder::new()),
        DataType::Utf8 => Col::Text(StringBuilder::new()),
        DataType::Binary => Col::Bytes(BinaryBuilder::new()),
        DataType::FixedSizeBinary(16) => Col::Uuid(FixedSizeBinaryBuilder::new(16)),
        t if *t == jsonb::TYPE => Col::Json(LargeBinaryBuilder::new()),
        DataType::Date32 => Col::Date(Date32Builder::new()),
        DataType::Time64(TimeUnit::Microsecond) => Col::Time(Time64MicrosecondBuilder::new()),
        t @ DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Col::Stamp(TimestampMicrosecondBuilder::new().with_data_type(t.clone()))
        }
        t @ DataType::Decimal128(p, s) => Col::Decimal(Decimal128Builder::new().with_data_type(t.clone()), *p, *s),
        DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => Col::Nested(Vec::new()),
        t if can_cast_types(&DataType::Utf8, t) => Col::Cast(StringBuilder::new()),
        t => {
            return Err(SpateError::unsupported(format!(
                "column \"{}\": type {t} cannot be read from a text format",
                field.name()
            )));
        }
    })
}

/// Appends `$parsed` if there is one and says whether there was.
macro_rules! put {
    ($builder:expr, $parsed:expr) => {
        match $parsed {
            Some(v) => {
                $builder.append_value(v);
                true
            }
            None => false,
        }
    };
}

/// Why a value is none of a column's type.
fn refusal(v: Value<'_>, field: &Field) -> String {
    let fault = match v {
        Value::Nested(t) if *field.data_type() == jsonb::TYPE => jsonb::canonical(t).err(),
        Value::Nested(t) => fault(t, field.data_type()),
        _ => None,
    };
    match fault {
        Some(fault) => format!("column \"{}\": {fault}", field.name()),
        None => mismatch(field, &v.describe()),
    }
}

/// The text of a number or a string; other values have none here.
fn plain<'a>(v: Value<'a>) -> Option<&'a str> {
    match v {
        Value::Number(t) | Value::Text(t) => Some(t),
        _ => None,
    }
}

/// The text of a string.
fn text<'a>(v: Value<'a>) -> Option<&'a str> {
    match v {
        Value::Text(t) => Some(t),
        _ => None,
    }
}

/// A value as canonical JSON.
fn json(v: Value<'_>, in_json: bool) -> Option<String> {
    match v {
        Value::Bool(b) => Some(b.to_string()),
        Value::Text(t) if in_json => {
            let mut out = String::with_capacity(t.len() + 2);
            jsonb::string(t, &mut out);
            Some(out)
        }
        Value::Number(t) | Value::Nested(t) | Value::Text(t) => jsonb::canonical(t).ok(),
        Value::Null => None,
    }
}

/// A number that is finite, as JSON has it; as text also `NaN` and `Infinity`.
fn float(v: Value<'_>) -> Option<f64> {
    match v {
        Value::Number(t) => t.parse::<f64>().ok().filter(|f| f.is_finite()),
        Value::Text(t) => t.trim().parse::<f64>().ok(),
        _ => None,
    }
}

impl Col {
    /// Appends a value other than NULL; `false` if it does not fit (and nothing was appended).
    fn append(&mut self, v: Value<'_>, field: &Field, in_json: bool) -> bool {
        match self {
            Col::Bool(b) => put!(
                b,
                match v {
                    Value::Bool(x) => Some(x),
                    other => text(other).and_then(scalar::boolean),
                }
            ),
            Col::I16(b) => {
                put!(b, plain(v).and_then(scalar::integer).and_then(|x| i16::try_from(x).ok()))
            }
            Col::I32(b) => {
                put!(b, plain(v).and_then(scalar::integer).and_then(|x| i32::try_from(x).ok()))
            }
            Col::I64(b) => put!(b, plain(v).and_then(scalar::integer)),
            #[allow(clippy::cast_possible_truncation)]
            Col::F32(b) => put!(b, float(v).map(|x| x as f32).filter(|x| x.is_finite() || text(v).is_some())),
            Col::F64(b) => put!(b, float(v)),
            Col::Text(b) => {
                match v {
                    Value::Number(t) | Value::Text(t) | Value::Nested(t) => b.append_value(t),
                    Value::Bool(x) => b.append_value(if x { "true" } else { "false" }),
                    Value::Null => b.append_null(),
                }
                true
            }
            Col::Bytes(b) => put!(b, text(v).and_then(scalar::bytes)),
            Col::Uuid(b) => match text(v).and_then(uuid::parse) {
                Some(u) => b.append_value(u).is_ok(),
                None => false,
            },
            Col::Json(b) => put!(b, json(v, in_json)),
            Col::Date(b) => put!(b, text(v).and_then(scalar::date_days)),
            Col::Time(b) => put!(b, text(v).and_then(scalar::time_us)),
            // A number is taken as µs since 1970, as Arrow's own JSON reader takes it.
            Col::Stamp(b) => put!(
                b,
                match v {
                    Value::Number(t) => scalar::integer(t),
                    other => text(other).and_then(scalar::timestamp_us),
                }
            ),
            Col::Decimal(b, p, s) => {
                put!(b, plain(v).and_then(|t| parse_decimal::<Decimal128Type>(t, *p, *s).ok()))
            }
            Col::Cast(b) => match plain(v) {
                Some(t) => {
                    let one = StringArray::from(vec![t]);
                    let fits = cast_with_options(&one, field.data_type(), &strict()).is_ok();
                    if fits {
                        b.append_value(t);
                    }
                    fits
                }
                None => false,
            },
            Col::Nested(lines) => {
                let Value::Nested(t) = v else { return false };
                let mut line = Vec::with_capacity(t.len() + 8);
                line.extend_from_slice(b"{\"v\":");
                line.extend_from_slice(t.as_bytes());
                line.extend_from_slice(b"}\n");
                let exact = serde_json::from_str(t).is_ok_and(|json| exact(&json, field.data_type()));
                let fits = exact && fault(t, field.data_type()).is_none() && decoded(field, &line, 1).is_ok();
                if fits {
                    lines.extend_from_slice(&line);
                }
                fits
            }
        }
    }

    fn append_null(&mut self) {
        match self {
            Col::Bool(b) => b.append_null(),
            Col::I16(b) => b.append_null(),
            Col::I32(b) => b.append_null(),
            Col::I64(b) => b.append_null(),
            Col::F32(b) => b.append_null(),
            Col::F64(b) => b.append_null(),
            Col::Text(b) | Col::Cast(b) => b.append_null(),
            Col::Bytes(b) => b.append_null(),
            Col::Uuid(b) => b.append_null(),
            Col::Json(b) => b.append_null(),
            Col::Date(b) => b.append_null(),
            Col::Time(b) => b.append_null(),
            Col::Stamp(b) => b.append_null(),
            Col::Decimal(b, ..) => b.append_null(),
            Col::Nested(lines) => lines.extend_from_slice(b"{\"v\":null}\n"),
        }
    }

    fn finish(&mut self, field: &Field, rows: usize) -> Result<ArrayRef> {
        Ok(match self {
            Col::Bool(b) => Arc::new(b.finish()),
            Col::I16(b) => Arc::new(b.finish()),
            Col::I32(b) => Arc::new(b.finish()),
            Col::I64(b) => Arc::new(b.finish()),
            Col::F32(b) => Arc::new(b.finish()),
            Col::F64(b) => Arc::new(b.finish()),
            Col::Text(b) => Arc::new(b.finish()),
            Col::Bytes(b) => Arc::new(b.finish()),
            Col::Uuid(b) => Arc::new(b.finish()),
            Col::Json(b) => Arc::new(b.finish()),
            Col::Date(b) => Arc::new(b.finish()),
            Col::Time(b) => Arc::new(b.finish()),
            Col::Stamp(b) => Arc::new(b.finish()),
            Col::Decimal(b, ..) => Arc::new(b.finish()),
            Col::Cast(b) => cast_with_options(&b.finish(), field.data_type(), &strict())?,
            Col::Nested(lines) => decoded(field, &std::mem::take(lines), rows)?,
        })
    }
}

fn strict() -> CastOptions<'static> {
    CastOptions { safe: false, ..Default::default() }
}
