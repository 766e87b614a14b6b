//! unnest, and the windows of HOP and CUMULATE.

use std::sync::Arc;

use datafusion_expr::{Expr, LogicalPlan, Projection, Unnest};
use spate_engine::plan::{Distribution, OpSpec, Properties, RepeatSpec, StreamNode, UnnestSpec, WatermarkColumn};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer, motion, stream_schema};
use crate::bind::functions::{CUMULATE_ENDS, HOP_STARTS};
use crate::rules::set_ops::COPIES;

impl Lowerer {
    pub(super) fn unnest(&self, u: &Unnest) -> Result<Lowered> {
        let refuse = |what: &str| SpateError::unsupported(format!("{what} is not supported in a continuous query yet"));
        if !u.struct_type_columns.is_empty() {
            return Err(refuse("unnest of a struct"));
        }
        // Rows without elements are kept, or all of them go.
        let preserve_nulls = u.options.preserve_nulls();
        if preserve_nulls != u.options.expand_empty_as_null() {
            return Err(refuse("unnest that keeps NULL but not empty lists"));
        }
        if let Some(repeated) = self.repeat(u)? {
            return Ok(repeated);
        }
        let input = self.node(&u.input, false)?;
        let schema = stream_schema(&LogicalPlan::Unnest(u.clone()));
        let mut columns = Vec::with_capacity(u.list_type_columns.len());
        for (index, list) in &u.list_type_columns {
            if list.depth != 1 || columns.contains(index) {
                return Err(refuse("unnest of nested lists"));
            }
            columns.push(*index);
        }
        let in_place = u.dependency_indices.iter().enumerate().all(|(i, d)| i == *d)
            && schema.fields().len() == input.node.schema.fields().len();
        if !in_place {
            return Err(refuse("this form of unnest"));
        }
        columns.sort_unstable();
        let kept = |c: &usize| !columns.contains(c);
        let from = &input.node.props;
        let mut watermarks: Vec<WatermarkColumn> =
            from.watermarks.iter().copied().filter(|w| kept(&w.column)).collect();
        // The bounds that a row lists differ, so the row's key and the bound make a key.
        let mut stream_key = None;
        if let [column] = columns.as_slice()
            && let Some((_, kind)) = input.window_lists.iter().find(|(c, _)| c == column)
        {
            watermarks.push(WatermarkColumn { column: *column, kind: *kind });
            watermarks.sort_by_key(|w| w.column);
        }
        if let [column] = columns.as_slice()
            && is_window_list(&u.input, *column)
            && let Some(key) = &from.stream_key
            && key.iter().all(kept)
        {
            stream_key = Some(key.iter().copied().chain([*column]).collect());
        }
        let distribution = match &from.distribution {
            Distribution::Hash(c) if !c.iter().all(kept) => self.anyhow(),
            other => other.clone(),
        };
        // A row gives the same ones as long as its lists do not change.
        let motion = from.motion.clone().filter(|m| motion::all_fixed(m, columns.iter().copied()));
        let (append_only, scattered) = (from.append_only, from.scattered);
        let props = Properties {
            append_only,
            stream_key,
            watermarks,
            motion,
            scattered,
            distribution,
            ..Properties::default()
        };
        let node = StreamNode {
            op: OpSpec::Unnest(UnnestSpec { columns, preserve_nulls }),
            schema,
            props,
            inputs: vec![input.node],
        };
        Ok(Lowered { node, window_lists: Vec::new() })
    }

    /// A list of copies that is made right below is not made: the row counts as often.
    fn repeat(&self, u: &Unnest) -> Result<Option<Lowered>> {
        let (LogicalPlan::Projection(p), [(count, _)]) = (u.input.as_ref(), u.list_type_columns.as_slice()) else {
            return Ok(None);
        };
        let copies = match p.expr.get(*count).map(super::unaliased) {
            Some(Expr::ScalarFunction(f)) if f.func.name() == COPIES => f.args.first(),
            _ => None,
        };
        let Some(copies) = copies else { return Ok(None) };
        let (qualifier, field) = p.schema.qualified_field(*count);
        let mut exprs = p.expr.clone();
        exprs[*count] = copies.clone().alias_qualified(qualifier.cloned(), field.name());
        let counted = Projection::try_new(exprs, Arc::clone(&p.input)).map_err(crate::bind::bind_error)?;
        let input = self.project(&counted, false)?.node;
        let schema = stream_schema(&LogicalPlan::Unnest(u.clone()));
        let props = Properties { stream_key: None, watermarks: Vec::new(), motion: None, ..input.props.clone() };
        let op = OpSpec::Repeat(RepeatSpec { count: *count });
        Ok(Some(StreamNode { op, schema, props, inputs: vec![input] }.into()))
    }
}

/// Whether a column is computed right below as a list of window bounds.
fn is_window_list(input: &Arc<LogicalPlan>, column: usize) -> bool {
    match input.as_ref() {
        LogicalPlan::Projection(p) => p.expr.get(column).is_some_and(|e| match super::unaliased(e) {
            datafusion_expr::Expr::ScalarFunction(f) => [HOP_STARTS, CUMULATE_ENDS].contains(&f.func.name()),
            _ => false,
        }),
        LogicalPlan::Filter(f) => is_window_list(&f.input, column),
        _ => false,
    }
}
