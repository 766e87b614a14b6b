//! `SELECT DISTINCT ON (…) … ORDER BY …`: the row of each group that is numbered 1. So all
//! columns come from one row, and ties are broken as those of `row_number` are.

use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, Result};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Distinct, DistinctOn, Expr, LogicalPlan, LogicalPlanBuilder, Window, WindowFrame, lit};

/// Rewrites every DISTINCT ON of a plan, subqueries included.
pub(crate) fn distinct_on(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Distinct(Distinct::On(d)) => Ok(Transformed::yes(rewrite(d)?)),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(done.data)
}

fn rewrite(d: DistinctOn) -> Result<LogicalPlan> {
    let DistinctOn { on_expr, select_expr, sort_expr, input, schema } = d;
    let sort = sort_expr.unwrap_or_default();
    let row_number = crate::bind::bigint::counting(datafusion_functions_window::row_number::row_number_udwf());
    let mut f = WindowFunction::new(row_number, Vec::new());
    f.params.order_by = sort.iter().filter(|s| !on_expr.contains(&s.expr)).cloned().collect();
    f.params.partition_by = on_expr;
    f.params.window_frame = WindowFrame::new(Some(true));
    let number = Expr::from(f);
    let name = Column::from_name(number.schema_name().to_string());
    let window = LogicalPlan::Window(Window::try_new(vec![number], input)?);
    let mut plan = LogicalPlanBuilder::from(window).filter(Expr::Column(name).eq(lit(1i64)))?;
    if !sort.is_empty() {
        plan = plan.sort(sort)?;
    }
    let list = select_expr.into_iter().enumerate().map(|(i, e)| {
        let (qualifier, field) = schema.qualified_field(i);
        e.alias_qualified(qualifier.cloned(), field.name())
    });
    plan.project(list.collect::<Vec<_>>())?.build()
}
