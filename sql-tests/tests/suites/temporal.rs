//! Temporal filters by the clock: one that the test moves, and the real one while nothing else
//! happens.

use std::time::Duration;

use spate_server::{Engine, EngineConfig};

use crate::wall::{becomes, open, run};

/// 2024-01-01 00:00:00 UTC.
const START: i64 = 1_704_067_200_000_000;
const HOUR: i64 = 3_600_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn rows_enter_and_leave_as_the_clock_moves() {
    for parallelism in [1, 3] {
        let (engine, wall) = open(START);
        let s = &mut engine.session();
        run(s, &format!("SET parallelism = {parallelism}")).await;
        run(s, "CREATE TABLE t (id int PRIMARY KEY, ts timestamp)").await;
        run(s, "CREATE TABLE u (id int, until timestamptz)").await;
        for v in [
            "last_hour AS SELECT id FROM t WHERE ts > now() - INTERVAL '1 hour' AND ts <= now()",
            "ahead AS SELECT id FROM t WHERE ts BETWEEN now() AND now() + INTERVAL '30 minutes'",
            "counted AS SELECT count(*) AS c FROM t WHERE now() - INTERVAL '2 hours' < ts",
            "joined AS SELECT t.id, u.id AS uid FROM t JOIN u ON t.id = u.id AND u.until > now()",
            "older AS SELECT id FROM t WHERE ts < now() AND ts < now() - INTERVAL '90 minutes'",
        ] {
            run(s, &format!("CREATE MATERIALIZED VIEW {v}")).await;
        }
        run(s, "INSERT INTO t VALUES (1, '2023-12-31 23:30:00'), (2, '2024-01-01 00:20:00'), (3, '2024-01-01 03:00:00'), (4, NULL)").await;
        run(s, "INSERT INTO u VALUES (1, '2024-01-01 00:10:00Z'), (2, '2024-01-01 04:00:00Z'), (2, '2024-01-01 04:00:00Z')").await;
        becomes(s, "SELECT id FROM last_hour ORDER BY id", &["1"]).await;
        becomes(s, "SELECT id FROM ahead ORDER BY id", &["2"]).await;
        becomes(s, "SELECT c FROM counted", &["3"]).await;
        becomes(s, "SELECT id, uid FROM joined ORDER BY id", &["1|1", "2|2", "2|2"]).await;
        engine.verify_views().await.unwrap();

        wall.set(START + HOUR / 2);
        run(s, "FLUSH").await;
        becomes(s, "SELECT id FROM last_hour ORDER BY id", &["2"]).await;
        becomes(s, "SELECT id FROM ahead ORDER BY id", &[]).await;
        becomes(s, "SELECT id, uid FROM joined ORDER BY id", &["2|2", "2|2"]).await;
        engine.verify_views().await.unwrap();

        // What left and is taken back is no concern; what waits can be taken back, too.
        run(s, "DELETE FROM t WHERE id = 1").await;
        run(s, "UPDATE t SET ts = ts - INTERVAL '1 hour' WHERE id = 3").await;
        run(s, "DELETE FROM u WHERE id = 2").await;
        engine.verify_views().await.unwrap();

        wall.set(START + 2 * HOUR);
        run(s, "FLUSH").await;
        becomes(s, "SELECT id FROM last_hour ORDER BY id", &["3"]).await;
        becomes(s, "SELECT c FROM counted", &["2"]).await;
        becomes(s, "SELECT id FROM older ORDER BY id", &["2"]).await;
        engine.verify_views().await.unwrap();

        wall.set(START + 100 * HOUR);
        run(s, "FLUSH").await;
        becomes(s, "SELECT c FROM counted", &["0"]).await;
        becomes(s, "SELECT id FROM older ORDER BY id", &["2", "3"]).await;
        run(s, "DELETE FROM t").await;
        engine.verify_views().await.unwrap();
        assert!(run(s, "SELECT id FROM older").await.is_empty());
        engine.shutdown();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_leaves_though_nothing_else_happens() {
    let config = EngineConfig { threads: 2, epoch_interval: Duration::from_millis(10), ..EngineConfig::default() };
    let engine = Engine::open(config).unwrap();
    let s = &mut engine.session();
    run(s, "CREATE TABLE t (id int, ts timestamptz)").await;
    run(s, "CREATE MATERIALIZED VIEW v AS SELECT id FROM t WHERE ts > now() - INTERVAL '1 hour'").await;
    run(s, "CREATE MATERIALIZED VIEW w AS SELECT id FROM t WHERE ts < now() - INTERVAL '1 hour'").await;
    run(s, "INSERT INTO t SELECT 1, now() - INTERVAL '1 hour' + INTERVAL '700 milliseconds'").await;
    becomes(s, "SELECT id FROM v", &["1"]).await;
    // Reading asks for no tick.
    becomes(s, "SELECT id FROM v", &[]).await;
    becomes(s, "SELECT id FROM w", &["1"]).await;
    engine.verify_views().await.unwrap();
    engine.shutdown();
}
