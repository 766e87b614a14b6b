//! What EXISTS (S) asks of the outer row: S without what does not matter to existence, and its
//! conditions sorted by what they speak of.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, Result, ScalarValue};
use datafusion_expr::expr::AggregateFunctionParams;
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{
    Distinct, Expr, FetchType, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, SkipType, Union, lit,
};

use super::{Rewriter, has_subquery, refuse};

/// When a subquery has a row. `outer` are conditions on the outer row alone, which must be true too.
pub(super) enum Existence {
    /// When `rows` has a row for which `on` is true.
    Join { outer: Vec<Expr>, on: Vec<Expr>, rows: LogicalPlan },
    /// When `rows` has any.
    Alone { outer: Vec<Expr>, rows: LogicalPlan },
    /// Always.
    Always { outer: Vec<Expr> },
}

impl Rewriter {
    /// When the subquery has a row, for a row of `outer`: if any of these is so.
    pub(super) fn existence(&mut self, s: Subquery, outer: &LogicalPlan) -> Result<Vec<Existence>> {
        let mut found = Vec::new();
        peel(Arc::unwrap_or_clone(s.subquery), Vec::new(), &mut found)?;
        found.into_iter().map(|peeled| self.sort(peeled, outer)).collect()
    }

    fn sort(&mut self, peeled: Peeled, outer: &LogicalPlan) -> Result<Existence> {
        let Peeled { plan, conditions } = peeled;
        let plan = match plan {
            Some(p) if outer_reference(&p).is_some() => {
                let whole = match conjunction(conditions) {
                    Some(c) => LogicalPlan::Filter(Filter::try_new(c, Arc::new(p))?),
                    None => p,
                };
                let all = self.for_all(whole, outer, false)?;
                return Ok(Existence::Join { outer: vec![], on: all.on, rows: all.rows });
            }
            other => other,
        };
        let (mut own, mut on, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for c in conditions {
            let theirs = !c.column_refs().is_empty();
            if has_subquery(&c)? {
                let reaches_out = match &plan {
                    Some(p) => nested_reach(&c, p.schema())?,
                    None => true,
                };
                if c.contains_outer() || reaches_out {
                    return Err(refuse("a subquery within a condition on an outer column"));
                }
                own.push(c);
            } else if !c.contains_outer() {
                own.push(c);
            } else if theirs {
                on.push(c);
            } else {
                alone.push(from_outside(c, outer.schema())?);
            }
        }
        let Some(mut rows) = plan else {
            return Ok(Existence::Always { outer: alone });
        };
        if let Some(own) = conjunction(own) {
            rows = LogicalPlan::Filter(Filter::try_new(own, Arc::new(rows))?);
        }
        if on.is_empty() {
            return Ok(Existence::Alone { outer: alone, rows });
        }
        // The join reads what the conditions need, under names that clash with nothing.
        let name = self.fresh("sq");
        let needed: BTreeSet<Column> = on.iter().flat_map(|e| e.column_refs().into_iter().cloned()).collect();
        let needed: Vec<Column> = needed.into_iter().collect();
        let place = |i: usize| Column::new(Some(name.clone()), format!("{name}_{i}"));
        let picked = needed
            .iter()
            .enumerate()
            .map(|(i, c)| Expr::Column(c.clone()).alias_qualified(Some(name.clone()), place(i).name));
        let rows = LogicalPlanBuilder::from(rows).project(picked)?.build()?;
        let mut joined = Vec::with_capacity(on.len());
        for e in on {
            let e = e.transform_up(|e| match e {
                Expr::Column(c) => {
                    let at = needed.iter().position(|n| *n == c).unwrap_or_default();
                    Ok(Transformed::yes(Expr::Column(place(at))))
                }
                other => Ok(Transformed::no(other)),
            })?;
            joined.push(from_outside(e.data, outer.schema())?);
        }
        Ok(Existence::Join { outer: alone, on: joined, rows })
    }
}

/// `e` as the outer query sees it: its outer columns are columns there.
fn from_outside(e: Expr, outer: &DFSchema) -> Result<Expr> {
    let done = e.transform_up(|e| match e {
        Expr::OuterReferenceColumn(_, c) => {
            if outer.index_of_column(&c).is_err() {
                return Err(refuse(format_args!("column {c} of a query that is not the next one outside")));
            }
            Ok(Transformed::yes(Expr::Column(c)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(done.data)
}

/// A plan (none: exactly one row) and what must be true of its rows.
struct Peeled {
    plan: Option<LogicalPlan>,
    conditions: Vec<Expr>,
}

/// Takes off `plan` what does not change whether a row meets the conditions, and collects
/// the conditions that it makes itself.
fn peel(plan: LogicalPlan, mut conditions: Vec<Expr>, found: &mut Vec<Peeled>) -> Result<()> {
    let nested = conditions.iter().map(has_subquery).collect::<Result<Vec<_>>>()?.contains(&true);
    match plan {
        LogicalPlan::Filter(f) => {
            conditions.extend(split_conjunction_owned(f.predicate));
            peel(Arc::unwrap_or_clone(f.input), conditions, found)
        }
        LogicalPlan::Projection(p) if !nested && p.expr.iter().all(repeatable) => {
            let columns = p.schema.columns();
            let conditions =
                replaced(conditions, &columns, |i| p.expr.get(i).cloned().map(|e| e.unalias_nested().data))?;
            peel(Arc::unwrap_or_clone(p.input), conditions, found)
        }
        LogicalPlan::SubqueryAlias(a) if !nested => {
            let columns = a.schema.columns();
            let below = a.input.schema().columns();
            let conditions = replaced(conditions, &columns, |i| below.get(i).cloned().map(Expr::Column))?;
            peel(Arc::unwrap_or_clone(a.input), conditions, found)
        }
        LogicalPlan::Sort(s) if s.fetch.is_none() => peel(Arc::unwrap_or_clone(s.input), conditions, found),
        LogicalPlan::Distinct(Distinct::All(input)) => peel(Arc::unwrap_or_clone(input), conditions, found),
        LogicalPlan::Limit(l) if conditions.is_empty() => match (l.get_skip_type()?, l.get_fetch_type()?) {
            (_, FetchType::Literal(Some(0))) => Ok(()),
            (SkipType::Literal(0), FetchType::Literal(_)) => peel(Arc::unwrap_or_clone(l.input), conditions, found),
            _ => {
                found.push(Peeled { plan: Some(LogicalPlan::Limit(l)), conditions });
                Ok(())
            }
        },
        // One row whatever comes in.
        LogicalPlan::Aggregate(a) if conditions.is_empty() && a.group_expr.is_empty() => {
            found.push(Peeled { plan: None, conditions });
            Ok(())
        }
        LogicalPlan::Aggregate(a)
            if conditions.is_empty() && !a.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_))) =>
        {
            peel(Arc::unwrap_or_clone(a.input), conditions, found)
        }
        LogicalPlan::Union(u) if !nested && reaches_out(&u) => {
            let columns = u.schema.columns();
            for input in u.inputs {
                let below = input.schema().columns();
                let conditions = replaced(conditions.clone(), &columns, |i| below.get(i).cloned().map(Expr::Column))?;
                peel(Arc::unwrap_or_clone(input), conditions, found)?;
            }
            Ok(())
        }
        LogicalPlan::Join(j) if j.join_type == JoinType::Inner => {
            let mut lifted = conditions;
            let plan = lift(LogicalPlan::Join(j), &mut lifted)?;
            found.push(Peeled { plan: Some(plan), conditions: lifted });
            Ok(())
        }
        plan => {
            found.push(Peeled { plan: Some(plan), conditions });
            Ok(())
        }
    }
}

/// Takes conditions on outer columns out of inner joins and the filters below them.
fn lift(plan: LogicalPlan, into: &mut Vec<Expr>) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Join(j) if j.join_type == JoinType::Inner => {
            let (out, kept): (Vec<_>, Vec<_>) =
                j.filter.into_iter().flat_map(split_conjunction_owned).partition(Expr::contains_outer);
            into.extend(out);
            let left = lift(Arc::unwrap_or_clone(j.left), into)?;
            let right = lift(Arc::unwrap_or_clone(j.right), into)?;
            let filter = conjunction(kept);
            Ok(LogicalPlan::Join(Join { left: Arc::new(left), right: Arc::new(right), filter, ..j }))
        }
        LogicalPlan::Filter(f) => {
            let (out, kept): (Vec<_>, Vec<_>) =
                split_conjunction_owned(f.predicate).into_iter().partition(Expr::contains_outer);
            into.extend(out);
            let input = Arc::new(lift(Arc::unwrap_or_clone(f.input), into)?);
            match conjunction(kept) {
                Some(kept) => Ok(LogicalPlan::Filter(Filter::try_new(kept, input)?)),
                None => Ok(Arc::unwrap_or_clone(input)),
            }
        }
        other => Ok(other),
    }
}

/// `exprs` with the columns of a plan replaced by what they are below it.
fn replaced(exprs: Vec<Expr>, columns: &[Column], below: impl Fn(usize) -> Option<Expr>) -> Result<Vec<Expr>> {
    let replace = |e: Expr| {
        let done = e.transform_up(|e| {
            let Expr::Column(c) = &e else { return Ok(Transformed::no(e)) };
            let at = columns.iter().position(|known| known == c);
            let at = at.or_else(|| columns.iter().position(|known| c.relation.is_none() && known.name == c.name));
            match at.and_then(&below) {
                Some(new) => Ok(Transformed::yes(new)),
                None => Err(refuse(format_args!("column {c} in a subquery"))),
            }
        })?;
        Ok(done.data)
    };
    exprs.into_iter().map(replace).collect()
}

/// Whether `e` may be evaluated elsewhere, or not at all.
fn repeatable(e: &Expr) -> bool {
    !e.is_volatile() && has_subquery(e).is_ok_and(|found| !found)
}

fn reaches_out(u: &Union) -> bool {
    u.inputs.iter().any(|i| outer_reference(i).is_some())
}

/// An outer column that a plan uses.
fn outer_reference(plan: &LogicalPlan) -> Option<Expr> {
    plan.all_out_ref_exprs().into_iter().next()
}

/// Whether a subquery within `e` uses columns beyond `schema`.
fn nested_reach(e: &Expr, schema: &DFSchema) -> Result<bool> {
    e.exists(|e| {
        let s = match e {
            Expr::ScalarSubquery(s) => s,
            Expr::Exists(x) => &x.subquery,
            Expr::InSubquery(x) => &x.subquery,
            Expr::SetComparison(x) => &x.subquery,
            _ => return Ok(false),
        };
        Ok(s.outer_ref_columns.iter().any(|o| match o {
            Expr::OuterReferenceColumn(_, c) => schema.index_of_column(c).is_err(),
            _ => true,
        }))
    })
}

/// Whether a plan gives exactly one row, whatever it reads.
pub(super) fn is_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(p) => is_one_row(&p.input),
        LogicalPlan::SubqueryAlias(a) => is_one_row(&a.input),
        LogicalPlan::Sort(s) => is_one_row(&s.input),
        LogicalPlan::Distinct(Distinct::All(d)) => is_one_row(d),
        LogicalPlan::Aggregate(a) => a.group_expr.is_empty(),
        _ => false,
    }
}

/// One row that says whether `rows` has any. (The DISTINCT says nothing in batch; in a stream
/// it keeps quiet while the count changes and the answer does not.)
pub(super) fn any_row(rows: LogicalPlan) -> Result<LogicalPlan> {
    let count = Expr::AggregateFunction(datafusion_expr::expr::AggregateFunction {
        func: datafusion_functions_aggregate::count::count_udaf(),
        params: AggregateFunctionParams {
            args: vec![Expr::Literal(ScalarValue::Int64(Some(1)), None)],
            distinct: false,
            filter: None,
            order_by: vec![],
            null_treatment: None,
        },
    })
    .alias("__rows");
    let some = Expr::Column(Column::new_unqualified("__rows")).gt(lit(0i64)).alias("__any");
    LogicalPlanBuilder::from(rows).aggregate(Vec::<Expr>::new(), vec![count])?.project(vec![some])?.distinct()?.build()
}
