//! The server: Flight SQL and HTTP over one engine, from start to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spate_engine::types::{ErrorKind, Result, SpateError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::flight::{self, Limits, Shared};
use crate::{Engine, http};

/// How long running requests have to end once the server stops; they are told to at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a server listens, and what it takes on.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address of Flight SQL; port 0 takes a free one.
    pub listen: String,
    /// Address of HTTP (health and metrics); port 0 takes a free one.
    pub http: String,
    /// Limits.
    pub limits: Limits,
}

/// Address of Flight SQL unless another is given.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:50051";
/// Address of HTTP unless another is given.
pub const DEFAULT_HTTP: &str = "127.0.0.1:8081";
/// How long a subscription that was cut off can be gone on with.
pub const SUBSCRIBE_RETENTION: Duration = Duration::from_secs(60);

impl Default for ServerConfig {
    fn default() -> Self {
        Self { listen: DEFAULT_LISTEN.into(), http: DEFAULT_HTTP.into(), limits: Limits::default() }
    }
}

/// A running server.
pub struct Server {
    engine: Arc<Engine>,
    flight: SocketAddr,
    http: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<Result<()>>>,
}

async fn bind(what: &str, address: &str) -> Result<(TcpListener, SocketAddr)> {
    let failed = |e: std::io::Error| {
        SpateError::new(ErrorKind::Io, format!("cannot listen on \"{address}\" for {what}: {e}"))
            .with_hint("an address is HOST:PORT; port 0 takes a free one")
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

impl Server {
    /// Starts to listen; returns once both addresses are bound.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub async fn start(engine: Arc<Engine>, config: ServerConfig) -> Result<Self> {
        let (flight_listener, flight) = bind("Flight SQL", &config.listen).await?;
        let (http_listener, http) = bind("HTTP", &config.http).await?;
        let (stop, stopping) = watch::channel(false);
        let shared = Shared::new(engine.clone(), config.limits, stopping)?;
        let tasks = vec![
            tokio::spawn(flight::serve(shared.clone(), flight_listener)),
            tokio::spawn(http::serve(shared, http_listener)),
        ];
        Ok(Self { engine, flight, http, stop, tasks })
    }

    /// Where Flight SQL is spoken, as a URL.
    pub fn flight_url(&self) -> String {
        format!("grpc://{}", self.flight)
    }

    /// Where HTTP is spoken, as a URL.
    pub fn http_url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Waits until a part of the server has failed.
    pub async fn failed(&mut self) -> SpateError {
        let ended = futures::future::select_all(self.tasks.iter_mut()).await.0;
        match ended {
            Ok(Err(e)) => e,
            Ok(Ok(())) => SpateError::internal("a part of the server has ended"),
            Err(e) => SpateError::internal(format!("a part of the server has ended: {e}")),
        }
    }

    /// Refuses new statements, ends running streams, and stops the engine.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let aborts: Vec<_> = self.tasks.iter().map(JoinHandle::abort_handle).collect();
        let all = futures::future::join_all(self.tasks);
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            tracing::warn!("some requests have not ended in {} s", PATIENCE.as_secs());
            for task in aborts {
                task.abort();
            }
        }
        self.engine.shutdown();
    }
}
