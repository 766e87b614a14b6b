//! From a fragment graph to tasks: channels between them, leaves, operators with their tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::SchemaRef;

use super::driver::{LeafNode, MemoryAccount, OpNode, Task, TaskParts, TaskSnapshot};
use super::events::{Events, TaskId};
use super::executor::{Executor, Waker};
use super::idle::SourceGroup;
use super::leaf::{Leaf, LeafState, RemoteLeaf};
use super::metrics::LeafMetrics;
use super::scan::{Backfill, CATCH_UP_ROWS, ScanLeaf};
use super::source::{EPOCH_MAX_ROWS, SourceContext, SourceLeaf};
use super::ticks::TickBoard;
use crate::checkpoint::{SnapshotStore, Snapshots};
use crate::connector::{OnError, SinkWriter, SourceConnector};
use crate::env::Clock;
use crate::exchange::{Channel, HandOver, Receiver, Router, Sender, Spill};
use crate::operator::recursive::{Recursive, Step, StepLeaf, StepOp};
use crate::operator::sink::SinkTarget;
use crate::operator::{self, Operator};
use crate::plan::fragment::{Fragment, FragmentGraph, FragmentOutput};
use crate::plan::{Distribution, ExprRef, ObjectId, OpSpec, Properties, StreamNode};
use crate::state::Tables;
use crate::state::view::{ViewReader, ViewStore};
use crate::types::{Epoch, Result, SpateError};

/// What a job is made from, besides its plan.
pub struct JobContext {
    /// Number of the job.
    pub job: u64,
    /// First epoch.
    pub start: Epoch,
    /// Connectors that it reads.
    pub sources: BTreeMap<ObjectId, Arc<dyn SourceConnector>>,
    /// Connectors of which a record that cannot be decoded stops the job.
    pub strict: BTreeSet<ObjectId>,
    /// Tables and views that it reads; all complete up to the epoch before `start`.
    pub stores: BTreeMap<ObjectId, Arc<ViewStore>>,
    /// The view that it keeps.
    pub target: Option<Arc<ViewStore>>,
    /// The sink that it writes.
    pub sink: Option<Box<dyn SinkWriter>>,
    /// Ticks.
    pub board: Arc<TickBoard>,
    /// Reports.
    pub events: Arc<dyn Events>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Budget of the exchanges.
    pub spill: Arc<Spill>,
    /// Budget of the state.
    pub memory: Arc<MemoryAccount>,
    /// How exchanges hand over.
    pub hand_over: HandOver,
    /// Snapshots: epochs between those of a task, if any are taken. Exchanges then keep epochs
    /// until the consumer's snapshot is current.
    pub snapshot_every: Option<SnapshotEvery>,
    /// Who takes snapshots of all tasks, and of the view that they keep, to make all of them again from these.
    pub checkpoints: Option<Arc<dyn Snapshots>>,
    /// Where it goes on, if it does not begin anew.
    pub resume: Option<Resume>,
}

/// Where a job goes on whose tasks were all lost, with what they kept.
#[derive(Debug, Default)]
pub struct Resume {
    /// The epoch that they had all finished.
    pub after: Epoch,
    /// Chains of snapshots, up to that epoch.
    pub tasks: BTreeMap<TaskId, Vec<TaskSnapshot>>,
}

/// How many epochs lie between the snapshots of a task.
pub type SnapshotEvery = Arc<dyn Fn(TaskId) -> u64 + Send + Sync>;

/// How much one leaf may put into one epoch.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Rows of a source.
    pub source_rows: usize,
    /// Rows of a scan that catches up.
    pub catch_up_rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { source_rows: EPOCH_MAX_ROWS, catch_up_rows: CATCH_UP_ROWS }
    }
}

struct Slot {
    id: TaskId,
    slot: u64,
    waker: Waker,
}

/// A built job: everything needed to make each of its tasks, also again after it was lost.
pub struct JobTasks {
    ctx: JobContext,
    graph: FragmentGraph,
    slots: Vec<Vec<Slot>>,
    /// Per producing fragment: channels by output, producer task, then consumer task.
    channels: Vec<Vec<Vec<Vec<Arc<Channel>>>>>,
    groups: BTreeMap<(usize, usize), Arc<SourceGroup>>,
    scans: BTreeMap<(usize, usize), (Backfill, Arc<ViewReader>)>,
    /// By task and source leaf; they outlive the task.
    metrics: BTreeMap<(TaskId, usize), Arc<LeafMetrics>>,
    watches: Vec<(Arc<ViewStore>, u64)>,
    snapshots: Option<Arc<SnapshotStore>>,
    /// Tells tasks in the middle of a step to give up.
    stop: Arc<AtomicBool>,
    sink: Option<Arc<SinkTarget>>,
    /// Keeps the target's log as far back as it may be replayed, to compare with.
    written: Option<ViewReader>,
    limits: Limits,
}

/// Builds the job: reserves slots, connects channels, freezes what is to be backfilled.
pub fn build_job(graph: FragmentGraph, mut ctx: JobContext, executor: &dyn Executor) -> Result<JobTasks> {
    let mut slots: Vec<Vec<Slot>> = Vec::new();
    for f in &graph.fragments {
        let mut row = Vec::new();
        for index in 0..f.parallelism {
            let (slot, waker) = executor.reserve();
            let id = TaskId { job: ctx.job, fragment: f.id as u32, index: index as u32 };
            row.push(Slot { id, slot, waker });
        }
        slots.push(row);
    }
    let retain = ctx.snapshot_every.is_some();
    let mut channels = Vec::new();
    for f in &graph.fragments {
        let of_output = |o: &FragmentOutput| {
            let consumers = slots.get(o.consumer).map_or(&[][..], Vec::as_slice);
            let of_task = |_| {
                consumers
                    .iter()
                    .map(|c| {
                        let channel = Channel::new(f.root.schema.clone(), ctx.spill.clone(), ctx.hand_over, retain);
                        channel.set_waker(c.waker.clone());
                        channel
                    })
                    .collect::<Vec<_>>()
            };
            (0..f.parallelism).map(of_task).collect::<Vec<_>>()
        };
        channels.push(f.to.iter().map(of_output).collect::<Vec<_>>());
    }
    let snapshots = ctx.snapshot_every.clone().map(|every| {
        let tasks = graph.fragments.iter().flat_map(|f| {
            let consumers: BTreeSet<TaskId> =
                f.to.iter().filter_map(|o| slots.get(o.consumer)).flatten().map(|s| s.id).collect();
            let consumers: Vec<TaskId> = consumers.into_iter().collect();
            let ids: Vec<TaskId> = slots[f.id].iter().map(|s| s.id).collect();
            let every = every.clone();
            ids.into_iter().map(move |id| (id, every(id), consumers.clone()))
        });
        Arc::new(SnapshotStore::new(tasks))
    });
    let last = match &ctx.resume {
        Some(r) => ctx.sink.as_ref().map(|w| w.last_epoch()).transpose()?.flatten().unwrap_or(r.after),
        None => 0,
    };
    let sink = ctx.sink.take().map(|w| SinkTarget::new(w, retain, last));
    let written = match &ctx.target {
        Some(t) if retain => Some(t.reader(t.partitions(), ctx.start)),
        _ => None,
    };
    let mut job = JobTasks {
        ctx,
        graph,
        slots,
        channels,
        groups: BTreeMap::new(),
        scans: BTreeMap::new(),
        metrics: BTreeMap::new(),
        watches: Vec::new(),
        snapshots,
        stop: Arc::default(),
        sink,
        written,
        limits: Limits::default(),
    };
    job.prepare_leaves()?;
    Ok(job)
}

impl JobTasks {
    fn prepare_leaves(&mut self) -> Result<()> {
        // Sources with a watermark, and whether theirs follow others while they are idle.
        let mut marked: Vec<(Arc<SourceGroup>, bool, usize)> = Vec::new();
        for f in &self.graph.fragments {
            let mut specs = Vec::new();
            leaves_of(&f.root, &mut specs);
            for (i, leaf) in specs.into_iter().enumerate() {
                match &leaf.op {
                    OpSpec::Source(s) => {
                        let follows = s.watermark.map(|w| w.idle_us.is_some());
                        let group = SourceGroup::new(f.parallelism, self.ctx.snapshot_every.is_some());
                        for s in &self.slots[f.id] {
                            group.watch(s.waker.clone());
                            self.ctx.board.watch(s.slot, s.waker.clone());
                        }
                        marked.extend(follows.map(|follows| (group.clone(), follows, f.id)));
                        self.groups.insert((f.id, i), group);
                    }
                    OpSpec::Scan(scan) => {
                        let store = self
                            .ctx
                            .stores
                            .get(&scan.id)
                            .cloned()
                            .ok_or_else(|| SpateError::internal(format!("no store for {}", scan.name)))?;
                        // Who goes on has read all that was there at first.
                        let (next, rows) = match &self.ctx.resume {
                            Some(r) => (r.after + 1, Vec::new()),
                            None => (self.ctx.start, store.freeze_at(self.ctx.start.saturating_sub(1))?),
                        };
                        let reader = Arc::new(store.reader(f.parallelism, next));
                        self.scans.insert((f.id, i), (Arc::new(rows), reader));
                        for s in &self.slots[f.id] {
                            self.watches.push((store.clone(), store.watch(s.waker.clone())));
                        }
                    }
                    OpSpec::Values(_) => {
                        for s in &self.slots[f.id] {
                            self.ctx.board.watch(s.slot, s.waker.clone());
                        }
                    }
                    OpSpec::Exchange(_) => {}
                    other => return Err(SpateError::internal(format!("{} cannot be a leaf", other.name()))),
                }
            }
            if has_sink(&f.root) {
                for s in &self.slots[f.id] {
                    self.ctx.board.watch(s.slot, s.waker.clone());
                }
            }
        }
        for (n, (group, follows, fragment)) in marked.iter().enumerate() {
            for (_, (peer, ..)) in marked.iter().enumerate().filter(|(m, _)| *follows && *m != n) {
                group.follow(peer);
                self.slots[*fragment].iter().for_each(|s| peer.watch(s.waker.clone()));
            }
        }
        Ok(())
    }

    /// Number of the job.
    pub fn job(&self) -> u64 {
        self.ctx.job
    }

    /// All tasks with their slots.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, u64)> + '_ {
        self.slots.iter().flatten().map(|s| (s.id, s.slot))
    }

    /// Leaves that read connectors, by task: those that close epochs over ranges.
    pub fn ticked(&self) -> Vec<(TaskId, usize)> {
        let mut out = Vec::new();
        for f in &self.graph.fragments {
            let mut leaves = Vec::new();
            leaves_of(&f.root, &mut leaves);
            for (i, _) in leaves.iter().enumerate().filter(|(_, l)| matches!(l.op, OpSpec::Source(_))) {
                out.extend(self.slots[f.id].iter().map(|s| (s.id, i)));
            }
        }
        out
    }

    /// Sets how much one leaf may put into one epoch, of tasks made from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Tasks with leaves that must catch up: sources, scans, constants.
    pub fn inputs(&self) -> Vec<TaskId> {
        self.tasks_where(|f| {
            let mut leaves = Vec::new();
            leaves_of(&f.root, &mut leaves);
            leaves.iter().any(|l| !matches!(l.op, OpSpec::Exchange(_)))
        })
    }

    /// Tasks that end the job's dataflow: their completion of an epoch is the job's.
    pub fn terminals(&self) -> Vec<TaskId> {
        self.tasks_where(|f| f.to.is_empty())
    }

    fn tasks_where(&self, pick: impl Fn(&Fragment) -> bool) -> Vec<TaskId> {
        let fragments = self.graph.fragments.iter().filter(|f| pick(f));
        fragments.flat_map(|f| self.slots[f.id].iter().map(|s| s.id)).collect()
    }

    /// The plan.
    pub fn graph(&self) -> &FragmentGraph {
        &self.graph
    }

    /// Counters of the leaves.
    pub fn metrics(&self) -> Vec<Arc<LeafMetrics>> {
        self.metrics.values().cloned().collect()
    }

    /// Whether its tasks are part of checkpoints.
    pub fn has_checkpoints(&self) -> bool {
        self.ctx.checkpoints.is_some()
    }

    /// Snapshots, if they are taken.
    pub fn snapshots(&self) -> Option<&Arc<SnapshotStore>> {
        self.snapshots.as_ref()
    }

    /// Makes all tasks and starts them.
    pub fn start(&mut self, executor: &dyn Executor) -> Result<()> {
        let ids: Vec<(TaskId, u64)> = self.tasks().collect();
        let mut made = Vec::new();
        let mut resume = self.ctx.resume.take();
        for (id, slot) in ids {
            let chain = match &mut resume {
                None => Vec::new(),
                Some(r) => r.tasks.remove(&id).ok_or_else(|| {
                    SpateError::internal(format!("there is no snapshot of {id}, or the plan is another one"))
                })?,
            };
            made.push((slot, self.make(id, &chain)?));
        }
        for (slot, task) in made {
            executor.spawn(slot, Box::new(task));
        }
        if self.snapshots.is_none() {
            // Only the leaves need the backfill now, and they let go of it.
            self.scans.values_mut().for_each(|(rows, _)| *rows = Arc::default());
        }
        Ok(())
    }

    /// Stops all tasks and lets go of what they watched.
    pub fn stop(&mut self, executor: &dyn Executor) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, slot) in self.tasks() {
            executor.remove(slot);
            self.ctx.board.unwatch(slot);
        }
        for (store, id) in self.watches.drain(..) {
            store.unwatch(id);
        }
        self.scans.clear();
        self.written = None;
        self.sink = None;
    }

    fn outputs(&self, id: TaskId) -> impl Iterator<Item = &Arc<Channel>> {
        let of_fragment = self.channels.get(id.fragment as usize).into_iter().flatten();
        of_fragment.filter_map(move |o| o.get(id.index as usize)).flatten()
    }

    /// A task lost its memory: its output logs are gone.
    pub fn lose(&self, id: TaskId) {
        self.outputs(id).for_each(|c| c.lose_log());
    }

    /// Newest epoch that a task has closed towards each of its consumers.
    pub fn sent(&self, id: TaskId) -> Vec<Option<Epoch>> {
        self.outputs(id).map(|c| c.newest()).collect()
    }

    /// Epoch that no task goes back behind: the oldest of the current snapshots.
    pub fn settled(&self) -> Epoch {
        let Some(store) = &self.snapshots else { return 0 };
        self.tasks().map(|(id, _)| store.current(id)).min().unwrap_or(0)
    }

    /// Most epochs that any log, record or comparison of this job holds.
    pub fn retained(&self) -> usize {
        let channels = self.channels.iter().flatten().flatten().flatten().map(|c| c.retained());
        let groups = self.groups.values().map(|g| g.kept());
        let sink = self.sink.iter().map(|s| s.kept());
        channels.chain(groups).chain(sink).max().unwrap_or(0)
    }

    /// Cuts the logs of all producers at their consumers' current snapshots, and lets go of
    /// whatever else only a task that goes back further would need.
    pub fn trim(&mut self) {
        let Some(store) = self.snapshots.clone() else { return };
        for ((fragment, _), group) in &self.groups {
            group.trim(self.slots[*fragment].iter().map(|s| store.current(s.id)).min().unwrap_or(0));
        }
        for ((fragment, leaf), (rows, reader)) in &mut self.scans {
            let mut backfilled = usize::MAX;
            for (task, slot) in self.slots[*fragment].iter().enumerate() {
                let mut done = 0;
                if let Some((epoch, leaves)) = store.current_leaves(slot.id)
                    && let Some(LeafState::Scan(state)) = leaves.get(*leaf)
                {
                    reader.release(task, state.unneeded(epoch));
                    done = state.backfilled();
                }
                backfilled = backfilled.min(done);
            }
            if backfilled >= rows.len() {
                *rows = Arc::default();
            }
        }
        for id in self.terminals() {
            let current = store.current(id);
            if let Some(w) = &self.written {
                w.release(id.index as usize, current);
            }
            if let Some(s) = &self.sink {
                s.trim(current);
            }
        }
        for f in &self.graph.fragments {
            for (o, producers) in f.to.iter().zip(&self.channels[f.id]) {
                for producer in producers {
                    for (channel, consumer) in producer.iter().zip(&self.slots[o.consumer]) {
                        channel.trim(store.current(consumer.id));
                    }
                }
            }
        }
    }

    /// Makes one task, at its start or after the last snapshot of `chain`.
    pub fn make(&mut self, id: TaskId, chain: &[TaskSnapshot]) -> Result<Task> {
        let fragment = self
            .graph
            .fragments
            .get(id.fragment as usize)
            .cloned()
            .ok_or_else(|| SpateError::internal("no such fragment"))?;
        let start = chain.last().map_or(self.ctx.start, |s| s.epoch + 1);
        let mut builder =
            Builder { job: self, fragment: &fragment, id, ops: Vec::new(), leaves: Vec::new(), remote: 0 };
        builder.node(&fragment.root, None, None)?;
        let (mut ops, mut leaves) = (builder.ops, builder.leaves);
        // Built consumers first; run producers first.
        let n = ops.len();
        ops.reverse();
        let renumber = |p: Option<(usize, usize)>| p.map(|(op, port)| (n - 1 - op, port));
        ops.iter_mut().for_each(|o: &mut OpNode| o.parent = renumber(o.parent));
        leaves.iter_mut().for_each(|l: &mut LeafNode| l.parent = renumber(l.parent));
        let index = id.index as usize;
        let router = |(o, producers): (&FragmentOutput, &Vec<Vec<Arc<Channel>>>)| {
            let senders = producers[index].iter().map(|c| Sender::new(c.clone(), start)).collect();
            Router::new(o.exchange.to.clone(), senders, index)
        };
        let outputs = fragment.to.iter().zip(&self.channels[fragment.id]).map(router).collect();
        let parts = TaskParts {
            id,
            ops,
            leaves,
            outputs,
            start: self.ctx.start,
            await_record: has_sink(&fragment.root),
            memory: self.ctx.memory.clone(),
            events: self.ctx.events.clone(),
            board: self.ctx.board.clone(),
            clock: self.ctx.clock.clone(),
            snapshots: match &self.snapshots {
                Some(s) => Some(s.clone()),
                None => self.ctx.checkpoints.clone(),
            },
            hand_over: self.ctx.hand_over,
            stop: self.stop.clone(),
            restore_stores: self.snapshots.is_none() && self.ctx.checkpoints.is_some(),
        };
        Task::new(parts, chain)
    }
}

struct Builder<'a> {
    job: &'a mut JobTasks,
    fragment: &'a Fragment,
    id: TaskId,
    ops: Vec<OpNode>,
    leaves: Vec<LeafNode>,
    remote: usize,
}

impl Builder<'_> {
    fn node(&mut self, node: &StreamNode, parent: Option<(usize, usize)>, wanted: Option<&ExprRef>) -> Result<()> {
        if let OpSpec::Values(_) = node.op {
            let at = self.op(node, parent, 1)?;
            let leaf = Leaf::Ticks(self.job.ctx.board.clone());
            self.leaves.push(LeafNode { leaf, parent: Some((at, 0)) });
            return Ok(());
        }
        if let Some(leaf) = self.leaf(node, wanted)? {
            self.leaves.push(LeafNode { leaf, parent });
            return Ok(());
        }
        let at = self.op(node, parent, node.inputs.len())?;
        let wanted = match &node.op {
            OpSpec::Filter(f) => Some(&f.predicate),
            _ => None,
        };
        for (port, input) in node.inputs.iter().enumerate() {
            self.node(input, Some((at, port)), wanted)?;
        }
        Ok(())
    }

    fn op(&mut self, node: &StreamNode, parent: Option<(usize, usize)>, ports: usize) -> Result<usize> {
        let op = self.operator(node)?;
        let tables = Tables::new(&op.tables())?;
        self.ops.push(OpNode { name: node.op.name(), op, tables, parent, ports });
        Ok(self.ops.len() - 1)
    }

    /// `wanted`: the filter right above.
    fn leaf(&mut self, node: &StreamNode, wanted: Option<&ExprRef>) -> Result<Option<Leaf>> {
        let index = self.leaves.len();
        let key = (self.fragment.id, index);
        let ctx = &self.job.ctx;
        Ok(Some(match &node.op {
            OpSpec::Source(spec) => {
                let connector = ctx.sources.get(&spec.id).cloned();
                let connector =
                    connector.ok_or_else(|| SpateError::internal(format!("no connector for {}", spec.name)))?;
                let group = self.job.groups.get(&key).cloned();
                let metrics = self.job.metrics.entry((self.id, index)).or_default().clone();
                let ctx = &self.job.ctx;
                let on_error = if ctx.strict.contains(&spec.id) { OnError::Fail } else { OnError::Continue };
                let context = SourceContext {
                    on_error,
                    task: self.id,
                    leaf: index,
                    connector,
                    group: group.ok_or_else(|| SpateError::internal("a source without a group"))?,
                    board: ctx.board.clone(),
                    events: ctx.events.clone(),
                    metrics,
                    clock: ctx.clock.clone(),
                    spill: ctx.snapshot_every.is_none().then(|| ctx.spill.clone()),
                    start: ctx.start,
                    epoch_rows: self.job.limits.source_rows,
                    wanted: wanted.cloned(),
                };
                Leaf::Source(Box::new(SourceLeaf::new(context, spec.clone(), self.fragment.parallelism)))
            }
            OpSpec::Scan(spec) => {
                let (backfill, reader) =
                    self.job.scans.get(&key).cloned().ok_or_else(|| SpateError::internal("a scan without a reader"))?;
                let metrics = Arc::new(LeafMetrics::default());
                Leaf::Scan(ScanLeaf::new(
                    spec.clone(),
                    self.id,
                    self.fragment.parallelism,
                    node.props.append_only,
                    backfill,
                    reader,
                    ctx.events.clone(),
                    metrics,
                    ctx.start,
                    self.job.limits.catch_up_rows,
                    self.job.snapshots.is_some(),
                )?)
            }
            OpSpec::Exchange(_) => {
                let (consumer, input) = (self.fragment.id, self.remote);
                self.remote += 1;
                let producer = self.fragment.inputs.get(input).and_then(|p| self.job.graph.fragments.get(*p));
                let output = producer
                    .and_then(|p| Some((p, p.to.iter().position(|o| o.consumer == consumer && o.input == input)?)));
                let (producer, output) = output.ok_or_else(|| SpateError::internal("an exchange that nobody feeds"))?;
                let channels = &self.job.channels[producer.id][output];
                let me = self.id.index as usize;
                let receivers = channels.iter().filter_map(|c| c.get(me)).map(|c| Receiver::new(c.clone())).collect();
                Leaf::Remote(RemoteLeaf::new(receivers, node.schema.clone()))
            }
            _ => return Ok(None),
        }))
    }

    /// The operators of a recursive term.
    fn step(&mut self, node: &StreamNode, parent: Option<(usize, usize)>, step: &mut Step) -> Result<()> {
        if let OpSpec::StepInput(input) = node.op {
            step.leaves.push(StepLeaf { input, parent });
            return Ok(());
        }
        let op = self.operator(node)?;
        step.ops.push(StepOp { op, parent });
        let at = step.ops.len() - 1;
        for (port, input) in node.inputs.iter().enumerate() {
            self.step(input, Some((at, port)), step)?;
        }
        Ok(())
    }

    fn operator(&mut self, node: &StreamNode) -> Result<Box<dyn Operator>> {
        let input = |i: usize| -> Result<SchemaRef> {
            node.inputs
                .get(i)
                .map(|n| n.schema.clone())
                .ok_or_else(|| SpateError::internal(format!("{} lacks input {i}", node.op.name())))
        };
        let out = node.schema.clone();
        Ok(match &node.op {
            OpSpec::Values(s) => Box::new(operator::values::Values::new(s.clone())),
            OpSpec::Filter(s) => Box::new(operator::filter::Filter::new(s.clone())),
            OpSpec::Temporal(s) => Box::new(operator::temporal::Temporal::new(s.clone(), out)?),
            OpSpec::Project(s) => Box::new(operator::project::Project::new(s.clone(), out)?),
            OpSpec::Unnest(s) => Box::new(operator::unnest::Unnest::new(s.clone(), out)),
            OpSpec::Repeat(s) => Box::new(operator::repeat::Repeat::new(s.clone(), out)),
            OpSpec::Expand(s) => Box::new(operator::expand::Expand::new(s.clone(), out)),
            OpSpec::Aggregate(s) => {
                let mut op = operator::aggregate::HashAggregate::new(s.clone(), &input(0)?, out)?;
                // Input that is spread by some of the group columns has its vnodes from those.
                if let Some(Distribution::Hash(keys)) = node.inputs.first().map(|n| &n.props.distribution) {
                    let at = |k: &usize| s.group.iter().position(|g| g == k);
                    if let Some(keys) = keys.iter().map(at).collect::<Option<Vec<usize>>>() {
                        op = op.with_distribution(keys);
                    }
                }
                op.keep_always(self.id.index as usize, self.fragment.parallelism)?;
                Box::new(op)
            }
            OpSpec::Session(s) => Box::new(operator::session::SessionWindows::new(s.clone(), &input(0)?, out)?),
            OpSpec::Join(s) if s.kind.keeps_left() => {
                Box::new(operator::semi_join::SemiJoin::new(s, input(0)?, input(1)?, out)?)
            }
            OpSpec::Join(s) => Box::new(operator::join::HashJoin::new(s, input(0)?, input(1)?, out)?),
            OpSpec::AsOf(s) => Box::new(operator::asof::AsOf::new(s.clone(), input(0)?, input(1)?, out)?),
            OpSpec::Lookup(s) => Box::new(operator::lookup::Lookup::new(s.clone(), input(0)?, input(1)?, out)?),
            OpSpec::Union => Box::new(operator::union::Union::new(out)),
            OpSpec::Distinct => {
                let append_only = node.inputs.first().is_some_and(|n| n.props.append_only);
                Box::new(operator::distinct::Distinct::new(out, append_only)?)
            }
            OpSpec::Net => Box::new(operator::net::Net::new(out)?),
            OpSpec::Upsert(s) => Box::new(operator::upsert::Upsert::new(s.clone(), out)?),
            OpSpec::TopN(s) => Box::new(operator::topn::TopN::new(s.clone(), out)?),
            OpSpec::Recursive(s) => {
                let inputs = node.inputs.iter().map(|n| n.schema.clone()).collect::<Vec<_>>();
                let mut step = Step { ops: Vec::new(), leaves: Vec::new() };
                self.step(&s.step, None, &mut step)?;
                // Built consumers first; run producers first.
                let n = step.ops.len();
                step.ops.reverse();
                let renumber = |p: Option<(usize, usize)>| p.map(|(op, port)| (n - 1 - op, port));
                step.ops.iter_mut().for_each(|o| o.parent = renumber(o.parent));
                step.leaves.iter_mut().for_each(|l| l.parent = renumber(l.parent));
                Box::new(Recursive::new(step, s.distinct, s.monotone, &inputs, out)?)
            }
            OpSpec::GroupTopN(s) => Box::new(operator::group_topn::GroupTopN::new(s.clone(), input(0)?, out)?),
            OpSpec::Over(s) => Box::new(operator::over::Over::new(s.clone(), input(0)?, out)?),
            OpSpec::Close(s) => {
                let spread = match &node.props.distribution {
                    Distribution::Hash(columns) => columns.clone(),
                    _ => Vec::new(),
                };
                Box::new(operator::close::Close::new(s.clone(), spread, out)?)
            }
            OpSpec::Materialize(s) => {
                let store = self.job.ctx.target.clone();
                let store = store.ok_or_else(|| SpateError::internal(format!("no store for {}", s.name)))?;
                Box::new(operator::materialize::Materialize::new(store, self.id.index as usize))
            }
            OpSpec::Sink(s) => {
                let target = self.job.sink.clone();
                let target = target.ok_or_else(|| SpateError::internal(format!("sink {} has no writer", s.name)))?;
                let all = |has: fn(&Properties) -> bool| node.inputs.iter().all(|n| has(&n.props));
                let append_only = all(|p| p.append_only);
                Box::new(operator::sink::Sink::new(target, append_only, all(|p| p.stream_key.is_some())))
            }
            OpSpec::Source(_) | OpSpec::Scan(_) | OpSpec::Exchange(_) | OpSpec::StepInput(_) => {
                return Err(SpateError::internal(format!("{} is a leaf", node.op.name())));
            }
        })
    }
}

fn leaves_of<'a>(node: &'a StreamNode, out: &mut Vec<&'a StreamNode>) {
    if node.inputs.is_empty() {
        out.push(node);
    }
    for i in &node.inputs {
        leaves_of(i, out);
    }
}

fn has_sink(node: &StreamNode) -> bool {
    matches!(node.op, OpSpec::Sink(_)) || node.inputs.iter().any(has_sink)
}
