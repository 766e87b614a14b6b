//! Constants in grouping sets. Such a column holds the constant in the rows of the sets that name it
//! and NULL in the others, but DataFusion 55.2 takes it for constant and leaves it out of ORDER BY.
//! So the constant gets something beside it of which nobody knows that it is always the same.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, ScalarValue, exec_err};
use datafusion_expr::expr::{GroupingSet, ScalarFunction};
use datafusion_expr::{
    Aggregate, ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

/// Makes the constants of all grouping sets look as if they were none. After the check that a
/// continuous query calls nothing volatile.
pub(crate) fn hide(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(a) => match hidden_sets(&a) {
            Some(sets) => {
                let group = vec![Expr::GroupingSet(GroupingSet::GroupingSets(sets))];
                Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(a.input, group, a.aggr_expr)?)))
            }
            None => Ok(Transformed::no(LogicalPlan::Aggregate(a))),
        },
        other => Ok(Transformed::no(other)),
    })?;
    Ok(done.data)
}

fn hidden_sets(a: &Aggregate) -> Option<Vec<Vec<Expr>>> {
    let [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] = a.group_expr.as_slice() else { return None };
    if !sets.iter().flatten().any(is_constant) {
        return None;
    }
    let hidden = Arc::new(ScalarUDF::from(Hidden { signature: Signature::any(2, Volatility::Immutable) }));
    // Volatile, else it would be computed while the query is planned.
    let unknown = Arc::new(ScalarUDF::from(Unknown { signature: Signature::nullary(Volatility::Volatile) }));
    let hide = |e: &Expr| match is_constant(e) {
        true => {
            let name = e.schema_name().to_string();
            let unknown = Expr::ScalarFunction(ScalarFunction::new_udf(unknown.clone(), vec![]));
            let args = vec![e.clone().unalias(), unknown];
            Expr::ScalarFunction(ScalarFunction::new_udf(hidden.clone(), args)).alias(name)
        }
        false => e.clone(),
    };
    Some(sets.iter().map(|set| set.iter().map(hide).collect()).collect())
}

fn is_constant(e: &Expr) -> bool {
    let mut depends = false;
    let _ = e.apply(|e| {
        depends |= matches!(e, Expr::Column(_) | Expr::OuterReferenceColumn(..));
        Ok(TreeNodeRecursion::Continue)
    });
    !depends && !e.is_volatile()
}

/// `__hidden(value, __unknown())`: the value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Hidden {
    signature: Signature,
}

impl ScalarUDFImpl for Hidden {
    fn name(&self) -> &str {
        "__hidden"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(t) => Ok(t.clone()),
            None => exec_err!("__hidden needs a value"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields.first() {
            Some(field) => Ok(Arc::clone(field)),
            None => exec_err!("__hidden needs a value"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => exec_err!("__hidden needs a value"),
        }
    }
}

/// `__unknown()`: NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Unknown {
    signature: Signature,
}

impl ScalarUDFImpl for Unknown {
    fn name(&self) -> &str {
        "__unknown"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Null)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Null))
    }
}
