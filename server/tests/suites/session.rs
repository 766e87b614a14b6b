//! A session end to end, in one process.

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

/// A sink that could not write used to stop without a word.
#[tokio::test(flavor = "multi_thread")]
async fn flush_tells_of_a_sink_that_has_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let config = EngineConfig { threads: 2, base_dir: Some(folder.path().to_owned()), ..EngineConfig::default() };
    let engine = Engine::open(config).unwrap();
    let mut s = engine.session();
    for (sql, tag) in [
        ("CREATE TABLE t (a int)", "CREATE TABLE"),
        (
            "CREATE SINK k FROM t WITH (connector = 'file', path = 'out', format = 'json', changelog = true)",
            "CREATE SINK",
        ),
        ("INSERT INTO t VALUES (1)", "INSERT 0 1"),
        ("FLUSH", "FLUSH"),
    ] {
        assert_eq!(run(&mut s, sql).await, tag, "{sql}");
    }
    // Where the folder was, there is a file.
    std::fs::remove_dir_all(folder.path().join("out")).unwrap();
    std::fs::write(folder.path().join("out"), "").unwrap();
    assert_eq!(run(&mut s, "INSERT INTO t VALUES (2)").await, "INSERT 0 1");
    let said = run(&mut s, "FLUSH").await;
    assert!(said.starts_with("error: sink \"k\" has stopped: "), "{said}");
    assert_eq!(run(&mut s, "DROP SINK k").await, "DROP SINK");
    assert_eq!(run(&mut s, "FLUSH").await, "FLUSH");
}

/// Planning does not wait for anything, so nothing but a look at its end stops it.
#[test]
fn a_statement_cancelled_while_it_is_planned_has_no_effect() {
    let runtime = spate_server::threads::runtime().unwrap();
    runtime.block_on(async {
        let engine = Engine::open(EngineConfig { threads: 2, ..EngineConfig::default() }).unwrap();
        let mut s = engine.session();
        assert_eq!(run(&mut s, "CREATE TABLE t (a int)").await, "CREATE TABLE");
        let sum = vec!["a"; 300].join(" + ");
        for create in ["CREATE MATERIALIZED VIEW v AS", "CREATE VIEW v AS", "INSERT INTO t"] {
            let handle = s.cancel_handle();
            let sql = format!("{create} SELECT {sum} AS b FROM t");
            let mut running = Box::pin(s.execute(&sql));
            let outcome = loop {
                tokio::select! {
                    outcome = &mut running => break outcome,
                    () = tokio::time::sleep(std::time::Duration::from_millis(20)) => handle.cancel(),
                }
            };
            let error = outcome.err().unwrap();
            assert_eq!(error.kind(), spate_engine::types::ErrorKind::Cancelled, "{create}: {error}");
            drop(running);
            // Waits for the same lock as the cancelled statement holds.
            assert_eq!(run(&mut s, "CREATE VIEW w AS SELECT a FROM t").await, "CREATE VIEW");
            assert_eq!(run(&mut s, "DROP VIEW w").await, "DROP VIEW");
            let gone = run(&mut s, "SELECT * FROM v").await;
            assert!(gone.contains("relation \"v\" does not exist"), "{create}: {gone}");
        }
    });
}
