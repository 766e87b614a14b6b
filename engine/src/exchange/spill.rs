//! The memory budget that exchanges share, and where deltas go beyond it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use parking_lot::Mutex;

use crate::env::{Scratch, Storage};
use crate::types::{Delta, Result, SpateError};

/// A budget with a lazily made, unlinked temporary file behind it.
///
/// The file only grows while anything in it is alive, and is dropped once nothing is.
#[derive(Debug)]
pub struct Spill {
    limit: usize,
    used: AtomicUsize,
    spilled_bytes: AtomicU64,
    storage: Arc<dyn Storage>,
    file: Mutex<Option<Arc<SpillFile>>>,
}

#[derive(Debug)]
struct SpillFile {
    file: Arc<dyn Scratch>,
    end: AtomicU64,
}

/// A delta held by an exchange: in memory (charged to the budget until dropped) or on disk.
#[derive(Debug)]
pub enum Held {
    /// In memory.
    Memory(Delta, Charge),
    /// On disk.
    Disk(OnDisk),
}

/// Bytes charged to a budget; given back on drop.
#[derive(Debug)]
pub struct Charge {
    spill: Arc<Spill>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.spill.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Where a delta is in the spill file.
#[derive(Debug)]
pub struct OnDisk {
    file: Arc<SpillFile>,
    offset: u64,
    len: usize,
    weighted: bool,
}

const WEIGHT: &str = "__weight";

impl Spill {
    /// A budget of `limit` bytes, and where what is beyond it goes.
    pub fn new(limit: usize, storage: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
            spilled_bytes: AtomicU64::new(0),
            storage,
            file: Mutex::new(None),
        })
    }

    /// Bytes in memory now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether more than half of the budget is in use: time for sources to wait.
    pub fn is_crowded(&self) -> bool {
        self.used() > self.limit / 2
    }

    /// Bytes ever written to disk.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes.load(Ordering::Relaxed)
    }

    /// Takes a delta, in memory if the budget allows.
    pub fn hold(self: &Arc<Self>, delta: Delta) -> Result<Held> {
        let bytes = delta.memory_size();
        if self.used.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.limit {
            return Ok(Held::Memory(delta, Charge { spill: self.clone(), bytes }));
        }
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.write(delta).map(Held::Disk)
    }

    fn write(&self, delta: Delta) -> Result<OnDisk> {
        let (rows, weights) = delta.into_parts();
        let weighted = weights.is_some();
        let rows = match weights {
            None => rows,
            Some(w) => {
                let mut fields = rows.schema().fields().to_vec();
                fields.push(Arc::new(Field::new(WEIGHT, DataType::Int64, false)));
                let mut columns = rows.columns().to_vec();
                columns.push(Arc::new(w));
                RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?
            }
        };
        let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema())?;
        writer.write(&rows)?;
        let bytes = writer.into_inner()?;
        let file = self.current_file()?;
        let offset = file.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        file.file
            .write_all_at(&bytes, offset)
            .map_err(|e| SpateError::from(e).context("cannot spill an exchange to disk"))?;
        self.spilled_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(OnDisk { file, offset, len: bytes.len(), weighted })
    }

    fn current_file(&self) -> Result<Arc<SpillFile>> {
        let mut slot = self.file.lock();
        // A file that only we still hold has no live content: start afresh to give the disk back.
        if let Some(f) = slot.as_ref()
            && (Arc::strong_count(f) > 1 || f.end.load(Ordering::Relaxed) == 0)
        {
            return Ok(f.clone());
        }
        let file = self.storage.scratch().map_err(|e| SpateError::from(e).context("cannot create a spill file"))?;
        let f = Arc::new(SpillFile { file, end: AtomicU64::new(0) });
        *slot = Some(f.clone());
        Ok(f)
    }
}

impl Held {
    /// The delta; read back from disk if it is there. `schema` is that of its rows.
    pub fn get(&self, schema: &SchemaRef) -> Result<Delta> {
        match self {
            Self::Memory(d, _) => Ok(d.clone()),
            Self::Disk(d) => d.read(schema),
        }
    }
}

impl OnDisk {
    fn read(&self, schema: &SchemaRef) -> Result<Delta> {
        let mut bytes = vec![0; self.len];
        self.file
            .file
            .read_exact_at(&mut bytes, self.offset)
            .map_err(|e| SpateError::from(e).context("cannot read spilled data back"))?;
        let mut reader = StreamReader::try_new(bytes.as_slice(), None)?;
        let batch = reader.next().ok_or_else(|| SpateError::internal("empty spill record"))??;
        let columns = batch.columns();
        let (columns, weights) = if self.weighted {
            let (w, rest) = columns.split_last().ok_or_else(|| SpateError::internal("spill record without weights"))?;
            (rest, Some(w.as_primitive::<Int64Type>().clone()))
        } else {
            (columns, None)
        };
        let rows = if columns.is_empty() {
            let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            RecordBatch::try_new_with_options(schema.clone(), vec![], &options)?
        } else {
            RecordBatch::try_new(schema.clone(), columns.to_vec())?
        };
        debug_assert!(weights.as_ref().is_none_or(|w| w.null_count() == 0));
        Delta::new(rows, weights)
    }
}
