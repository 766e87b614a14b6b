//! Statements: run in the client's session, told about, and their rows sent.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::sql::{ProstMessageExt, TicketStatementQuery};
use arrow_flight::{FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use datafusion::common::ScalarValue;
use futures::{Stream, StreamExt};
use prost::Message;
use spate_engine::types::{ErrorKind, Result, SpateError};
use tonic::Status;

use super::results::Running;
use super::sessions::ClientSession;
use super::{Counters, Shared, status, stops, subscription};
use crate::{Outcome, RowStream, Session};

/// What DoGet answers.
pub type DataStream = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

impl Shared {
    /// Notes an error, and turns it into a status.
    pub fn failed(&self, error: &SpateError) -> Status {
        self.counters.failed(error);
        status::of(error)
    }

    /// Runs something in a session, unless the server stops first.
    pub async fn in_session<T>(
        &self,
        session: &ClientSession,
        work: impl AsyncFnOnce(&mut Session) -> Result<T>,
    ) -> Result<T, Status> {
        let mut stopping = self.stopping.clone();
        if *stopping.borrow() {
            return Err(status::stopping());
        }
        Counters::add(&self.counters.statements, 1);
        let work = async {
            let mut session = session.session.lock().await;
            work(&mut session).await
        };
        tokio::select! {
            biased;
            () = stops(&mut stopping) => Err(status::stopping()),
            done = work => done.map_err(|e| self.failed(&e)),
        }
    }

    /// Runs one statement.
    pub async fn run(&self, session: &ClientSession, sql: &str, values: &[ScalarValue]) -> Result<Outcome, Status> {
        self.in_session(session, async |s| s.execute_with(sql, values).await).await
    }

    /// Runs one statement and gives the number of rows that it changed.
    pub async fn update(&self, session: &ClientSession, sql: &str, values: &[ScalarValue]) -> Result<i64, Status> {
        match self.run(session, sql, values).await? {
            Outcome::Done(tag) => Ok(changed(&tag).unwrap_or(0)),
            Outcome::Rows(rows) if rows.endless => Err(self.failed(
                &SpateError::invalid("SUBSCRIBE gives rows without end")
                    .with_hint("run it as a query, not as an update"),
            )),
            // What RETURNING says of the rows, each once.
            Outcome::Rows(mut rows) => {
                let mut n = 0;
                while let Some(batch) = rows.stream.next().await {
                    n += batch.map_err(|e| self.failed(&e))?.num_rows();
                }
                Ok(i64::try_from(n).unwrap_or(i64::MAX))
            }
        }
    }

    /// What a client is told of a statement that was run. Its rows wait under a ticket.
    pub fn info(&self, outcome: Outcome, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        let told = |info: FlightInfo, parts: serde_json::Value| info.with_app_metadata(parts.to_string());
        match outcome {
            Outcome::Done(tag) => {
                let info = with_schema(&Schema::empty())?
                    .with_descriptor(descriptor)
                    .with_total_records(changed(&tag).unwrap_or(-1));
                Ok(told(info, serde_json::json!({ "tag": tag })))
            }
            Outcome::Rows(rows) => {
                let parts = serde_json::json!({
                    "endless": rows.endless,
                    "of": rows.delivered.as_ref().and_then(|d| d.of),
                    "complete_epoch": rows.delivered.as_ref().and_then(|d| d.complete()),
                    "instance": self.instance,
                });
                let info = with_schema(&wire_schema(&rows.schema))?.with_descriptor(descriptor).with_total_records(-1);
                let handle = self.results.park(rows).map_err(|e| self.failed(&e))?;
                let ticket = TicketStatementQuery { statement_handle: handle.into() };
                let ticket = Ticket::new(ticket.as_any().encode_to_vec());
                Ok(told(info.with_endpoint(FlightEndpoint::new().with_ticket(ticket)), parts))
            }
        }
    }

    /// The rows of a ticket. `progress`: whether a subscription also tells of epochs without changes.
    pub fn fetch(self: &Arc<Self>, ticket: &TicketStatementQuery, progress: bool) -> Result<DataStream, Status> {
        self.fetch_handle(&String::from_utf8_lossy(&ticket.statement_handle), progress)
    }

    /// The rows of a statement that was run, at once.
    pub fn send(self: &Arc<Self>, outcome: Outcome, progress: bool) -> Result<DataStream, Status> {
        match outcome {
            Outcome::Done(_) => {
                let schema: SchemaRef = Arc::new(Schema::empty());
                Ok(encode(&schema, futures::stream::empty()))
            }
            Outcome::Rows(rows) => {
                let handle = self.results.park(rows).map_err(|e| self.failed(&e))?;
                self.fetch_handle(&handle, progress)
            }
        }
    }

    fn fetch_handle(self: &Arc<Self>, handle: &str, progress: bool) -> Result<DataStream, Status> {
        if *self.stopping.borrow() {
            return Err(status::stopping());
        }
        let (rows, running) = self.results.take(handle).map_err(|e| self.failed(&e))?;
        if rows.delivered.is_some() {
            return Ok(subscription::send(self.clone(), rows, running, progress));
        }
        let schema = rows.schema.clone();
        Ok(encode(&schema, self.clone().rows(rows, running)))
    }

    /// Rows as they come, until they end, are cancelled, or the server stops.
    fn rows(
        self: Arc<Self>,
        rows: RowStream,
        running: Running,
    ) -> impl Stream<Item = Result<RecordBatch, FlightError>> + Send + 'static {
        let RowStream { schema, stream, .. } = rows;
        let stopping = self.stopping.clone();
        let state = (self, stream, running, stopping, schema, false);
        futures::stream::unfold(state, |(shared, mut stream, mut running, mut stopping, schema, over)| async move {
            if over {
                return None;
            }
            let next = tokio::select! {
                biased;
                () = running.cancelled() => Some(Err(shared.failed(&cancelled()))),
                () = stops(&mut stopping) => Some(Err(status::stopping())),
                next = stream.next() => next.map(|b| b.and_then(|b| of_schema(&schema, b)).map_err(|e| shared.failed(&e))),
            };
            if let Some(Ok(batch)) = &next {
                Counters::add(&shared.counters.rows_sent, batch.num_rows() as u64);
            }
            let over = next.as_ref().is_none_or(Result::is_err);
            Some((next?.map_err(FlightError::from), (shared, stream, running, stopping, schema, over)))
        })
    }
}

/// The error of a result that was cancelled.
pub fn cancelled() -> SpateError {
    SpateError::new(ErrorKind::Cancelled, "cancelled on user's request")
}

/// The number in a command tag: 3 in `INSERT 0 3`, none in `CREATE TABLE`.
fn changed(tag: &str) -> Option<i64> {
    tag.rsplit(' ').next()?.parse().ok()
}

fn with_schema(schema: &Schema) -> Result<FlightInfo, Status> {
    FlightInfo::new().try_with_schema(schema).map_err(|e| status::of(&SpateError::from(e)))
}

/// A batch whose columns are what its reader was told.
pub fn of_schema(schema: &SchemaRef, batch: RecordBatch) -> Result<RecordBatch> {
    let own = batch.schema();
    if Arc::ptr_eq(&own, schema) {
        return Ok(batch);
    }
    let same = own.fields().len() == schema.fields().len()
        && own.fields().iter().zip(schema.fields()).all(|(a, b)| a.data_type() == b.data_type());
    if same { Ok(batch) } else { Err(SpateError::internal("rows are not of the columns that were told")) }
}

/// The schema as it is sent: without dictionaries.
pub fn wire_schema(schema: &SchemaRef) -> SchemaRef {
    let none = futures::stream::empty::<Result<RecordBatch, FlightError>>();
    let encoder = FlightDataEncoderBuilder::new().with_schema(schema.clone()).build(none);
    encoder.known_schema().unwrap_or_else(|| schema.clone())
}

/// Rows as Flight data.
pub fn encode(
    schema: &SchemaRef,
    rows: impl Stream<Item = Result<RecordBatch, FlightError>> + Send + 'static,
) -> DataStream {
    FlightDataEncoderBuilder::new().with_schema(schema.clone()).build(rows).map(|d| d.map_err(Status::from)).boxed()
}

/// One batch as Flight data.
pub fn encode_batch(batch: RecordBatch) -> DataStream {
    let schema = batch.schema();
    encode(&schema, futures::stream::iter([Ok(batch)]))
}
