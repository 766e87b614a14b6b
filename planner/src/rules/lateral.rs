//! LATERAL relations that read no table: `FROM t, unnest(t.list) AS x` and its like compute
//! from each row of what stands before them. The join becomes what it is, projections and
//! unnests over those rows; DataFusion has no plan for them otherwise.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, NullHandling, Result};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder};

/// Rewrites every such join of a plan, subqueries included.
pub(crate) fn inline(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
        if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
            return Ok(Transformed::no(node));
        }
        let conditions = join
            .on
            .iter()
            .map(|(l, r)| l.clone().eq(r.clone()))
            .chain(join.filter.clone())
            .filter(|e| !matches!(e, Expr::Literal(datafusion_common::ScalarValue::Boolean(Some(true)), _)));
        let condition = conjunction(conditions);
        let outer = join.join_type == JoinType::Left;
        if outer && condition.is_some() {
            return Ok(Transformed::no(node));
        }
        if !lateral(&join.right) {
            return Ok(Transformed::no(node));
        }
        match over(&join.right, &join.left, outer)? {
            Some(plan) => {
                let mut plan = LogicalPlanBuilder::from(plan);
                if let Some(condition) = condition {
                    plan = plan.filter(condition)?;
                }
                Ok(Transformed::yes(plan.build()?))
            }
            None => Ok(Transformed::no(node)),
        }
    })?;
    Ok(done.data)
}

/// Whether a relation reads what stands before it.
fn lateral(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(a) => lateral(&a.input),
        LogicalPlan::Subquery(s) => !s.outer_ref_columns.is_empty(),
        _ => false,
    }
}

fn columns(plan: &LogicalPlan) -> impl Iterator<Item = Expr> + '_ {
    plan.schema().iter().map(|c| Expr::Column(Column::from(c)))
}

/// `plan`, which begins with one row, over each row of `left` instead: `left`'s columns come
/// first. `None` if it does more than to compute and unnest. With `outer`, rows without
/// elements stay.
fn over(plan: &LogicalPlan, left: &Arc<LogicalPlan>, outer: bool) -> Result<Option<LogicalPlan>> {
    let width = left.schema().fields().len();
    Ok(match plan {
        LogicalPlan::Subquery(s) => over(&s.subquery, left, outer)?,
        LogicalPlan::EmptyRelation(e) if e.produce_one_row => Some(left.as_ref().clone()),
        LogicalPlan::SubqueryAlias(a) => {
            let Some(input) = over(&a.input, left, outer)? else { return Ok(None) };
            let list = columns(&input).enumerate().map(|(i, e)| match i.checked_sub(width) {
                Some(own) => {
                    let (qualifier, field) = a.schema.qualified_field(own);
                    e.alias_qualified(qualifier.cloned(), field.name())
                }
                None => e,
            });
            let list: Vec<Expr> = list.collect();
            Some(LogicalPlanBuilder::from(input).project(list)?.build()?)
        }
        LogicalPlan::Projection(p) => {
            // What is computed of elements is not NULL where there are none.
            let plain = |e: &Expr| matches!(crate::lower::unaliased(e), Expr::Column(_));
            if outer && unnests(&p.input) && !p.expr.iter().all(plain) {
                return Ok(None);
            }
            let Some(input) = over(&p.input, left, outer)? else { return Ok(None) };
            let mut list: Vec<Expr> = columns(&input).take(width).collect();
            for e in &p.expr {
                let Some(e) = resolved(e, left)? else { return Ok(None) };
                list.push(e);
            }
            Some(LogicalPlanBuilder::from(input).project(list)?.build()?)
        }
        LogicalPlan::Filter(f) if !outer => {
            let Some(input) = over(&f.input, left, outer)? else { return Ok(None) };
            let Some(predicate) = resolved(&f.predicate, left)? else { return Ok(None) };
            Some(LogicalPlanBuilder::from(input).filter(predicate)?.build()?)
        }
        LogicalPlan::Unnest(u) => {
            let Some(input) = over(&u.input, left, outer)? else { return Ok(None) };
            let mut options = u.options.clone();
            if outer {
                options.null_handling = NullHandling::PreserveAndExpandEmpty;
            }
            let unnest =
                LogicalPlanBuilder::from(input).unnest_columns_with_options(u.exec_columns.clone(), options)?;
            Some(unnest.build()?)
        }
        _ => None,
    })
}

fn unnests(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Unnest(_) => true,
        LogicalPlan::Projection(p) => unnests(&p.input),
        LogicalPlan::SubqueryAlias(a) => unnests(&a.input),
        LogicalPlan::Filter(f) => unnests(&f.input),
        _ => false,
    }
}

/// `e` with the columns of `left` as columns; `None` if it reads yet others from outside.
fn resolved(e: &Expr, left: &LogicalPlan) -> Result<Option<Expr>> {
    let mut known = true;
    let e = e.clone().transform_up(|e| match e {
        Expr::OuterReferenceColumn(_, c) if left.schema().has_column(&c) => Ok(Transformed::yes(Expr::Column(c))),
        Expr::OuterReferenceColumn(..)
        | Expr::ScalarSubquery(_)
        | Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::SetComparison(_) => {
            known = false;
            Ok(Transformed::no(e))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(known.then_some(e.data))
}
