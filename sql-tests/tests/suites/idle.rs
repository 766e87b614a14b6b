//! Watermarks of sources that fall silent, by a clock that the test moves.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use spate_server::Engine;

use crate::wall::{Wall, becomes, run};

const SECOND: i64 = 1_000_000;

/// Appends rows `(seconds, k)` to a file.
fn append(path: &Path, rows: &[(u32, i32)]) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for (s, k) in rows {
        writeln!(file, "2024-01-01 00:{:02}:{:02},{k}", s / 60, s % 60).unwrap();
    }
}

fn open() -> (Arc<Engine>, Arc<Wall>) {
    crate::wall::open(1_704_067_200 * SECOND)
}

fn source(name: &str, dir: &Path, options: &str) -> String {
    format!(
        "CREATE SOURCE {name} (ts timestamp, k int, WATERMARK FOR ts AS ts - INTERVAL '0 seconds') WITH (connector = 'file', path = '{}/*.csv', format = 'csv', header = false, mode = 'watch'{options})",
        dir.display()
    )
}

const CLOSED: &str = "SELECT window_end, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '10 seconds') GROUP BY window_end EMIT ON WINDOW CLOSE";

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_split_is_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.csv"), dir.path().join("b.csv"));
    append(&a, &[(1, 1), (100, 1)]);
    append(&b, &[(41, 2), (50, 2)]);
    let (engine, wall) = open();
    let s = &mut engine.session();
    run(s, "SET parallelism = 1").await;
    run(s, &source("s", dir.path(), ", idle_timeout = '10s'")).await;
    run(s, &format!("CREATE MATERIALIZED VIEW closed AS {CLOSED}")).await;
    run(s, "CREATE MATERIALIZED VIEW seen AS SELECT count(*) AS n FROM s").await;
    let closed = "SELECT n FROM closed ORDER BY window_end";
    becomes(s, "SELECT n FROM seen", &["4"]).await;
    // Both have just given something: the later one waits for the earlier one.
    becomes(s, closed, &["1", "1"]).await;
    wall.forward(5 * SECOND);
    append(&a, &[(105, 1)]);
    becomes(s, "SELECT n FROM seen", &["5"]).await;
    run(s, "FLUSH").await;
    assert_eq!(run(s, closed).await, ["1", "1"]);
    // Nothing comes now; that b is let go makes an epoch of its own.
    wall.forward(6 * SECOND);
    becomes(s, closed, &["1", "1", "1"]).await;
    // It wakes up: what is behind the watermark by now is late, and can be found.
    append(&b, &[(55, 2), (106, 2), (111, 2)]);
    becomes(s, "SELECT n FROM seen", &["7"]).await;
    becomes(s, "SELECT count(*) FROM spate.late_rows WHERE row LIKE '%00:00:55%'", &["2"]).await;
    append(&a, &[(120, 1)]);
    becomes(s, closed, &["1", "1", "1", "3"]).await;
    engine.verify_views().await.unwrap();
}

/// Tasks that have no split at all would hold the watermark back too.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_without_splits_are_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a.csv");
    append(&a, &[(1, 1), (100, 1)]);
    let (engine, wall) = open();
    let s = &mut engine.session();
    run(s, "SET parallelism = 3").await;
    run(s, &source("s", dir.path(), ", idle_timeout = '500 ms'")).await;
    run(s, &format!("CREATE MATERIALIZED VIEW closed AS {CLOSED}")).await;
    run(s, "CREATE MATERIALIZED VIEW seen AS SELECT count(*) AS n FROM s").await;
    becomes(s, "SELECT n FROM seen", &["2"]).await;
    run(s, "FLUSH").await;
    assert!(run(s, "SELECT n FROM closed").await.is_empty());
    wall.forward(SECOND);
    append(&a, &[(105, 1)]);
    becomes(s, "SELECT n FROM closed", &["1"]).await;
}

/// Without the option a silent split holds the watermark back, however long.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_timeout_a_silent_split_holds_the_watermark() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.csv"), dir.path().join("b.csv"));
    append(&a, &[(100, 1)]);
    append(&b, &[(41, 2), (50, 2)]);
    let (engine, wall) = open();
    let s = &mut engine.session();
    run(s, "SET parallelism = 1").await;
    run(s, &source("s", dir.path(), "")).await;
    run(s, &format!("CREATE MATERIALIZED VIEW closed AS {CLOSED}")).await;
    run(s, "CREATE MATERIALIZED VIEW seen AS SELECT count(*) AS n FROM s").await;
    becomes(s, "SELECT n FROM seen", &["3"]).await;
    for _ in 0..3 {
        wall.forward(100_000 * SECOND);
        append(&a, &[(200, 1)]);
        run(s, "FLUSH").await;
    }
    becomes(s, "SELECT n FROM seen", &["6"]).await;
    run(s, "FLUSH").await;
    assert_eq!(run(s, "SELECT n FROM closed").await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_source_follows_the_others() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (busy, silent) = (dirs[0].path().join("a.csv"), dirs[1].path().join("a.csv"));
    append(&busy, &[(5, 1), (45, 2)]);
    append(&silent, &[(6, 1), (20, 7)]);
    let (engine, wall) = open();
    let s = &mut engine.session();
    run(s, "SET parallelism = 1").await;
    run(s, &source("s", dirs[0].path(), ", idle_timeout = '1 min'")).await;
    run(s, &source("q", dirs[1].path(), ", idle_timeout = '10 s'")).await;
    let tumble = |t: &str| format!("TUMBLE({t}, ts, INTERVAL '10 seconds')");
    run(s, &format!("CREATE MATERIALIZED VIEW joined AS SELECT a.k, b.k AS bk FROM {} a LEFT JOIN {} b ON a.window_end = b.window_end EMIT ON WINDOW CLOSE", tumble("s"), tumble("q"))).await;
    run(s, &format!("CREATE MATERIALIZED VIEW both_sides AS SELECT window_end, count(*) AS n FROM {} GROUP BY window_end EMIT ON WINDOW CLOSE", tumble("(SELECT ts FROM s UNION ALL SELECT ts FROM q)"))).await;
    // The least of both watermarks: that of q, 20.
    becomes(s, "SELECT k, bk FROM joined", &["1|1"]).await;
    becomes(s, "SELECT n FROM both_sides", &["2"]).await;
    wall.forward(5 * SECOND);
    append(&busy, &[(65, 3)]);
    run(s, "FLUSH").await;
    assert_eq!(run(s, "SELECT k, bk FROM joined").await, ["1|1"]);
    wall.forward(6 * SECOND);
    becomes(s, "SELECT k, bk FROM joined ORDER BY k", &["1|1", "2|NULL"]).await;
    becomes(s, "SELECT n FROM both_sides ORDER BY window_end", &["2", "1", "1"]).await;
    // It goes on following, and is judged by that when it wakes up.
    append(&busy, &[(95, 4)]);
    becomes(s, "SELECT k, bk FROM joined ORDER BY k", &["1|1", "2|NULL", "3|NULL"]).await;
    append(&silent, &[(66, 8), (99, 9)]);
    becomes(s, "SELECT count(*) > 0 FROM spate.late_rows WHERE row LIKE '%00:01:06%'", &["true"]).await;
    append(&busy, &[(125, 5)]);
    append(&silent, &[(130, 10)]);
    becomes(s, "SELECT k, bk FROM joined ORDER BY k", &["1|1", "2|NULL", "3|NULL", "4|9"]).await;
}

/// Files that are there from the start hold the watermark back until they are looked into, and a
/// task without files holds nothing back.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_there_are_not_late() {
    for parallelism in [1, 2, 3, 5] {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.csv", "b.csv", "c.csv"] {
            append(&dir.path().join(name), &[(1, 1), (40, 1)]);
        }
        std::fs::write(dir.path().join("empty.csv"), "").unwrap();
        let (engine, _wall) = open();
        let s = &mut engine.session();
        run(s, &format!("SET parallelism = {parallelism}")).await;
        run(s, &source("s", dir.path(), "")).await;
        run(s, &format!("CREATE MATERIALIZED VIEW closed AS {CLOSED}")).await;
        becomes(s, "SELECT n FROM closed ORDER BY window_end", &["3"]).await;
        for name in ["a.csv", "b.csv", "c.csv"] {
            append(&dir.path().join(name), &[(70, 1)]);
        }
        becomes(s, "SELECT n FROM closed ORDER BY window_end", &["3", "3"]).await;
        assert_eq!(run(s, "SELECT count(*) FROM spate.late_rows").await, ["0"], "parallelism {parallelism}");
        engine.shutdown();
    }
}
