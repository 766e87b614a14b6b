//! The window function that stands for an aggregate, `first_value`, `last_value` or
//! `nth_value` over a frame. Batch and stream evaluate the same one.
//!
//! DataFusion moves a frame by taking rows out of an accumulator. That makes float results
//! depend on the rows before the frame, turns Inf − Inf into NaN for good, and is missing for
//! most aggregates. Here a frame that moves is aggregated from its own rows, but for counts,
//! exact sums, least and greatest values.
//!
//! A *rank* argument numbers the partition's rows in an order without ties. The rows of a
//! frame are taken in that order, so that the result does not depend on how peers lie.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, Schema, UInt64Type};
use arrow::row::{RowConverter, SortField};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{Accumulator, AggregateUDF, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion_physical_expr::expressions::{Column, Literal};

use super::tree::SumTree;
use crate::rules::guard::ErrorCounter;

/// What is computed of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// An aggregate, of the frame's distinct rows only if `distinct`.
    Aggregate { function: Arc<AggregateUDF>, distinct: bool },
    /// The value of the n-th row; from the end if negative; NULL if 0.
    Nth(i64),
}

/// The function.
#[derive(Debug, Clone)]
pub(super) struct FrameFunction {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// How many arguments are the function's own; after them come a filter and a rank.
    pub(super) arity: usize,
    pub(super) filtered: bool,
    pub(super) ranked: bool,
    pub(super) ignore_nulls: bool,
    /// In a continuous query a failure gives NULL and is counted.
    pub(super) errors: Option<ErrorCounter>,
    pub(super) signature: Signature,
}

impl FrameFunction {
    pub(super) fn new(kind: Kind, name: &str, arity: usize, errors: Option<ErrorCounter>) -> Self {
        let signature = Signature::variadic_any(Volatility::Immutable);
        let name = name.to_owned();
        Self { kind, name, arity, filtered: false, ranked: false, ignore_nulls: false, errors, signature }
    }

    pub(super) fn into_udwf(self) -> Arc<WindowUDF> {
        Arc::new(WindowUDF::new_from_impl(self))
    }

    fn key(&self) -> (&Kind, usize, bool, bool, bool) {
        (&self.kind, self.arity, self.filtered, self.ranked, self.ignore_nulls)
    }
}

impl PartialEq for FrameFunction {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for FrameFunction {}

impl Hash for FrameFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl WindowUDFImpl for FrameFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let Some(own) = args.input_fields().get(..self.arity) else {
            return internal_err!("{} lacks arguments", self.name);
        };
        let field = match &self.kind {
            Kind::Aggregate { function, .. } => function.return_field(own)?,
            Kind::Nth(_) => match own.first() {
                Some(f) => Arc::clone(f),
                None => return internal_err!("{} lacks its argument", self.name),
            },
        };
        let nullable = !matches!(&self.kind, Kind::Aggregate { function, .. } if function.name() == "count");
        Ok(Arc::new(field.as_ref().clone().with_name(args.name()).with_nullable(nullable)))
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let Some(own) = args.input_fields().get(..self.arity) else {
            return internal_err!("{} lacks arguments", self.name);
        };
        let aggregate = match &self.kind {
            Kind::Aggregate { function, .. } => {
                // Accumulators look at the expressions for constants only.
                let fields: Vec<Field> =
                    own.iter().enumerate().map(|(i, f)| f.as_ref().clone().with_name(format!("${i}"))).collect();
                let exprs = args.input_exprs().iter().take(self.arity).enumerate().map(|(i, e)| {
                    let any: &dyn std::any::Any = e.as_ref();
                    match any.is::<Literal>() {
                        true => Arc::clone(e),
                        false => Arc::new(Column::new(&format!("${i}"), i)) as Arc<dyn PhysicalExpr>,
                    }
                });
                let builder = AggregateExprBuilder::new(Arc::clone(function), exprs.collect())
                    .schema(Arc::new(Schema::new(fields)))
                    .alias(self.name.clone())
                    .with_ignore_nulls(self.ignore_nulls);
                let aggregate = builder.build()?;
                aggregate.create_accumulator()?;
                Some(aggregate)
            }
            Kind::Nth(_) => None,
        };
        let input = own.first().map_or(DataType::Null, |f| f.data_type().clone());
        let method = self.method(&input);
        let result = match &aggregate {
            Some(a) => a.field().data_type().clone(),
            None => input,
        };
        let function = self.clone();
        Ok(Box::new(FrameEvaluator { function, aggregate, method, result, prepared: None, current: None }))
    }
}

/// How a frame that moves is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// Rows are added at its end; when its beginning moves it is begun anew.
    Grow,
    /// Rows are taken out at its beginning too: the arithmetic is exact.
    Slide,
    /// Sums of floats by a tree of partial sums when the beginning moves; `mean` divides them.
    Sums { mean: bool },
    /// Always anew: the accumulator may be used up by its answer.
    Anew,
}

impl FrameFunction {
    fn method(&self, input: &DataType) -> Method {
        let Kind::Aggregate { function, distinct } = &self.kind else { return Method::Anew };
        let exact = !input.is_floating() && !distinct;
        match function.name() {
            "count" if !distinct => Method::Slide,
            "sum" | "min" | "max" if exact => Method::Slide,
            "sum" if *input == DataType::Float64 && !distinct => Method::Sums { mean: false },
            "avg" if *input == DataType::Float64 && !distinct => Method::Sums { mean: true },
            "count" | "sum" | "min" | "max" | "avg" | "bool_and" | "bool_or" | "bit_and" | "bit_or" | "bit_xor"
            | "stddev" | "stddev_pop" | "var" | "var_pop" | "covar_samp" | "covar_pop" | "corr" | "regr_count"
            | "regr_slope" | "regr_intercept" | "regr_r2" | "regr_avgx" | "regr_avgy" | "regr_sxx" | "regr_syy"
            | "regr_sxy" => Method::Grow,
            _ => Method::Anew,
        }
    }
}

/// A partition, ready to be looked at frame by frame: in the order of the ranks, without the
/// rows that the filter or IGNORE NULLS leaves out.
struct Prepared {
    args: Vec<ArrayRef>,
    /// How many of the rows before a place are kept; `None` if all are.
    kept_before: Option<Vec<usize>>,
    /// For each row the row before it with the same arguments, plus one (0 for none); only if
    /// distinct rows are asked for.
    same_before: Option<Vec<u32>>,
    sums: Option<SumTree>,
}

struct FrameEvaluator {
    function: FrameFunction,
    aggregate: Option<AggregateFunctionExpr>,
    method: Method,
    result: DataType,
    prepared: Option<Prepared>,
    current: Option<Current>,
}

impl fmt::Debug for FrameEvaluator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameEvaluator({})", self.function.name)
    }
}

/// The frame last looked at.
struct Current {
    frame: Range<usize>,
    accumulator: Option<Box<dyn Accumulator>>,
    value: ScalarValue,
}

impl PartitionEvaluator for FrameEvaluator {
    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        if self.prepared.is_none() {
            self.prepared = Some(self.prepare(values)?);
        }
        let Some(prepared) = &self.prepared else { return internal_err!("a partition that was not prepared") };
        let place = |i: usize| match &prepared.kept_before {
            Some(kept) => kept.get(i).copied().unwrap_or_default(),
            None => i,
        };
        let start = place(range.start);
        let frame = start..place(range.end).max(start);
        if let Kind::Nth(n) = self.function.kind {
            return self.nth(prepared, &frame, n);
        }
        if let Some(c) = &self.current
            && (c.frame == frame || (c.frame.is_empty() && frame.is_empty()))
        {
            return Ok(c.value.clone());
        }
        let last = self.current.take();
        let (accumulator, value) = match self.aggregated(&frame, last) {
            Ok((a, v)) => (a, v),
            Err(e @ datafusion_common::DataFusionError::ResourcesExhausted(_)) => return Err(e),
            Err(e) => match &self.function.errors {
                Some(errors) => {
                    let shown = crate::bind::bind_error(e);
                    errors.report(&self.function.name, 1, shown.message())?;
                    (None, ScalarValue::try_from(&self.result)?)
                }
                None => return Err(e),
            },
        };
        self.current = Some(Current { frame, accumulator, value: value.clone() });
        Ok(value)
    }

    fn uses_window_frame(&self) -> bool {
        true
    }
}

impl FrameEvaluator {
    fn prepare(&self, values: &[ArrayRef]) -> Result<Prepared> {
        let f = &self.function;
        let mut columns: Vec<ArrayRef> = values.iter().take(f.arity).cloned().collect();
        let mut next = f.arity;
        let mut filter = None;
        if f.filtered {
            filter = values.get(next).cloned();
            next += 1;
        }
        if f.ranked {
            let Some(ranks) = values.get(next) else { return internal_err!("{} lacks its rank", f.name) };
            let order = places(ranks)?;
            for c in columns.iter_mut().chain(&mut filter) {
                *c = compute::take(c.as_ref(), &order, None)?;
            }
        }
        let mut keep: Option<BooleanArray> = match &filter {
            Some(a) => {
                // FILTER (WHERE NULL) has a type of its own.
                let mask = compute::cast(a, &DataType::Boolean)?;
                let mask = mask.as_boolean();
                Some(if mask.null_count() > 0 { compute::prep_null_mask_filter(mask) } else { mask.clone() })
            }
            None => None,
        };
        if let (Kind::Nth(_), true, Some(first)) = (&f.kind, f.ignore_nulls, columns.first()) {
            let known = compute::is_not_null(first)?;
            keep = Some(match keep {
                Some(k) => compute::and(&k, &known)?,
                None => known,
            });
        }
        let mut kept_before = None;
        if let Some(keep) = keep {
            let mut sum = 0;
            let mut before = Vec::with_capacity(keep.len() + 1);
            before.push(0);
            for k in keep.values() {
                sum += usize::from(k);
                before.push(sum);
            }
            for c in &mut columns {
                *c = compute::filter(c.as_ref(), &keep)?;
            }
            kept_before = Some(before);
        }
        let mut same_before = None;
        if matches!(f.kind, Kind::Aggregate { distinct: true, .. }) {
            same_before = Some(occurrences(&columns)?);
        }
        Ok(Prepared { args: columns, kept_before, same_before, sums: None })
    }

    fn nth(&self, prepared: &Prepared, frame: &Range<usize>, n: i64) -> Result<ScalarValue> {
        let steps = usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
        if n == 0 || steps > frame.len() {
            return ScalarValue::try_from(&self.result);
        }
        let row = if n > 0 { frame.start + steps - 1 } else { frame.end - steps };
        match prepared.args.first() {
            Some(a) => ScalarValue::try_from_array(a, row),
            None => internal_err!("{} lacks its argument", self.function.name),
        }
    }

    /// The aggregate of a frame, given the frame before it.
    fn aggregated(
        &mut self,
        frame: &Range<usize>,
        last: Option<Current>,
    ) -> Result<(Option<Box<dyn Accumulator>>, ScalarValue)> {
        let (Some(aggregate), Some(prepared)) = (&self.aggregate, &mut self.prepared) else {
            return internal_err!("{} is no aggregate", self.function.name);
        };
        let fresh = || match self.method {
            Method::Slide => aggregate.create_sliding_accumulator(),
            _ => aggregate.create_accumulator(),
        };
        let begun = last.and_then(|l| l.accumulator.map(|a| (l.frame, a)));
        let mut accumulator = match begun {
            Some((old, mut a)) if self.method != Method::Anew && old.start == frame.start && old.end <= frame.end => {
                add(a.as_mut(), prepared, frame.start, old.end..frame.end)?;
                a
            }
            Some((old, mut a))
                if self.method == Method::Slide
                    && old.start <= frame.start
                    && frame.start < old.end
                    && old.end <= frame.end =>
            {
                let gone: Vec<ArrayRef> =
                    prepared.args.iter().map(|c| c.slice(old.start, frame.start - old.start)).collect();
                a.retract_batch(&gone)?;
                add(a.as_mut(), prepared, frame.start, old.end..frame.end)?;
                a
            }
            Some((_, a)) if matches!(self.method, Method::Sums { .. }) && !frame.is_empty() => {
                drop(a);
                return Ok((None, self.tree_sum(frame)?));
            }
            None if matches!(self.method, Method::Sums { .. }) && frame.start > 0 && !frame.is_empty() => {
                return Ok((None, self.tree_sum(frame)?));
            }
            _ => {
                let mut a = fresh()?;
                add(a.as_mut(), prepared, frame.start, frame.clone())?;
                a
            }
        };
        let value = accumulator.evaluate()?;
        let keep = self.method != Method::Anew;
        Ok((keep.then_some(accumulator), value))
    }

    fn tree_sum(&mut self, frame: &Range<usize>) -> Result<ScalarValue> {
        let Some(prepared) = &mut self.prepared else { return internal_err!("a partition that was not prepared") };
        let Some(values) = prepared.args.first().and_then(|a| a.as_primitive_opt::<Float64Type>()) else {
            return internal_err!("{} is not of floats", self.function.name);
        };
        let tree = prepared.sums.get_or_insert_with(|| SumTree::new(values));
        let (sum, count) = tree.sum(frame.clone());
        let mean = self.method == Method::Sums { mean: true };
        let value = match count {
            0 => None,
            n if mean => Some(sum / n as f64),
            _ => Some(sum),
        };
        Ok(ScalarValue::Float64(value))
    }
}

/// Adds the rows of `part` to the aggregate of a frame that begins at `start`.
fn add(a: &mut dyn Accumulator, prepared: &Prepared, start: usize, part: Range<usize>) -> Result<()> {
    if part.is_empty() {
        return Ok(());
    }
    let Some(same) = &prepared.same_before else {
        let rows: Vec<ArrayRef> = prepared.args.iter().map(|c| c.slice(part.start, part.len())).collect();
        return a.update_batch(&rows);
    };
    let first = |i: &usize| same.get(*i).is_none_or(|s| (*s as usize) <= start);
    let rows: UInt32Array = part.filter(first).map(|i| i as u32).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let rows: Vec<ArrayRef> =
        prepared.args.iter().map(|c| compute::take(c.as_ref(), &rows, None)).collect::<Result<_, _>>()?;
    a.update_batch(&rows)
}

/// Where the row of each rank (from 1) stands.
fn places(ranks: &ArrayRef) -> Result<UInt32Array> {
    let ranks: Vec<u64> = match ranks.data_type() {
        DataType::UInt64 => ranks.as_primitive::<UInt64Type>().values().to_vec(),
        DataType::Int64 => ranks.as_primitive::<Int64Type>().values().iter().map(|r| *r as u64).collect(),
        other => return exec_err!("a rank of type {other}"),
    };
    let mut order = vec![u32::MAX; ranks.len()];
    for (i, r) in ranks.iter().enumerate() {
        match usize::try_from(*r).ok().and_then(|r| r.checked_sub(1)).and_then(|r| order.get_mut(r)) {
            Some(place) if *place == u32::MAX => *place = i as u32,
            _ => return internal_err!("ranks that do not count the rows"),
        }
    }
    Ok(order.into())
}

/// For each row the nearest row before it that is the same, plus one.
fn occurrences(columns: &[ArrayRef]) -> Result<Vec<u32>> {
    let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    let rows = RowConverter::new(fields)?.convert_columns(columns)?;
    let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    order.sort_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)));
    let mut before = vec![0; order.len()];
    for pair in order.windows(2) {
        if let [a, b] = *pair
            && rows.row(a as usize) == rows.row(b as usize)
        {
            before[b as usize] = a + 1;
        }
    }
    Ok(before)
}
