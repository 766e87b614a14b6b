//! Growing columns in chunks: a frozen copy shares them, and a later write copies only the chunk
//! that it touches.

use std::sync::Arc;

use crate::types::{Result, SpateError};

/// Rows per chunk.
pub(crate) const CHUNK_ROWS: usize = 4096;
const SHIFT: u32 = CHUNK_ROWS.trailing_zeros();
const MASK: usize = CHUNK_ROWS - 1;

/// Values that one column owns, or that a frozen copy shares. An owned chunk is written without
/// touching a reference count, which would cost as much as the write itself.
#[derive(Debug, Clone)]
enum Chunk<T> {
    Own(Vec<T>),
    Shared(Arc<Vec<T>>),
}

impl<T: Clone> Chunk<T> {
    #[inline]
    fn values(&self) -> &Vec<T> {
        match self {
            Self::Own(v) => v,
            Self::Shared(v) => v,
        }
    }

    /// The values, to change them: copied first if somebody else still reads them.
    #[inline]
    fn values_mut(&mut self) -> &mut Vec<T> {
        if let Self::Shared(v) = self {
            *self = Self::Own(Arc::unwrap_or_clone(std::mem::take(v)));
        }
        match self {
            Self::Own(v) => v,
            Self::Shared(v) => Arc::make_mut(v),
        }
    }

    fn share(&mut self) {
        if let Self::Own(v) = self {
            *self = Self::Shared(Arc::new(std::mem::take(v)));
        }
    }
}

/// A column of plain values.
#[derive(Debug, Clone, Default)]
pub struct Chunked<T> {
    chunks: Vec<Chunk<T>>,
    len: usize,
}

impl<T: Clone> Chunked<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }

    /// A copy that shares all values so far; either side copies a chunk before it changes it.
    pub(crate) fn frozen(&mut self) -> Self {
        self.chunks.iter_mut().for_each(Chunk::share);
        self.clone()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, value: T) {
        if self.len & MASK == 0 {
            self.chunks.push(Chunk::Own(Vec::new()));
        }
        if let Some(last) = self.chunks.last_mut() {
            last.values_mut().push(value);
            self.len += 1;
        }
    }

    /// The value at `slot`, which must have come from the table.
    #[inline]
    pub fn get(&self, slot: u32) -> &T {
        let i = slot as usize;
        &self.chunks[i >> SHIFT].values()[i & MASK]
    }

    /// The value at `slot`, to change it.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> &mut T {
        let i = slot as usize;
        &mut self.chunks[i >> SHIFT].values_mut()[i & MASK]
    }

    /// The values at `slots`.
    pub fn gather(&self, slots: &[u32]) -> Vec<T> {
        slots.iter().map(|&s| self.get(s).clone()).collect()
    }

    pub(crate) fn chunk(&self, chunk: usize) -> &[T] {
        self.chunks.get(chunk).map_or(&[], |c| c.values().as_slice())
    }

    pub(crate) fn chunk_mut(&mut self, chunk: usize) -> Option<&mut Vec<T>> {
        self.chunks.get_mut(chunk).map(Chunk::values_mut)
    }

    pub(crate) fn memory_size(&self) -> usize {
        self.chunks.iter().map(|c| c.values().capacity() * size_of::<T>() + size_of::<Chunk<T>>()).sum()
    }
}

#[derive(Debug, Clone, Default)]
struct ByteChunk {
    ends: Vec<u32>,
    data: Vec<u8>,
}

/// A column of byte strings that never change; each chunk is one arena.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChunkedBytes {
    chunks: Vec<Arc<ByteChunk>>,
    len: usize,
}

impl ChunkedBytes {
    pub(crate) fn push(&mut self, value: &[u8]) -> Result<()> {
        if self.len & MASK == 0 {
            self.chunks.push(Arc::default());
        }
        if let Some(last) = self.chunks.last_mut() {
            let c = Arc::make_mut(last);
            let end = u32::try_from(c.data.len() + value.len())
                .map_err(|_| SpateError::new(crate::types::ErrorKind::Limit, "grouping keys are too large"))?;
            c.data.extend_from_slice(value);
            c.ends.push(end);
            self.len += 1;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &[u8] {
        let i = slot as usize;
        let c = &self.chunks[i >> SHIFT];
        let at = i & MASK;
        let start = if at == 0 { 0 } else { c.ends[at - 1] as usize };
        &c.data[start..c.ends[at] as usize]
    }

    pub(crate) fn memory_size(&self) -> usize {
        self.chunks.iter().map(|c| c.ends.capacity() * 4 + c.data.capacity() + 72).sum()
    }
}
