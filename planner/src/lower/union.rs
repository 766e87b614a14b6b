//! UNION ALL: what holds of every input holds of the whole, but keys do not.

use datafusion_expr::{LogicalPlan, Union};
use spate_engine::plan::{Distribution, OpSpec, ProjectSpec, Properties, StreamNode};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer, exchange, expr, motion, stream_schema};

impl Lowerer {
    pub(super) fn union(&self, u: &Union, on_close: bool) -> Result<Lowered> {
        let schema = stream_schema(&LogicalPlan::Union(u.clone()));
        let mut inputs = Vec::with_capacity(u.inputs.len());
        for input in &u.inputs {
            let node = self.node(input, on_close)?.node;
            if node.schema.fields().len() != schema.fields().len() {
                return Err(SpateError::internal("the inputs of a union differ in their columns"));
            }
            inputs.push(with_types(node, &schema)?);
        }
        // One fragment runs as one set of tasks: rows of single tasks join the others.
        let all_single = inputs.iter().all(|n| n.props.distribution == Distribution::Single);
        if !all_single {
            let columns: Vec<usize> = (0..schema.fields().len()).collect();
            inputs = inputs
                .into_iter()
                .map(|n| match n.props.distribution {
                    Distribution::Single => exchange(n, Distribution::Hash(columns.clone())),
                    _ => n,
                })
                .collect();
        }
        let Some(first) = inputs.first() else {
            return Err(SpateError::internal("a union without inputs"));
        };
        let alike = inputs.iter().all(|n| n.props.distribution == first.props.distribution);
        let watermarks = first
            .props
            .watermarks
            .iter()
            .copied()
            .filter(|w| inputs.iter().all(|n| n.props.watermarks.contains(w)))
            .collect();
        let props = Properties {
            append_only: inputs.iter().all(|n| n.props.append_only),
            stream_key: None,
            watermarks,
            scattered: inputs.iter().any(|n| n.props.scattered),
            motion: motion::united(&inputs).filter(|_| inputs.iter().any(|n| !n.props.append_only)),
            distribution: if alike { first.props.distribution.clone() } else { Distribution::Any },
            ..Properties::default()
        };
        Ok(StreamNode { op: OpSpec::Union, schema, props, inputs }.into())
    }
}

/// `node` with its columns cast to the union's types, where the plan left them different.
fn with_types(node: StreamNode, schema: &arrow::datatypes::SchemaRef) -> Result<StreamNode> {
    let same = node.schema.fields().iter().zip(schema.fields()).all(|(a, b)| a.data_type() == b.data_type());
    if same {
        return Ok(node);
    }
    let mut exprs = Vec::with_capacity(schema.fields().len());
    for (i, (has, wanted)) in node.schema.fields().iter().zip(schema.fields()).enumerate() {
        let column = expr::column(has.name(), i);
        exprs.push(if has.data_type() == wanted.data_type() {
            column
        } else {
            datafusion_physical_expr::expressions::try_cast(column, &node.schema, wanted.data_type().clone())
                .map_err(crate::bind::bind_error)?
        });
    }
    let props = Properties {
        append_only: node.props.append_only,
        distribution: match &node.props.distribution {
            Distribution::Hash(_) => Distribution::Any,
            other => other.clone(),
        },
        ..Properties::default()
    };
    Ok(StreamNode {
        op: OpSpec::Project(ProjectSpec { exprs }),
        schema: std::sync::Arc::clone(schema),
        props,
        inputs: vec![node],
    })
}
