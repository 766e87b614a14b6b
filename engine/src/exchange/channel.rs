//! A channel between one producing and one consuming task: the producer's output log for that
//! consumer, epoch by epoch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use super::HandOver;
use super::spill::{Held, Spill};
use crate::task::executor::Waker;
use crate::types::{Barrier, Delta, Epoch, Result, SpateError};

/// Everything that a producer sent in one epoch.
#[derive(Debug)]
pub struct EpochData {
    /// The barrier that closed the epoch.
    pub barrier: Barrier,
    deltas: Vec<Held>,
}

impl EpochData {
    /// Number of deltas.
    pub fn len(&self) -> usize {
        self.deltas.len()
    }

    /// Whether the epoch is empty.
    pub fn is_empty(&self) -> bool {
        self.deltas.is_empty()
    }

    /// Delta `i`.
    pub fn get(&self, i: usize, schema: &SchemaRef) -> Result<Delta> {
        match self.deltas.get(i) {
            Some(d) => d.get(schema),
            None => Err(SpateError::internal("delta index out of range")),
        }
    }
}

#[derive(Debug)]
struct Inner {
    /// Closed epochs that the consumer may still ask for.
    log: BTreeMap<Epoch, Arc<EpochData>>,
    /// Epochs below this are no longer needed.
    trimmed: Epoch,
    /// Eager mode only: deltas of epochs not yet closed, in arrival order.
    eager: VecDeque<(Epoch, Delta)>,
    waker: Option<Waker>,
}

/// The channel itself; made once, shared by both ends, outliving either task.
#[derive(Debug)]
pub struct Channel {
    inner: Mutex<Inner>,
    schema: SchemaRef,
    spill: Arc<Spill>,
    mode: HandOver,
    /// Keep epochs after they were read, until [`Channel::trim`]: for replay.
    retain: bool,
}

impl Channel {
    /// A channel for rows of `schema`.
    pub fn new(schema: SchemaRef, spill: Arc<Spill>, mode: HandOver, retain: bool) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner { log: BTreeMap::new(), trimmed: 0, eager: VecDeque::new(), waker: None }),
            schema,
            spill,
            mode,
            retain,
        })
    }

    /// Who is to be woken when an epoch is closed.
    pub fn set_waker(&self, waker: Waker) {
        self.inner.lock().waker = Some(waker);
    }

    /// Forgets epochs up to `epoch`: the consumer's snapshot of it is current.
    pub fn trim(&self, epoch: Epoch) {
        let mut inner = self.inner.lock();
        inner.trimmed = inner.trimmed.max(epoch);
        inner.log = inner.log.split_off(&(epoch + 1));
    }

    /// The producer's memory is gone, and its log with it.
    pub fn lose_log(&self) {
        let mut inner = self.inner.lock();
        inner.log.clear();
        inner.eager.clear();
    }

    /// Newest epoch in the log.
    pub fn newest(&self) -> Option<Epoch> {
        self.inner.lock().log.last_key_value().map(|(e, _)| *e)
    }

    /// Epochs in the log.
    pub fn retained(&self) -> usize {
        self.inner.lock().log.len()
    }
}

/// The producer's end.
#[derive(Debug)]
pub struct Sender {
    channel: Arc<Channel>,
    open: Vec<Held>,
    epoch: Epoch,
}

impl Sender {
    /// The producer's end of `channel`; `epoch` is the first that it will close.
    pub fn new(channel: Arc<Channel>, epoch: Epoch) -> Self {
        Self { channel, open: Vec::new(), epoch }
    }

    /// Adds to the open epoch.
    pub fn send(&mut self, delta: Delta) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        if self.channel.mode == HandOver::Eager {
            let mut inner = self.channel.inner.lock();
            inner.eager.push_back((self.epoch, delta));
            if let Some(w) = &inner.waker {
                w.wake();
            }
            return Ok(());
        }
        self.open.push(self.channel.spill.hold(delta)?);
        Ok(())
    }

    /// Closes the open epoch: all of it becomes visible at once. An epoch that is in the log
    /// already (a replay) must be the same as before; it is dropped.
    pub fn close(&mut self, barrier: &Barrier) -> Result<()> {
        let epoch = barrier.tick.epoch;
        let data = EpochData { barrier: barrier.clone(), deltas: std::mem::take(&mut self.open) };
        self.epoch = epoch + 1;
        let mut inner = self.channel.inner.lock();
        if let Some(before) = inner.log.get(&epoch).cloned() {
            drop(inner);
            return self.check_replay(&before, &data);
        }
        if epoch > inner.trimmed {
            inner.log.insert(epoch, Arc::new(data));
        }
        if let Some(w) = &inner.waker {
            w.wake();
        }
        Ok(())
    }

    fn check_replay(&self, before: &EpochData, again: &EpochData) -> Result<()> {
        let rows = |e: &EpochData| {
            let all: Result<Vec<Delta>> = (0..e.len()).map(|i| e.get(i, &self.channel.schema)).collect();
            Delta::concat(&self.channel.schema, &all?)
        };
        let (a, b) = (rows(before)?, rows(again)?);
        if before.barrier != again.barrier || a.rows() != b.rows() || a.weights_or_ones() != b.weights_or_ones() {
            return Err(SpateError::internal(format!(
                "replay of epoch {} differs from what was sent before",
                before.barrier.tick.epoch
            )));
        }
        Ok(())
    }
}

/// The consumer's end.
#[derive(Debug)]
pub struct Receiver {
    channel: Arc<Channel>,
}

impl Receiver {
    /// The consumer's end of `channel`.
    pub fn new(channel: Arc<Channel>) -> Self {
        Self { channel }
    }

    /// All of `epoch`, once the producer has closed it.
    pub fn epoch(&self, epoch: Epoch) -> Option<Arc<EpochData>> {
        let mut inner = self.channel.inner.lock();
        if self.channel.retain { inner.log.get(&epoch).cloned() } else { inner.log.remove(&epoch) }
    }

    /// Whether the producer has closed `epoch`.
    pub fn has(&self, epoch: Epoch) -> bool {
        self.channel.inner.lock().log.contains_key(&epoch)
    }

    /// Eager mode: the next delta of `epoch`, closed or not.
    pub fn eager(&self, epoch: Epoch) -> Option<Delta> {
        let mut inner = self.channel.inner.lock();
        match inner.eager.front() {
            Some((e, _)) if *e == epoch => inner.eager.pop_front().map(|(_, d)| d),
            _ => None,
        }
    }

    /// How the channel hands over.
    pub fn mode(&self) -> HandOver {
        self.channel.mode
    }

    /// Shape of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.channel.schema
    }

    /// The channel.
    pub fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;
    use crate::env::MemoryStorage;
    use crate::types::{Tick, WATERMARK_MIN};

    fn delta(values: &[i64]) -> Delta {
        let a: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        Delta::insert(RecordBatch::try_from_iter([("a", a)]).unwrap())
    }

    fn barrier(epoch: Epoch) -> Barrier {
        let tick = Tick { incarnation: 1, term: 1, epoch, opened_us: epoch as i64 - 1, now_us: epoch as i64 };
        Barrier { tick, ranges: Arc::new([]), watermark: WATERMARK_MIN, complete: true }
    }

    fn channel() -> Arc<Channel> {
        Channel::new(delta(&[]).schema(), Spill::new(usize::MAX, Arc::new(MemoryStorage)), HandOver::WholeEpoch, true)
    }

    fn send(sender: &mut Sender, epoch: Epoch, deltas: &[&[i64]]) -> Result<()> {
        deltas.iter().try_for_each(|d| sender.send(delta(d)))?;
        sender.close(&barrier(epoch))
    }

    #[test]
    fn an_epoch_is_invisible_until_closed_and_stays_until_trimmed() {
        let c = channel();
        let (mut s, r) = (Sender::new(c.clone(), 1), Receiver::new(c.clone()));
        s.send(delta(&[1])).unwrap();
        assert!(r.epoch(1).is_none() && !r.has(1));
        s.close(&barrier(1)).unwrap();
        assert!(r.epoch(1).is_some() && r.epoch(1).is_some());
        send(&mut s, 2, &[&[2]]).unwrap();
        c.trim(1);
        assert!(r.epoch(1).is_none() && r.epoch(2).is_some());
        assert_eq!((c.retained(), c.newest()), (1, Some(2)));
    }

    #[test]
    fn a_replay_may_be_cut_in_another_way_but_must_be_the_same() {
        let c = channel();
        send(&mut Sender::new(c.clone(), 1), 1, &[&[1, 2], &[3]]).unwrap();
        send(&mut Sender::new(c.clone(), 1), 1, &[&[1], &[2, 3]]).unwrap();
        assert_eq!(Receiver::new(c.clone()).epoch(1).unwrap().len(), 2);
        for other in [&[1, 3, 2][..], &[1, 2], &[1, 2, 4]] {
            let e = send(&mut Sender::new(c.clone(), 1), 1, &[other]).unwrap_err();
            assert!(e.message().contains("replay of epoch 1 differs"), "{e}");
        }
        let mut s = Sender::new(c, 1);
        s.send(delta(&[1, 2, 3])).unwrap();
        assert!(s.close(&Barrier { watermark: 5, ..barrier(1) }).is_err());
    }

    #[test]
    fn a_lost_log_is_filled_again_from_what_the_consumer_still_needs() {
        let c = channel();
        let mut s = Sender::new(c.clone(), 1);
        (1..=3).for_each(|e| send(&mut s, e, &[&[e as i64]]).unwrap());
        c.trim(2);
        c.lose_log();
        let mut s = Sender::new(c.clone(), 1);
        (1..=4).for_each(|e| send(&mut s, e, &[&[e as i64]]).unwrap());
        let r = Receiver::new(c.clone());
        assert_eq!((1..=4).map(|e| r.has(e)).collect::<Vec<_>>(), [false, false, true, true]);
        assert_eq!(c.retained(), 2);
    }
}
