//! Prepared statements: values are given apart from the text.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    Any, CommandPreparedStatementQuery, CommandPreparedStatementUpdate, ProstMessageExt,
};
use arrow_flight::{FlightDescriptor, IpcMessage};
use bytes::Bytes;
use prost::Message;

use super::client::{count, rows_of};
use super::{Client, Error, Result, Rows};

/// A prepared statement. It is there until it is closed, or its session ends.
#[derive(Debug, Clone)]
pub struct Prepared {
    client: Client,
    handle: Bytes,
    parameters: SchemaRef,
    columns: Option<SchemaRef>,
}

fn schema(message: Bytes) -> Result<SchemaRef> {
    Ok(Arc::new(if message.is_empty() { Schema::empty() } else { Schema::try_from(IpcMessage(message))? }))
}

impl Prepared {
    pub(super) async fn new(client: Client, sql: &str) -> Result<Self> {
        let request = ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id: None };
        let body = client.action("CreatePreparedStatement", request.as_any().encode_to_vec().into()).await?;
        let answer: Option<ActionCreatePreparedStatementResult> = Any::decode(body)?.unpack()?;
        let answer = answer.ok_or_else(|| Error::protocol("no prepared statement"))?;
        let columns = if answer.dataset_schema.is_empty() { None } else { Some(schema(answer.dataset_schema)?) };
        let parameters = schema(answer.parameter_schema)?;
        Ok(Self { client, handle: answer.prepared_statement_handle, parameters, columns })
    }

    /// The parameters, in order; of type null where any value will do.
    pub fn parameters(&self) -> &SchemaRef {
        &self.parameters
    }

    /// The columns of its rows; `None` if it gives none.
    pub fn columns(&self) -> Option<&SchemaRef> {
        self.columns.as_ref()
    }

    async fn put(&self, command: &impl ProstMessageExt, values: &RecordBatch) -> Result<Option<Bytes>> {
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let data = FlightDataEncoderBuilder::new()
            .with_schema(values.schema())
            .with_flight_descriptor(Some(descriptor))
            .build(futures::stream::iter([Ok::<_, FlightError>(values.clone())]));
        self.client.put(data).await
    }

    /// Runs it with one row of values.
    ///
    /// # Errors
    /// What the server says of it; or that it gives no rows.
    pub async fn query(&self, values: &RecordBatch) -> Result<Rows> {
        let command = CommandPreparedStatementQuery { prepared_statement_handle: self.handle.clone() };
        self.put(&command, values).await?;
        rows_of(self.client.answer(&command).await?)
    }

    /// Runs it once for each row of values; gives the number of rows that changed.
    ///
    /// # Errors
    /// What the server says of it. Runs before the one that failed have been carried out.
    pub async fn execute(&self, values: &RecordBatch) -> Result<u64> {
        let command = CommandPreparedStatementUpdate { prepared_statement_handle: self.handle.clone() };
        count(self.put(&command, values).await?)
    }

    /// Lets go of it on the server.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn close(self) -> Result<()> {
        let request = ActionClosePreparedStatementRequest { prepared_statement_handle: self.handle };
        self.client.action("ClosePreparedStatement", request.as_any().encode_to_vec().into()).await.map(|_| ())
    }
}
