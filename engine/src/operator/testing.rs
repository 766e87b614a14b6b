//! Helpers of operator tests: one driver that runs an epoch, and rows as text.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use arrow::array::{Int64Array, RecordBatch};
use arrow::util::display::array_value_to_string;
use rand::{Rng, rngs::SmallRng};

use super::{BarrierInfo, Operator, Output};
use crate::state::{TableSegment, Tables};
use crate::types::{Delta, Tick};

/// An operator with its tables.
pub(crate) struct Run {
    pub(crate) op: Box<dyn Operator>,
    pub(crate) tables: Tables,
    make: Box<dyn Fn() -> Box<dyn Operator>>,
    chain: Vec<Vec<TableSegment>>,
    epoch: u64,
}

impl Run {
    pub(crate) fn new(make: impl Fn() -> Box<dyn Operator> + 'static) -> Self {
        let op = make();
        let tables = Tables::new(&op.tables()).unwrap();
        Self { op, tables, make: Box::new(make), chain: vec![], epoch: 0 }
    }

    /// Pushes the deltas, ends the epoch, and gives the emitted rows as text, in order.
    pub(crate) fn epoch(&mut self, deltas: Vec<Delta>, watermark: i64) -> Vec<(String, i64)> {
        self.epoch += 1;
        let mut out = Output::default();
        for d in deltas {
            self.op.push(0, d, &mut self.tables, &mut out).unwrap();
        }
        let tick = Tick {
            incarnation: 1,
            term: 1,
            epoch: self.epoch,
            opened_us: self.epoch as i64 - 1,
            now_us: self.epoch as i64,
        };
        let info = BarrierInfo { tick, watermark, input_watermarks: &[watermark], complete: &[] };
        self.op.barrier(&info, &mut self.tables, &mut out).unwrap();
        out.take().iter().flat_map(texts).collect()
    }

    /// Snapshots, and goes on with a new operator over restored tables.
    pub(crate) fn reincarnate(&mut self, full: bool) {
        if full {
            self.chain.clear();
        }
        let full = self.chain.is_empty();
        self.chain.push(self.tables.snapshot(full).unwrap());
        self.op = (self.make)();
        self.tables = Tables::new(&self.op.tables()).unwrap();
        self.tables.restore(&self.chain).unwrap();
    }
}

/// Rows as text, with their weights.
pub(crate) fn texts(d: &Delta) -> Vec<(String, i64)> {
    let cell = |c: &arrow::array::ArrayRef, i| {
        if c.is_null(i) { "NULL".to_string() } else { array_value_to_string(c, i).unwrap() }
    };
    let row = |i| d.rows().columns().iter().map(|c| cell(c, i)).collect::<Vec<_>>().join("|");
    (0..d.num_rows()).map(|i| (row(i), d.weight(i))).collect()
}

/// Adds changes to a multiset.
pub(crate) fn apply(to: &mut BTreeMap<String, i64>, changes: &[(String, i64)]) {
    for (r, w) in changes {
        *to.entry(r.clone()).or_default() += w;
    }
    to.retain(|_, w| *w != 0);
}

/// One delta of these rows of `pool`.
pub(crate) fn delta(pool: &RecordBatch, picks: &[(u32, i64)], weighted: bool) -> Delta {
    let at = arrow::array::UInt32Array::from_iter_values(picks.iter().map(|p| p.0));
    let rows = arrow::compute::take_record_batch(pool, &at).unwrap();
    let w: Int64Array = picks.iter().map(|p| p.1).collect();
    Delta::new(rows, weighted.then_some(w)).unwrap()
}

/// The delta in one piece, or cut at random.
pub(crate) fn cut(rng: &mut SmallRng, d: &Delta) -> Vec<Delta> {
    let mut parts = vec![];
    let mut at = 0;
    while at < d.num_rows() {
        let n = rng.random_range(1..=(d.num_rows() - at).min(9));
        parts.push(d.slice(at, n));
        at += n;
    }
    parts
}
