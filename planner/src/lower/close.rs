//! EMIT ON WINDOW CLOSE: what its operators need of their input, and of the columns that say when a
//! row is final.

use std::sync::Arc;

use datafusion_expr::LogicalPlan;
use spate_engine::plan::{CloseSpec, OpSpec, Properties, StreamNode, WatermarkColumn, WatermarkKind};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer};

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

/// Nothing tells when the rows of `what` are final.
pub(super) fn refuse(what: &str) -> SpateError {
    let needs = "an aggregate, a join, window functions (OVER) or a top-n per group over windows";
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
