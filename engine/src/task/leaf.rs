//! Leaves of a task: where its input comes from. Each gives the deltas of an epoch and then
//! the barrier that closes it.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::executor::Step;
use super::scan::ScanLeaf;
use super::source::SourceLeaf;
use super::ticks::TickBoard;
use crate::exchange::{EpochData, HandOver, Receiver};
use crate::types::{Delta, Epoch, Result, SplitRange, Tick, WATERMARK_MAX, Watermark};

/// What a leaf has for the epoch that is asked for.
#[derive(Debug)]
pub enum LeafPoll {
    /// Rows.
    Data(Delta),
    /// The epoch is over.
    Closed(LeafBarrier),
    /// Nothing until the task is woken.
    Wait,
    /// Nothing until the task is woken or this time has passed.
    WaitFor(Duration),
}

/// How a leaf closes an epoch.
#[derive(Debug, Clone)]
pub struct LeafBarrier {
    /// The tick.
    pub tick: Tick,
    /// Watermark from here on.
    pub watermark: Watermark,
    /// Ranges covered by sources at or above this leaf.
    pub ranges: Arc<[SplitRange]>,
    /// All that was there when the job was created has been delivered (of a bounded source:
    /// all there is).
    pub caught_up: bool,
}

/// A leaf.
#[derive(Debug)]
pub enum Leaf {
    /// Another fragment's tasks.
    Remote(RemoteLeaf),
    /// A connector.
    Source(Box<SourceLeaf>),
    /// A table or view of the engine.
    Scan(ScanLeaf),
    /// No input, only ticks (constant rows).
    Ticks(Arc<TickBoard>),
}

/// What a leaf needs to go on from a snapshot.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum LeafState {
    /// Nothing: position follows from the epoch.
    None,
    /// Open splits.
    Source(super::source::SourceState),
    /// Backfill and log position.
    Scan(super::scan::ScanState),
}

impl LeafState {
    /// Whether going on from here, after `epoch`, needs nothing of what was there when the job was made.
    pub fn is_caught_up(&self, epoch: Epoch) -> bool {
        match self {
            Self::Scan(s) => s.is_caught_up(epoch),
            Self::None | Self::Source(_) => true,
        }
    }
}

impl Leaf {
    /// The next thing of `epoch`.
    pub fn poll(&mut self, epoch: Epoch) -> Result<LeafPoll> {
        match self {
            Self::Remote(l) => l.poll(epoch),
            Self::Source(l) => l.poll(epoch),
            Self::Scan(l) => l.poll(epoch),
            Self::Ticks(board) => Ok(match board.get(epoch) {
                Some(tick) => LeafPoll::Closed(LeafBarrier {
                    tick,
                    watermark: WATERMARK_MAX,
                    ranges: Arc::new([]),
                    caught_up: true,
                }),
                None => LeafPoll::Wait,
            }),
        }
    }

    /// Reads ahead while it is not this leaf's turn. Says when there may be more.
    pub fn background(&mut self, epoch: Epoch) -> Result<Step> {
        match self {
            Self::Source(l) => l.background(epoch),
            _ => Ok(Step::Wait),
        }
    }

    /// When, by the clock, an epoch that ends then changes its watermark though no input comes.
    pub fn due(&self) -> Option<i64> {
        match self {
            Self::Source(l) => l.due(),
            _ => None,
        }
    }

    /// State at the end of the last closed epoch.
    pub fn state(&self) -> LeafState {
        match self {
            Self::Source(l) => LeafState::Source(l.state()),
            Self::Scan(l) => LeafState::Scan(l.state()),
            Self::Remote(_) | Self::Ticks(_) => LeafState::None,
        }
    }

    /// Goes on from a state that was at the end of `epoch`.
    pub fn restore(&mut self, state: &LeafState, epoch: Epoch) -> Result<()> {
        match (self, state) {
            (Self::Source(l), LeafState::Source(s)) => l.restore(s, epoch)?,
            (Self::Scan(l), LeafState::Scan(s)) => l.restore(s),
            _ => {}
        }
        Ok(())
    }
}

/// Reads the channels from all tasks of one upstream fragment, in channel order.
#[derive(Debug)]
pub struct RemoteLeaf {
    receivers: Vec<Receiver>,
    schema: SchemaRef,
    /// Channel being read, and the next delta in it.
    at: usize,
    next: usize,
    current: Option<Arc<EpochData>>,
    barriers: Vec<crate::types::Barrier>,
}

impl RemoteLeaf {
    /// A leaf over these channels.
    pub fn new(receivers: Vec<Receiver>, schema: SchemaRef) -> Self {
        Self { receivers, schema, at: 0, next: 0, current: None, barriers: Vec::new() }
    }

    /// The channels' receiving ends.
    pub fn receivers(&self) -> &[Receiver] {
        &self.receivers
    }

    fn poll(&mut self, epoch: Epoch) -> Result<LeafPoll> {
        if self.receivers.first().is_some_and(|r| r.mode() == HandOver::Eager) {
            for r in &self.receivers {
                if let Some(d) = r.eager(epoch) {
                    return Ok(LeafPoll::Data(d));
                }
            }
            if !self.receivers.iter().all(|r| r.has(epoch)) {
                return Ok(LeafPoll::Wait);
            }
            // A delta may have come between the two looks; its barrier came after it.
            for r in &self.receivers {
                if let Some(d) = r.eager(epoch) {
                    return Ok(LeafPoll::Data(d));
                }
            }
        }
        while self.at < self.receivers.len() {
            if self.current.is_none() {
                match self.receivers[self.at].epoch(epoch) {
                    Some(e) => {
                        self.barriers.push(e.barrier.clone());
                        self.current = Some(e);
                        self.next = 0;
                    }
                    None => return Ok(LeafPoll::Wait),
                }
            }
            if let Some(e) = &self.current
                && self.next < e.len()
            {
                self.next += 1;
                return Ok(LeafPoll::Data(e.get(self.next - 1, &self.schema)?));
            }
            self.current = None;
            self.at += 1;
        }
        self.at = 0;
        let barriers = std::mem::take(&mut self.barriers);
        Ok(LeafPoll::Closed(merge(&barriers, epoch)?))
    }
}

/// One barrier from several: the least watermark, all ranges once, complete if all are.
pub fn merge(barriers: &[crate::types::Barrier], epoch: Epoch) -> Result<LeafBarrier> {
    let first = barriers
        .first()
        .ok_or_else(|| crate::types::SpateError::internal(format!("no barrier closes epoch {epoch}")))?;
    for b in barriers {
        if b.tick != first.tick {
            return Err(crate::types::SpateError::internal(format!("two ticks for epoch {epoch}")));
        }
    }
    Ok(LeafBarrier {
        tick: first.tick,
        watermark: barriers.iter().map(|b| b.watermark).min().unwrap_or(WATERMARK_MAX),
        ranges: crate::types::epoch::union_ranges(barriers.iter().map(|b| &*b.ranges)),
        caught_up: barriers.iter().all(|b| b.complete),
    })
}
