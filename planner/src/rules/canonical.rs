//! Floats in one form: what a query computes has no negative zero and one NaN (see
//! `engine::types::float`). Without that, two rows that are equal, and so stand for each other in
//! a table, could give different results, and NaNs of computations would compare by their sign.
//!
//! Input is in that form already (connectors and DML see to it), so only operations that can
//! leave it are wrapped: arithmetic, functions, casts, aggregates. Within arithmetic the form
//! does not matter; only the outermost operation is wrapped.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchemaRef, Result, ScalarValue, plan_err};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use spate_engine::types::float;

/// Name of the function that wraps operations.
pub(crate) const CANONICAL: &str = "canonical_float";

static FUNCTION: LazyLock<ScalarUDF> =
    LazyLock::new(|| ScalarUDF::new_from_impl(Canonical { signature: Signature::any(1, Volatility::Immutable) }));

/// Functions whose results are among their arguments.
const PASS: &[&str] =
    &["coalesce", "nullif", "nvl", "nvl2", "greatest", "least", "array_element", "get_field", CANONICAL];

#[derive(Debug, PartialEq, Eq, Hash)]
struct Canonical {
    signature: Signature,
}

impl ScalarUDFImpl for Canonical {
    fn name(&self) -> &str {
        CANONICAL
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [t] => Ok(t.clone()),
            _ => plan_err!("{CANONICAL} takes one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(ColumnarValue::Array(a)) => Ok(ColumnarValue::Array(float::canonical(&a))),
            Some(ColumnarValue::Scalar(s)) => {
                let one = float::canonical(&s.to_array()?);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?))
            }
            None => plan_err!("{CANONICAL} takes one argument"),
        }
    }
}

/// Wraps what can leave the one form, in the whole plan, subqueries included. Names and types stay.
pub(crate) fn canonicalise(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let schema: DFSchemaRef = Arc::new(merge_schema(&node.inputs()));
        let calls = matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_));
        let rewritten = super::map_named(node, |e| wrap(e, &schema, false))?;
        // Subqueries below may have got new names of the same columns.
        let mut changed = rewritten.transformed;
        let mut node = if changed { rewritten.data.recompute_schema()? } else { rewritten.data };
        if calls && let Some(over) = over_calls(&node, &schema)? {
            node = over;
            changed = true;
        }
        Ok(Transformed::new_transformed(node, changed))
    })?;
    Ok(done.data)
}

fn varies(e: &Expr, schema: &DFSchemaRef) -> bool {
    // An expression of no known type is no arithmetic of floats.
    e.get_type(schema).is_ok_and(|t| float::may_vary(&t))
}

fn wrap(e: Expr, schema: &DFSchemaRef, within: bool) -> Result<Transformed<Expr>> {
    if let Expr::Literal(value, metadata) = &e {
        if !float::may_vary(&value.data_type()) {
            return Ok(Transformed::no(e));
        }
        let one = ScalarValue::try_from_array(&float::canonical(&value.to_array()?), 0)?;
        return Ok(Transformed::yes(Expr::Literal(one, metadata.clone())));
    }
    let arithmetic = match &e {
        Expr::BinaryExpr(b) => {
            matches!(b.op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo)
                && varies(&e, schema)
        }
        Expr::Negative(_) => varies(&e, schema),
        _ => false,
    };
    let leaves = arithmetic
        || match &e {
            Expr::ScalarFunction(f) => !PASS.contains(&f.func.name()) && varies(&e, schema),
            Expr::Cast(_) | Expr::TryCast(_) => varies(&e, schema) && !whole_number_cast(&e, schema),
            _ => false,
        };
    let done = e.map_children(|c| wrap(c, schema, arithmetic))?;
    if leaves && !within {
        return Ok(Transformed::yes(FUNCTION.call(vec![done.data])));
    }
    Ok(done)
}

/// Casts of numbers without signs of zero: from integers, decimals, and floats that are widened.
fn whole_number_cast(e: &Expr, schema: &DFSchemaRef) -> bool {
    let (from, to) = match e {
        Expr::Cast(c) => (c.expr.get_type(schema), c.field.data_type()),
        Expr::TryCast(c) => (c.expr.get_type(schema), c.field.data_type()),
        _ => return false,
    };
    from.is_ok_and(|f| {
        f.is_integer() || f.is_decimal() || (f == DataType::Float32 && to == &DataType::Float64) || &f == to
    })
}

/// A projection that wraps the float results of aggregates and window functions, if there are any
/// that can leave the one form.
fn over_calls(node: &LogicalPlan, input: &DFSchemaRef) -> Result<Option<LogicalPlan>> {
    let (first, calls) = match node {
        LogicalPlan::Aggregate(a) => (node.schema().fields().len() - a.aggr_expr.len(), &a.aggr_expr),
        LogicalPlan::Window(w) => (node.schema().fields().len() - w.window_expr.len(), &w.window_expr),
        _ => return Ok(None),
    };
    let mut any = false;
    let mut columns = Vec::with_capacity(node.schema().fields().len());
    for (i, (qualifier, field)) in node.schema().iter().enumerate() {
        let column = Expr::Column(Column::from((qualifier, field)));
        let computes = i >= first && calls.get(i - first).is_some_and(|c| computes(c, input));
        if computes && float::may_vary(field.data_type()) {
            any = true;
            columns.push(FUNCTION.call(vec![column]).alias_qualified(qualifier.cloned(), field.name()));
        } else {
            columns.push(column);
        }
    }
    if !any {
        return Ok(None);
    }
    Ok(Some(LogicalPlanBuilder::from(node.clone()).project(columns)?.build()?))
}

/// Whether a call's result need not be one of its arguments, nor finite.
fn computes(call: &Expr, input: &DFSchemaRef) -> bool {
    const PICKS: &[&str] = &["min", "max", "first_value", "last_value", "nth_value", "lag", "lead", "single_value"];
    // Sums and means of whole numbers and decimals are finite.
    let finite = |name: &str, args: &[Expr]| {
        matches!(name, "sum" | "avg")
            && args.first().is_some_and(|a| {
                let from = match a {
                    Expr::Cast(c) => c.expr.get_type(input),
                    other => other.get_type(input),
                };
                from.is_ok_and(|t| t.is_integer() || t.is_decimal())
            })
    };
    let (name, args) = match call {
        Expr::Alias(a) => return computes(&a.expr, input),
        Expr::AggregateFunction(f) => (f.func.name().to_owned(), &f.params.args),
        Expr::WindowFunction(f) => (f.fun.name().to_owned(), &f.params.args),
        _ => return true,
    };
    !PICKS.contains(&name.as_str()) && !finite(&name, args)
}
