//! The `spate` command as a process: usage, help, exit codes.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn spate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spate")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn fails(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = spate(arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn help_has_examples_everywhere() {
    for arguments in [
        &["--help"][..],
        &["server", "--help"],
        &["slt", "--help"],
        &["generate", "--help"],
        &["generate", "nexmark", "--help"],
        &["bench", "--help"],
        &["bench", "nexmark", "--help"],
        &["bench", "latency", "--help"],
        &["simulate", "--help"],
    ] {
        let output = spate(arguments);
        assert!(output.status.success());
        let help = text(&output.stdout);
        assert!(help.contains("Example") && help.contains("spate "), "{help}");
    }
    let help = text(&spate(&["--help"]).stdout);
    for absent in ["coordinator", "worker"] {
        assert!(!help.contains(&format!("  {absent} ")), "{help}");
    }
}

#[test]
fn version_is_told() {
    assert!(text(&spate(&["--version"]).stdout).starts_with("spate 0."));
}

#[test]
fn wrong_usage_exits_with_2() {
    fails(&["--format", "xml"], 2, &["xml", "table"]);
    fails(&["--threads", "0", "-c", "SELECT 1"], 2, &["--threads"]);
    fails(&["slt"], 2, &["PATH"]);
    fails(&["serve"], 2, &["serve"]);
    fails(&["-u", "localhost:1", "-c", "SELECT 1"], 1, &["does not begin with grpc://"]);
    fails(&["-u", "grpc://localhost:1", "--threads", "2", "-c", "SELECT 1"], 2, &["settings of an embedded engine"]);
    fails(&["slt", "no/such.slt"], 2, &["no such file or folder: \"no/such.slt\""]);
}

#[test]
fn missing_scripts_exit_with_1() {
    fails(&["-f", "no/such.sql"], 1, &["error: cannot read \"no/such.sql\""]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.sql");
    std::fs::write(&path, b"\xff").unwrap();
    fails(&["-f", path.to_str().unwrap()], 1, &["is not UTF-8 text"]);
}

#[test]
fn nexmark_files_are_the_same_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let read = |run: &str, table: &str| std::fs::read(folder.path().join(run).join(table)).unwrap();
    for (run, seed) in [("a", "1"), ("b", "1"), ("c", "2")] {
        let out = folder.path().join(run);
        let output = spate(&[
            "generate",
            "nexmark",
            "--out",
            out.to_str().unwrap(),
            "--events",
            "1000",
            "--format",
            "csv",
            "--seed",
            seed,
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    for (table, rows) in [("person.csv", 20), ("auction.csv", 60), ("bid.csv", 920)] {
        assert_eq!(text(&read("a", table)).lines().count(), rows + 1, "{table}");
        assert_eq!(read("a", table), read("b", table));
        assert_ne!(read("a", table), read("c", table));
    }
    assert!(text(&read("a", "bid.csv")).starts_with("auction,bidder,price,channel,url,date_time,extra\n"));
}

#[test]
fn nexmark_writes_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for format in ["parquet", "json", "csv"] {
        let output = spate(&["generate", "nexmark", "--out", out, "--events", "50", "--format", format]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let json = std::fs::read_to_string(folder.path().join("person.json")).unwrap();
    let person: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert!(person["id"].is_i64() && person["date_time"].as_str().unwrap().starts_with("2015-07-15"), "{json}");
    let parquet = std::fs::File::open(folder.path().join("bid.parquet")).unwrap();
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(parquet).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 46);
    fails(&["generate", "nexmark", "--out", "/proc/no", "--events", "50"], 1, &["/proc/no"]);
    assert!(!Path::new("/proc/no").exists());
}

#[test]
fn a_byte_order_mark_is_no_statement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bom.sql");
    std::fs::write(&path, "\u{feff}SELECT 1 AS a;\nSELECT x;\n").unwrap();
    let output = spate(&["-f", path.to_str().unwrap(), "--format", "csv"]);
    assert_eq!(text(&output.stdout), "a\n1\n");
    assert!(text(&output.stderr).contains("bom.sql:2:8"), "{}", text(&output.stderr));
}

#[test]
fn latencies_are_measured() {
    let arguments = ["bench", "latency", "--queries", "window", "--load", "20", "--seconds", "1"];
    let output = spate(&arguments);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}{stdout}", text(&output.stderr));
    let line: Vec<&str> = stdout.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!((line.len(), line[0], line[2]), (8, "window", "20"), "{stdout}");
    // Percentiles rise, and a row takes no time before it happens.
    let times: Vec<f64> = line[4..].iter().map(|t| t.parse().unwrap()).collect();
    assert!(times.windows(2).all(|w| w[0] <= w[1]) && times[0] > 0.0, "{stdout}");
    fails(&["bench", "latency", "--queries", "q1"], 1, &["there is no query \"q1\"", "project"]);
}

#[test]
fn a_described_cluster_is_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name).display().to_string();
        std::fs::write(&path, text).unwrap();
        path
    };
    let cluster = file(
        "cluster.toml",
        "[[rack]]\nname = 'a'\nworkers = 3\nslots = 8\nworker_mtbf_h = 100.0\n[times]\nglobal_checkpoint_s = 60.0\n",
    );
    let query = file(
        "query.sql",
        "CREATE SOURCE bid WITH (connector = 'nexmark', table = 'bid');\n\
         CREATE SINK s AS SELECT auction, count(*) FROM bid GROUP BY auction WITH (connector = 'blackhole');",
    );
    let json = folder.path().join("out.json").display().to_string();
    let figures = folder.path().join("figures");
    let dir = figures.display().to_string();
    let output = spate(&["simulate", &cluster, &query, "--years", "0.2", "--json", &json, "--draw", &dir]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}{stdout}", text(&output.stderr));
    for part in ["Fault plan, strategy cost", "aggregate-", "0.2 years simulated with seed 1", "late rows/h", "± 95%"]
    {
        assert!(stdout.contains(part), "no {part}: {stdout}");
    }
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert!(report["failures"].as_u64().unwrap() > 10, "{report}");
    // The same seed gives the same years, and what the model expects is in the interval or near it.
    let available = &report["compared"][3];
    let (model, simulated) = (available["model"].as_f64().unwrap(), available["simulated"].as_f64().unwrap());
    assert!(model > 0.99 && model < 1.0 && (model - simulated).abs() < 2.0 * (1.0 - model), "{report}");
    for svg in ["outages.svg", "budget.svg", "plan.svg"] {
        let svg = std::fs::read_to_string(figures.join(svg)).unwrap();
        assert!(svg.starts_with("<svg") && !svg.contains("NaN"), "{svg}");
    }
    let again = spate(&["simulate", &cluster, &query, "--years", "0.2"]);
    assert!(stdout.starts_with(&text(&again.stdout)), "{stdout}{}", text(&again.stdout));

    let wrong = file("wrong.toml", "[[rack]]\nname = 'a'\nworkers = 3\nslots = 8\nworker_mtbf = 100.0\n");
    fails(&["simulate", &wrong, &query], 1, &["wrong.toml", "worker_mtbf"]);
    let negative = file("negative.toml", "[[rack]]\nname = 'a'\nworkers = 3\nslots = 8\nworker_mtbf_h = -1.0\n");
    fails(&["simulate", &negative, &query], 1, &["negative.toml", "worker_mtbf_h"]);
    let none = file("none.sql", "-- nothing\n");
    fails(&["simulate", &cluster, &none], 1, &["holds no statement"]);
    fails(&["simulate", &cluster, &query, "--years", "0"], 1, &["--years must be above 0"]);
    let goal = file("goal.sql", "SET fault.strategy = 'active';\nSELECT 1;");
    fails(&["simulate", &cluster, &goal], 1, &["takes its goals from the cluster file"]);
    let flush = file("flush.sql", "FLUSH;");
    fails(&["simulate", &cluster, &flush], 1, &["FLUSH"]);
}

#[test]
fn a_benchmark_checks_its_answers() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data").display().to_string();
    for format in ["parquet", "json", "generator"] {
        let report = folder.path().join("report.json").display().to_string();
        // With ties, in words of its own, and without either.
        let arguments = ["bench", "nexmark", "--queries", "q3,q11,q18", "--events", "3000", "--runs", "1"];
        let output = spate(&[&arguments[..], &["--format", format, "--dir", &dir, "--json", &report]].concat());
        let stdout = text(&output.stdout);
        assert!(output.status.success(), "{format}: {}{stdout}", text(&output.stderr));
        assert!(stdout.contains("answers equal batch"), "{format}: {stdout}");
        let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap();
        let rows: Vec<_> =
            report["queries"].as_array().unwrap().iter().map(|q| q["rows_in"].as_u64().unwrap()).collect();
        assert_eq!(rows, [240, 2760, 2760], "{format}: {report}");
        assert!(report["queries"][0]["rows_out"].as_u64().unwrap() > 0, "{format}: {report}");
    }
    fails(&["bench", "nexmark", "--queries", "q99"], 1, &["there is no query \"q99\"", "q0, q1"]);
}

/// What one process wrote, the next one has, with its views.
#[test]
fn a_data_directory_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("data");
    let at = at.to_str().unwrap();
    let run = |sql: &str| {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_spate"))
            .args(["-q", "--format", "csv", "-d", at, "-c", sql])
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    run("CREATE TABLE t (k int PRIMARY KEY, v int); \
         CREATE MATERIALIZED VIEW m AS SELECT k % 2 AS p, sum(v) AS s FROM t GROUP BY 1; \
         INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)");
    assert_eq!(run("SELECT * FROM m ORDER BY p"), "p,s\n0,20\n1,40\n");
    run("ALTER TABLE t ADD COLUMN w text DEFAULT 'x'; DELETE FROM t WHERE k = 1; INSERT INTO t VALUES (4, 5, 'y')");
    assert_eq!(run("SELECT * FROM m ORDER BY p"), "p,s\n0,25\n1,30\n");
    assert_eq!(run("SELECT * FROM t ORDER BY k"), "k,v,w\n2,20,x\n3,30,x\n4,5,y\n");
    run("DROP TABLE t CASCADE");
    assert_eq!(run("SELECT count(*) AS c FROM information_schema.tables WHERE table_schema = 'public'"), "c\n0\n");
}
