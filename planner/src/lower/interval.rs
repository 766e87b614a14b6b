//! Joins that bound how far two watermarked times may be apart: `a.ts BETWEEN b.ts - i AND
//! b.ts + j`, or times or windows that must be equal. Once the other side's watermark has passed
//! all that a row can meet, nobody needs the row any more.

use datafusion_common::{DFSchema, NullEquality, ScalarValue};
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{BinaryExpr, Expr, Join, Operator};
use spate_engine::plan::{Expiry, Properties, WatermarkColumn};

use super::unaliased;
use crate::rules::guard::guarded;

/// How far a left time is from a right one in every pair: `least <= left - right <= most`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Apart {
    pub(super) left: WatermarkColumn,
    pub(super) right: WatermarkColumn,
    pub(super) least: Option<i64>,
    pub(super) most: Option<i64>,
}

impl Apart {
    /// When the left's rows can go: `left < watermark + least`.
    fn left_expiry(&self) -> Option<Expiry> {
        let offset_us = self.least?;
        Some(Expiry { column: self.left.column, other: self.right.kind, offset_us })
    }

    /// When the right's rows can go: `right < watermark - most`.
    fn right_expiry(&self) -> Option<Expiry> {
        let offset_us = self.most?.checked_neg()?;
        Some(Expiry { column: self.right.column, other: self.left.kind, offset_us })
    }
}

/// The watermarked times of both sides that a join keeps together.
pub(super) fn apart(
    j: &Join,
    left: &Properties,
    right: &Properties,
    left_keys: &[usize],
    right_keys: &[usize],
) -> Vec<Apart> {
    let mut found = Vec::new();
    for l in &left.watermarks {
        for r in &right.watermarks {
            let mut pair = Apart { left: *l, right: *r, least: None, most: None };
            let equal = left_keys.iter().zip(right_keys).any(|(a, b)| (*a, *b) == (l.column, r.column));
            if equal && j.null_equality == NullEquality::NullEqualsNothing {
                (pair.least, pair.most) = (Some(0), Some(0));
            }
            for condition in j.filter.iter().flat_map(split_conjunction) {
                bound(condition, j.left.schema(), j.right.schema(), &mut pair);
            }
            if pair.least.is_some() || pair.most.is_some() {
                found.push(pair);
            }
        }
    }
    found
}

/// What frees the rows of either side.
pub(super) fn expiries(pairs: &[Apart]) -> [Option<Expiry>; 2] {
    [pairs.iter().find_map(Apart::left_expiry), pairs.iter().find_map(Apart::right_expiry)]
}

/// Takes what `condition` says of the pair's times.
fn bound(condition: &Expr, left: &DFSchema, right: &DFSchema, pair: &mut Apart) {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) => compare(a, *op, b, left, right, pair),
        Expr::Between(b) if !b.negated => {
            compare(&b.expr, Operator::GtEq, &b.low, left, right, pair);
            compare(&b.expr, Operator::LtEq, &b.high, left, right, pair);
        }
        _ => {}
    }
}

fn compare(a: &Expr, op: Operator, b: &Expr, left: &DFSchema, right: &DFSchema, pair: &mut Apart) {
    let is = |e: &Expr, schema: &DFSchema, column: usize| match e {
        Expr::Column(c) => schema.index_of_column(c).is_ok_and(|i| i == column),
        _ => false,
    };
    let (Some((a, x)), Some((b, y))) = (shifted(a), shifted(b)) else { return };
    let (is_left, is_right) = (|e: &Expr| is(e, left, pair.left.column), |e: &Expr| is(e, right, pair.right.column));
    // left + x op right + y
    let (op, x, y) = if is_left(&a) && is_right(&b) {
        (op, x, y)
    } else if is_left(&b) && is_right(&a) {
        match op.swap() {
            Some(op) => (op, y, x),
            None => return,
        }
    } else {
        return;
    };
    let Some(difference) = y.checked_sub(x) else { return };
    let (least, most) = match op {
        Operator::Lt | Operator::LtEq => (None, Some(difference)),
        Operator::Gt | Operator::GtEq => (Some(difference), None),
        Operator::Eq => (Some(difference), Some(difference)),
        _ => return,
    };
    pair.least = pair.least.max(least);
    pair.most = match (pair.most, most) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
}

/// `e` as a column and a constant that is added to it, in microseconds.
fn shifted(e: &Expr) -> Option<(Expr, i64)> {
    let e = guarded(unaliased(e));
    match e {
        Expr::Column(_) => Some((e, 0)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (a, b) = (shifted(&left), shifted(&right));
            match (op, a, b) {
                (Operator::Plus, Some((c, x)), None) => Some((c, x.checked_add(micros(&right)?)?)),
                (Operator::Plus, None, Some((c, x))) => Some((c, x.checked_add(micros(&left)?)?)),
                (Operator::Minus, Some((c, x)), None) => Some((c, x.checked_sub(micros(&right)?)?)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// An interval of fixed length.
fn micros(e: &Expr) -> Option<i64> {
    const DAY: i64 = 86_400_000_000;
    match unaliased(e) {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(i)), _) if i.months == 0 && i.nanoseconds % 1000 == 0 => {
            i64::from(i.days).checked_mul(DAY)?.checked_add(i.nanoseconds / 1000)
        }
        Expr::Literal(ScalarValue::IntervalDayTime(Some(i)), _) => {
            i64::from(i.days).checked_mul(DAY)?.checked_add(i64::from(i.milliseconds).checked_mul(1000)?)
        }
        Expr::Literal(ScalarValue::DurationMicrosecond(Some(d)), _) => Some(*d),
        _ => None,
    }
}
