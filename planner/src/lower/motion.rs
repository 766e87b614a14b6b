//! How rows change that stay, and where that makes rows append-only.
//!
//! Of rows that are never taken back all columns are fixed. A group of such rows stays, and its counts
//! and extremes move one way; a condition that such a column meets once it meets for good. So the groups
//! that pass `HAVING count(*) > 2` only become more, and without the columns that move they are
//! append-only again: a `Net` over them drops what is taken back and comes again.

use std::sync::Arc;

use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, IsNotNullExpr};
use datafusion_physical_expr::utils::collect_columns;
use spate_engine::plan::{
    AggCall, AggFunc, Distribution, ExprRef, JoinKind, JoinSpec, Motion, OpSpec, Properties, StreamNode,
};

use super::exchange;

/// The motions of the columns of `node`, if its rows stay.
pub(super) fn of(node: &StreamNode) -> Option<Vec<Motion>> {
    node.props.motions(node.schema.fields().len())
}

/// Whether all these columns are fixed.
pub(super) fn all_fixed(motions: &[Motion], columns: impl IntoIterator<Item = usize>) -> bool {
    columns.into_iter().all(|c| motions.get(c) == Some(&Motion::Fixed))
}

/// Whether a row's value of `e` never changes.
pub(super) fn is_fixed(e: &ExprRef, motions: &[Motion]) -> bool {
    all_fixed(motions, collect_columns(e).iter().map(Column::index))
}

/// The motion of the values of `e`.
pub(super) fn of_expr(e: &ExprRef, motions: &[Motion]) -> Motion {
    match super::expr::column_index(e) {
        Some(c) => motions.get(c).copied().unwrap_or(Motion::Free),
        None if is_fixed(e, motions) => Motion::Fixed,
        None => Motion::Free,
    }
}

/// Whether a row for which `e` is true keeps it true.
fn stays_true(e: &ExprRef, motions: &[Motion]) -> bool {
    let any: &dyn std::any::Any = e.as_ref();
    let moves = |e: &ExprRef, way: Motion| [Motion::Fixed, way].contains(&of_expr(e, motions));
    if let Some(b) = any.downcast_ref::<BinaryExpr>() {
        let (l, r) = (b.left(), b.right());
        let stays = match b.op() {
            Operator::And | Operator::Or => stays_true(l, motions) && stays_true(r, motions),
            Operator::Gt | Operator::GtEq => moves(l, Motion::Rising) && moves(r, Motion::Falling),
            Operator::Lt | Operator::LtEq => moves(l, Motion::Falling) && moves(r, Motion::Rising),
            _ => false,
        };
        return stays || is_fixed(e, motions);
    }
    if let Some(n) = any.downcast_ref::<IsNotNullExpr>() {
        // What moves one way is NULL at first only.
        return of_expr(n.arg(), motions) != Motion::Free;
    }
    moves(e, Motion::Rising)
}

/// What is known of the rows of `input` for which `predicate` is true.
pub(super) fn filtered(input: &StreamNode, predicate: &ExprRef) -> Properties {
    let mut props = input.props.clone();
    props.motion = props.motion.filter(|m| stays_true(predicate, m));
    props
}

/// `node` with `motion` noted. Rows that stay as they are are append-only, once changes that come to
/// nothing are left out.
pub(super) fn settle(mut node: StreamNode, motion: Option<Vec<Motion>>) -> StreamNode {
    node.props.motion = motion.filter(|_| !node.props.append_only);
    let Some(motion) = &node.props.motion else { return node };
    if motion.iter().any(|m| *m != Motion::Fixed) {
        return node;
    }
    // What is taken back must meet what comes again.
    if node.props.scattered {
        let all = (0..node.schema.fields().len()).collect();
        node = exchange(node, Distribution::Hash(all));
    }
    let props = Properties { append_only: true, motion: None, ..node.props.clone() };
    StreamNode { op: OpSpec::Net, schema: Arc::clone(&node.schema), props, inputs: vec![node] }
}

/// Whether an exchange sends what is taken back of a row elsewhere than what comes instead.
pub(super) fn scattered(props: &Properties, to: &Distribution) -> bool {
    match (to, &props.motion) {
        (Distribution::Hash(columns), Some(m)) => !all_fixed(m, columns.iter().copied()),
        // Rows stay where they are.
        (Distribution::Any, Some(_)) => props.scattered,
        _ => false,
    }
}

/// Marks the calls of a GROUP BY whose answers only move out, and gives the motions of its columns.
/// `None` if groups may go.
pub(super) fn aggregated(input: &StreamNode, group: &[usize], calls: &mut [AggCall]) -> Option<Vec<Motion>> {
    // A row that changed its group would leave one.
    let motions = of(input).filter(|m| all_fixed(m, group.iter().copied()))?;
    let mut out = vec![Motion::Fixed; group.len()];
    for c in calls {
        let moving = match c.arg {
            None => Motion::Fixed,
            Some(a) => motions.get(a).copied().unwrap_or(Motion::Free),
        };
        let filtered = c.filter.is_none_or(|f| all_fixed(&motions, [f]));
        let way = match c.func {
            _ if !filtered => Motion::Free,
            // What moves one way is not NULL for good once it is not.
            AggFunc::Count if moving != Motion::Free && !(c.distinct && moving != Motion::Fixed) => Motion::Rising,
            AggFunc::Max | AggFunc::BoolOr if [Motion::Fixed, Motion::Rising].contains(&moving) => Motion::Rising,
            AggFunc::Min | AggFunc::BoolAnd if [Motion::Fixed, Motion::Falling].contains(&moving) => Motion::Falling,
            _ => Motion::Free,
        };
        let extreme = matches!(c.func, AggFunc::Min | AggFunc::Max);
        c.outward = extreme && way != Motion::Free && !input.props.append_only;
        out.push(way);
    }
    Some(out)
}

/// The motions of a join's columns. `width` is that of its output.
pub(super) fn joined(spec: &JoinSpec, left: &StreamNode, right: &StreamNode, width: usize) -> Option<Vec<Motion>> {
    let (l, r) = (of(left)?, of(right)?);
    let both: Vec<Motion> = l.iter().chain(&r).copied().collect();
    let fixed = all_fixed(&l, spec.left_keys.iter().copied())
        && all_fixed(&r, spec.right_keys.iter().copied())
        && spec.filter.as_ref().is_none_or(|f| is_fixed(f, &both));
    // A pair that matches does so for good; one that does not never will.
    match spec.kind {
        _ if !fixed => None,
        JoinKind::Inner => Some(both),
        JoinKind::Semi => Some(l),
        JoinKind::Mark => {
            let mut out = l;
            out.resize(width, Motion::Rising);
            Some(out)
        }
        JoinKind::Left | JoinKind::Right | JoinKind::Full | JoinKind::Anti => None,
    }
}

/// The motions of rows of any of these inputs.
pub(super) fn united(inputs: &[StreamNode]) -> Option<Vec<Motion>> {
    let all = inputs.iter().map(of).collect::<Option<Vec<_>>>()?;
    let (first, others) = all.split_first()?;
    let of_column = |(c, m): (usize, &Motion)| {
        others.iter().map(|o| o.get(c).copied().unwrap_or(Motion::Free)).fold(*m, |a, b| match (a, b) {
            (a, b) if a == b => a,
            (Motion::Fixed, moves) | (moves, Motion::Fixed) => moves,
            _ => Motion::Free,
        })
    };
    Some(first.iter().enumerate().map(of_column).collect())
}
