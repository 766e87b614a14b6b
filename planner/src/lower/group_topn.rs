//! Top-n per group: a filter that bounds `row_number`, `rank` or `dense_rank` from above needs
//! the first rows of each partition only.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion_common::{Column, ScalarValue};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, Filter, LogicalPlan, Operator, Window, WindowFunctionDefinition};
use spate_engine::plan::{Distribution, FilterSpec, GroupTopNSpec, OpSpec, Properties, RankKind, StreamNode};
use spate_engine::types::error::Result;

use super::over::{closing, keys_of};
use super::{Lowered, Lowerer, close, expr, project, stream_schema, unaliased};

impl Lowerer {
    /// Lowers the filter and the window below it, if they are a top-n per group. `read` tells
    /// whether a column is read above; a rank that nobody reads is left out of the rows.
    pub(super) fn group_topn(
        &self,
        f: &Filter,
        on_close: bool,
        read: impl Fn(&Column) -> bool,
    ) -> Result<Option<Lowered>> {
        // The optimizer may have put a projection between the two that leaves columns out.
        let (w, list) = match f.input.as_ref() {
            LogicalPlan::Window(w) => (w, None),
            LogicalPlan::Projection(p) => match p.input.as_ref() {
                LogicalPlan::Window(w) => (w, Some(p)),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        if self.step.is_some() {
            return Ok(None);
        }
        let Some(kind) = kind_of(w) else { return Ok(None) };
        let width = w.input.schema().fields().len();
        let mut places = Vec::new();
        for e in list.iter().flat_map(|p| &p.expr) {
            match expr::plain_column(e, &w.schema)? {
                Some(c) => places.push(c),
                None => return Ok(None),
            }
        }
        let rank = match list {
            None => Column::from(w.schema.qualified_field(width)),
            Some(p) => match places.iter().position(|c| *c == width) {
                Some(at) => Column::from(p.schema.qualified_field(at)),
                None => return Ok(None),
            },
        };
        let mut limit: Option<usize> = None;
        let mut rest = Vec::new();
        for e in split_conjunction(&f.predicate) {
            match bound(e, &rank) {
                Some((n, only)) => {
                    limit = Some(limit.map_or(n, |l| l.min(n)));
                    if !only {
                        rest.push(e.clone());
                    }
                }
                None => rest.push(e.clone()),
            }
        }
        let Some(limit) = limit else { return Ok(None) };
        let in_the_middle = list.is_some() && places.last() != Some(&width);
        let with_rank = in_the_middle || read(&rank) || rest.iter().any(|e| e.column_refs().contains(&rank));
        let keys = keys_of(w)?;
        let input = if on_close { self.settled(&w.input)? } else { self.node(&w.input, false)? }.node;
        let needed = match keys.partition.as_slice() {
            [] => Distribution::Single,
            columns => Distribution::Hash(columns.to_vec()),
        };
        let window = closing(&keys.partition, &input);
        if on_close && window.is_none() {
            return Err(close::refuse_partition("a top-n per group"));
        }
        let input = self.require(input, needed);
        let mut schema = stream_schema(&LogicalPlan::Window(w.clone()));
        if !with_rank {
            schema = Arc::new(Schema::new(schema.fields().iter().take(width).cloned().collect::<Vec<_>>()));
        }
        let numbered = kind == RankKind::RowNumber;
        let stream_key = match &input.props.stream_key {
            _ if numbered && limit <= 1 => Some(keys.partition.clone()),
            None if numbered && with_rank => Some(keys.partition.iter().copied().chain([width]).collect()),
            key => key.clone(),
        };
        let props = Properties {
            append_only: on_close,
            stream_key,
            watermarks: window.filter(|_| on_close).into_iter().collect(),
            distribution: input.props.distribution.clone(),
            ..Properties::default()
        };
        let spec = GroupTopNSpec {
            partition: keys.partition,
            order: keys.order,
            kind,
            limit,
            with_rank,
            append_only_input: input.props.append_only,
            window,
            emit_on_close: on_close,
        };
        let mut node = StreamNode { op: OpSpec::GroupTopN(spec), schema, props, inputs: vec![input] };
        if let Some(p) = list {
            places.retain(|c| with_rank || *c != width);
            let named = stream_schema(&LogicalPlan::Projection(p.clone()));
            node = project::columns(node, &places)?;
            node.schema = Arc::new(Schema::new(named.fields().iter().take(places.len()).cloned().collect::<Vec<_>>()));
        }
        if let Some(rest) = conjunction(rest) {
            let predicate = expr::physical(&rest, f.input.schema())?;
            let (schema, props) = (Arc::clone(&node.schema), node.props.clone());
            node = StreamNode { op: OpSpec::Filter(FilterSpec { predicate }), schema, props, inputs: vec![node] };
        }
        Ok(Some(node.into()))
    }
}

fn kind_of(w: &Window) -> Option<RankKind> {
    let [e] = w.window_expr.as_slice() else { return None };
    let Expr::WindowFunction(f) = unaliased(e) else { return None };
    match (&f.fun, f.fun.name()) {
        (WindowFunctionDefinition::WindowUDF(_), "row_number") => Some(RankKind::RowNumber),
        (WindowFunctionDefinition::WindowUDF(_), "rank") => Some(RankKind::Rank),
        (WindowFunctionDefinition::WindowUDF(_), "dense_rank") => Some(RankKind::DenseRank),
        _ => None,
    }
}

/// The greatest rank that `e` lets pass, and whether it lets all smaller ones pass.
fn bound(e: &Expr, rank: &Column) -> Option<(usize, bool)> {
    let Expr::BinaryExpr(b) = e else { return None };
    let (op, constant) = match (b.left.as_ref(), b.right.as_ref()) {
        (Expr::Column(c), Expr::Literal(v, _)) if c == rank => (b.op, v),
        (Expr::Literal(v, _), Expr::Column(c)) if c == rank => (b.op.swap()?, v),
        _ => return None,
    };
    let ScalarValue::Int64(Some(n)) = constant.cast_to(&DataType::Int64).ok()? else { return None };
    let (n, only) = match op {
        Operator::LtEq => (n, true),
        Operator::Lt => (n.saturating_sub(1), true),
        Operator::Eq => (n, n <= 1),
        _ => return None,
    };
    // Ranks begin at 1.
    if n < 1 && op == Operator::Eq {
        return Some((0, true));
    }
    Some((usize::try_from(n).unwrap_or(0), only))
}
