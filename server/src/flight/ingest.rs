//! Bulk ingest: the rows of a stream into a table, all of them or none.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::catalog::info::DATABASE;
use tonic::Status;

use super::sessions::ClientSession;
use super::{Counters, Shared};
use crate::session::{Exists, Ingest, Missing};

/// What went wrong with a client's stream of rows.
fn broken(e: FlightError) -> SpateError {
    match e {
        FlightError::Tonic(status) => SpateError::new(ErrorKind::Cancelled, status.message()),
        FlightError::Arrow(e) => SpateError::invalid(format!("the rows cannot be read: {e}")),
        other => SpateError::invalid(format!("the rows cannot be read: {other}")),
    }
}

/// Bytes that rows may take while they are taken in.
pub struct Budget {
    limit: usize,
    used: Mutex<usize>,
}

/// A share of a budget, given back when it is dropped.
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// Nothing used yet.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: Mutex::new(0) }
    }
}

impl Share {
    fn add(&mut self, bytes: usize) -> Result<()> {
        let limit = self.budget.limit;
        let mut used = self.budget.used.lock();
        *used = used.saturating_add(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        match *used <= limit {
            true => Ok(()),
            false => {
                Err(SpateError::new(ErrorKind::Limit, format!("rows that are taken in take more than {limit} bytes"))
                    .with_hint("send them in several streams, one after the other"))
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock();
        *used = used.saturating_sub(self.bytes);
    }
}

/// All rows of a stream, as far as the budget goes.
pub async fn read_all(
    data: impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static,
    budget: &Arc<Budget>,
) -> Result<(SchemaRef, Vec<RecordBatch>, Share)> {
    let mut share = Share { budget: budget.clone(), bytes: 0 };
    let mut stream = FlightRecordBatchStream::new_from_flight_data(data);
    let mut batches: Vec<RecordBatch> = Vec::new();
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(broken)?;
        share.add(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    let schema = match (stream.schema(), batches.first()) {
        (Some(schema), _) => schema.clone(),
        (None, Some(batch)) => batch.schema(),
        (None, None) => Arc::new(Schema::empty()),
    };
    Ok((schema, batches, share))
}

/// What a command asks for, if it is something that there is.
fn asked(command: &CommandStatementIngest) -> Result<Ingest> {
    if command.temporary {
        return Err(SpateError::unsupported("temporary tables are not supported"));
    }
    if command.transaction_id.is_some() {
        return Err(SpateError::unsupported("transactions are not supported"));
    }
    if let Some(option) = command.options.keys().min() {
        return Err(SpateError::unsupported(format!("the option \"{option}\" of an ingest is not supported")));
    }
    if let Some(catalog) = command.catalog.as_deref().filter(|c| !c.is_empty() && *c != DATABASE) {
        return Err(SpateError::new(ErrorKind::NotFound, format!("catalog \"{catalog}\" does not exist"))
            .with_hint(format!("there is one catalog, \"{DATABASE}\"")));
    }
    let options = command.table_definition_options.unwrap_or_default();
    Ok(Ingest {
        schema: command.schema.clone().filter(|s| !s.is_empty()),
        table: command.table.clone(),
        missing: match options.if_not_exist() {
            TableNotExistOption::Create => Missing::Create,
            TableNotExistOption::Fail | TableNotExistOption::Unspecified => Missing::Fail,
        },
        exists: match options.if_exists() {
            TableExistsOption::Append => Exists::Append,
            TableExistsOption::Replace => Exists::Replace,
            TableExistsOption::Fail => Exists::Fail,
            // Without a word on it, rows are added.
            TableExistsOption::Unspecified => Exists::Append,
        },
    })
}

impl Shared {
    /// Takes rows into a table; gives their number.
    pub async fn ingest(
        &self,
        session: &ClientSession,
        command: &CommandStatementIngest,
        data: impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static,
    ) -> Result<i64, Status> {
        let ingest = asked(command).map_err(|e| self.failed(&e))?;
        // Read first: the session is free for other statements meanwhile.
        let (schema, batches, _held) = read_all(data, &self.ingesting).await.map_err(|e| self.failed(&e))?;
        let rows = self.in_session(session, async |s| s.ingest(ingest, schema, batches).await).await?;
        Counters::add(&self.counters.rows_ingested, rows as u64);
        Ok(i64::try_from(rows).unwrap_or(i64::MAX))
    }
}
