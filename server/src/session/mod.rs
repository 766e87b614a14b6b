//! Sessions: one statement in, one outcome out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use spate_engine::types::{Result, SpateError};

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
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            epoch_interval: Duration::from_millis(100),
            base_dir: None,
            record_sources: false,
        }
    }
}

/// An engine in this process.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// Starts the worker threads.
    pub fn open(_config: EngineConfig) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {}))
    }

    /// A new session.
    pub fn session(self: &Arc<Self>) -> Session {
        Session { _engine: self.clone() }
    }

    /// Waits until all input so far is in all views, then recomputes every materialized view in
    /// batch with DataFusion and compares. Returns the number of views checked; the error shows
    /// the difference.
    pub async fn verify_views(&self) -> Result<usize> {
        Err(SpateError::unsupported("not yet"))
    }

    /// What running jobs have done, for progress bars.
    pub fn progress(&self) -> Progress {
        Progress::default()
    }

    /// Stops all jobs and threads.
    pub fn shutdown(&self) {}
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

/// A session: settings, and statements in order.
#[derive(Debug)]
pub struct Session {
    _engine: Arc<Engine>,
}

/// Cancels the statement that a session is running.
#[derive(Debug, Clone, Default)]
pub struct CancelHandle {}

impl CancelHandle {
    /// Cancels; the statement returns an error of kind `Cancelled`.
    pub fn cancel(&self) {}
}

/// Rows of a query or subscription.
pub struct RowStream {
    /// Shape of the rows. A subscription's last columns are `__weight` (Int64) and `__epoch` (UInt64).
    pub schema: SchemaRef,
    /// The rows.
    pub stream: BoxStream<'static, Result<RecordBatch>>,
    /// Whether it goes on until cancelled (a subscription).
    pub endless: bool,
}

/// What a statement gave.
pub enum Outcome {
    /// Rows (SELECT, EXPLAIN, SHOW, SUBSCRIBE, RETURNING …).
    Rows(RowStream),
    /// A command tag in PostgreSQL's form, such as `INSERT 0 3` or `CREATE TABLE`.
    Done(String),
}

impl Session {
    /// Splits a text into its statements, each with its byte range. A syntax error is an error
    /// with its position in the whole text.
    pub fn split(_sql: &str) -> Result<Vec<std::ops::Range<usize>>> {
        Ok(vec![])
    }

    /// Runs one statement. Positions in errors count within `sql`.
    pub async fn execute(&mut self, _sql: &str) -> Result<Outcome> {
        Err(SpateError::unsupported("not yet"))
    }

    /// Cancels the running statement from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle {}
    }

    /// Value of a session variable (`SHOW name`).
    pub fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    /// Names for completion: keywords, relations, columns, functions.
    pub fn completions(&self) -> Vec<String> {
        vec![]
    }
}
