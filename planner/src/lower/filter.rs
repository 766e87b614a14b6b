//! WHERE, HAVING: rows are as they were, so every property holds; but a row that changes may fail.

use std::sync::Arc;

use datafusion_expr::Filter;
use spate_engine::plan::{FilterSpec, OpSpec, StreamNode};
use spate_engine::types::error::Result;

use super::{Lowered, Lowerer, expr, motion};

impl Lowerer {
    pub(super) fn filter(&self, f: &Filter, on_close: bool) -> Result<Lowered> {
        if let Some(timed) = self.temporal(f, on_close)? {
            return Ok(timed);
        }
        if let Some(top) = self.group_topn(f, on_close, |_| true)? {
            return Ok(top);
        }
        let input = self.node(&f.input, on_close)?;
        let predicate = expr::physical(&f.predicate, f.input.schema())?;
        let props = motion::filtered(&input.node, &predicate);
        let node = StreamNode {
            op: OpSpec::Filter(FilterSpec { predicate }),
            schema: Arc::clone(&input.node.schema),
            props,
            inputs: vec![input.node],
        };
        Ok(Lowered { node, window_lists: input.window_lists })
    }
}
