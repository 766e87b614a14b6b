//! Window functions (OVER). Nodes over one another that partition alike, and of which one
//! orders by the first columns of the other, become one operator: it sorts its rows once.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::DFSchema;
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr::{NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{Expr, LogicalPlan, Window};
use datafusion_physical_expr::create_physical_sort_exprs;
use datafusion_physical_plan::windows::create_window_expr;
use spate_engine::plan::{Distribution, OpSpec, OrderBy, OverSpec, Properties, StreamNode, WatermarkColumn, WindowRef};
use spate_engine::types::error::{Result, SpateError};

use crate::rules::windows::is_framed;

use super::{Lowered, Lowerer, close, expr, stream_schema, unaliased};

/// A window node's keys, as columns of its input.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Keys {
    pub(super) partition: Vec<usize>,
    pub(super) order: Vec<OrderBy>,
}

impl Lowerer {
    pub(super) fn over(&self, top: &Window, on_close: bool) -> Result<Lowered> {
        let schema = stream_schema(&LogicalPlan::Window(top.clone()));
        // From the topmost node down, as long as one order serves all.
        let mut nodes = vec![top];
        let mut keys = keys_of(top)?;
        let mut input = top.input.as_ref();
        while let LogicalPlan::Window(below) = input {
            let width = below.input.schema().fields().len();
            let other = keys_of(below)?;
            let prefix = |a: &Keys, b: &Keys| b.order.starts_with(&a.order);
            let own = keys.order.iter().all(|o| o.column < width) && keys.partition.iter().all(|c| *c < width);
            if !own || keys.partition != other.partition {
                break;
            }
            if prefix(&keys, &other) {
                keys = other;
            } else if !prefix(&other, &keys) {
                break;
            }
            nodes.push(below);
            input = below.input.as_ref();
        }
        nodes.reverse();
        let below = if on_close { self.settled(input)? } else { self.node(input, false)? }.node;
        let mut stages = Vec::with_capacity(nodes.len());
        for node in nodes {
            stages.push(node.window_expr.iter().map(|e| function(e, node.input.schema())).collect::<Result<_>>()?);
        }
        let needed = match keys.partition.as_slice() {
            [] => Distribution::Single,
            columns => Distribution::Hash(columns.to_vec()),
        };
        let window = closing(&keys.partition, &below);
        if on_close && window.is_none() {
            return Err(close::refuse_partition("window functions (OVER)"));
        }
        let below = self.require(below, needed);
        let props = Properties {
            append_only: on_close,
            stream_key: below.props.stream_key.clone(),
            watermarks: window.filter(|_| on_close).into_iter().collect(),
            distribution: below.props.distribution.clone(),
            ..Properties::default()
        };
        let spec = OverSpec { partition: keys.partition, order: keys.order, stages, window, emit_on_close: on_close };
        Ok(StreamNode { op: OpSpec::Over(spec), schema, props, inputs: vec![below] }.into())
    }
}

/// The partition column whose windows end partitions of what is never taken back.
pub(super) fn closing(partition: &[usize], input: &StreamNode) -> Option<WatermarkColumn> {
    close::window_of(partition, &input.props).filter(|_| input.props.append_only)
}

fn params(e: &Expr) -> Result<&WindowFunctionParams> {
    match unaliased(e) {
        Expr::WindowFunction(f) => Ok(&f.params),
        _ => Err(SpateError::internal("a window node computes something else")),
    }
}

pub(super) fn keys_of(w: &Window) -> Result<Keys> {
    let from = w.input.schema();
    let first = w.window_expr.first().ok_or_else(|| SpateError::internal("a window node without functions"))?;
    let params = params(first)?;
    let column =
        |e: &Expr| expr::plain_column(e, from)?.ok_or_else(|| SpateError::internal("a window's key is no column"));
    let mut keys = Keys { partition: Vec::new(), order: Vec::new() };
    for e in &params.partition_by {
        keys.partition.push(column(e)?);
    }
    for s in &params.order_by {
        keys.order.push(OrderBy { column: column(&s.expr)?, descending: !s.asc, nulls_first: s.nulls_first });
    }
    Ok(keys)
}

/// The function as EXPLAIN shows it; the operator's keys are its PARTITION BY and ORDER BY.
fn shown(f: &WindowFunction) -> String {
    let args: Vec<String> = f.params.args.iter().map(|a| a.human_display().to_string()).collect();
    let call = format!("{}({})", f.fun.name(), args.join(", "));
    if is_framed(&f.fun) { format!("{call} {}", f.params.window_frame) } else { call }
}

/// The physical form of a window function over rows of `input`.
fn function(e: &Expr, input: &DFSchema) -> Result<WindowRef> {
    let Expr::WindowFunction(f) = unaliased(e) else {
        return Err(SpateError::internal("a window node computes something else"));
    };
    let p = &f.params;
    let all = |list: &[Expr]| list.iter().map(|e| expr::physical(e, input)).collect::<Result<Vec<_>>>();
    let (props, planning) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let order = create_physical_sort_exprs(&p.order_by, input, &props, &planning).map_err(crate::bind::bind_error)?;
    let filter = p.filter.as_deref().map(|f| expr::physical(f, input)).transpose()?;
    let schema: SchemaRef = Arc::clone(input.inner());
    create_window_expr(
        &f.fun,
        shown(f),
        &all(&p.args)?,
        &all(&p.partition_by)?,
        &order,
        Arc::new(p.window_frame.clone()),
        schema,
        p.null_treatment == Some(NullTreatment::IgnoreNulls),
        p.distinct,
        filter,
    )
    .map_err(crate::bind::bind_error)
}
