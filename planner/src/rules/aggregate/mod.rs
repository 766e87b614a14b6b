//! Makes aggregates deterministic and exact, in the bound plan, so that batch and stream agree:
//!
//! - approximations become what they approximate (`approx_distinct`, `approx_median`,
//!   `approx_percentile_cont`);
//! - sums and means of wide decimals are computed in 256 bits, so that what does not fit the
//!   result is noticed and never wraps around;
//! - variances, covariances, correlation and regression come from exact sums ([`moments`]);
//! - the expressions of grouping sets become columns first, so that guarding them leaves the sets alone;
//! - whatever depends on the order of its input, or may fail, becomes an aggregate over sorted
//!   rows ([`sorted`]).

pub mod moments;
pub mod sorted;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, DFSchema, Result, ScalarValue};
use datafusion_expr::expr::{AggregateFunction, AggregateFunctionParams, GroupingSet, NullTreatment, Sort};
use datafusion_expr::{Aggregate, AggregateUDF, Expr, ExprSchemable, LogicalPlan, Projection, cast, lit, when};
use datafusion_functions_aggregate::{average, count, first_last, percentile_cont, sum};
use spate_engine::types::error::SpateError;

use self::sorted::{Call, SortedAggregate};
use crate::lower::unaliased;
use crate::rules::guard::ErrorCounter;

/// Sums of decimals of up to so many digits cannot overflow: that takes 10^10 rows.
const SAFE_DIGITS: u8 = 28;

/// Functions to which copies of a value do not matter.
const IDEMPOTENT: &[&str] = &["bool_and", "bool_or", "bit_and", "bit_or"];

/// Rewrites the aggregates of a plan, subqueries included. `errors` is there in a continuous
/// query; without it only sums and means change.
pub(crate) fn canonical(plan: LogicalPlan, errors: Option<&ErrorCounter>) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(a) => rewrite(a, errors),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(done.data)
}

/// A call in its new form: an aggregate, and what its value is cast to.
struct Rewritten {
    call: Expr,
    cast: Option<DataType>,
}

fn rewrite(a: Aggregate, errors: Option<&ErrorCounter>) -> Result<Transformed<LogicalPlan>> {
    let schema = a.input.schema();
    let mut calls: Vec<Expr> = Vec::with_capacity(a.aggr_expr.len());
    let mut places = Vec::with_capacity(a.aggr_expr.len());
    let mut changed = false;
    for e in &a.aggr_expr {
        let Expr::AggregateFunction(f) = unaliased(e) else {
            return Ok(Transformed::no(LogicalPlan::Aggregate(a)));
        };
        let Rewritten { call, cast } = match one(f, schema, errors)? {
            Some(new) => {
                changed = true;
                new
            }
            None => Rewritten { call: Expr::AggregateFunction(f.clone()), cast: None },
        };
        let place = calls.iter().position(|c| *c == call).unwrap_or_else(|| {
            calls.push(call);
            calls.len() - 1
        });
        places.push((place, cast));
    }
    let before = Arc::clone(&a.schema);
    let (input, group) = match columns_of_sets(&a)? {
        Some(new) if errors.is_some() => {
            changed = true;
            new
        }
        _ => (Arc::clone(&a.input), a.group_expr.clone()),
    };
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Aggregate(a)));
    }
    let keys = before.fields().len() - a.aggr_expr.len();
    // Names of our own, so that they cannot clash.
    let named = calls.into_iter().enumerate().map(|(i, c)| c.alias(format!("__aggregate_{i}"))).collect();
    let plan = LogicalPlan::Aggregate(Aggregate::try_new(input, group, named)?);
    let mut exprs: Vec<Expr> = Vec::with_capacity(before.fields().len());
    for ((qualifier, field), now) in before.iter().zip(plan.schema().iter()).take(keys) {
        let column = Expr::Column(Column::from(now));
        let same = (qualifier, field.name()) == (now.0, now.1.name());
        exprs.push(if same { column } else { column.alias_qualified(qualifier.cloned(), field.name()) });
    }
    for ((qualifier, field), (place, to)) in before.iter().skip(keys).zip(places) {
        let column = Expr::Column(Column::from(plan.schema().qualified_field(keys + place)));
        let value = match to {
            Some(t) => cast(column, t),
            None => column,
        };
        exprs.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?)))
}

/// Grouping sets over columns, with the input that computes these, if any is not one yet.
fn columns_of_sets(a: &Aggregate) -> Result<Option<(Arc<LogicalPlan>, Vec<Expr>)>> {
    let [Expr::GroupingSet(sets)] = a.group_expr.as_slice() else { return Ok(None) };
    let computed: Vec<Expr> =
        sets.distinct_expr().into_iter().filter(|e| !matches!(e, Expr::Column(_))).cloned().collect();
    if computed.is_empty() {
        return Ok(None);
    }
    let name = |i: usize| format!("__group_{i}");
    let mut columns: Vec<Expr> = a.input.schema().columns().into_iter().map(Expr::Column).collect();
    columns.extend(computed.iter().enumerate().map(|(i, e)| unaliased(e).clone().alias(name(i))));
    let input = LogicalPlan::Projection(Projection::try_new(columns, Arc::clone(&a.input))?);
    let one = |e: &Expr| match computed.iter().position(|c| c == e) {
        Some(i) => Expr::Column(Column::new_unqualified(name(i))),
        None => e.clone(),
    };
    let many = |list: &Vec<Expr>| list.iter().map(one).collect::<Vec<Expr>>();
    let sets = match sets {
        GroupingSet::Rollup(list) => GroupingSet::Rollup(many(list)),
        GroupingSet::Cube(list) => GroupingSet::Cube(many(list)),
        GroupingSet::GroupingSets(lists) => GroupingSet::GroupingSets(lists.iter().map(many).collect()),
    };
    Ok(Some((Arc::new(input), vec![Expr::GroupingSet(sets)])))
}

/// The new form of one call, if it gets one.
fn one(f: &AggregateFunction, input: &DFSchema, errors: Option<&ErrorCounter>) -> Result<Option<Rewritten>> {
    let params = &f.params;
    let name = f.func.name();
    if let ("sum" | "avg", [arg]) = (name, params.args.as_slice())
        && let DataType::Decimal128(digits, scale) = arg.get_type(input)?
        && digits > SAFE_DIGITS
    {
        let func = if name == "sum" { sum::sum_udaf() } else { average::avg_udaf() };
        let to = Expr::AggregateFunction(f.clone()).get_type(input)?;
        let wide = cast(arg.clone(), DataType::Decimal256(digits, scale));
        return Ok(Some(Rewritten { call: with(f, func, vec![wide]), cast: Some(to) }));
    }
    let Some(errors) = errors else { return Ok(None) };
    if let Some(call) = moments::exact(f, input)? {
        return Ok(Some(Rewritten { call, cast: None }));
    }
    let result = Expr::AggregateFunction(f.clone()).get_type(input)?;
    match (name, params.args.as_slice()) {
        ("approx_distinct", [arg]) => {
            let mut new = f.clone();
            new.params.distinct = true;
            return Ok(Some(Rewritten {
                call: with(&new, count::count_udaf(), vec![arg.clone()]),
                cast: Some(result),
            }));
        }
        ("approx_median", [arg]) => {
            let new = with(f, percentile_cont::percentile_cont_udaf(), vec![arg.clone(), lit(0.5)]);
            return again(new, result, input, errors);
        }
        ("approx_percentile_cont", [arg, at, ..]) => {
            let new = with(f, percentile_cont::percentile_cont_udaf(), vec![arg.clone(), at.clone()]);
            return again(new, result, input, errors);
        }
        ("regr_count", [y, x]) if !params.distinct => {
            let pairs = when(y.clone().is_not_null(), x.clone()).end()?;
            return Ok(Some(Rewritten { call: with(f, count::count_udaf(), vec![pairs]), cast: Some(result) }));
        }
        // DataFusion's own fails for groups without values.
        ("bit_xor", _) if params.distinct => {}
        (_, args) if is_plain(name, args, input)? => {
            // The order does not matter to these, and to some no copies either.
            let copies = params.distinct && IDEMPOTENT.contains(&name);
            if params.order_by.is_empty() && !copies {
                return Ok(None);
            }
            let mut new = f.clone();
            new.params.order_by.clear();
            new.params.distinct &= !copies;
            return Ok(Some(Rewritten { call: Expr::AggregateFunction(new), cast: None }));
        }
        _ => {}
    }
    sorted(f, input, errors).map(|call| Some(Rewritten { call, cast: None }))
}

/// Whether a function does not depend on the order of its input, and can be computed as it is.
fn is_plain(name: &str, args: &[Expr], input: &DFSchema) -> Result<bool> {
    let [arg] = args else { return Ok(false) };
    let t = arg.get_type(input)?;
    Ok(match name {
        "count" => true,
        "sum" | "avg" => t.is_numeric() || t.is_null(),
        "min" | "max" => !t.is_nested(),
        "bool_and" | "bool_or" => t == DataType::Boolean,
        "bit_and" | "bit_or" | "bit_xor" => t.is_integer(),
        _ => false,
    })
}

/// A call that another one became, in its own new form.
fn again(call: Expr, result: DataType, input: &DFSchema, errors: &ErrorCounter) -> Result<Option<Rewritten>> {
    let Expr::AggregateFunction(f) = call else { return Ok(None) };
    let call = sorted(&f, input, errors)?;
    let same = call.get_type(input)? == result;
    Ok(Some(Rewritten { call, cast: (!same).then_some(result) }))
}

/// `f` with another function and other arguments.
fn with(f: &AggregateFunction, func: Arc<AggregateUDF>, args: Vec<Expr>) -> Expr {
    Expr::AggregateFunction(AggregateFunction { func, params: AggregateFunctionParams { args, ..f.params.clone() } })
}

fn sorted(f: &AggregateFunction, input: &DFSchema, errors: &ErrorCounter) -> Result<Expr> {
    let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = f.params.clone();
    let name = f.func.name().to_owned();
    let mut call = Call {
        function: Arc::clone(&f.func),
        args,
        order_by,
        distinct,
        ignore_nulls: null_treatment == Some(NullTreatment::IgnoreNulls) || name == "any_value",
        first: None,
        shown: Expr::AggregateFunction(f.clone()).human_display().to_string(),
    };
    match name.as_str() {
        "first_value" | "any_value" => call.first = Some(1),
        // The last row is the first one of the reversed order.
        "last_value" => {
            reverse(&mut call);
            call.function = first_last::first_value_udaf();
            call.first = Some(1);
        }
        "nth_value" => {
            let Some(Expr::Literal(n, _)) = call.args.get_mut(1) else {
                return Err(SpateError::unsupported("nth_value needs a constant for its second argument").into());
            };
            let at = match n.cast_to(&DataType::Int64)? {
                ScalarValue::Int64(Some(at)) if at != 0 => at,
                _ => {
                    return Err(SpateError::invalid("the second argument of nth_value must not be 0 or NULL").into());
                }
            };
            *n = ScalarValue::Int64(Some(at.saturating_abs()));
            call.first = usize::try_from(at.unsigned_abs()).ok();
            if at < 0 {
                reverse(&mut call);
            }
        }
        _ => {}
    }
    let (function, args) = SortedAggregate::new(call, input, errors)?;
    let func = Arc::new(AggregateUDF::new_from_impl(function));
    let params = AggregateFunctionParams { args, distinct: false, filter, order_by: vec![], null_treatment: None };
    Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
}

/// Turns the order of the rows around, that of ties too.
fn reverse(call: &mut Call) {
    for arg in &call.args {
        if !matches!(arg, Expr::Literal(..)) && !call.order_by.iter().any(|s| s.expr == *arg) {
            call.order_by.push(Sort::new(arg.clone(), true, false));
        }
    }
    for s in &mut call.order_by {
        s.asc = !s.asc;
        s.nulls_first = !s.nulls_first;
    }
}
