//! A source for simulations: rows in memory, delivered in batches of random sizes.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::connector::{Polled, SourceConnector, Split, SplitReader};
use crate::types::{Result, SpateError};

/// What a simulated source has to give.
#[derive(Debug, Clone)]
pub struct SimRows {
    /// Columns.
    pub schema: SchemaRef,
    /// One batch per split; a row's offset is its index.
    pub splits: Vec<RecordBatch>,
    /// Splits come to light one after another, and the source never ends.
    pub watch: bool,
}

impl SimRows {
    /// Rows of all splits.
    pub fn total(&self) -> u64 {
        self.splits.iter().map(|s| s.num_rows() as u64).sum()
    }
}

/// A source over [`SimRows`]. What is between two offsets is always the same; how it is cut into
/// batches, and when a split has nothing for the moment, is random.
#[derive(Debug)]
pub struct SimSource {
    rows: SimRows,
    rng: Arc<Mutex<SmallRng>>,
    /// Splits that have come to light.
    known: Mutex<usize>,
}

impl SimSource {
    /// A source whose moods follow from a seed; with `all`, every split is there at once.
    pub fn new(rows: SimRows, seed: u64, all: bool) -> Self {
        let known = if all || !rows.watch { rows.splits.len() } else { 0 };
        Self { rows, rng: Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))), known: Mutex::new(known) }
    }
}

impl SourceConnector for SimSource {
    fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    fn bounded(&self) -> bool {
        !self.rows.watch
    }

    fn splits(&self, _: bool, _: usize) -> Result<Vec<Split>> {
        let mut known = self.known.lock();
        if *known < self.rows.splits.len() && self.rng.lock().random_bool(0.3) {
            *known += 1;
        }
        let split = |(i, rows): (usize, &RecordBatch)| Split {
            id: format!("s{i}").into(),
            lane: format!("l{}", if self.rows.watch { i } else { i / 2 }).into(),
            start: 0,
            end: Some(rows.num_rows() as u64),
            detail: i.to_string(),
        };
        Ok(self.rows.splits.iter().enumerate().take(*known).map(split).collect())
    }

    fn discover_every(&self) -> Option<Duration> {
        self.rows.watch.then_some(Duration::from_millis(20))
    }

    fn open(&self, split: &Split, offset: u64, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        let rows = split.detail.parse().ok().and_then(|i: usize| self.rows.splits.get(i));
        let rows = rows.ok_or_else(|| SpateError::internal(format!("no split {}", split.id)))?;
        Ok(Box::new(Reader { rows: rows.project(projection)?, at: offset as usize, rng: self.rng.clone() }))
    }
}

struct Reader {
    rows: RecordBatch,
    at: usize,
    rng: Arc<Mutex<SmallRng>>,
}

impl SplitReader for Reader {
    fn poll(&mut self, max_rows: usize, until: Option<u64>) -> Result<Polled> {
        let end = until.map_or(self.rows.num_rows(), |u| self.rows.num_rows().min(u as usize));
        if self.at >= end {
            return Ok(if until.is_some() { Polled::Pending(Duration::ZERO) } else { Polled::End });
        }
        let mut rng = self.rng.lock();
        if rng.random_bool(0.2) {
            return Ok(Polled::Pending(Duration::from_millis(rng.random_range(0..5))));
        }
        let n = rng.random_range(1..=12).min(max_rows.max(1)).min(end - self.at);
        let rows = self.rows.slice(self.at, n);
        self.at += n;
        Ok(Polled::Batch { rows, dead: Vec::new(), progress: None })
    }

    fn offset(&self) -> u64 {
        self.at as u64
    }
}
