//! Joins: equi keys become columns of both inputs, the rest a filter over the pair.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_common::{DFSchema, JoinType, NullEquality};
use datafusion_expr::{Expr, Join, LogicalPlan};
use spate_engine::plan::{
    Distribution, ExprRef, JoinKind, JoinSpec, OpSpec, Properties, StreamNode, WatermarkColumn, WatermarkKind,
};
use spate_engine::types::error::{Result, SpateError};

use super::interval::{self, Apart};
use super::{Lowered, Lowerer, close, expr, motion, project, stream_schema, topn};

impl Lowerer {
    pub(super) fn join(&self, j: &Join, on_close: bool) -> Result<Lowered> {
        let kind = match j.join_type {
            JoinType::Inner => JoinKind::Inner,
            JoinType::Left => JoinKind::Left,
            JoinType::Right => JoinKind::Right,
            JoinType::Full => JoinKind::Full,
            JoinType::LeftSemi => JoinKind::Semi,
            JoinType::LeftAnti => JoinKind::Anti,
            JoinType::LeftMark => JoinKind::Mark,
            JoinType::RightSemi => return self.join(&turned(j, JoinType::LeftSemi), on_close),
            JoinType::RightAnti => return self.join(&turned(j, JoinType::LeftAnti), on_close),
            JoinType::RightMark => return self.join(&turned(j, JoinType::LeftMark), on_close),
        };
        if j.null_aware {
            return Err(SpateError::internal("NOT IN was left to the optimizer"));
        }
        let input = |plan| if on_close { self.settled(plan) } else { self.node(plan, false) };
        let left = input(&j.left)?.node;
        let right = input(&j.right)?.node;
        let left_width = left.schema.fields().len();
        let (left, left_keys) = with_keys(left, j.left.schema(), j.on.iter().map(|p| &p.0))?;
        let (right, right_keys) = with_keys(right, j.right.schema(), j.on.iter().map(|p| &p.1))?;
        check_types(&left, &left_keys, &right, &right_keys)?;
        let (left, right) = self.bring_together(left, right, &left_keys, &right_keys);

        let extra = left.schema.fields().len() - left_width;
        let filter = match &j.filter {
            Some(f) => {
                let pair = j.left.schema().join(j.right.schema()).map_err(crate::bind::bind_error)?;
                let f = expr::physical(f, &pair)?;
                Some(if extra == 0 { f } else { expr::remap(f, |i| if i < left_width { i } else { i + extra })? })
            }
            None => None,
        };
        let offset = left.schema.fields().len();
        let schema = stream_schema(&LogicalPlan::Join(j.clone()));
        let theirs: Vec<_> = match kind {
            JoinKind::Semi | JoinKind::Anti => Vec::new(),
            JoinKind::Mark => schema.fields().iter().skip(left_width).collect(),
            _ => right.schema.fields().iter().collect(),
        };
        let fields: Vec<_> = left.schema.fields().iter().chain(theirs).map(|f| f.as_ref().clone()).collect();
        let non_null = |side: &LogicalPlan, key: &[usize]| {
            key.iter().any(|&c| side.schema().fields().get(c).is_some_and(|f| !f.is_nullable()))
        };
        let stream_key = match (&left.props.stream_key, &right.props.stream_key) {
            (l, _) if kind.keeps_left() => l.clone(),
            (Some(l), Some(r)) => {
                let key = Key { left: l, right: r, left_keys: &left_keys, right_keys: &right_keys, offset };
                key.of(kind, non_null(&j.left, l) || non_null(&j.right, r))
            }
            _ => None,
        };
        let append_only_inputs = left.props.append_only && right.props.append_only;
        let pairs = if append_only_inputs {
            interval::apart(j, &left.props, &right.props, &left_keys, &right_keys)
        } else {
            Vec::new()
        };
        // An old row may still meet a new one, so a time of one side says nothing about the
        // pairs to come; a time that both sides must agree on does, and times that may not be
        // far apart.
        let mut apart = None;
        let mut watermarks = Vec::new();
        // Times of both sides; once the watermark has passed them, so are all rows that they are in.
        let mut times = Vec::new();
        let side = |n: &StreamNode, c: usize| n.props.watermarks.iter().find(|w| w.column == c).map(|w| w.kind);
        for (l, r) in left_keys.iter().zip(&right_keys) {
            if let (Some(a), Some(b)) = (side(&left, *l), side(&right, *r))
                && a == b
            {
                let (l, r) = (*l, *r + offset);
                times.push((WatermarkColumn { column: l, kind: a }, WatermarkColumn { column: r, kind: a }));
            }
        }
        let event_times = |p: &&Apart| p.left.kind == WatermarkKind::EventTime && p.right.kind == p.left.kind;
        let bounds = |p: &Apart| Some((*p, p.least?, p.most?));
        if let Some((p, least, most)) = pairs.iter().filter(event_times).find_map(bounds)
            && (on_close || matches!(kind, JoinKind::Inner | JoinKind::Semi))
        {
            if (least, most) != (0, 0) {
                apart = Some((least, most));
            }
            times.push((p.left, WatermarkColumn { column: p.right.column + offset, ..p.right }));
        }
        if kind == JoinKind::Inner || kind.keeps_left() {
            watermarks.extend(times.iter().map(|t| t.0));
            if kind == JoinKind::Inner {
                watermarks.extend(times.iter().map(|t| t.1));
            }
            watermarks.sort_by_key(|w| w.column);
            watermarks.dedup();
        }
        let distribution = match (&left.props.distribution, kind) {
            (Distribution::Single, _) => Distribution::Single,
            (_, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::Mark) => {
                Distribution::Hash(left_keys.clone())
            }
            (_, JoinKind::Right) => Distribution::Hash(right_keys.iter().map(|k| k + offset).collect()),
            // Rows without a match lie by the key of the side that they have.
            (_, JoinKind::Full) => Distribution::Any,
        };
        let spec = JoinSpec {
            kind,
            left_keys,
            right_keys,
            null_equal: j.null_equality == NullEquality::NullEqualsNull,
            filter,
            append_only_inputs,
            expire: interval::expiries(&pairs),
            apart,
        };
        let motion = motion::joined(&spec, &left, &right, fields.len());
        let append_only = match kind {
            JoinKind::Inner => append_only_inputs,
            // The operator puts out what an epoch comes to.
            JoinKind::Semi => motion.as_ref().is_some_and(|m| motion::all_fixed(m, 0..m.len())),
            _ => false,
        };
        let motion = motion.filter(|_| !append_only);
        let props = Properties { append_only, stream_key, watermarks, motion, distribution, ..Properties::default() };
        let mut node = StreamNode {
            op: OpSpec::Join(spec),
            schema: Arc::new(Schema::new(fields)),
            props,
            inputs: vec![left, right],
        };
        if on_close {
            node = held(node, kind, &times)?;
        }
        if node.schema.fields().len() == schema.fields().len() {
            node.schema = schema;
            return Ok(node.into());
        }
        let others = schema.fields().len() - left_width;
        let kept: Vec<usize> = (0..left_width).chain((0..others).map(|i| i + offset)).collect();
        let mut node = project::columns(node, &kept)?;
        node.schema = schema;
        Ok(node.into())
    }

    /// Puts the rows of equal keys of both sides into one task.
    pub(super) fn bring_together(
        &self,
        left: StreamNode,
        right: StreamNode,
        left_keys: &[usize],
        right_keys: &[usize],
    ) -> (StreamNode, StreamNode) {
        let single = |n: &StreamNode| n.props.distribution == Distribution::Single;
        if single(&left) && single(&right) {
            return (left, right);
        }
        if left_keys.is_empty() {
            return (self.require(left, Distribution::Single), self.require(right, Distribution::Single));
        }
        let spread = |n: StreamNode, keys: &[usize]| {
            let needed = Distribution::Hash(keys.to_vec());
            if n.props.distribution == needed { n } else { super::exchange(n, needed) }
        };
        (spread(left, left_keys), spread(right, right_keys))
    }
}

/// Errors unless the keys of both sides are of equal types.
pub(super) fn check_types(
    left: &StreamNode,
    left_keys: &[usize],
    right: &StreamNode,
    right_keys: &[usize],
) -> Result<()> {
    for (l, r) in left_keys.iter().zip(right_keys) {
        let (l, r) = (left.schema.field(*l).data_type(), right.schema.field(*r).data_type());
        if l != r {
            return Err(SpateError::internal(format!("join keys of different types: {l} and {r}")));
        }
    }
    Ok(())
}

/// One side of a join with columns for all of its keys, and which those are.
pub(super) fn with_keys<'a>(
    side: StreamNode,
    schema: &DFSchema,
    on: impl Iterator<Item = &'a Expr>,
) -> Result<(StreamNode, Vec<usize>)> {
    let width = side.schema.fields().len();
    let mut columns = Vec::new();
    let mut computed: Vec<ExprRef> = Vec::new();
    let mut watermarks = Vec::new();
    for e in on {
        if let Some(c) = expr::plain_column(e, schema)? {
            columns.push(c);
            continue;
        }
        let column = width + computed.len();
        watermarks.extend(expr::watermark_of(e, schema, &side.props).map(|kind| WatermarkColumn { column, kind }));
        columns.push(column);
        computed.push(expr::physical(e, schema)?);
    }
    if computed.is_empty() {
        return Ok((side, columns));
    }
    let mut side = topn::extend(side, computed)?;
    side.props.watermarks.extend(watermarks);
    Ok((side, columns))
}

/// A join's rows, held back until nothing can change them any more. `times` are those of both sides.
fn held(node: StreamNode, kind: JoinKind, times: &[(WatermarkColumn, WatermarkColumn)]) -> Result<StreamNode> {
    let Some(&(l, r)) = times.first() else {
        return Err(SpateError::unsupported(
            "EMIT ON WINDOW CLOSE of a join needs a condition that keeps its sides in one window",
        )
        .with_hint(
            "join on window_start or window_end of both sides, or bound how far their event times may be apart",
        ));
    };
    Ok(match kind {
        JoinKind::Inner if l.kind != WatermarkKind::EventTime => close::hold(node, l, &[r]),
        JoinKind::Right => close::hold(node, r, &[]),
        JoinKind::Full => {
            // A row has the time of the side that it has.
            let width = node.schema.fields().len();
            let either = expr::either(&node.schema, l.column, r.column)?;
            let all: Vec<usize> = (0..width).collect();
            let timed = topn::extend(node, vec![either])?;
            project::columns(close::hold(timed, WatermarkColumn { column: width, ..l }, &[]), &all)?
        }
        _ => close::hold(node, l, &[]),
    })
}

/// A join with its sides changed over, as one of type `kind`.
fn turned(j: &Join, kind: JoinType) -> Join {
    Join {
        left: Arc::clone(&j.right),
        right: Arc::clone(&j.left),
        on: j.on.iter().map(|(l, r)| (r.clone(), l.clone())).collect(),
        join_type: kind,
        ..j.clone()
    }
}

/// What identifies the rows of both sides, and what they join on.
struct Key<'a> {
    left: &'a [usize],
    right: &'a [usize],
    left_keys: &'a [usize],
    right_keys: &'a [usize],
    offset: usize,
}

impl Key<'_> {
    /// The key of the join's rows. `tells_sides`: whether one of the sides' keys has a
    /// column that is never NULL (so that rows without a match on the left and on the
    /// right of a full join cannot look alike).
    fn of(&self, kind: JoinKind, tells_sides: bool) -> Option<Vec<usize>> {
        let shifted = || self.right.iter().map(|k| k + self.offset);
        // A left row meets at most one right row when the join fixes the right's key.
        let right_fixed = self.right.iter().all(|k| self.right_keys.contains(k));
        let left_fixed = self.left.iter().all(|k| self.left_keys.contains(k));
        let both = || self.left.iter().copied().chain(shifted()).collect();
        match kind {
            JoinKind::Inner | JoinKind::Left if right_fixed => Some(self.left.to_vec()),
            JoinKind::Inner | JoinKind::Right if left_fixed => Some(shifted().collect()),
            JoinKind::Full if !tells_sides => None,
            _ => Some(both()),
        }
    }
}
