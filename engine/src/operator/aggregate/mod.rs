//! GROUP BY with retractions.
//!
//! State: one row per group with the accumulators as columns; per DISTINCT argument a table
//! of (group, value) with weights; per retractable min/max argument, and for each function
//! that is computed from its rows, an ordered table of group bytes ++ row bytes. Every change
//! is applied as it comes, with its exact weight; values that a group had when the epoch began
//! are copied aside at its first touch.
//!
//! At the barrier each touched group, in the order of first touch, emits −old +new if they
//! differ. A group exists while its rows do not sum to 0; without group columns there is
//! always exactly one row, and one for each grouping set without columns. With `emit_on_close`
//! nothing is emitted until the watermark has passed a window; then its groups are emitted once and
//! freed. On append-only input, groups of a closed window are freed without a word.
//!
//! In two phases (see `partial`) the first emits what an epoch's rows sum up to and forgets it, the
//! second adds that to its groups.

mod accumulate;
mod finish;
mod layout;
mod moments;
mod partial;
mod rows;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array,
    make_comparator, new_null_array,
};
use arrow::compute::kernels::cmp::distinct as differs;
use arrow::compute::{SortOptions, cast, filter, interleave, take};
use arrow::datatypes::{DataType, Schema, SchemaRef, TimestampMicrosecondType, UInt64Type};
use arrow::row::{RowConverter, SortField};
use datafusion_common::utils::normalize_float_zero;

use self::layout::{Acc, AccKind, Layout, ROWS, RowSet};
use self::rows::Evaluator;
use super::{BarrierInfo, Operator, Output};
use crate::plan::{AggregateSpec, Phase};
use crate::state::group::Column;
use crate::state::{ColumnKind, GroupTable, OrderedTable, Table, TableDef, Tables};
use crate::types::epoch::{WATERMARK_MAX, WATERMARK_MIN};
use crate::types::vnode::{hash_rows, task_of, vnode_of};
use crate::types::{Delta, Result, SpateError};

pub use self::layout::check;

/// Rows per emitted delta, about.
const EMIT_ROWS: usize = 4096;
/// In `Scratch::old_at`: the group did not exist when the epoch began.
const NEW: u32 = u32::MAX;

/// GROUP BY. See the module's text.
#[derive(Debug)]
pub struct HashAggregate {
    spec: AggregateSpec,
    layout: Layout,
    key_schema: SchemaRef,
    /// Key of the distinct tables: group columns, then the argument.
    distinct_schemas: Vec<SchemaRef>,
    output: SchemaRef,
    /// Group columns that give a row its vnode.
    dist: Vec<usize>,
    /// Result types of the calls.
    types: Vec<DataType>,
    /// Keys of groups that are there without rows, and whether this task has made them.
    always: Vec<ArrayRef>,
    made: bool,
    /// Group bytes, and per row set group bytes ++ row bytes, and row bytes alone.
    prefix_rows: Option<RowConverter>,
    set_rows: Vec<(RowConverter, RowConverter)>,
    scratch: Scratch,
}

/// What an epoch needs until its barrier; empty in between.
#[derive(Debug, Default)]
struct Scratch {
    /// The first slot that did not exist when the epoch began.
    first_new: Option<u32>,
    /// Groups in the order of first touch.
    touched: Vec<u32>,
    is_touched: Vec<u64>,
    /// Per touched group its row in `old`, or [`NEW`].
    old_at: Vec<u32>,
    old: Vec<Column>,
    old_len: u32,
    /// Per distinct table: slots whose weight has been 0 at some time.
    zero: Vec<Vec<u32>>,
}

/// A delta on its way into the tables.
struct Batch<'a> {
    rows: &'a RecordBatch,
    keys: &'a [ArrayRef],
    base: &'a [i64],
    slots: &'a [u32],
}

/// The operator's tables, borrowed together.
struct State<'a> {
    groups: &'a mut GroupTable,
    distincts: &'a mut [Table],
    sets: &'a mut [Table],
}

impl<'a> State<'a> {
    fn of(tables: &'a mut Tables, distincts: usize) -> Result<Self> {
        match tables.all() {
            [Table::Group(groups), rest @ ..] if rest.len() >= distincts => {
                let (distincts, sets) = rest.split_at_mut(distincts);
                Ok(Self { groups, distincts, sets })
            }
            _ => Err(SpateError::internal("the tables of an aggregate are missing")),
        }
    }

    fn distinct(&mut self, i: usize) -> Result<&mut GroupTable> {
        match self.distincts.get_mut(i) {
            Some(Table::Group(t)) => Ok(t),
            _ => Err(SpateError::internal("a table of distinct values is missing")),
        }
    }

    fn set(&mut self, i: usize) -> Result<&mut OrderedTable> {
        match self.sets.get_mut(i) {
            Some(Table::Ordered(t)) => Ok(t),
            _ => Err(SpateError::internal("a table of ordered values is missing")),
        }
    }
}

impl HashAggregate {
    /// The operator for a spec that [`check`] accepts; `output` has the group columns, then the calls.
    pub fn new(spec: AggregateSpec, input: &SchemaRef, output: SchemaRef) -> Result<Self> {
        let of;
        let input = match &spec.phase {
            Phase::Final(from) => {
                of = Arc::clone(from);
                &of
            }
            _ => input,
        };
        let layout = Layout::new(&spec, input)?;
        if spec.phase != Phase::Whole {
            partial::check(&spec, &layout)?;
        }
        let results = if spec.phase == Phase::Partial { 1 } else { spec.calls.len() };
        if output.fields().len() != spec.group.len() + results {
            return Err(SpateError::internal("an aggregate's output has the wrong number of columns"));
        }
        let field = |i: usize| input.field(i).clone().with_nullable(true);
        let group: Vec<_> = spec.group.iter().map(|&i| field(i)).collect();
        let with_arg = |arg: &usize| {
            let mut f = group.clone();
            f.push(field(*arg));
            Arc::new(Schema::new(f)) as SchemaRef
        };
        let distinct_schemas: Vec<SchemaRef> = layout.distincts.iter().map(with_arg).collect();
        let sort: Vec<SortField> = group.iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let (mut prefix_rows, mut set_rows) = (None, vec![]);
        if !layout.sets.is_empty() {
            if !group.is_empty() {
                prefix_rows = Some(RowConverter::new(sort.clone())?);
            }
            for s in &layout.sets {
                let own = s.sort_fields();
                let whole = sort.iter().cloned().chain(own.iter().cloned()).collect();
                set_rows.push((RowConverter::new(whole)?, RowConverter::new(own)?));
            }
        }
        Ok(Self {
            dist: (0..spec.group.len()).collect(),
            types: spec.calls.iter().map(|c| c.result_type.clone()).collect(),
            key_schema: Arc::new(Schema::new(group)),
            always: vec![],
            made: false,
            spec,
            layout,
            distinct_schemas,
            output,
            prefix_rows,
            set_rows,
            scratch: Scratch::default(),
        })
    }

    /// States are filed by the vnode of these group columns (indices into the group columns;
    /// all of them if never said). They must be what the input is distributed by.
    #[must_use]
    pub fn with_distribution(mut self, dist: Vec<usize>) -> Self {
        self.dist = dist;
        self
    }

    fn is_global(&self) -> bool {
        self.spec.group.is_empty()
    }

    /// Keeps those groups that are there without rows, as far as they are task `task`'s of `tasks`.
    pub fn keep_always(&mut self, task: usize, tasks: usize) -> Result<()> {
        let (Some(last), false) = (self.key_schema.fields().last(), self.spec.always.is_empty()) else {
            return Ok(());
        };
        let ids = cast(&UInt64Array::from(self.spec.always.clone()), last.data_type())?;
        let nulls = self.key_schema.fields().iter().map(|f| new_null_array(f.data_type(), ids.len()));
        let mut keys: Vec<ArrayRef> = nulls.take(self.key_schema.fields().len() - 1).collect();
        keys.push(ids);
        let dist: Vec<ArrayRef> = self.dist.iter().filter_map(|&d| keys.get(d).cloned()).collect();
        let hashes = hash_rows(&dist, self.spec.always.len())?;
        let mine: BooleanArray = hashes.iter().map(|h| Some(task_of(vnode_of(*h), tasks) == task)).collect();
        self.always = keys.iter().map(|k| filter(k, &mine)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Which of these groups are there without rows.
    fn is_always(&self, groups: &GroupTable, slots: &[u32]) -> Result<Vec<bool>> {
        if self.spec.always.is_empty() || slots.is_empty() {
            return Ok(vec![self.is_global(); slots.len()]);
        }
        let ids = match groups.keys_at(slots)?.last() {
            Some(k) => cast(k, &DataType::UInt64)?,
            None => return Err(SpateError::internal("a grouping set has no number")),
        };
        let ids = ids.as_primitive::<UInt64Type>();
        Ok(ids.iter().map(|id| id.is_some_and(|id| self.spec.always.contains(&id))).collect())
    }

    fn accs(&self) -> Vec<&Acc> {
        self.layout.feeds.iter().flat_map(|f| &f.accs).collect()
    }

    /// Slots of the rows' groups; new ones are made ready, and first touches noted.
    fn locate(
        &mut self,
        groups: &mut GroupTable,
        keys: &[ArrayRef],
        rows: usize,
        times: Option<&[i64]>,
    ) -> Result<Vec<u32>> {
        let before = groups.next_slot();
        let first_new = *self.scratch.first_new.get_or_insert(before);
        let mut slots = Vec::new();
        groups.find_or_insert(keys, rows, &mut slots)?;
        let after = groups.next_slot();
        for acc in self.layout.feeds.iter().flat_map(|f| &f.accs) {
            accumulate::init(acc, groups.columns_mut(), before..after)?;
        }
        if let (Some(column), Some(times)) = (self.layout.time, times) {
            for (&s, &t) in slots.iter().zip(times).filter(|(s, _)| **s >= before) {
                groups.set_time(column, s, t);
            }
        }
        let scratch = &mut self.scratch;
        scratch.is_touched.resize((after as usize).div_ceil(64), 0);
        if scratch.old.is_empty() {
            scratch.old = self.layout.columns.iter().map(|&k| Column::new(k)).collect();
        }
        for &s in &slots {
            let (word, bit) = (s as usize / 64, 1u64 << (s % 64));
            if scratch.is_touched[word] & bit != 0 {
                continue;
            }
            scratch.is_touched[word] |= bit;
            scratch.touched.push(s);
            if s >= first_new || self.spec.emit_on_close {
                scratch.old_at.push(NEW);
            } else {
                scratch.old_at.push(scratch.old_len);
                scratch.old_len += 1;
                for (to, from) in scratch.old.iter_mut().zip(groups.columns()) {
                    to.push_from(from, s);
                }
            }
        }
        Ok(slots)
    }

    /// Turns weights of values into changes of "is there": +1 when a value comes, −1 when it goes.
    fn distinct_weights(
        &mut self,
        table: usize,
        state: &mut State<'_>,
        keys: &[ArrayRef],
        arg: &ArrayRef,
        weights: &mut [i64],
        times: Option<&[i64]>,
    ) -> Result<()> {
        let wanted: Vec<u32> = (0..weights.len() as u32).filter(|&i| weights[i as usize] != 0).collect();
        let which = UInt32Array::from(wanted);
        let all = which.len() == weights.len();
        let pick = |a: &ArrayRef| if all { Ok(a.clone()) } else { take(a, &which, None) };
        let keys: Vec<ArrayRef> = keys.iter().chain([arg]).map(pick).collect::<Result<_, _>>()?;
        let values = state.distinct(table)?;
        let before = values.next_slot();
        let mut slots = Vec::new();
        values.find_or_insert(&keys, which.len(), &mut slots)?;
        if let Some(times) = times {
            for (&i, &s) in which.values().iter().zip(&slots).filter(|(_, s)| **s >= before) {
                values.set_time(1, s, times[i as usize]);
            }
        }
        self.scratch.zero.resize(self.layout.distincts.len(), vec![]);
        let zero = &mut self.scratch.zero[table];
        let cells = accumulate::i64s(&mut values.columns_mut()[0])?;
        for (&i, &s) in which.values().iter().zip(&slots) {
            let w = &mut weights[i as usize];
            let cell = cells.get_mut(s);
            let old = *cell;
            *cell = old.wrapping_add(*w);
            *w = i64::from(*cell > 0) - i64::from(old > 0);
            if *cell == 0 {
                zero.push(s);
            }
        }
        Ok(())
    }

    /// Adds the rows to an ordered table.
    fn feed_set(&self, i: usize, set: &RowSet, batch: &Batch<'_>, state: &mut State<'_>) -> Result<()> {
        let mut columns: Vec<ArrayRef> = batch.keys.to_vec();
        for (o, t) in set.columns.iter().zip(&set.types) {
            columns.push(cast_to(batch.rows.column(o.column), t)?);
        }
        let not_null = set.not_null.and_then(|n| columns.get(batch.keys.len() + n));
        let weights = effective(batch.base, not_null, set.filter.map(|f| batch.rows.column(f).as_boolean()));
        let (whole, _) = self.set_rows.get(i).ok_or_else(|| SpateError::internal("a row set has no encoding"))?;
        let encoded = whole.convert_columns(&columns)?;
        for (row, &w) in weights.iter().enumerate().filter(|(_, w)| **w != 0) {
            let vnode = state.groups.vnode(batch.slots[row]);
            state.set(i)?.add(encoded.row(row).data(), w, vnode);
        }
        Ok(())
    }

    /// Computes what these groups have in the ordered tables into their columns.
    fn read_sets(&self, state: &mut State<'_>, slots: &[u32]) -> Result<()> {
        if self.layout.sets.is_empty() {
            return Ok(());
        }
        for part in slots.chunks(EMIT_ROWS) {
            let prefixes = self.prefixes(state.groups, part)?;
            let prefix = |n: usize| prefixes.as_ref().map_or(&[][..], |p| p.row(n).data());
            for acc in self.accs() {
                let set = match &acc.kind {
                    AccKind::ExtremeSet { set, .. } => *set,
                    AccKind::Rows(rows) => rows.set,
                    _ => continue,
                };
                let Some(Table::Ordered(values)) = state.sets.get(set) else {
                    return Err(SpateError::internal("a table of ordered values is missing"));
                };
                let cells = accumulate::bytes(&mut state.groups.columns_mut()[acc.column])?;
                if let (AccKind::Rows(rows), Some((_, own))) = (&acc.kind, self.set_rows.get(set)) {
                    let mut all = Evaluator::new(rows, own);
                    for n in 0..part.len() {
                        all.group(values, prefix(n))?;
                    }
                    for (result, &slot) in all.finish()?.into_iter().zip(part) {
                        if *cells.get(slot) != result {
                            *cells.get_mut(slot) = result;
                        }
                    }
                    continue;
                }
                let AccKind::ExtremeSet { max, .. } = &acc.kind else { continue };
                for (n, &slot) in part.iter().enumerate() {
                    let prefix = prefix(n);
                    let found = if *max { values.last(prefix) } else { values.first(prefix) };
                    let found = found.map(|k| &k[prefix.len()..]);
                    if cells.get(slot).as_deref() != found {
                        *cells.get_mut(slot) = found.map(Into::into);
                    }
                }
            }
        }
        Ok(())
    }

    fn prefixes(&self, groups: &GroupTable, slots: &[u32]) -> Result<Option<arrow::row::Rows>> {
        self.prefix_rows.as_ref().map(|c| Ok(c.convert_columns(&groups.keys_at(slots)?)?)).transpose()
    }

    /// Emits what the epoch's rows of each touched group sum up to, and forgets it.
    fn emit_sums(&mut self, groups: &mut GroupTable, out: &mut Output) -> Result<()> {
        for slots in self.scratch.touched.chunks(EMIT_ROWS) {
            let mut columns = groups.keys_at(slots)?;
            columns.push(partial::encode(groups.columns(), slots)?);
            out.emit(Delta::insert(self.batch(columns, slots.len())?));
        }
        groups.remove(&self.scratch.touched)?;
        self.scratch = Scratch::default();
        groups.maintain()
    }

    /// Emits the changes of touched groups.
    fn emit_changes(&self, groups: &GroupTable, out: &mut Output) -> Result<()> {
        let s = &self.scratch;
        for start in (0..s.touched.len()).step_by(EMIT_ROWS) {
            let end = s.touched.len().min(start + EMIT_ROWS);
            let (slots, old_at) = (&s.touched[start..end], &s.old_at[start..end]);
            let news = finish::results(&self.layout, groups.columns(), slots, &self.types)?;
            let had: Vec<u32> = (0..slots.len() as u32).filter(|&i| old_at[i as usize] != NEW).collect();
            let old_slots: Vec<u32> = had.iter().map(|&i| old_at[i as usize]).collect();
            let olds = finish::results(&self.layout, &s.old, &old_slots, &self.types)?;
            let aligned = UInt32Array::from(had);
            let mut changed = vec![false; aligned.len()];
            for (old, new) in olds.iter().zip(&news) {
                if *old.data_type() == DataType::Null {
                    continue;
                }
                let new = if aligned.len() == slots.len() { new.clone() } else { take(new, &aligned, None)? };
                if old.data_type().is_nested() {
                    let order = make_comparator(old, &new, SortOptions::default())?;
                    changed.iter_mut().enumerate().for_each(|(i, c)| *c |= order(i, i).is_ne());
                    continue;
                }
                let d: BooleanArray = differs(old, &new)?;
                changed.iter_mut().enumerate().for_each(|(i, c)| *c |= d.value(i));
            }
            let rows = accumulate_rows(groups)?;
            let always = self.is_always(groups, slots)?;
            // (which side, row on that side, row of the group), and weights.
            let mut picks: Vec<(usize, usize)> = Vec::new();
            let mut key_rows: Vec<u32> = Vec::new();
            let mut weights: Vec<i64> = Vec::new();
            let mut old_row = 0;
            for (i, &slot) in slots.iter().enumerate() {
                let exists = *rows.get(slot) != 0 || always[i];
                let existed = old_at[i] != NEW;
                if existed {
                    if changed[old_row] || !exists {
                        picks.push((0, old_row));
                        key_rows.push(i as u32);
                        weights.push(-1);
                    }
                    old_row += 1;
                }
                if exists && (!existed || changed[old_row - 1]) {
                    picks.push((1, i));
                    key_rows.push(i as u32);
                    weights.push(1);
                }
            }
            if picks.is_empty() {
                continue;
            }
            let key_rows = UInt32Array::from(key_rows);
            let mut columns: Vec<ArrayRef> =
                groups.keys_at(slots)?.iter().map(|k| take(k, &key_rows, None)).collect::<Result<_, _>>()?;
            for (old, new) in olds.iter().zip(&news) {
                columns.push(interleave(&[old.as_ref(), new.as_ref()], &picks)?);
            }
            let weights = weights.iter().any(|w| *w < 0).then(|| Int64Array::from(weights));
            out.emit(Delta::new(self.batch(columns, picks.len())?, weights)?);
        }
        Ok(())
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let fit = |(c, f): (&ArrayRef, &Arc<arrow::datatypes::Field>)| cast_to(c, f.data_type());
        let columns = columns.iter().zip(self.output.fields()).map(fit).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.output.clone(), columns, &options)?)
    }

    /// Emits each of these groups once.
    fn emit_final(&self, groups: &GroupTable, slots: &[u32], out: &mut Output) -> Result<()> {
        for part in slots.chunks(EMIT_ROWS) {
            let mut columns = groups.keys_at(part)?;
            columns.extend(finish::results(&self.layout, groups.columns(), part, &self.types)?);
            out.emit(Delta::insert(self.batch(columns, part.len())?));
        }
        Ok(())
    }

    /// Removes groups that hold no rows and values that hold no weight.
    fn remove_empty(&mut self, state: &mut State<'_>) -> Result<()> {
        if !self.is_global() {
            let rows = accumulate_rows(state.groups)?;
            let mut empty: Vec<u32> = self.scratch.touched.iter().copied().filter(|&s| *rows.get(s) == 0).collect();
            let always = self.is_always(state.groups, &empty)?;
            let mut always = always.iter();
            empty.retain(|_| !always.next().copied().unwrap_or(false));
            state.groups.remove(&empty)?;
        }
        for (table, mut slots) in std::mem::take(&mut self.scratch.zero).into_iter().enumerate() {
            slots.sort_unstable();
            slots.dedup();
            let values = state.distinct(table)?;
            let cells = accumulate_rows(values)?;
            slots.retain(|&s| *cells.get(s) == 0);
            values.remove(&slots)?;
        }
        Ok(())
    }

    /// Emits (if so wanted) and frees the groups whose windows are final.
    fn close(&mut self, watermark: i64, state: &mut State<'_>, out: &mut Output) -> Result<()> {
        let (Some(window), Some(time)) = (self.spec.window, self.layout.time) else { return Ok(()) };
        let emit = self.spec.emit_on_close;
        if watermark == WATERMARK_MIN || !(emit || self.spec.append_only_input) {
            return Ok(());
        }
        let bound = window.kind.final_below(watermark);
        let everything = emit && watermark == WATERMARK_MAX;
        let mut closed = if everything { state.groups.live_slots() } else { state.groups.take_below(time, bound) };
        if !closed.is_empty() {
            if let Some(Column::I64(times)) = state.groups.columns().get(time) {
                closed.sort_by_key(|&s| (*times.get(s), s));
            }
            if emit {
                self.read_sets(state, &closed)?;
                self.emit_final(state.groups, &closed, out)?;
            }
            for part in closed.chunks(EMIT_ROWS) {
                if self.layout.sets.is_empty() {
                    break;
                }
                let prefixes = self.prefixes(state.groups, part)?;
                for set in 0..self.layout.sets.len() {
                    for n in 0..part.len() {
                        let prefix = prefixes.as_ref().map_or(&[][..], |p| p.row(n).data());
                        state.set(set)?.delete_prefix(prefix);
                    }
                }
            }
            state.groups.remove(&closed)?;
        }
        for table in 0..self.layout.distincts.len() {
            let values = state.distinct(table)?;
            let slots = if everything { values.live_slots() } else { values.take_below(1, bound) };
            values.remove(&slots)?;
        }
        Ok(())
    }
}

/// Column 0 of a group table: rows of the group, or weight of the value.
fn accumulate_rows(groups: &GroupTable) -> Result<&crate::state::chunked::Chunked<i64>> {
    match groups.columns().first() {
        Some(Column::I64(c)) => Ok(c),
        _ => Err(SpateError::internal("a group table has no count")),
    }
}

fn cast_to(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to { Ok(array.clone()) } else { Ok(cast(array, to)?) }
}

/// Weights with 0 where the argument is NULL or the filter is not true.
fn effective<'a>(base: &'a [i64], arg: Option<&ArrayRef>, filter: Option<&BooleanArray>) -> Cow<'a, [i64]> {
    let mut w = Cow::Borrowed(base);
    if let Some(nulls) = arg.and_then(|a| a.logical_nulls()).filter(|n| n.null_count() > 0) {
        w.to_mut().iter_mut().zip(nulls.iter()).filter(|(_, valid)| !valid).for_each(|(w, _)| *w = 0);
    }
    if let Some(f) = filter {
        let cells = w.to_mut().iter_mut().enumerate();
        cells.filter(|(i, _)| f.is_null(*i) || !f.value(*i)).for_each(|(_, w)| *w = 0);
    }
    w
}

impl Operator for HashAggregate {
    fn tables(&self) -> Vec<TableDef> {
        let mut defs = vec![TableDef::Group {
            key: self.key_schema.clone(),
            dist: self.dist.clone(),
            values: self.layout.columns.clone(),
        }];
        for key in &self.distinct_schemas {
            let mut values = vec![ColumnKind::I64];
            values.extend(self.layout.time.map(|_| ColumnKind::Time));
            defs.push(TableDef::Group { key: key.clone(), dist: self.dist.clone(), values });
        }
        defs.extend(self.layout.sets.iter().map(|_| TableDef::Ordered));
        defs
    }

    fn push(&mut self, _input: usize, delta: Delta, tables: &mut Tables, _out: &mut Output) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        let mut state = State::of(tables, self.layout.distincts.len())?;
        let (rows, weights) = delta.into_parts();
        let n = rows.num_rows();
        if let Phase::Final(_) = self.spec.phase {
            let (keys, sums) = rows.columns().split_at(self.spec.group.len());
            let keys: Vec<ArrayRef> = keys.iter().map(normalize_float_zero).collect();
            let slots = self.locate(state.groups, &keys, n, None)?;
            let sums =
                sums.first().ok_or_else(|| SpateError::internal("the last phase of an aggregate has no sums"))?;
            return partial::merge(&self.layout, state.groups.columns_mut(), sums, &slots);
        }
        let base: Vec<i64> = weights.map_or_else(|| vec![1; n], |w| w.values().to_vec());
        let keys: Vec<ArrayRef> = self.spec.group.iter().map(|&g| normalize_float_zero(rows.column(g))).collect();
        let times: Option<Vec<i64>> = match self.spec.window.and_then(|w| keys.get(w.column)) {
            // A window that is NULL never ends.
            Some(k) => k
                .as_primitive_opt::<TimestampMicrosecondType>()
                .map(|a| a.iter().map(|t| t.unwrap_or(i64::MAX)).collect()),
            None => None,
        };
        let slots = self.locate(state.groups, &keys, n, times.as_deref())?;
        accumulate::count(&mut state.groups.columns_mut()[ROWS], &slots, &base)?;
        for f in 0..self.layout.feeds.len() {
            let feed = &self.layout.feeds[f];
            let (arg, filter) = (feed.arg, feed.filter.map(|c| rows.column(c).as_boolean()));
            let arg = arg.map(|c| rows.column(c));
            let mut w = effective(&base, arg, filter);
            if let (Some(table), Some(arg)) = (feed.distinct, arg) {
                self.distinct_weights(table, &mut state, &keys, arg, w.to_mut(), times.as_deref())?;
            }
            for acc in &self.layout.feeds[f].accs {
                let columns = state.groups.columns_mut();
                match (&acc.kind, arg) {
                    (AccKind::ExtremeSet { .. } | AccKind::Rows(_), _) => {}
                    (AccKind::Moments { other }, Some(arg)) => {
                        let other = other.map(|c| rows.column(c));
                        moments::update(acc, columns, arg, other, &slots, &w)?;
                    }
                    (AccKind::Count, _) | (_, None) => accumulate::count(&mut columns[acc.column], &slots, &w)?,
                    (_, Some(arg)) => accumulate::update(acc, columns, &cast_to(arg, &acc.input)?, &slots, &w)?,
                }
            }
        }
        let batch = Batch { rows: &rows, keys: &keys, base: &base, slots: &slots };
        for (i, set) in self.layout.sets.iter().enumerate() {
            self.feed_set(i, set, &batch, &mut state)?;
        }
        Ok(())
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let mut state = State::of(tables, self.layout.distincts.len())?;
        if self.spec.phase == Phase::Partial {
            return self.emit_sums(state.groups, out);
        }
        if self.is_global() && state.groups.is_empty() {
            self.locate(state.groups, &[], 1, None)?;
        }
        if !std::mem::replace(&mut self.made, true)
            && let Some(n) = self.always.first().map(|k| k.len())
        {
            let keys = std::mem::take(&mut self.always);
            self.locate(state.groups, &keys, n, None)?;
        }
        let touched = std::mem::take(&mut self.scratch.touched);
        accumulate::clear_empty_sums(&self.accs(), state.groups.columns_mut(), &touched)?;
        self.scratch.touched = touched;
        if !self.spec.emit_on_close {
            self.read_sets(&mut state, &self.scratch.touched)?;
            self.emit_changes(state.groups, out)?;
        }
        self.remove_empty(&mut state)?;
        self.close(info.watermark, &mut state, out)?;
        self.scratch = Scratch::default();
        state.groups.maintain()?;
        for table in 0..self.layout.distincts.len() {
            state.distinct(table)?.maintain()?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "partial_tests.rs"]
mod partial_tests;
#[cfg(test)]
#[path = "rows_tests.rs"]
mod rows_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
