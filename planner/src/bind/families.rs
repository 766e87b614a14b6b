//! Types that never meet: numbers, booleans, dates and timestamps, times of day, intervals. PostgreSQL
//! has no comparison between them and no type for both; DataFusion would take a number for days since
//! 1970. Checked before anything is coerced.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchemaRef, Result};
use datafusion_expr::expr::{Between, BinaryExpr, InList, InSubquery, SetComparison};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use spate_engine::types::error::{ErrorKind, SpateError};

use crate::sql::types::display;

/// Refuses a plan in which such types meet.
pub(super) fn check(plan: &LogicalPlan) -> std::result::Result<(), SpateError> {
    let mut refused = None;
    let walked = plan.apply_with_subqueries(|node| {
        if let Some(error) = refused_node(node)? {
            refused = Some(error);
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(super::bind_error)?;
    refused.map_or(Ok(()), Err)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Number,
    Boolean,
    Date,
    Time,
    Interval,
}

/// The family of a type; `None` for those that may meet others (NULL, text that is read as another
/// type) or that DataFusion keeps apart.
fn family(t: &DataType) -> Option<Family> {
    Some(match t {
        t if t.is_numeric() => Family::Number,
        DataType::Boolean => Family::Boolean,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Family::Date,
        DataType::Time32(_) | DataType::Time64(_) => Family::Time,
        DataType::Interval(_) => Family::Interval,
        _ => return None,
    })
}

pub(super) fn apart(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        // DataFusion would match fields by name and find none, so that all is NULL.
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() != b.len() || a.iter().zip(b).any(|(a, b)| a.name() != b.name())
        }
        _ => match (family(a), family(b)) {
            (Some(a), Some(b)) => a != b,
            _ => false,
        },
    }
}

/// The first two types of `all` that never meet.
fn clash(all: &[DataType]) -> Option<(&DataType, &DataType)> {
    let first = all.iter().find(|t| family(t).is_some() || matches!(t, DataType::Struct(_)))?;
    all.iter().find(|t| apart(first, t)).map(|other| (first, other))
}

/// The error for types of which some never meet, such as those of a column of a UNION.
pub(crate) fn unmatched(what: &str, all: &[DataType]) -> Option<SpateError> {
    clash(all).map(|(a, b)| matched(what, a, b))
}

fn refused_node(node: &LogicalPlan) -> Result<Option<SpateError>> {
    let schema: DFSchemaRef = match node.inputs().as_slice() {
        [] => Arc::clone(node.schema()),
        inputs => Arc::new(merge_schema(inputs)),
    };
    match node {
        LogicalPlan::Union(_) => {
            for i in 0..node.schema().fields().len() {
                let mut all = Vec::new();
                column_types(node, i, &mut all);
                if let Some(error) = unmatched("UNION", &all) {
                    return Ok(Some(error));
                }
            }
        }
        LogicalPlan::Join(j) => {
            for (l, r) in &j.on {
                if let (Ok(a), Ok(b)) = (l.get_type(&schema), r.get_type(&schema))
                    && apart(&a, &b)
                {
                    return Ok(Some(at(operator(&a, "=", &b), [l, r])));
                }
            }
        }
        LogicalPlan::Values(v) => {
            let width = v.schema.fields().len();
            for i in 0..width {
                let all: Vec<DataType> = v.values.iter().filter_map(|row| row.get(i)?.get_type(&schema).ok()).collect();
                if let Some(error) = unmatched("VALUES", &all) {
                    return Ok(Some(error));
                }
            }
        }
        _ => {}
    }
    let mut refused = None;
    node.apply_expressions(|e| {
        e.apply(|e| {
            refused = refused_expr(e, &schema);
            Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(refused)
}

/// The types that a column has in the parts of a UNION.
fn column_types(plan: &LogicalPlan, i: usize, into: &mut Vec<DataType>) {
    match plan {
        LogicalPlan::Union(u) => u.inputs.iter().for_each(|input| column_types(input, i, into)),
        LogicalPlan::Distinct(d) => column_types(d.input(), i, into),
        other => into.extend(other.schema().fields().get(i).map(|f| f.data_type().clone())),
    }
}

fn refused_expr(e: &Expr, schema: &DFSchemaRef) -> Option<SpateError> {
    // What has no type yet (a parameter, an error to come) is left to the analyzer.
    let type_of = |e: &Expr| e.get_type(schema).unwrap_or(DataType::Null);
    let pair = |l: &Expr, op: &str, r: &Expr| {
        let (a, b) = (type_of(l), type_of(r));
        apart(&a, &b).then(|| at(operator(&a, op, &b), [l, r]))
    };
    let all = |what: &str, args: &[&Expr]| {
        let types: Vec<DataType> = args.iter().map(|e| type_of(e)).collect();
        clash(&types).map(|(a, b)| at(matched(what, a, b), args.iter().copied()))
    };
    match e {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => pair(left, "=", right),
            Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                pair(left, &op.to_string(), right)
            }
            _ => None,
        },
        Expr::Between(Between { expr, low, high, .. }) => pair(expr, ">=", low).or_else(|| pair(expr, "<=", high)),
        Expr::InList(InList { expr, list, .. }) => list.iter().find_map(|item| pair(expr, "=", item)),
        Expr::InSubquery(InSubquery { expr, subquery, .. }) => {
            let (a, b) = (type_of(expr), subquery.subquery.schema().field(0).data_type());
            apart(&a, b).then(|| at(operator(&a, "=", b), [expr.as_ref()]))
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, .. }) => {
            let (a, b) = (type_of(expr), subquery.subquery.schema().field(0).data_type());
            apart(&a, b).then(|| at(operator(&a, &op.to_string(), b), [expr.as_ref()]))
        }
        Expr::Case(c) => {
            let results: Vec<&Expr> =
                c.when_then_expr.iter().map(|(_, then)| then.as_ref()).chain(c.else_expr.as_deref()).collect();
            let operand = c.expr.as_ref();
            let compared = operand.and_then(|x| c.when_then_expr.iter().find_map(|(when, _)| pair(x, "=", when)));
            compared.or_else(|| all("CASE", &results))
        }
        Expr::ScalarFunction(f) => {
            let args: Vec<&Expr> = f.args.iter().collect();
            match (f.func.name(), args.as_slice()) {
                ("nullif", [l, r]) => pair(l, "=", r),
                ("coalesce", args) => all("COALESCE", args),
                ("greatest", args) => all("GREATEST", args),
                ("least", args) => all("LEAST", args),
                ("make_array", args) => all("ARRAY", args),
                _ => None,
            }
        }
        _ => None,
    }
}

fn operator(a: &DataType, op: &str, b: &DataType) -> SpateError {
    SpateError::new(ErrorKind::Type, format!("operator does not exist: {} {op} {}", display(a), display(b)))
        .with_hint("it does not take these types; a CAST may help")
}

fn matched(what: &str, a: &DataType, b: &DataType) -> SpateError {
    let message = format!("{what} types {} and {} cannot be matched", display(a), display(b));
    SpateError::new(ErrorKind::Type, message).with_hint("cast one to the type of the other")
}

/// Puts the place of the first column of `exprs` on an error.
fn at<'a>(error: SpateError, exprs: impl IntoIterator<Item = &'a Expr>) -> SpateError {
    let mut place = None;
    for e in exprs {
        let _ = e.apply(|e| {
            if let Expr::Column(c) = e
                && let Some(span) = c.spans.first()
            {
                place = Some((span.start.line, span.start.column));
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        });
        if place.is_some() {
            break;
        }
    }
    match place {
        Some((line, column)) if line > 0 => error.at(line, column),
        _ => error,
    }
}
