//! The task driver: one parallel instance of a fragment, stepped by an executor.
//!
//! For every epoch it takes the leaves in order, pushes their deltas through the operators, and
//! at the end runs the barrier through them, hands the output over and maybe takes a snapshot.
//! It yields at least every few milliseconds. All time that it sees is a step's budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::events::{Events, TaskId};
use super::executor::{Runnable, Step};
use super::leaf::{Leaf, LeafBarrier, LeafPoll, LeafState};
use super::ticks::TickBoard;
use crate::checkpoint::Snapshots;
use crate::env::Clock;
use crate::exchange::{HandOver, Router};
use crate::operator::{BarrierInfo, Operator, Output};
use crate::state::{TableSegment, Tables};
use crate::types::epoch::union_ranges;
use crate::types::{Barrier, Delta, Epoch, ErrorKind, Result, SpateError, WATERMARK_MAX, Watermark};

/// Longest time that a step takes before it lets others run.
const STEP_BUDGET: Duration = Duration::from_millis(4);

/// Rows that a task moves from operator to operator before it looks at how much they keep: within a long epoch,
/// too, a query must stop before it has all of the machine's memory. The look takes longer the more state there is,
/// so small deltas must not bring it about.
const CHARGE_EVERY: usize = 1 << 18;

/// An operator in a task, with its tables and where its output goes.
pub struct OpNode {
    /// Its name in EXPLAIN.
    pub name: &'static str,
    /// The operator.
    pub op: Box<dyn Operator>,
    /// Its state.
    pub tables: Tables,
    /// The consuming operator and its port; `None` for the root.
    pub parent: Option<(usize, usize)>,
    /// Number of input ports.
    pub ports: usize,
}

impl OpNode {
    /// Bytes that it keeps, in its tables or in the view that it fills.
    fn memory_size(&self) -> usize {
        let view = self.op.keeps().map_or(0, |(store, part)| store.partition_size(part));
        self.tables.memory_size() + self.op.held() + view
    }
}

/// A leaf and the operator port that it feeds (`None`: straight to the output).
pub struct LeafNode {
    /// The leaf.
    pub leaf: Leaf,
    /// Operator and port.
    pub parent: Option<(usize, usize)>,
}

/// What a task needs to go on after the end of an epoch.
#[derive(Debug, Clone)]
pub struct TaskSnapshot {
    /// The epoch.
    pub epoch: Epoch,
    /// Whether the segments hold all rows, so that a chain can start here.
    pub full: bool,
    /// Segments, per operator and table; of an operator that keeps a part of a view, that part's behind
    /// its tables'.
    pub tables: Vec<Vec<TableSegment>>,
    /// Leaves.
    pub leaves: Vec<LeafState>,
    /// The leaves have delivered all that was there when the job was made, so that going on from here needs
    /// none of it.
    pub caught_up: bool,
    /// Watermark of the task's output.
    pub watermark: Watermark,
}

/// What a task is made of.
pub struct TaskParts {
    /// Its name.
    pub id: TaskId,
    /// Operators, producers before consumers.
    pub ops: Vec<OpNode>,
    /// Leaves, in channel order.
    pub leaves: Vec<LeafNode>,
    /// Where the root's output goes, all of it to each; nowhere if the root keeps or writes it itself.
    pub outputs: Vec<Router>,
    /// The first epoch.
    pub start: Epoch,
    /// Wait for the epoch's record before the barrier reaches the operators (sinks).
    pub await_record: bool,
    /// Memory that operators may hold in all tasks of the engine together.
    pub memory: Arc<MemoryAccount>,
    /// Reports.
    pub events: Arc<dyn Events>,
    /// Ticks.
    pub board: Arc<TickBoard>,
    /// For step budgets.
    pub clock: Arc<dyn Clock>,
    /// Snapshots, if any are to be taken.
    pub snapshots: Option<Arc<dyn Snapshots>>,
    /// How input is merged.
    pub hand_over: HandOver,
    /// Set when the job is to end: a task in the middle of a long step gives up.
    pub stop: Arc<AtomicBool>,
    /// Snapshots hold the views that tasks keep; else those outlive their tasks.
    pub restore_stores: bool,
}

/// State memory of all tasks against its limit.
#[derive(Debug)]
pub struct MemoryAccount {
    limit: usize,
    used: std::sync::atomic::AtomicUsize,
}

impl MemoryAccount {
    /// An account with a limit in bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: std::sync::atomic::AtomicUsize::new(0) })
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn change(&self, from: usize, to: usize) -> Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let used = if to >= from {
            self.used.fetch_add(to - from, Relaxed) + (to - from)
        } else {
            self.used.fetch_sub(from - to, Relaxed) - (from - to)
        };
        if to > from && used > self.limit {
            return Err(SpateError::new(
                ErrorKind::Limit,
                format!("state needs {} MiB, more than memory_limit ({} MiB)", used >> 20, self.limit >> 20),
            ));
        }
        Ok(())
    }
}

enum Phase {
    /// Taking input of the leaves; those that have closed the epoch.
    Input(Vec<Option<LeafBarrier>>),
    /// All leaves have closed; the record is awaited if need be.
    Barrier(Vec<Option<LeafBarrier>>),
    /// Handing the epoch over to consumer `n` next.
    Publish(Barrier, usize, bool),
}

/// A running task.
pub struct Task {
    parts: TaskParts,
    epoch: Epoch,
    phase: Phase,
    charged: usize,
    /// Rows moved since the state was last charged.
    uncharged: usize,
    out: Output,
    /// It has told a time at which its output changes.
    timed: bool,
}

impl Task {
    /// A task at its start, or after the last snapshot of a chain.
    pub fn new(mut parts: TaskParts, chain: &[TaskSnapshot]) -> Result<Self> {
        let mut epoch = parts.start;
        if let Some(last) = chain.last() {
            epoch = last.epoch + 1;
            for (i, node) in parts.ops.iter_mut().enumerate() {
                let mut segments: Vec<Vec<TableSegment>> =
                    chain.iter().filter_map(|s| s.tables.get(i).cloned()).collect();
                if let Some((store, part)) = node.op.keeps().filter(|_| parts.restore_stores) {
                    let kept: Vec<TableSegment> = segments.iter_mut().filter_map(Vec::pop).collect();
                    store.restore(part, &kept, last.epoch, last.watermark)?;
                }
                node.tables.restore(&segments)?;
            }
            for (node, state) in parts.leaves.iter_mut().zip(&last.leaves) {
                node.leaf.restore(state, last.epoch)?;
                if let Leaf::Source(s) = &mut node.leaf {
                    s.reopen()?;
                }
            }
        }
        let n = parts.leaves.len();
        Ok(Self {
            parts,
            epoch,
            phase: Phase::Input(vec![None; n]),
            charged: 0,
            uncharged: 0,
            out: Output::default(),
            timed: false,
        })
    }

    /// The task's name.
    pub fn id(&self) -> TaskId {
        self.parts.id
    }

    /// The epoch that it is working on.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn push(&mut self, to: Option<(usize, usize)>, delta: Delta) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        let Some((op, port)) = to else {
            let Some((last, others)) = self.parts.outputs.split_last_mut() else {
                return Err(SpateError::internal("a task without consumers has output"));
            };
            for router in others {
                router.send(delta.clone())?;
            }
            return last.send(delta);
        };
        let most = self.parts.ops[op].op.max_input_rows();
        let mut at = 0;
        while at < delta.num_rows() {
            if self.parts.stop.load(Ordering::Relaxed) {
                return Err(SpateError::new(ErrorKind::Cancelled, "the query is being stopped"));
            }
            let piece = delta.slice(at, most.min(delta.num_rows() - at));
            at += piece.num_rows();
            self.uncharged += piece.num_rows();
            let node = &mut self.parts.ops[op];
            node.op.push(port, piece, &mut node.tables, &mut self.out)?;
            self.forward(op)?;
            if self.uncharged >= CHARGE_EVERY {
                self.charge()?;
            }
        }
        Ok(())
    }

    /// Moves what operator `op` emitted to its consumer.
    fn forward(&mut self, op: usize) -> Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let parent = self.parts.ops[op].parent;
        for d in self.out.take() {
            self.push(parent, d)?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<Step> {
        let until = self.parts.clock.monotonic() + STEP_BUDGET;
        loop {
            let step = match std::mem::replace(&mut self.phase, Phase::Input(Vec::new())) {
                Phase::Input(closed) => self.input(closed)?,
                Phase::Barrier(closed) => self.barrier(closed)?,
                Phase::Publish(barrier, next, caught_up) => {
                    self.publish(barrier, next, caught_up)?;
                    Step::Again
                }
            };
            if step != Step::Again || self.parts.clock.monotonic() >= until {
                return Ok(step);
            }
        }
    }

    /// Takes one delta, or finds that there is none now.
    fn input(&mut self, mut closed: Vec<Option<LeafBarrier>>) -> Result<Step> {
        let eager = self.parts.hand_over == HandOver::Eager;
        let mut wait = Step::Wait;
        let mut first = true;
        for (i, slot) in closed.iter_mut().enumerate() {
            if slot.is_some() {
                continue;
            }
            if !first && !eager {
                // Not its turn: let it read ahead, so that sources keep busy.
                wait = wait.sooner(self.parts.leaves[i].leaf.background(self.epoch)?);
                continue;
            }
            match self.parts.leaves[i].leaf.poll(self.epoch)? {
                LeafPoll::Data(d) => {
                    let parent = self.parts.leaves[i].parent;
                    self.phase = Phase::Input(closed);
                    self.push(parent, d)?;
                    return Ok(Step::Again);
                }
                LeafPoll::Closed(b) => *slot = Some(b),
                LeafPoll::Wait => first = false,
                LeafPoll::WaitFor(d) => {
                    first = false;
                    wait = wait.sooner(Step::WaitFor(d));
                }
            }
        }
        if closed.iter().all(Option::is_some) {
            self.phase = Phase::Barrier(closed);
            return Ok(Step::Again);
        }
        self.phase = Phase::Input(closed);
        Ok(wait)
    }

    fn barrier(&mut self, closed: Vec<Option<LeafBarrier>>) -> Result<Step> {
        if self.parts.await_record && self.parts.board.recorded() < self.epoch {
            self.phase = Phase::Barrier(closed);
            return Ok(Step::Wait);
        }
        let closed: Vec<LeafBarrier> = closed.into_iter().flatten().collect();
        let Some(tick) = closed.first().map(|b| b.tick) else {
            return Err(SpateError::internal("a task without leaves"));
        };
        if closed.iter().any(|b| b.tick != tick) {
            return Err(SpateError::internal(format!("two ticks for epoch {}", self.epoch)));
        }
        // Watermarks per operator port; a port that nothing feeds has ended.
        let mut marks: Vec<Vec<Watermark>> =
            self.parts.ops.iter().map(|n| vec![WATERMARK_MAX; n.ports.max(1)]).collect();
        let mut complete: Vec<Vec<bool>> = self.parts.ops.iter().map(|n| vec![true; n.ports.max(1)]).collect();
        let mut root_mark = WATERMARK_MAX;
        for (leaf, b) in self.parts.leaves.iter().zip(&closed) {
            match leaf.parent {
                Some((op, port)) => {
                    marks[op][port] = b.watermark;
                    complete[op][port] = b.caught_up;
                }
                None => root_mark = b.watermark,
            }
        }
        for op in 0..self.parts.ops.len() {
            let node = &mut self.parts.ops[op];
            let least = marks[op].iter().copied().min().unwrap_or(WATERMARK_MAX);
            let info = BarrierInfo { tick, watermark: least, input_watermarks: &marks[op], complete: &complete[op] };
            node.op.barrier(&info, &mut node.tables, &mut self.out)?;
            let mark = node.op.watermark(&info);
            let all = complete[op].iter().all(|c| *c);
            match node.parent {
                Some((parent, port)) => {
                    marks[parent][port] = mark;
                    complete[parent][port] = all;
                }
                None => root_mark = mark,
            }
            self.forward(op)?;
        }
        self.charge()?;
        let ranges = union_ranges(closed.iter().map(|b| &*b.ranges));
        let caught_up = closed.iter().all(|b| b.caught_up);
        let barrier = Barrier { tick, ranges, watermark: root_mark, complete: caught_up };
        self.phase = Phase::Publish(barrier, 0, caught_up);
        Ok(Step::Again)
    }

    /// Accounts for what the operators keep now.
    fn charge(&mut self) -> Result<()> {
        self.uncharged = 0;
        let used = self.parts.ops.iter().map(OpNode::memory_size).sum();
        let from = std::mem::replace(&mut self.charged, used);
        self.parts.memory.change(from, used).map_err(|e| self.explain_memory(e))
    }

    fn explain_memory(&self, e: SpateError) -> SpateError {
        let sizes = self.parts.ops.iter().map(|n| (n.memory_size(), n.name));
        let (bytes, name) = sizes.max_by_key(|(bytes, _)| *bytes).unwrap_or((0, "none"));
        let message = format!("{}; the largest is that of {name} with {} MiB in a task", e.message(), bytes >> 20);
        SpateError::new(ErrorKind::Limit, message)
            .with_hint("filter earlier, use windows and watermarks, or raise memory_limit")
    }

    fn publish(&mut self, barrier: Barrier, next: usize, caught_up: bool) -> Result<()> {
        let mut consumer = next;
        let router = self.parts.outputs.iter_mut().find_map(|r| match consumer.checked_sub(r.len()) {
            Some(rest) => {
                consumer = rest;
                None
            }
            None => Some(r),
        });
        if let Some(router) = router {
            router.close(consumer, &barrier)?;
            self.phase = Phase::Publish(barrier, next + 1, caught_up);
            return Ok(());
        }
        let epoch = self.epoch;
        if let Some(store) = self.parts.snapshots.clone()
            && store.is_due(self.parts.id, epoch)
        {
            let full = store.wants_full(self.parts.id);
            let stores = self.parts.restore_stores;
            let of_op = |n: &mut OpNode| {
                let mut segments = n.tables.snapshot(full)?;
                if let Some((store, part)) = n.op.keeps().filter(|_| stores) {
                    segments.push(store.snapshot(part, full)?);
                }
                Ok(segments)
            };
            let tables = self.parts.ops.iter_mut().map(of_op).collect::<Result<Vec<_>>>()?;
            let leaves: Vec<LeafState> = self.parts.leaves.iter().map(|l| l.leaf.state()).collect();
            let caught_up = leaves.iter().all(|l| l.is_caught_up(epoch));
            let watermark = barrier.watermark;
            store.add(self.parts.id, TaskSnapshot { epoch, full, tables, leaves, caught_up, watermark });
        }
        let ops = self.parts.ops.iter_mut().filter_map(|n| n.op.due(&mut n.tables));
        let due = ops.chain(self.parts.leaves.iter().filter_map(|n| n.leaf.due())).min();
        if due.is_some() || self.timed {
            self.timed = due.is_some();
            self.parts.events.due(self.parts.id, epoch, due);
        }
        if caught_up {
            let ended = barrier.watermark == WATERMARK_MAX;
            self.parts.events.caught_up(self.parts.id, epoch, ended);
        }
        self.parts.events.completed(self.parts.id, epoch, barrier.watermark);
        self.epoch += 1;
        self.phase = Phase::Input(vec![None; self.parts.leaves.len()]);
        Ok(())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.parts.memory.change(self.charged, 0);
    }
}

impl Runnable for Task {
    fn step(&mut self) -> Step {
        match self.run() {
            Ok(step) => step,
            Err(e) => {
                self.parts.events.failed(self.parts.id, self.epoch, e);
                Step::Done
            }
        }
    }

    fn panicked(&mut self, message: &str) {
        let e = SpateError::internal(format!("a task panicked: {message}"));
        self.parts.events.failed(self.parts.id, self.epoch, e);
    }
}
