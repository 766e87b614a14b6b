//! Joins that look something up: ASOF JOIN, and FOR SYSTEM_TIME AS OF PROCTIME().

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{Expr, Operator};
use spate_engine::plan::{AsOfSpec, Distribution, LookupSpec, Motion, OpSpec, Properties, StreamNode, WatermarkColumn};
use spate_engine::types::error::{Result, SpateError};

use super::join::{check_types, with_keys};
use super::{Lowered, Lowerer, expr, project, topn};
use crate::bind::bind_error;
use crate::bind::lookup::{LookupJoin, LookupKind};

impl Lowerer {
    pub(super) fn lookup(&self, j: &LookupJoin, schema: SchemaRef, on_close: bool) -> Result<Lowered> {
        let input = |plan| if on_close { self.settled(plan) } else { self.node(plan, false) };
        let left = input(&j.left)?.node;
        let right = input(&j.right)?.node;
        let widths = (left.schema.fields().len(), right.schema.fields().len());
        let mut node = match j.kind {
            LookupKind::AsOf => self.asof(j, left, right, on_close)?,
            LookupKind::Current => self.current(j, left, right, widths.0)?,
        };
        if node.schema.fields().len() != schema.fields().len() {
            let offset = node.inputs.first().map_or(0, |n| n.schema.fields().len());
            let kept: Vec<usize> = (0..widths.0).chain((0..widths.1).map(|i| i + offset)).collect();
            node = project::columns(node, &kept)?;
        }
        node.schema = schema;
        Ok(node.into())
    }

    fn asof(&self, j: &LookupJoin, left: StreamNode, right: StreamNode, on_close: bool) -> Result<StreamNode> {
        let (pairs, rest) = j.keys().map_err(bind_error)?;
        let nearest = j.nearest().map_err(bind_error)?;
        if !rest.is_empty() {
            return Err(SpateError::internal("an ASOF JOIN has got another condition"));
        }
        let side = |node, schema, keys: Vec<&Expr>, time| {
            let (node, columns) = with_keys(node, schema, keys.into_iter().chain([time]))?;
            let (node, mut columns) = apart(node, columns)?;
            let time = columns.pop().ok_or_else(|| SpateError::internal("an ASOF JOIN without a time"))?;
            Ok::<_, SpateError>((node, columns, time))
        };
        let ours: Vec<&Expr> = pairs.iter().map(|p| &p.0).collect();
        let theirs: Vec<&Expr> = pairs.iter().map(|p| &p.1).collect();
        let (left, left_keys, left_time) = side(left, j.left.schema(), ours, &nearest.left)?;
        let (right, right_keys, right_time) = side(right, j.right.schema(), theirs, &nearest.right)?;
        check_types(&left, &left_keys, &right, &right_keys)?;
        check_types(&left, &[left_time], &right, &[right_time])?;
        let (left, right) = self.bring_together(left, right, &left_keys, &right_keys);
        let backward = matches!(nearest.op, Operator::GtEq | Operator::Gt);
        // Of rows that are never taken back only a nearer one takes the place of another.
        let append_only_inputs = left.props.append_only && right.props.append_only;
        let (ours, theirs) = (left.schema.fields().len(), right.schema.fields().len());
        let kind = |n: &StreamNode, c: usize| n.props.watermarks.iter().find(|w| w.column == c).map(|w| w.kind);
        let times = match (kind(&left, left_time), kind(&right, right_time)) {
            (Some(a), Some(b)) if append_only_inputs => Some([a, b]),
            _ => None,
        };
        if on_close && times.is_none() {
            return Err(SpateError::unsupported(
                "EMIT ON WINDOW CLOSE of an ASOF JOIN needs times on both sides that the watermark closes",
            )
            .with_hint("compare the columns of WATERMARK FOR of append-only tables or sources in MATCH_CONDITION"));
        }
        // A left row goes out when the watermark has passed it; or, forward, what it matches.
        let watermarks = match times {
            Some([a, b]) if on_close && a == b => {
                let column = if backward { left_time } else { ours + right_time };
                vec![WatermarkColumn { column, kind: a }]
            }
            _ => Vec::new(),
        };
        let motion = (append_only_inputs && !on_close).then(|| {
            let mut all = vec![Motion::Fixed; ours];
            all.resize(ours + theirs, Motion::Free);
            all[ours + right_time] = if backward { Motion::Rising } else { Motion::Falling };
            all
        });
        let props = Properties {
            append_only: on_close,
            watermarks,
            motion,
            // A left row is in the output once, or not at all.
            stream_key: left.props.stream_key.clone(),
            distribution: spread(&left, &left_keys),
            ..Properties::default()
        };
        let spec = AsOfSpec {
            left_keys,
            right_keys,
            left_time,
            right_time,
            backward,
            strict: matches!(nearest.op, Operator::Gt | Operator::Lt),
            outer: j.outer,
            times,
            emit_on_close: on_close,
        };
        Ok(StreamNode { schema: both(&left, &right), op: OpSpec::AsOf(spec), props, inputs: vec![left, right] })
    }

    fn current(&self, j: &LookupJoin, left: StreamNode, right: StreamNode, width: usize) -> Result<StreamNode> {
        if !left.props.append_only {
            return Err(SpateError::unsupported(
                "FOR SYSTEM_TIME AS OF PROCTIME() over rows that may be taken back is not supported: what they met is not known any more",
            )
            .with_hint("the left side must be append-only: a source, an APPEND ONLY table, or a query of such"));
        }
        let (pairs, rest) = j.keys().map_err(bind_error)?;
        if pairs.is_empty() {
            return Err(SpateError::internal("a lookup has lost its keys"));
        }
        let (left, left_keys) = with_keys(left, j.left.schema(), pairs.iter().map(|p| &p.0))?;
        let (right, right_keys) = with_keys(right, j.right.schema(), pairs.iter().map(|p| &p.1))?;
        check_types(&left, &left_keys, &right, &right_keys)?;
        let (left, right) = self.bring_together(left, right, &left_keys, &right_keys);
        let extra = left.schema.fields().len() - width;
        let filter = match conjunction(rest) {
            Some(f) => {
                let pair = j.left.schema().join(j.right.schema()).map_err(bind_error)?;
                let f = expr::physical(&f, &pair)?;
                Some(expr::remap(f, |i| if i < width { i } else { i + extra })?)
            }
            None => None,
        };
        let found_once = |k: &Vec<usize>| k.iter().all(|c| right_keys.contains(c));
        let once = right.props.stream_key.as_ref().is_some_and(found_once);
        let props = Properties {
            append_only: true,
            stream_key: left.props.stream_key.clone().filter(|_| once),
            // Rows that wait for the other side come later than they are.
            watermarks: Vec::new(),
            distribution: spread(&left, &left_keys),
            ..Properties::default()
        };
        let spec = LookupSpec { left_keys, right_keys, filter, outer: j.outer };
        Ok(StreamNode { schema: both(&left, &right), op: OpSpec::Lookup(spec), props, inputs: vec![left, right] })
    }
}

/// The columns of both sides.
fn both(left: &StreamNode, right: &StreamNode) -> SchemaRef {
    Arc::new(Schema::new(left.schema.fields().iter().chain(right.schema.fields()).cloned().collect::<Vec<_>>()))
}

fn spread(left: &StreamNode, keys: &[usize]) -> Distribution {
    match left.props.distribution {
        Distribution::Single => Distribution::Single,
        _ => Distribution::Hash(keys.to_vec()),
    }
}

/// Gives a column that stands in the list twice a copy of its own.
fn apart(node: StreamNode, mut columns: Vec<usize>) -> Result<(StreamNode, Vec<usize>)> {
    let width = node.schema.fields().len();
    let mut copies = Vec::new();
    for i in 1..columns.len() {
        let (before, at) = columns.split_at_mut(i);
        if let Some(c) = at.first_mut().filter(|c| before.contains(c)) {
            copies.push(expr::column(node.schema.field(*c).name(), *c));
            *c = width + copies.len() - 1;
        }
    }
    if copies.is_empty() {
        return Ok((node, columns));
    }
    Ok((topn::extend(node, copies)?, columns))
}
