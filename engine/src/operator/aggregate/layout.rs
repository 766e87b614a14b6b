//! Which accumulators a GROUP BY needs, and in which columns of which tables they stand.
//!
//! Calls share what they can: `sum(x)`, `avg(x)` and `count(x)` have one count between them,
//! `sum` and `avg` of floats one sum, `min` and `max` one ordered table.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, IntervalUnit, SchemaRef, TimeUnit};
use arrow::row::{RowConverter, SortField};

use super::moments;
use crate::plan::{AggCall, AggFunc, AggregateSpec, OrderBy, RowsCall};
use crate::state::ColumnKind;
use crate::state::native::fits_i64;
use crate::types::{Result, SpateError, decoded};

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
    /// How many values are true (one `I64`).
    Trues,
    /// The bits that an odd number of values has (one `I64`).
    BitXor,
    /// The bits that all, or any, of append-only values have (one `I64`).
    BitFold { all: bool },
    /// How many values have each bit (so many `I64`).
    BitCounts { bits: usize },
    /// Rows, rows that are not finite, and exact sums of the argument, of a second one and of their
    /// products (two `I64`, then `Bytes`).
    Moments { other: Option<usize> },
    /// Computed from the rows of an ordered table at the last barrier (one `Bytes`).
    Rows(Box<RowsAcc>),
}

/// See [`AccKind::Rows`].
#[derive(Debug, Clone)]
pub(super) struct RowsAcc {
    pub(super) call: RowsCall,
    pub(super) distinct: bool,
    pub(super) set: usize,
    /// Of the result.
    pub(super) codec: Arc<ValueCodec>,
    pub(super) result_type: DataType,
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
        let mut arrays = decoded::columns(&self.rows, values.iter().map(|v| parser.parse(v)))?;
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

/// An ordered table of the rows of each group, cut to some columns.
#[derive(Debug, PartialEq)]
pub(super) struct RowSet {
    pub(super) columns: Vec<OrderBy>,
    /// What the columns are cast to.
    pub(super) types: Vec<DataType>,
    pub(super) filter: Option<usize>,
    /// Place in `columns` of what must not be NULL.
    pub(super) not_null: Option<usize>,
}

impl RowSet {
    /// How its columns are encoded.
    pub(super) fn sort_fields(&self) -> Vec<SortField> {
        let field = |(o, t): (&OrderBy, &DataType)| {
            let options = SortOptions { descending: o.descending, nulls_first: o.nulls_first };
            SortField::new_with_options(t.clone(), options)
        };
        self.columns.iter().zip(&self.types).map(field).collect()
    }
}

/// Where the result of a call comes from.
#[derive(Debug)]
pub(super) enum CallResult {
    /// The count at this column.
    Count(usize),
    /// That accumulator (feed, index); NULL where the count is 0.
    Value { feed: usize, acc: usize, func: AggFunc },
}

/// The plan of all accumulators.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) feeds: Vec<Feed>,
    pub(super) calls: Vec<CallResult>,
    /// Argument column of each distinct table.
    pub(super) distincts: Vec<usize>,
    pub(super) sets: Vec<RowSet>,
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

/// The accumulator of a function of booleans or bits.
fn bits_kind(call: &AggCall, append_only: bool) -> Result<AccKind> {
    let t = &call.arg_type;
    Ok(match call.func {
        AggFunc::BoolAnd | AggFunc::BoolOr if *t == DataType::Boolean => AccKind::Trues,
        AggFunc::BitXor if t.is_integer() && call.result_type == *t => AccKind::BitXor,
        AggFunc::BitAnd | AggFunc::BitOr if t.is_integer() && call.result_type == *t => {
            if append_only {
                AccKind::BitFold { all: call.func == AggFunc::BitAnd }
            } else {
                AccKind::BitCounts { bits: t.primitive_width().unwrap_or(8) * 8 }
            }
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
        let sorted = |c: &AggCall| c.rows.iter().flat_map(|r| r.columns.iter().map(|o| o.column)).collect::<Vec<_>>();
        let call_columns =
            spec.calls.iter().flat_map(|c| c.arg.into_iter().chain(c.other).chain(c.filter).chain(sorted(c)));
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
            match &call.rows {
                Some(rows) => layout.add_rows(call, rows, input)?,
                None => layout.add_call(spec, call, &mut tables)?,
            }
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
                    | (AccKind::SumF64, AccKind::SumF64)
                    | (AccKind::Trues, AccKind::Trues)
                    | (AccKind::BitXor, AccKind::BitXor)
                    | (AccKind::BitCounts { .. }, AccKind::BitCounts { .. }) => true,
                    (AccKind::BitFold { all: a }, AccKind::BitFold { all: b }) => a == b,
                    (AccKind::Moments { other: a }, AccKind::Moments { other: b }) => a == b,
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
            AccKind::Count
            | AccKind::SumI64
            | AccKind::ExtremeI64 { .. }
            | AccKind::Trues
            | AccKind::BitXor
            | AccKind::BitFold { .. } => self.add_columns(&[ColumnKind::I64]),
            AccKind::BitCounts { bits } => self.add_columns(&vec![ColumnKind::I64; *bits]),
            AccKind::SumI128 | AccKind::ExtremeI128 { .. } => self.add_columns(&[ColumnKind::I128]),
            AccKind::SumI256 => self.add_columns(&[ColumnKind::I256]),
            AccKind::SumF64 => {
                let (f, i) = (ColumnKind::F64, ColumnKind::I64);
                self.add_columns(&[f, f, i, i, i, f, f])
            }
            AccKind::Moments { other } => {
                let mut kinds = vec![ColumnKind::I64; 2];
                kinds.resize(2 + moments::sums(other.is_some()), ColumnKind::Bytes);
                self.add_columns(&kinds)
            }
            AccKind::ExtremeBytes { .. } | AccKind::ExtremeSet { .. } | AccKind::Rows(_) => {
                self.add_columns(&[ColumnKind::Bytes])
            }
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

    /// The ordered table of this form, shared if there is one.
    fn set(&mut self, set: RowSet) -> usize {
        self.sets.iter().position(|s| *s == set).unwrap_or_else(|| {
            self.sets.push(set);
            self.sets.len() - 1
        })
    }

    fn add_rows(&mut self, call: &AggCall, rows: &RowsCall, input: &SchemaRef) -> Result<()> {
        let types: Vec<DataType> = rows.columns.iter().map(|o| input.field(o.column).data_type().clone()).collect();
        let set = RowSet { columns: rows.columns.clone(), types, filter: call.filter, not_null: rows.not_null };
        if set.columns.is_empty() || rows.not_null.is_some_and(|n| n >= set.columns.len()) {
            return Err(SpateError::internal("an aggregate over sorted rows lacks a column"));
        }
        for t in set.types.iter().chain([&call.result_type]) {
            if !RowConverter::supports_fields(&[SortField::new(t.clone())]) {
                let what = format!("{} with values of type {t} is not supported", rows.function);
                return Err(SpateError::unsupported(what));
            }
        }
        let acc = RowsAcc {
            call: rows.clone(),
            distinct: call.distinct,
            set: self.set(set),
            codec: Arc::new(ValueCodec::new(&call.result_type)?),
            result_type: call.result_type.clone(),
        };
        let feed = self.feed(None, call.filter, None);
        let acc = self.acc(feed, AccKind::Rows(Box::new(acc)), &DataType::Null, ROWS);
        self.calls.push(CallResult::Value { feed, acc, func: call.func });
        Ok(())
    }

    fn add_call(
        &mut self,
        spec: &AggregateSpec,
        call: &AggCall,
        tables: &mut Vec<(usize, Option<usize>)>,
    ) -> Result<()> {
        let extreme = matches!(call.func, AggFunc::Min | AggFunc::Max);
        // Copies do not matter to these.
        let idempotent =
            extreme || matches!(call.func, AggFunc::BoolAnd | AggFunc::BoolOr | AggFunc::BitAnd | AggFunc::BitOr);
        let distinct = match call.arg {
            Some(arg) if call.distinct && !idempotent => {
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
        if let AggFunc::Moment(m) = call.func {
            let floats = call.arg_type == DataType::Float64 && call.result_type == DataType::Float64;
            if call.distinct || !floats || m.of_pairs() != call.other.is_some() {
                return Err(refuse(call));
            }
            // It counts its own rows: those where neither argument is NULL.
            let acc = self.acc(feed, AccKind::Moments { other: call.other }, &DataType::Float64, ROWS);
            self.calls.push(CallResult::Value { feed, acc, func: call.func });
            return Ok(());
        }
        let (kind, input) = if extreme {
            check_extreme(call)?;
            let max = call.func == AggFunc::Max;
            let input = call.result_type.clone();
            let kind = if !(spec.append_only_input || call.outward) {
                let set = self.set(RowSet {
                    columns: vec![OrderBy { column: arg, descending: false, nulls_first: false }],
                    types: vec![input.clone()],
                    filter: call.filter,
                    not_null: Some(0),
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
            match call.func {
                AggFunc::Sum | AggFunc::Avg => sum_kind(call)?,
                _ => (bits_kind(call, spec.append_only_input)?, call.arg_type.clone()),
            }
        };
        let count = self.count(feed);
        let acc = self.acc(feed, kind, &input, count);
        self.calls.push(CallResult::Value { feed, acc, func: call.func });
        Ok(())
    }
}
