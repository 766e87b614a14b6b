//! Variances, covariances, correlation and linear regression from exact sums
//! ([`spate_engine::types::moments`]), so that batch and stream give the same digits whatever the
//! order of rows, and a change costs the change and not the group. This is the batch side; the
//! operator keeps the same sums.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, Signature, Volatility, cast};
use spate_engine::types::exact::ExactSum;
use spate_engine::types::moments::{Moment, Sums};

/// One of these functions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Moments {
    moment: Moment,
    signature: Signature,
}

impl Moments {
    fn new(moment: Moment) -> Self {
        let args = vec![DataType::Float64; if moment.of_pairs() { 2 } else { 1 }];
        Self { moment, signature: Signature::exact(args, Volatility::Immutable) }
    }

    /// Which one it is.
    pub fn moment(&self) -> Moment {
        self.moment
    }
}

/// The new form of a call of one of these functions, if it has one: distinct values are sorted.
pub(super) fn exact(f: &AggregateFunction, input: &datafusion_common::DFSchema) -> Result<Option<Expr>> {
    let Some(moment) = Moment::named(f.func.name()) else { return Ok(None) };
    let AggregateFunctionParams { args, distinct, filter, null_treatment, .. } = &f.params;
    if *distinct || null_treatment.is_some() || args.len() != if moment.of_pairs() { 2 } else { 1 } {
        return Ok(None);
    }
    let mut floats = Vec::with_capacity(args.len());
    for a in args {
        floats.push(match a.get_type(input)? {
            DataType::Float64 => a.clone(),
            t if t.is_numeric() || t.is_null() => cast(a.clone(), DataType::Float64),
            _ => return Ok(None),
        });
    }
    let func = Arc::new(AggregateUDF::new_from_impl(Moments::new(moment)));
    let params = AggregateFunctionParams {
        args: floats,
        distinct: false,
        filter: filter.clone(),
        order_by: vec![],
        null_treatment: None,
    };
    Ok(Some(Expr::AggregateFunction(AggregateFunction { func, params })))
}

impl AggregateUDFImpl for Moments {
    fn name(&self) -> &str {
        self.moment.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Collect { moment: self.moment, sums: Sums::default() }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |what: &str, t| Arc::new(Field::new(format!("{}[{what}]", args.name), t, true));
        let mut out = vec![field("rows", DataType::Int64), field("odd", DataType::Int64)];
        out.extend(["a", "b", "aa", "bb", "ab"].map(|n| field(n, DataType::Binary)));
        Ok(out)
    }
}

#[derive(Debug)]
struct Collect {
    moment: Moment,
    sums: Sums,
}

impl Accumulator for Collect {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let Some(a) = columns.first().and_then(|c| c.as_primitive_opt::<Float64Type>()) else {
            return internal_err!("{} of something else than floats", self.moment);
        };
        let b = columns.get(1).and_then(|c| c.as_primitive_opt::<Float64Type>());
        for row in (0..a.len()).filter(|r| a.is_valid(*r)) {
            match b {
                Some(b) if b.is_null(row) => {}
                Some(b) => self.sums.add(a.value(row), Some(b.value(row)), 1),
                None => self.sums.add(a.value(row), None, 1),
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut out = vec![ScalarValue::Int64(Some(self.sums.rows)), ScalarValue::Int64(Some(self.sums.odd))];
        for s in &self.sums.sums {
            let mut bytes = None;
            s.store(&mut bytes);
            out.push(ScalarValue::Binary(bytes.map(Into::into)));
        }
        Ok(out)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [rows, odd, sums @ ..] = states else { return internal_err!("the state of {} is damaged", self.moment) };
        let (rows, odd) = (rows.as_primitive::<Int64Type>(), odd.as_primitive::<Int64Type>());
        for row in 0..rows.len() {
            let mut other = Sums { rows: rows.value(row), odd: odd.value(row), ..Sums::default() };
            for (to, from) in other.sums.iter_mut().zip(sums) {
                let from = from.as_binary::<i32>();
                *to = ExactSum::decode(from.is_valid(row).then(|| from.value(row)));
            }
            self.sums.merge(&other);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.moment.result(&self.sums)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.sums.iter().map(ExactSum::size).sum::<usize>()
    }
}
