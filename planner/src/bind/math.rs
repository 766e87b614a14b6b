//! PostgreSQL's names for what DataFusion has as operators only.

use arrow::array::{ArrayRef, Datum};
use arrow::compute::kernels::numeric;
use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion_expr::{ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// The functions.
pub(super) fn all() -> Vec<ScalarUDF> {
    vec![ScalarUDF::new_from_impl(Mod { signature: Signature::user_defined(Volatility::Immutable) })]
}

/// `mod(a, b)`: the remainder of `a / b`, with the sign of `a`; an error where `b` is 0.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mod {
    signature: Signature,
}

impl ScalarUDFImpl for Mod {
    fn name(&self) -> &str {
        "mod"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [a, b] => BinaryTypeCoercer::new(a, &Operator::Modulo, b).get_result_type(),
            _ => plan_err!("mod takes two numbers"),
        }
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let number = |t: &DataType| t.is_numeric() || t.is_null();
        match types {
            [a, b] if number(a) && number(b) => {
                let (a, b) = BinaryTypeCoercer::new(a, &Operator::Modulo, b).get_input_types()?;
                Ok(vec![a, b])
            }
            _ => plan_err!("mod takes two numbers"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let datum = |v: &ColumnarValue| -> Result<Box<dyn Datum>> {
            Ok(match v {
                ColumnarValue::Array(a) => Box::new(ArrayRef::clone(a)),
                ColumnarValue::Scalar(s) => Box::new(s.to_scalar()?),
            })
        };
        let [a, b] = args.args.as_slice() else { return plan_err!("mod takes two numbers") };
        let out = numeric::rem(datum(a)?.as_ref(), datum(b)?.as_ref())?;
        if matches!((a, b), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_))) {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?));
        }
        Ok(ColumnarValue::Array(out))
    }
}
