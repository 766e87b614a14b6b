//! IN, EXISTS, ANY and ALL become semi, anti and mark joins while a query is bound, so that
//! batch and stream run the same joins. DataFusion's own rewriting has marks that are never
//! NULL (so that IN under OR or NOT is wrong), and gives up on much that is not in WHERE.
//!
//! IN, ANY and ALL are first taken apart into EXISTS ([`truth`]): `x = ANY (S)` is true if S
//! has a row equal to x, else NULL if S has a NULL or x is NULL and S has any row, else false.
//! Where NULL counts as false (in WHERE, under AND and OR) only the first part is needed.
//!
//! EXISTS (S) depends on the outer row only through conditions that compare its columns with
//! those of S ([`existence`]): they become the condition of a join of the outer rows with the
//! rest of S. As one of the conditions of WHERE it is a semi join, NOT EXISTS an anti join,
//! anywhere else a mark join, whose mark is the value of EXISTS. Without such conditions it is
//! one value for all rows, a scalar subquery that counts.
//!
//! A subquery that stands elsewhere than in a select list or WHERE (in GROUP BY, in an
//! aggregate, in ON) is computed as a column of what that reads.

mod domain;
mod existence;
mod hoist;
pub(crate) mod rows;
pub(crate) mod single;
mod truth;

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result};
use datafusion_expr::expr::Exists;
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::utils::{conjunction, disjunction, split_conjunction_owned};
use datafusion_expr::{Expr, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, lit, not, scalar_subquery};
use spate_engine::types::error::SpateError;

use existence::Existence;

/// Rewrites every IN, EXISTS, ANY and ALL of an analyzed plan.
pub(crate) fn to_joins(plan: LogicalPlan) -> Result<LogicalPlan> {
    Rewriter { made: 0 }.plan(plan)
}

struct Rewriter {
    /// Names given so far.
    made: usize,
}

impl Rewriter {
    fn fresh(&mut self, what: &str) -> String {
        self.made += 1;
        format!("__{what}{}", self.made)
    }

    fn plan(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let plan = plan.map_children(|p| Ok(Transformed::yes(self.plan(p)?)))?.data;
        self.node(plan)
    }

    /// Rewrites the subqueries of a node whose inputs are done.
    fn node(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let mut found = false;
        plan.apply_expressions(|e| {
            found |= has_subquery(e)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !found {
            return Ok(plan);
        }
        let names = NamePreserver::new(&plan);
        let plan = plan
            .map_expressions(|e| {
                let name = names.save(&e);
                Ok(Transformed::yes(name.restore(self.inner(e)?)))
            })?
            .data;
        match plan {
            LogicalPlan::Filter(f) => self.filter(f),
            LogicalPlan::Projection(p) => self.project(p),
            other => self.elsewhere(other),
        }
    }

    /// Rewrites within the subqueries of an expression.
    fn inner(&mut self, e: Expr) -> Result<Expr> {
        let done = e.transform_up(|e| {
            Ok(match e {
                Expr::Exists(mut x) => {
                    x.subquery = self.subquery(x.subquery)?;
                    Transformed::yes(Expr::Exists(x))
                }
                Expr::InSubquery(mut x) => {
                    x.subquery = self.subquery(x.subquery)?;
                    Transformed::yes(Expr::InSubquery(x))
                }
                Expr::SetComparison(mut x) => {
                    x.subquery = self.subquery(x.subquery)?;
                    Transformed::yes(Expr::SetComparison(x))
                }
                Expr::ScalarSubquery(s) => Transformed::yes(Expr::ScalarSubquery(self.subquery(s)?)),
                other => Transformed::no(other),
            })
        })?;
        Ok(done.data)
    }

    fn subquery(&mut self, s: Subquery) -> Result<Subquery> {
        let plan = self.plan(Arc::unwrap_or_clone(s.subquery))?;
        Ok(Subquery { outer_ref_columns: plan.all_out_ref_exprs(), subquery: Arc::new(plan), spans: s.spans })
    }

    fn filter(&mut self, f: Filter) -> Result<LogicalPlan> {
        let columns = f.input.schema().columns();
        let (mut input, predicate) = self.settle_operands(Arc::unwrap_or_clone(f.input), vec![f.predicate])?;
        let mut rest = Vec::new();
        let predicate = conjunction(predicate).unwrap_or_else(|| lit(true));
        for condition in split_conjunction_owned(self.condition(predicate, &input, false)?) {
            let (exists, negated) = match condition {
                Expr::Exists(e) => (e, false),
                Expr::Not(inner) => match *inner {
                    Expr::Exists(e) => (e, true),
                    other => {
                        rest.push(self.marks(not(other), &mut input)?);
                        continue;
                    }
                },
                other => {
                    rest.push(self.marks(other, &mut input)?);
                    continue;
                }
            };
            let negated = negated != exists.negated;
            let mut branches = self.existence(exists.subquery, &input)?;
            match (branches.pop(), branches.is_empty()) {
                // NOT EXISTS is the other way round only if the outer row has no say of its own.
                (Some(Existence::Join { outer, on, rows }), true) if outer.is_empty() || !negated => {
                    let kind = if negated { JoinType::LeftAnti } else { JoinType::LeftSemi };
                    input = LogicalPlanBuilder::from(input).join_on(rows, kind, on)?.build()?;
                    rest.extend(outer);
                }
                (last, _) => {
                    let value = self.values(branches.into_iter().chain(last).collect(), &mut input)?;
                    rest.push(if negated { not(value) } else { value });
                }
            }
        }
        if let Some(predicate) = conjunction(rest) {
            input = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
        }
        if input.schema().columns() == columns {
            return Ok(input);
        }
        LogicalPlanBuilder::from(input).project(columns.into_iter().map(Expr::Column))?.build()
    }

    fn project(&mut self, p: Projection) -> Result<LogicalPlan> {
        let node = LogicalPlan::Projection(p.clone());
        let names = NamePreserver::new(&node);
        let saved: Vec<_> = p.expr.iter().map(|e| names.save(e)).collect();
        let (mut input, exprs) = self.settle_operands(Arc::unwrap_or_clone(p.input), p.expr)?;
        let mut done = Vec::with_capacity(exprs.len());
        for (e, name) in exprs.into_iter().zip(saved) {
            let e = self.value(e, &input)?;
            done.push(name.restore(self.marks(e, &mut input)?));
        }
        LogicalPlanBuilder::from(input).project(done)?.build()
    }

    /// `e` with the value of every EXISTS in it as a column of `input`, which gets that column;
    /// so with scalar subqueries that DataFusion does not turn into joins.
    fn marks(&mut self, e: Expr, input: &mut LogicalPlan) -> Result<Expr> {
        let done = e.transform_up(|e| {
            let Exists { subquery, negated } = match e {
                Expr::Exists(exists) => exists,
                Expr::ScalarSubquery(s) if !single::is_simple(&s)? => {
                    let all = self.for_all(Arc::unwrap_or_clone(s.subquery), input, true)?;
                    let joined = std::mem::take(input);
                    *input = LogicalPlanBuilder::from(joined).join_on(all.rows, JoinType::Left, all.on)?.build()?;
                    return Ok(all.value.map_or_else(|| Transformed::no(lit(true)), Transformed::yes));
                }
                other => return Ok(Transformed::no(other)),
            };
            let branches = self.existence(subquery, input)?;
            let value = self.values(branches, input)?;
            Ok(Transformed::yes(if negated { not(value) } else { value }))
        })?;
        Ok(done.data)
    }

    /// Whether any of these is so.
    fn values(&mut self, branches: Vec<Existence>, input: &mut LogicalPlan) -> Result<Expr> {
        let mut any = Vec::with_capacity(branches.len());
        for branch in branches {
            let (outer, exists) = match branch {
                Existence::Join { outer, on, rows } => {
                    let before = input.schema().fields().len();
                    let joined = std::mem::take(input);
                    *input = LogicalPlanBuilder::from(joined).join_on(rows, JoinType::LeftMark, on)?.build()?;
                    let (qualifier, field) = input.schema().qualified_field(before);
                    (outer, Expr::Column(Column::from((qualifier, field))))
                }
                Existence::Alone { outer, rows } => (outer, scalar_subquery(Arc::new(existence::any_row(rows)?))),
                Existence::Always { outer } => (outer, lit(true)),
            };
            let outer = outer.into_iter().map(|o| Expr::IsTrue(Box::new(o)));
            any.push(conjunction(outer.chain([exists])).unwrap_or_else(|| lit(true)));
        }
        Ok(disjunction(any).unwrap_or_else(|| lit(false)))
    }
}

/// `e` without the names that it is given.
fn unaliased(e: &Expr) -> &Expr {
    match e {
        Expr::Alias(a) => unaliased(&a.expr),
        other => other,
    }
}

/// Whether a subquery stands in `e`.
fn has_subquery(e: &Expr) -> Result<bool> {
    e.exists(|e| Ok(is_subquery(e)))
}

fn is_subquery(e: &Expr) -> bool {
    matches!(e, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_))
}

fn refuse(what: impl std::fmt::Display) -> datafusion_common::DataFusionError {
    SpateError::unsupported(format!("{what} is not supported")).with_hint("join with a grouped subquery instead").into()
}
