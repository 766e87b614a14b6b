//! Aggregates over sorted rows: any of DataFusion's aggregate functions, fed with the rows of a
//! group in a canonical order (ORDER BY, then all arguments, ascending, NULLs last), so that
//! its result depends on nothing but the multiset of rows. What fails for a group gives NULL
//! and is counted.
//!
//! The same function serves both sides. In batch it is an aggregate function that collects
//! rows and sorts them in the end; a stream keeps the rows sorted and feeds them to
//! [`RowsFunction::start`].

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, LargeListArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{SortOptions, concat, filter, is_not_null};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::row::{RowConverter, SortField};
use datafusion_common::{DFSchema, DataFusionError, Result, ScalarValue, internal_err};
use datafusion_expr::expr::Sort;
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, Signature, Volatility};
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_expr::{PhysicalExpr, PhysicalSortExpr};
use spate_engine::plan::RowsFunction;
use spate_engine::types::error::SpateError;

use crate::rules::guard::ErrorCounter;

/// An argument of the inner function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Slot {
    /// A column of the sorted rows.
    Column(usize),
    Constant(ScalarValue),
}

/// Rows that a function gets at once.
const PIECE_ROWS: usize = 8192;

/// A function of sorted rows, as an aggregate function of the columns of these rows.
#[derive(Debug, Clone)]
pub struct SortedAggregate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    signature: Signature,
    function: Arc<AggregateUDF>,
    slots: Vec<Slot>,
    fields: Vec<FieldRef>,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    /// Of functions that are told how their input is sorted.
    order_bys: Vec<PhysicalSortExpr>,
    /// The columns of the rows.
    schema: Schema,
    options: Vec<SortOptions>,
    distinct: bool,
    not_null: Option<usize>,
    first: Option<usize>,
    return_field: FieldRef,
    shown: String,
    errors: ErrorCounter,
}

/// What a function is called with.
pub(super) struct Call {
    pub(super) function: Arc<AggregateUDF>,
    pub(super) args: Vec<Expr>,
    pub(super) order_by: Vec<Sort>,
    pub(super) distinct: bool,
    pub(super) ignore_nulls: bool,
    /// So many rows from the start decide.
    pub(super) first: Option<usize>,
    /// The function as the user knows it.
    pub(super) shown: String,
}

impl SortedAggregate {
    /// The function for this call, with the expressions that are its arguments.
    pub(super) fn new(call: Call, schema: &DFSchema, errors: &ErrorCounter) -> Result<(Self, Vec<Expr>)> {
        let mut columns: Vec<Expr> = Vec::new();
        let mut options: Vec<SortOptions> = Vec::new();
        for s in &call.order_by {
            if !matches!(s.expr, Expr::Literal(..)) && !columns.contains(&s.expr) {
                if call.distinct && !call.args.contains(&s.expr) {
                    return Err(SpateError::invalid(format!(
                        "in {} with DISTINCT, ORDER BY expressions must appear in the argument list",
                        call.function.name()
                    ))
                    .into());
                }
                columns.push(s.expr.clone());
                options.push(SortOptions { descending: !s.asc, nulls_first: s.nulls_first });
            }
        }
        let mut slots = Vec::with_capacity(call.args.len());
        for (i, arg) in call.args.iter().enumerate() {
            slots.push(match arg {
                // The first one makes the rows, even where it is a constant.
                Expr::Literal(value, _) if i > 0 => Slot::Constant(value.clone()),
                _ => Slot::Column(columns.iter().position(|c| c == arg).unwrap_or_else(|| {
                    columns.push(arg.clone());
                    options.push(SortOptions { descending: false, nulls_first: false });
                    columns.len() - 1
                })),
            });
        }
        let mut row_fields = Vec::with_capacity(columns.len());
        for (i, c) in columns.iter().enumerate() {
            let t = c.get_type(schema)?;
            if !RowConverter::supports_fields(&[SortField::new(t.clone())]) {
                return Err(SpateError::unsupported(format!(
                    "{} over values of type {t} is not supported in a continuous query",
                    call.function.name()
                ))
                .into());
            }
            row_fields.push(Field::new(format!("${i}"), t, true));
        }
        let mut exprs: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
        let mut fields: Vec<FieldRef> = Vec::new();
        for s in &slots {
            match s {
                Slot::Column(i) => {
                    exprs.push(Arc::new(Column::new(&format!("${i}"), *i)));
                    fields.push(Arc::new(row_fields[*i].clone()));
                }
                Slot::Constant(v) => {
                    exprs.push(Arc::new(Literal::new(v.clone())));
                    fields.push(Arc::new(Field::new("constant", v.data_type(), v.is_null())));
                }
            }
        }
        let order_bys = if call.function.supports_within_group_clause() {
            let physical = |s: &Sort| {
                let at = columns.iter().position(|c| *c == s.expr)?;
                let options = SortOptions { descending: !s.asc, nulls_first: s.nulls_first };
                Some(PhysicalSortExpr { expr: Arc::new(Column::new(&format!("${at}"), at)), options })
            };
            call.order_by.iter().filter_map(physical).collect()
        } else {
            vec![]
        };
        let not_null = match slots.first() {
            Some(Slot::Column(i)) if call.ignore_nulls => Some(*i),
            _ => None,
        };
        let return_field = call.function.return_field(&fields)?;
        let text = |s: &Slot| match s {
            Slot::Column(i) => format!("${i}"),
            Slot::Constant(v) => v.to_string(),
        };
        let args: Vec<String> = slots.iter().map(text).collect();
        let name = format!("{}({})", call.function.name(), args.join(", "));
        let inner = Inner {
            name,
            signature: Signature::any(columns.len(), Volatility::Immutable),
            function: call.function,
            slots,
            fields,
            exprs,
            order_bys,
            schema: Schema::new(row_fields),
            options,
            distinct: call.distinct,
            not_null,
            first: call.first,
            return_field,
            shown: call.shown,
            errors: errors.clone(),
        };
        // What the function does not accept is to be known now.
        inner.accumulator()?;
        Ok((Self(Arc::new(inner)), columns))
    }

    /// How the columns are sorted.
    pub fn options(&self) -> &[SortOptions] {
        &self.0.options
    }

    /// Whether equal rows count once.
    pub fn distinct(&self) -> bool {
        self.0.distinct
    }

    /// The column that must not be NULL for a row to count.
    pub fn not_null(&self) -> Option<usize> {
        self.0.not_null
    }

    /// How many rows from the start decide the result, if not all.
    pub fn first(&self) -> Option<usize> {
        self.0.first
    }
}

impl Inner {
    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.not_null.is_some(),
            order_bys: &self.order_bys,
            is_reversed: false,
            name: &self.name,
            is_distinct: false,
            exprs: &self.exprs,
            expr_fields: &self.fields,
        })
    }

    fn converter(&self) -> Result<RowConverter> {
        let fields = self.schema.fields().iter().zip(&self.options);
        let sort = fields.map(|(f, o)| SortField::new_with_options(f.data_type().clone(), *o));
        Ok(RowConverter::new(sort.collect())?)
    }

    /// What identifies the function.
    fn identity(&self) -> impl Hash + PartialEq + '_ {
        let types: Vec<&DataType> = self.fields.iter().map(|f| f.data_type()).collect();
        let options: Vec<(bool, bool)> = self.options.iter().map(|o| (o.descending, o.nulls_first)).collect();
        let descending: Vec<bool> = self.order_bys.iter().map(|o| o.options.descending).collect();
        let flags = (self.distinct, self.not_null, self.first);
        (self.function.as_ref(), &self.slots, types, options, descending, flags)
    }
}

impl PartialEq for SortedAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.0.identity() == other.0.identity()
    }
}

impl Eq for SortedAggregate {}

impl Hash for SortedAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.identity().hash(state);
    }
}

impl fmt::Display for SortedAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl RowsFunction for SortedAggregate {
    fn start(&self) -> Result<Box<dyn Accumulator>> {
        let (inner, spec) = (self.0.accumulator()?, Arc::clone(&self.0));
        Ok(Box::new(Guarded { inner, spec, waiting: vec![], rows: 0, failure: None }))
    }
}

/// The accumulator of sorted rows: failures of the function become NULL. Hands rows on in pieces of
/// one size, since to some functions (sketches) it matters how their input is cut.
#[derive(Debug)]
struct Guarded {
    inner: Box<dyn Accumulator>,
    spec: Arc<Inner>,
    /// Columns that make no whole piece yet, and how many rows they have.
    waiting: Vec<Vec<ArrayRef>>,
    rows: usize,
    failure: Option<DataFusionError>,
}

impl Guarded {
    /// Keeps what is the data's fault, and hands on what is not.
    fn keep<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(v) => Ok(Some(v)),
            Err(e @ DataFusionError::ResourcesExhausted(_)) => Err(e),
            Err(e) => {
                self.failure.get_or_insert(e);
                Ok(None)
            }
        }
    }
}

impl Guarded {
    /// Gives the function its next piece.
    fn piece(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, |c| c.len());
        if self.failure.is_some() || rows == 0 {
            return Ok(());
        }
        let mut args = Vec::with_capacity(self.spec.slots.len());
        for s in &self.spec.slots {
            args.push(match s {
                Slot::Column(i) => match columns.get(*i) {
                    Some(c) => Arc::clone(c),
                    None => return internal_err!("a column of {} is missing", self.spec.name),
                },
                Slot::Constant(v) => v.to_array_of_size(rows)?,
            });
        }
        let done = self.inner.update_batch(&args);
        self.keep(done).map(|_| ())
    }

    /// All that waits, as one.
    fn waiting(&mut self) -> Result<Vec<ArrayRef>> {
        self.rows = 0;
        let waiting = std::mem::take(&mut self.waiting);
        if let [one] = waiting.as_slice() {
            return Ok(one.clone());
        }
        let width = waiting.first().map_or(0, Vec::len);
        let column = |i: usize| {
            let parts: Vec<&dyn Array> = waiting.iter().filter_map(|w| w.get(i)).map(AsRef::as_ref).collect();
            Ok(concat(&parts)?)
        };
        (0..width).map(column).collect()
    }
}

impl Accumulator for Guarded {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, |c| c.len());
        let mut at = 0;
        while at < rows {
            let n = (PIECE_ROWS - self.rows).min(rows - at);
            self.waiting.push(columns.iter().map(|c| c.slice(at, n)).collect());
            self.rows += n;
            at += n;
            if self.rows == PIECE_ROWS {
                let piece = self.waiting()?;
                self.piece(&piece)?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let rest = self.waiting()?;
        self.piece(&rest)?;
        let value = if self.failure.is_none() { self.inner.evaluate() } else { Ok(ScalarValue::Null) };
        let value = self.keep(value)?;
        match (value, self.failure.take()) {
            (Some(value), None) => Ok(value),
            (_, failure) => {
                let sample = failure.map_or(String::new(), |e| crate::bind::bind_error(e).message().to_string());
                self.spec.errors.report(&self.spec.shown, 1, &sample)?;
                ScalarValue::try_from(self.spec.return_field.data_type())
            }
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("sorted rows are not merged")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("sorted rows are not merged")
    }
}

/// The batch side: collects rows in their sortable form.
#[derive(Debug)]
struct Collect {
    function: SortedAggregate,
    converter: RowConverter,
    rows: Vec<Box<[u8]>>,
    bytes: usize,
}

impl Collect {
    fn add(&mut self, row: &[u8]) {
        self.bytes += row.len() + size_of::<Box<[u8]>>();
        self.rows.push(row.into());
    }
}

impl Accumulator for Collect {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let not_null = self.function.not_null().and_then(|n| columns.get(n)).filter(|c| c.null_count() > 0);
        let kept;
        let columns = match not_null {
            Some(c) => {
                let mask = is_not_null(c)?;
                kept = columns.iter().map(|c| Ok(filter(c, &mask)?)).collect::<Result<Vec<_>>>()?;
                &kept
            }
            None => columns,
        };
        let encoded = self.converter.convert_columns(columns)?;
        for row in encoded.iter() {
            self.add(row.data());
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let rows = LargeBinaryArray::from_iter_values(self.rows.iter());
        let field = Arc::new(Field::new_list_field(DataType::LargeBinary, true));
        let offsets = OffsetBuffer::from_lengths([rows.len()]);
        let list = LargeListArray::try_new(field, offsets, Arc::new(rows), None)?;
        Ok(vec![ScalarValue::LargeList(Arc::new(list))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states.first().and_then(|s| s.as_list_opt::<i64>()) else {
            return internal_err!("the state of {} is damaged", self.function);
        };
        for list in lists.iter().flatten() {
            let Some(rows) = list.as_binary_opt::<i64>() else {
                return internal_err!("the state of {} is damaged", self.function);
            };
            for row in rows.iter().flatten() {
                self.add(row);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.rows.sort_unstable();
        let mut rows: Vec<&[u8]> = self.rows.iter().map(|r| &**r).collect();
        if self.function.distinct() {
            rows.dedup();
        }
        rows.truncate(self.function.first().unwrap_or(usize::MAX));
        let mut sorted = self.function.start()?;
        if !rows.is_empty() {
            let parser = self.converter.parser();
            let columns = self.converter.convert_rows(rows.iter().map(|r| parser.parse(r)))?;
            sorted.update_batch(&columns)?;
        }
        sorted.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.converter.size() + self.bytes
    }
}

impl AggregateUDFImpl for SortedAggregate {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.0.return_field.data_type().clone())
    }

    fn return_field(&self, _: &[FieldRef]) -> Result<FieldRef> {
        Ok(Arc::new(self.0.return_field.as_ref().clone().with_name(&self.0.name).with_nullable(true)))
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Collect { function: self.clone(), converter: self.0.converter()?, rows: vec![], bytes: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let rows = Field::new_list_field(DataType::LargeBinary, true);
        Ok(vec![Arc::new(Field::new_large_list(format!("{}[rows]", args.name), rows, true))])
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.0.function.default_value(data_type)
    }
}

impl PartialOrd for SortedAggregate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.0.name.partial_cmp(&other.0.name)
    }
}
