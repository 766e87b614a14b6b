//! Types: what a type written in SQL is in Arrow, and what an Arrow type is called in SQL.
//! Lengths of `varchar(n)` and `char(n)` are accepted and not enforced.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, IntervalUnit, TimeUnit};
use datafusion_sql::sqlparser::ast::{self, ArrayElemTypeDef, ExactNumberInfo, TimezoneInfo};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::error::did_you_mean;

/// Precision and scale of `numeric` without either.
pub const DEFAULT_NUMERIC: (u8, i8) = (38, 10);

/// Greatest precision of `numeric(p, s)`, in digits.
const MAX_PRECISION: u64 = 38;

/// Time zone of `timestamptz`: instants are kept in UTC.
pub const UTC: &str = "UTC";

/// The Arrow type of a type as written. Fails with `Unsupported` for types that exist
/// elsewhere, naming them, and with `NotFound` for names that mean nothing.
pub fn to_arrow(sql: &ast::DataType) -> Result<DataType> {
    use ast::DataType as S;
    Ok(match sql {
        S::Boolean | S::Bool => DataType::Boolean,
        S::SmallInt(_) | S::Int2(_) => DataType::Int16,
        S::Int(_) | S::Integer(_) | S::Int4(_) => DataType::Int32,
        S::BigInt(_) | S::Int8(_) => DataType::Int64,
        S::Int16 => DataType::Int16,
        S::Int32 => DataType::Int32,
        S::Int64 => DataType::Int64,
        S::Numeric(info) | S::Decimal(info) | S::Dec(info) => numeric(info)?,
        S::Real | S::Float4 | S::Float32 => DataType::Float32,
        S::Float8 | S::Float64 | S::DoublePrecision | S::Double(ExactNumberInfo::None) => DataType::Float64,
        S::Float(info) => float(info)?,
        S::Text
        | S::String(_)
        | S::Varchar(_)
        | S::CharacterVarying(_)
        | S::CharVarying(_)
        | S::Char(_)
        | S::Character(_) => DataType::Utf8,
        S::Bytea => DataType::Binary,
        S::Date => DataType::Date32,
        S::Time(precision, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            check_precision("time", *precision)?;
            DataType::Time64(TimeUnit::Microsecond)
        }
        S::Timestamp(precision, zone) => {
            check_precision("timestamp", *precision)?;
            match zone {
                TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => DataType::Timestamp(TimeUnit::Microsecond, None),
                TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => {
                    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
                }
            }
        }
        S::Interval { fields: None, precision: None } => DataType::Interval(IntervalUnit::MonthDayNano),
        S::Interval { .. } => return Err(unsupported(sql, "use interval")),
        S::Array(ArrayElemTypeDef::AngleBracket(inner))
        | S::Array(ArrayElemTypeDef::SquareBracket(inner, _))
        | S::Array(ArrayElemTypeDef::Parenthesis(inner)) => {
            // PostgreSQL has one array type for all dimensions; here each adds a level.
            DataType::List(Arc::new(Field::new_list_field(to_arrow(inner)?, true)))
        }
        S::Struct(fields, _) => structure(fields)?,
        S::Map(key, value) => {
            let key = to_arrow(key)?;
            if key.is_nested() {
                let what = format!("a map with keys of type {} is not supported", display(&key));
                return Err(SpateError::unsupported(what));
            }
            map(key, to_arrow(value)?)
        }
        S::Uuid => spate_engine::types::uuid::TYPE,
        // One type: what `json` keeps more, spaces and the order of keys, means nothing.
        S::JSON | S::JSONB => spate_engine::types::jsonb::TYPE,
        S::Custom(name, _) => return Err(unknown(&name.to_string())),
        S::TinyInt(_) => return Err(unsupported(sql, "use smallint")),
        S::Datetime(_) => return Err(unsupported(sql, "use timestamp")),
        S::Blob(_) | S::Binary(_) | S::Varbinary(_) | S::Bytes(_) => return Err(unsupported(sql, "use bytea")),
        S::Double(_) => return Err(unsupported(sql, "use double precision")),
        other => return Err(SpateError::unsupported(format!("type {} is not supported", lower(other)))),
    })
}

fn lower(sql: &ast::DataType) -> String {
    sql.to_string().to_lowercase()
}

fn unsupported(sql: &ast::DataType, hint: &str) -> SpateError {
    SpateError::unsupported(format!("type {} is not supported", lower(sql))).with_hint(hint)
}

fn unknown(name: &str) -> SpateError {
    const NAMES: &[&str] = &[
        "bigint",
        "boolean",
        "bytea",
        "char",
        "date",
        "decimal",
        "double precision",
        "float",
        "float4",
        "float8",
        "int",
        "int2",
        "int4",
        "int8",
        "integer",
        "interval",
        "json",
        "jsonb",
        "numeric",
        "real",
        "smallint",
        "struct",
        "text",
        "time",
        "timestamp",
        "timestamptz",
        "uuid",
        "varchar",
    ];
    let lower = name.to_lowercase();
    if matches!(lower.as_str(), "serial" | "bigserial" | "smallserial" | "money" | "name" | "oid" | "inet" | "xml") {
        return SpateError::unsupported(format!("type {lower} is not supported"));
    }
    let error = SpateError::new(ErrorKind::NotFound, format!("type \"{lower}\" does not exist"));
    match did_you_mean(&lower, NAMES.iter().copied()) {
        Some(near) => error.with_hint(format!("did you mean {near}?")),
        None => error,
    }
}

fn numeric(info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(DataType::Decimal128(DEFAULT_NUMERIC.0, DEFAULT_NUMERIC.1)),
        ExactNumberInfo::Precision(p) => (*p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (*p, *s),
    };
    if precision == 0 || precision > MAX_PRECISION {
        return Err(SpateError::invalid(format!(
            "numeric precision {precision} must be between 1 and {MAX_PRECISION}"
        )));
    }
    // Both fit: precision is at most 38, scale at most precision.
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(p), Ok(s)) if (0..=precision as i64).contains(&scale) => Ok(DataType::Decimal128(p, s)),
        _ => Err(SpateError::invalid(format!("numeric scale {scale} must be between 0 and precision {precision}"))),
    }
}

/// `float(p)`: p in binary digits, as in PostgreSQL.
fn float(info: &ExactNumberInfo) -> Result<DataType> {
    match info {
        ExactNumberInfo::None | ExactNumberInfo::Precision(25..=53) => Ok(DataType::Float64),
        ExactNumberInfo::Precision(1..=24) => Ok(DataType::Float32),
        _ => Err(SpateError::invalid("precision for type float must be between 1 and 53 bits")),
    }
}

fn check_precision(name: &str, precision: Option<u64>) -> Result<()> {
    match precision {
        None | Some(6) => Ok(()),
        Some(p) => Err(SpateError::unsupported(format!("type {name}({p}) is not supported"))
            .with_hint(format!("{name} has microseconds: leave the precision out"))),
    }
}

fn structure(fields: &[ast::StructField]) -> Result<DataType> {
    let mut out: Vec<Field> = Vec::with_capacity(fields.len());
    for field in fields {
        let Some(name) = &field.field_name else {
            return Err(SpateError::invalid("a struct type needs a name for every field")
                .with_hint("write struct<a int, b text>"));
        };
        let name = super::fold(name);
        if out.iter().any(|f| *f.name() == name) {
            return Err(SpateError::invalid(format!("field \"{name}\" specified more than once")));
        }
        out.push(Field::new(name, to_arrow(&field.field_type)?, true));
    }
    Ok(DataType::Struct(Fields::from(out)))
}

/// The type of a map, its parts named as DataFusion names them.
fn map(key: DataType, value: DataType) -> DataType {
    let pair = [Field::new("key", key, false), Field::new("value", value, true)];
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair.to_vec().into()), false)), false)
}

/// The bytes that a text means as `bytea`: `\\x` and hexadecimal digits, or text with escapes.
pub fn bytea_in(text: &str) -> Result<Vec<u8>> {
    let bad = || SpateError::new(ErrorKind::Type, "invalid input syntax for type bytea");
    let hex = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        if !digits.len().is_multiple_of(2) {
            return Err(bad().with_hint("hexadecimal data has two digits per byte"));
        }
        let byte = |pair: &[u8]| match pair {
            [a, b] => Some(hex(*a)? << 4 | hex(*b)?),
            _ => None,
        };
        return digits.chunks(2).map(|pair| byte(pair).ok_or_else(bad)).collect();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'\\', [b'\\', more @ ..]) => {
                out.push(b'\\');
                more
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', more @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                more
            }
            (b'\\', _) => {
                return Err(bad().with_hint("write a backslash twice, or bytes as \\x and hexadecimal digits"));
            }
            (byte, more) => {
                out.push(*byte);
                more
            }
        };
    }
    Ok(out)
}

/// The type in which a table keeps values of an expression's type.
pub fn storable(data_type: &DataType) -> DataType {
    use DataType as D;
    let element = |f: &Field| Arc::new(Field::new_list_field(storable(f.data_type()), true));
    match data_type {
        D::Null | D::LargeUtf8 | D::Utf8View => D::Utf8,
        D::Int8 | D::UInt8 => D::Int16,
        D::UInt16 => D::Int32,
        D::UInt32 => D::Int64,
        D::UInt64 => D::Decimal128(20, 0),
        D::Float16 => D::Float32,
        D::Decimal32(p, s) | D::Decimal64(p, s) => D::Decimal128(*p, *s),
        D::BinaryView => D::Binary,
        D::Date64 => D::Date32,
        D::Time32(_) | D::Time64(_) => D::Time64(TimeUnit::Microsecond),
        D::Timestamp(_, zone) => D::Timestamp(TimeUnit::Microsecond, zone.clone()),
        D::Interval(_) | D::Duration(_) => D::Interval(IntervalUnit::MonthDayNano),
        D::List(f) | D::LargeList(f) | D::ListView(f) | D::LargeListView(f) | D::FixedSizeList(f, _) => {
            D::List(element(f))
        }
        D::Struct(fields) => {
            D::Struct(fields.iter().map(|f| Field::new(f.name(), storable(f.data_type()), true)).collect())
        }
        D::Map(entries, _) => match entries.data_type() {
            D::Struct(pair) if pair.len() == 2 => map(storable(pair[0].data_type()), storable(pair[1].data_type())),
            _ => data_type.clone(),
        },
        D::Dictionary(_, value) => storable(value),
        other => other.clone(),
    }
}

/// The PostgreSQL name of an Arrow type, as `DESCRIBE` and messages show it.
pub fn display(data_type: &DataType) -> String {
    use DataType as D;
    match data_type {
        D::Null => "unknown".into(),
        D::Boolean => "boolean".into(),
        D::Int8 | D::Int16 | D::UInt8 => "smallint".into(),
        D::Int32 | D::UInt16 => "integer".into(),
        D::Int64 | D::UInt32 => "bigint".into(),
        D::UInt64 => "numeric(20,0)".into(),
        D::Float16 | D::Float32 => "real".into(),
        D::Float64 => "double precision".into(),
        D::Decimal32(p, s) | D::Decimal64(p, s) | D::Decimal128(p, s) | D::Decimal256(p, s) => {
            format!("numeric({p},{s})")
        }
        D::Utf8 | D::LargeUtf8 | D::Utf8View => "text".into(),
        t if *t == spate_engine::types::uuid::TYPE => "uuid".into(),
        t if *t == spate_engine::types::jsonb::TYPE => "jsonb".into(),
        D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => "bytea".into(),
        D::Date32 | D::Date64 => "date".into(),
        D::Time32(_) | D::Time64(_) => "time without time zone".into(),
        D::Timestamp(_, None) => "timestamp without time zone".into(),
        D::Timestamp(_, Some(_)) => "timestamp with time zone".into(),
        D::Interval(_) | D::Duration(_) => "interval".into(),
        D::List(f) | D::LargeList(f) | D::FixedSizeList(f, _) | D::ListView(f) | D::LargeListView(f) => {
            format!("{}[]", display(f.data_type()))
        }
        D::Struct(fields) => {
            let inner: Vec<String> =
                fields.iter().map(|f| format!("{} {}", super::quote(f.name()), display(f.data_type()))).collect();
            format!("struct<{}>", inner.join(", "))
        }
        D::Map(entries, _) => match entries.data_type() {
            D::Struct(kv) if kv.len() == 2 => {
                format!("map<{}, {}>", display(kv[0].data_type()), display(kv[1].data_type()))
            }
            _ => "map".into(),
        },
        D::Dictionary(_, value) => display(value),
        D::RunEndEncoded(_, value) => display(value.data_type()),
        D::Union(..) => "union".into(),
    }
}
