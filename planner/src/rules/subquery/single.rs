//! Scalar subqueries. One that may give several rows is made to give one: it becomes an
//! aggregate that counts its rows, and more than one is an error, or in a continuous query
//! NULL and counted. DataFusion turns scalar subqueries into joins and would repeat the outer row.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Int64Type};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, ScalarValue, exec_err};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{
    BinaryExpr, ColumnarValue, Distinct, Expr, FetchType, JoinType, LogicalPlan, LogicalPlanBuilder, Operator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion_functions_aggregate::expr_fn::{count, first_value, max};
use spate_engine::types::error::{ErrorKind, SpateError};

use super::refuse;
use crate::bind::BindMode;
use crate::rules::guard::ErrorCounter;

/// Name of the function that gives the value of a subquery's only row.
pub(crate) const SINGLE_VALUE: &str = "single_value";

/// PostgreSQL's words for it.
const TOO_MANY: &str = "more than one row returned by a subquery used as an expression";

/// Makes every scalar subquery of a plan give one row at most. To be done before the plan is
/// analyzed, which refuses what can give more.
pub(crate) fn make_single(plan: LogicalPlan, mode: &BindMode) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|e| {
            let name = names.save(&e);
            let done = e.transform_up(|e| match e {
                Expr::ScalarSubquery(s) if !at_most_one_row(&s.subquery) => Ok(Transformed::yes(single(s, mode)?)),
                other => Ok(Transformed::no(other)),
            })?;
            Ok(if done.transformed { done.update_data(|e| name.restore(e)) } else { done })
        })
    })?;
    Ok(done.data)
}

/// The value of `s`, with its rows counted. Where too many are an error, that must show only if
/// an outer row needs the value, so rows and value come as two subqueries that the outer query
/// puts together.
fn single(s: Subquery, mode: &BindMode) -> Result<Expr> {
    let (qualifier, field) = s.subquery.schema().qualified_field(0);
    let name = field.name().clone();
    let column = Expr::Column(Column::from((qualifier, field)));
    let nested = field.data_type().is_nested();
    let errors = match mode {
        BindMode::Continuous { .. } if nested => {
            return Err(refuse(format_args!(
                "a scalar subquery of type {} that may give several rows",
                crate::sql::types::display(field.data_type())
            )));
        }
        BindMode::Continuous { errors } => Some(errors.clone()),
        BindMode::AdHoc => None,
    };
    let together = errors.is_some();
    let shown = format!("(SELECT {name} …)");
    let udf = SingleValue { errors, shown, signature: Signature::any(2, Volatility::Immutable) };
    let udf = ScalarUDF::new_from_impl(udf);
    let rows = count(lit(1i64)).alias("__rows");
    let value = if nested { first_value(column, vec![]) } else { max(column) }.alias("__value");
    let aggregated =
        |calls: Vec<Expr>| LogicalPlanBuilder::from(Arc::clone(&s.subquery)).aggregate(Vec::<Expr>::new(), calls);
    let subquery = |plan: LogicalPlan| {
        let outer_ref_columns = plan.all_out_ref_exprs();
        Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: s.spans.clone() })
    };
    if together {
        let args = ["__rows", "__value"].map(|c| Expr::Column(Column::new_unqualified(c))).to_vec();
        return Ok(subquery(aggregated(vec![rows, value])?.project(vec![udf.call(args).alias(name)])?.build()?));
    }
    Ok(udf.call(vec![subquery(aggregated(vec![rows])?.build()?), subquery(aggregated(vec![value])?.build()?)]))
}

/// Whether DataFusion takes a scalar subquery apart rightly: it pulls equality conditions on
/// the outer row up over one aggregate, but not everything over everything.
pub(super) fn is_simple(s: &Subquery) -> Result<bool> {
    if s.outer_ref_columns.is_empty() {
        return Ok(true);
    }
    let mut equal = true;
    s.subquery.apply(|node| {
        if !matches!(node, LogicalPlan::Filter(_)) {
            equal &= !node.contains_outer_reference();
        }
        if let LogicalPlan::Filter(f) = node {
            equal &= split_conjunction(&f.predicate).into_iter().filter(|c| c.contains_outer()).all(compares_column);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(equal && is_over_aggregate(&s.subquery))
}

/// Whether `e` says that a column equals something of the outer row.
fn compares_column(e: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = e else { return false };
    let outer = |e: &Expr| !e.any_column_refs();
    match (left.as_ref(), right.as_ref()) {
        (Expr::Column(_), other) | (other, Expr::Column(_)) => outer(other),
        _ => false,
    }
}

/// Whether a plan cannot give more than one row (per outer row, when correlated).
fn at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(p) => at_most_one_row(&p.input),
        LogicalPlan::Filter(f) => at_most_one_row(&f.input),
        LogicalPlan::SubqueryAlias(s) => at_most_one_row(&s.input),
        LogicalPlan::Sort(s) => at_most_one_row(&s.input),
        LogicalPlan::Distinct(Distinct::All(d)) => at_most_one_row(d),
        LogicalPlan::Limit(l) => {
            matches!(l.get_fetch_type(), Ok(FetchType::Literal(Some(0 | 1)))) || at_most_one_row(&l.input)
        }
        LogicalPlan::Aggregate(a) => a.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(_) => true,
        _ => false,
    }
}

/// Whether outer columns are used only in conditions below one aggregate without GROUP BY.
fn is_over_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(p) => is_over_aggregate(&p.input),
        LogicalPlan::SubqueryAlias(s) => is_over_aggregate(&s.input),
        LogicalPlan::Sort(s) if s.fetch.is_none() => is_over_aggregate(&s.input),
        LogicalPlan::Distinct(Distinct::All(d)) => is_over_aggregate(d),
        LogicalPlan::Aggregate(a) => a.group_expr.is_empty() && is_conditional(&a.input),
        _ => false,
    }
}

fn is_conditional(plan: &LogicalPlan) -> bool {
    if plan.all_out_ref_exprs().is_empty() {
        return true;
    }
    match plan {
        LogicalPlan::Filter(f) => is_conditional(&f.input),
        LogicalPlan::Projection(p) => is_conditional(&p.input),
        LogicalPlan::SubqueryAlias(a) => is_conditional(&a.input),
        LogicalPlan::Join(j) if j.join_type == JoinType::Inner => is_conditional(&j.left) && is_conditional(&j.right),
        _ => false,
    }
}

/// `single_value(rows, value)`: the value, if there is no more than one row.
#[derive(Debug)]
struct SingleValue {
    /// Where more rows are counted; `None` makes them an error.
    errors: Option<ErrorCounter>,
    shown: String,
    signature: Signature,
}

impl PartialEq for SingleValue {
    fn eq(&self, other: &Self) -> bool {
        self.errors.is_some() == other.errors.is_some() && self.shown == other.shown
    }
}

impl Eq for SingleValue {}

impl Hash for SingleValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.errors.is_some().hash(state);
        self.shown.hash(state);
    }
}

impl ScalarUDFImpl for SingleValue {
    fn name(&self) -> &str {
        SINGLE_VALUE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [_, value] => Ok(value.clone()),
            _ => exec_err!("{SINGLE_VALUE} needs two arguments"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [rows, value] = args.args.as_slice() else {
            return exec_err!("{SINGLE_VALUE} needs two arguments");
        };
        let scalar = matches!((rows, value), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let n = if scalar { 1 } else { args.number_rows };
        let (rows, value) = (rows.to_array(n)?, value.to_array(n)?);
        let Some(rows) = rows.as_primitive_opt::<Int64Type>() else {
            return exec_err!("{SINGLE_VALUE} needs a number of rows");
        };
        let many: BooleanArray = rows.iter().map(|r| Some(r.is_some_and(|r| r > 1))).collect();
        let failed = many.true_count() as u64;
        let value: ArrayRef = match &self.errors {
            _ if failed == 0 => value,
            Some(errors) => {
                errors.report(&self.shown, failed, TOO_MANY)?;
                nullif(&value, &many)?
            }
            None => return Err(SpateError::new(ErrorKind::Evaluation, TOO_MANY).into()),
        };
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&value, 0)?));
        }
        Ok(ColumnarValue::Array(value))
    }
}
