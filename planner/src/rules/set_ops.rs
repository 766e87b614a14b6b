//! INTERSECT and EXCEPT, rewritten while a query is bound. DataFusion plans them as semi and
//! anti joins, which is right for sets and wrong for bags: of a row that comes l times on the
//! left and r times on the right, INTERSECT ALL has min(l, r) copies and EXCEPT ALL l − r.
//!
//! So with ALL both sides are put together with a 1 in one of two more columns, grouped, and
//! each row is repeated as often as the sums say, by a list of so many elements that is
//! unfolded ([`COPIES`]). Without ALL the joins stay, over sides of common types.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, AsArray, Int64Builder, ListBuilder};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, NullEquality, Result, ScalarValue, UnnestOptions, exec_err};
use datafusion_expr::type_coercion::binary::type_union_coercion;
use datafusion_expr::{
    ColumnarValue, Distinct, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast, lit, when,
};
use datafusion_functions_aggregate::expr_fn::sum;
use spate_engine::types::error::SpateError;

use crate::sql::types::display;

/// Name of the function that lists its argument as often as it says.
pub(crate) const COPIES: &str = "__copies";

static COPIES_UDF: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(Copies { signature: Signature::exact(vec![DataType::Int64], Volatility::Immutable) })
});

/// Rewrites every INTERSECT and EXCEPT of a plan as planned from SQL, before types are coerced.
pub(crate) fn as_bags(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut made = 0;
    let done = plan.transform_up_with_subqueries(|node| {
        let node = match node {
            LogicalPlan::Join(j) if is_set_operation(&j) => {
                made += 1;
                LogicalPlan::clone(&rewrite(j, made)?)
            }
            other if made > 0 => other.recompute_schema()?,
            other => return Ok(Transformed::no(other)),
        };
        Ok(Transformed::yes(node))
    })?;
    Ok(done.data)
}

/// Before optimizing, only INTERSECT and EXCEPT have keys that compare NULL with NULL.
fn is_set_operation(j: &Join) -> bool {
    matches!(j.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && j.null_equality == NullEquality::NullEqualsNull
        && !j.on.is_empty()
        && j.filter.is_none()
}

fn rewrite(j: Join, number: usize) -> Result<LogicalPlan> {
    let outputs = j.schema.columns();
    // A left side of different rows gives the same with ALL and without.
    let (left, distinct) = match j.left.as_ref() {
        LogicalPlan::Distinct(Distinct::All(input)) => (Arc::clone(input), true),
        _ => (Arc::clone(&j.left), false),
    };
    let mut types = Vec::with_capacity(outputs.len());
    for (l, r) in left.schema().fields().iter().zip(j.right.schema().fields()) {
        let (l, r) = (l.data_type(), r.data_type());
        let name = if j.join_type == JoinType::LeftSemi { "INTERSECT" } else { "EXCEPT" };
        if let Some(error) = crate::bind::unmatched(name, &[l.clone(), r.clone()]) {
            return Err(error.into());
        }
        types.push(type_union_coercion(l, r).ok_or_else(|| {
            let message = format!("{name} types {} and {} cannot be matched", display(l), display(r));
            SpateError::new(spate_engine::types::ErrorKind::Type, message)
        })?);
    }
    let sides = [format!("__left{number}"), format!("__right{number}")];
    let named = |plan: &LogicalPlan, side: &str| {
        let columns = plan.schema().columns();
        let fields = plan.schema().fields().iter();
        let exprs: Vec<Expr> = columns
            .into_iter()
            .zip(fields)
            .zip(&types)
            .enumerate()
            .map(|(i, ((c, f), t))| {
                let e = if f.data_type() == t { Expr::Column(c) } else { cast(Expr::Column(c), t.clone()) };
                e.alias_qualified(Some(side), format!("c{i}"))
            })
            .collect();
        LogicalPlanBuilder::from(plan.clone()).project(exprs)?.build()
    };
    let (l, r) = (named(&left, &sides[0])?, named(&j.right, &sides[1])?);
    let place = |side: &str, i: usize| Column::new(Some(side), format!("c{i}"));
    let rows = if distinct {
        let keys = |side: &str| (0..outputs.len()).map(|i| place(side, i)).collect::<Vec<_>>();
        let on = (keys(&sides[0]), keys(&sides[1]));
        LogicalPlanBuilder::from(l)
            .distinct()?
            .join_detailed(r, j.join_type, on, None, NullEquality::NullEqualsNull)?
            .build()?
    } else {
        repeated(l, r, j.join_type == JoinType::LeftSemi, &sides[0])?
    };
    let back = outputs
        .into_iter()
        .enumerate()
        .map(|(i, c)| Expr::Column(place(&sides[0], i)).alias_qualified(c.relation, c.name));
    LogicalPlanBuilder::from(rows).project(back)?.build()
}

/// The rows of `l`, each as often as INTERSECT ALL or EXCEPT ALL has it.
fn repeated(l: LogicalPlan, r: LogicalPlan, intersect: bool, side: &str) -> Result<LogicalPlan> {
    let (in_left, in_right, copies) = ("__in_left", "__in_right", "__n");
    let columns = l.schema().columns();
    let counted = |plan: LogicalPlan, a: i64, b: i64| {
        let all = plan.schema().columns().into_iter().map(Expr::Column);
        let exprs: Vec<Expr> = all.chain([lit(a).alias(in_left), lit(b).alias(in_right)]).collect();
        LogicalPlanBuilder::from(plan).project(exprs)?.build()
    };
    // A union names its columns like its first input, without the qualifier.
    let both = LogicalPlanBuilder::from(counted(l, 1, 0)?).union(counted(r, 0, 1)?)?.build()?;
    let keys: Vec<Column> = both.schema().columns().into_iter().take(columns.len()).collect();
    let total = |name: &str| {
        let at = both.schema().columns().into_iter().find(|c| c.name == name);
        let column = at.unwrap_or_else(|| Column::new_unqualified(name));
        sum(Expr::Column(column)).alias(name)
    };
    let calls = vec![total(in_left), total(in_right)];
    let group: Vec<Expr> = keys.iter().cloned().map(Expr::Column).collect();
    let grouped = LogicalPlanBuilder::from(both).aggregate(group, calls)?.build()?;
    let (l, r) = (Expr::Column(Column::new_unqualified(in_left)), Expr::Column(Column::new_unqualified(in_right)));
    let count = if intersect { when(l.clone().lt(r.clone()), l).otherwise(r)? } else { l - r };
    let exprs: Vec<Expr> = keys
        .into_iter()
        .zip(columns)
        .map(|(k, c)| Expr::Column(k).alias_qualified(Some(side), c.name))
        .chain([COPIES_UDF.call(vec![count]).alias(copies)])
        .collect();
    let options = UnnestOptions::new().with_preserve_nulls(false);
    LogicalPlanBuilder::from(grouped)
        .project(exprs)?
        .unnest_column_with_options(Column::new_unqualified(copies), options)?
        .build()
}

/// `__copies(n)`: n copies of n; none if n is NULL or not above 0.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Copies {
    signature: Signature,
}

impl ScalarUDFImpl for Copies {
    fn name(&self) -> &str {
        COPIES
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(first) = args.args.first() else {
            return exec_err!("{COPIES} needs a number");
        };
        let scalar = matches!(first, ColumnarValue::Scalar(_));
        let array = first.to_array(if scalar { 1 } else { args.number_rows })?;
        let Some(counts) = array.as_primitive_opt::<Int64Type>() else {
            return exec_err!("{COPIES} needs a number");
        };
        let mut lists = ListBuilder::new(Int64Builder::new());
        for i in 0..counts.len() {
            let n = if counts.is_valid(i) { counts.value(i).max(0) } else { 0 };
            for _ in 0..n {
                lists.values().append_value(n);
            }
            lists.append(true);
        }
        let lists = lists.finish();
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&lists, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(lists)))
    }
}
