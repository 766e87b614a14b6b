//! Which accumulators a GROUP BY needs, and in which columns of which tables they stand.
//!
//! Calls share what they can: `sum(x)`, `avg(x)` and `count(x)` have one count between them,
//! `sum` and `avg` of floats one sum, `min` and `max` one ordered table.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::{DataType, IntervalUnit, SchemaRef, TimeUnit};
use arrow::row::{RowConverter, SortField};

use crate::plan::{AggCall, AggFunc, AggregateSpec};
use crate::state::ColumnKind;
use crate::state::native::fits_i64;
use crate::types::{Result, SpateError};

/// What an accumulator computes from the values and weights of one [`Feed`].
#[derive(Debug, Clone)]
pub(super) enum AccKind {
    /// Sum of the weights (one `I64`).
    Count,
    /// Wrapping integer sum (one `I64`).
    SumI64,
    /// Wrapping sum of 128-bit decimals (one `I128`).
    SumI128,
    /// Wrapping sum of 256-bit decimals (one `I256`).
    SumI256,
    /// Double-double sum of the finite values, and how many NaN, +Inf and −Inf there are
    /// (two `F64`, three `I64`).
    SumF64,
    /// Extreme of append-only values in order-preserving `i64` form (one `I64`).
    ExtremeI64 { max: bool },
    /// Extreme of append-only 128-bit decimals (one `I128`).
    ExtremeI128 { max: bool },
    /// Extreme of append-only values as row bytes (one `Bytes`).
    ExtremeBytes { max: bool, codec: Arc<ValueCodec> },
    /// Extreme of an ordered table, as it was at the last barrier (one `Bytes`).
    ExtremeSet { max: bool, set: usize, codec: Arc<ValueCodec> },
}

/// Row bytes of single values.
#[derive(Debug)]
pub(super) struct ValueCodec {
    pub(super) rows: RowConverter,
    pub(super) null: Vec<u8>,
}

impl ValueCodec {
    fn new(data_type: &DataType) -> Result<Self> {
        let rows = RowConverter::new(vec![SortField::new(data_type.clone())])?;
        let null = rows.convert_columns(&[new_null_array(data_type, 1)])?.row(0).data().to_vec();
        Ok(Self { rows, null })
    }

    /// Values from their bytes (NULL where there are none).
    pub(super) fn decode<'a>(&self, values: impl Iterator<Item = Option<&'a [u8]>>) -> Result<ArrayRef> {
        let parser = self.rows.parser();
        let null = &self.null;
        let values: Vec<&[u8]> = values.map(|v| v.unwrap_or(null)).collect();
        let mut arrays = self.rows.convert_rows(values.iter().map(|v| parser.parse(v)))?;
        arrays.pop().ok_or_else(|| SpateError::internal("a row holds no value"))
    }
}

/// A stream of values with weights: one argument under one filter, all values or distinct ones.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) arg: Option<usize>,
    pub(super) filter: Option<usize>,
    /// Index among the distinct tables.
    pub(super) distinct: Option<usize>,
    pub(super) accs: Vec<Acc>,
}

/// An accumulator.
#[derive(Debug)]
pub(super) struct Acc {
    pub(super) kind: AccKind,
    /// What the argument is cast to first.
    pub(super) input: DataType,
    /// First column in the group table.
    pub(super) column: usize,
    /// Column of the count of the same feed.
    pub(super) count: usize,
}

/// An ordered table of the values of each group.
#[derive(Debug)]
pub(super) struct ValueSet {
    pub(super) arg: usize,
    pub(super) filter: Option<usize>,
    pub(super) input: DataType,
}

/// Where the result of a call comes from.
#[derive(Debug)]
pub(super) enum CallResult {
    /// The count at this column.
    Count(usize),
    /// That accumulator (feed, index); NULL where the count is 0.
    Value { feed: usize, acc: usize, avg: bool },
}

/// The plan of all accumulators.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) feeds: Vec<Feed>,
    pub(super) calls: Vec<CallResult>,
    /// Argument column of each distinct table.
    pub(super) distincts: Vec<usize>,
    pub(super) sets: Vec<ValueSet>,
    pub(super) columns: Vec<ColumnKind>,
    /// Column with the window's time.
    pub(super) time: Option<usize>,
}

/// Column of the number of rows.
pub(super) const ROWS: usize = 0;

fn refuse(call: &AggCall) -> SpateError {
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    SpateError::unsupported(format!("{}({distinct}{}) is not supported", call.func, call.arg_type))
}

fn is_integer(t: &DataType) -> bool {
    t.is_integer()
}

/// The accumulator of a sum or mean, with the type that its argument is cast to.
fn sum_kind(call: &AggCall) -> Result<(AccKind, DataType)> {
    use DataType::*;
    let avg = call.func == AggFunc::Avg;
    Ok(match (&call.arg_type, &call.result_type) {
        (Null, Float64) => (AccKind::SumF64, Float64),
        (Null, Int64) if !avg => (AccKind::SumI64, Int64),
        (a, Float64) if is_integer(a) || a.is_floating() => (AccKind::SumF64, Float64),
        (a, Int64) if !avg && a.is_signed_integer() => (AccKind::SumI64, Int64),
        (a, UInt64) if !avg && a.is_unsigned_integer() => (AccKind::SumI64, UInt64),
        (Duration(_), Duration(_)) if !avg => (AccKind::SumI64, call.arg_type.clone()),
        (Decimal32(_, s) | Decimal64(_, s) | Decimal128(_, s) | Decimal256(_, s), r) if *s >= 0 => {
            let (Decimal32(p, rs) | Decimal64(p, rs) | Decimal128(p, rs) | Decimal256(p, rs)) = *r else {
                return Err(refuse(call));
            };
            let precision = match &call.arg_type {
                Decimal32(p, _) | Decimal64(p, _) | Decimal128(p, _) | Decimal256(p, _) => *p,
                _ => p,
            };
            // DataFusion sums for avg with 13 digits to spare; wider than 38 means 256 bits.
            let wide = if avg { precision > 25 } else { matches!(r, Decimal256(..)) };
            if rs < *s || (!avg && rs != *s) {
                return Err(refuse(call));
            }
            if wide { (AccKind::SumI256, Decimal256(76, *s)) } else { (AccKind::SumI128, Decimal128(38, *s)) }
        }
        _ => return Err(refuse(call)),
    })
}

fn check_extreme(call: &AggCall) -> Result<()> {
    use DataType::*;
    let t = &call.result_type;
    let fine = fits_i64(t)
        || matches!(t, Null | Float16 | Decimal128(..) | Decimal256(..) | Utf8 | LargeUtf8 | Utf8View)
        || matches!(t, Binary | LargeBinary | BinaryView | FixedSizeBinary(_))
        || matches!(t, Interval(IntervalUnit::DayTime | IntervalUnit::MonthDayNano));
    if fine { Ok(()) } else { Err(refuse(call)) }
}

/// Errors if the operator cannot run the spec, naming what it cannot do.
pub fn check(spec: &AggregateSpec, input: &SchemaRef) -> Result<()> {
    Layout::new(spec, input).map(drop)
}

impl Layout {
    pub(super) fn new(spec: &AggregateSpec, input: &SchemaRef) -> Result<Self> {
        let width = input.fields().len();
        let call_columns = spec.calls.iter().flat_map(|c| c.arg.into_iter().chain(c.filter));
        if spec.group.iter().copied().chain(call_columns).any(|c| c >= width) {
            return Err(SpateError::internal("an aggregate refers to a column that is not there"));
        }
        if let Some(f) =
            spec.calls.iter().filter_map(|c| c.filter).find(|&f| *input.field(f).data_type() != DataType::Boolean)
        {
            return Err(SpateError::new(
                crate::types::ErrorKind::Type,
                format!("the filter of an aggregate must be boolean, not {}", input.field(f).data_type()),
            ));
        }
        let distinct = spec.calls.iter().filter(|c| c.distinct).filter_map(|c| c.arg);
        for c in spec.group.iter().copied().chain(distinct) {
            let t = input.field(c).data_type();
            if !RowConverter::supports_fields(&[SortField::new(t.clone())]) {
                return Err(SpateError::unsupported(format!("grouping by a column of type {t} is not supported")));
            }
        }
        let mut layout = Self {
            feeds: vec![],
            calls: vec![],
            distincts: vec![],
            sets: vec![],
            columns: vec![ColumnKind::I64],
            time: None,
        };
        if let Some(w) = spec.window {
            let Some(&column) = spec.group.get(w.column) else {
                return Err(SpateError::internal("the window is no group column"));
            };
            match input.field(column).data_type() {
                DataType::Timestamp(TimeUnit::Microsecond, _) => {}
                other => {
                    return Err(SpateError::unsupported(format!("a window column of type {other} is not supported")));
                }
            }
            layout.time = Some(layout.add_columns(&[ColumnKind::Time]));
        } else if spec.emit_on_close {
            return Err(SpateError::internal("only windows can be emitted on close"));
        }
        // Distinct feeds that share argument and filter share one table.
        let mut tables: Vec<(usize, Option<usize>)> = vec![];
        for call in &spec.calls {
            layout.add_call(spec, call, &mut tables)?;
        }
        layout.distincts = tables.into_iter().map(|t| t.0).collect();
        Ok(layout)
    }

    fn add_columns(&mut self, kinds: &[ColumnKind]) -> usize {
        self.columns.extend_from_slice(kinds);
        self.columns.len() - kinds.len()
    }

    fn feed(&mut self, arg: Option<usize>, filter: Option<usize>, distinct: Option<usize>) -> usize {
        let same = |f: &Feed| (f.arg, f.filter, f.distinct) == (arg, filter, distinct);
        self.feeds.iter().position(same).unwrap_or_else(|| {
            self.feeds.push(Feed { arg, filter, distinct, accs: vec![] });
            self.feeds.len() - 1
        })
    }

    /// The accumulator of this kind over `feed`, shared if there is one.
    fn acc(&mut self, feed: usize, kind: AccKind, input: &DataType, count: usize) -> usize {
        let same = |a: &Acc| {
            a.input == *input
                && match (&a.kind, &kind) {
                    (AccKind::Count, AccKind::Count)
                    | (AccKind::SumI64, AccKind::SumI64)
                    | (AccKind::SumI128, AccKind::SumI128)
                    | (AccKind::SumI256, AccKind::SumI256)
                    | (AccKind::SumF64, AccKind::SumF64) => true,
                    (AccKind::ExtremeI64 { max: a }, AccKind::ExtremeI64 { max: b })
                    | (AccKind::ExtremeI128 { max: a }, AccKind::ExtremeI128 { max: b })
                    | (AccKind::ExtremeBytes { max: a, .. }, AccKind::ExtremeBytes { max: b, .. }) => a == b,
                    (AccKind::ExtremeSet { max: a, set: s, .. }, AccKind::ExtremeSet { max: b, set: t, .. }) => {
                        a == b && s == t
                    }
                    _ => false,
                }
        };
        if let Some(at) = self.feeds[feed].accs.iter().position(same) {
            return at;
        }
        let column = match &kind {
            AccKind::Count | AccKind::SumI64 | AccKind::ExtremeI64 { .. } => self.add_columns(&[ColumnKind::I64]),
            AccKind::SumI128 | AccKind::ExtremeI128 { .. } => self.add_columns(&[ColumnKind::I128]),
            AccKind::SumI256 => self.add_columns(&[ColumnKind::I256]),
            AccKind::SumF64 => {
                let (f, i) = (ColumnKind::F64, ColumnKind::I64);
                self.add_columns(&[f, f, i, i, i, f, f])
            }
            AccKind::ExtremeBytes { .. } | AccKind::ExtremeSet { .. } => self.add_columns(&[ColumnKind::Bytes]),
        };
        let accs = &mut self.feeds[feed].accs;
        accs.push(Acc { kind, input: input.clone(), column, count });
        accs.len() - 1
    }

    /// Column of the count of `feed`.
    fn count(&mut self, feed: usize) -> usize {
        let f = &self.feeds[feed];
        if f.arg.is_none() && f.filter.is_none() {
            return ROWS;
        }
        let at = self.acc(feed, AccKind::Count, &DataType::Null, 0);
        self.feeds[feed].accs[at].column
    }

    fn add_call(
        &mut self,
        spec: &AggregateSpec,
        call: &AggCall,
        tables: &mut Vec<(usize, Option<usize>)>,
    ) -> Result<()> {
        let extreme = matches!(call.func, AggFunc::Min | AggFunc::Max);
        let distinct = match call.arg {
            // The extremes of distinct values are the extremes.
            Some(arg) if call.distinct && !extreme => {
                let same = |t: &(usize, Option<usize>)| *t == (arg, call.filter);
                Some(tables.iter().position(same).unwrap_or_else(|| {
                    tables.push((arg, call.filter));
                    tables.len() - 1
                }))
            }
            _ => None,
        };
        let feed = self.feed(call.arg, call.filter, distinct);
        if call.func == AggFunc::Count {
            let column = self.count(feed);
            self.calls.push(CallResult::Count(column));
            return Ok(());
        }
        let Some(arg) = call.arg else { return Err(refuse(call)) };
        let avg = call.func == AggFunc::Avg;
        let (kind, input) = if extreme {
            check_extreme(call)?;
            let max = call.func == AggFunc::Max;
            let input = call.result_type.clone();
            let kind = if !spec.append_only_input {
                let same = |s: &ValueSet| s.arg == arg && s.filter == call.filter && s.input == input;
                let set = self.sets.iter().position(same).unwrap_or_else(|| {
                    self.sets.push(ValueSet { arg, filter: call.filter, input: input.clone() });
                    self.sets.len() - 1
                });
                AccKind::ExtremeSet { max, set, codec: Arc::new(ValueCodec::new(&input)?) }
            } else if fits_i64(&input) {
                AccKind::ExtremeI64 { max }
            } else if matches!(input, DataType::Decimal128(..)) {
                AccKind::ExtremeI128 { max }
            } else {
                AccKind::ExtremeBytes { max, codec: Arc::new(ValueCodec::new(&input)?) }
            };
            (kind, input)
        } else {
            sum_kind(call)?
        };
        let count = self.count(feed);
        let acc = self.acc(feed, kind, &input, count);
        self.calls.push(CallResult::Value { feed, acc, avg });
        Ok(())
    }
}
