//! Sessions: one statement in, one outcome out.

mod ddl;
mod describe;
mod dml;
pub mod engine;
mod explain;
pub mod resolver;
mod restore;
mod select;
mod show;
mod subscribe;
mod variables;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use futures::StreamExt;
use futures::stream::BoxStream;
use spate_engine::types::{Epoch, ErrorKind, Result, SpateError};
use spate_planner::catalog::ObjectKind;
use spate_planner::sql::{self, Statement, parameters};
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub use describe::Description;
pub use dml::ingest::{Exists, Ingest, Missing};
pub use engine::{Engine, EngineConfig, Progress, SinkObserver};
pub use subscribe::{Delivered, MAX_BEHIND};
use variables::Variables;

/// Cancels the statement that a session is running.
#[derive(Debug, Clone, Default)]
pub struct CancelHandle {
    notify: Arc<Notify>,
}

impl CancelHandle {
    /// Cancels; the statement returns an error of kind `Cancelled`. Without a running statement
    /// nothing happens.
    pub fn cancel(&self) {
        self.notify.notify_waiters();
    }

    /// Comes back when it is cancelled from now on.
    pub async fn cancelled(&self) {
        self.notify.notified().await;
    }

    /// The stream, until it is cancelled.
    pub fn guard(self, stream: BoxStream<'static, Result<RecordBatch>>) -> BoxStream<'static, Result<RecordBatch>> {
        stop_on(self, stream)
    }
}

fn cancelled() -> SpateError {
    SpateError::new(ErrorKind::Cancelled, "cancelled on user's request")
}

fn panicked(message: &(dyn std::any::Any + Send)) -> SpateError {
    let text = message.downcast_ref::<&str>().copied().or_else(|| message.downcast_ref::<String>().map(String::as_str));
    SpateError::internal(format!("the statement panicked: {}", text.unwrap_or("no message")))
}

/// Ends a statement that was cancelled while it was planned. To be awaited between planning and
/// the first effect, else a statement takes effect of which the user has heard that it was cancelled.
pub(crate) async fn still_wanted() {
    tokio::task::yield_now().await;
}

/// Rows of a query or subscription.
pub struct RowStream {
    /// Shape of the rows. A subscription's last columns are `__weight` (Int64) and `__epoch` (UInt64).
    pub schema: SchemaRef,
    /// The rows.
    pub stream: BoxStream<'static, Result<RecordBatch>>,
    /// Whether it goes on until cancelled, or until its input has ended (a subscription).
    pub endless: bool,
    /// How far a subscription has come; `None` for rows of anything else.
    pub delivered: Option<Arc<Delivered>>,
}

impl RowStream {
    /// Rows that are there already.
    pub(crate) fn of(batch: RecordBatch) -> Self {
        Self::of_all(vec![batch])
    }

    /// Batches that are there already, of one schema.
    pub(crate) fn of_all(batches: Vec<RecordBatch>) -> Self {
        let schema = batches.first().map_or_else(|| Arc::new(arrow::datatypes::Schema::empty()), RecordBatch::schema);
        Self {
            schema,
            stream: futures::stream::iter(batches.into_iter().map(Ok)).boxed(),
            endless: false,
            delivered: None,
        }
    }
}

/// What a statement gave.
pub enum Outcome {
    /// Rows (SELECT, EXPLAIN, SHOW, SUBSCRIBE …).
    Rows(RowStream),
    /// A command tag in PostgreSQL's form, such as `INSERT 0 3` or `CREATE TABLE`.
    Done(String),
}

/// How long a cancelled statement is waited for.
const TAKE_BACK: Duration = Duration::from_secs(1);

/// A session: settings, and statements in order.
#[derive(Debug)]
pub struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) variables: Variables,
    /// What this session wrote is in this epoch or an earlier one.
    pub(crate) written: Epoch,
    cancel: CancelHandle,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let variables = Variables::new(&engine);
        Self { engine, variables, written: 0, cancel: CancelHandle::default() }
    }

    /// Splits a text into its statements, each with its byte range. A syntax error is an error
    /// with its position in the whole text.
    pub fn split(text: &str) -> Result<Vec<Range<usize>>> {
        sql::split(text)
    }

    /// Whether a text ends in a complete statement (for prompts that span lines).
    pub fn is_complete(text: &str) -> bool {
        sql::is_complete(text)
    }

    /// Cancels the running statement from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Value of a session variable (`SHOW name`).
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables.show(&self.engine, name).ok()
    }

    /// Names and values of all session variables.
    ///
    /// # Errors
    /// When a value cannot be told.
    pub fn all_variables(&self) -> Result<Vec<(&'static str, String)>> {
        variables::VARIABLES.iter().map(|(name, _)| Ok((*name, self.variables.show(&self.engine, name)?))).collect()
    }

    /// `SET name = value`; without a value, `RESET name`.
    ///
    /// # Errors
    /// When there is no such variable, or it does not take the value.
    pub fn set_variable(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        match value {
            Some(value) => self.variables.set(&self.engine, name, value),
            None => self.variables.reset(&self.engine, Some(name)),
        }
    }

    /// Names for completion: relations, columns, functions.
    pub fn completions(&self) -> Vec<String> {
        let catalog = self.engine.catalog.lock();
        let mut names: Vec<String> = Vec::new();
        for o in catalog.list(None, None) {
            names.push(o.display_name());
            if let Some(r) = &o.relation {
                names.extend(r.schema.fields().iter().map(|f| f.name().clone()));
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// Runs one statement. Positions in errors count within `text`. Dropped or cancelled, it ends
    /// where it next waits, and at [`still_wanted`].
    pub async fn execute(&mut self, text: &str) -> Result<Outcome> {
        self.execute_with(text, &[]).await
    }

    /// As [`Session::execute`], with values for the parameters `$1`, `$2`, …
    pub async fn execute_with(&mut self, text: &str, values: &[ScalarValue]) -> Result<Outcome> {
        let mut parsed = sql::parse_one(text)?;
        parameters::bind(&mut parsed.statement, values)?;
        let cancel = self.cancel.clone();
        // A task of its own: planning does not yield, and whoever waits here must not wait for it.
        // A set ends its tasks when it is dropped.
        let mut running = JoinSet::new();
        let mut session = Self {
            engine: self.engine.clone(),
            variables: self.variables.clone(),
            written: self.written,
            cancel: cancel.clone(),
        };
        running.spawn(async move {
            let outcome = session.run(parsed.statement, &parsed.text).await;
            (session, outcome)
        });
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                running.abort_all();
                // What it had begun is mostly taken back at once.
                let _ = tokio::time::timeout(TAKE_BACK, running.join_next()).await;
                return Err(cancelled());
            }
            ended = running.join_next() => ended,
        };
        let outcome = match ended {
            Some(Ok((session, outcome))) => {
                *self = session;
                outcome
            }
            Some(Err(e)) if e.is_panic() => Err(panicked(e.into_panic().as_ref())),
            _ => Err(cancelled()),
        };
        let outcome = outcome.map_err(|e| match (e.position(), sql::place_of(text, &e)) {
            (None, Some((line, column))) => e.at(line, column),
            _ => e,
        })?;
        Ok(match outcome {
            Outcome::Rows(rows) => Outcome::Rows(RowStream { stream: stop_on(cancel, rows.stream), ..rows }),
            done => done,
        })
    }

    /// Runs one statement on this thread.
    pub(crate) async fn execute_here(&mut self, text: &str) -> Result<Outcome> {
        let parsed = sql::parse_one(text)?;
        self.run(parsed.statement, &parsed.text).await
    }

    async fn run(&mut self, statement: Statement, text: &str) -> Result<Outcome> {
        let before = self.written;
        let defines = statement.defines();
        let outcome = self.run_one(statement, text).await?;
        if defines {
            self.store_catalog()?;
        }
        if self.written > before && self.engine.restoring.lock().is_none() {
            // Acknowledged once it cannot be lost.
            self.engine.wait_recorded(self.written).await?;
        }
        Ok(outcome)
    }

    async fn run_one(&mut self, statement: Statement, text: &str) -> Result<Outcome> {
        let tag = statement.verb().to_owned();
        match statement {
            Statement::CreateTable(c) => self.create_table(c, text).await?,
            Statement::CreateView(c) => self.create_view(c, text).await?,
            Statement::CreateMaterializedView(c) => self.create_materialized_view(c, text).await?,
            Statement::CreateSink(c) => self.create_sink(c, text).await?,
            Statement::CreateFunction(c) => self.create_function(c, text).await?,
            Statement::CreateIndex(c) => self.create_index(c).await?,
            Statement::CreateSchema { name, if_not_exists } => {
                self.engine.catalog.lock().create_schema(&name, if_not_exists)?;
            }
            Statement::Alter(a) => self.alter(a).await?,
            Statement::Comment(c) => self.comment(c).await?,
            Statement::Drop(d) => self.drop_objects(&d).await?,
            Statement::CreateTableAs(c) => return self.create_table_as(c).await.map(Outcome::Done),
            Statement::Insert(i) => return Ok(self.insert(i).await?.outcome("INSERT 0")),
            Statement::Update(u) => return Ok(self.update(u).await?.outcome("UPDATE")),
            Statement::Delete(d) => return Ok(self.delete(d).await?.outcome("DELETE")),
            Statement::Truncate(names) => self.truncate(&names).await?,
            Statement::Copy(c) => return Ok(self.copy(c).await?.outcome("COPY")),
            Statement::Flush => self.flush().await?,
            Statement::Query(q) => return self.select(&q).await.map(Outcome::Rows),
            Statement::Subscribe(s) => return self.subscribe(s).await.map(Outcome::Rows),
            Statement::Explain(e) => return self.explain(e).await.map(Outcome::Rows),
            Statement::ShowObjects { kind, schema } => return self.show_objects(kind, schema.as_deref()),
            Statement::ShowCreate { kind, name } => return self.show_create(kind, &name),
            Statement::Describe(name) => return self.describe(&name),
            Statement::ShowVariable(name) => return self.show_variable(&name),
            Statement::ShowAll => return self.show_all(),
            Statement::Set { name, value } => self.variables.set(&self.engine, &name, &value)?,
            Statement::Reset(name) => self.variables.reset(&self.engine, name.as_deref())?,
            Statement::CancelJob(job) => self.cancel_job(&job).await?,
        }
        Ok(Outcome::Done(tag))
    }

    /// `FLUSH`: all that was written, by anyone, is in all views and sinks. A sink that has stopped
    /// will never have it: an error, since nothing else would tell.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        let epoch = self.engine.worker.request_tick();
        self.engine.wait_visible(epoch).await?;
        let sinks =
            self.engine.catalog.lock().list(Some(ObjectKind::Sink), None).into_iter().cloned().collect::<Vec<_>>();
        for sink in sinks {
            let error = self.engine.worker.job(sink.id).and_then(|j| j.error);
            if let Some(e) = error.filter(|e| e.kind() != ErrorKind::Cancelled) {
                return Err(e
                    .context(format!("sink \"{}\" has stopped", sink.display_name()))
                    .with_hint("DROP it, mend the cause, and create it again"));
            }
        }
        Ok(())
    }
}

fn stop_on(
    cancel: CancelHandle,
    stream: BoxStream<'static, Result<RecordBatch>>,
) -> BoxStream<'static, Result<RecordBatch>> {
    futures::stream::unfold((stream, cancel, false), |(mut stream, cancel, over)| async move {
        if over {
            return None;
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => Some((Err(cancelled()), (stream, cancel, true))),
            next = stream.next() => next.map(|r| { let end = r.is_err(); (r, (stream, cancel, end)) }),
        }
    })
    .boxed()
}
