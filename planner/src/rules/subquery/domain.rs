//! Correlated subqueries whose outer columns are used otherwise than in conditions that a join
//! can take over: over an aggregate in other comparisons than `=`, in HAVING, in a select list.
//!
//! They are computed for every value that the outer columns have (the domain: the outer rows,
//! cut down to those columns, without repetitions) at once: the domain is joined in where the
//! subquery reads its tables, its columns stay beside the subquery's own through every node, and
//! at last the outer rows join with the result on them. (Neumann and Kemper, "Unnesting
//! Arbitrary Queries", BTW 2015.)

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::utils::conjunction;
use datafusion_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, ExprSchemable, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
    Operator, lit,
};
use datafusion_functions::expr_fn::coalesce;

use super::{Rewriter, refuse};

/// The values of some outer columns.
struct Domain {
    /// One row per combination.
    rows: LogicalPlan,
    outer: Vec<Column>,
    /// The outer columns' names within the subquery.
    inner: Vec<Column>,
}

/// A subquery for all outer rows: `value` of it (none: whether it has a row) belongs to the
/// outer rows for which `on` is true.
pub(super) struct ForAll {
    pub(super) rows: LogicalPlan,
    pub(super) on: Vec<Expr>,
    pub(super) value: Option<Expr>,
}

impl Rewriter {
    /// `subquery` for all rows of `input`.
    pub(super) fn for_all(&mut self, subquery: LogicalPlan, input: &LogicalPlan, valued: bool) -> Result<ForAll> {
        let mut outer = Vec::new();
        for e in subquery.all_out_ref_exprs() {
            match e {
                Expr::OuterReferenceColumn(_, c) if input.schema().index_of_column(&c).is_ok() => {
                    if !outer.contains(&c) {
                        outer.push(c);
                    }
                }
                other => {
                    return Err(refuse(format_args!("column {other} of a query that is not the next one outside")));
                }
            }
        }
        if varies(input)? {
            return Err(refuse("a subquery of this form, correlated with rows that differ from run to run,"));
        }
        let name = self.fresh("d");
        let inner: Vec<Column> =
            (0..outer.len()).map(|i| Column::new(Some(name.clone()), format!("{name}_{i}"))).collect();
        let named = outer.iter().zip(&inner).map(|(o, i)| aliased(o, i));
        let rows = LogicalPlanBuilder::from(input.clone()).project(named)?.distinct()?.build()?;
        let domain = Domain { rows, outer, inner };
        let value = subquery.schema().columns().into_iter().next().filter(|_| valued);
        let done = domain.push(subquery)?;
        // Under names that clash with nothing.
        let name = self.fresh("sq");
        let place = |i: usize| Column::new(Some(name.clone()), format!("{name}_{i}"));
        let kept = domain.inner.iter().chain(&value).enumerate().map(|(i, c)| aliased(c, &place(i)));
        let rows = LogicalPlanBuilder::from(done).project(kept)?.build()?;
        let on = domain.outer.iter().enumerate().map(|(i, o)| same(o.clone(), place(i))).collect();
        let value = value.map(|_| Expr::Column(place(domain.outer.len())));
        Ok(ForAll { rows, on, value })
    }
}

/// Whether reading `plan` twice may give different rows.
fn varies(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |=
            matches!(node, LogicalPlan::Limit(_) | LogicalPlan::Distinct(Distinct::On(_)) | LogicalPlan::Window(_));
        node.apply_expressions(|e| {
            found |= e.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn aliased(from: &Column, to: &Column) -> Expr {
    Expr::Column(from.clone()).alias_qualified(to.relation.clone(), to.name.clone())
}

fn same(a: Column, b: Column) -> Expr {
    let (a, b) = (Box::new(Expr::Column(a)), Box::new(Expr::Column(b)));
    Expr::BinaryExpr(BinaryExpr::new(a, Operator::IsNotDistinctFrom, b))
}

impl Domain {
    /// The columns of `plan`, then those of the domain: the rows of `plan` for each of its values.
    fn push(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if plan.all_out_ref_exprs().is_empty() {
            return LogicalPlanBuilder::from(plan).cross_join(self.rows.clone())?.build();
        }
        let columns = plan.schema().columns();
        let done = match plan {
            LogicalPlan::Filter(f) => {
                let input = self.push(Arc::unwrap_or_clone(f.input))?;
                return Ok(LogicalPlan::Filter(Filter::try_new(self.inside(f.predicate)?, Arc::new(input))?));
            }
            LogicalPlan::Projection(p) => {
                let names = NamePreserver::new_for_projection();
                let mut exprs = Vec::with_capacity(columns.len());
                for e in p.expr {
                    let name = names.save(&e);
                    exprs.push(name.restore(self.inside(e)?));
                }
                let input = self.push(Arc::unwrap_or_clone(p.input))?;
                return LogicalPlanBuilder::from(input).project(exprs.into_iter().chain(self.own()))?.build();
            }
            LogicalPlan::SubqueryAlias(a) => {
                let below = a.input.schema().columns();
                let named: Vec<Expr> = below.iter().zip(&columns).map(|(b, c)| aliased(b, c)).collect();
                let input = self.push(Arc::unwrap_or_clone(a.input))?;
                return LogicalPlanBuilder::from(input).project(named.into_iter().chain(self.own()))?.build();
            }
            LogicalPlan::Sort(s) if s.fetch.is_none() => return self.push(Arc::unwrap_or_clone(s.input)),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.push(Arc::unwrap_or_clone(input))?;
                return LogicalPlanBuilder::from(input).distinct()?.build();
            }
            LogicalPlan::Aggregate(a) => return self.aggregate(a),
            LogicalPlan::Union(u) => {
                let mut inputs = u.inputs.into_iter();
                let Some(first) = inputs.next() else {
                    return Err(refuse("a correlated UNION of nothing"));
                };
                let mut all = LogicalPlanBuilder::from(self.push(Arc::unwrap_or_clone(first))?);
                for input in inputs {
                    all = all.union(self.push(Arc::unwrap_or_clone(input))?)?;
                }
                let all = all.build()?;
                let wanted = columns.iter().chain(&self.inner);
                let named: Vec<Expr> = all.schema().columns().iter().zip(wanted).map(|(f, t)| aliased(f, t)).collect();
                return LogicalPlanBuilder::from(all).project(named)?.build();
            }
            // The left side takes the domain in, so that a row without a match keeps it.
            LogicalPlan::Join(j)
                if !matches!(
                    j.join_type,
                    JoinType::Right | JoinType::Full | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
                ) && j.right.all_out_ref_exprs().is_empty() =>
            {
                let filter = j.filter.map(|f| self.inside(f)).transpose()?;
                let left = Arc::new(self.push(Arc::unwrap_or_clone(j.left))?);
                LogicalPlan::Join(Join::try_new(
                    left,
                    j.right,
                    j.on,
                    filter,
                    j.join_type,
                    j.join_constraint,
                    j.null_equality,
                    j.null_aware,
                )?)
            }
            LogicalPlan::Join(j) if j.join_type == JoinType::Inner && j.left.all_out_ref_exprs().is_empty() => {
                let filter = j.filter.map(|f| self.inside(f)).transpose()?;
                let right = Arc::new(self.push(Arc::unwrap_or_clone(j.right))?);
                LogicalPlan::Join(Join::try_new(
                    j.left,
                    right,
                    j.on,
                    filter,
                    j.join_type,
                    j.join_constraint,
                    j.null_equality,
                    j.null_aware,
                )?)
            }
            other => {
                return Err(refuse(format_args!(
                    "a correlated subquery with outer columns in or below {}",
                    crate::lower::construct(&other)
                )));
            }
        };
        let all = columns.into_iter().map(Expr::Column).chain(self.own());
        LogicalPlanBuilder::from(done).project(all)?.build()
    }

    fn aggregate(&self, a: Aggregate) -> Result<LogicalPlan> {
        if a.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_))) {
            return Err(refuse("a correlated subquery with GROUPING SETS"));
        }
        let columns = a.schema.columns();
        let global = a.group_expr.is_empty();
        // What a group without rows has: 0 for counts, NULL for most.
        let mut empty = Vec::with_capacity(columns.len());
        for e in &a.aggr_expr {
            let call = e.clone().unalias_nested().data;
            let Expr::AggregateFunction(f) = &call else {
                return Err(refuse(format_args!("{call} in a correlated subquery")));
            };
            let value = f.func.default_value(&call.get_type(a.input.schema())?)?;
            empty.push((!value.is_null()).then_some(value));
        }
        let node = LogicalPlan::Aggregate(a.clone());
        let names = NamePreserver::new(&node);
        let restored = |exprs: Vec<Expr>| {
            exprs
                .into_iter()
                .map(|e| {
                    let name = names.save(&e);
                    Ok(name.restore(self.inside(e)?))
                })
                .collect::<Result<Vec<_>>>()
        };
        let group: Vec<Expr> = restored(a.group_expr)?.into_iter().chain(self.own()).collect();
        let calls = restored(a.aggr_expr)?;
        let input = self.push(Arc::unwrap_or_clone(a.input))?;
        let grouped = LogicalPlanBuilder::from(input).aggregate(group, calls)?.build()?;
        if !global {
            let all = columns.into_iter().map(Expr::Column).chain(self.own());
            return LogicalPlanBuilder::from(grouped).project(all)?.build();
        }
        // A value of the domain without rows has a group all the same.
        let beside: Vec<Column> = self.inner.iter().map(|c| Column::new(Some("__grouped"), c.name.clone())).collect();
        let own = self.inner.iter().zip(&beside).map(|(c, b)| aliased(c, b));
        let kept = columns.iter().cloned().map(Expr::Column).chain(own);
        let grouped = LogicalPlanBuilder::from(grouped).project(kept)?.build()?;
        let on =
            conjunction(self.inner.iter().cloned().zip(beside).map(|(a, b)| same(a, b))).unwrap_or_else(|| lit(true));
        let values = columns.into_iter().zip(empty).map(|(c, empty)| match empty {
            Some(v) => {
                let value = coalesce(vec![Expr::Column(c.clone()), Expr::Literal(v, None)]);
                value.alias_qualified(c.relation, c.name)
            }
            None => Expr::Column(c),
        });
        let all: Vec<Expr> = values.chain(self.own()).collect();
        LogicalPlanBuilder::from(self.rows.clone()).join_on(grouped, JoinType::Left, [on])?.project(all)?.build()
    }

    /// The domain's columns.
    fn own(&self) -> impl Iterator<Item = Expr> + '_ {
        self.inner.iter().cloned().map(Expr::Column)
    }

    /// `e` with the domain's columns for the outer ones.
    fn inside(&self, e: Expr) -> Result<Expr> {
        let done = e.transform_up(|e| match e {
            Expr::OuterReferenceColumn(_, c) => match self.outer.iter().position(|o| *o == c) {
                Some(i) => Ok(Transformed::yes(Expr::Column(self.inner[i].clone()))),
                None => Err(refuse(format_args!("column {c} of a query that is not the next one outside"))),
            },
            other => Ok(Transformed::no(other)),
        })?;
        Ok(done.data)
    }
}
