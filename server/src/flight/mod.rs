//! The Flight SQL service: sessions of clients, statements, prepared statements, ingest, metadata.
//!
//! A statement is run when its information is asked for (GetFlightInfo), so that its errors are
//! told there and a change is made once. Rows wait under a ticket, which is good for one DoGet.

pub(crate) mod connection;
mod expiring;
mod front;
mod ingest;
mod keys;
mod metadata;
mod options;
mod prepared;
mod proto;
mod results;
mod service;
mod sessions;
mod sql_info;
mod statement;
pub mod status;
mod subscription;
mod xdbc;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use spate_engine::env::random_id;
use spate_engine::types::{Result, SpateError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::Engine;
use connection::{Connections, incoming};
use front::Front;
use ingest::Budget;
use results::Results;
use sessions::{COOKIE, Sessions};

/// What a server takes on at most. Every queue of it has a limit.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Sessions at a time.
    pub sessions: usize,
    /// A session that a token or cookie names ends when it was not used for so long.
    pub session_idle: Duration,
    /// Connections at a time; more wait to be accepted.
    pub connections: usize,
    /// Requests at a time on one connection; more wait.
    pub requests_per_connection: usize,
    /// Results that wait to be fetched.
    pub waiting_results: usize,
    /// How long a result waits.
    pub result_timeout: Duration,
    /// Prepared statements of a session.
    pub prepared: usize,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Bytes of rows that all ingests together may hold.
    pub ingest_bytes: usize,
    /// Bytes of the values that are bound to one prepared statement.
    pub parameter_bytes: usize,
    /// Epochs that a subscriber may be behind.
    pub epochs_behind: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 1024,
            session_idle: Duration::from_secs(30 * 60),
            connections: 1024,
            requests_per_connection: 256,
            waiting_results: 1024,
            result_timeout: Duration::from_secs(60),
            prepared: 1024,
            message_bytes: 256 << 20,
            ingest_bytes: 1 << 30,
            parameter_bytes: 64 << 20,
            epochs_behind: crate::session::MAX_BEHIND,
        }
    }
}

/// Counts for `/metrics`; they only rise.
#[derive(Debug, Default)]
pub struct Counters {
    /// Statements begun.
    pub statements: AtomicU64,
    /// Rows sent to clients.
    pub rows_sent: AtomicU64,
    /// Rows taken in by bulk ingest.
    pub rows_ingested: AtomicU64,
    /// Statements and streams that failed, by kind of error.
    pub errors: [AtomicU64; status::KINDS.len()],
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    fn failed(&self, error: &SpateError) {
        if let Some(counter) = self.errors.get(status::index(error.kind())) {
            Self::add(counter, 1);
        }
    }
}

/// What all requests share.
pub struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    /// Tells this start of the server from others: epochs count anew after a start.
    pub(crate) instance: String,
    pub(crate) sessions: Sessions,
    pub(crate) results: Arc<Results>,
    pub(crate) connections: Arc<Connections>,
    /// What ingests hold.
    pub(crate) ingesting: Arc<Budget>,
    /// Whether the server is on its way out.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Shared {
    /// The state of a service that stops when `stopping` turns true.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn new(engine: Arc<Engine>, limits: Limits, stopping: watch::Receiver<bool>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            sessions: Sessions::new(engine.clone(), limits.clone()),
            results: Results::new(engine.clock.clone(), limits.clone()),
            connections: Arc::new(Connections::new(limits.connections)),
            ingesting: Arc::new(Budget::new(limits.ingest_bytes)),
            counters: Counters::default(),
            instance: random_id()?,
            engine,
            limits,
            stopping,
        }))
    }

    /// Lets go of sessions and results that nobody has asked for in time.
    pub fn sweep(&self) {
        self.sessions.sweep();
        self.results.sweep();
        self.engine.sweep();
    }
}

/// Comes back when the server stops.
pub(crate) async fn stops(stopping: &mut watch::Receiver<bool>) {
    // Without anybody who could stop it, it is on its way out too.
    let _ = stopping.wait_for(|s| *s).await;
}

/// Finds the session of a request, and tells the client how to come back to it.
async fn with_session(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    // Whoever shakes hands gets a session that goes by a name.
    if request.uri().path().ends_with("/Handshake") {
        return next.run(request).await;
    }
    let connection = request.extensions().get::<connection::ConnectionInfo>().map_or(0, |c| c.id);
    match shared.sessions.of(request.headers(), connection) {
        Ok(found) => {
            let cookie = found.cookie.then(|| format!("{COOKIE}={}; HttpOnly", found.session.id));
            request.extensions_mut().insert(found.session);
            let mut response = next.run(request).await;
            if let Some(value) = cookie.and_then(|c| c.parse().ok()) {
                response.headers_mut().append("set-cookie", value);
            }
            response
        }
        Err(e) => status::of(&e).into_http(),
    }
}

/// Serves until `stopping` turns true and all requests have ended.
///
/// # Errors
/// When the listener fails.
pub async fn serve(shared: Arc<Shared>, listener: TcpListener) -> Result<()> {
    let limit = shared.limits.message_bytes;
    let service = FlightServiceServer::new(Front::new(shared.clone()))
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    let router =
        Routes::new(service).into_axum_router().layer(middleware::from_fn_with_state(shared.clone(), with_session));
    let mut stopping = shared.stopping.clone();
    let sweeper = tokio::spawn(sweep(shared.clone()));
    let served = Server::builder()
        .tcp_nodelay(true)
        // A client that has vanished is noticed, and what it held is let go.
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .concurrency_limit_per_connection(shared.limits.requests_per_connection)
        .add_routes(Routes::from(router))
        .serve_with_incoming_shutdown(incoming(listener, shared.connections.clone(), shared.clone()), async move {
            stops(&mut stopping).await;
        })
        .await;
    sweeper.abort();
    served.map_err(|e| SpateError::from(std::io::Error::other(e)).context("the Flight service has failed"))
}

async fn sweep(shared: Arc<Shared>) {
    const EVERY: Duration = Duration::from_secs(1);
    loop {
        tokio::time::sleep(EVERY).await;
        shared.sweep();
    }
}
