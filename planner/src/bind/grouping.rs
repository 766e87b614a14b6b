//! ROLLUP, CUBE and GROUPING SETS in one form: lists of distinct expressions. DataFusion takes an
//! expression that stands in a ROLLUP or CUBE twice for two columns of one name, and two sets that
//! differ only in order or in repetitions for different ones when it sizes their numbers.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::expr::GroupingSet;
use datafusion_expr::{Aggregate, Expr, LogicalPlan};
use datafusion_sql::sqlparser::ast::{self, GroupByExpr, SelectItem, Spanned, Value, VisitMut, VisitorMut};
use spate_engine::types::error::{ErrorKind, SpateError};

use super::check::at_span;

/// A CUBE of more columns stays one; no continuous query may have as many sets.
const MAX_COLUMNS: usize = 12;

/// Spells out ROLLUP and CUBE in a query and all queries within it, and puts expressions of the
/// SELECT list where a set names them by position.
pub(super) fn spell_out(query: &mut ast::Query) -> std::result::Result<(), SpateError> {
    match query.visit(&mut Speller) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Speller;

impl VisitorMut for Speller {
    type Break = SpateError;

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<SpateError> {
        let GroupByExpr::Expressions(exprs, _) = &mut select.group_by else { return ControlFlow::Continue(()) };
        for e in exprs {
            let span = e.span();
            if let Err(error) = one(e, &select.projection) {
                return ControlFlow::Break(at_span(error, span));
            }
        }
        ControlFlow::Continue(())
    }
}

fn one(e: &mut ast::Expr, list: &[SelectItem]) -> std::result::Result<(), SpateError> {
    let kind = match e {
        ast::Expr::Rollup(_) => Some(Kind::Rollup),
        ast::Expr::Cube(items) if items.len() <= MAX_COLUMNS => Some(Kind::Cube),
        _ => None,
    };
    let (ast::Expr::Rollup(items) | ast::Expr::Cube(items) | ast::Expr::GroupingSets(items)) = e else {
        return Ok(());
    };
    for item in items.iter_mut().flatten() {
        if let Some(named) = at_position(item, list)? {
            *item = named;
        }
    }
    let items = &*items;
    let n = items.len();
    let joined = |keep: &dyn Fn(usize) -> bool| -> Vec<ast::Expr> {
        items.iter().enumerate().filter(|(i, _)| keep(*i)).flat_map(|(_, item)| item.clone()).collect()
    };
    let sets = match kind {
        Some(Kind::Rollup) => (0..=n).map(|len| joined(&|i| i < len)).collect(),
        Some(Kind::Cube) => (0..1usize << n).map(|set| joined(&|i| set >> i & 1 == 1)).collect(),
        None => return Ok(()),
    };
    *e = ast::Expr::GroupingSets(sets);
    Ok(())
}

enum Kind {
    Rollup,
    Cube,
}

/// The expression of the SELECT list that a number in a grouping set stands for.
fn at_position(e: &ast::Expr, list: &[SelectItem]) -> std::result::Result<Option<ast::Expr>, SpateError> {
    let ast::Expr::Value(v) = e else { return Ok(None) };
    let Value::Number(text, _) = &v.value else { return Ok(None) };
    let Ok(position) = text.to_string().parse::<usize>() else { return Ok(None) };
    let missing =
        || SpateError::new(ErrorKind::Type, format!("GROUP BY position {position} is not in the SELECT list"));
    let before = position.checked_sub(1).and_then(|last| list.get(..=last)).ok_or_else(missing)?;
    match before.last() {
        _ if before.iter().any(|i| matches!(i, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))) => {
            Err(SpateError::unsupported("a position after * in a grouping set is not supported")
                .with_hint("name the column"))
        }
        Some(SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) => Ok(Some(e.clone())),
        _ => Err(missing()),
    }
}

/// Makes each grouping set name its expressions once, in the order in which the whole GROUP BY does.
pub(super) fn without_repetition(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(a) => match plain_sets(&a) {
            Some(sets) => {
                let group = vec![Expr::GroupingSet(GroupingSet::GroupingSets(sets))];
                let a = Aggregate::try_new(Arc::clone(&a.input), group, a.aggr_expr)?;
                Ok(Transformed::yes(LogicalPlan::Aggregate(a)))
            }
            None => Ok(Transformed::no(LogicalPlan::Aggregate(a))),
        },
        other => Ok(Transformed::no(other)),
    })?;
    if !done.transformed {
        return Ok(done.data);
    }
    // The number of a set may be wider than it was.
    let done = done.data.transform_up_with_subqueries(|node| Ok(Transformed::yes(node.recompute_schema()?)))?;
    Ok(done.data)
}

/// The sets in their plain form, if they are not in it.
fn plain_sets(a: &Aggregate) -> Option<Vec<Vec<Expr>>> {
    let [Expr::GroupingSet(whole @ GroupingSet::GroupingSets(sets))] = a.group_expr.as_slice() else { return None };
    // All sets are among these, which are distinct.
    let all = whole.distinct_expr();
    let plain =
        |set: &Vec<Expr>| -> Vec<Expr> { all.iter().filter(|e| set.contains(e)).map(|e| (*e).clone()).collect() };
    let new: Vec<Vec<Expr>> = sets.iter().map(plain).collect();
    (new != *sets).then_some(new)
}
