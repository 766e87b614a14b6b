//! SELECT lists: properties follow the columns that pass unchanged.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion_common::Column;
use datafusion_expr::{LogicalPlan, Projection};
use spate_engine::plan::{Distribution, ExprRef, Motion, OpSpec, ProjectSpec, Properties, StreamNode, WatermarkColumn};
use spate_engine::types::error::Result;

use super::{Lowered, Lowerer, expr, motion, stream_schema, values};

impl Lowerer {
    pub(super) fn project(&self, p: &Projection, on_close: bool) -> Result<Lowered> {
        if let LogicalPlan::EmptyRelation(e) = p.input.as_ref()
            && !on_close
        {
            return self.constant_rows(p, e.produce_one_row);
        }
        let read = |c: &Column| p.expr.iter().any(|e| e.column_refs().contains(c));
        let top = match p.input.as_ref() {
            LogicalPlan::Filter(f) => self.group_topn(f, on_close, read)?,
            _ => None,
        };
        let input = match top {
            Some(top) => top,
            None => self.node(&p.input, on_close)?,
        };
        let schema = stream_schema(&LogicalPlan::Projection(p.clone()));
        let from = p.input.schema();
        let mut plain = Vec::with_capacity(p.expr.len());
        for e in &p.expr {
            plain.push(expr::plain_column(e, from)?);
        }
        let identity =
            plain.len() == input.node.schema.fields().len() && plain.iter().enumerate().all(|(i, c)| *c == Some(i));
        if identity {
            let mut input = input;
            input.node.schema = schema;
            return Ok(input);
        }
        let exprs: Vec<ExprRef> = p.expr.iter().map(|e| expr::physical(e, from)).collect::<Result<_>>()?;
        if let OpSpec::Values(v) = &input.node.op {
            let rows = project_rows(&exprs, &v.rows, &schema)?;
            return Ok(values::node(rows).into());
        }
        let mut props = through(&input.node.props, &plain, self.anyhow());
        let mut window_lists = Vec::new();
        for (i, e) in p.expr.iter().enumerate() {
            if !props.watermarks.iter().any(|w| w.column == i)
                && let Some(kind) = expr::watermark_of(e, from, &input.node.props)
            {
                props.watermarks.push(WatermarkColumn { column: i, kind });
            }
            if let Some(kind) = expr::window_list_of(e, from, &input.node.props, &input.window_lists) {
                window_lists.push((i, kind));
            }
        }
        props.watermarks.sort_by_key(|w| w.column);
        let motions = input.node.props.motion.as_ref();
        let motions = motions.map(|m| exprs.iter().map(|e| motion::of_expr(e, m)).collect::<Vec<_>>());
        let (exprs, below) = fuse(exprs, input.node)?;
        let node = StreamNode { op: OpSpec::Project(ProjectSpec { exprs }), schema, props, inputs: vec![below] };
        // A recursive term is computed step by step, not epoch by epoch.
        let node = if self.step.is_some() { node } else { motion::settle(node, motions) };
        Ok(Lowered { node, window_lists })
    }

    /// A query without FROM.
    fn constant_rows(&self, p: &Projection, one_row: bool) -> Result<Lowered> {
        let schema = stream_schema(&LogicalPlan::Projection(p.clone()));
        let exprs: Vec<ExprRef> = p.expr.iter().map(|e| expr::physical(e, p.input.schema())).collect::<Result<_>>()?;
        let rows = if one_row {
            values::unit(p.input.schema().as_arrow())?
        } else {
            RecordBatch::new_empty(stream_schema(&p.input))
        };
        Ok(values::node(project_rows(&exprs, &rows, &schema)?).into())
    }
}

fn project_rows(exprs: &[ExprRef], rows: &RecordBatch, schema: &arrow::datatypes::SchemaRef) -> Result<RecordBatch> {
    let columns = exprs
        .iter()
        .map(|e| e.evaluate(rows).and_then(|v| v.into_array(rows.num_rows())))
        .collect::<datafusion_common::Result<Vec<_>>>()
        .map_err(crate::bind::bind_error)?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// `input` cut down to some of its columns.
pub(super) fn columns(input: StreamNode, kept: &[usize]) -> Result<StreamNode> {
    let schema = Arc::new(input.schema.project(kept)?);
    let exprs = kept.iter().zip(schema.fields()).map(|(&i, f)| expr::column(f.name(), i)).collect();
    let plain: Vec<Option<usize>> = kept.iter().copied().map(Some).collect();
    let anyhow = match input.props.distribution {
        Distribution::Single => Distribution::Single,
        _ => Distribution::Any,
    };
    let props = through(&input.props, &plain, anyhow);
    Ok(StreamNode { op: OpSpec::Project(ProjectSpec { exprs }), schema, props, inputs: vec![input] })
}

/// Reads through a projection that only picks columns: `exprs` over its input instead.
fn fuse(exprs: Vec<ExprRef>, below: StreamNode) -> Result<(Vec<ExprRef>, StreamNode)> {
    let picked = match &below.op {
        OpSpec::Project(p) => p.exprs.iter().map(expr::column_index).collect::<Option<Vec<usize>>>(),
        _ => None,
    };
    let StreamNode { op, mut inputs, schema, props } = below;
    match (picked, inputs.pop()) {
        (Some(picked), Some(input)) => {
            let through = |i: usize| picked.get(i).copied().unwrap_or(i);
            let exprs = exprs.into_iter().map(|e| expr::remap(e, through)).collect::<Result<_>>()?;
            fuse(exprs, input)
        }
        (_, input) => {
            inputs.extend(input);
            Ok((exprs, StreamNode { op, inputs, schema, props }))
        }
    }
}

/// Properties after a projection; `plain[i]` is the input column that output column i is.
pub(crate) fn through(input: &Properties, plain: &[Option<usize>], anyhow: Distribution) -> Properties {
    let place = |c: usize| plain.iter().position(|p| *p == Some(c));
    let places = |columns: &[usize]| columns.iter().map(|&c| place(c)).collect::<Option<Vec<_>>>();
    let mut watermarks = Vec::new();
    for (column, from) in plain.iter().enumerate() {
        if let Some(w) = from.and_then(|c| input.watermarks.iter().find(|w| w.column == c)) {
            watermarks.push(WatermarkColumn { column, kind: w.kind });
        }
    }
    Properties {
        append_only: input.append_only,
        stream_key: input.stream_key.as_deref().and_then(places),
        watermarks,
        motion: input.motion.as_ref().map(|m| {
            let of = |p: &Option<usize>| p.and_then(|c| m.get(c).copied()).unwrap_or(Motion::Free);
            plain.iter().map(of).collect()
        }),
        scattered: input.scattered,
        order: input.order,
        distribution: match &input.distribution {
            Distribution::Hash(columns) => places(columns).map_or(anyhow, Distribution::Hash),
            other => other.clone(),
        },
    }
}
