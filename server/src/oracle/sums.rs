//! Sums of floats as they should be. Batch adds them up in some order and rounds at every step, so that
//! 1e16, 1 and −1e16 may make 0. Where a view has another value, its query is computed again with sums
//! without rounding, and once more with each sum off by what a view's may be off: a few units in the
//! last place of the sum of absolute values. How far that moves a result is how far the view may be
//! from it, also where the query goes on to compute with its sums.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, LogicalPlan, Signature, Volatility,
};
use spate_engine::types::exact::ExactSum;

/// How far a view's sum may be off, in units in the last place of the sum of absolute values.
const ULPS: f64 = 4.0;
/// Sums of a query are moved by different multiples of it, so that no two take each other's place; this
/// many are told apart.
const APART: u32 = 5;

/// `plan` with its sums and means of floats without rounding, each moved by what it may be off if
/// `moved`; `None` if it has none. What it does with sums over windows or of distinct values stays.
pub(super) fn without_rounding(plan: LogicalPlan, moved: bool) -> Result<Option<LogicalPlan>> {
    let mut count = 0;
    let done = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(a) = &node else { return Ok(Transformed::no(node)) };
        let schema = Arc::clone(a.input.schema());
        let names = NamePreserver::new(&node);
        node.map_expressions(|e| {
            let name = names.save(&e);
            let done = e.transform_up(|e| {
                let Expr::AggregateFunction(f) = e else { return Ok(Transformed::no(e)) };
                let mean = match f.func.name() {
                    "sum" => false,
                    "avg" => true,
                    _ => return Ok(Transformed::no(Expr::AggregateFunction(f))),
                };
                let float = match f.params.args.as_slice() {
                    [x] => x.get_type(&schema)?.is_floating(),
                    _ => false,
                };
                if !float || f.params.distinct {
                    return Ok(Transformed::no(Expr::AggregateFunction(f)));
                }
                let off = if moved { ULPS * (-2f64).powi(i32::try_from(count % APART).unwrap_or(0)) } else { 0.0 };
                count += 1;
                let sum = Sum { mean, off: off.to_bits(), signature: Signature::any(1, Volatility::Immutable) };
                let func = Arc::new(AggregateUDF::new_from_impl(sum));
                Ok(Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params: f.params })))
            })?;
            Ok(done.update_data(|e| name.restore(e)))
        })
    })?;
    Ok((count > 0).then_some(done.data))
}

/// Whether floats are added up in `plan` in other ways, whose rounding is not known.
pub(super) fn others(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Window(_));
        node.apply_expressions(|e| {
            e.apply(|e| {
                found |= matches!(e, Expr::AggregateFunction(f) if f.params.distinct);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    /// Divided by the number of values.
    mean: bool,
    /// How far off, in units in the last place, as bits.
    off: u64,
    signature: Signature,
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        if self.mean { "exact_avg" } else { "exact_sum" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |what: &str, t: DataType| Arc::new(Field::new(format!("{}[{what}]", args.name), t, true));
        Ok(vec![
            field("sum", DataType::Binary),
            field("magnitude", DataType::Float64),
            field("values", DataType::Int64),
            field("special", DataType::Float64),
        ])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Adder {
            mean: self.mean,
            off: f64::from_bits(self.off),
            sum: ExactSum::default(),
            magnitude: 0.0,
            values: 0,
            special: None,
        }))
    }
}

#[derive(Debug)]
struct Adder {
    mean: bool,
    off: f64,
    sum: ExactSum,
    /// The sum of absolute values.
    magnitude: f64,
    values: i64,
    /// The sum of what is not finite, if there was any.
    special: Option<f64>,
}

impl Adder {
    fn add(&mut self, x: f64) {
        self.values += 1;
        if x.is_finite() {
            self.sum.add(x, 1);
            self.magnitude += x.abs();
        } else {
            self.special = Some(self.special.unwrap_or(0.0) + x);
        }
    }
}

impl Accumulator for Adder {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return exec_err!("a sum takes one argument") };
        let values = cast(values, &DataType::Float64)?;
        values.as_primitive::<Float64Type>().iter().flatten().for_each(|x| self.add(x));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.values == 0 {
            return Ok(ScalarValue::Float64(None));
        }
        let sum = match self.special {
            Some(special) => special,
            None => {
                let ulp = self.magnitude.next_up() - self.magnitude;
                let sum = self.sum.value().to_f64();
                if ulp.is_finite() { sum + self.off * ulp } else { sum }
            }
        };
        Ok(ScalarValue::Float64(Some(if self.mean { sum / self.values as f64 } else { sum })))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sum.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut bytes: Option<Box<[u8]>> = None;
        self.sum.store(&mut bytes);
        Ok(vec![
            ScalarValue::Binary(bytes.map(<[u8]>::into_vec)),
            ScalarValue::Float64(Some(self.magnitude)),
            ScalarValue::Int64(Some(self.values)),
            ScalarValue::Float64(self.special),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [sums, magnitudes, values, specials] = states else { return exec_err!("a sum has four states") };
        let (sums, magnitudes) = (sums.as_binary::<i32>(), magnitudes.as_primitive::<Float64Type>());
        let (values, specials) = (values.as_primitive::<Int64Type>(), specials.as_primitive::<Float64Type>());
        for i in 0..sums.len() {
            self.sum.merge(&ExactSum::decode(sums.is_valid(i).then(|| sums.value(i))));
            self.magnitude += magnitudes.value(i);
            self.values += values.value(i);
            if specials.is_valid(i) {
                self.special = Some(self.special.unwrap_or(0.0) + specials.value(i));
            }
        }
        Ok(())
    }
}
