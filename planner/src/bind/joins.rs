//! RIGHT and FULL JOIN with USING or NATURAL. DataFusion takes the merged column from the left
//! side, where a row without a left one has NULL. Here the join is planned with ON, and under
//! a projection that has the merged column, then the other columns of both sides. The sides'
//! own columns of that name are gone, so that nothing means the wrong one.

use std::ops::ControlFlow;

use datafusion_common::{Column, Result};
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion_functions::expr_fn::coalesce;
use datafusion_sql::sqlparser::ast::{
    Ident, Join, JoinConstraint, JoinOperator, Query, Select, Spanned, TableFactor, TableWithJoins, VisitMut,
    VisitorMut,
};
use spate_engine::types::error::{ErrorKind, SpateError};

/// Puts every join that is planned here, with what stands before it, into parentheses: then it
/// is a relation, and [`MergedColumns`] is asked for it.
pub(super) fn fold(query: &mut Query) {
    let _ = query.visit(&mut Folder);
}

struct Folder;

impl VisitorMut for Folder {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for t in &mut select.from {
            parenthesize(t, false);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, t: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = t {
            parenthesize(table_with_joins, true);
        }
        ControlFlow::Continue(())
    }
}

/// `alone`: whether `t` is in parentheses already.
fn parenthesize(t: &mut TableWithJoins, alone: bool) {
    let until = t.joins.len() - usize::from(alone && !t.joins.is_empty());
    let Some(last) = t.joins.iter().take(until).rposition(|j| merges(j).is_some()) else { return };
    let rest = t.joins.split_off(last + 1);
    let joins = std::mem::replace(&mut t.joins, rest);
    let first = TableWithJoins { relation: t.relation.clone(), joins };
    t.relation = TableFactor::NestedJoin { table_with_joins: Box::new(first), alias: None };
}

/// The type of a join that merges columns and may have no left row.
pub(super) fn merges(join: &Join) -> Option<(JoinType, &JoinConstraint)> {
    let (kind, constraint) = match &join.join_operator {
        JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (JoinType::Right, c),
        JoinOperator::FullOuter(c) => (JoinType::Full, c),
        _ => return None,
    };
    matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural).then_some((kind, constraint))
}

#[derive(Debug)]
pub(super) struct MergedColumns;

impl RelationPlanner for MergedColumns {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let last = match &relation {
            TableFactor::NestedJoin { table_with_joins, .. } => table_with_joins.joins.last().and_then(merges),
            _ => None,
        };
        if last.is_none() {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let TableFactor::NestedJoin { mut table_with_joins, alias } = relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(join) = table_with_joins.joins.pop() else {
            return Ok(RelationPlanning::Original(Box::new(TableFactor::NestedJoin { table_with_joins, alias })));
        };
        let Some((kind, constraint)) = merges(&join) else {
            return Err(SpateError::internal("a join is not what it was").into());
        };
        let left = if table_with_joins.joins.is_empty() {
            context.plan(table_with_joins.relation)?
        } else {
            context.plan(TableFactor::NestedJoin { table_with_joins, alias: None })?
        };
        let right = context.plan(join.relation.clone())?;
        let names = match constraint {
            JoinConstraint::Using(names) => {
                names.iter().map(|n| one_ident(n).map(|i| context.normalize_ident(i))).collect::<Result<Vec<_>>>()?
            }
            _ => common(&left, &right),
        };
        // A name of its own, so that the columns clash with none of a join around this one.
        let at = join.relation.span().start;
        let plan = merged(left, right, kind, &names, &format!("__using_{}_{}", at.line, at.column))?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

fn one_ident(name: &datafusion_sql::sqlparser::ast::ObjectName) -> Result<Ident> {
    match name.0.as_slice() {
        [part] if part.as_ident().is_some() => Ok(part.as_ident().cloned().unwrap_or_else(|| Ident::new(""))),
        _ => Err(SpateError::invalid(format!("{name} in USING is not a column's name")).into()),
    }
}

/// Names of columns that both sides have.
fn common(left: &LogicalPlan, right: &LogicalPlan) -> Vec<String> {
    let theirs = right.schema().fields();
    let mut names: Vec<String> = Vec::new();
    for f in left.schema().fields() {
        if theirs.iter().any(|t| t.name() == f.name()) && !names.contains(f.name()) {
            names.push(f.name().clone());
        }
    }
    names
}

fn merged(
    left: LogicalPlan,
    right: LogicalPlan,
    kind: JoinType,
    names: &[String],
    qualifier: &str,
) -> Result<LogicalPlan> {
    let mut on = Vec::with_capacity(names.len());
    let mut exprs = Vec::new();
    for name in names {
        let (l, r) = (side(&left, name, "left")?, side(&right, name, "right")?);
        on.push(l.clone().eq(r.clone()));
        let value = if kind == JoinType::Full { coalesce(vec![l, r]) } else { r };
        exprs.push(value.alias_qualified(Some(qualifier), name));
    }
    if on.is_empty() {
        on.push(lit(true));
    }
    let columns = left.schema().columns().into_iter().chain(right.schema().columns());
    exprs.extend(columns.filter(|c| !names.contains(&c.name)).map(Expr::Column));
    LogicalPlanBuilder::from(left).join_on(right, kind, on)?.project(exprs)?.build()
}

/// The column of this name on one side of a join.
fn side(plan: &LogicalPlan, name: &str, which: &str) -> Result<Expr> {
    let found: Vec<Column> = plan.schema().columns().into_iter().filter(|c| c.name == name).collect();
    let first = match found.as_slice() {
        [] => {
            let text = format!("column \"{name}\" of USING does not exist on the {which} side of the join");
            return Err(SpateError::new(ErrorKind::NotFound, text).into());
        }
        [one] => one,
        // Merged by an earlier USING of an inner or left join: the first has the value.
        [first, ..] if plan.using_columns()?.iter().any(|set| found.iter().all(|c| set.contains(c))) => first,
        _ => {
            let text = format!("column \"{name}\" of USING is on the {which} side of the join more than once");
            return Err(SpateError::new(ErrorKind::Type, text).into());
        }
    };
    Ok(Expr::Column(first.clone()))
}
