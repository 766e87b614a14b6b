//! Engines over a data directory that stop at any time, without warning, and go on.

use std::path::Path;
use std::time::Duration;

use spate_sql_tests::dml::{Dml, TABLES};
use spate_sql_tests::driver::{Answer, Driver};
use spate_sql_tests::views::closure;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn open(dir: &Path, parallelism: usize, checkpoint_ms: u64) -> Driver {
    Driver::durable(dir, parallelism, Duration::from_millis(checkpoint_ms)).await.unwrap()
}

/// Tables and views of all kinds, some made between crashes: after each, what was acknowledged is there, and every view
/// equals its query.
#[test]
fn tables_and_views_go_on() {
    runtime().block_on(async {
        for (seed, parallelism, checkpoint) in [(1, 1, 0), (2, 3, 30), (3, 2, 3_600_000)] {
            let dir = tempfile::tempdir().unwrap();
            let mut dml = Dml::new(8000 + seed, false);
            let views = closure(|v| !v.name.starts_with("t_") && dml.below(100) < 30);
            let rounds = 4;
            let mut made = 0;
            for round in 0..rounds {
                let mut d = open(dir.path(), parallelism, checkpoint).await;
                if round == 0 {
                    for t in TABLES {
                        d.run(t).await.unwrap();
                    }
                }
                d.run("FLUSH").await.unwrap();
                let n = d.verify().await.unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
                assert_eq!(n, made, "seed {seed}, round {round}");
                let until = views.len() * (round + 1) / rounds;
                for v in &views[made..until] {
                    d.run(&format!("CREATE MATERIALIZED VIEW {} AS {}", v.name, v.query)).await.unwrap();
                    if dml.below(3) == 0 {
                        d.answer(&dml.statement()).await;
                    }
                }
                made = until;
                let mut rows = Vec::new();
                for _ in 0..8 {
                    let sql = dml.statement();
                    if let Answer::Failed(e) = d.answer(&sql).await {
                        assert!(e.contains("duplicate key"), "{sql}: {e}");
                    }
                }
                for name in ["t", "u", "w", "ev"] {
                    rows.push(d.rows(name).await.unwrap());
                }
                // Gone in the middle of whatever it was doing.
                d.engine.shutdown();
                drop(d);
                let mut again = open(dir.path(), parallelism, checkpoint).await;
                for (name, before) in ["t", "u", "w", "ev"].iter().zip(&rows) {
                    assert_eq!(&again.rows(name).await.unwrap(), before, "seed {seed}, round {round}, {name}");
                }
            }
        }
    });
}

/// A query over a source writes files: after crashes at any time they hold what batch says, once.
#[test]
fn a_sink_has_every_row_once() {
    runtime().block_on(async {
        for (parallelism, checkpoint) in [(1, 0), (2, 50)] {
            let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let out = out.path().join("out");
            let mut first = true;
            let (mut ended, mut crashes) = (false, 0);
            for _ in 0..200 {
                let mut d = open(dir.path(), parallelism, checkpoint).await;
                if first {
                    d.run("SET background_ddl = true").await.unwrap();
                    d.run(
                        "CREATE SOURCE bid (auction bigint, bidder bigint, price bigint, date_time timestamp, WATERMARK FOR \
                         date_time AS date_time - INTERVAL '1 second') WITH (connector = 'nexmark', table = 'bid', \
                         events = 200000, rate = 100000)",
                    )
                    .await
                    .unwrap();
                    d.run(&format!(
                        "CREATE SINK s AS SELECT auction, window_start, count(*) AS c, sum(price) AS p FROM TUMBLE(bid, date_time, \
                         INTERVAL '1 second') GROUP BY auction, window_start EMIT ON WINDOW CLOSE WITH (connector = 'file', \
                         path = '{}', format = 'json')",
                        out.display()
                    ))
                    .await
                    .unwrap();
                    d.run("CREATE MATERIALIZED VIEW v AS SELECT auction, count(*) AS c FROM bid GROUP BY auction").await.unwrap();
                    first = false;
                }
                tokio::time::sleep(Duration::from_millis(150)).await;
                let jobs = d.rows("spate.jobs").await.unwrap();
                assert!(!jobs.iter().any(|j| j.contains("failed")), "{jobs:?}");
                crashes += 1;
                if jobs.iter().all(|j| j.contains("finished")) {
                    let batch = d.rows("(SELECT auction, count(*) AS c FROM bid GROUP BY auction) x").await.unwrap();
                    assert_eq!(d.rows("v").await.unwrap(), batch);
                    let query = "(SELECT auction, window_start, count(*) AS c, sum(price) AS p FROM \
                                 TUMBLE(bid, date_time, INTERVAL '1 second') GROUP BY auction, window_start) x";
                    let batch = d.rows(query).await.unwrap();
                    let create = format!(
                        "CREATE SOURCE o (auction bigint, window_start timestamp, c bigint, p bigint) WITH \
                         (connector = 'file', path = '{}/part-*', format = 'json')",
                        out.display()
                    );
                    d.run(&create).await.unwrap();
                    let written = d.rows("o").await.unwrap();
                    assert_eq!(written.len(), batch.len());
                    assert_eq!(written, batch);
                    ended = true;
                    break;
                }
                d.engine.shutdown();
            }
            assert!(ended, "it never ended");
            assert!(crashes > 3, "it was stopped only {crashes} times");
        }
    });
}
