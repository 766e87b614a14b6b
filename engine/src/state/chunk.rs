//! Rows kept column by column, addressed by slot: the storage beneath bag tables.
//!
//! Rows lie in chunks of [`CHUNK_ROWS`]; slot = chunk · [`CHUNK_ROWS`] + row. A full chunk is
//! one immutable piece of Arrow arrays. The last chunk is a few pieces that are joined as
//! they grow (each at least as long as all that follow it), so a row is copied a logarithmic
//! number of times however small the batches are. Nothing here changes in place: sharing a
//! piece is a pointer clone.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, new_empty_array, new_null_array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::DataType;

use super::equal::equal_pairs;
use crate::types::{ErrorKind, Result, SpateError};

/// Where a row is in its table; good until the table's next `maintain`.
pub type Slot = u32;

/// No row; gathers as NULLs.
pub const NO_SLOT: Slot = u32::MAX;

pub(crate) const CHUNK_BITS: u32 = 12;

/// Rows of a full chunk.
pub const CHUNK_ROWS: usize = 1 << CHUNK_BITS;

/// Chunk and row in it of a slot.
#[inline]
pub(crate) fn split_slot(slot: Slot) -> (usize, usize) {
    ((slot >> CHUNK_BITS) as usize, slot as usize & (CHUNK_ROWS - 1))
}

/// The slot of a row in a chunk.
#[inline]
pub(crate) fn join_slot(chunk: usize, row: usize) -> Slot {
    ((chunk as u32) << CHUNK_BITS) | row as u32
}

/// Consecutive rows of one chunk.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Its first row within the chunk.
    pub(crate) start: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    /// The columns.
    pub(crate) columns: Vec<ArrayRef>,
    /// Bytes of the columns.
    bytes: usize,
}

impl Piece {
    fn new(start: usize, rows: usize, columns: Vec<ArrayRef>) -> Self {
        let bytes = columns.iter().map(|c| c.get_array_memory_size()).sum();
        Self { start, rows, columns, bytes }
    }
}

/// Rows by slot.
#[derive(Debug)]
pub(crate) struct RowStore {
    types: Vec<DataType>,
    /// All chunks but the last have one piece.
    chunks: Vec<Vec<Arc<Piece>>>,
    slots: usize,
    /// Stands for the rows of a freed chunk.
    empty: Arc<Piece>,
}

/// Slots turned into (piece, row) once, to be used for several columns.
pub(crate) struct Located<'a> {
    types: &'a [DataType],
    pieces: Vec<&'a Piece>,
    at: Vec<(usize, usize)>,
    /// Whether `at` points behind the last piece, to a row of NULLs.
    nulls: bool,
}

impl RowStore {
    pub(crate) fn new(types: Vec<DataType>) -> Self {
        let empty = Arc::new(Piece::new(0, 0, types.iter().map(new_empty_array).collect()));
        Self { types, chunks: Vec::new(), slots: 0, empty }
    }

    /// The pieces of a chunk.
    pub(crate) fn pieces(&self, chunk: usize) -> &[Arc<Piece>] {
        self.chunks.get(chunk).map_or(&[], |c| c.as_slice())
    }

    /// Forgets the rows of a full chunk; its slots must not be asked for again.
    pub(crate) fn free(&mut self, chunk: usize) {
        if let Some(c) = self.chunks.get_mut(chunk) {
            *c = vec![self.empty.clone()];
        }
    }

    /// Bytes of all rows.
    pub(crate) fn memory_size(&self) -> usize {
        self.chunks.iter().flatten().map(|p| p.bytes + size_of::<Piece>()).sum()
    }

    /// Checks that columns have this store's types.
    pub(crate) fn check(&self, columns: &[ArrayRef]) -> Result<()> {
        if columns.len() != self.types.len() {
            return Err(SpateError::internal(format!(
                "a table of {} columns got rows of {}",
                self.types.len(),
                columns.len()
            )));
        }
        for (c, t) in columns.iter().zip(&self.types) {
            if c.data_type() != t {
                return Err(SpateError::internal(format!("a table column of type {t} got {}", c.data_type())));
            }
        }
        Ok(())
    }

    /// Copies the rows at `indices` to the end.
    pub(crate) fn append(&mut self, columns: &[ArrayRef], indices: &[u32]) -> Result<()> {
        let mut rest = indices;
        while !rest.is_empty() {
            let n = rest.len().min(self.room());
            let (now, later) = rest.split_at(n);
            let picked = UInt32Array::from(now.to_vec());
            let copied = columns
                .iter()
                .map(|c| Ok(compacted(take(c.as_ref(), &picked, None)?)))
                .collect::<Result<Vec<ArrayRef>>>()?;
            self.push_piece(copied, n)?;
            rest = later;
        }
        Ok(())
    }

    /// Puts freshly made columns at the end, without a copy where they fit in one chunk.
    pub(crate) fn append_owned(&mut self, columns: Vec<ArrayRef>, rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        if rows <= self.room() {
            return self.push_piece(columns, rows);
        }
        let indices: Vec<u32> = (0..rows as u32).collect();
        self.append(&columns, &indices)
    }

    fn room(&self) -> usize {
        CHUNK_ROWS - self.slots % CHUNK_ROWS
    }

    fn push_piece(&mut self, columns: Vec<ArrayRef>, rows: usize) -> Result<()> {
        let start = self.slots % CHUNK_ROWS;
        if start == 0 {
            if self.slots + CHUNK_ROWS >= NO_SLOT as usize {
                return Err(SpateError::new(ErrorKind::Limit, "a state table holds too many rows")
                    .with_hint("raise the parallelism, so that each task keeps fewer rows"));
            }
            self.chunks.push(Vec::new());
        }
        self.slots += rows;
        let full = self.slots.is_multiple_of(CHUNK_ROWS);
        let Some(chunk) = self.chunks.last_mut() else {
            return Err(SpateError::internal("a row store has no chunk"));
        };
        chunk.push(Arc::new(Piece::new(start, rows, columns)));
        // Join the tail: everything in a full chunk, else every piece that is not longer than
        // all that follow it.
        let mut first = chunk.len() - 1;
        let mut sum = rows;
        while first > 0 && (full || chunk[first - 1].rows <= sum) {
            first -= 1;
            sum += chunk[first].rows;
        }
        if first + 1 < chunk.len() {
            let tail = &chunk[first..];
            let joined = (0..self.types.len())
                .map(|c| {
                    let parts: Vec<&dyn Array> = tail.iter().map(|p| p.columns[c].as_ref()).collect();
                    Ok(concat(&parts)?)
                })
                .collect::<Result<Vec<_>>>()?;
            let piece = Piece::new(tail[0].start, sum, joined);
            chunk.truncate(first);
            chunk.push(Arc::new(piece));
        }
        Ok(())
    }

    /// Index of the piece among all pieces in order, and the row in it.
    #[inline]
    fn locate_one(&self, slot: Slot) -> (usize, usize) {
        let (chunk, row) = split_slot(slot);
        if chunk + 1 < self.chunks.len() {
            return (chunk, row);
        }
        let pieces = &self.chunks[chunk];
        let piece = pieces.partition_point(|p| p.start <= row) - 1;
        (chunk + piece, row - pieces[piece].start)
    }

    /// Turns slots into places.
    pub(crate) fn locate(&self, slots: &[Slot]) -> Located<'_> {
        let mut nulls = false;
        let mut at: Vec<(usize, usize)> = slots
            .iter()
            .map(|&s| {
                if s == NO_SLOT {
                    nulls = true;
                    (usize::MAX, 0)
                } else {
                    self.locate_one(s)
                }
            })
            .collect();
        let last = self.chunks.len().saturating_sub(1);
        let count = last + self.chunks.last().map_or(0, Vec::len);
        let piece = |i: usize| if i < last { &self.chunks[i][0] } else { &self.chunks[last][i - last] };
        let pieces: Vec<&Piece> = if count <= slots.len() {
            (0..count).map(|i| piece(i).as_ref()).collect()
        } else {
            // A small question to a big table must not cost a walk over all its chunks.
            let mut used: Vec<usize> = at.iter().map(|a| a.0).filter(|&p| p != usize::MAX).collect();
            used.sort_unstable();
            used.dedup();
            for a in &mut at {
                if a.0 != usize::MAX {
                    a.0 = used.partition_point(|&p| p < a.0);
                }
            }
            used.into_iter().map(|i| piece(i).as_ref()).collect()
        };
        if nulls {
            for a in at.iter_mut().filter(|a| a.0 == usize::MAX) {
                a.0 = pieces.len();
            }
        }
        Located { types: &self.types, pieces, at, nulls }
    }

    /// For each pair: does the row at `slots[n]` equal row `rows[n]` of `probe`, over the
    /// store's `columns` (as many as in `probe`)?
    pub(crate) fn equal(
        &self,
        columns: &[usize],
        slots: &[Slot],
        probe: &[ArrayRef],
        rows: &[u32],
    ) -> Result<Vec<bool>> {
        let mut keep = vec![true; slots.len()];
        if slots.is_empty() {
            return Ok(keep);
        }
        let located = self.locate(slots);
        for (&c, p) in columns.iter().zip(probe) {
            equal_pairs(&located.arrays(c), &located.at, p, rows, &mut keep)?;
        }
        Ok(keep)
    }
}

impl Located<'_> {
    fn arrays(&self, column: usize) -> Vec<&dyn Array> {
        self.pieces.iter().map(|p| p.columns[column].as_ref()).collect()
    }

    /// The values of one column, in the order of the slots; a missing column is an error.
    pub(crate) fn gather(&self, column: usize) -> Result<ArrayRef> {
        let Some(data_type) = self.types.get(column) else {
            return Err(SpateError::internal(format!("a table has no column {column}")));
        };
        if self.at.is_empty() {
            return Ok(new_empty_array(data_type));
        }
        let null;
        let mut arrays = self.arrays(column);
        if self.nulls {
            if arrays.is_empty() {
                return Ok(new_null_array(data_type, self.at.len()));
            }
            null = new_null_array(data_type, 1);
            arrays.push(null.as_ref());
        }
        Ok(interleave(&arrays, &self.at)?)
    }
}

/// View arrays keep the buffers they were cut from; this lets go of them.
fn compacted(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::array::Int64Array;
    use arrow::datatypes::Int64Type;

    fn values(store: &RowStore, slots: &[Slot]) -> Vec<Option<i64>> {
        let a = store.locate(slots).gather(0).unwrap();
        a.as_primitive::<Int64Type>().iter().collect()
    }

    #[test]
    fn any_batch_sizes_give_the_same_rows() {
        for size in [1usize, 7, 1000, 4096, 9000] {
            let mut store = RowStore::new(vec![DataType::Int64]);
            let total = 9001usize;
            let mut next = 0;
            while next < total {
                let n = size.min(total - next);
                let a: ArrayRef = Arc::new(Int64Array::from_iter_values(next as i64..(next + n) as i64));
                store.append(&[a], &(0..n as u32).collect::<Vec<_>>()).unwrap();
                next += n;
            }
            assert_eq!(store.slots, total);
            assert!(store.chunks.last().unwrap().len() <= 14);
            let all: Vec<Slot> = (0..total as u32).collect();
            assert_eq!(values(&store, &all), (0..total as i64).map(Some).collect::<Vec<_>>());
            assert_eq!(values(&store, &[9000, NO_SLOT, 0]), vec![Some(9000), None, Some(0)]);
            assert_eq!(values(&store, &[NO_SLOT]), vec![None]);
        }
    }
}
