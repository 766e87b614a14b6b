//! A session end to end, in one process.
#![allow(clippy::unwrap_used, missing_docs)]

use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use spate_server::{Engine, EngineConfig, Outcome, Session};

async fn run(session: &mut Session, sql: &str) -> String {
    match session.execute(sql).await {
        Ok(Outcome::Done(tag)) => tag,
        Ok(Outcome::Rows(rows)) => {
            let batches: Vec<_> = rows.stream.try_collect().await.unwrap();
            pretty_format_batches(&batches).unwrap().to_string()
        }
        Err(e) => format!("error: {e} {:?}", e.hint()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_follows_its_table() {
    let engine = Engine::open(EngineConfig { threads: 2, ..EngineConfig::default() }).unwrap();
    let mut s = engine.session();
    for (sql, tag) in [
        ("CREATE TABLE t(k int primary key, v int)", "CREATE TABLE"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k%2 AS p, sum(v) AS s, count(*) AS c FROM t GROUP BY 1",
            "CREATE MATERIALIZED VIEW",
        ),
        ("INSERT INTO t VALUES (1,10),(2,20),(3,30)", "INSERT 0 3"),
        ("DELETE FROM t WHERE k=1", "DELETE 1"),
        ("UPDATE t SET v=5 WHERE k=2", "UPDATE 1"),
    ] {
        assert_eq!(run(&mut s, sql).await, tag, "{sql}");
    }
    let expected = "\
+---+----+---+
| p | s  | c |
+---+----+---+
| 0 | 5  | 1 |
| 1 | 30 | 1 |
+---+----+---+";
    assert_eq!(run(&mut s, "SELECT * FROM m ORDER BY p").await, expected);
    assert_eq!(engine.verify_views().await.unwrap(), 1);
}
