//! SESSION windows: an operator of their own, by partition.

use arrow::datatypes::SchemaRef;
use datafusion_expr::Expr;
use spate_engine::plan::{Distribution, OpSpec, Properties, SessionSpec, StreamNode, WatermarkColumn, WatermarkKind};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer, expr};
use crate::bind::session::SessionWindow;

impl Lowerer {
    /// `on_close` says that the session must wait for its end; in a query that emits on close it
    /// does so wherever it can, so that what stands above gets append-only rows.
    pub(super) fn session(&self, s: &SessionWindow, schema: SchemaRef, on_close: bool) -> Result<Lowered> {
        let input = self.node(&s.input, false)?.node;
        let from = s.input.schema();
        let place = |e: &Expr| {
            expr::plain_column(e, from)?.ok_or_else(|| SpateError::internal("a session by what is no column"))
        };
        let time = place(&s.time)?;
        let mut partition = Vec::with_capacity(s.partition.len());
        for e in &s.partition {
            partition.push(place(e)?);
        }
        let event_time = WatermarkColumn { column: time, kind: WatermarkKind::EventTime };
        let append_only_input = input.props.append_only;
        let closes = append_only_input && input.props.watermarks.contains(&event_time);
        if on_close && !closes {
            return Err(SpateError::unsupported(
                "EMIT ON WINDOW CLOSE of a session needs append-only input with a watermark on its time",
            ));
        }
        let emit_on_close = self.on_close && closes;
        let needed = if partition.is_empty() { Distribution::Single } else { Distribution::Hash(partition.clone()) };
        let input = self.require(input, needed);
        // A row that comes later may join an open session, whose rows change then; one that is over
        // stays as it is. Rows come as late as their session ends, so of their times nothing is known.
        let end = WatermarkColumn { column: schema.fields().len() - 1, kind: WatermarkKind::WindowEnd };
        let props = Properties {
            append_only: emit_on_close,
            stream_key: input.props.stream_key.clone(),
            watermarks: if emit_on_close { vec![end] } else { vec![] },
            distribution: input.props.distribution.clone(),
            ..Properties::default()
        };
        let spec = SessionSpec { partition, time, gap_us: s.gap_us, append_only_input: closes, emit_on_close };
        Ok(StreamNode { op: OpSpec::Session(spec), schema, props, inputs: vec![input] }.into())
    }
}
