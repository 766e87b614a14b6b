//! Expressions of the logical plan as physical ones, and what they say of watermarks.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::Expr;
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_physical_expr::create_physical_expr;
use datafusion_physical_expr::expressions::{Column, case, is_not_null};
use spate_engine::plan::{ExprRef, Properties, WatermarkKind};
use spate_engine::types::error::{Result, SpateError};

use super::unaliased;
use crate::bind::functions::{CUMULATE_ENDS, HOP_STARTS, TUMBLE_START, WINDOW_END};
use crate::bind::now::shift_of;

/// The physical form of `e` over rows of `input`.
pub(super) fn physical(e: &Expr, input: &DFSchema) -> Result<ExprRef> {
    refuse_subquery(e)?;
    refuse_clock(e)?;
    create_physical_expr(e, input, &ExecutionProps::new(), &PhysicalPlanningContext::default())
        .map_err(crate::bind::bind_error)
}

/// Temporal filters are taken apart before; nothing else can know the time.
fn refuse_clock(e: &Expr) -> Result<()> {
    match e.exists(|e| Ok(shift_of(e).is_some())).map_err(crate::bind::bind_error)? {
        true => Err(SpateError::unsupported(format!("now() is not supported here in a continuous query: {e}"))),
        false => Ok(()),
    }
}

fn refuse_subquery(e: &Expr) -> Result<()> {
    let found = e.exists(|e| {
        Ok(matches!(
            e,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        ))
    });
    if found.map_err(crate::bind::bind_error)? {
        return Err(SpateError::unsupported(
            "a correlated subquery with a condition other than equality is not supported in a continuous query yet",
        ));
    }
    Ok(())
}

/// The input column that `e` is, when it is one.
pub(super) fn plain_column(e: &Expr, input: &DFSchema) -> Result<Option<usize>> {
    match unaliased(e) {
        Expr::Column(c) => Ok(Some(input.index_of_column(c).map_err(crate::bind::bind_error)?)),
        _ => Ok(None),
    }
}

/// A physical column.
pub(crate) fn column(name: &str, index: usize) -> ExprRef {
    Arc::new(Column::new(name, index))
}

/// The left column, or where that is NULL the right one.
pub(super) fn either(schema: &Schema, left: usize, right: usize) -> Result<ExprRef> {
    let of = |i: usize| column(schema.field(i).name(), i);
    let built = is_not_null(of(left)).and_then(|there| case(None, vec![(there, of(left))], Some(of(right))));
    built.map_err(crate::bind::bind_error)
}

/// The column that a physical expression is, when it is one.
pub(super) fn column_index(e: &ExprRef) -> Option<usize> {
    let any: &dyn std::any::Any = e.as_ref();
    any.downcast_ref::<Column>().map(Column::index)
}

/// `e` with its column indices mapped.
pub(super) fn remap(e: ExprRef, map: impl Fn(usize) -> usize) -> Result<ExprRef> {
    e.transform_up(|e| {
        let any: &dyn std::any::Any = e.as_ref();
        Ok(match any.downcast_ref::<Column>() {
            Some(c) => Transformed::yes(column(c.name(), map(c.index()))),
            None => Transformed::no(e),
        })
    })
    .data()
    .map_err(crate::bind::bind_error)
}

fn constant(e: Option<&Expr>) -> Option<i64> {
    match e.map(unaliased) {
        Some(Expr::Literal(ScalarValue::Int64(v), _)) => *v,
        _ => None,
    }
}

/// What the watermark says of the values of `e`.
pub(super) fn watermark_of(e: &Expr, schema: &DFSchema, props: &Properties) -> Option<WatermarkKind> {
    match unaliased(e) {
        Expr::Column(c) => {
            let index = schema.index_of_column(c).ok()?;
            props.watermarks.iter().find(|w| w.column == index).map(|w| w.kind)
        }
        Expr::ScalarFunction(f) if f.func.name() == TUMBLE_START => {
            let size_us = constant(f.args.get(1))?;
            match watermark_of(f.args.first()?, schema, props)? {
                WatermarkKind::EventTime => Some(WatermarkKind::WindowStart { size_us }),
                _ => None,
            }
        }
        Expr::ScalarFunction(f) if f.func.name() == WINDOW_END => {
            let size = constant(f.args.get(1))?;
            match watermark_of(f.args.first()?, schema, props)? {
                WatermarkKind::WindowStart { size_us } if size_us == size => Some(WatermarkKind::WindowEnd),
                _ => None,
            }
        }
        _ => None,
    }
}

/// What an element of `e` is, when that lists bounds of the windows around a watermarked time.
pub(super) fn window_list_of(
    e: &Expr,
    schema: &DFSchema,
    props: &Properties,
    lists: &[(usize, WatermarkKind)],
) -> Option<WatermarkKind> {
    match unaliased(e) {
        Expr::Column(c) => {
            let index = schema.index_of_column(c).ok()?;
            lists.iter().find(|(column, _)| *column == index).map(|(_, kind)| *kind)
        }
        Expr::ScalarFunction(f) if f.func.name() == HOP_STARTS => {
            let size_us = constant(f.args.get(2))?;
            match watermark_of(f.args.first()?, schema, props)? {
                WatermarkKind::EventTime => Some(WatermarkKind::WindowStart { size_us }),
                _ => None,
            }
        }
        Expr::ScalarFunction(f) if f.func.name() == CUMULATE_ENDS => {
            match watermark_of(f.args.first()?, schema, props)? {
                WatermarkKind::EventTime => Some(WatermarkKind::WindowEnd),
                _ => None,
            }
        }
        _ => None,
    }
}
