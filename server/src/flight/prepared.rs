//! Prepared statements. Values are bound by putting them into the statement's text as literals
//! would stand there, so a prepared statement is bound anew each time it runs and never outdated.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::error::FlightError;
use arrow_flight::sql::ActionCreatePreparedStatementResult;
use arrow_flight::{FlightData, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use datafusion::common::ScalarValue;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use spate_engine::env::random_id;
use spate_engine::types::{ErrorKind, Result, SpateError};
use tonic::Status;

use super::ingest::{Budget, read_all};
use super::sessions::ClientSession;
use super::statement::wire_schema;
use super::{Shared, status};
use crate::Outcome;

/// Most rows of parameters for one call.
const MAX_SETS: usize = 1_000_000;

/// A prepared statement.
pub struct Prepared {
    sql: String,
    /// How many parameters it has.
    parameters: usize,
    /// The values that were bound last, a set in each row.
    bound: Mutex<Vec<RecordBatch>>,
}

impl Prepared {
    /// Its text.
    pub fn sql(&self) -> &str {
        &self.sql
    }
}

fn ipc(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: IpcMessage =
        SchemaAsIpc::new(schema, &options).try_into().map_err(|e: arrow::error::ArrowError| status::of(&e.into()))?;
    Ok(message.0)
}

/// The sets of values in rows of parameters.
fn sets(batches: &[RecordBatch]) -> Result<Vec<Vec<ScalarValue>>> {
    let mut out = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|c| ScalarValue::try_from_array(c, row));
            out.push(values.collect::<std::result::Result<Vec<_>, _>>()?);
        }
    }
    Ok(out)
}

impl Shared {
    /// Prepares a statement.
    pub async fn prepare(
        &self,
        session: &ClientSession,
        sql: String,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let described = self.in_session(session, async |s| s.describe_statement(&sql).await).await?;
        // A type that nothing tells is null: any value will do.
        let field = |(i, t): (usize, &Option<DataType>)| {
            Field::new(format!("${}", i + 1), t.clone().unwrap_or(DataType::Null), true)
        };
        let parameters = Schema::new(described.parameters.iter().enumerate().map(field).collect::<Vec<_>>());
        let prepared = Prepared { sql, parameters: described.parameters.len(), bound: Mutex::default() };
        let handle = random_id().map_err(|e| self.failed(&e.into()))?;
        let put = session.prepared.lock().insert(handle.clone(), self.engine.clock.monotonic(), Arc::new(prepared));
        if put.is_err() {
            let most = self.limits.prepared;
            let e = SpateError::new(ErrorKind::Limit, format!("the session has {most} prepared statements, the most"));
            return Err(self.failed(&e.with_hint("close some")));
        }
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.into(),
            dataset_schema: described.columns.map_or(Ok(Bytes::new()), |c| ipc(&wire_schema(&c)))?,
            parameter_schema: ipc(&parameters)?,
        })
    }

    /// A prepared statement of this session.
    pub fn prepared(&self, session: &ClientSession, handle: &Bytes) -> Result<Arc<Prepared>, Status> {
        let name = String::from_utf8_lossy(handle);
        let found = session.prepared.lock().touch(&name, self.engine.clock.monotonic()).cloned();
        found.ok_or_else(|| {
            let e = SpateError::new(ErrorKind::NotFound, "there is no such prepared statement");
            self.failed(&e.with_hint("it was closed, or belongs to another session or connection; prepare it again"))
        })
    }

    /// Keeps values for a prepared statement's next run.
    pub async fn bind(
        &self,
        prepared: &Prepared,
        data: impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static,
    ) -> Result<(), Status> {
        let (schema, batches, _) =
            read_all(data, &Arc::new(Budget::new(self.limits.parameter_bytes))).await.map_err(|e| self.failed(&e))?;
        let width = schema.fields().len();
        if width != prepared.parameters && (width > 0 || batches.iter().any(|b| b.num_rows() > 0)) {
            let e = SpateError::invalid(format!("{width} values were given for {} parameters", prepared.parameters));
            return Err(self.failed(&e));
        }
        let n: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if n > MAX_SETS {
            let e = SpateError::new(ErrorKind::Limit, format!("{n} sets of parameters are more than {MAX_SETS}"));
            return Err(self.failed(&e.with_hint("use bulk ingest, or several calls")));
        }
        *prepared.bound.lock() = batches;
        Ok(())
    }

    /// Runs a prepared statement with the values that were bound.
    pub async fn run_prepared(&self, session: &ClientSession, prepared: &Prepared) -> Result<Outcome, Status> {
        let mut sets = sets(&prepared.bound.lock()).map_err(|e| self.failed(&e))?;
        match sets.len() {
            0 => self.run(session, &prepared.sql, &[]).await,
            1 => self.run(session, &prepared.sql, &sets.remove(0)).await,
            n => {
                let mut total: u64 = 0;
                let mut verb = String::new();
                for values in &sets {
                    match self.run(session, &prepared.sql, values).await? {
                        Outcome::Done(tag) => {
                            let (word, count) = tag.rsplit_once(' ').unwrap_or((&tag, "0"));
                            total += count.parse::<u64>().unwrap_or(0);
                            verb = word.to_owned();
                        }
                        Outcome::Rows(_) => {
                            let e = SpateError::unsupported(format!(
                                "{n} sets of parameters for a statement that gives rows are not supported"
                            ));
                            return Err(self.failed(&e.with_hint("bind and run one set after the other")));
                        }
                    }
                }
                Ok(Outcome::Done(format!("{verb} {total}")))
            }
        }
    }

    /// Runs a prepared statement once for each set of values; gives the number of rows that changed.
    pub async fn update_prepared(&self, session: &ClientSession, prepared: &Prepared) -> Result<i64, Status> {
        let sets = sets(&prepared.bound.lock()).map_err(|e| self.failed(&e))?;
        if sets.is_empty() {
            return self.update(session, &prepared.sql, &[]).await;
        }
        let mut changed = 0;
        for values in &sets {
            changed += self.update(session, &prepared.sql, values).await?;
        }
        Ok(changed)
    }

    /// Closes a prepared statement; one that is not there is closed already.
    pub fn close_prepared(&self, session: &ClientSession, handle: &Bytes) {
        session.prepared.lock().remove(&String::from_utf8_lossy(handle));
    }
}

/// Messages of a client as a stream that a decoder takes.
pub fn data(
    messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
) -> impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static {
    messages.map(|m| m.map_err(FlightError::from))
}
