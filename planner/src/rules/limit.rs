//! Makes LIMIT deterministic: ties of ORDER BY are broken by all other columns, a LIMIT
//! without ORDER BY orders by every column, and a sort that no LIMIT reads is dropped (a
//! continuous result has no order). Batch and stream then keep the same rows.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result};
use datafusion_expr::{Expr, Limit, LogicalPlan, Sort, SortExpr};

/// Rewrites every LIMIT and every sort of a plan, subqueries included.
pub(crate) fn order_limits(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Limit(limit) => {
            let Limit { skip, fetch, input } = limit;
            let input = Arc::unwrap_or_clone(input);
            if finds_sort(&input) {
                sink(skip, fetch, input)
            } else {
                limit_over(skip, fetch, sort_by_all(Vec::new(), order_limits(input)?))
            }
        }
        LogicalPlan::Sort(sort) => order_limits(Arc::unwrap_or_clone(sort.input)),
        other => {
            let other = other.map_subqueries(|p| order_limits(p).map(Transformed::yes))?.data;
            Ok(other.map_children(|p| order_limits(p).map(Transformed::yes))?.data)
        }
    }
}

/// Whether a sort orders the rows of `plan`: nodes that compute row by row are seen through.
fn finds_sort(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(p) => finds_sort(&p.input),
        LogicalPlan::SubqueryAlias(a) => finds_sort(&a.input),
        _ => false,
    }
}

/// Moves a limit down to the sort that it reads.
fn sink(skip: Option<Box<Expr>>, fetch: Option<Box<Expr>>, plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Sort(sort) => {
            let input = order_limits(Arc::unwrap_or_clone(sort.input))?;
            limit_over(skip, fetch, sort_by_all(sort.expr, input))
        }
        LogicalPlan::Projection(mut p) => {
            p.input = Arc::new(sink(skip, fetch, Arc::unwrap_or_clone(p.input))?);
            Ok(LogicalPlan::Projection(p))
        }
        LogicalPlan::SubqueryAlias(mut a) => {
            a.input = Arc::new(sink(skip, fetch, Arc::unwrap_or_clone(a.input))?);
            Ok(LogicalPlan::SubqueryAlias(a))
        }
        other => limit_over(skip, fetch, other),
    }
}

fn limit_over(skip: Option<Box<Expr>>, fetch: Option<Box<Expr>>, input: LogicalPlan) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Limit(Limit { skip, fetch, input: Arc::new(input) }))
}

fn sort_by_all(mut order: Vec<SortExpr>, input: LogicalPlan) -> LogicalPlan {
    for (qualifier, field) in input.schema().iter() {
        let column = Expr::Column(Column::from((qualifier, field)));
        if !order.iter().any(|s| s.expr == column) {
            order.push(SortExpr::new(column, true, false));
        }
    }
    LogicalPlan::Sort(Sort { expr: order, input: Arc::new(input), fetch: None })
}
