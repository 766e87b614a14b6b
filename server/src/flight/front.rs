//! The Flight service in front of the Flight SQL one: what Flight SQL's generic part has no place for.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, Command, CommandPreparedStatementQuery, CommandStatementQuery};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    IpcMessage, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use futures::Stream;
use prost::Message;
use std::pin::Pin;
use tonic::{Request, Response, Status, Streaming};

use super::service::{SqlService, session_of};
use super::statement::wire_schema;
use super::{Shared, status};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

/// The service.
pub struct Front {
    shared: Arc<Shared>,
    sql: SqlService,
}

impl Front {
    /// A service over this state.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { sql: SqlService::new(shared.clone()), shared }
    }

    /// The columns of a query, which is not run.
    async fn columns(&self, request: &Request<FlightDescriptor>) -> Result<SchemaResult, Status> {
        let session = session_of(request)?;
        let any = Any::decode(&*request.get_ref().cmd).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let command = Command::try_from(any).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let sql = match command {
            Command::CommandStatementQuery(CommandStatementQuery { query, .. }) => query,
            Command::CommandPreparedStatementQuery(CommandPreparedStatementQuery { prepared_statement_handle: h }) => {
                self.shared.prepared(&session, &h)?.sql().to_owned()
            }
            _ => return Err(status::unsupported("schemas of this command", "GetFlightInfo tells it")),
        };
        let described = self.shared.in_session(&session, async |s| s.describe_statement(&sql).await).await?;
        let columns =
            described.columns.map_or_else(|| Arc::new(arrow::datatypes::Schema::empty()), |c| wire_schema(&c));
        let options = arrow::ipc::writer::IpcWriteOptions::default();
        let message: IpcMessage = SchemaAsIpc::new(&columns, &options)
            .try_into()
            .map_err(|e: arrow::error::ArrowError| status::of(&e.into()))?;
        Ok(SchemaResult { schema: message.0 })
    }
}

#[tonic::async_trait]
impl FlightService for Front {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        self.sql.handshake(request).await
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(status::unsupported("lists of flights", "ask for tables with GetTables"))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        self.sql.get_flight_info(request).await
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(status::unsupported("polled statements", "use GetFlightInfo"))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        self.columns(&request).await.map(Response::new)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        self.sql.do_get(request).await
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        self.sql.do_put(request).await
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        self.sql.do_action(request).await
    }

    async fn list_actions(&self, request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        self.sql.list_actions(request).await
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(status::unsupported("exchanges of streams", "use DoPut and DoGet"))
    }
}
