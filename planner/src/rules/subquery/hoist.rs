//! Subqueries that stand where no join can take their place: they become columns of a
//! projection below, and what used them reads the column.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, Result};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder};

use super::{Rewriter, has_subquery, is_subquery, refuse};

/// Columns to add to a plan.
#[derive(Default)]
struct Added(Vec<Expr>);

impl Added {
    /// The columns of `plan` and these.
    fn to(self, rewriter: &mut Rewriter, plan: LogicalPlan) -> Result<LogicalPlan> {
        if self.0.is_empty() {
            return Ok(plan);
        }
        let all = plan.schema().columns().into_iter().map(Expr::Column).chain(self.0);
        let wider = LogicalPlanBuilder::from(plan).project(all)?.build()?;
        rewriter.node(wider)
    }
}

impl Rewriter {
    /// Makes the left side of every IN, ANY and ALL something that can be evaluated again:
    /// one that has a subquery or varies becomes a column of `input`.
    pub(super) fn settle_operands(&mut self, input: LogicalPlan, exprs: Vec<Expr>) -> Result<(LogicalPlan, Vec<Expr>)> {
        let mut added = Added::default();
        let mut settle = |rewriter: &mut Self, x: &mut Box<Expr>| -> Result<()> {
            if x.is_volatile() || has_subquery(x)? {
                let name = rewriter.fresh("x");
                let column = Expr::Column(Column::new_unqualified(name.clone()));
                added.0.push(std::mem::replace(x.as_mut(), column).alias(name));
            }
            Ok(())
        };
        let mut done = Vec::with_capacity(exprs.len());
        for e in exprs {
            let e = e.transform_down(|e| {
                Ok(match e {
                    Expr::InSubquery(mut i) => {
                        settle(self, &mut i.expr)?;
                        Transformed::yes(Expr::InSubquery(i))
                    }
                    Expr::SetComparison(mut c) => {
                        settle(self, &mut c.expr)?;
                        Transformed::yes(Expr::SetComparison(c))
                    }
                    other => Transformed::no(other),
                })
            })?;
            done.push(e.data);
        }
        Ok((added.to(self, input)?, done))
    }

    /// Subqueries of a node that is neither WHERE nor a select list.
    pub(super) fn elsewhere(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Join(j) => self.on(j),
            LogicalPlan::Aggregate(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_) => self.below(plan),
            other => {
                let mut rows = false;
                other.apply_expressions(|e| {
                    rows |= e.exists(|e| Ok(is_subquery(e) && !matches!(e, Expr::ScalarSubquery(_))))?;
                    Ok(TreeNodeRecursion::Continue)
                })?;
                if rows {
                    let place = crate::lower::construct(&other);
                    return Err(refuse(format_args!("IN, EXISTS, ANY or ALL with a subquery in {place}")));
                }
                Ok(other)
            }
        }
    }

    fn below(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let mut added = Added::default();
        let columns = plan.schema().columns();
        let names = NamePreserver::new(&plan);
        let sorts = matches!(plan, LogicalPlan::Sort(_));
        let plan = plan
            .map_expressions(|e| {
                let name = names.save(&e);
                let e = self.out(e, &mut added)?;
                Ok(Transformed::yes(if sorts { e } else { name.restore(e) }))
            })?
            .data;
        let mut inputs = Vec::new();
        for input in plan.inputs() {
            inputs.push(std::mem::take(&mut added).to(self, input.clone())?);
        }
        let exprs = plan.expressions();
        let plan = plan.with_new_exprs(exprs, inputs)?;
        if plan.schema().columns() == columns {
            return Ok(plan);
        }
        LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build()
    }

    /// `e` with columns for its subqueries.
    fn out(&mut self, e: Expr, added: &mut Added) -> Result<Expr> {
        let done = e.transform_down(|e| {
            if !is_subquery(&e) {
                return Ok(Transformed::no(e));
            }
            let name = self.fresh("x");
            added.0.push(e.alias(name.clone()));
            let column = Expr::Column(Column::new_unqualified(name));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        Ok(done.data)
    }

    /// Subqueries in ON. What speaks of one side becomes a column of it.
    fn on(&mut self, j: Join) -> Result<LogicalPlan> {
        let columns = j.schema.columns();
        let (mut left, mut right) = (Added::default(), Added::default());
        let (mut kept, mut above) = (Vec::new(), Vec::new());
        for c in j.filter.into_iter().flat_map(split_conjunction_owned) {
            if !has_subquery(&c)? {
                kept.push(c);
            } else if j.join_type == JoinType::Inner {
                above.push(c);
            } else {
                let done = c.transform_down(|e| {
                    if !is_subquery(&e) {
                        return Ok(Transformed::no(e));
                    }
                    let side = if speaks_of(&e, j.left.schema())? {
                        &mut left
                    } else if speaks_of(&e, j.right.schema())? {
                        &mut right
                    } else {
                        return Err(refuse("a subquery in ON about both sides of an outer join"));
                    };
                    let name = self.fresh("x");
                    side.0.push(e.alias(name.clone()));
                    let column = Expr::Column(Column::new_unqualified(name));
                    Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
                })?;
                kept.push(done.data);
            }
        }
        let left = left.to(self, Arc::unwrap_or_clone(j.left))?;
        let right = right.to(self, Arc::unwrap_or_clone(j.right))?;
        let joined = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            j.on,
            conjunction(kept),
            j.join_type,
            j.join_constraint,
            j.null_equality,
            j.null_aware,
        )?;
        let mut plan = LogicalPlan::Join(joined);
        if let Some(above) = conjunction(above) {
            plan = self.filter(Filter::try_new(above, Arc::new(plan))?)?;
        }
        if plan.schema().columns() == columns {
            return Ok(plan);
        }
        LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build()
    }
}

/// Whether every outer column that a subquery `e` uses is one of `schema`.
fn speaks_of(e: &Expr, schema: &DFSchema) -> Result<bool> {
    let (s, x) = match e {
        Expr::ScalarSubquery(s) => (s, None),
        Expr::Exists(x) => (&x.subquery, None),
        Expr::InSubquery(x) => (&x.subquery, Some(&x.expr)),
        Expr::SetComparison(x) => (&x.subquery, Some(&x.expr)),
        _ => return Ok(false),
    };
    let known = |c: &Column| schema.index_of_column(c).is_ok();
    let outer = s.outer_ref_columns.iter().all(|o| matches!(o, Expr::OuterReferenceColumn(_, c) if known(c)));
    let nested = match x {
        Some(x) => has_subquery(x)?,
        None => false,
    };
    Ok(outer && !nested && x.is_none_or(|x| x.column_refs().into_iter().all(known)))
}
