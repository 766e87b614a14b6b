//! `spate server` as a process, and `spate -u` as its client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SPATE: &str = env!("CARGO_BIN_EXE_spate");

/// A server process, ended with the test.
struct Process {
    child: Child,
    flight: String,
    http: String,
}

impl Process {
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(SPATE);
        command.arg("server").args(arguments).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = |name: &str| {
            let line = lines.next().expect("an address").unwrap();
            line.strip_prefix(name).unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        Self { flight: line("flight: "), http: line("http: "), child }
    }

    fn free() -> Self {
        Self::start(&["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"], &[])
    }

    fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// The exit code, within a time.
    fn wait(&mut self) -> Option<i32> {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server has not ended");
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.http.strip_prefix("http://").unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// Sends a signal, with a shell's own `kill`: a machine may have no program of this name.
pub fn signal(child: &Child, name: &str) {
    let kill = format!("kill {name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spate(arguments: &[&str], stdin: &str) -> Output {
    let mut command = Command::new(SPATE);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that fails early does not read.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_client_runs_scripts_on_a_server() {
    let mut server = Process::free();
    let url = server.flight.clone();
    let made = spate(
        &["-u", &url, "-c", "CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (1, 'a');"],
        "",
    );
    assert_eq!(text(&made.stdout), "CREATE TABLE\nINSERT 0 1\n", "{}", text(&made.stderr));
    let read =
        spate(&["-u", &url, "--format", "csv"], "INSERT INTO t VALUES (2, 'b');\nSELECT * FROM t ORDER BY id;\n");
    assert_eq!(text(&read.stdout), "id,name\n1,a\n2,b\n", "{}", text(&read.stderr));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q.sql");
    std::fs::write(&file, "SELECT 1 AS a;\n\nSELECT nope\nFROM t;\n").unwrap();
    let failed = spate(&["-u", &url, "-f", file.to_str().unwrap()], "");
    assert_eq!(failed.status.code(), Some(1));
    let stderr = text(&failed.stderr);
    assert!(stderr.contains("q.sql:3:8") && stderr.contains("3 | SELECT nope"), "{stderr}");
    let nobody = spate(&["-u", "grpc://127.0.0.1:1", "-c", "SELECT 1"], "");
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stderr).contains("cannot reach grpc://127.0.0.1:1"), "{}", text(&nobody.stderr));

    let slt = folder.path().join("a.slt");
    std::fs::write(
        &slt,
        "statement ok\nCREATE TABLE x (a int, b text)\n\nstatement ok\nCREATE MATERIALIZED VIEW v AS SELECT b, sum(a) AS s FROM x GROUP BY b\n\n\
         statement count 2\nINSERT INTO x VALUES (1, 'p'), (2, 'p')\n\nstatement ok\nFLUSH\n\nquery TI\nSELECT * FROM v\n----\np 3\n",
    )
    .unwrap();
    let refused = spate(&["slt", slt.to_str().unwrap(), "-u", &url], "");
    assert!(text(&refused.stdout).contains("the server is not empty: it has TABLE"), "{}", text(&refused.stdout));
    spate(&["-u", &url, "-c", "DROP TABLE t"], "");
    let ran = spate(&["slt", slt.to_str().unwrap(), "-u", &url], "");
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
    assert!(text(&ran.stdout).contains("2 view checks: ok"), "{}", text(&ran.stdout));
    let left = spate(&["-u", &url, "-c", "SHOW TABLES"], "");
    assert!(text(&left.stdout).contains("(0 rows)"), "{}", text(&left.stdout));
    server.signal("-INT");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_signal_ends_streams_and_the_server() {
    let mut server = Process::free();
    let url = server.flight.clone();
    assert!(server.get("/healthz").contains("200 OK") && server.get("/readyz").contains("200 OK"));
    spate(&["-u", &url, "-c", "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (7);"], "");
    let metrics = server.get("/metrics");
    for part in ["# TYPE spate_statements_total counter", "spate_jobs{state=\"running\"}", "spate_visible_epoch"] {
        assert!(metrics.contains(part), "no {part}: {metrics}");
    }
    assert!(server.get("/nothing").contains("404"));
    let mut subscriber = Command::new(SPATE);
    subscriber.args(["-u", &url, "-c", "SUBSCRIBE TO t", "--format", "ndjson"]);
    let mut subscriber = subscriber.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut rows = BufReader::new(subscriber.stdout.take().unwrap()).lines();
    assert!(rows.next().unwrap().unwrap().contains("\"id\":7"));
    server.signal("-TERM");
    assert_eq!(server.wait(), Some(0));
    let output = subscriber.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the server is shutting down"), "{}", text(&output.stderr));
}

#[test]
fn flags_come_before_variables_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spate.toml");
    std::fs::write(&file, "listen = '127.0.0.1:1'\nhttp = '127.0.0.1:0'\nthreads = 3\nepoch_interval = 70\n").unwrap();
    let config = file.to_str().unwrap();
    let free = [("SPATE_LISTEN", "127.0.0.1:0"), ("SPATE_THREADS", "2")];
    let server = Process::start(&["--config", config, "--epoch-interval", "50"], &free);
    let shown = |name: &str| {
        let output = spate(&["-u", &server.flight, "--format", "csv", "-c", &format!("SHOW {name}")], "");
        text(&output.stdout).lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!((shown("parallelism"), shown("epoch_interval")), ("2".into(), "50 ms".into()));
    std::fs::write(&file, "listne = 'x'\n").unwrap();
    let wrong = spate(&["server", "--config", config], "");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("unknown field `listne`"), "{}", text(&wrong.stderr));
    let taken = server.flight.replace("grpc://", "");
    let twice = spate(&["server", "--listen", &taken, "--http", "127.0.0.1:0"], "");
    assert_eq!(twice.status.code(), Some(1));
    assert!(text(&twice.stderr).contains("cannot listen on"), "{}", text(&twice.stderr));
    let help = text(&spate(&["server", "--help"], "").stdout);
    for part in ["[env: SPATE_LISTEN=", "127.0.0.1:50051", "A flag comes before its variable", "Examples"] {
        assert!(help.contains(part), "no {part}: {help}");
    }
}
