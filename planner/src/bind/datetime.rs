//! Dates and times as PostgreSQL has them where DataFusion differs: `AT TIME ZONE`, `to_char`,
//! `to_date` and `to_timestamp` with PostgreSQL's patterns, `date ± interval`.

use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, Date32Array, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, Duration, LocalResult, NaiveDate, NaiveDateTime, Offset, TimeZone};
use datafusion_common::{DFSchema, Result, ScalarValue, exec_err, plan_err};
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion_expr::{
    ColumnarValue, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    cast as cast_expr,
};
use datafusion_sql::sqlparser::ast::BinaryOperator;

use super::patterns;
use crate::sql::types::UTC;

/// What `ts AT TIME ZONE zone` is: `timezone(zone, ts)`.
pub(super) const TIMEZONE: &str = "timezone";
/// `to_timestamp(text, pattern)`.
pub(super) const TO_TIMESTAMP: &str = "to_timestamp_by_pattern";

/// The functions of this module, with their names.
pub(super) fn functions() -> impl Iterator<Item = (&'static str, Arc<ScalarUDF>)> {
    static ALL: LazyLock<Vec<(&str, Arc<ScalarUDF>)>> = LazyLock::new(|| {
        [Kind::Timezone, Kind::ToChar, Kind::ToDate, Kind::ToTimestamp]
            .into_iter()
            .map(|kind| (kind.name(), Arc::new(ScalarUDF::new_from_impl(TimeFn::new(kind)))))
            .collect()
    });
    ALL.iter().map(|(name, f)| (*name, Arc::clone(f)))
}

/// `date ± interval` is a timestamp.
#[derive(Debug)]
pub(super) struct DateArithmetic;

impl ExprPlanner for DateArithmetic {
    fn plan_binary_op(&self, e: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if !matches!(e.op, BinaryOperator::Plus | BinaryOperator::Minus) {
            return Ok(PlannerResult::Original(e));
        }
        let (Ok(left), Ok(right)) = (e.left.get_type(schema), e.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(e));
        };
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        Ok(PlannerResult::Original(match (&left, &e.op, &right) {
            (DataType::Date32, _, DataType::Interval(_)) => RawBinaryExpr { left: cast_expr(e.left, timestamp), ..e },
            (DataType::Interval(_), BinaryOperator::Plus, DataType::Date32) => {
                RawBinaryExpr { right: cast_expr(e.right, timestamp), ..e }
            }
            _ => e,
        }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Timezone,
    ToChar,
    ToDate,
    ToTimestamp,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Timezone => TIMEZONE,
            Self::ToChar => "to_char",
            Self::ToDate => "to_date",
            Self::ToTimestamp => TO_TIMESTAMP,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeFn {
    kind: Kind,
    signature: Signature,
}

impl TimeFn {
    fn new(kind: Kind) -> Self {
        Self { kind, signature: Signature::any(2, Volatility::Immutable) }
    }
}

fn is_text(t: &DataType) -> bool {
    matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
}

fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

impl ScalarUDFImpl for TimeFn {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        let [a, b] = args else { return plan_err!("{} takes two arguments", self.name()) };
        match (self.kind, a, b) {
            (Kind::Timezone, zone, DataType::Timestamp(_, None)) if is_text(zone) => Ok(timestamptz()),
            (Kind::Timezone, zone, DataType::Timestamp(_, Some(_)) | DataType::Date32) if is_text(zone) => {
                Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
            }
            (Kind::Timezone, ..) => plan_err!("AT TIME ZONE takes a timestamp and the name of a zone, not {b} and {a}"),
            (Kind::ToChar, DataType::Timestamp(..) | DataType::Date32 | DataType::Null, p) if is_text(p) => {
                Ok(DataType::Utf8)
            }
            (Kind::ToChar, ..) => plan_err!("to_char takes a timestamp or date and a pattern, not {a} and {b}"),
            (Kind::ToDate, text, p) if is_text(text) && is_text(p) => Ok(DataType::Date32),
            (Kind::ToTimestamp, text, p) if is_text(text) && is_text(p) => Ok(timestamptz()),
            (Kind::ToDate, ..) => plan_err!("to_date takes a text and a pattern, not {a} and {b}"),
            (Kind::ToTimestamp, ..) => plan_err!("to_timestamp takes a text and a pattern, not {a} and {b}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|a| a.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let [a, b] = arrays.as_slice() else { return exec_err!("{} takes two arguments", self.name()) };
        let result: ArrayRef = match self.kind {
            Kind::Timezone => at_time_zone(a, b)?,
            Kind::ToChar => to_char(a, b)?,
            Kind::ToDate => {
                let read = by_pattern(a, b)?;
                Arc::new(Date32Array::from_iter(
                    read.into_iter().map(|t| t.map(|t| (t.date() - NaiveDate::default()).num_days() as i32)),
                ))
            }
            Kind::ToTimestamp => {
                let read = by_pattern(a, b)?.into_iter().map(|t| t.map(|t| t.and_utc().timestamp_micros()));
                Arc::new(TimestampMicrosecondArray::from_iter(read).with_timezone(UTC))
            }
        };
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

fn texts(array: &ArrayRef) -> Result<StringArray> {
    Ok(cast(array, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// Remembers what was made of the last text: it is nearly always the same.
struct Last<T>(Option<(String, T)>);

impl<T> Last<T> {
    fn get(&mut self, text: &str, make: impl FnOnce(&str) -> Result<T>) -> Result<&T> {
        if self.0.as_ref().is_none_or(|(t, _)| t != text) {
            self.0 = Some((text.to_owned(), make(text)?));
        }
        match &self.0 {
            Some((_, t)) => Ok(t),
            None => exec_err!("a text got lost"),
        }
    }
}

fn zone(name: &str) -> Result<Tz> {
    let plain = name.trim();
    if plain.starts_with(['+', '-']) || plain.starts_with(|c: char| c.is_ascii_digit()) {
        return exec_err!("time zone \"{name}\" is not a name such as 'Europe/Berlin'");
    }
    Tz::from_str(plain).or_else(|_| exec_err!("time zone \"{name}\" not recognized"))
}

fn utc(us: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_micros(us).map(|t| t.naive_utc())
}

/// The instant at which clocks of a zone show `local`; where they show it twice the later, where
/// they skip it the one that they would have shown.
fn instant(zone: &Tz, local: NaiveDateTime) -> NaiveDateTime {
    let offset = match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(o) => o.fix(),
        LocalResult::Ambiguous(a, b) => {
            let (a, b) = (a.fix(), b.fix());
            if a.local_minus_utc() < b.local_minus_utc() { a } else { b }
        }
        LocalResult::None => zone.offset_from_utc_datetime(&(local - Duration::days(1))).fix(),
    };
    local - Duration::seconds(i64::from(offset.local_minus_utc()))
}

fn at_time_zone(zones: &ArrayRef, times: &ArrayRef) -> Result<ArrayRef> {
    let zones = texts(zones)?;
    let with_zone = !matches!(times.data_type(), DataType::Timestamp(_, None));
    let micros = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
    let micros = micros.as_primitive::<TimestampMicrosecondType>();
    let mut last = Last(None);
    let mut out = Vec::with_capacity(micros.len());
    for i in 0..micros.len() {
        if zones.is_null(i) || micros.is_null(i) {
            out.push(None);
            continue;
        }
        let tz = last.get(zones.value(i), zone)?;
        out.push(utc(micros.value(i)).map(|t| {
            let moved = if with_zone {
                t + Duration::seconds(i64::from(tz.offset_from_utc_datetime(&t).fix().local_minus_utc()))
            } else {
                instant(tz, t)
            };
            moved.and_utc().timestamp_micros()
        }));
    }
    let array = TimestampMicrosecondArray::from(out);
    Ok(if with_zone { Arc::new(array) } else { Arc::new(array.with_timezone(UTC)) })
}

fn to_char(times: &ArrayRef, formats: &ArrayRef) -> Result<ArrayRef> {
    let formats = texts(formats)?;
    let micros = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
    let micros = micros.as_primitive::<TimestampMicrosecondType>();
    let with_zone = matches!(times.data_type(), DataType::Timestamp(_, Some(_)));
    let mut last = Last(None);
    let mut out = arrow::array::StringBuilder::new();
    for i in 0..micros.len() {
        let given = formats.is_valid(i) && micros.is_valid(i);
        match utc(micros.value(i)).filter(|_| given) {
            Some(t) => out.append_value(patterns::format(last.get(formats.value(i), patterns::parse)?, t, with_zone)),
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn by_pattern(values: &ArrayRef, formats: &ArrayRef) -> Result<Vec<Option<NaiveDateTime>>> {
    let (values, formats) = (texts(values)?, texts(formats)?);
    let mut last = Last(None);
    let mut out = Vec::with_capacity(values.len());
    for i in 0..values.len() {
        if values.is_null(i) || formats.is_null(i) {
            out.push(None);
            continue;
        }
        out.push(Some(patterns::read(last.get(formats.value(i), patterns::parse)?, values.value(i))?));
    }
    Ok(out)
}
