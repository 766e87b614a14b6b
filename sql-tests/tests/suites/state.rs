//! State that a watermark frees stays as it is, however many windows go by.

use std::fmt::Write;

use spate_server::{Engine, EngineConfig, Outcome, Session};

/// Windows that go by, and rows in each.
const WINDOWS: u32 = 90;
const ROWS: u32 = 90;

/// Queries over the streams `l` and `r` whose state is bounded by open windows.
const BOUNDED: &[&str] = &[
    "SELECT k, window_end, count(*) AS n, count(DISTINCT v) AS d, min(v) AS m, string_agg(t, ',' ORDER BY v) AS s FROM TUMBLE(l, ts, INTERVAL '10 seconds') GROUP BY k, window_end",
    "SELECT window_start, sum(v) AS s FROM HOP(l, ts, INTERVAL '5 seconds', INTERVAL '20 seconds') GROUP BY window_start EMIT ON WINDOW CLOSE",
    "SELECT k, window_end, count(*) AS n FROM SESSION(l PARTITION BY k, ts, INTERVAL '100 milliseconds') GROUP BY k, window_end EMIT ON WINDOW CLOSE",
    "SELECT v, sum(v) OVER (PARTITION BY window_end, k ORDER BY v) AS s FROM TUMBLE(l, ts, INTERVAL '10 seconds')",
    "SELECT v, sum(v) OVER (PARTITION BY k, window_end ORDER BY v) AS s FROM TUMBLE(l, ts, INTERVAL '10 seconds') EMIT ON WINDOW CLOSE",
    "SELECT k, v FROM TUMBLE(l, ts, INTERVAL '10 seconds') QUALIFY rank() OVER (PARTITION BY window_end, k ORDER BY v) <= 3",
    "SELECT k, n FROM (SELECT k, window_end, count(*) AS n FROM TUMBLE(l, ts, INTERVAL '10 seconds') GROUP BY k, window_end) x QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY n DESC) <= 3 EMIT ON WINDOW CLOSE",
    "SELECT l.v, r.v AS w FROM l LEFT JOIN r ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '100 milliseconds'",
    "SELECT l.v FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '3 seconds')",
    "SELECT a.v, b.v AS w FROM TUMBLE(l, ts, INTERVAL '1 second') a FULL JOIN TUMBLE(r, ts, INTERVAL '1 second') b ON a.v = b.v AND a.window_end = b.window_end EMIT ON WINDOW CLOSE",
    "SELECT a.v FROM TUMBLE(l, ts, INTERVAL '10 seconds') a WHERE EXISTS (SELECT 1 FROM TUMBLE(r, ts, INTERVAL '10 seconds') b WHERE a.k = b.k AND a.window_end = b.window_end)",
    "SELECT l.v, r.v AS w FROM l ASOF LEFT JOIN r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k",
    "SELECT l.v, r.v AS w FROM l ASOF JOIN r MATCH_CONDITION (l.ts < r.ts) ON l.k = r.k",
    "SELECT l.v, r.v AS w FROM l ASOF LEFT JOIN r MATCH_CONDITION (l.ts > r.ts) ON l.k = r.k EMIT ON WINDOW CLOSE",
    "SELECT l.v, r.v AS w FROM l ASOF LEFT JOIN r MATCH_CONDITION (l.ts <= r.ts) ON l.k = r.k EMIT ON WINDOW CLOSE",
    "SELECT DISTINCT window_end, v FROM TUMBLE(l, ts, INTERVAL '10 seconds')",
    "SELECT DISTINCT window_end, v FROM TUMBLE(l, ts, INTERVAL '10 seconds') EMIT ON WINDOW CLOSE",
];

/// Queries that need all rows for ever: what shows that growth is seen.
const UNBOUNDED: &[&str] = &[
    "SELECT v, count(*) AS n FROM l GROUP BY v",
    "SELECT l.v, r.v AS w FROM l JOIN r ON l.v = r.v",
    "SELECT l.v, r.v AS w FROM l ASOF JOIN r MATCH_CONDITION (l.v >= r.v) ON l.k = r.k",
    "SELECT DISTINCT v FROM l",
    "SELECT v, sum(v) OVER (PARTITION BY k ORDER BY ts, v ROWS 3 PRECEDING) AS s FROM l",
];

async fn run(session: &mut Session, sql: &str) {
    match session.execute(sql).await.unwrap_or_else(|e| panic!("{sql}\n{e}")) {
        Outcome::Done(_) => {}
        Outcome::Rows(_) => panic!("{sql} gives rows"),
    }
}

/// Rows of one window of 10 seconds, in order of time.
fn rows(window: u32) -> String {
    let mut out = String::new();
    for i in 0..ROWS {
        let ms = window * 10_000 + i * 10_000 / ROWS;
        let comma = if i > 0 { ", " } else { "" };
        let (minute, second, ms) = (ms / 60_000, ms / 1000 % 60, ms % 1000);
        let row = window * ROWS + i;
        let _ = write!(out, "{comma}('2024-01-01 00:{minute:02}:{second:02}.{ms:03}', {}, {row}, 't{}')", i % 5, i % 7);
    }
    out
}

/// The bytes of state after each window.
async fn sizes(query: &str) -> Vec<usize> {
    let engine = Engine::open(EngineConfig { threads: 2, ..EngineConfig::default() }).unwrap();
    let s = &mut engine.session();
    for table in ["l", "r"] {
        run(s, &format!("CREATE TABLE {table} (ts timestamp, k int, v int, t text, WATERMARK FOR ts AS ts - INTERVAL '1 second') APPEND ONLY")).await;
    }
    // A view would keep its rows, which count too.
    run(s, &format!("CREATE SINK q AS {query} WITH (connector = 'blackhole')")).await;
    let mut sizes = Vec::new();
    for window in 0..WINDOWS {
        let rows = rows(window);
        for table in ["l", "r"] {
            run(s, &format!("INSERT INTO {table} VALUES {rows}")).await;
        }
        run(s, "FLUSH").await;
        sizes.push(engine.state_bytes());
    }
    sizes
}

/// The least and the most of some windows.
fn bounds(sizes: &[usize], windows: std::ops::Range<usize>) -> (usize, usize) {
    let some = &sizes[windows];
    (*some.iter().min().unwrap(), *some.iter().max().unwrap())
}

/// What is freed goes in pieces, so that state rises and falls; what is never freed only rises.
#[tokio::test(flavor = "multi_thread")]
async fn windows_that_have_closed_leave_nothing() {
    for query in BOUNDED {
        let sizes = sizes(query).await;
        let ((_, most), (least, _)) = (bounds(&sizes, 10..50), bounds(&sizes, 50..90));
        assert!(most > 0, "{query} keeps nothing at all");
        assert!(least <= most, "{query}: at most {most} bytes, then at least {least}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_grows_is_seen() {
    for query in UNBOUNDED {
        let sizes = sizes(query).await;
        // Room is made for twice as many, so it takes so many more to see it.
        let ((_, most), (least, _)) = (bounds(&sizes, 10..30), bounds(&sizes, 65..90));
        assert!(least > most, "{query}: {most} bytes, and only {least} after more windows");
    }
}
