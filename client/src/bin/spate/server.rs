//! `spate server`: the engine behind Flight SQL and HTTP, until SIGTERM or Ctrl-C.

use std::io::Write;
use std::time::Duration;

use spate_engine::types::{Result, SpateError};
use spate_server::config::ConfigFile;
use spate_server::serve::{DEFAULT_HTTP, DEFAULT_LISTEN, SUBSCRIBE_RETENTION};
use spate_server::{Engine, EngineConfig, Server, ServerConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{ServerArgs, bytes};

/// Exit code 0 after a signal, 1 if the server fails.
pub fn run(args: &ServerArgs) -> u8 {
    match serve(args) {
        Ok(()) => 0,
        Err(e) => {
            crate::report(&e);
            crate::FAILURE
        }
    }
}

/// Flags and variables, then the file, then defaults.
fn settings(args: &ServerArgs) -> Result<(EngineConfig, ServerConfig)> {
    let file = match &args.config {
        Some(path) => ConfigFile::read(path)?,
        None => ConfigFile::default(),
    };
    let mut engine = EngineConfig { subscribe_retention: SUBSCRIBE_RETENTION, ..EngineConfig::default() };
    if let Some(n) = args.threads.or(file.threads) {
        if n == 0 {
            return Err(SpateError::invalid("threads must be at least 1"));
        }
        engine.threads = usize::from(n);
    }
    if let Some(ms) = args.epoch_interval.or(file.epoch_interval) {
        if ms == 0 {
            return Err(SpateError::invalid("epoch_interval must be at least 1 ms"));
        }
        engine.epoch_interval = Duration::from_millis(ms.into());
    }
    engine.data_dir = args.data_dir.clone().or(file.data_dir);
    if let Some(ms) = args.checkpoint_interval.or(file.checkpoint_interval) {
        if ms == 0 {
            return Err(SpateError::invalid("checkpoint_interval must be at least 1 ms"));
        }
        engine.checkpoint_interval = Duration::from_millis(ms.into());
    }
    engine.memory_limit = bytes(args.memory_limit.or(file.memory_limit)).unwrap_or(engine.memory_limit);
    let query = args.query_memory_limit.or(file.query_memory_limit);
    engine.query_memory_limit = bytes(query).unwrap_or(engine.query_memory_limit);
    let text = |flag: &Option<String>, file: Option<String>, default: &str| {
        flag.clone().or(file).unwrap_or_else(|| default.to_owned())
    };
    let mut server = ServerConfig {
        listen: text(&args.listen, file.listen, DEFAULT_LISTEN),
        http: text(&args.http, file.http, DEFAULT_HTTP),
        ..ServerConfig::default()
    };
    if let Some(n) = args.max_sessions.or(file.max_sessions) {
        server.limits.sessions = usize::try_from(n).unwrap_or(usize::MAX).max(1);
    }
    if let Some(s) = args.session_timeout.or(file.session_timeout) {
        server.limits.session_idle = Duration::from_secs(s.into());
    }
    Ok((engine, server))
}

fn serve(args: &ServerArgs) -> Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let (engine, server) = settings(args)?;
    let runtime = spate_server::threads::runtime()?;
    let done = runtime.block_on(async {
        // Before the addresses are told: whoever reads them may already send a signal.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut server = Server::start(Engine::open(engine)?, server).await?;
        let mut out = std::io::stdout();
        // Nobody needs to read it.
        let _ =
            writeln!(out, "flight: {}\nhttp: {}", server.flight_url(), server.http_url()).and_then(|()| out.flush());
        let failed = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            e = server.failed() => Some(e),
        };
        server.stop().await;
        failed.map_or(Ok(()), Err)
    });
    runtime.shutdown_timeout(Duration::from_secs(2));
    done
}
