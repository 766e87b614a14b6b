//! `GroupTable`: one row per key, found by hash, with typed columns that change in place.
//!
//! A *slot* is where a row stands until the next [`GroupTable::maintain`]; slots and row ids
//! both rise with insertion. A removed row leaves the index at once, and a key that comes
//! back is a new row at the end. Keys of one plain column are kept as `i64`, all others as
//! arrow-row bytes in arenas; columns and keys are copy-on-write per chunk, so `freeze`
//! clones pointers. Keys are equal when their bits are (callers fold −0.0 where they want to).

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array, RecordBatch,
    RecordBatchOptions, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, take};
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Field, Float64Type, Int64Type, Schema, SchemaRef, i256,
};
use arrow::row::{RowConverter, Rows, SortField};

use super::TableSegment;
use super::chunked::{CHUNK_ROWS, Chunked, ChunkedBytes};
use super::native::{fits_i64, from_i64, to_i64};
use super::slots::{SlotIndex, TOGETHER};
use crate::types::vnode::{hash_rows, vnode_of};
use crate::types::{Result, SpateError, decoded};

/// What a mutable column holds; new rows start at zero (or absent).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Counts, wrapping sums.
    I64,
    /// Decimal sums.
    I128,
    /// Wide decimal sums.
    I256,
    /// Floats; bits are kept exactly.
    F64,
    /// A time in microseconds, set once per row, that [`GroupTable::take_below`] searches.
    Time,
    /// Bytes or nothing.
    Bytes,
}

/// A mutable column, or the values of one at certain slots.
#[derive(Debug, Clone)]
pub enum Column {
    /// See [`ColumnKind::I64`] and [`ColumnKind::Time`].
    I64(Chunked<i64>),
    /// See [`ColumnKind::I128`].
    I128(Chunked<i128>),
    /// See [`ColumnKind::I256`].
    I256(Chunked<i256>),
    /// See [`ColumnKind::F64`].
    F64(Chunked<f64>),
    /// See [`ColumnKind::Bytes`].
    Bytes(Chunked<Option<Box<[u8]>>>),
}

macro_rules! each_column {
    ($column:expr, $c:ident => $body:expr) => {
        match $column {
            Column::I64($c) => $body,
            Column::I128($c) => $body,
            Column::I256($c) => $body,
            Column::F64($c) => $body,
            Column::Bytes($c) => $body,
        }
    };
}

impl Column {
    /// An empty column.
    pub fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::I64 | ColumnKind::Time => Self::I64(Chunked::new()),
            ColumnKind::I128 => Self::I128(Chunked::new()),
            ColumnKind::I256 => Self::I256(Chunked::new()),
            ColumnKind::F64 => Self::F64(Chunked::new()),
            ColumnKind::Bytes => Self::Bytes(Chunked::new()),
        }
    }

    fn push_default(&mut self) {
        each_column!(self, c => c.push(Default::default()));
    }

    /// Appends what `from` holds at `slot`; both are of one kind.
    pub fn push_from(&mut self, from: &Self, slot: u32) {
        match (self, from) {
            (Self::I64(a), Self::I64(b)) => a.push(*b.get(slot)),
            (Self::I128(a), Self::I128(b)) => a.push(*b.get(slot)),
            (Self::I256(a), Self::I256(b)) => a.push(*b.get(slot)),
            (Self::F64(a), Self::F64(b)) => a.push(*b.get(slot)),
            (Self::Bytes(a), Self::Bytes(b)) => a.push(b.get(slot).clone()),
            _ => debug_assert!(false, "columns of two kinds"),
        }
    }

    fn heap_bytes(&self) -> usize {
        // Byte strings are counted in a few chunks only: this is asked often.
        let boxes = match self {
            Self::Bytes(c) => {
                let chunks = c.len().div_ceil(CHUNK_ROWS);
                let sample = (0..chunks).step_by((chunks / 4).max(1)).map(|k| c.chunk(k));
                let (bytes, rows) = sample.fold((0, 0), |(bytes, rows), chunk| {
                    (bytes + chunk.iter().flatten().map(|b| b.len() + 8).sum::<usize>(), rows + chunk.len())
                });
                bytes * c.len() / rows.max(1)
            }
            _ => 0,
        };
        boxes + each_column!(self, c => c.memory_size())
    }

    fn to_array(&self, slots: &[u32]) -> Result<ArrayRef> {
        Ok(match self {
            Self::I64(c) => Arc::new(Int64Array::from(c.gather(slots))),
            Self::I128(c) => Arc::new(Decimal128Array::from(c.gather(slots)).with_precision_and_scale(38, 0)?),
            Self::I256(c) => Arc::new(Decimal256Array::from(c.gather(slots)).with_precision_and_scale(76, 0)?),
            Self::F64(c) => Arc::new(Float64Array::from(c.gather(slots))),
            Self::Bytes(c) => Arc::new(slots.iter().map(|&s| c.get(s).as_deref()).collect::<BinaryArray>()),
        })
    }

    fn push_array(&mut self, array: &ArrayRef, row: usize) -> Result<()> {
        let wrong = || SpateError::internal("a snapshot's column has the wrong type");
        match self {
            Self::I64(c) => c.push(array.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?.value(row)),
            Self::I128(c) => c.push(array.as_primitive_opt::<Decimal128Type>().ok_or_else(wrong)?.value(row)),
            Self::I256(c) => c.push(array.as_primitive_opt::<Decimal256Type>().ok_or_else(wrong)?.value(row)),
            Self::F64(c) => c.push(array.as_primitive_opt::<Float64Type>().ok_or_else(wrong)?.value(row)),
            Self::Bytes(c) => {
                let a = array.as_binary_opt::<i32>().ok_or_else(wrong)?;
                c.push(a.is_valid(row).then(|| a.value(row).into()));
            }
        }
        Ok(())
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::I64(_) => DataType::Int64,
            Self::I128(_) => DataType::Decimal128(38, 0),
            Self::I256(_) => DataType::Decimal256(76, 0),
            Self::F64(_) => DataType::Float64,
            Self::Bytes(_) => DataType::Binary,
        }
    }
}

const KEY_NULL: u8 = 1;
const ALIVE: u8 = 2;
const DIRTY: u8 = 4;

/// Keys in their stored form.
#[derive(Debug, Clone)]
enum Keys {
    /// No key columns: at most one row.
    Unit,
    Native(Chunked<i64>),
    Rows(ChunkedBytes),
}

/// Keys of a batch in the form in which the table keeps them.
enum BatchKeys {
    Unit,
    Native(Vec<i64>, Option<NullBuffer>),
    Rows(Rows),
}

/// Everything but the index: what a snapshot needs.
#[derive(Debug, Clone)]
struct Body {
    keys: Keys,
    flags: Chunked<u8>,
    ids: Chunked<u64>,
    vnodes: Chunked<u8>,
    columns: Vec<Column>,
}

impl Body {
    /// A copy that shares its chunks.
    fn frozen(&mut self) -> Self {
        Self {
            keys: match &mut self.keys {
                Keys::Unit => Keys::Unit,
                Keys::Native(c) => Keys::Native(c.frozen()),
                Keys::Rows(c) => Keys::Rows(c.clone()),
            },
            flags: self.flags.frozen(),
            ids: self.ids.frozen(),
            vnodes: self.vnodes.frozen(),
            columns: self
                .columns
                .iter_mut()
                .map(|c| match c {
                    Column::I64(c) => Column::I64(c.frozen()),
                    Column::I128(c) => Column::I128(c.frozen()),
                    Column::I256(c) => Column::I256(c.frozen()),
                    Column::F64(c) => Column::F64(c.frozen()),
                    Column::Bytes(c) => Column::Bytes(c.frozen()),
                })
                .collect(),
        }
    }
}

/// A state of a table that later changes do not reach.
#[derive(Debug, Clone)]
pub struct FrozenGroups(Body);

impl FrozenGroups {
    /// All rows, as a full snapshot.
    pub fn segment(&self) -> Result<TableSegment> {
        self.0.segment(None, &[])
    }
}

/// One row per key. See the module's text.
#[derive(Debug)]
pub struct GroupTable {
    key: SchemaRef,
    dist: Vec<usize>,
    kinds: Vec<ColumnKind>,
    converter: Option<Arc<RowConverter>>,
    body: Body,
    index: SlotIndex,
    dead: usize,
    next_id: u64,
    /// Ids below this one are known to earlier snapshots.
    snapshot_below: u64,
    dirty_chunks: Vec<bool>,
    /// Rows known to earlier snapshots that have gone since.
    gone: Vec<(u64, u8)>,
    /// Least live value per chunk, one list per `Time` column.
    minima: BTreeMap<usize, Vec<i64>>,
}

impl GroupTable {
    /// An empty table. Errors if a key type cannot be encoded.
    pub fn new(key: SchemaRef, dist: Vec<usize>, values: Vec<ColumnKind>) -> Result<Self> {
        if dist.iter().any(|&d| d >= key.fields().len()) {
            return Err(SpateError::internal("a distribution column is no key column"));
        }
        let fields = key.fields();
        let (keys, converter) = match fields.len() {
            0 => (Keys::Unit, None),
            1 if fits_i64(fields[0].data_type()) => (Keys::Native(Chunked::new()), None),
            _ => {
                let sort: Vec<SortField> = fields.iter().map(|f| SortField::new(f.data_type().clone())).collect();
                if !RowConverter::supports_fields(&sort) {
                    return Err(SpateError::unsupported("grouping by a column of this type is not supported"));
                }
                (Keys::Rows(ChunkedBytes::default()), Some(Arc::new(RowConverter::new(sort)?)))
            }
        };
        let minima =
            values.iter().enumerate().filter(|(_, k)| **k == ColumnKind::Time).map(|(i, _)| (i, vec![])).collect();
        let columns = values.iter().map(|&k| Column::new(k)).collect();
        Ok(Self {
            key,
            dist,
            kinds: values,
            converter,
            body: Body { keys, flags: Chunked::new(), ids: Chunked::new(), vnodes: Chunked::new(), columns },
            index: SlotIndex::new(),
            dead: 0,
            next_id: 0,
            snapshot_below: 0,
            dirty_chunks: Vec::new(),
            gone: Vec::new(),
            minima,
        })
    }

    /// Number of live rows.
    pub fn len(&self) -> usize {
        self.body.flags.len() - self.dead
    }

    /// Whether there is no live row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot that the next new key will get; all earlier ones are below it.
    pub fn next_slot(&self) -> u32 {
        self.body.flags.len() as u32
    }

    /// Finds the rows of these keys, adding those that are missing, and appends one slot per
    /// input row to `slots`. All found rows count as changed.
    pub fn find_or_insert(&mut self, keys: &[ArrayRef], rows: usize, slots: &mut Vec<u32>) -> Result<()> {
        if self.body.flags.len().saturating_add(rows) > u32::MAX as usize {
            return Err(SpateError::new(crate::types::ErrorKind::Limit, "too many groups in one task"));
        }
        let hashes = hash_rows(keys, rows)?;
        let batch = self.encode(keys)?;
        let whole_key = self.dist.len() == keys.len() && self.dist.iter().enumerate().all(|(i, &d)| i == d);
        let mut added: Vec<u32> = Vec::new();
        slots.reserve(rows);
        let mut likely = Vec::new();
        for (part, some) in hashes.chunks(TOGETHER).enumerate() {
            if self.index.is_large() {
                self.index.warm(some, &mut likely);
                self.body.warm(&likely);
            }
            for (i, &h) in some.iter().enumerate() {
                let row = part * TOGETHER + i;
                let slot = match self.index.find(h, |slot| self.body.same_key(slot, &batch, row)) {
                    Some(slot) => slot,
                    None => {
                        let slot = self.body.flags.len() as u32;
                        self.body.push_key(&batch, row)?;
                        self.body.ids.push(self.next_id);
                        self.next_id += 1;
                        self.body.vnodes.push(vnode_of(h));
                        self.body.columns.iter_mut().for_each(Column::push_default);
                        self.index.insert(h, slot);
                        if !whole_key {
                            added.push(row as u32);
                        }
                        slot
                    }
                };
                self.mark_dirty(slot);
                slots.push(slot);
            }
        }
        if !added.is_empty() {
            let which = UInt32Array::from(added);
            let dist: Vec<ArrayRef> =
                self.dist.iter().map(|&d| take(&keys[d], &which, None)).collect::<Result<_, _>>()?;
            let first = self.body.flags.len() - which.len();
            for (i, h) in hash_rows(&dist, which.len())?.into_iter().enumerate() {
                *self.body.vnodes.get_mut((first + i) as u32) = vnode_of(h);
            }
        }
        Ok(())
    }

    fn encode(&self, keys: &[ArrayRef]) -> Result<BatchKeys> {
        Ok(match (&self.body.keys, &self.converter) {
            (Keys::Native(_), _) => {
                let a = keys.first().ok_or_else(|| SpateError::internal("a key column is missing"))?;
                BatchKeys::Native(to_i64(a)?, a.nulls().cloned())
            }
            (Keys::Rows(_), Some(c)) => BatchKeys::Rows(c.convert_columns(keys)?),
            _ => BatchKeys::Unit,
        })
    }

    /// Notes that the row changed since the last snapshot.
    #[inline]
    pub fn mark_dirty(&mut self, slot: u32) {
        let f = *self.body.flags.get(slot);
        if f & DIRTY == 0 {
            *self.body.flags.get_mut(slot) = f | DIRTY;
            let chunk = slot as usize / CHUNK_ROWS;
            if self.dirty_chunks.len() <= chunk {
                self.dirty_chunks.resize(chunk + 1, false);
            }
            self.dirty_chunks[chunk] = true;
        }
    }

    /// All mutable columns, in order, to be changed at slots that [`Self::find_or_insert`] gave.
    pub fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.body.columns
    }

    /// All mutable columns.
    pub fn columns(&self) -> &[Column] {
        &self.body.columns
    }

    /// Sets a `Time` column.
    pub fn set_time(&mut self, column: usize, slot: u32, value: i64) {
        if let (Some(Column::I64(c)), Some(min)) = (self.body.columns.get_mut(column), self.minima.get_mut(&column)) {
            *c.get_mut(slot) = value;
            let chunk = slot as usize / CHUNK_ROWS;
            if min.len() <= chunk {
                min.resize(chunk + 1, i64::MAX);
            }
            min[chunk] = min[chunk].min(value);
        }
    }

    /// Live rows whose `Time` column is below `bound`, rising. They are to be removed by the
    /// caller: a second call does not find them again.
    pub fn take_below(&mut self, column: usize, bound: i64) -> Vec<u32> {
        let mut found = Vec::new();
        if let (Some(Column::I64(c)), Some(minima)) = (self.body.columns.get(column), self.minima.get_mut(&column)) {
            for (chunk, min) in minima.iter_mut().enumerate().filter(|(_, m)| **m < bound) {
                *min = i64::MAX;
                for (i, (&t, &f)) in c.chunk(chunk).iter().zip(self.body.flags.chunk(chunk)).enumerate() {
                    if f & ALIVE == 0 {
                        continue;
                    }
                    if t < bound {
                        found.push((chunk * CHUNK_ROWS + i) as u32);
                    } else {
                        *min = (*min).min(t);
                    }
                }
            }
        }
        found
    }

    /// All live rows, rising.
    pub fn live_slots(&self) -> Vec<u32> {
        self.body.slots(|f| f & ALIVE != 0)
    }

    /// Whether the row is still there.
    pub fn is_live(&self, slot: u32) -> bool {
        (slot as usize) < self.body.flags.len() && self.body.flags.get(slot) & ALIVE != 0
    }

    /// The vnode of a row.
    pub fn vnode(&self, slot: u32) -> u8 {
        *self.body.vnodes.get(slot)
    }

    /// The keys at `slots` as Arrow arrays of the key's types.
    pub fn keys_at(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        match (&self.body.keys, &self.converter) {
            (Keys::Native(c), _) => {
                let t = self.key.field(0).data_type();
                Ok(vec![from_i64(t, c.gather(slots), self.body.key_nulls(slots))?])
            }
            (Keys::Rows(c), Some(conv)) => {
                let parser = conv.parser();
                let arrays = decoded::columns(conv, slots.iter().map(|&s| parser.parse(c.get(s))))?;
                let fit = |(a, f): (ArrayRef, &Arc<Field>)| {
                    if a.data_type() == f.data_type() { Ok(a) } else { Ok(cast(&a, f.data_type())?) }
                };
                arrays.into_iter().zip(self.key.fields()).map(fit).collect()
            }
            _ => Ok(vec![]),
        }
    }

    /// Removes rows (dead ones are passed over).
    pub fn remove(&mut self, slots: &[u32]) -> Result<()> {
        for part in slots.chunks(CHUNK_ROWS) {
            let hashes = hash_rows(&self.keys_at(part)?, part.len())?;
            for (&slot, h) in part.iter().zip(hashes) {
                if !self.is_live(slot) {
                    continue;
                }
                self.index.remove(h, slot);
                *self.body.flags.get_mut(slot) &= KEY_NULL;
                self.dead += 1;
                for c in &mut self.body.columns {
                    if let Column::Bytes(b) = c {
                        *b.get_mut(slot) = None;
                    }
                }
                let id = *self.body.ids.get(slot);
                if id < self.snapshot_below {
                    self.gone.push((id, *self.body.vnodes.get(slot)));
                }
            }
        }
        Ok(())
    }

    /// Compacts if more than half of the slots are dead. Slots change, ids and order do not;
    /// to be called when nobody holds slots.
    pub fn maintain(&mut self) -> Result<()> {
        let total = self.body.flags.len();
        if self.dead * 2 <= total || (total < CHUNK_ROWS && self.dead < total) {
            return Ok(());
        }
        let live = self.live_slots();
        let mut keys = match &self.body.keys {
            Keys::Unit => Keys::Unit,
            Keys::Native(_) => Keys::Native(Chunked::new()),
            Keys::Rows(_) => Keys::Rows(ChunkedBytes::default()),
        };
        let mut flags = Chunked::new();
        let (mut ids, mut vnodes) = (Chunked::new(), Chunked::new());
        let mut columns: Vec<Column> = self.kinds.iter().map(|&k| Column::new(k)).collect();
        let mut moved = vec![u32::MAX; total];
        for (to, &from) in live.iter().enumerate() {
            moved[from as usize] = to as u32;
            match (&mut keys, &self.body.keys) {
                (Keys::Native(a), Keys::Native(b)) => a.push(*b.get(from)),
                (Keys::Rows(a), Keys::Rows(b)) => a.push(b.get(from))?,
                _ => {}
            }
            flags.push(*self.body.flags.get(from));
            ids.push(*self.body.ids.get(from));
            vnodes.push(*self.body.vnodes.get(from));
            for (a, b) in columns.iter_mut().zip(&self.body.columns) {
                a.push_from(b, from);
            }
        }
        self.index = self.index.renumbered(&moved);
        self.body = Body { keys, flags, ids, vnodes, columns };
        self.dead = 0;
        self.after_move();
        Ok(())
    }

    /// Recomputes what is kept per chunk.
    fn after_move(&mut self) {
        let chunks = self.body.flags.len().div_ceil(CHUNK_ROWS);
        self.dirty_chunks = (0..chunks).map(|c| self.body.flags.chunk(c).iter().any(|f| f & DIRTY != 0)).collect();
        for (&column, minima) in &mut self.minima {
            if let Some(Column::I64(c)) = self.body.columns.get(column) {
                *minima = (0..chunks).map(|k| c.chunk(k).iter().copied().min().unwrap_or(i64::MAX)).collect();
            }
        }
    }

    /// The present state, for reading it while the table goes on.
    pub fn freeze(&mut self) -> FrozenGroups {
        FrozenGroups(self.body.frozen())
    }

    /// What changed since the last call, or everything.
    pub fn snapshot(&mut self, full: bool) -> Result<TableSegment> {
        let segment = if full {
            self.body.segment(None, &[])?
        } else {
            self.body.segment(Some(&self.dirty_chunks), &self.gone)?
        };
        for (chunk, dirty) in self.dirty_chunks.iter_mut().enumerate().filter(|(_, d)| **d) {
            *dirty = false;
            self.body.flags.chunk_mut(chunk).into_iter().flatten().for_each(|f| *f &= !DIRTY);
        }
        self.gone.clear();
        self.snapshot_below = self.next_id;
        Ok(segment)
    }

    /// Fills an empty table from a chain of segments, oldest first.
    pub fn restore(&mut self, chain: &[&TableSegment]) -> Result<()> {
        if !self.body.flags.is_empty() {
            return Err(SpateError::internal("a table must be empty to be restored"));
        }
        let mut rows: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for (s, segment) in chain.iter().enumerate() {
            if segment.full {
                rows.clear();
            }
            for (row, (&id, &w)) in segment.ids.iter().zip(&segment.weights).enumerate() {
                self.next_id = self.next_id.max(id + 1);
                if w == 0 {
                    rows.remove(&id);
                } else {
                    rows.insert(id, (s, row));
                }
            }
        }
        let short = || SpateError::internal("a snapshot lacks a column");
        let first = usize::from(!matches!(self.body.keys, Keys::Unit));
        for (id, (s, row)) in rows {
            let segment = chain[s];
            if segment.rows.num_columns() != first + self.body.columns.len() {
                return Err(short());
            }
            let mut flags = ALIVE;
            match &mut self.body.keys {
                Keys::Unit => {}
                Keys::Native(c) => {
                    let a = segment.rows.column(0).as_primitive_opt::<Int64Type>().ok_or_else(short)?;
                    c.push(a.value(row));
                    if a.is_null(row) {
                        flags |= KEY_NULL;
                    }
                }
                Keys::Rows(c) => c.push(segment.rows.column(0).as_binary_opt::<i32>().ok_or_else(short)?.value(row))?,
            }
            self.body.flags.push(flags);
            self.body.ids.push(id);
            self.body.vnodes.push(segment.vnodes.get(row).copied().ok_or_else(short)?);
            for (i, c) in self.body.columns.iter_mut().enumerate() {
                c.push_array(segment.rows.column(first + i), row)?;
            }
        }
        let all = self.live_slots();
        for part in all.chunks(CHUNK_ROWS) {
            let hashes = hash_rows(&self.keys_at(part)?, part.len())?;
            part.iter().zip(hashes).for_each(|(&slot, h)| self.index.insert(h, slot));
        }
        self.snapshot_below = self.next_id;
        self.after_move();
        Ok(())
    }

    /// Bytes held, estimated.
    pub fn memory_size(&self) -> usize {
        let b = &self.body;
        let keys = match &b.keys {
            Keys::Unit => 0,
            Keys::Native(c) => c.memory_size(),
            Keys::Rows(c) => c.memory_size(),
        };
        keys + b.flags.memory_size()
            + b.ids.memory_size()
            + b.vnodes.memory_size()
            + b.columns.iter().map(Column::heap_bytes).sum::<usize>()
            + self.index.memory_size()
            + self.gone.capacity() * 16
    }
}

impl Body {
    /// Reads the keys of these rows without waiting for any.
    fn warm(&self, slots: &[u32]) {
        let there = slots.iter().filter(|s| (**s as usize) < self.flags.len());
        let read = |sum: u64, &s: &u32| {
            let key = match &self.keys {
                Keys::Native(c) => *c.get(s) as u64,
                Keys::Rows(c) => u64::from(c.get(s).first().copied().unwrap_or(0)),
                Keys::Unit => 0,
            };
            sum ^ key ^ u64::from(*self.flags.get(s))
        };
        black_box(there.fold(0, read));
    }

    #[inline]
    fn same_key(&self, slot: u32, batch: &BatchKeys, row: usize) -> bool {
        match (&self.keys, batch) {
            (Keys::Native(c), BatchKeys::Native(v, nulls)) => {
                let null = nulls.as_ref().is_some_and(|n| n.is_null(row));
                let stored_null = self.flags.get(slot) & KEY_NULL != 0;
                null == stored_null && (null || *c.get(slot) == v[row])
            }
            (Keys::Rows(c), BatchKeys::Rows(r)) => c.get(slot) == r.row(row).data(),
            (Keys::Unit, BatchKeys::Unit) => true,
            _ => false,
        }
    }

    fn push_key(&mut self, batch: &BatchKeys, row: usize) -> Result<()> {
        let mut flags = ALIVE;
        match (&mut self.keys, batch) {
            (Keys::Native(c), BatchKeys::Native(v, nulls)) => {
                let null = nulls.as_ref().is_some_and(|n| n.is_null(row));
                c.push(if null { 0 } else { v[row] });
                if null {
                    flags |= KEY_NULL;
                }
            }
            (Keys::Rows(c), BatchKeys::Rows(r)) => c.push(r.row(row).data())?,
            _ => {}
        }
        self.flags.push(flags);
        Ok(())
    }

    fn slots(&self, wanted: impl Fn(u8) -> bool) -> Vec<u32> {
        (0..self.flags.len() as u32).filter(|&s| wanted(*self.flags.get(s))).collect()
    }

    fn key_nulls(&self, slots: &[u32]) -> Option<NullBuffer> {
        let valid: Vec<bool> = slots.iter().map(|&s| self.flags.get(s) & KEY_NULL == 0).collect();
        valid.iter().any(|v| !v).then(|| NullBuffer::from(valid))
    }

    /// Live rows (all, or the changed ones of chunks with changes) and then those gone,
    /// which carry empty values.
    fn segment(&self, dirty: Option<&[bool]>, gone: &[(u64, u8)]) -> Result<TableSegment> {
        let full = dirty.is_none();
        let slots = match dirty {
            None => self.slots(|f| f & ALIVE != 0),
            Some(chunks) => {
                let mut slots = Vec::new();
                for (chunk, _) in chunks.iter().enumerate().filter(|(_, d)| **d) {
                    let flags = self.flags.chunk(chunk).iter().enumerate();
                    let changed = flags.filter(|(_, f)| **f & (ALIVE | DIRTY) == ALIVE | DIRTY);
                    slots.extend(changed.map(|(i, _)| (chunk * CHUNK_ROWS + i) as u32));
                }
                slots
            }
        };
        let mut ids = self.ids.gather(&slots);
        let mut vnodes = self.vnodes.gather(&slots);
        let mut weights = vec![1i64; slots.len()];
        ids.extend(gone.iter().map(|g| g.0));
        vnodes.extend(gone.iter().map(|g| g.1));
        weights.resize(ids.len(), 0);

        let mut fields = Vec::new();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        let mut add = |name: String, array: ArrayRef| -> Result<()> {
            fields.push(Field::new(name, array.data_type().clone(), true));
            // Gone rows are NULL in every column.
            let pad = arrow::array::new_null_array(array.data_type(), gone.len());
            arrays.push(if gone.is_empty() { array } else { arrow::compute::concat(&[&array, &pad])? });
            Ok(())
        };
        match &self.keys {
            Keys::Unit => {}
            Keys::Native(c) => {
                let a = Int64Array::try_new(c.gather(&slots).into(), self.key_nulls(&slots))?;
                add("key".into(), Arc::new(a))?;
            }
            Keys::Rows(c) => {
                let a = BinaryArray::from_iter_values(slots.iter().map(|&s| c.get(s)));
                add("key".into(), Arc::new(a))?;
            }
        }
        for (i, c) in self.columns.iter().enumerate() {
            let a = c.to_array(&slots)?;
            debug_assert_eq!(a.data_type(), &c.data_type());
            add(format!("c{i}"), a)?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
        let rows = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        Ok(TableSegment { full, ids, vnodes, weights, rows })
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
