//! A connection to a server: a session of its own, which goes on when the connection is made anew.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{
    CommandStatementIngest, CommandStatementQuery, CommandStatementUpdate, DoPutUpdateResult, FallibleRequestStream,
    ProstMessageExt, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, IpcMessage, Ticket};
use futures::{Stream, StreamExt};
use prost::Message;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};

use super::{Error, Kind, Prepared, Result, Rows, Subscription, SubscriptionOptions};

/// Longest message of a server.
const MAX_MESSAGE: usize = 256 << 20;

/// A client. Clones share the connection and the session.
#[derive(Debug, Clone)]
pub struct Client {
    flight: FlightServiceClient<Channel>,
    session: MetadataValue<Ascii>,
}

/// What a statement gave.
pub enum Answer {
    /// Rows.
    Rows(Rows),
    /// A command tag, such as `INSERT 0 3` or `CREATE TABLE`.
    Done(String),
}

/// What an ingest does with its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IngestMode {
    /// Makes the table; there must be none.
    Create,
    /// Adds to the table; there must be one.
    Append,
    /// Adds to the table, or makes it.
    CreateAppend,
    /// Makes the table, in place of one that is there.
    Replace,
}

/// What the server tells beside a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) tag: Option<String>,
    pub(super) endless: bool,
    /// Identity of what a subscription follows.
    pub(super) of: Option<u64>,
    /// The epoch after which a subscription goes on; none if rows that are there come first.
    pub(super) complete: Option<u64>,
    /// Identity of the server's run.
    pub(super) instance: String,
}

impl Told {
    fn read(info: &FlightInfo) -> Result<Self> {
        if info.app_metadata.is_empty() {
            return Ok(Self::default());
        }
        let parts: serde_json::Value = serde_json::from_slice(&info.app_metadata).map_err(Error::protocol)?;
        Ok(Self {
            tag: parts["tag"].as_str().map(str::to_owned),
            endless: parts["endless"].as_bool().unwrap_or(false),
            of: parts["of"].as_u64(),
            complete: parts["complete_epoch"].as_u64(),
            instance: parts["instance"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

/// The address of a server as the transport has it.
fn endpoint(url: &str) -> Result<Endpoint> {
    let bad = |why: &str| {
        Error::new(Kind::InvalidArgument, format!("\"{url}\" is no address of a server: {why}"))
            .with_hint("addresses look like grpc://127.0.0.1:50051")
    };
    let rest = url.strip_prefix("grpc://").or_else(|| url.strip_prefix("grpc+tcp://"));
    let Some(rest) = rest else {
        return Err(match url.split_once("://") {
            Some(("grpc+tls" | "grpcs" | "https", _)) => bad("TLS is not supported yet"),
            _ => bad("it does not begin with grpc://"),
        });
    };
    let endpoint = Endpoint::from_shared(format!("http://{rest}")).map_err(|_| bad("it is no host and port"))?;
    Ok(endpoint
        .connect_timeout(Duration::from_secs(10))
        .tcp_nodelay(true)
        // A server that has vanished is noticed.
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true))
}

impl Client {
    /// Connects to a server at `grpc://HOST:PORT`, and opens a session.
    ///
    /// # Errors
    /// When the address makes no sense, or the server cannot be reached.
    pub async fn connect(url: &str) -> Result<Self> {
        let unreachable = |e: Error| match e.kind() {
            Kind::Unavailable => Error::new(e.kind(), format!("cannot reach {url}: {}", e.message()))
                .with_hint("is the server running? spate server starts one"),
            _ => e,
        };
        let channel = endpoint(url)?.connect().await.map_err(|e| unreachable(e.into()))?;
        let mut flight = FlightServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let hello = HandshakeRequest::default();
        let answer = flight.handshake(Request::new(futures::stream::iter([hello]))).await;
        let answer = answer.map_err(|e| unreachable(e.into()))?;
        let session = answer.metadata().get("authorization").cloned();
        let session = session.ok_or_else(|| Error::protocol("a handshake without a session"))?;
        Ok(Self { flight, session })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.session.clone());
        request
    }

    /// What the server says of a command.
    pub(super) async fn info(&self, command: &impl ProstMessageExt) -> Result<(FlightInfo, Told)> {
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let info = self.flight.clone().get_flight_info(self.request(descriptor)).await?.into_inner();
        let told = Told::read(&info)?;
        Ok((info, told))
    }

    /// The messages of an answer's only endpoint.
    pub(super) async fn fetch(&self, info: &FlightInfo, progress: bool) -> Result<Streaming<FlightData>> {
        let ticket: Option<Ticket> = info.endpoint.first().and_then(|e| e.ticket.clone());
        let mut request = self.request(ticket.ok_or_else(|| Error::protocol("rows without a ticket"))?);
        if progress {
            request.metadata_mut().insert("spate-progress", MetadataValue::from_static("1"));
        }
        Ok(self.flight.clone().do_get(request).await?.into_inner())
    }

    pub(super) async fn answer(&self, command: &impl ProstMessageExt) -> Result<Answer> {
        let (info, told) = self.info(command).await?;
        if let Some(tag) = told.tag {
            return Ok(Answer::Done(tag));
        }
        let schema = schema_of(&info)?;
        let data = self.fetch(&info, false).await?;
        let stream = FlightRecordBatchStream::new_from_flight_data(data.map(|d| d.map_err(FlightError::from)));
        Ok(Answer::Rows(Rows { schema, endless: told.endless, stream }))
    }

    /// Sends messages to the server; gives the count that it answers.
    pub(super) async fn put(
        &self,
        messages: impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static,
    ) -> Result<Option<bytes::Bytes>> {
        let (sender, receiver) = futures::channel::oneshot::channel();
        let messages: FallibleRequestStream<FlightData, FlightError> =
            FallibleRequestStream::new(sender, Box::pin(messages));
        let answered = match self.flight.clone().do_put(self.request(messages)).await {
            Ok(answers) => answers.into_inner().message().await,
            Err(e) => Err(e),
        };
        // What went wrong on this side says more than what the server made of it.
        if let Ok(own) = receiver.await {
            return Err(own.into());
        }
        Ok(answered?.map(|a| a.app_metadata))
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// What the server says of it.
    pub async fn run(&self, sql: &str) -> Result<Answer> {
        self.answer(&CommandStatementQuery { query: sql.to_owned(), transaction_id: None }).await
    }

    /// Runs a statement that gives rows.
    ///
    /// # Errors
    /// What the server says of it; or that it gives none.
    pub async fn query(&self, sql: &str) -> Result<Rows> {
        rows_of(self.run(sql).await?)
    }

    /// Runs a statement; gives the number of rows that it changed.
    ///
    /// # Errors
    /// What the server says of it.
    pub async fn execute(&self, sql: &str) -> Result<u64> {
        let command = CommandStatementUpdate { query: sql.to_owned(), transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let message = FlightData { flight_descriptor: Some(descriptor), ..FlightData::default() };
        count(self.put(futures::stream::iter([Ok(message)])).await?)
    }

    /// Prepares a statement with parameters `$1`, `$2`, …
    ///
    /// # Errors
    /// What the server says of it.
    pub async fn prepare(&self, sql: &str) -> Result<Prepared> {
        Prepared::new(self.clone(), sql).await
    }

    /// Follows a table or view, from the rows that it holds on. A lost connection is made anew, and
    /// the subscription goes on where it was.
    ///
    /// # Errors
    /// What the server says of it.
    pub async fn subscribe(&self, relation: &str) -> Result<Subscription> {
        self.subscribe_with(relation, SubscriptionOptions::default()).await
    }

    /// As [`Client::subscribe`], with options. A query can be followed too, but not beyond the end of a
    /// connection.
    ///
    /// # Errors
    /// What the server says of it.
    pub async fn subscribe_with(&self, target: &str, options: SubscriptionOptions) -> Result<Subscription> {
        Subscription::new(self.clone(), target, options).await
    }

    /// Adds rows to a table, all of them or none; gives their number. Columns go by their names.
    ///
    /// # Errors
    /// What the server says of it, or `rows`.
    pub async fn ingest(
        &self,
        table: &str,
        mode: IngestMode,
        schema: SchemaRef,
        rows: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    ) -> Result<u64> {
        let (missing, exists) = match mode {
            IngestMode::Create => (TableNotExistOption::Create, TableExistsOption::Fail),
            IngestMode::Append => (TableNotExistOption::Fail, TableExistsOption::Append),
            IngestMode::CreateAppend => (TableNotExistOption::Create, TableExistsOption::Append),
            IngestMode::Replace => (TableNotExistOption::Create, TableExistsOption::Replace),
        };
        let command = CommandStatementIngest {
            table_definition_options: Some(TableDefinitionOptions {
                if_not_exist: missing as i32,
                if_exists: exists as i32,
            }),
            table: table.to_owned(),
            ..CommandStatementIngest::default()
        };
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let data = FlightDataEncoderBuilder::new()
            .with_schema(schema)
            .with_flight_descriptor(Some(descriptor))
            .build(rows.map(|b| b.map_err(|e| FlightError::ExternalError(Box::new(e)))));
        count(self.put(data).await?)
    }

    /// Recomputes all materialized views on the server in batch and compares; gives their number.
    ///
    /// # Errors
    /// When a view differs.
    pub async fn verify_views(&self) -> Result<usize> {
        let body = self.action("VerifyViews", bytes::Bytes::new()).await?;
        let parts: serde_json::Value = serde_json::from_slice(&body).map_err(Error::protocol)?;
        Ok(parts["views"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or_default())
    }

    /// Ends the session.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn close(self) -> Result<()> {
        self.action("CloseSession", bytes::Bytes::new()).await.map(|_| ())
    }

    pub(super) async fn action(&self, name: &str, body: bytes::Bytes) -> Result<bytes::Bytes> {
        let action = Action { r#type: name.to_owned(), body };
        let mut answers = self.flight.clone().do_action(self.request(action)).await?.into_inner();
        Ok(answers.message().await?.map(|r| r.body).unwrap_or_default())
    }
}

/// The columns that are told of rows to come.
pub(super) fn schema_of(info: &FlightInfo) -> Result<SchemaRef> {
    Ok(Arc::new(Schema::try_from(IpcMessage(info.schema.clone()))?))
}

pub(super) fn rows_of(answer: Answer) -> Result<Rows> {
    match answer {
        Answer::Rows(rows) => Ok(rows),
        Answer::Done(tag) => Err(Error::new(Kind::InvalidArgument, format!("{tag} gives no rows"))
            .with_hint("use execute for statements without rows")),
    }
}

pub(super) fn count(answer: Option<bytes::Bytes>) -> Result<u64> {
    let answer = answer.ok_or_else(|| Error::protocol("an update without an answer"))?;
    let count = DoPutUpdateResult::decode(answer)?.record_count;
    Ok(u64::try_from(count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        assert!(endpoint("grpc://127.0.0.1:50051").is_ok() && endpoint("grpc+tcp://host:1").is_ok());
        for (url, part) in [("localhost:1", "grpc://"), ("grpc+tls://host:1", "TLS"), ("grpc://a b", "host and port")] {
            let e = endpoint(url).unwrap_err();
            assert!(e.message().contains(part), "{e}");
        }
    }
}
