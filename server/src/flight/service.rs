//! The Flight SQL service: each call is handed to what does it.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::metadata::{SqlInfoData, XdbcTypeInfoData};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionRequest,
    ActionBeginTransactionResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    ActionCreatePreparedSubstraitPlanRequest, ActionEndSavepointRequest, ActionEndTransactionRequest, Any, Command,
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest, CommandStatementQuery,
    CommandStatementSubstraitPlan, CommandStatementUpdate, DoPutPreparedStatementResult, ProstMessageExt, SqlInfo,
    TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor,
    FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, Ticket,
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use prost::Message;
use spate_engine::types::{Result, SpateError};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};

use super::prepared::data;
use super::proto::{CloseSessionResult, GetSessionOptionsResult, SetSessionOptionsRequest, SetSessionOptionsResult};
use super::sessions::ClientSession;
use super::statement::{DataStream, encode_batch};
use super::{Shared, keys, metadata, options, sql_info, status, xdbc};

/// Header of a DoGet that wants to hear of a subscription's epochs without changes too.
const PROGRESS: &str = "spate-progress";

/// The session of a request.
pub fn session_of<T>(request: &Request<T>) -> Result<Arc<ClientSession>, Status> {
    let found = request.extensions().get::<Arc<ClientSession>>().cloned();
    found.ok_or_else(|| status::of(&SpateError::internal("a request without a session")))
}

/// The service.
pub struct SqlService {
    shared: Arc<Shared>,
}

impl SqlService {
    /// A service over this state.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Tells of rows that are made when they are fetched.
    fn told(
        &self,
        command: &impl ProstMessageExt,
        schema: &SchemaRef,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let ticket = Ticket::new(command.as_any().encode_to_vec());
        let info = FlightInfo::new().try_with_schema(schema).map_err(|e| status::of(&e.into()))?;
        let info = info.with_endpoint(FlightEndpoint::new().with_ticket(ticket)).with_descriptor(request.into_inner());
        Ok(Response::new(info))
    }

    /// Tells of rows that are made now, to know their columns.
    fn told_of(
        &self,
        command: &impl ProstMessageExt,
        rows: Result<RecordBatch>,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let schema = rows.map_err(|e| self.shared.failed(&e))?.schema();
        self.told(command, &schema, request)
    }

    fn answer(&self, rows: Result<RecordBatch>) -> Result<Response<DataStream>, Status> {
        Ok(Response::new(encode_batch(rows.map_err(|e| self.shared.failed(&e))?)))
    }

    fn no_rows(&self) -> Result<RecordBatch> {
        Ok(RecordBatch::new_empty(keys::foreign_keys_schema()))
    }

    fn tables(&self, command: CommandGetTables) -> Result<RecordBatch> {
        metadata::tables(&self.shared.engine, command)
    }

    fn sql_info(command: CommandGetSqlInfo) -> Result<RecordBatch> {
        let data: SqlInfoData = sql_info::data()?;
        command.into_builder(&data).build().map_err(|e| SpateError::internal(e.to_string()))
    }

    fn xdbc(command: CommandGetXdbcTypeInfo) -> Result<RecordBatch> {
        let data: XdbcTypeInfoData = xdbc::data()?;
        command.into_builder(&data).build().map_err(|e| SpateError::internal(e.to_string()))
    }

    /// Cancels the results of a Flight info.
    fn cancel(&self, info: Option<FlightInfo>) -> CancelStatus {
        let mut done = CancelStatus::NotCancellable;
        for endpoint in info.into_iter().flat_map(|i| i.endpoint) {
            let Some(ticket) = endpoint.ticket else { continue };
            let Ok(any) = Any::decode(ticket.ticket) else { continue };
            if let Ok(Command::TicketStatementQuery(t)) = Command::try_from(any)
                && self.shared.results.cancel(&String::from_utf8_lossy(&t.statement_handle)) == CancelStatus::Cancelled
            {
                done = CancelStatus::Cancelled;
            }
        }
        done
    }
}

fn no_transactions() -> Status {
    status::unsupported("transactions", "each statement is applied at once, as a whole; leave autocommit on")
}

fn in_transaction(id: &Option<Bytes>) -> Result<(), Status> {
    if id.as_ref().is_some_and(|id| !id.is_empty()) { Err(no_transactions()) } else { Ok(()) }
}

fn no_substrait() -> Status {
    status::unsupported("Substrait plans", "send SQL")
}

fn bad(e: prost::DecodeError) -> Status {
    Status::invalid_argument(format!("the request cannot be read: {e}"))
}

/// One answer of an action.
fn one(message: &impl Message) -> Response<<SqlService as FlightService>::DoActionStream> {
    let result = arrow_flight::Result { body: message.encode_to_vec().into() };
    Response::new(futures::stream::iter([Ok(result)]).boxed())
}

type Handshakes = Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>;

#[tonic::async_trait]
impl FlightSqlService for SqlService {
    type FlightService = Self;

    /// There are no passwords yet: whoever shakes hands gets a session of his own, and its name.
    async fn do_handshake(&self, _: Request<Streaming<HandshakeRequest>>) -> Result<Response<Handshakes>, Status> {
        let session = self.shared.sessions.open().map_err(|e| self.shared.failed(&e))?;
        let token = format!("Bearer {}", session.id);
        let answer = HandshakeResponse { protocol_version: 0, payload: session.id.clone().into() };
        let mut response = Response::new(futures::stream::iter([Ok(answer)]).boxed() as Handshakes);
        let value = MetadataValue::try_from(token).map_err(|_| Status::internal("a token that is no header"))?;
        response.metadata_mut().insert("authorization", value);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        in_transaction(&query.transaction_id)?;
        let session = session_of(&request)?;
        let outcome = self.shared.run(&session, &query.query, &[]).await?;
        self.shared.info(outcome, request.into_inner()).map(Response::new)
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let session = session_of(&request)?;
        let prepared = self.shared.prepared(&session, &query.prepared_statement_handle)?;
        let outcome = self.shared.run_prepared(&session, &prepared).await?;
        self.shared.info(outcome, request.into_inner()).map(Response::new)
    }

    async fn get_flight_info_substrait_plan(
        &self,
        _: CommandStatementSubstraitPlan,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Err(no_substrait())
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told_of(&query, metadata::catalogs(), request)
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told(&query, &query.clone().into_builder().schema(), request)
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told(&query, &query.clone().into_builder().schema(), request)
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told_of(&query, metadata::table_types(), request)
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told_of(&query, Self::sql_info(query.clone()), request)
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told(&query, &keys::primary_keys_schema(), request)
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told_of(&query, self.no_rows(), request)
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told_of(&query, self.no_rows(), request)
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told_of(&query, self.no_rows(), request)
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.told_of(&query, Self::xdbc(query), request)
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        let progress = request.metadata().contains_key(PROGRESS);
        self.shared.fetch(&ticket, progress).map(Response::new)
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        let progress = request.metadata().contains_key(PROGRESS);
        let session = session_of(&request)?;
        let prepared = self.shared.prepared(&session, &query.prepared_statement_handle)?;
        let outcome = self.shared.run_prepared(&session, &prepared).await?;
        self.shared.send(outcome, progress).map(Response::new)
    }

    async fn do_get_catalogs(&self, _: CommandGetCatalogs, _: Request<Ticket>) -> Result<Response<DataStream>, Status> {
        self.answer(metadata::catalogs())
    }

    async fn do_get_schemas(
        &self,
        query: CommandGetDbSchemas,
        _: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        self.answer(metadata::schemas(&self.shared.engine, query))
    }

    async fn do_get_tables(&self, query: CommandGetTables, _: Request<Ticket>) -> Result<Response<DataStream>, Status> {
        self.answer(self.tables(query))
    }

    async fn do_get_table_types(
        &self,
        _: CommandGetTableTypes,
        _: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        self.answer(metadata::table_types())
    }

    async fn do_get_sql_info(
        &self,
        query: CommandGetSqlInfo,
        _: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        self.answer(Self::sql_info(query))
    }

    async fn do_get_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        _: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        self.answer(keys::primary_keys(&self.shared.engine, &query))
    }

    async fn do_get_exported_keys(
        &self,
        _: CommandGetExportedKeys,
        _: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        self.answer(self.no_rows())
    }

    async fn do_get_imported_keys(
        &self,
        _: CommandGetImportedKeys,
        _: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        self.answer(self.no_rows())
    }

    async fn do_get_cross_reference(
        &self,
        _: CommandGetCrossReference,
        _: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        self.answer(self.no_rows())
    }

    async fn do_get_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        _: Request<Ticket>,
    ) -> Result<Response<DataStream>, Status> {
        self.answer(Self::xdbc(query))
    }

    async fn do_put_statement_update(
        &self,
        ticket: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        in_transaction(&ticket.transaction_id)?;
        let session = session_of(&request)?;
        self.shared.update(&session, &ticket.query, &[]).await
    }

    async fn do_put_statement_ingest(
        &self,
        ticket: CommandStatementIngest,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        in_transaction(&ticket.transaction_id)?;
        let session = session_of(&request)?;
        self.shared.ingest(&session, &ticket, data(request.into_inner())).await
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let session = session_of(&request)?;
        let prepared = self.shared.prepared(&session, &query.prepared_statement_handle)?;
        self.shared.bind(&prepared, data(request.into_inner())).await?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(query.prepared_statement_handle) })
    }

    async fn do_put_prepared_statement_update(
        &self,
        query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let session = session_of(&request)?;
        let prepared = self.shared.prepared(&session, &query.prepared_statement_handle)?;
        self.shared.bind(&prepared, data(request.into_inner())).await?;
        self.shared.update_prepared(&session, &prepared).await
    }

    async fn do_put_substrait_plan(
        &self,
        _: CommandStatementSubstraitPlan,
        _: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(no_substrait())
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        in_transaction(&query.transaction_id)?;
        let session = session_of(&request)?;
        self.shared.prepare(&session, query.query).await
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        self.shared.close_prepared(&*session_of(&request)?, &query.prepared_statement_handle);
        Ok(())
    }

    async fn do_action_create_prepared_substrait_plan(
        &self,
        _: ActionCreatePreparedSubstraitPlanRequest,
        _: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        Err(no_substrait())
    }

    async fn do_action_begin_transaction(
        &self,
        _: ActionBeginTransactionRequest,
        _: Request<Action>,
    ) -> Result<ActionBeginTransactionResult, Status> {
        Err(no_transactions())
    }

    async fn do_action_end_transaction(
        &self,
        _: ActionEndTransactionRequest,
        _: Request<Action>,
    ) -> Result<(), Status> {
        Err(no_transactions())
    }

    async fn do_action_begin_savepoint(
        &self,
        _: ActionBeginSavepointRequest,
        _: Request<Action>,
    ) -> Result<ActionBeginSavepointResult, Status> {
        Err(status::unsupported("savepoints", "each statement is applied at once, as a whole"))
    }

    async fn do_action_end_savepoint(&self, _: ActionEndSavepointRequest, _: Request<Action>) -> Result<(), Status> {
        Err(status::unsupported("savepoints", "each statement is applied at once, as a whole"))
    }

    async fn do_action_cancel_query(
        &self,
        query: ActionCancelQueryRequest,
        _: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        let info = FlightInfo::decode(query.info).map_err(bad)?;
        // Its numbers are those of CancelStatus.
        Ok(ActionCancelQueryResult { result: self.cancel(Some(info)) as i32 })
    }

    async fn list_custom_actions(&self) -> Option<Vec<Result<ActionType, Status>>> {
        let action = |name: &str, what: &str| Ok(ActionType { r#type: name.into(), description: what.into() });
        Some(vec![
            action("CancelFlightInfo", "Cancels the results of a FlightInfo"),
            action("SetSessionOptions", "Sets session variables"),
            action("GetSessionOptions", "Tells session variables"),
            action("CloseSession", "Ends the session"),
            action("VerifyViews", "Recomputes all materialized views in batch and compares; gives their number"),
        ])
    }

    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Result<Response<<Self as FlightService>::DoActionStream>, Status> {
        let session = session_of(&request)?;
        let Action { r#type: name, body } = request.into_inner();
        match name.as_str() {
            "CancelFlightInfo" => {
                let request = CancelFlightInfoRequest::decode(body).map_err(bad)?;
                Ok(one(&CancelFlightInfoResult::new(self.cancel(request.info))))
            }
            "SetSessionOptions" => {
                let request = SetSessionOptionsRequest::decode(body).map_err(bad)?;
                let errors = self.shared.in_session(&session, async |s| Ok(options::set(s, &request))).await?;
                Ok(one(&SetSessionOptionsResult { errors }))
            }
            "GetSessionOptions" => {
                let session_options = self.shared.in_session(&session, async |s| options::all(s)).await?;
                Ok(one(&GetSessionOptionsResult { session_options }))
            }
            "CloseSession" => {
                self.shared.sessions.close(&session);
                Ok(one(&CloseSessionResult { status: 1 }))
            }
            "VerifyViews" => {
                let n = self.shared.engine.verify_views().await.map_err(|e| self.shared.failed(&e))?;
                let body = serde_json::json!({ "views": n }).to_string();
                let result = arrow_flight::Result { body: body.into() };
                Ok(Response::new(futures::stream::iter([Ok(result)]).boxed()))
            }
            other => {
                let e = SpateError::unsupported(format!("the action \"{other}\" is not supported"));
                Err(self.shared.failed(&e.with_hint("ListActions tells which there are")))
            }
        }
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}
