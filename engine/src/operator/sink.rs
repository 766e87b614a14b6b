//! Sink: hands each epoch's net changes to a connector, once per epoch. The task driver calls
//! `barrier` only when the epoch's record is durable, so nothing is written that could be lost.
//!
//! The writer outlives the task: a task that comes back replays epochs that were written
//! already; those are compared with what was written, and dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::consolidate::consolidate;
use super::{BarrierInfo, Operator, Output};
use crate::connector::SinkWriter;
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Epoch, Result, SpateError, WATERMARK_MAX};

/// A writer, and how far it has got.
pub struct SinkTarget {
    inner: Mutex<Inner>,
    /// Keep what was written until [`SinkTarget::trim`], to compare replays with.
    keep: bool,
}

struct Inner {
    writer: Box<dyn SinkWriter>,
    last: Epoch,
    written: BTreeMap<Epoch, Vec<Delta>>,
    finished: bool,
}

impl SinkTarget {
    /// A target to which everything up to `last` was written (0: nothing yet).
    pub fn new(writer: Box<dyn SinkWriter>, keep: bool, last: Epoch) -> Arc<Self> {
        let inner = Inner { writer, last, written: BTreeMap::new(), finished: false };
        Arc::new(Self { inner: Mutex::new(inner), keep })
    }

    fn write(&self, epoch: Epoch, deltas: Vec<Delta>, ended: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        if epoch <= inner.last {
            return if self.keep { inner.check_replay(epoch, &deltas) } else { Ok(()) };
        }
        inner.last = epoch;
        if !deltas.is_empty() {
            inner.writer.write_epoch(epoch, &deltas)?;
        }
        if self.keep {
            inner.written.insert(epoch, deltas);
        }
        if ended && !inner.finished {
            inner.finished = true;
            inner.writer.finish()?;
        }
        Ok(())
    }

    /// Forgets what was written up to `epoch`: it is not replayed any more.
    pub fn trim(&self, epoch: Epoch) {
        let mut inner = self.inner.lock();
        inner.written = inner.written.split_off(&(epoch + 1));
    }

    /// Number of epochs kept to compare with.
    pub fn kept(&self) -> usize {
        self.inner.lock().written.len()
    }
}

impl Inner {
    fn check_replay(&self, epoch: Epoch, again: &[Delta]) -> Result<()> {
        let differs = || SpateError::internal(format!("replay of epoch {epoch} differs from what was written"));
        let before = self.written.get(&epoch).ok_or_else(differs)?;
        let (Some(a), Some(b)) = (before.first(), again.first()) else {
            return if before.is_empty() && again.is_empty() { Ok(()) } else { Err(differs()) };
        };
        let (a, b) = (Delta::concat(&a.schema(), before)?, Delta::concat(&b.schema(), again)?);
        if a.rows() != b.rows() || a.weights_or_ones() != b.weights_or_ones() {
            return Err(differs());
        }
        Ok(())
    }
}

impl Drop for SinkTarget {
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        if !inner.finished {
            // The sink is dropped with its query; a failure to flush has nobody left to tell.
            let _ = inner.writer.finish();
        }
    }
}

/// Writes to a connector.
pub struct Sink {
    target: Arc<SinkTarget>,
    /// The open epoch's changes, and their bytes.
    epoch: Vec<Delta>,
    bytes: usize,
    append_only: bool,
    /// No two rows are alike.
    keyed: bool,
}

impl Sink {
    /// Writes to `target`; an append-only input needs no netting, nor does an epoch of rows that only come of
    /// which a key says that no two are alike.
    pub fn new(target: Arc<SinkTarget>, append_only: bool, keyed: bool) -> Self {
        Self { target, epoch: Vec::new(), bytes: 0, append_only, keyed }
    }

    fn is_net(&self) -> bool {
        let none_goes = |d: &Delta| d.weights().is_none_or(|w| w.values().iter().all(|w| *w > 0));
        self.append_only || self.keyed && self.epoch.iter().all(none_goes)
    }
}

impl Operator for Sink {
    fn tables(&self) -> Vec<TableDef> {
        Vec::new()
    }

    fn held(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, _: usize, delta: Delta, _: &mut Tables, _: &mut Output) -> Result<()> {
        self.bytes += delta.shown_size();
        self.epoch.push(delta);
        Ok(())
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, _: &mut Tables, _: &mut Output) -> Result<()> {
        let net = self.is_net();
        self.bytes = 0;
        let mut deltas = std::mem::take(&mut self.epoch);
        if let Some(first) = deltas.first()
            && !net
        {
            let schema = first.schema();
            deltas = consolidate(schema, deltas)?;
        }
        self.target.write(info.tick.epoch, deltas, info.watermark == WATERMARK_MAX)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;
    use crate::sim::record::{MemorySink, Written};
    use crate::types::{Tick, WATERMARK_MIN};

    fn delta(values: &[i64]) -> Delta {
        let a: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        Delta::insert(RecordBatch::try_from_iter([("a", a)]).unwrap())
    }

    fn run(sink: &mut Sink, epoch: Epoch, rows: &[i64]) -> Result<()> {
        let (mut tables, mut out) = (Tables::default(), Output::default());
        if !rows.is_empty() {
            sink.push(0, delta(rows), &mut tables, &mut out)?;
        }
        let tick = Tick { incarnation: 1, term: 1, epoch, opened_us: -1, now_us: 0 };
        let info = BarrierInfo { tick, watermark: WATERMARK_MIN, input_watermarks: &[], complete: &[] };
        sink.barrier(&info, &mut tables, &mut out)
    }

    #[test]
    fn a_replayed_epoch_is_compared_and_not_written_again() {
        let written = Written::default();
        let target = SinkTarget::new(Box::new(MemorySink(written.clone())), true, 0);
        let mut sink = Sink::new(target.clone(), true, false);
        run(&mut sink, 1, &[1, 2]).unwrap();
        run(&mut sink, 2, &[]).unwrap();
        run(&mut sink, 3, &[3]).unwrap();
        let mut again = Sink::new(target.clone(), true, false);
        run(&mut again, 1, &[1, 2]).unwrap();
        assert!(run(&mut again, 2, &[9]).is_err());
        assert!(run(&mut again, 3, &[4]).is_err());
        assert!(run(&mut again, 3, &[]).is_err());
        run(&mut again, 4, &[4]).unwrap();
        let epochs: Vec<Epoch> = written.lock().iter().map(|(e, _)| *e).collect();
        assert_eq!(epochs, [1, 3, 4]);
        target.trim(3);
        assert_eq!(target.kept(), 1);
    }

    #[test]
    fn what_may_come_and_go_is_netted() {
        for (keyed, epochs) in [(false, vec![vec![1, 1]]), (true, vec![vec![1], vec![1]])] {
            let written = Written::default();
            let target = SinkTarget::new(Box::new(MemorySink(written.clone())), false, 0);
            let mut sink = Sink::new(target, false, keyed);
            let (mut tables, mut out) = (Tables::default(), Output::default());
            for value in epochs.concat() {
                sink.push(0, delta(&[value]), &mut tables, &mut out).unwrap();
            }
            // A key says that the same row does not come twice; without one the two become one of weight 2.
            run(&mut sink, 1, &[]).unwrap();
            assert_eq!(written.lock()[0].1.len(), epochs.len());
            sink.push(0, delta(&[5]), &mut tables, &mut out).unwrap();
            sink.push(0, delta(&[5]).negate(), &mut tables, &mut out).unwrap();
            run(&mut sink, 2, &[]).unwrap();
            let rows: usize =
                written.lock().iter().filter(|(e, _)| *e == 2).flat_map(|(_, d)| d).map(Delta::num_rows).sum();
            assert_eq!(rows, 0);
        }
    }
}
