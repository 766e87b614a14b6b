//! The delay of `WATERMARK FOR ts AS ts - INTERVAL '…'`, in microseconds.

use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use datafusion_sql::sqlparser::ast::{BinaryOperator, Expr, Interval, Value};
use spate_engine::types::error::{Result, SpateError};

use super::fold;

const US_PER_DAY: i64 = 86_400_000_000;
const NS_PER_US: i64 = 1_000;

/// The delay in `column - INTERVAL '…'` or plain `column`. The column must be the one the
/// watermark is for; days count 24 hours; months are refused, their length varies.
pub(super) fn delay_us(column: &str, expr: &Expr) -> Result<i64> {
    match expr {
        Expr::Nested(inner) => delay_us(column, inner),
        Expr::Identifier(id) if fold(id) == column => Ok(0),
        Expr::BinaryOp { left, op: BinaryOperator::Minus, right } => {
            // `ts - a - b` nests to the left.
            let before = delay_us(column, left)?;
            let more = constant(right)?;
            before.checked_add(more).ok_or_else(|| SpateError::invalid("watermark delay is out of range"))
        }
        _ => Err(malformed(column)),
    }
}

fn malformed(column: &str) -> SpateError {
    SpateError::unsupported("a watermark must be its column, perhaps minus a constant interval")
        .with_hint(format!("write WATERMARK FOR {c} AS {c} - INTERVAL '5 seconds'", c = super::quote(column)))
}

fn constant(expr: &Expr) -> Result<i64> {
    match expr {
        Expr::Nested(inner) => constant(inner),
        Expr::Interval(interval) => interval_us(interval),
        _ => Err(SpateError::unsupported("the delay of a watermark must be a constant interval")
            .with_hint("write INTERVAL '5 seconds'")),
    }
}

/// A constant interval in microseconds; fails if it is negative or has months.
pub fn interval_us(interval: &Interval) -> Result<i64> {
    let Expr::Value(value) = interval.value.as_ref() else {
        return Err(SpateError::unsupported("an interval must be a constant here"));
    };
    let amount = match &value.value {
        Value::SingleQuotedString(s) => s.clone(),
        Value::Number(n, _) => n.clone(),
        _ => return Err(SpateError::unsupported("an interval must be a constant here")),
    };
    if interval.last_field.is_some() || interval.leading_precision.is_some() {
        return Err(SpateError::unsupported("interval fields such as DAY TO SECOND are not supported here"));
    }
    let text = match &interval.leading_field {
        Some(unit) => format!("{amount} {unit}"),
        // PostgreSQL reads a bare number as seconds.
        None if amount.trim().parse::<f64>().is_ok() => format!("{amount} seconds"),
        None => amount,
    };
    let parsed = parse_interval_month_day_nano(&text)
        .map_err(|_| SpateError::invalid(format!("invalid input syntax for type interval: \"{text}\"")))?;
    if parsed.months != 0 {
        return Err(SpateError::invalid(format!("interval \"{text}\" has months, whose length varies"))
            .with_hint("use days or smaller units"));
    }
    if parsed.nanoseconds % NS_PER_US != 0 {
        return Err(SpateError::invalid(format!("interval \"{text}\" is finer than microseconds")));
    }
    let us = i64::from(parsed.days)
        .checked_mul(US_PER_DAY)
        .and_then(|d| d.checked_add(parsed.nanoseconds / NS_PER_US))
        .ok_or_else(|| SpateError::invalid("interval out of range"))?;
    if us < 0 {
        return Err(SpateError::invalid(format!("interval \"{text}\" must not be negative")));
    }
    Ok(us)
}
