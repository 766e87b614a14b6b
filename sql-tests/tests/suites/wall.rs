//! An engine whose wall clock a test moves, and its answers as text.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use spate_engine::env::{Clock, SystemClock};
use spate_server::{Engine, EngineConfig, Outcome, Session};
use spate_sql_tests::driver::row_texts;

const DEADLINE: Duration = Duration::from_secs(600);

/// A wall clock that stands still until it is moved.
pub struct Wall {
    now_us: AtomicI64,
    real: SystemClock,
}

impl Wall {
    /// Goes forward.
    pub fn forward(&self, us: i64) {
        self.now_us.fetch_add(us, Ordering::SeqCst);
    }

    /// Shows this time.
    pub fn set(&self, us: i64) {
        self.now_us.store(us, Ordering::SeqCst);
    }
}

impl Clock for Wall {
    fn now_us(&self) -> i64 {
        self.now_us.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }
}

/// An engine at this time.
pub fn open(now_us: i64) -> (Arc<Engine>, Arc<Wall>) {
    let wall = Arc::new(Wall { now_us: AtomicI64::new(now_us), real: SystemClock::new() });
    let config = EngineConfig { threads: 2, epoch_interval: Duration::from_millis(10), ..EngineConfig::default() };
    (Engine::open_with_clock(config, wall.clone()).unwrap(), wall)
}

/// Runs a statement and gives its rows.
pub async fn run(session: &mut Session, sql: &str) -> Vec<String> {
    match session.execute(sql).await.unwrap_or_else(|e| panic!("{sql}\n{e}")) {
        Outcome::Done(_) => Vec::new(),
        Outcome::Rows(mut rows) => {
            let mut out = Vec::new();
            while let Some(b) = rows.stream.next().await {
                out.extend(row_texts(&b.unwrap()).unwrap());
            }
            out
        }
    }
}

/// Waits until a query gives these rows.
pub async fn becomes(session: &mut Session, sql: &str, want: &[&str]) {
    let started = Instant::now();
    loop {
        let rows = run(session, sql).await;
        if rows == want {
            return;
        }
        assert!(started.elapsed() < DEADLINE, "{sql}: {rows:?} instead of {want:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
