//! Joins that are planned here: those that look something up ([`super::lookup`]), and RIGHT and FULL
//! JOIN with USING or NATURAL. Of the latter DataFusion takes the merged column from the left
//! side, where a row without a left one has NULL. Here the join is planned with ON, and under
//! a projection that has the merged column, then the other columns of both sides. The sides'
//! own columns of that name are gone, so that nothing means the wrong one.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion_common::{Column, Result};
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::{Expr, Extension, JoinType, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion_functions::expr_fn::coalesce;
use datafusion_sql::sqlparser::ast::{
    Ident, Join, JoinConstraint, JoinOperator, Query, Select, Spanned, TableFactor, TableWithJoins, VisitMut,
    VisitorMut,
};
use datafusion_sql::sqlparser::tokenizer::Span;
use spate_engine::types::error::{ErrorKind, SpateError};

use super::check::at_span;
use super::lookup::{LookupJoin, LookupKind};
use crate::sql::left_condition;

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
    let Some(last) = t.joins.iter().take(until).rposition(is_special) else { return };
    let rest = t.joins.split_off(last + 1);
    let joins = std::mem::replace(&mut t.joins, rest);
    let first = TableWithJoins { relation: t.relation.clone(), joins };
    t.relation = TableFactor::NestedJoin { table_with_joins: Box::new(first), alias: None };
}

/// Whether a join is planned here.
fn is_special(join: &Join) -> bool {
    merges(join).is_some() || looks_up(join).is_some()
}

/// What a join looks up, if it does, and whether rows that find nothing stay.
fn looks_up(join: &Join) -> Option<(LookupKind, bool)> {
    let versioned = matches!(&join.relation, TableFactor::Table { version: Some(_), .. });
    match &join.join_operator {
        JoinOperator::AsOf { match_condition, .. } => {
            Some((LookupKind::AsOf, left_condition(match_condition).is_some()))
        }
        JoinOperator::Join(_) | JoinOperator::Inner(_) if versioned => Some((LookupKind::Current, false)),
        JoinOperator::Left(_) | JoinOperator::LeftOuter(_) if versioned => Some((LookupKind::Current, true)),
        _ => None,
    }
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
pub(super) struct SpecialJoins;

impl RelationPlanner for SpecialJoins {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let last = match &relation {
            TableFactor::NestedJoin { table_with_joins, .. } => table_with_joins.joins.last().is_some_and(is_special),
            TableFactor::Table { version: Some(_), .. } => return Err(misplaced(relation.span()).into()),
            _ => false,
        };
        if !last {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let TableFactor::NestedJoin { mut table_with_joins, alias } = relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(join) = table_with_joins.joins.pop() else {
            return Ok(RelationPlanning::Original(Box::new(TableFactor::NestedJoin { table_with_joins, alias })));
        };
        let left = if table_with_joins.joins.is_empty() {
            context.plan(table_with_joins.relation)?
        } else {
            context.plan(TableFactor::NestedJoin { table_with_joins, alias: None })?
        };
        if let Some((kind, outer)) = looks_up(&join) {
            let plan = lookup(left, join, kind, outer, context)?;
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))));
        }
        let Some((kind, constraint)) = merges(&join) else {
            return Err(SpateError::internal("a join is not what it was").into());
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

/// A table version where nothing looks it up.
fn misplaced(at: Span) -> SpateError {
    let text = "FOR SYSTEM_TIME AS OF PROCTIME() elsewhere than on the right of an inner or LEFT JOIN is not supported";
    at_span(SpateError::unsupported(text), at)
}

/// A join that looks something up.
fn lookup(
    left: LogicalPlan,
    join: Join,
    kind: LookupKind,
    outer: bool,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let Join { mut relation, join_operator, .. } = join;
    let at = relation.span();
    if let TableFactor::Table { version, .. } = &mut relation {
        // A time of its own beside the row's.
        if kind == LookupKind::AsOf && version.is_some() {
            return Err(misplaced(at).into());
        }
        *version = None;
    }
    let right = context.plan(relation)?;
    let what = match kind {
        LookupKind::AsOf => "ASOF JOIN",
        LookupKind::Current => "a join FOR SYSTEM_TIME AS OF PROCTIME()",
    };
    let (condition, constraint) = match join_operator {
        JoinOperator::AsOf { match_condition, constraint } => {
            (Some(left_condition(&match_condition).unwrap_or(match_condition)), constraint)
        }
        JoinOperator::Join(c) | JoinOperator::Inner(c) | JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => {
            (None, c)
        }
        _ => return Err(SpateError::internal("a join is not what it was").into()),
    };
    let both = left.schema().join(right.schema())?;
    let on = match constraint {
        JoinConstraint::On(e) => context.sql_to_expr(e, &both)?,
        JoinConstraint::None => lit(true),
        JoinConstraint::Using(_) | JoinConstraint::Natural => {
            let error =
                SpateError::unsupported(format!("{what} with USING or NATURAL is not supported")).with_hint("use ON");
            return Err(at_span(error, at).into());
        }
    };
    let condition = condition.map_or(Ok(lit(true)), |e| context.sql_to_expr(e, &both))?;
    let node = LookupJoin::try_new(kind, outer, left, right, condition, on)?;
    node.check().map_err(|e| at_span(super::bind_error(e), at))?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
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
