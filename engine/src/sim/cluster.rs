//! Runs a job on the simulated executor: ticks come at random moments, tasks die at random steps
//! with all their memory, several at once too, and come back from snapshots, upstream logs and
//! epoch records. The records of a run can be run again without deaths; then every epoch must
//! put out the very same rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::record::{EpochOutput, History, MemorySink, Recorder, Written};
use super::source::{SimRows, SimSource};
use super::{SimClock, SimExecutor};
use crate::checkpoint::CHAIN;
use crate::connector::SourceConnector;
use crate::env::{Clock, MemoryStorage};
use crate::exchange::{HandOver, Spill};
use crate::plan::fragment::FragmentGraph;
use crate::plan::{ObjectId, OpSpec};
use crate::state::view::{ViewReader, ViewStore};
use crate::task::driver::MemoryAccount;
use crate::task::ticks::MAX_IN_FLIGHT;
use crate::task::{Executor, JobContext, JobTasks, Limits, TaskId, TickBoard, build_job};
use crate::types::{Barrier, Delta, Epoch, Result, SpateError, Tick, WATERMARK_MIN};

/// Rounds after which a run counts as stuck.
const MAX_ROUNDS: u64 = 100_000;

/// A table or view that the job scans, and what happens to it.
#[derive(Debug, Clone)]
pub struct Script {
    /// Columns.
    pub schema: SchemaRef,
    /// Whether rows are only added.
    pub append_only: bool,
    /// Changes by epoch (the first is that of epoch 1) and partition. Later epochs change nothing.
    pub changes: Vec<Vec<Vec<Delta>>>,
    /// Number of partitions.
    pub partitions: usize,
}

impl Script {
    fn at(&self, epoch: Epoch, partition: usize) -> Vec<Delta> {
        let of_epoch = usize::try_from(epoch).ok().and_then(|e| self.changes.get(e.checked_sub(1)?));
        of_epoch.and_then(|p| p.get(partition)).cloned().unwrap_or_default()
    }
}

/// What is run.
#[derive(Clone)]
pub struct Setup {
    /// The plan.
    pub graph: FragmentGraph,
    /// Sources.
    pub sources: BTreeMap<ObjectId, SimRows>,
    /// Tables and views.
    pub scripts: BTreeMap<ObjectId, Script>,
    /// The job's first epoch; what scripts do before is backfilled.
    pub start: Epoch,
    /// The run does not end before this epoch.
    pub last: Epoch,
    /// How much goes into an epoch.
    pub limits: Limits,
    /// Memory of the exchanges; beyond it they spill.
    pub spill: usize,
}

/// What goes wrong.
#[derive(Debug, Clone)]
pub struct Faults {
    /// Epochs between the snapshots of a task, by fragment and task.
    pub every: BTreeMap<(u32, u32), u64>,
    /// One in so many rounds kills somebody; 0 for nobody.
    pub kill_one_in: u64,
    /// No more deaths than this.
    pub most: u64,
    /// Rebuilds all tasks from their snapshots whenever nothing is in flight (one in so many times; 0
    /// for never). Takes snapshots of all tasks in every epoch.
    pub rebuild_one_in: u64,
}

/// What happened.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Epoch records.
    pub history: History,
    /// Output by epoch.
    pub output: Vec<EpochOutput>,
    /// Tasks that died.
    pub deaths: u64,
    /// Deaths after an epoch was closed towards some consumers and not towards others.
    pub torn: u64,
    /// Source leaves that closed an epoch again.
    pub replayed: u64,
    /// Late rows.
    pub late: u64,
    /// Rows accepted, again after deaths too.
    pub accepted: u64,
    /// Steps.
    pub steps: u64,
}

struct Cluster<'a> {
    setup: &'a Setup,
    executor: SimExecutor,
    clock: Arc<SimClock>,
    board: Arc<TickBoard>,
    recorder: Arc<Recorder>,
    job: JobTasks,
    stores: BTreeMap<ObjectId, Arc<ViewStore>>,
    /// Changes of scanned stores that are due: ticks by store and partition.
    due: Vec<(ObjectId, usize, Tick)>,
    last: Tick,
    visible: Epoch,
    /// Dead tasks, with the rounds until they come back.
    dead: BTreeMap<TaskId, u64>,
    /// Most epochs that a log may hold.
    bound: usize,
    deaths: u64,
    torn: u64,
}

fn first_tick() -> Tick {
    Tick { incarnation: 1, term: 1, epoch: 0, opened_us: 946_684_799_999_999, now_us: 946_684_800_000_000 }
}

/// Runs `setup` with `faults` (without: no snapshots at all); `repeat` gives the records of a run
/// to be run again.
pub fn run(setup: &Setup, seed: u64, faults: Option<&Faults>, repeat: Option<&History>) -> Result<Outcome> {
    let executor = SimExecutor::new(seed);
    let clock = executor.clock();
    clock.set_look(Duration::from_micros([300, 700, 1500, 4000][executor.random(4) as usize]));
    let board = Arc::new(TickBoard::keeping_all());
    let recorder = Recorder::new(repeat.cloned());
    let spill = Spill::new(setup.spill, Arc::new(MemoryStorage));
    let mut last = first_tick();
    let mut stores = BTreeMap::new();
    for (id, s) in &setup.scripts {
        let store = ViewStore::new(s.schema.clone(), None, s.append_only, s.partitions, 0, spill.clone())?;
        stores.insert(*id, store);
    }
    for epoch in 1..setup.start {
        last = Tick { epoch, opened_us: last.now_us, now_us: last.now_us + 1, ..last };
        for (id, s) in &setup.scripts {
            for p in 0..s.partitions {
                stores[id].apply(p, &barrier(last), s.at(epoch, p))?;
            }
        }
        board.post(last);
    }
    let connector = |(i, (id, rows)): (usize, (&ObjectId, &SimRows))| {
        let source = SimSource::new(rows.clone(), seed ^ (i as u64 + 1), repeat.is_some());
        (*id, Arc::new(source) as Arc<dyn SourceConnector>)
    };
    let root = setup.graph.fragments.last().ok_or_else(|| SpateError::internal("an empty plan"))?;
    let written = Written::default();
    let (target, sink) = match root.root.op {
        OpSpec::Sink(_) => (None, Some(Box::new(MemorySink(written.clone())) as _)),
        _ => {
            let (schema, append_only) = (root.root.schema.clone(), root.root.props.append_only);
            let before = setup.start - 1;
            (Some(ViewStore::new(schema, None, append_only, root.parallelism, before, spill.clone())?), None)
        }
    };
    let output = target.as_ref().map(|t| t.reader(1, setup.start));
    let every = faults.map(|f| {
        let every = if f.rebuild_one_in > 0 { BTreeMap::new() } else { f.every.clone() };
        Arc::new(move |id: TaskId| every.get(&(id.fragment, id.index)).copied().unwrap_or(1)) as _
    });
    let context = JobContext {
        job: 1,
        start: setup.start,
        strict: BTreeSet::new(),
        sources: setup.sources.iter().enumerate().map(connector).collect(),
        stores: stores.clone(),
        target,
        sink,
        board: board.clone(),
        events: recorder.clone(),
        clock: clock.clone(),
        spill,
        memory: MemoryAccount::new(usize::MAX),
        hand_over: HandOver::WholeEpoch,
        snapshot_every: every,
        checkpoints: None,
        resume: None,
    };
    let mut job = build_job(setup.graph.clone(), context, &executor)?;
    job.set_limits(setup.limits);
    job.start(&executor)?;
    let slowest: u64 = faults.map_or(0, |f| f.every.values().sum());
    let mut cluster = Cluster {
        setup,
        executor,
        clock,
        board,
        recorder,
        job,
        stores,
        due: Vec::new(),
        last,
        visible: setup.start - 1,
        dead: BTreeMap::new(),
        bound: (MAX_IN_FLIGHT + slowest + setup.start) as usize + 2,
        deaths: 0,
        torn: 0,
    };
    cluster.drive(faults, repeat)?;
    cluster.outcome(output, &written)
}

fn barrier(tick: Tick) -> Barrier {
    Barrier { tick, ranges: Arc::new([]), watermark: WATERMARK_MIN, complete: true }
}

impl Cluster<'_> {
    fn one_in(&self, n: u64) -> bool {
        n > 0 && self.executor.random(n) == 0
    }

    fn drive(&mut self, faults: Option<&Faults>, repeat: Option<&History>) -> Result<()> {
        let mut idle = false;
        for _ in 0..MAX_ROUNDS {
            self.apply_inputs(idle)?;
            if self.is_finished(idle, repeat) {
                return Ok(());
            }
            self.tick(idle, repeat);
            if let Some(f) = faults {
                self.harm(f, idle)?;
                if self.one_in(8) {
                    self.trim()?;
                }
            }
            idle = !self.executor.step();
            self.note_progress();
            if let Some(e) = self.recorder.failure() {
                return Err(self.error(&e));
            }
            if idle && self.is_stuck(repeat) {
                return Err(self.error("nothing moves any more"));
            }
        }
        Err(self.error("there is no end"))
    }

    fn error(&self, what: &str) -> SpateError {
        SpateError::internal(format!(
            "{what} (step {}, tick {}, visible {}, {} deaths, dead now: {:?})",
            self.executor.steps(),
            self.last.epoch,
            self.visible,
            self.deaths,
            self.dead.keys().collect::<Vec<_>>()
        ))
    }

    fn in_flight(&self) -> u64 {
        self.last.epoch - self.visible
    }

    fn is_stuck(&self, repeat: Option<&History>) -> bool {
        let may_tick = self.in_flight() < MAX_IN_FLIGHT
            && match repeat {
                Some(h) => self.next_of(h).is_some(),
                None => self.recorder.wanted().is_some() || self.last.epoch < self.setup.last,
            };
        !may_tick && self.dead.is_empty() && self.due.is_empty() && self.in_flight() > 0
    }

    fn is_finished(&self, idle: bool, repeat: Option<&History>) -> bool {
        if self.in_flight() > 0 || !self.dead.is_empty() || !self.due.is_empty() {
            return false;
        }
        if let Some(h) = repeat {
            return self.next_of(h).is_none();
        }
        let watching = self.setup.sources.values().any(|s| s.watch);
        self.recorder.wanted().is_none() && self.last.epoch >= self.setup.last && (idle || watching) && self.is_read()
    }

    /// Whether all sources have been read to their ends.
    fn is_read(&self) -> bool {
        self.job.ticked().into_iter().all(|(task, leaf)| {
            let read = self.recorder.consumed(task.fragment, leaf);
            self.source_of(task.fragment, leaf).is_some_and(|s| s.total() == read)
        })
    }

    fn source_of(&self, fragment: u32, leaf: usize) -> Option<&SimRows> {
        let mut at = leaf;
        let node = nth_leaf(&self.job.graph().fragments.get(fragment as usize)?.root, &mut at)?;
        match &node.op {
            OpSpec::Source(s) => self.setup.sources.get(&s.id),
            _ => None,
        }
    }

    fn next_of(&self, history: &History) -> Option<Tick> {
        history.ticks.iter().find(|t| t.epoch == self.last.epoch + 1).copied()
    }

    /// Ticks by the coordinator's rules: at most so many epochs in flight, soon after one is wanted.
    fn tick(&mut self, idle: bool, repeat: Option<&History>) {
        if self.in_flight() >= MAX_IN_FLIGHT {
            return;
        }
        let tick = match repeat {
            Some(h) => match self.next_of(h) {
                Some(t) if idle || self.one_in(20) => t,
                _ => return,
            },
            None => {
                let go = match self.recorder.wanted() {
                    Some(true) => idle || self.one_in(4),
                    Some(false) => idle || self.one_in(30),
                    None => self.last.epoch < self.setup.last && (idle || self.one_in(100)),
                };
                if !go {
                    return;
                }
                let now_us = self.clock.now_us().max(self.last.now_us + 1);
                Tick { epoch: self.last.epoch + 1, opened_us: self.last.now_us, now_us, ..self.last }
            }
        };
        self.last = tick;
        for (id, s) in &self.setup.scripts {
            self.due.extend((0..s.partitions).map(|p| (*id, p, tick)));
        }
        self.recorder.ticked(tick);
        self.board.post(tick);
    }

    /// Whoever keeps the scanned stores closes their epochs, in order, some time after the tick.
    fn apply_inputs(&mut self, idle: bool) -> Result<()> {
        while !self.due.is_empty() && (idle || self.one_in(6)) {
            let (id, p, tick) = self.due[self.executor.random(self.due.len() as u64) as usize];
            let first = self.due.iter().position(|(i, q, _)| *i == id && *q == p);
            let Some((_, _, tick)) = first.map(|i| self.due.remove(i)) else {
                return Err(self.error(&format!("{tick:?}")));
            };
            if let (Some(store), Some(script)) = (self.stores.get(&id), self.setup.scripts.get(&id)) {
                store.apply(p, &barrier(tick), script.at(tick.epoch, p))?;
                store.set_visible(tick.epoch.saturating_sub(MAX_IN_FLIGHT));
            }
        }
        Ok(())
    }

    fn note_progress(&mut self) {
        let before = self.setup.start - 1;
        let recorded = self.recorder.closed_by(&self.job.ticked(), before, self.last.epoch).min(self.last.epoch);
        if recorded > self.board.recorded() {
            self.board.set_recorded(recorded);
        }
        let done = self.recorder.done_by(&self.job.terminals(), before);
        self.visible = self.visible.max(done.min(recorded));
    }

    /// Lets go of what no task needs, and looks whether that is enough.
    fn trim(&mut self) -> Result<()> {
        self.job.trim();
        self.board.trim(self.job.settled());
        let most = self.job.retained().max(self.board.kept());
        if most > self.bound {
            return Err(self.error(&format!("a log holds {most} epochs, more than {}", self.bound)));
        }
        if let Some(store) = self.job.snapshots()
            && let Some((id, n)) = self.job.tasks().map(|(id, _)| (id, store.kept(id))).max_by_key(|x| x.1)
            && n > 2 * CHAIN + self.bound
        {
            return Err(self.error(&format!("{id} has {n} snapshots")));
        }
        Ok(())
    }

    fn harm(&mut self, faults: &Faults, idle: bool) -> Result<()> {
        let all: Vec<TaskId> = self.job.tasks().map(|(id, _)| id).collect();
        if faults.rebuild_one_in > 0 {
            let ended = self.last.epoch >= self.setup.start
                && self.recorder.done_by(&all, self.setup.start - 1) == self.last.epoch;
            if ended
                && self.in_flight() == 0
                && self.deaths < faults.most * all.len() as u64
                && self.one_in(faults.rebuild_one_in)
            {
                if self.job.settled() != self.last.epoch {
                    return Err(self.error("not every task has a current snapshot of the last epoch"));
                }
                all.iter().for_each(|id| self.kill(*id));
                return all.iter().try_for_each(|id| self.revive(*id));
            }
            return Ok(());
        }
        if self.deaths < faults.most && self.one_in(faults.kill_one_in) {
            let pick = || all[self.executor.random(all.len() as u64) as usize];
            let victims = match self.executor.random(10) {
                0 => all.clone(),
                1 => vec![pick(), pick()],
                2 => vec![pick(), pick(), pick()],
                _ => vec![pick()],
            };
            for id in victims {
                if !self.dead.contains_key(&id) {
                    self.kill(id);
                    let rounds = if self.one_in(3) { 0 } else { self.executor.random(80) };
                    self.dead.insert(id, rounds);
                }
            }
        }
        let back: Vec<TaskId> = self.dead.iter().filter(|(_, n)| **n == 0 || idle).map(|(id, _)| *id).collect();
        self.dead.values_mut().for_each(|n| *n = n.saturating_sub(1));
        for id in back {
            self.dead.remove(&id);
            self.revive(id)?;
        }
        Ok(())
    }

    fn kill(&mut self, id: TaskId) {
        let sent = self.job.sent(id);
        self.torn += u64::from(sent.iter().any(|e| *e != sent[0]));
        if let Some((_, slot)) = self.job.tasks().find(|(t, _)| *t == id) {
            self.executor.remove(slot);
        }
        self.job.lose(id);
        self.deaths += 1;
    }

    fn revive(&mut self, id: TaskId) -> Result<()> {
        let chain = self.job.snapshots().map_or_else(Vec::new, |s| s.recover(id));
        let task = self.job.make(id, &chain)?;
        if let Some((_, slot)) = self.job.tasks().find(|(t, _)| *t == id) {
            self.executor.spawn(slot, Box::new(task));
        }
        Ok(())
    }

    fn outcome(mut self, output: Option<ViewReader>, written: &Written) -> Result<Outcome> {
        self.job.stop(&self.executor);
        let output = match output {
            Some(r) => {
                (self.setup.start..=self.visible).map(|e| EpochOutput::read(&r, e)).collect::<Result<Vec<_>>>()?
            }
            None => written.lock().iter().map(|(e, d)| EpochOutput::written(*e, d)).collect::<Result<Vec<_>>>()?,
        };
        let (late, accepted, replayed) = self.recorder.counts();
        Ok(Outcome {
            history: self.recorder.history(),
            output,
            deaths: self.deaths,
            torn: self.torn,
            replayed,
            late,
            accepted,
            steps: self.executor.steps(),
        })
    }
}

fn nth_leaf<'a>(node: &'a crate::plan::StreamNode, n: &mut usize) -> Option<&'a crate::plan::StreamNode> {
    if node.inputs.is_empty() {
        if *n == 0 {
            return Some(node);
        }
        *n -= 1;
        return None;
    }
    node.inputs.iter().find_map(|i| nth_leaf(i, n))
}
