//! EMIT ON WINDOW CLOSE: what its operators need of their input, and of the columns that say when a
//! row is final.

use std::sync::Arc;

use datafusion_expr::LogicalPlan;
use datafusion_physical_expr::ScalarFunctionExpr;
use spate_engine::plan::{CloseSpec, OpSpec, Properties, StreamNode, WatermarkColumn, WatermarkKind};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer, expr};
use crate::bind::functions::WINDOW_END;

impl Lowerer {
    /// The input of an operator that waits for windows to close. Nothing of it may be taken back: it
    /// waits too if it must.
    pub(super) fn settled(&self, plan: &LogicalPlan) -> Result<Lowered> {
        let input = self.node(plan, false)?;
        if input.node.props.append_only {
            return Ok(input);
        }
        match self.node(plan, true) {
            Ok(waits) if waits.node.props.append_only => Ok(waits),
            _ => Err(SpateError::unsupported(
                "EMIT ON WINDOW CLOSE needs append-only input, and this query's input may take rows back",
            )),
        }
    }
}

/// `node` held back until the watermark has passed `time`. It is passed on for the columns `same`
/// too, which have the same value.
pub(super) fn hold(node: StreamNode, time: WatermarkColumn, same: &[WatermarkColumn]) -> StreamNode {
    let mut watermarks: Vec<WatermarkColumn> = same.iter().copied().chain([time]).collect();
    watermarks.sort_by_key(|w| w.column);
    watermarks.dedup();
    let props = Properties { append_only: true, motion: None, watermarks, ..node.props.clone() };
    let spec = CloseSpec { time, append_only_input: node.props.append_only };
    StreamNode { op: OpSpec::Close(spec), schema: Arc::clone(&node.schema), props, inputs: vec![node] }
}

/// The column among `columns` that says first when a row is final: an end or a start of a window
/// before a bare time.
pub(super) fn window_of(columns: &[usize], props: &Properties) -> Option<WatermarkColumn> {
    let rank = |kind: WatermarkKind| match kind {
        WatermarkKind::WindowEnd => 0,
        WatermarkKind::WindowStart { .. } => 1,
        WatermarkKind::EventTime => 2,
    };
    columns
        .iter()
        .filter_map(|c| props.watermarks.iter().find(|w| w.column == *c).copied())
        .min_by_key(|w| rank(w.kind))
}

/// Of the watermark columns of rows that wait for `window` those that still are: another time may be long
/// past when they come, unless it is the start of that same window. `group` are the columns of `input`.
pub(super) fn keep(
    watermarks: &mut Vec<WatermarkColumn>,
    window: WatermarkColumn,
    input: &StreamNode,
    group: &[usize],
) {
    let from = |column: usize| group.get(column).copied();
    watermarks.retain(|w| {
        let same = || from(w.column).zip(from(window.column)).is_some_and(|(s, e)| is_window(input, s, e));
        *w == window || (window.kind == WatermarkKind::WindowEnd && same())
    });
}

/// Whether one column is the start of the window of which the other is the end.
fn is_window(node: &StreamNode, start: usize, end: usize) -> bool {
    let Some(input) = node.inputs.first() else { return false };
    match &node.op {
        OpSpec::Exchange(_) | OpSpec::Filter(_) | OpSpec::Net | OpSpec::Close(_) => is_window(input, start, end),
        OpSpec::Union => node.inputs.iter().all(|n| is_window(n, start, end)),
        OpSpec::Join(_) => {
            let width = input.schema.fields().len();
            match (start.checked_sub(width), end.checked_sub(width)) {
                (None, None) => is_window(input, start, end),
                (Some(s), Some(e)) => node.inputs.get(1).is_some_and(|n| is_window(n, s, e)),
                _ => false,
            }
        }
        OpSpec::Aggregate(a) => a.group.get(start).zip(a.group.get(end)).is_some_and(|(s, e)| is_window(input, *s, *e)),
        OpSpec::Project(p) => {
            let (Some(s), Some(e)) = (p.exprs.get(start), p.exprs.get(end)) else { return false };
            if let (Some(s), Some(e)) = (expr::column_index(s), expr::column_index(e)) {
                return is_window(input, s, e);
            }
            let any: &dyn std::any::Any = e.as_ref();
            let call = any.downcast_ref::<ScalarFunctionExpr>().filter(|f| f.fun().name() == WINDOW_END);
            call.and_then(|f| f.args().first()).is_some_and(|of| of == s)
        }
        _ => false,
    }
}

/// Nothing tells when the rows of `what` are final.
pub(super) fn refuse(what: &str) -> SpateError {
    let needs = "an aggregate, a join, SELECT DISTINCT, window functions (OVER) or a top-n per group over windows";
    SpateError::unsupported(format!("EMIT ON WINDOW CLOSE needs {needs} at the top of the query, found {what}"))
        .with_hint("GROUP BY, join on, or PARTITION BY window_start, window_end of TUMBLE(…) or HOP(…)")
}

/// `what` is there, but by nothing that the watermark closes.
pub(super) fn refuse_partition(what: &str) -> SpateError {
    SpateError::unsupported(format!(
        "EMIT ON WINDOW CLOSE of {what} needs a PARTITION BY column that the watermark closes"
    ))
    .with_hint("partition by window_start or window_end of TUMBLE(…) or HOP(…) over a source with WATERMARK FOR")
}
