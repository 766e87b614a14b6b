//! `<`, GREATEST and the like over arrays, structs and maps, ordered as ORDER BY, min and max have
//! them: element by element, NULLs within after all values. DataFusion puts those NULLs first in
//! comparisons alone.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, make_comparator, new_null_array};
use arrow::compute::{SortOptions, interleave};
use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchemaRef, Result, ScalarValue, exec_err};
use datafusion_expr::expr::{Between, BinaryExpr, ScalarFunction};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, not,
};

/// The functions that these become.
pub(crate) const NAMES: [&str; 6] = [
    "nested_less",
    "nested_less_or_equal",
    "nested_greater",
    "nested_greater_or_equal",
    "nested_greatest",
    "nested_least",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Greatest,
    Least,
}

/// Rewrites an analyzed plan.
pub(crate) fn compared(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let schema: DFSchemaRef = match node.inputs().as_slice() {
            [] => Arc::clone(node.schema()),
            inputs => Arc::new(merge_schema(inputs)),
        };
        super::map_named(node, |e| e.transform_up(|e| rewritten(e, &schema)))
    })?;
    Ok(done.data)
}

fn rewritten(e: Expr, schema: &DFSchemaRef) -> Result<Transformed<Expr>> {
    let nested = |e: &Expr| e.get_type(schema).is_ok_and(|t| t.is_nested());
    Ok(match e {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match kind(op) {
            Some(kind) if nested(&left) && nested(&right) => Transformed::yes(call(kind, vec![*left, *right])),
            _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
        },
        Expr::Between(Between { expr, negated, low, high }) if nested(&expr) => {
            let from = call(Kind::GreaterOrEqual, vec![expr.as_ref().clone(), *low]);
            let both = from.and(call(Kind::LessOrEqual, vec![*expr, *high]));
            Transformed::yes(if negated { not(both) } else { both })
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            let kind = match func.name() {
                "greatest" => Some(Kind::Greatest),
                "least" => Some(Kind::Least),
                _ => None,
            };
            match kind {
                Some(kind) if args.iter().any(nested) => Transformed::yes(call(kind, args)),
                _ => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
            }
        }
        other => Transformed::no(other),
    })
}

fn kind(op: Operator) -> Option<Kind> {
    Some(match op {
        Operator::Lt => Kind::Less,
        Operator::LtEq => Kind::LessOrEqual,
        Operator::Gt => Kind::Greater,
        Operator::GtEq => Kind::GreaterOrEqual,
        _ => return None,
    })
}

fn call(kind: Kind, args: Vec<Expr>) -> Expr {
    let signature = Signature::variadic_any(Volatility::Immutable);
    ScalarUDF::new_from_impl(Nested { kind, signature }).call(args)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Nested {
    kind: Kind,
    signature: Signature,
}

/// How the rows of two arrays compare.
fn comparator(a: &ArrayRef, b: &ArrayRef) -> Result<arrow::array::DynComparator> {
    Ok(make_comparator(a.as_ref(), b.as_ref(), SortOptions { descending: false, nulls_first: false })?)
}

impl Nested {
    fn test(&self, a: &ArrayRef, b: &ArrayRef) -> Result<ArrayRef> {
        let compare = comparator(a, b)?;
        let holds = |order: Ordering| match self.kind {
            Kind::Less => order.is_lt(),
            Kind::LessOrEqual => order.is_le(),
            Kind::Greater => order.is_gt(),
            _ => order.is_ge(),
        };
        let out: BooleanArray =
            (0..a.len()).map(|i| (a.is_valid(i) && b.is_valid(i)).then(|| holds(compare(i, i)))).collect();
        Ok(Arc::new(out))
    }

    /// The greater of two, or the less; what is not NULL, if one is.
    fn choose(&self, a: &ArrayRef, b: &ArrayRef) -> Result<ArrayRef> {
        let compare = comparator(a, b)?;
        let wanted = if self.kind == Kind::Greatest { Ordering::Less } else { Ordering::Greater };
        let take: Vec<(usize, usize)> = (0..a.len())
            .map(|i| {
                let second = match (a.is_valid(i), b.is_valid(i)) {
                    (true, true) => compare(i, i) == wanted,
                    (first, second) => second && !first,
                };
                (usize::from(second), i)
            })
            .collect();
        Ok(interleave(&[a.as_ref(), b.as_ref()], &take)?)
    }
}

impl ScalarUDFImpl for Nested {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Less => NAMES[0],
            Kind::LessOrEqual => NAMES[1],
            Kind::Greater => NAMES[2],
            Kind::GreaterOrEqual => NAMES[3],
            Kind::Greatest => NAMES[4],
            Kind::Least => NAMES[5],
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match self.kind {
            Kind::Greatest | Kind::Least => Ok(types.iter().find(|t| !t.is_null()).cloned().unwrap_or(DataType::Null)),
            _ => Ok(DataType::Boolean),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|a| a.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let out = match (self.kind, arrays.as_slice()) {
            (Kind::Greatest | Kind::Least, all) => {
                let of_type = args.return_field.data_type();
                let mut best = new_null_array(of_type, rows);
                for array in all.iter().filter(|a| a.data_type() == of_type) {
                    best = self.choose(&best, array)?;
                }
                best
            }
            (_, [a, b]) => self.test(a, b)?,
            _ => return exec_err!("{} takes two arguments", self.name()),
        };
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?));
        }
        Ok(ColumnarValue::Array(out))
    }
}
