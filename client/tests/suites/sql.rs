//! The `spate` command running SQL.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::server::signal;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spate"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn spate(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn prints(arguments: &[&str], expect: &str) {
    let output = spate(arguments);
    assert_eq!(text(&output.stdout), expect, "{}", text(&output.stderr));
    assert!(output.status.success());
}

const SHOP: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY, item TEXT, price NUMERIC(10,2));
    CREATE MATERIALIZED VIEW sales AS SELECT item, count(*) AS n, sum(price) AS total FROM orders GROUP BY item;
    INSERT INTO orders VALUES (1, 'tea', 2.50), (2, 'tea', 3.00), (3, 'cake', 4.00), (4, 'jam', 1.00);
    DELETE FROM orders WHERE id = 4;
    UPDATE orders SET price = 3.50 WHERE id = 2;
    FLUSH;
    SELECT * FROM sales ORDER BY item;";

#[test]
fn a_view_follows_its_table() {
    prints(
        &["-c", SHOP],
        "CREATE TABLE
CREATE MATERIALIZED VIEW
INSERT 0 4
DELETE 1
UPDATE 1
FLUSH
 item | n | total
------+---+-------
 cake | 1 |  4.00
 tea  | 2 |  6.00
(2 rows)

",
    );
}

#[test]
fn other_formats_print_results_only() {
    prints(&["-c", SHOP, "--format", "csv"], "item,n,total\ncake,1,4.00\ntea,2,6.00\n");
    prints(
        &["-c", SHOP, "--format", "ndjson"],
        "{\"item\":\"cake\",\"n\":1,\"total\":4.00}\n{\"item\":\"tea\",\"n\":2,\"total\":6.00}\n",
    );
    prints(&["-q", "-c", "CREATE TABLE t (a INT); SELECT 1 AS x"], " x\n---\n 1\n(1 row)\n\n");
}

#[test]
fn scripts_come_from_files_and_standard_input_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.sql");
    std::fs::write(&path, "SELECT 2 AS b;").unwrap();
    let path = path.to_str().unwrap();
    prints(&["--format", "csv", "-c", "SELECT 1 AS a", "-f", path, "-c", "SELECT 3 AS c"], "a\n1\nb\n2\nc\n3\n");
    let mut child = command(&["--format", "csv"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"-- nothing\nSELECT 'a;b' AS x;\n").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "x\na;b\n");
}

#[test]
fn the_first_error_stops_and_shows_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("q.sql");
    std::fs::write(&path, "CREATE TABLE bid (price INT);\nSELECT price\n  FROM bidd;\nSELECT 'not reached';\n")
        .unwrap();
    let output = spate(&["-f", path.to_str().unwrap()]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "CREATE TABLE\n");
    for part in ["error: ", "bidd", "q.sql:3:8\n", "3 |   FROM bidd;\n  |        ^\n", "hint: did you mean bid"] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn a_closed_pipe_is_success() {
    let ten = "(VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))";
    let sql = format!("SELECT repeat('x', 1000) FROM {ten} a, {ten} b, {ten} c, {ten} d");
    let mut child = command(&["--format", "csv", "-c", &sql]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn ctrl_c_ends_a_subscription() {
    let sql = "CREATE TABLE t (a INT); CREATE MATERIALIZED VIEW v AS SELECT a FROM t; \
               INSERT INTO t VALUES (7); FLUSH; SUBSCRIBE TO v";
    let mut child = command(&["--format", "csv", "-c", sql]).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            if sender.send(line.unwrap()).is_err() {
                break;
            }
        }
    });
    let next = || lines.recv_timeout(Duration::from_secs(60));
    assert_eq!(next().unwrap(), "a,__weight,__epoch");
    let row = next().unwrap();
    assert!(row.starts_with("7,1,"), "{row}");
    signal(&child, "-INT");
    // The output ends with the subscription: nothing more, and no time-out.
    assert_eq!(next(), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
}

#[test]
fn test_files_run_and_fail() {
    let folder = tempfile::tempdir().unwrap();
    let good = "statement ok\nCREATE TABLE t (a INT, b TEXT)\n\nstatement ok\nCREATE MATERIALIZED VIEW v AS SELECT b, sum(a) AS s FROM t GROUP BY b\n\n\
                statement count 3\nINSERT INTO t VALUES (1, 'x'), (2, NULL), (3, '')\n\nstatement ok\nFLUSH\n\n\
                query TI rowsort\nSELECT * FROM v\n----\n(empty) 3\nNULL 2\nx 1\n\nstatement error .*nope.*\nSELECT nope FROM t\n";
    let path = folder.path().join("good.slt");
    std::fs::write(&path, good).unwrap();
    let output = spate(&["slt", path.to_str().unwrap()]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.ends_with("1 file, 6 statements, 2 view checks: ok\n"), "{stdout}");

    std::fs::write(folder.path().join("bad.slt"), "query I\nSELECT 1\n----\n2\n").unwrap();
    let report = folder.path().join("report.xml");
    let output = spate(&["slt", folder.path().to_str().unwrap(), "--junit", report.to_str().unwrap()]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout.contains("-   2\n+   1") && stdout.ends_with(": 1 failed\n"), "{stdout}");
    assert!(std::fs::read_to_string(report).unwrap().contains("failures=\"1\""));

    let output = spate(&["slt", folder.path().join("bad.slt").to_str().unwrap(), "--complete"]);
    assert!(output.status.success());
    assert!(std::fs::read_to_string(folder.path().join("bad.slt")).unwrap().ends_with("----\n1\n"));
}
