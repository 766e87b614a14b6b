//! The embedded engine: catalog, worker and batch side under one roof.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use spate_engine::connector::{OnError, SinkWriter, SourceConnector};
use spate_engine::env::{Clock, SystemClock, SystemStorage};
use spate_engine::exchange::HandOver;
use spate_engine::plan::ObjectId;
use spate_engine::state::view::ViewReader;
use spate_engine::task::Pool;
use spate_engine::types::{Delta, Epoch, Result, SpateError, WATERMARK_MAX, WATERMARK_MIN};
use spate_planner::catalog::Catalog;

use super::Session;
use crate::batch::Batch;
use crate::coordinator::EpochTimes;
use crate::durable::Durable;
use crate::worker::Worker;

/// How an embedded engine is set up.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Worker threads, and the default parallelism of queries; at least 1.
    pub threads: usize,
    /// Longest time between two ticks while there is input.
    pub epoch_interval: Duration,
    /// Directory that relative file names start from; `None` is the working directory.
    pub base_dir: Option<PathBuf>,
    /// Keep what sources delivered, so that [`Engine::verify_views`] can recompute views over
    /// connectors too. For tests: it holds all input in memory.
    pub record_sources: bool,
    /// Bytes that operator state may take in all; at the limit the query that grows stops.
    pub memory_limit: usize,
    /// Bytes that sorts, joins and aggregates of all running SELECTs and DML statements may take together; some of
    /// them go on with files of the system's temporary directory then, others stop with an error.
    pub query_memory_limit: usize,
    /// Bytes that exchanges and change logs hold in memory; beyond it they spill to disk.
    pub exchange_limit: usize,
    /// How exchanges hand over; anything but the default is for measuring only.
    pub hand_over: HandOver,
    /// Sees what sinks are given; for measuring only.
    pub sink_observer: Option<SinkObserver>,
    /// How long a subscription that has ended can be gone on with (`AS OF EPOCH`). More than zero needs
    /// somebody who calls [`Engine::sweep`].
    pub subscribe_retention: Duration,
    /// Directory that data and running queries are kept in, to go on from when it is opened again; `None` keeps
    /// them in memory.
    pub data_dir: Option<PathBuf>,
    /// Time between checkpoints, if there is a data directory and input.
    pub checkpoint_interval: Duration,
}

/// Called with what a sink is given for an epoch, before the sink is. Must be quick.
pub type Observe = dyn Fn(Epoch, &[Delta]) + Send + Sync;

/// Sees what sinks are given.
#[derive(Clone)]
pub struct SinkObserver(pub Arc<Observe>);

impl std::fmt::Debug for SinkObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SinkObserver")
    }
}

/// A sink that is observed.
pub(crate) struct Observed {
    pub(crate) writer: Box<dyn SinkWriter>,
    pub(crate) observer: SinkObserver,
}

impl SinkWriter for Observed {
    fn write_epoch(&mut self, epoch: Epoch, deltas: &[Delta]) -> Result<()> {
        (self.observer.0)(epoch, deltas);
        self.writer.write_epoch(epoch, deltas)
    }

    fn finish(&mut self) -> Result<()> {
        self.writer.finish()
    }

    fn last_epoch(&self) -> Result<Option<Epoch>> {
        self.writer.last_epoch()
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        // 8 GiB are assumed where it is not known.
        let memory = spate_engine::env::memory_bytes().unwrap_or(8 << 30);
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        Self {
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            epoch_interval: Duration::from_millis(100),
            base_dir: None,
            record_sources: false,
            memory_limit: memory / 2,
            query_memory_limit: memory / 4,
            exchange_limit: 512 << 20,
            hand_over: HandOver::WholeEpoch,
            sink_observer: None,
            subscribe_retention: Duration::ZERO,
            data_dir: None,
            checkpoint_interval: Duration::from_secs(1),
        }
    }
}

/// Ended subscriptions whose changes are kept, at most.
const RETAINED: usize = 256;

/// An engine in this process.
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) worker: Arc<Worker>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) batch: Batch,
    pub(crate) catalog: Mutex<Catalog>,
    pub(crate) connectors: Mutex<BTreeMap<ObjectId, Arc<dyn SourceConnector>>>,
    /// One DDL statement at a time.
    pub(crate) ddl: tokio::sync::Mutex<()>,
    /// One DML statement per table at a time.
    pub(crate) writers: Mutex<BTreeMap<ObjectId, Arc<tokio::sync::Mutex<()>>>>,
    /// Readers of subscriptions that have ended, and when: they keep the changes for those who go on.
    retained: Mutex<VecDeque<(Duration, ViewReader)>>,
    /// Relative paths start here.
    pub(crate) base_dir: PathBuf,
    /// The object that is being made again from the data directory.
    pub(crate) restoring: Mutex<Option<Restoring>>,
}

/// What an object was that is being made again.
#[derive(Debug, Clone)]
pub(crate) struct Restoring {
    pub(crate) id: ObjectId,
    pub(crate) start: Epoch,
    /// Columns that were inferred.
    pub(crate) columns: Option<SchemaRef>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What running jobs have done since the engine started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Rows that sources delivered.
    pub rows: u64,
    /// Work done and whole, in units of the sources, where all of them know it.
    pub done_of: Option<(u64, u64)>,
    /// The newest epoch that readers can see.
    pub epoch: u64,
    /// Least watermark of the sources that have one, in microseconds.
    pub watermark: Option<i64>,
}

impl Engine {
    /// Starts the worker threads.
    pub fn open(config: EngineConfig) -> Result<Arc<Self>> {
        Self::open_with_clock(config, Arc::new(SystemClock::new()))
    }

    /// Starts the worker threads, on this clock.
    pub fn open_with_clock(config: EngineConfig, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        let threads = config.threads.max(1);
        let pool = Arc::new(Pool::new(threads, clock.clone())?);
        let durable = config.data_dir.as_deref().map(Durable::open).transpose()?;
        let worker = Worker::new(
            pool,
            clock.clone(),
            Arc::new(SystemStorage),
            config.epoch_interval,
            config.exchange_limit,
            config.memory_limit,
            config.record_sources,
            durable,
        );
        let base_dir = match &config.base_dir {
            Some(d) => d.clone(),
            None => std::env::current_dir()?,
        };
        let engine = Arc::new(Self {
            batch: Batch::new(threads, config.query_memory_limit)?,
            worker,
            clock,
            catalog: Mutex::default(),
            connectors: Mutex::default(),
            ddl: tokio::sync::Mutex::new(()),
            writers: Mutex::default(),
            retained: Mutex::default(),
            base_dir,
            config,
            restoring: Mutex::default(),
        });
        super::restore::restore(&engine)?;
        Ok(engine)
    }

    /// Bytes that the operators of all continuous queries keep, and the rows of views; those of tables are not
    /// among them.
    pub fn state_bytes(&self) -> usize {
        self.worker.memory.used()
    }

    /// Keeps what a subscription has not yet told, for a while.
    pub(crate) fn retain(&self, reader: ViewReader) {
        if self.config.subscribe_retention.is_zero() {
            return;
        }
        let mut retained = self.retained.lock();
        if retained.len() == RETAINED {
            retained.pop_front();
        }
        retained.push_back((self.clock.monotonic(), reader));
    }

    /// Lets go of what was kept for subscribers that have not come back in time.
    pub fn sweep(&self) {
        let Some(since) = self.clock.monotonic().checked_sub(self.config.subscribe_retention) else { return };
        let mut retained = self.retained.lock();
        while retained.front().is_some_and(|(ended, _)| *ended < since) {
            retained.pop_front();
        }
    }

    /// A new session.
    pub fn session(self: &Arc<Self>) -> Session {
        Session::new(self.clone())
    }

    /// What running jobs have done, for progress bars.
    pub fn progress(&self) -> Progress {
        let mut p = Progress { epoch: self.worker.visible(), ..Progress::default() };
        let mut all_known = true;
        let mut sum = (0, 0);
        for (status, leaves) in self.worker.jobs() {
            for m in leaves {
                p.rows += m.rows.load(Ordering::Relaxed);
                if status.ended || status.error.is_some() {
                    continue;
                }
                let total = m.total.load(Ordering::Relaxed);
                let done = m.done.load(Ordering::Relaxed);
                all_known &= total > 0;
                sum = (sum.0 + done, sum.1 + total);
                let w = m.watermark.load(Ordering::Relaxed);
                if w != WATERMARK_MIN && w != WATERMARK_MAX {
                    p.watermark = Some(p.watermark.map_or(w, |x: i64| x.min(w)));
                }
            }
        }
        p.done_of = (all_known && sum.1 > 0).then_some(sum);
        p
    }

    /// How long epochs took, from the tick that closed one until its results could be read.
    pub fn epoch_times(&self) -> EpochTimes {
        self.worker.epoch_times()
    }

    /// Waits until what was written up to `epoch` is on disk, if the engine keeps anything there.
    pub(crate) async fn wait_recorded(&self, epoch: Epoch) -> Result<()> {
        match self.worker.durable {
            Some(_) => self.wait_until(|| Ok(self.worker.is_recorded(epoch).then_some(()))).await,
            None => Ok(()),
        }
    }

    /// Stops all jobs and threads.
    pub fn shutdown(&self) {
        self.retained.lock().clear();
        self.worker.shutdown();
    }

    /// What a record that cannot be decoded does to the readers of a source.
    pub(crate) fn source_on_error(&self, source: ObjectId) -> Result<OnError> {
        self.catalog.lock().get(source).map_or(Ok(OnError::default()), |o| OnError::of(&o.options))
    }

    pub(crate) fn writer(&self, table: ObjectId) -> Arc<tokio::sync::Mutex<()>> {
        self.writers.lock().entry(table).or_default().clone()
    }

    /// Waits until readers can see `epoch`.
    pub(crate) async fn wait_visible(&self, epoch: Epoch) -> Result<()> {
        self.wait_until(|| Ok((self.worker.visible() >= epoch).then_some(()))).await
    }

    /// Waits until `ready` gives something.
    pub(crate) async fn wait_until<T>(&self, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let mut changes = self.worker.watch();
        loop {
            changes.borrow_and_update();
            if let Some(t) = ready()? {
                return Ok(t);
            }
            if changes.changed().await.is_err() {
                return Err(SpateError::internal("the engine has stopped"));
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown();
    }
}
