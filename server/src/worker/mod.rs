//! The worker: the threads that run tasks, the jobs they belong to, and the wiring between tasks
//! and the coordinator.
//!
//! Lock order: `jobs` before `coordinator`; task threads take only `coordinator` and the log's
//! locks, for moments. Nothing waits for a task while it holds a lock.

pub mod logs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use spate_engine::connector::DeadLetter;
use spate_engine::env::{Clock, Storage};
use spate_engine::exchange::Spill;
use spate_engine::plan::ObjectId;
use spate_engine::state::view::ViewStore;
use spate_engine::task::driver::MemoryAccount;
use spate_engine::task::metrics::LeafMetrics;
use spate_engine::task::{Events, Executor, JobTasks, Runnable, Step, TaskId, TickBoard, Waker};
use spate_engine::types::{Epoch, Result, SpateError, SplitRange, Tick, Watermark};
use tokio::sync::watch;

use crate::coordinator::{Action, Coordinator, EpochTimes, JobTracking, Now};
use crate::durable::Durable;
use crate::durable::checkpointer::Part;
pub use logs::{Logs, RecordedRows};

/// What the session sees of a job.
#[derive(Debug, Clone)]
pub struct JobStatus {
    /// Its number.
    pub id: u64,
    /// Name of the view or sink.
    pub name: String,
    /// Why it stopped, if it did.
    pub error: Option<SpateError>,
    /// Epoch from which on its result is complete; `None` while it catches up.
    pub ready: Option<Epoch>,
    /// All input has ended.
    pub ended: bool,
}

struct Job {
    status: JobStatus,
    tasks: Option<JobTasks>,
    metrics: Vec<Arc<LeafMetrics>>,
    waiting: BTreeSet<TaskId>,
    /// Tasks that end the job and have not seen the end of all input.
    unfinished: BTreeSet<TaskId>,
    caught_up: Epoch,
    reads: Vec<ObjectId>,
    keeps: Option<ObjectId>,
    start: Epoch,
}

/// A store and, of a table that DML writes, its watermark.
type Store = (Arc<ViewStore>, Option<Arc<TableClose>>);

/// Runs jobs.
pub struct Worker {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) board: Arc<TickBoard>,
    /// Budget of the exchanges; sources wait while it is crowded.
    pub(crate) spill: Arc<Spill>,
    /// Budget of the stores' change logs: apart, since logs stay where exchanges drain.
    pub(crate) log_spill: Arc<Spill>,
    pub(crate) memory: Arc<MemoryAccount>,
    /// What went wrong, for the system tables.
    pub logs: Logs,
    /// What survives the process, if anything does.
    pub(crate) durable: Option<Arc<Durable>>,
    coordinator: Mutex<Coordinator>,
    /// When the newest epochs were opened.
    opened: Mutex<BTreeMap<Epoch, i64>>,
    jobs: Mutex<BTreeMap<u64, Job>>,
    /// Stores of all tables and views; those that DML writes are closed at every tick.
    stores: Mutex<BTreeMap<ObjectId, Store>>,
    failed: Mutex<Vec<(u64, SpateError)>>,
    timer: Mutex<TimerState>,
    /// Rises with everything that somebody may wait for.
    changes: watch::Sender<u64>,
    closing: Mutex<()>,
}

#[derive(Default)]
struct TimerState {
    slot: u64,
    waker: Option<Waker>,
    at: Option<Duration>,
}

/// What a table that DML writes knows of its watermark.
#[derive(Debug)]
pub struct TableClose {
    /// Watermark at the end of the last closed epoch, and of the open one.
    pub watermark: Mutex<(Watermark, Watermark)>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Worker")
    }
}

impl Worker {
    /// A worker on this executor.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        executor: Arc<dyn Executor>,
        clock: Arc<dyn Clock>,
        storage: Arc<dyn Storage>,
        interval: Duration,
        spill_limit: usize,
        memory_limit: usize,
        record_sources: bool,
        durable: Option<Arc<Durable>>,
    ) -> Arc<Self> {
        let (changes, _) = watch::channel(0);
        let worker = Arc::new(Self {
            executor: executor.clone(),
            clock,
            board: Arc::new(TickBoard::default()),
            spill: Spill::new(spill_limit, storage.clone()),
            log_spill: Spill::new(spill_limit, storage),
            memory: MemoryAccount::new(memory_limit),
            logs: Logs::new(record_sources),
            durable,
            coordinator: Mutex::new(Coordinator::new(interval)),
            opened: Mutex::default(),
            jobs: Mutex::default(),
            stores: Mutex::default(),
            failed: Mutex::default(),
            timer: Mutex::default(),
            changes,
            closing: Mutex::new(()),
        });
        let (slot, waker) = executor.reserve();
        *worker.timer.lock() = TimerState { slot, waker: Some(waker), at: None };
        executor.spawn(slot, Box::new(Timer(Arc::downgrade(&worker))));
        worker
    }

    fn now(&self) -> Now {
        Now { wall_us: self.clock.now_us(), mono: self.clock.monotonic() }
    }

    fn drive(&self, f: impl FnOnce(&mut Coordinator, Now) -> Vec<Action>) {
        let mut visible = false;
        {
            let mut coordinator = self.coordinator.lock();
            let actions = f(&mut coordinator, self.now());
            for a in actions {
                match a {
                    Action::Tick(tick) => self.tick(tick),
                    Action::Record(epoch) => match &self.durable {
                        Some(d) => d.record(epoch),
                        None => self.board.set_recorded(epoch),
                    },
                    Action::Checkpoint(tick) => {
                        if let Some(d) = &self.durable {
                            d.checkpoints.begin(tick);
                        }
                    }
                    Action::Visible(epoch) => {
                        for (store, _) in self.stores.lock().values() {
                            store.set_visible(epoch);
                        }
                        if let Some(d) = &self.durable {
                            d.replayed(epoch);
                        }
                        visible = true;
                    }
                    Action::WakeAt(at) => {
                        let mut timer = self.timer.lock();
                        timer.at = Some(timer.at.map_or(at, |t| t.min(at)));
                        if let Some(w) = &timer.waker {
                            w.wake();
                        }
                    }
                }
            }
        }
        if visible {
            self.changed();
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|v| *v += 1);
    }

    /// Closes an epoch: tables first, then everyone who waits for ticks.
    fn tick(&self, tick: Tick) {
        for (id, (store, table)) in self.stores.lock().iter() {
            if let Some(t) = table
                && let Err(e) = self.close_table(*id, store, t, tick)
            {
                // Closing fails only when spilling does; the table's readers stop with it.
                tracing::error!("cannot close epoch {} of a table: {e}", tick.epoch);
            }
        }
        if let Some(d) = &self.durable {
            d.ticked(tick);
        }
        let mut opened = self.opened.lock();
        opened.insert(tick.epoch, tick.opened_us);
        while opened.len() > OPENED_KEPT {
            opened.pop_first();
        }
        drop(opened);
        self.board.post(tick);
    }

    fn close_table(&self, id: ObjectId, store: &ViewStore, table: &TableClose, tick: Tick) -> Result<()> {
        let mut marks = table.watermark.lock();
        let Some(d) = &self.durable else {
            marks.0 = marks.1;
            return store.close(tick, marks.0, None).map(drop);
        };
        if let Some(again) = d.written(id, tick.epoch) {
            marks.1 = again.watermark;
            again.deltas.into_iter().try_for_each(|delta| store.write(delta))?;
        }
        marks.0 = marks.1;
        let (deltas, segment) = store.close(tick, marks.0, d.checkpoints.wants(id, tick.epoch))?;
        d.wrote(id, tick, marks.0, deltas);
        if let Some(segment) = segment {
            d.checkpoints.add_table(id, tick.epoch, segment, marks.0);
        }
        Ok(())
    }

    /// Goes on where a durable engine stopped. Before anything else, with ticks held back.
    pub(crate) fn resume_from(self: &Arc<Self>, checkpoint_every: Duration) -> Result<()> {
        let Some(d) = &self.durable else { return Ok(()) };
        let (last, replay) = (d.checkpoint_tick(), d.ticks());
        self.coordinator.lock().resume_from(last, replay, checkpoint_every);
        if let Some(tick) = last {
            // The epochs that follow join on to it.
            self.board.post(tick);
        }
        self.board.set_recorded(d.last_found());
        let worker = Arc::downgrade(self);
        d.checkpoints.start(Box::new(move |_| {
            if let Some(w) = worker.upgrade() {
                w.coordinator.lock().checkpointed();
                w.changed();
            }
        }))?;
        let worker = Arc::downgrade(self);
        d.start(Box::new(move |epoch| {
            if let Some(w) = worker.upgrade() {
                w.board.set_recorded(epoch);
                w.drive(|c, now| c.recorded(epoch, now));
                w.changed();
            }
        }))
    }

    /// Ticks with a checkpoint while ticks are held back. Gives its epoch.
    pub(crate) fn checkpoint_now(&self) -> Epoch {
        let mut epoch = 0;
        self.drive(|c, now| {
            let actions = c.checkpoint_now(now);
            epoch = c.last();
            actions
        });
        epoch
    }

    /// Whether epochs are still being repeated.
    pub(crate) fn is_replaying(&self) -> bool {
        self.coordinator.lock().is_replaying()
    }

    /// Whether a checkpoint is being taken.
    pub(crate) fn checkpoint_runs(&self) -> bool {
        self.coordinator.lock().checkpoint_runs()
    }

    /// Whether the records of all epochs up to this one are durable.
    pub(crate) fn is_recorded(&self, epoch: Epoch) -> bool {
        self.board.recorded() >= epoch
    }

    /// How long epochs took.
    pub fn epoch_times(&self) -> EpochTimes {
        self.coordinator.lock().times().clone()
    }

    /// What `now()` is in an epoch, if it is not long gone.
    pub fn opened_us(&self, epoch: Epoch) -> Option<i64> {
        self.opened.lock().get(&epoch).copied()
    }

    /// Newest epoch that readers may see.
    pub fn visible(&self) -> Epoch {
        self.coordinator.lock().visible()
    }

    /// Sees every change of visible epochs and job states.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Asks for a tick at once; what was written before is in the returned epoch or an earlier one.
    pub fn request_tick(&self) -> Epoch {
        let mut epoch = 0;
        self.drive(|c, now| {
            let before = c.last();
            let actions = c.want(true, now);
            // If the tick was issued it closed what was written; else a later one will.
            epoch = if c.last() > before { c.last() } else { before + 1 };
            actions
        });
        epoch
    }

    /// Longest time between ticks.
    pub fn interval(&self) -> Duration {
        self.coordinator.lock().interval()
    }

    /// Sets the longest time between ticks.
    pub fn set_interval(&self, interval: Duration) {
        self.coordinator.lock().set_interval(interval);
    }

    /// Holds ticks back; [`Worker::is_drained`] then comes true.
    pub fn pause(&self) {
        self.coordinator.lock().pause();
    }

    /// Lets ticks go on.
    pub fn resume(&self) {
        self.drive(Coordinator::resume);
    }

    /// Whether nothing is in flight.
    pub fn is_drained(&self) -> bool {
        self.coordinator.lock().is_drained()
    }

    /// Whether nothing is in flight, nothing is wanted, and no table has unclosed writes.
    pub fn is_quiet(&self) -> bool {
        self.coordinator.lock().is_quiet() && !self.stores.lock().values().any(|(s, t)| t.is_some() && s.has_open())
    }

    /// Epoch of the newest tick.
    pub fn last(&self) -> Epoch {
        self.coordinator.lock().last()
    }

    /// Registers a store; `table` if DML writes it.
    pub fn add_store(&self, id: ObjectId, store: Arc<ViewStore>, table: Option<Arc<TableClose>>) {
        if let (Some(d), Some(_)) = (&self.durable, &table) {
            d.checkpoints.join(id, [Part::Table(id)]);
        }
        self.stores.lock().insert(id, (store, table));
    }

    /// Forgets a store.
    pub fn remove_store(&self, id: ObjectId) {
        let gone = self.stores.lock().remove(&id);
        if let (Some(d), Some((_, Some(_)))) = (&self.durable, gone) {
            d.checkpoints.leave(id);
        }
        // Whoever follows it waits for what will not come.
        self.changed();
    }

    /// The store of a table or view.
    pub fn store(&self, id: ObjectId) -> Option<Arc<ViewStore>> {
        self.stores.lock().get(&id).map(|(s, _)| s.clone())
    }

    /// The watermark record of a table that DML writes.
    pub fn table_close(&self, id: ObjectId) -> Option<Arc<TableClose>> {
        self.stores.lock().get(&id).and_then(|(_, t)| t.clone())
    }

    /// Makes and starts a job's tasks. No tick may come between building it and this: the caller
    /// has paused ticks and waited for what was in flight.
    pub fn start_job(
        &self,
        name: String,
        mut tasks: JobTasks,
        start: Epoch,
        reads: Vec<ObjectId>,
        keeps: Option<ObjectId>,
    ) -> Result<()> {
        let id = tasks.job();
        let ticked = tasks.ticked().into_iter().collect();
        let terminals = tasks.terminals().into_iter().collect();
        let waiting = tasks.inputs().into_iter().collect();
        let unfinished = tasks.terminals().into_iter().collect();
        let status = JobStatus { id, name, error: None, ready: None, ended: false };
        let job =
            Job { status, tasks: None, metrics: Vec::new(), waiting, unfinished, caught_up: 0, reads, keeps, start };
        self.jobs.lock().insert(id, job);
        self.coordinator.lock().add_job(id, JobTracking { start, ticked, terminals });
        if let Some(d) = self.durable.as_ref().filter(|_| tasks.has_checkpoints()) {
            d.checkpoints.join(id, tasks.tasks().map(|(task, _)| task.into()));
        }
        let started = tasks.start(self.executor.as_ref());
        let metrics = tasks.metrics();
        if let Err(e) = started {
            tasks.stop(self.executor.as_ref());
            self.jobs.lock().remove(&id);
            self.drop_job(id);
            return Err(e);
        }
        let mut stillborn = None;
        if let Some(job) = self.jobs.lock().get_mut(&id) {
            job.metrics = metrics;
            // It may have failed in its first steps already.
            match &job.status.error {
                None => job.tasks = Some(tasks),
                Some(_) => stillborn = Some(tasks),
            }
        }
        if let Some(mut tasks) = stillborn {
            tasks.stop(self.executor.as_ref());
        }
        Ok(())
    }

    /// A job that could not be started again.
    pub(crate) fn add_stopped(&self, id: u64, name: String, keeps: Option<ObjectId>, error: SpateError) {
        let status = JobStatus { id, name, error: Some(error), ready: None, ended: false };
        let job = Job {
            status,
            tasks: None,
            metrics: Vec::new(),
            waiting: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            caught_up: 0,
            reads: Vec::new(),
            keeps,
            start: 0,
        };
        self.jobs.lock().insert(id, job);
    }

    /// Stops a job's tasks and forgets it. Not to be called from a task.
    pub fn stop_job(&self, id: u64) {
        let job = self.jobs.lock().remove(&id);
        if let Some(mut tasks) = job.and_then(|j| j.tasks) {
            tasks.stop(self.executor.as_ref());
        }
        self.drop_job(id);
        self.logs.forget_job(id);
        self.changed();
    }

    /// Neither epochs nor checkpoints wait for a job any more.
    fn drop_job(&self, id: u64) {
        if let Some(d) = &self.durable {
            d.checkpoints.leave(id);
        }
        self.drive(|c, now| c.remove_job(id, now));
    }

    /// Status of a job.
    pub fn job(&self, id: u64) -> Option<JobStatus> {
        self.jobs.lock().get(&id).map(|j| j.status.clone())
    }

    /// The first epoch of a job.
    pub(crate) fn job_start(&self, id: u64) -> Option<Epoch> {
        self.jobs.lock().get(&id).map(|j| j.start)
    }

    /// Gives a job the new name of its view or sink.
    pub fn rename_job(&self, id: u64, name: String) {
        if let Some(job) = self.jobs.lock().get_mut(&id) {
            job.status.name = name;
        }
    }

    /// The name of a job that reads `object` and has not caught up with it yet.
    pub fn catching_up(&self, object: ObjectId) -> Option<String> {
        let jobs = self.jobs.lock();
        let behind = |j: &&Job| j.reads.contains(&object) && j.status.error.is_none() && j.status.ready.is_none();
        jobs.values().find(behind).map(|j| j.status.name.clone())
    }

    /// Status of all jobs, and their counters.
    pub fn jobs(&self) -> Vec<(JobStatus, Vec<Arc<LeafMetrics>>)> {
        self.jobs.lock().values().map(|j| (j.status.clone(), j.metrics.clone())).collect()
    }

    /// The plan of a running job.
    pub fn with_tasks<T>(&self, id: u64, f: impl FnOnce(&JobTasks) -> T) -> Option<T> {
        self.jobs.lock().get(&id).and_then(|j| j.tasks.as_ref()).map(f)
    }

    /// Makes a job fail with this error: it stops, its result stays as it is.
    pub fn fail_job(&self, id: u64, error: SpateError) {
        self.failed.lock().push((id, error));
        if let Some(w) = &self.timer.lock().waker {
            w.wake();
        }
    }

    /// Files records that could not be decoded.
    pub fn file_dead_letters(&self, source: &Arc<str>, letters: Vec<DeadLetter>) {
        self.logs.dead_letters(source, letters, self.clock.now_us());
    }

    /// Stops what failed, and what depended on it. Runs on the timer, never inside a task's step.
    fn bury(&self) {
        let mut todo = std::mem::take(&mut *self.failed.lock());
        if todo.is_empty() {
            return;
        }
        let mut stopped = Vec::new();
        {
            // All at once, so that nobody sees a job go on whose input has failed.
            let mut jobs = self.jobs.lock();
            while let Some((id, error)) = todo.pop() {
                let Some(job) = jobs.get_mut(&id) else { continue };
                if job.status.error.is_none() {
                    job.status.error = Some(error.clone());
                    stopped.push((id, job.tasks.take()));
                }
                if let Some(kept) = job.keeps {
                    let name = job.status.name.clone();
                    for (other, j) in jobs.iter() {
                        if j.reads.contains(&kept) && j.status.error.is_none() {
                            let e = error.clone().context(format!("its input {name} has failed"));
                            todo.push((*other, e));
                        }
                    }
                }
            }
        }
        for (id, tasks) in stopped {
            if let Some(mut t) = tasks {
                t.stop(self.executor.as_ref());
            }
            self.drop_job(id);
        }
        self.changed();
    }

    /// Stops everything.
    pub fn shutdown(&self) {
        let _one = self.closing.lock();
        if let Some(d) = &self.durable {
            // First: that its jobs end now must not come into a checkpoint.
            d.close();
        }
        let ids: Vec<u64> = self.jobs.lock().keys().copied().collect();
        for id in ids {
            self.stop_job(id);
        }
        let slot = self.timer.lock().slot;
        self.executor.remove(slot);
        self.stores.lock().clear();
    }
}

/// Epochs whose time of opening is remembered.
const OPENED_KEPT: usize = 256;

struct Timer(Weak<Worker>);

impl Runnable for Timer {
    fn step(&mut self) -> Step {
        let Some(worker) = self.0.upgrade() else { return Step::Done };
        worker.bury();
        let now = worker.clock.monotonic();
        let due = {
            let mut timer = worker.timer.lock();
            let due = timer.at.is_some_and(|t| t <= now);
            if due {
                timer.at = None;
            }
            due
        };
        if due {
            worker.drive(Coordinator::timer);
        }
        let at = worker.timer.lock().at;
        match at {
            Some(t) => Step::WaitFor(t.saturating_sub(worker.clock.monotonic())),
            None => Step::Wait,
        }
    }

    fn panicked(&mut self, message: &str) {
        tracing::error!("the coordinator's timer panicked: {message}");
    }
}

impl Events for Worker {
    fn want_tick(&self, _: TaskId, now: bool) {
        self.drive(|c, t| c.want(now, t));
    }

    fn closed(&self, task: TaskId, leaf: usize, tick: Tick, ranges: &[SplitRange]) {
        if let Some(d) = &self.durable {
            d.closed(task, leaf, tick, ranges);
        }
        self.drive(|c, now| c.closed(task, leaf, tick.epoch, now));
    }

    fn replay(&self, task: TaskId, leaf: usize, epoch: Epoch) -> Option<Arc<[SplitRange]>> {
        self.durable.as_ref()?.ranges(task, leaf, epoch)
    }

    fn due(&self, task: TaskId, _: Epoch, at_us: Option<i64>) {
        self.drive(|c, now| c.timed(task, at_us, now));
    }

    fn completed(&self, task: TaskId, epoch: Epoch, _: Watermark) {
        self.drive(|c, now| c.completed(task, epoch, now));
    }

    fn dead_letters(&self, source: &Arc<str>, letters: Vec<DeadLetter>) {
        self.file_dead_letters(source, letters);
    }

    fn late(&self, source: &Arc<str>, epoch: Epoch, rows: RecordBatch) {
        self.logs.late(source, epoch, &rows);
    }

    fn accepted(&self, task: TaskId, leaf: usize, epoch: Epoch, rows: &RecordBatch) {
        self.logs.accepted(task, leaf, epoch, rows);
    }

    fn caught_up(&self, task: TaskId, epoch: Epoch, ended: bool) {
        let mut jobs = self.jobs.lock();
        let Some(job) = jobs.get_mut(&task.job) else { return };
        let before = (job.status.ready, job.status.ended);
        if job.waiting.remove(&task) {
            job.caught_up = job.caught_up.max(epoch);
            if job.waiting.is_empty() {
                job.status.ready = Some(job.caught_up);
            }
        }
        if ended {
            job.unfinished.remove(&task);
        }
        job.status.ended = job.unfinished.is_empty() && job.waiting.is_empty();
        let changed = before != (job.status.ready, job.status.ended);
        drop(jobs);
        if changed {
            self.changed();
        }
    }

    fn failed(&self, task: TaskId, epoch: Epoch, error: SpateError) {
        tracing::warn!("{task} failed in epoch {epoch}: {error}");
        self.fail_job(task.job, error);
    }
}
