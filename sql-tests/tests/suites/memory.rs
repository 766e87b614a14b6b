//! Queries that need more memory than there may be: they stop with an error that says why, and nothing else does.

use std::sync::Arc;
use std::time::Duration;

use spate_engine::types::{ErrorKind, SpateError};
use spate_server::{Engine, EngineConfig, Outcome, Session};

use crate::wall::{becomes, run};

const MIB: usize = 1 << 20;

fn open(memory_limit: usize, query_memory_limit: usize) -> Arc<Engine> {
    let config = EngineConfig {
        threads: 2,
        epoch_interval: Duration::from_millis(10),
        memory_limit,
        query_memory_limit,
        ..EngineConfig::default()
    };
    Engine::open(config).unwrap()
}

async fn fails(s: &mut Session, sql: &str) -> SpateError {
    use futures::TryStreamExt;
    match s.execute(sql).await {
        Err(e) => e,
        Ok(Outcome::Done(_)) => panic!("{sql} goes through"),
        Ok(Outcome::Rows(rows)) => match rows.stream.try_collect::<Vec<_>>().await {
            Err(e) => e,
            Ok(_) => panic!("{sql} goes through"),
        },
    }
}

/// Creates a sink, which stops; its error names the limit and the operator that keeps most.
async fn stops(s: &mut Session, query: &str, largest: &str) {
    run(s, &format!("CREATE SINK out AS {query} WITH (connector = 'blackhole')")).await;
    becomes(s, "SELECT state FROM spate.jobs WHERE name = 'out'", &["'failed'"]).await;
    is_told(&run(s, "SELECT error FROM spate.jobs WHERE name = 'out'").await.join(""), largest);
    run(s, "DROP SINK out").await;
}

fn is_told(error: &str, largest: &str) {
    let told = format!("more than memory_limit (32 MiB); the largest is that of {largest}");
    assert!(error.contains(&told), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_over_the_limit_stops_and_others_go_on() {
    let engine = open(32 * MIB, 64 * MIB);
    let s = &mut engine.session();
    run(s, "CREATE TABLE t (k bigint PRIMARY KEY, v bigint)").await;
    run(s, "CREATE MATERIALIZED VIEW sums AS SELECT k % 3 AS g, sum(v) AS v FROM t GROUP BY 1").await;
    run(s, "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)").await;
    let made = "WITH (connector = 'datagen', rows = 3000000, fields.id.kind = 'sequence')";
    run(s, &format!("CREATE SOURCE many (id bigint) {made}")).await;
    // Within one long epoch too: a bounded source is read in bulk.
    for (query, largest) in [
        ("SELECT id, count(*) AS n FROM many GROUP BY id", "Aggregate"),
        ("SELECT DISTINCT id FROM many", "Distinct"),
        ("SELECT a.id FROM many a JOIN many b ON a.id = b.id + 1 WHERE a.id > 0", "Join"),
    ] {
        stops(s, query, largest).await;
    }
    // A view itself is what it keeps; one that could not be filled is not there.
    let view = "CREATE MATERIALIZED VIEW all_ids AS SELECT id, id * 2 AS a, id * 3 AS b FROM many";
    is_told(fails(s, view).await.message(), "Materialize");
    run(s, "INSERT INTO t VALUES (4, 40)").await;
    becomes(s, "SELECT v FROM sums ORDER BY g", &["30", "50", "20"]).await;
    engine.verify_views().await.unwrap();
    // What a stopped query held is free again.
    run(s, "CREATE SOURCE few (id bigint) WITH (connector = 'datagen', rows = 1000, fields.id.kind = 'sequence')")
        .await;
    run(s, "CREATE MATERIALIZED VIEW few_ids AS SELECT id, count(*) AS n FROM few GROUP BY id").await;
    becomes(s, "SELECT count(*) FROM few_ids", &["1000"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_select_over_the_limit_fails_and_the_next_one_does_not() {
    let engine = open(1024 * MIB, 8 * MIB);
    let s = &mut engine.session();
    run(s, "CREATE SOURCE many (id bigint) WITH (connector = 'datagen', rows = 2000000, fields.id.kind = 'sequence')")
        .await;
    let e = fails(s, "SELECT count(*) FROM many a JOIN many b ON a.id * 2 = b.id").await;
    assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
    assert!(e.hint().is_some_and(|h| h.contains("query_memory_limit")), "{e} {:?}", e.hint());
    becomes(s, "SELECT count(*) FROM many WHERE id < 10", &["10"]).await;
}
