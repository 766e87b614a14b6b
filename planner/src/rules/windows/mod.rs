//! Makes window functions (OVER) mean one thing: what depends on the order of rows that ORDER
//! BY leaves tied gets an order without ties, and frames are aggregated from their own rows
//! ([`frame`]). Each window node then has one PARTITION BY and one ORDER BY, of plain columns.

mod distinct;
mod frame;
mod tree;

use std::sync::Arc;

use crate::sql::types::display;
use arrow::datatypes::DataType;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, Result, ScalarValue};
use datafusion_expr::expr::{NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, SortExpr, Window, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowFunctionDefinition, lit,
};
use spate_engine::types::error::{ErrorKind, SpateError};

use super::guard::ErrorCounter;
use crate::bind::RelationSource;
use crate::catalog::RelationKind;
pub(crate) use distinct::distinct_on;
use frame::{FrameFunction, Kind};

/// Rewrites every window node of a plan, subqueries included. `errors` is given for a
/// continuous query; without it ties stay as they fall.
pub(crate) fn define(plan: LogicalPlan, errors: Option<&ErrorCounter>) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Window(w) => Ok(Transformed::yes(rewrite(w, errors)?)),
        // Columns below may have become nullable.
        other => Ok(Transformed::yes(other.recompute_schema()?)),
    })?;
    Ok(done.data)
}

/// How a function depends on the order of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Not beyond ORDER BY: all peers have one result.
    Peers,
    /// On the order within the frame, whose peers stay together.
    Rank,
    /// On every row's place.
    Total,
}

/// A window function on its way.
struct Call {
    function: WindowFunction,
    needs: Needs,
    /// Name of the column that it was.
    name: Column,
}

fn rewrite(w: Window, errors: Option<&ErrorCounter>) -> Result<LogicalPlan> {
    let Window { input, window_expr, schema } = w;
    let input = Arc::unwrap_or_clone(input);
    let width = input.schema().fields().len();
    let base: Vec<Expr> = input.schema().iter().map(|c| Expr::Column(Column::from(c))).collect();
    let mut keys = Keys { computed: Vec::new() };
    let mut calls = Vec::with_capacity(window_expr.len());
    for (i, e) in window_expr.into_iter().enumerate() {
        let Expr::WindowFunction(f) = e.unalias_nested().data else {
            return Err(SpateError::internal("a window node computes something else").into());
        };
        let name = Column::from(schema.qualified_field(width + i));
        let mut function = *f;
        check(&function)?;
        keys.make_plain(&mut function, &input)?;
        let needs = needs(&function, &input)?;
        calls.push(Call { function, needs, name });
    }
    let Some(first) = calls.first() else { return Err(SpateError::internal("a window node without functions").into()) };
    let (partition, order) = (first.function.params.partition_by.clone(), first.function.params.order_by.clone());
    let mut plan = input;
    let ties = if errors.is_some() { ties(&plan, &partition, &order) } else { Vec::new() };
    if !keys.computed.is_empty() {
        plan = LogicalPlanBuilder::from(plan).project(base.iter().cloned().chain(keys.computed.clone()))?.build()?;
    }
    let total: Vec<SortExpr> = order.iter().cloned().chain(ties.iter().cloned()).collect();

    // Over the total order first; what leaves peers alone may read ranks made there.
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    let mut columns: Vec<(Column, Expr)> = Vec::new();
    let rank = rank_function(&partition, &total);
    for call in calls {
        let Call { mut function, needs, name } = call;
        let own = if ties.is_empty() { Needs::Total } else { needs };
        let mut ranked = None;
        match own {
            Needs::Total => function.params.order_by.clone_from(&total),
            Needs::Rank => {
                add(&mut lower, rank.clone());
                ranked = Some(Expr::Column(Column::from_name(rank.schema_name().to_string())));
            }
            Needs::Peers => {}
        }
        let framed = framed(function, ranked, errors)?;
        let list = if own == Needs::Total { &mut lower } else { &mut upper };
        columns.push((name, Expr::Column(Column::from_name(framed.schema_name().to_string()))));
        add(list, framed);
    }
    for functions in [lower, upper] {
        if !functions.is_empty() {
            plan = LogicalPlan::Window(Window::try_new(functions, Arc::new(plan))?);
        }
    }
    let mut list = base;
    for (name, e) in columns {
        list.push(e.alias_qualified(name.relation, name.name));
    }
    LogicalPlanBuilder::from(plan).project(list)?.build()
}

fn add(list: &mut Vec<Expr>, e: Expr) {
    if !list.contains(&e) {
        list.push(e);
    }
}

/// PARTITION BY and ORDER BY as columns.
struct Keys {
    computed: Vec<Expr>,
}

impl Keys {
    fn make_plain(&mut self, f: &mut WindowFunction, input: &LogicalPlan) -> Result<()> {
        let params = &mut f.params;
        let all = params.partition_by.iter_mut().chain(params.order_by.iter_mut().map(|s| &mut s.expr));
        for e in all {
            let t = e.get_type(input.schema())?;
            if t.is_nested() {
                return Err(SpateError::unsupported(format!(
                    "PARTITION BY or ORDER BY of type {} in a window is not supported",
                    display(&t)
                ))
                .into());
            }
            // −0.0 and 0.0 are one value: adding 0.0 makes them one.
            let zero = match t {
                DataType::Float32 => Some(lit(0.0f32)),
                DataType::Float64 => Some(lit(0.0f64)),
                _ => None,
            };
            if matches!(e, Expr::Column(_)) && zero.is_none() {
                continue;
            }
            let value = match zero {
                Some(z) => e.clone() + z,
                None => e.clone(),
            };
            let place = |c: &Expr| matches!(c, Expr::Alias(a) if *a.expr == value);
            let at = match self.computed.iter().position(place) {
                Some(at) => at,
                None => {
                    let name = format!("__over{}", self.computed.len());
                    self.computed.push(value.clone().alias(name));
                    self.computed.len() - 1
                }
            };
            // Windows over windows may compute keys too: names must differ.
            *e = match self.computed.get(at) {
                Some(Expr::Alias(a)) => Expr::Column(Column::from_name(a.name.clone())),
                _ => return Err(SpateError::internal("a window's key was lost").into()),
            };
        }
        Ok(())
    }
}

fn refuse(what: &str) -> SpateError {
    SpateError::unsupported(format!("{what} is not supported"))
}

/// Refuses what DataFusion notices only when it runs, or not at all.
fn check(f: &WindowFunction) -> Result<()> {
    let frame = &f.params.window_frame;
    let ok = match (&frame.start_bound, &frame.end_bound) {
        (WindowFrameBound::Following(_), WindowFrameBound::Preceding(_) | WindowFrameBound::CurrentRow)
        | (WindowFrameBound::CurrentRow, WindowFrameBound::Preceding(_)) => false,
        (WindowFrameBound::Preceding(from), WindowFrameBound::Preceding(to)) => {
            !to.is_null() && (from.is_null() || from >= to)
        }
        (WindowFrameBound::Following(from), WindowFrameBound::Following(to)) => {
            !from.is_null() && (to.is_null() || from <= to)
        }
        _ => true,
    };
    if !ok {
        return Err(SpateError::invalid("a window frame cannot end before it starts").into());
    }
    if frame.units == WindowFrameUnits::Rows {
        for bound in [&frame.start_bound, &frame.end_bound] {
            if let WindowFrameBound::Preceding(ScalarValue::UInt64(Some(n)))
            | WindowFrameBound::Following(ScalarValue::UInt64(Some(n))) = bound
                && *n > i64::MAX as u64 / 2
            {
                return Err(SpateError::new(ErrorKind::Type, format!("a frame of {n} rows is too long")).into());
            }
        }
    }
    if f.fun.name() == "grouping" {
        return Err(refuse("grouping() as a window function").into());
    }
    Ok(())
}

fn needs(f: &WindowFunction, input: &LogicalPlan) -> Result<Needs> {
    let by_rows = f.params.window_frame.units == WindowFrameUnits::Rows;
    let name = f.fun.name();
    Ok(match &f.fun {
        WindowFunctionDefinition::WindowUDF(_) => match name {
            "rank" | "dense_rank" | "percent_rank" | "cume_dist" => Needs::Peers,
            "first_value" | "last_value" | "nth_value" if !by_rows => Needs::Rank,
            _ => Needs::Total,
        },
        WindowFunctionDefinition::AggregateUDF(_) => {
            let first = f.params.args.first().map(|a| a.get_type(input.schema())).transpose()?;
            // Additions of floats differ with their order.
            let exact = matches!(name, "count" | "min" | "max" | "bool_and" | "bool_or" | "regr_count")
                || matches!(name, "bit_and" | "bit_or" | "bit_xor")
                || (matches!(name, "sum" | "avg") && !first.is_some_and(|t| t.is_floating()));
            match (by_rows && !whole(&f.params.window_frame), exact) {
                (true, _) => Needs::Total,
                (false, true) => Needs::Peers,
                (false, false) => Needs::Rank,
            }
        }
    })
}

/// Whether every row's frame is its partition.
fn whole(frame: &WindowFrame) -> bool {
    let unbounded = |b: &WindowFrameBound| match b {
        WindowFrameBound::Preceding(n) | WindowFrameBound::Following(n) => n.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    unbounded(&frame.start_bound) && unbounded(&frame.end_bound)
}

/// What orders rows that `order` leaves tied within a partition; nothing if there are none.
fn ties(input: &LogicalPlan, partition: &[Expr], order: &[SortExpr]) -> Vec<SortExpr> {
    let known = |c: &Expr| partition.contains(c) || order.iter().any(|s| s.expr == *c);
    let all = || input.schema().iter().map(|c| Expr::Column(Column::from(c))).collect();
    let key = key(input).unwrap_or_else(all);
    key.into_iter().filter(|c| !known(c)).map(|c| SortExpr::new(c, true, false)).collect()
}

/// Columns on which no two rows of a plan agree, if some are known.
fn key(plan: &LogicalPlan) -> Option<Vec<Expr>> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let relation = RelationSource::of(scan.source.as_ref())?;
            // Nobody enforces the key of an append-only source.
            let enforced = relation.kind != RelationKind::Source || !relation.append_only;
            let key = relation.key.as_ref().filter(|_| enforced)?;
            let columns = key.iter().map(|&i| {
                let name = relation.schema.fields().get(i)?.name();
                let column = Column::new(Some(scan.table_name.clone()), name.clone());
                scan.projected_schema.has_column(&column).then_some(Expr::Column(column))
            });
            columns.collect()
        }
        LogicalPlan::Filter(f) => key(&f.input),
        LogicalPlan::Window(w) => key(&w.input),
        LogicalPlan::SubqueryAlias(a) => {
            let inner = a.input.schema();
            let renamed = key(&a.input)?.into_iter().map(|e| {
                let Expr::Column(c) = e else { return None };
                let at = inner.maybe_index_of_column(&c)?;
                Some(Expr::Column(Column::from(a.schema.qualified_field(at))))
            });
            renamed.collect()
        }
        LogicalPlan::Projection(p) => {
            let kept = key(&p.input)?.into_iter().map(|k| {
                let at = p.expr.iter().position(|e| *crate::lower::unaliased(e) == k)?;
                Some(Expr::Column(Column::from(p.schema.qualified_field(at))))
            });
            kept.collect()
        }
        LogicalPlan::Aggregate(a) if !a.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_))) => {
            let columns = (0..a.group_expr.len()).map(|i| Expr::Column(Column::from(a.schema.qualified_field(i))));
            Some(columns.collect())
        }
        _ => None,
    }
}

/// The number of each row in an order without ties.
fn rank_function(partition: &[Expr], total: &[SortExpr]) -> Expr {
    let mut f = WindowFunction::new(datafusion_functions_window::row_number::row_number_udwf(), Vec::new());
    f.params.partition_by = partition.to_vec();
    f.params.order_by = total.to_vec();
    f.params.window_frame = WindowFrame::new(Some(false));
    Expr::from(f)
}

/// The function as it is evaluated: over a frame by ours, else by DataFusion's.
fn framed(f: WindowFunction, rank: Option<Expr>, errors: Option<&ErrorCounter>) -> Result<Expr> {
    let WindowFunction { fun, params } = f;
    let ignore_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
    let name = fun.name().to_owned();
    let kind = match &fun {
        WindowFunctionDefinition::AggregateUDF(function) => match (name.as_str(), params.distinct) {
            ("first_value", false) => Kind::Nth(1),
            ("last_value", false) => Kind::Nth(-1),
            _ => {
                if ignore_nulls && !function.supports_null_handling_clause() {
                    return Err(refuse(&format!("IGNORE NULLS in {name}")).into());
                }
                Kind::Aggregate { function: Arc::clone(function), distinct: params.distinct }
            }
        },
        WindowFunctionDefinition::WindowUDF(_) => {
            if params.distinct {
                return Err(refuse(&format!("DISTINCT in {name}")).into());
            }
            match name.as_str() {
                "first_value" => Kind::Nth(1),
                "last_value" => Kind::Nth(-1),
                "nth_value" => Kind::Nth(nth(&params)?),
                _ if params.filter.is_some() => {
                    return Err(refuse(&format!("FILTER in {name}")).into());
                }
                _ => {
                    // These look at whole partitions, whatever frame is written.
                    let params = WindowFunctionParams { window_frame: WindowFrame::new(Some(true)), ..params };
                    return Ok(Expr::from(WindowFunction { fun, params }));
                }
            }
        }
    };
    let WindowFunctionParams { mut args, partition_by, order_by, window_frame, filter, .. } = params;
    if matches!(kind, Kind::Nth(_)) {
        args.truncate(1);
    }
    let mut function = FrameFunction::new(kind, &name, args.len(), errors.cloned());
    function.ignore_nulls = ignore_nulls;
    if let Some(filter) = filter {
        function.filtered = true;
        args.push(*filter);
    }
    if let Some(rank) = rank {
        function.ranked = true;
        args.push(rank);
    }
    let mut f = WindowFunction::new(function.into_udwf(), args);
    f.params.partition_by = partition_by;
    f.params.order_by = order_by;
    f.params.window_frame = window_frame;
    Ok(Expr::from(f))
}

/// Whether a function is one of ours, over a frame.
pub(crate) fn is_framed(f: &WindowFunctionDefinition) -> bool {
    matches!(f, WindowFunctionDefinition::WindowUDF(f) if f.inner().is::<FrameFunction>())
}

fn nth(params: &WindowFunctionParams) -> Result<i64> {
    let wrong = || SpateError::invalid("nth_value needs a constant, positive row number");
    let n = match params.args.get(1).map(crate::lower::unaliased) {
        Some(Expr::Literal(v, _)) => match v.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(Some(n)) => n,
            _ => return Err(wrong().into()),
        },
        _ => return Err(wrong().into()),
    };
    if n == 0 { Err(wrong().into()) } else { Ok(n) }
}
