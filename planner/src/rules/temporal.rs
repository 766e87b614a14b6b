//! Temporal filters: conditions of WHERE and of inner joins that compare with `now()`, plus or
//! minus an interval. Each becomes `expression <cmp> epoch_time(shift)`, in a filter of its
//! own. Anything else that reads the clock is refused later, by name.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::expr::Between;
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, cast};

use crate::bind::now::{epoch_time, is_now, time_type};

/// Rewrites all of a plan, subqueries included.
pub(crate) fn define(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(f) if reads_clock(&f.predicate) => {
            Ok(Transformed::yes(filter(Arc::unwrap_or_clone(f.input), f.predicate)?))
        }
        LogicalPlan::Join(mut j) if j.join_type == JoinType::Inner && j.filter.as_ref().is_some_and(reads_clock) => {
            let Some(all) = j.filter.take() else { return Ok(Transformed::no(LogicalPlan::Join(j))) };
            let (timed, plain): (Vec<Expr>, Vec<Expr>) =
                split_conjunction_owned(all).into_iter().partition(reads_clock);
            j.filter = conjunction(plain);
            match conjunction(timed) {
                Some(timed) => Ok(Transformed::yes(filter(LogicalPlan::Join(j), timed)?)),
                None => Ok(Transformed::no(LogicalPlan::Join(j))),
            }
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(done.data)
}

fn reads_clock(e: &Expr) -> bool {
    e.exists(|e| Ok(is_now(e))).unwrap_or(false)
}

/// The conditions without the clock first, those with it over them.
fn filter(input: LogicalPlan, predicate: Expr) -> Result<LogicalPlan> {
    let (mut plain, mut timed) = (Vec::new(), Vec::new());
    for e in split_conjunction_owned(predicate) {
        if !reads_clock(&e) {
            plain.push(e);
            continue;
        }
        for part in parts(e) {
            match bound(&part, &input)? {
                Some(b) => timed.push(b),
                // What is not of this form is left, and so refused.
                None => timed.push(part),
            }
        }
    }
    let mut plan = LogicalPlanBuilder::from(input);
    for list in [plain, timed] {
        if let Some(predicate) = conjunction(list) {
            plan = plan.filter(predicate)?;
        }
    }
    plan.build()
}

/// BETWEEN is two comparisons.
fn parts(e: Expr) -> Vec<Expr> {
    match e {
        Expr::Between(Between { expr, negated: false, low, high }) => vec![
            Expr::BinaryExpr(BinaryExpr { left: expr.clone(), op: Operator::GtEq, right: low }),
            Expr::BinaryExpr(BinaryExpr { left: expr, op: Operator::LtEq, right: high }),
        ],
        other => vec![other],
    }
}

fn bound(e: &Expr, input: &LogicalPlan) -> Result<Option<Expr>> {
    let Expr::BinaryExpr(b) = e else { return Ok(None) };
    let (value, op, shift) = match (time(&b.left), time(&b.right)) {
        (None, Some(shift)) => (&b.left, Some(b.op), shift),
        (Some(shift), None) => (&b.right, b.op.swap(), shift),
        _ => return Ok(None),
    };
    let Some(op @ (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)) = op else { return Ok(None) };
    if reads_clock(value) || value.contains_outer() {
        return Ok(None);
    }
    let value = match value.get_type(input.schema())? {
        t if t == time_type() => value.as_ref().clone(),
        _ => cast(value.as_ref().clone(), time_type()),
    };
    Ok(Some(Expr::BinaryExpr(BinaryExpr { left: Box::new(value), op, right: Box::new(epoch_time(shift)) })))
}

/// Microseconds from `now()`, if `e` is that far from it whenever it is evaluated.
fn time(e: &Expr) -> Option<i64> {
    match e {
        e if is_now(e) => Some(0),
        Expr::Alias(a) => time(&a.expr),
        Expr::Cast(c) if matches!(c.field.data_type(), arrow::datatypes::DataType::Timestamp(..)) => time(&c.expr),
        Expr::BinaryExpr(b) => match b.op {
            Operator::Minus => time(&b.left)?.checked_sub(interval(&b.right)?),
            Operator::Plus => match time(&b.left) {
                Some(t) => t.checked_add(interval(&b.right)?),
                None => time(&b.right)?.checked_add(interval(&b.left)?),
            },
            _ => None,
        },
        _ => None,
    }
}

/// A constant interval of one length always: no months, whole microseconds.
fn interval(e: &Expr) -> Option<i64> {
    let day = 86_400_000_000i64;
    match e {
        Expr::Alias(a) => interval(&a.expr),
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(v)), _) if v.months == 0 && v.nanoseconds % 1000 == 0 => {
            i64::from(v.days).checked_mul(day)?.checked_add(v.nanoseconds / 1000)
        }
        Expr::Literal(ScalarValue::IntervalDayTime(Some(v)), _) => {
            i64::from(v.days).checked_mul(day)?.checked_add(i64::from(v.milliseconds).checked_mul(1000)?)
        }
        _ => None,
    }
}
