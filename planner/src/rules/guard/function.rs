//! The function that evaluates a guarded operation. It takes the whole batch at once; only
//! when that fails it halves the batch until the failing rows are alone, so that a few bad
//! rows cost a few evaluations more.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::array_value_to_string;
use datafusion_common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use datafusion_physical_expr::PhysicalExpr;

use super::ErrorCounter;
use crate::sql::types::display;

/// How failures show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A cast that gives NULL by itself for what does not fit.
    Cast,
    /// Division: zero divisors are set aside beforehand (they are the common failure).
    Divide {
        /// Which argument is the divisor; `None` when it is a constant.
        divisor: Option<usize>,
    },
    /// By an error for the batch.
    Other,
}

/// A guarded operation.
#[derive(Debug)]
pub(super) struct Guard {
    name: String,
    template: Expr,
    kind: Kind,
    schema: SchemaRef,
    return_type: DataType,
    physical: Arc<dyn PhysicalExpr>,
    shown: String,
    signature: Signature,
    errors: ErrorCounter,
}

impl PartialEq for Guard {
    fn eq(&self, other: &Self) -> bool {
        // The rest follows from these, or does not affect values.
        self.template == other.template && self.kind == other.kind && self.schema == other.schema
    }
}

impl Eq for Guard {}

impl Hash for Guard {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.template.hash(state);
        self.kind.hash(state);
    }
}

impl Guard {
    /// `template` over the columns of `schema` (`$0`, `$1`, …), as `physical`; `shown` is
    /// the expression as the user knows it.
    pub(super) fn new(
        template: Expr,
        kind: Kind,
        schema: SchemaRef,
        return_type: DataType,
        physical: Arc<dyn PhysicalExpr>,
        shown: String,
        errors: ErrorCounter,
    ) -> Self {
        let name = format!("try[{template}]");
        let signature = Signature::any(schema.fields().len(), Volatility::Immutable);
        Self { name, template, kind, schema, return_type, physical, shown, signature, errors }
    }

    /// The guarded operation over arguments `$0`, `$1`, ….
    pub(super) fn template(&self) -> &Expr {
        &self.template
    }

    fn evaluate(&self, arrays: Vec<ArrayRef>, rows: usize) -> Result<ArrayRef> {
        let mut failures = Failures::default();
        let mut arrays = arrays;
        if let Kind::Divide { divisor: Some(i) } = self.kind {
            self.set_zeros_aside(&mut arrays, i, &mut failures)?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema_of(&arrays), arrays, &options)?;
        let out = self.halve(&batch, &mut failures)?;
        if self.kind == Kind::Cast {
            self.count_lost(&batch, &out, &mut failures);
        }
        if failures.rows > 0 {
            self.errors.report(&self.shown, failures.rows, &failures.sample)?;
        }
        Ok(out)
    }

    /// The schema of the arguments as they came. Types are as planned, but the names inside
    /// nested ones may differ.
    fn schema_of(&self, arrays: &[ArrayRef]) -> SchemaRef {
        let planned = self.schema.fields();
        if planned.iter().zip(arrays).all(|(f, a)| f.data_type() == a.data_type()) {
            return Arc::clone(&self.schema);
        }
        let fields = planned.iter().zip(arrays);
        Arc::new(Schema::new(
            fields.map(|(f, a)| f.as_ref().clone().with_data_type(a.data_type().clone())).collect::<Vec<Field>>(),
        ))
    }

    /// Makes zero divisors NULL, so that the quotient is.
    fn set_zeros_aside(&self, arrays: &mut [ArrayRef], divisor: usize, failures: &mut Failures) -> Result<()> {
        let Some(array) = arrays.get(divisor) else {
            return internal_err!("a guarded division without its divisor");
        };
        if array.is_empty() || array.data_type() == &DataType::Null {
            return Ok(());
        }
        let zero = ScalarValue::new_zero(array.data_type())?.to_scalar()?;
        let zeros = compute::kernels::cmp::eq(array, &zero)?;
        if zeros.true_count() == 0 {
            return Ok(());
        }
        // NULL / 0 is NULL and no failure.
        let failed = match arrays.iter().enumerate().find(|(i, _)| *i != divisor) {
            Some((_, dividend)) if dividend.null_count() > 0 => {
                let known = compute::is_not_null(dividend)?;
                compute::and_kleene(&zeros, &known)?.true_count()
            }
            _ => zeros.true_count(),
        };
        failures.add(failed as u64, || "division by zero".to_string());
        let nulled = compute::nullif(array, &zeros)?;
        if let Some(slot) = arrays.get_mut(divisor) {
            *slot = nulled;
        }
        Ok(())
    }

    fn halve(&self, batch: &RecordBatch, failures: &mut Failures) -> Result<ArrayRef> {
        let rows = batch.num_rows();
        let error = match self.physical.evaluate(batch).and_then(|v| v.into_array(rows)) {
            Ok(array) => return Ok(array),
            Err(e @ DataFusionError::ResourcesExhausted(_)) => return Err(e),
            Err(e) => e,
        };
        if rows == 0 {
            return Ok(new_null_array(&self.return_type, 0));
        }
        if rows == 1 {
            failures.add(1, || crate::bind::bind_error(error).message().to_string());
            return Ok(new_null_array(&self.return_type, 1));
        }
        let middle = rows / 2;
        let left = self.halve(&batch.slice(0, middle), failures)?;
        let right = self.halve(&batch.slice(middle, rows - middle), failures)?;
        Ok(compute::concat(&[left.as_ref(), right.as_ref()])?)
    }

    /// Counts what a cast turned into NULL.
    fn count_lost(&self, batch: &RecordBatch, out: &ArrayRef, failures: &mut Failures) {
        let Some(input) = batch.columns().first() else {
            return;
        };
        let lost = out.null_count().saturating_sub(input.null_count()) as u64;
        // Rows counted one by one failed with an error; they are among the NULLs.
        let lost = lost.saturating_sub(failures.rows);
        if lost == 0 {
            return;
        }
        let first = (0..input.len()).find(|&i| input.is_valid(i) && out.is_null(i));
        failures.add(lost, || {
            let value = first.and_then(|i| array_value_to_string(input, i).ok()).unwrap_or_default();
            let (from, to) = (display(input.data_type()), display(&self.return_type));
            format!("cannot cast value \"{value}\" of type {from} to {to}")
        });
    }
}

#[derive(Default)]
struct Failures {
    rows: u64,
    sample: String,
}

impl Failures {
    fn add(&mut self, rows: u64, sample: impl FnOnce() -> String) {
        if self.rows == 0 && rows > 0 {
            self.sample = sample();
        }
        self.rows += rows;
    }
}

impl ScalarUDFImpl for Guard {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.return_type.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|a| a.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let out = self.evaluate(arrays, rows)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?));
        }
        Ok(ColumnarValue::Array(out))
    }
}
