//! HTTP: whether the server lives (`/healthz`), takes statements (`/readyz`), and how it fares
//! (`/metrics`).

mod metrics;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use spate_engine::types::{Result, SpateError};
use tokio::net::TcpListener;

use crate::flight::connection::{Bounded, Connections};
use crate::flight::{Shared, stops};

/// Connections at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 256;

/// Serves until the server stops.
///
/// # Errors
/// When the listener fails.
pub async fn serve(shared: Arc<Shared>, listener: TcpListener) -> Result<()> {
    let mut stopping = shared.stopping.clone();
    let listener = Bounded { listener, connections: Connections::new(MAX_CONNECTIONS), shared: shared.clone() };
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(shared);
    let served = axum::serve(listener, router).with_graceful_shutdown(async move {
        stops(&mut stopping).await;
    });
    served.await.map_err(|e| SpateError::from(e).context("the HTTP service has failed"))
}

async fn ready(State(shared): State<Arc<Shared>>) -> (StatusCode, &'static str) {
    if *shared.stopping.borrow() {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::text(&shared)).into_response()
}
