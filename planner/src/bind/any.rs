//! `x op ANY (array)` and `x op ALL (array)` with the NULLs of three-valued logic: an element that is
//! NULL makes the answer unknown unless another decides it. (DataFusion passes over NULL elements.)
//! ALL is NOT ANY of the opposite comparison.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, make_comparator};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field};
use datafusion_common::{Result, exec_err, plan_err};
use datafusion_expr::type_coercion::binary::comparison_coercion;
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion_sql::sqlparser::ast::{BinaryOperator as Op, Expr};
use spate_engine::types::error::{ErrorKind, SpateError};

use super::families::apart;
use super::rewrite::call;
use crate::sql::types::display;

/// The functions, by operator.
const FUNCTIONS: [(Op, &str); 6] = [
    (Op::Eq, "any_equal"),
    (Op::NotEq, "any_not_equal"),
    (Op::Lt, "any_less"),
    (Op::LtEq, "any_less_or_equal"),
    (Op::Gt, "any_greater"),
    (Op::GtEq, "any_greater_or_equal"),
];

/// Whether a function is one of these; they do not fail.
pub(crate) fn is_any(name: &str) -> bool {
    FUNCTIONS.iter().any(|f| f.1 == name)
}

pub(super) fn functions() -> impl Iterator<Item = (&'static str, Arc<ScalarUDF>)> {
    let signature = Signature::user_defined(Volatility::Immutable);
    FUNCTIONS.iter().enumerate().map(move |(i, f)| {
        (f.1, Arc::new(ScalarUDF::new_from_impl(AnyOf { function: i, signature: signature.clone() })))
    })
}

/// `left op ANY (right)` as a call, if the operator is a comparison.
pub(super) fn any(left: &Expr, op: &Op, right: &Expr) -> Option<Expr> {
    let (_, name) = FUNCTIONS.iter().find(|f| f.0 == *op)?;
    Some(call(name, vec![left.clone(), right.clone()]))
}

/// The comparison that holds where `op` does not.
pub(super) fn opposite(op: &Op) -> Option<Op> {
    Some(match op {
        Op::Eq => Op::NotEq,
        Op::NotEq => Op::Eq,
        Op::Lt => Op::GtEq,
        Op::LtEq => Op::Gt,
        Op::Gt => Op::LtEq,
        Op::GtEq => Op::Lt,
        _ => return None,
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AnyOf {
    /// Place in [`FUNCTIONS`].
    function: usize,
    signature: Signature,
}

impl AnyOf {
    fn op(&self) -> &'static Op {
        &FUNCTIONS[self.function].0
    }

    fn holds(&self, order: Ordering) -> bool {
        match self.op() {
            Op::Eq => order.is_eq(),
            Op::NotEq => order.is_ne(),
            Op::Lt => order.is_lt(),
            Op::LtEq => order.is_le(),
            Op::Gt => order.is_gt(),
            _ => order.is_ge(),
        }
    }
}

impl ScalarUDFImpl for AnyOf {
    fn name(&self) -> &str {
        FUNCTIONS[self.function].1
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [left, right] = types else { return plan_err!("ANY needs a value and an array") };
        let element = match right {
            DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) => f.data_type().clone(),
            DataType::Null => left.clone(),
            // The text form of an array.
            DataType::Utf8 | DataType::Utf8View => left.clone(),
            _ => {
                let what = format!("op ANY/ALL requires an array on its right side, not {}", display(right));
                return Err(SpateError::new(ErrorKind::Type, what).into());
            }
        };
        let common = match (left, &element) {
            (a, b) if a == b => Some(a.clone()),
            (a, b) if apart(a, b) => None,
            (DataType::Null, b) => Some(b.clone()),
            (a, DataType::Null) => Some(a.clone()),
            // A text takes the type of what it meets.
            (DataType::Utf8, b) => Some(b.clone()),
            (a, DataType::Utf8) => Some(a.clone()),
            (a, b) => comparison_coercion(a, b),
        };
        let Some(common) = common else {
            let what = format!("operator does not exist: {} {} {}", display(left), self.op(), display(&element));
            return Err(SpateError::new(ErrorKind::Type, what)
                .with_hint("cast one side to the type of the other")
                .into());
        };
        let list = DataType::List(Arc::new(Field::new_list_field(common.clone(), true)));
        Ok(vec![common, list])
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [left, right] = args.args.as_slice() else { return exec_err!("ANY needs a value and an array") };
        let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
        let Some(lists) = right.as_list_opt::<i32>() else { return exec_err!("ANY needs an array") };
        let values = lists.values();
        let compare = make_comparator(left.as_ref(), values.as_ref(), SortOptions::default())?;
        let out: BooleanArray = (0..rows)
            .map(|i| {
                if lists.is_null(i) {
                    return None;
                }
                let elements = lists.value_offsets()[i] as usize..lists.value_offsets()[i + 1] as usize;
                if elements.is_empty() {
                    return Some(false);
                }
                if left.is_null(i) {
                    return None;
                }
                let mut unknown = false;
                for j in elements {
                    if values.is_null(j) {
                        unknown = true;
                    } else if self.holds(compare(i, j)) {
                        return Some(true);
                    }
                }
                (!unknown).then_some(false)
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}
