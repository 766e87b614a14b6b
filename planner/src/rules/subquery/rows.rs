//! IN, ANY and ALL of rows: `(a, b) IN (SELECT x, y …)`. They become CASE over EXISTS while the plan
//! is not coerced yet, so that each pair of elements is compared as any two values are: true if a row
//! compares so, else NULL if some comparison is NULL, else false. Where only truth matters,
//! [`super::truth`] takes the CASE apart again.
//!
//! A comparison for equality is NULL where some elements are NULL and all others equal. Each choice of
//! the elements that are NULL is an EXISTS of its own, so that the others stay keys of a join.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, Result, ScalarValue};
use datafusion_expr::expr::{Case, Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::utils::{conjunction, disjunction, merge_schema};
use datafusion_expr::{BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, lit};
use spate_engine::types::error::{ErrorKind, SpateError};

use super::truth::{as_outer, never_null};
use crate::bind::{ROWS, typed_comparison};

/// Of more elements that may be NULL than this, the choices are not told apart.
const MAX_CHOICES: usize = 3;

/// Rewrites every comparison of a row with the rows of a subquery.
pub(crate) fn compared(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let schema = match node.inputs().as_slice() {
            [] => Arc::clone(node.schema()),
            inputs => Arc::new(merge_schema(inputs)),
        };
        let input = match node.inputs().as_slice() {
            [one] => Some((*one).clone()),
            _ => None,
        };
        crate::rules::map_named(node, |e| {
            e.transform_up(|e| {
                let any = match Rows::of(e) {
                    Ok(any) => any,
                    Err(other) => return Ok(Transformed::no(*other)),
                };
                Ok(Transformed::yes(any.value(&schema, input.as_ref())?))
            })
        })
    })?;
    Ok(done.data)
}

/// `left op ANY (rows)`, or its negation.
struct Rows {
    left: Vec<Expr>,
    op: Operator,
    rows: Arc<LogicalPlan>,
    subquery: Subquery,
    negated: bool,
}

impl Rows {
    fn of(e: Expr) -> std::result::Result<Self, Box<Expr>> {
        let (x, op, s, negated) = match &e {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => (expr, Operator::Eq, subquery, *negated),
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => match (quantifier, op.negate()) {
                (SetQuantifier::Any, _) => (expr, *op, subquery, false),
                (SetQuantifier::All, Some(op)) => (expr, op, subquery, true),
                (SetQuantifier::All, None) => return Err(Box::new(e)),
            },
            _ => return Err(Box::new(e)),
        };
        let LogicalPlan::Projection(p) = s.subquery.as_ref() else { return Err(Box::new(e)) };
        match (p.input.as_ref(), super::unaliased(x)) {
            (LogicalPlan::SubqueryAlias(a), Expr::ScalarFunction(f)) if a.alias.table() == ROWS => {
                Ok(Self { left: f.args.clone(), op, rows: Arc::clone(&p.input), subquery: s.clone(), negated })
            }
            _ => Err(Box::new(e)),
        }
    }

    fn exists(&self, condition: Expr) -> Result<Expr> {
        let rows = LogicalPlanBuilder::from(Arc::clone(&self.rows)).filter(condition)?.build()?;
        let outer_ref_columns = rows.all_out_ref_exprs();
        let subquery = Subquery { subquery: Arc::new(rows), outer_ref_columns, spans: self.subquery.spans.clone() };
        Ok(Expr::Exists(Exists { subquery, negated: false }))
    }

    fn value(self, outer: &DFSchema, input: Option<&LogicalPlan>) -> Result<Expr> {
        let right: Vec<Expr> = self.rows.schema().columns().into_iter().map(Expr::Column).collect();
        if self.left.len() != right.len() {
            return Err(SpateError::new(ErrorKind::Type, "unequal number of entries in row expressions").into());
        }
        let left = self.left.iter().map(|x| as_outer(x.clone(), outer)).collect::<Result<Vec<_>>>()?;
        let pair = |i: usize, op: Operator| typed_comparison(&left[i], op, &right[i], self.rows.schema());
        let equal = (0..left.len()).map(|i| pair(i, Operator::Eq)).collect::<Result<Vec<_>>>()?;
        let compared = self.compare(left.len(), &pair)?;
        let nulls = match self.op {
            Operator::Eq => {
                let may_be = |i: usize| {
                    let x = input.is_none_or(|input| !never_null(&self.left[i], input));
                    (x, !never_null(&right[i], &self.rows))
                };
                self.null_ways(&left, &right, &equal, &may_be)
            }
            _ => vec![compared.clone().is_null()],
        };
        let (yes, no) = (lit(!self.negated), lit(self.negated));
        let mut cases = vec![(Box::new(self.exists(compared)?), Box::new(yes))];
        let nulls = nulls.into_iter().map(|n| self.exists(n)).collect::<Result<Vec<_>>>()?;
        if let Some(null) = disjunction(nulls) {
            cases.push((Box::new(null), Box::new(Expr::Literal(ScalarValue::Boolean(None), None))));
        }
        Ok(Expr::Case(Case::new(None, cases, Some(Box::new(no)))))
    }

    /// The comparison with one row.
    fn compare(&self, width: usize, pair: &dyn Fn(usize, Operator) -> Result<Expr>) -> Result<Expr> {
        let all = |op| (0..width).map(|i| pair(i, op)).collect::<Result<Vec<_>>>();
        let strict = match self.op {
            Operator::Eq => return Ok(conjunction(all(Operator::Eq)?).unwrap_or_else(|| lit(true))),
            Operator::NotEq => return Ok(disjunction(all(Operator::NotEq)?).unwrap_or_else(|| lit(false))),
            Operator::LtEq => Operator::Lt,
            Operator::GtEq => Operator::Gt,
            other => other,
        };
        // The first elements that differ decide.
        let mut done: Option<Expr> = None;
        for i in (0..width).rev() {
            done = Some(match done {
                None => pair(i, self.op)?,
                Some(rest) => pair(i, strict)?.or(pair(i, Operator::Eq)?.and(rest)),
            });
        }
        Ok(done.unwrap_or_else(|| lit(false)))
    }

    /// Ways in which equality with a row is NULL.
    fn null_ways(
        &self,
        left: &[Expr],
        right: &[Expr],
        equal: &[Expr],
        may_be: &dyn Fn(usize) -> (bool, bool),
    ) -> Vec<Expr> {
        let tests: Vec<Option<Expr>> = (0..left.len())
            .map(|i| match may_be(i) {
                (true, true) => Some(left[i].clone().is_null().or(right[i].clone().is_null())),
                (true, false) => Some(left[i].clone().is_null()),
                (false, true) => Some(right[i].clone().is_null()),
                (false, false) => None,
            })
            .collect();
        let open: Vec<usize> = (0..left.len()).filter(|i| tests[*i].is_some()).collect();
        if open.is_empty() {
            return vec![];
        }
        let either = |i: usize| match &tests[i] {
            Some(test) => equal[i].clone().or(test.clone()),
            None => equal[i].clone(),
        };
        if open.len() > MAX_CHOICES {
            return conjunction((0..left.len()).map(either)).into_iter().collect();
        }
        let ways = 1..1usize << open.len();
        ways.filter_map(|way| {
            let chosen = |i: usize| open.iter().position(|o| *o == i).is_some_and(|bit| way >> bit & 1 == 1);
            conjunction((0..left.len()).map(|i| match &tests[i] {
                Some(test) if chosen(i) => test.clone(),
                _ => equal[i].clone(),
            }))
        })
        .collect()
    }
}

/// The EXISTS that such a CASE is made of: what it is if the first holds, when it is that, and
/// when it is NULL.
pub(super) fn parts(c: &Case) -> Option<(bool, &Expr, Option<&Expr>)> {
    let truth = |e: &Expr| match e {
        Expr::Literal(ScalarValue::Boolean(Some(b)), _) => Some(*b),
        _ => None,
    };
    let otherwise = truth(c.else_expr.as_deref()?)?;
    let ((first, then), rest) = c.when_then_expr.split_first()?;
    let first_is = truth(then)?;
    if c.expr.is_some() || first_is == otherwise || !matches!(first.as_ref(), Expr::Exists(_)) {
        return None;
    }
    match rest {
        [] => Some((first_is, first, None)),
        [(when, then)]
            if matches!(then.as_ref(), Expr::Literal(ScalarValue::Boolean(None), _)) && only_exists(when) =>
        {
            Some((first_is, first, Some(when)))
        }
        _ => None,
    }
}

fn only_exists(e: &Expr) -> bool {
    match e {
        Expr::Exists(_) => true,
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => only_exists(left) && only_exists(right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion_common::Column;

    use super::*;

    /// A CASE that may be NULL for other reasons is none of these.
    #[test]
    fn other_cases_are_left_alone() {
        let when = |e: Expr| Case::new(None, vec![(Box::new(e), Box::new(lit(true)))], Some(Box::new(lit(false))));
        assert!(parts(&when(Expr::Column(Column::new_unqualified("a")))).is_none());
        assert!(parts(&when(lit(true))).is_none());
    }
}
