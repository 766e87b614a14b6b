//! SELECT DISTINCT and UNION: each row once.

use std::sync::Arc;

use datafusion_expr::Distinct;
use spate_engine::plan::{Distribution, OpSpec, Properties, StreamNode};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer};

impl Lowerer {
    pub(super) fn distinct(&self, d: &Distinct) -> Result<Lowered> {
        let Distinct::All(input) = d else {
            return Err(SpateError::unsupported("SELECT DISTINCT ON is not supported in a continuous query yet"));
        };
        let input = self.node(input, false)?.node;
        let all: Vec<usize> = (0..input.schema.fields().len()).collect();
        let input = self.require(input, Distribution::Hash(all.clone()));
        // A new row is new for good when nothing is taken back.
        let props = Properties { stream_key: Some(all), motion: None, ..input.props.clone() };
        Ok(StreamNode { op: OpSpec::Distinct, schema: Arc::clone(&input.schema), props, inputs: vec![input] }.into())
    }
}
