//! The tour of the README, statement by statement, with the results that it promises; and what it
//! relies on: windows over a table with a watermark.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use spate_server::{Engine, EngineConfig, Outcome, Session};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn engine(threads: usize) -> Arc<Engine> {
    let config = EngineConfig { threads, base_dir: Some(root()), record_sources: true, ..EngineConfig::default() };
    Engine::open(config).unwrap()
}

/// Cells of the rows, or the command tag.
async fn run(session: &mut Session, sql: &str) -> Result<Vec<Vec<String>>, String> {
    match session.execute(sql).await.map_err(|e| format!("{e}\n{sql}"))? {
        Outcome::Done(tag) => Ok(vec![vec![tag]]),
        Outcome::Rows(rows) => {
            let batches: Vec<_> = rows.stream.try_collect().await.map_err(|e| format!("{e}\n{sql}"))?;
            let text = pretty_format_batches(&batches).unwrap().to_string();
            let lines = text.lines().filter(|l| l.starts_with('|')).skip(1);
            Ok(lines.map(|l| l.trim_matches('|').split(" | ").map(|c| c.trim().to_owned()).collect()).collect())
        }
    }
}

async fn tour(threads: usize) -> Vec<(String, Vec<Vec<String>>)> {
    let text = std::fs::read_to_string(root().join("examples/tour.sql")).unwrap();
    let engine = engine(threads);
    let mut session = engine.session();
    let mut out = Vec::new();
    for range in Session::split(&text).unwrap() {
        let sql = &text[range];
        let rows = run(&mut session, sql).await.unwrap();
        if std::env::var_os("SHOW_TOUR").is_some() {
            println!("{sql}\n{rows:#?}");
        }
        out.push((sql.to_owned(), rows));
    }
    assert_eq!(engine.verify_views().await.unwrap(), 6, "views that equal their queries");
    out
}

/// Results of the statements that contain `part`, in order.
fn of<'a>(tour: &'a [(String, Vec<Vec<String>>)], part: &str) -> Vec<&'a Vec<Vec<String>>> {
    let found: Vec<_> = tour.iter().filter(|(sql, _)| sql.contains(part)).map(|(_, rows)| rows).collect();
    assert!(!found.is_empty(), "no statement of the tour contains {part}");
    found
}

fn cells(rows: &[&[&str]]) -> Vec<Vec<String>> {
    rows.iter().map(|r| r.iter().map(|c| (*c).to_owned()).collect()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_shows_what_it_says() {
    let tour = tour(2).await;

    let copies: Vec<_> = of(&tour, "COPY flights").into_iter().map(|r| r[0][0].clone()).collect();
    // The second day has 935 lines: one is cut off and one is late.
    assert_eq!(copies, ["COPY 836", "COPY 933", "COPY 903"]);

    let dead = of(&tour, "spate.dead_letters");
    assert_eq!(dead[0].len(), 1, "{dead:?}");
    assert_eq!(dead[0][0][0], "COPY flights");
    assert!(dead[0][0][2].starts_with(r#"{"departed":"2013-01-02 05:35:00","carrier":"AA","flight":1141"#), "{dead:?}");

    let late = of(&tour, "spate.late_rows");
    assert_eq!(late[0].len(), 1, "{late:?}");
    assert_eq!(late[0][0][0], "flights");
    assert!(late[0][0][1].contains("N14228"), "{late:?}");

    let closed = of(&tour, "last_closed_hour");
    assert!(closed[0][0][0].starts_with("2013-01-01T"), "{closed:?}");
    assert!(closed[1][0][0].starts_with("2013-01-02T"), "{closed:?}");

    // Before and after the UPDATE: two airlines, then one with the flights of both.
    let american = of(&tour, "LIKE 'American%'");
    assert_eq!((american[0].len(), american[1].len()), (2, 1));
    let count = |row: &[String]| row[1].parse::<u64>().unwrap();
    assert_eq!(count(&american[0][0]) + count(&american[0][1]), count(&american[1][0]));

    let top = of(&tour, "FROM top_per_hour");
    let places: Vec<&str> = top[0].iter().map(|r| r[3].as_str()).collect();
    assert_eq!(places, ["1", "2", "1", "2", "1", "2"]);

    let jobs = of(&tour, "spate.jobs");
    assert_eq!(jobs[0].len(), 6);
    assert!(jobs[0].iter().all(|j| j[1] == "running"), "{jobs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_does_not_depend_on_threads() {
    assert_eq!(tour(1).await, tour(4).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_of_the_tour_has_a_comment_or_is_a_copy_or_select() {
    let text = std::fs::read_to_string(root().join("examples/tour.sql")).unwrap();
    for range in Session::split(&text).unwrap() {
        let sql = &text[range.clone()];
        if sql.starts_with("SELECT") || sql.starts_with("COPY") {
            continue;
        }
        let before = text[..range.start].lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default();
        assert!(before.starts_with("--") || before.starts_with("COPY"), "no comment above: {sql}");
    }
}

/// A table's rows used to close no windows: the planner did not know that its barriers carry its
/// watermark, and refused the query.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_a_watermark_closes_windows_and_keeps_late_rows_aside() {
    let engine = engine(2);
    let mut s = engine.session();
    for sql in [
        "CREATE TABLE e (at timestamp, v int, WATERMARK FOR at AS at - INTERVAL '5 seconds') APPEND ONLY",
        "CREATE MATERIALIZED VIEW w AS SELECT window_start, count(*) AS n FROM TUMBLE(e, at, INTERVAL '10 seconds') \
         GROUP BY window_start, window_end EMIT ON WINDOW CLOSE",
        "INSERT INTO e VALUES ('2024-01-01 00:00:01', 1), ('2024-01-01 00:00:09', 2)",
    ] {
        run(&mut s, sql).await.unwrap();
    }
    let closed = "SELECT CAST(window_start AS text), n FROM w ORDER BY 1";
    assert_eq!(run(&mut s, closed).await.unwrap(), cells(&[]));
    // The watermark is at 00:00:04: not late yet.
    run(&mut s, "INSERT INTO e VALUES ('2024-01-01 00:00:05', 3), ('2024-01-01 00:00:15', 4)").await.unwrap();
    assert_eq!(run(&mut s, closed).await.unwrap(), cells(&[&["2024-01-01T00:00:00", "3"]]));
    // Now it is at 00:00:10.
    assert_eq!(
        run(&mut s, "INSERT INTO e VALUES ('2024-01-01 00:00:09', 5)").await.unwrap(),
        cells(&[&["INSERT 0 0"]])
    );
    assert_eq!(run(&mut s, closed).await.unwrap(), cells(&[&["2024-01-01T00:00:00", "3"]]));
    assert_eq!(run(&mut s, "SELECT source FROM spate.late_rows").await.unwrap(), cells(&[&["e"]]));
    assert_eq!(engine.verify_views().await.unwrap(), 1);
}

/// A statement that fails must not move the watermark: its rows never came.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_insert_does_not_move_the_watermark() {
    let engine = engine(1);
    let mut s = engine.session();
    for sql in [
        "CREATE TABLE e (k int PRIMARY KEY, at timestamp, WATERMARK FOR at AS at)",
        "INSERT INTO e VALUES (1, '2024-01-01 00:00:01')",
    ] {
        run(&mut s, sql).await.unwrap();
    }
    let error = run(&mut s, "INSERT INTO e VALUES (1, '2024-01-01 01:00:00')").await.unwrap_err();
    assert!(error.contains("duplicate key"), "{error}");
    run(&mut s, "INSERT INTO e VALUES (2, '2024-01-01 00:00:02')").await.unwrap();
    run(&mut s, "INSERT INTO e VALUES (3, '2024-01-01 00:00:03')").await.unwrap();
    assert_eq!(run(&mut s, "SELECT count(*) FROM e").await.unwrap(), cells(&[&["3"]]));
}
