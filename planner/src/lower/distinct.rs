//! SELECT DISTINCT and UNION: each row once. Over windows it is a GROUP BY without aggregates, which
//! knows how to free and how to wait for what the watermark closes.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_expr::Distinct;
use spate_engine::plan::{AggregateSpec, Distribution, OpSpec, Phase, Properties, StreamNode};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer, close};

impl Lowerer {
    pub(super) fn distinct(&self, d: &Distinct, on_close: bool) -> Result<Lowered> {
        let Distinct::All(input) = d else {
            return Err(SpateError::unsupported("SELECT DISTINCT ON is not supported in a continuous query yet"));
        };
        let input = if on_close { self.settled(input)? } else { self.node(input, false)? }.node;
        let all: Vec<usize> = (0..input.schema.fields().len()).collect();
        let window = close::window_of(&all, &input.props).filter(|_| input.props.append_only);
        if on_close && window.is_none() {
            return Err(SpateError::unsupported(
                "EMIT ON WINDOW CLOSE of SELECT DISTINCT needs a column that the watermark closes",
            )
            .with_hint("select window_start or window_end of TUMBLE(…) or HOP(…) over a source with WATERMARK FOR"));
        }
        let input = self.require(input, Distribution::Hash(all.clone()));
        // A new row is new for good when nothing is taken back.
        let mut props = Properties { stream_key: Some(all.clone()), motion: None, ..input.props.clone() };
        // Maps are compared here, but are no keys of groups.
        let grouped = input.schema.fields().iter().all(|f| !matches!(f.data_type(), DataType::Map(..)));
        let op = match window {
            Some(window) if grouped || on_close => {
                if on_close {
                    close::keep(&mut props.watermarks, window, &input, &all);
                }
                OpSpec::Aggregate(AggregateSpec {
                    group: all,
                    calls: Vec::new(),
                    append_only_input: true,
                    window: Some(window),
                    emit_on_close: on_close,
                    always: Vec::new(),
                    phase: Phase::Whole,
                })
            }
            _ => OpSpec::Distinct,
        };
        Ok(StreamNode { op, schema: Arc::clone(&input.schema), props, inputs: vec![input] }.into())
    }
}
