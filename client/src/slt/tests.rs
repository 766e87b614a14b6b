//! Tests of the runner on a scripted database, so that they need no engine.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use spate_engine::types::{ErrorKind, Result, SpateError};
use sqllogictest::DefaultColumnType;

use super::*;

/// Echoes: `rows a b;c` gives two rows, `count 3` a count, `fail x` an error, `next` the
/// next number of the database, `hang` never ends, `panic` panics.
#[derive(Default)]
struct Echo {
    /// Verdicts of the view checks; `true` when none is left.
    verdicts: Mutex<VecDeque<bool>>,
    number: Arc<Mutex<u64>>,
}

#[async_trait]
impl Database for Echo {
    async fn connect(&self) -> Result<Box<dyn Connection>> {
        Ok(Box::new(EchoConnection(self.number.clone())))
    }

    async fn verify_views(&self) -> Result<usize> {
        match self.verdicts.lock().unwrap().pop_front() {
            Some(false) => Err(SpateError::internal("view v differs:\n- 1\n+ 2")),
            _ => Ok(2),
        }
    }
}

struct EchoConnection(Arc<Mutex<u64>>);

#[async_trait]
impl Connection for EchoConnection {
    #[allow(clippy::single_range_in_vec_init)]
    fn split(&self, sql: &str) -> Result<Vec<Range<usize>>> {
        Ok(vec![0..sql.len()])
    }

    async fn run(&mut self, sql: &str) -> Result<Answer> {
        let (word, rest) = sql.split_once(' ').unwrap_or((sql, ""));
        match word {
            "rows" => Ok(rows(rest)),
            "next" => {
                let mut number = self.0.lock().unwrap();
                *number += 1;
                Ok(rows(&number.to_string()))
            }
            "count" => Ok(Answer::Done(rest.parse().unwrap())),
            "fail" => Err(SpateError::new(ErrorKind::NotFound, rest).with_hint("did you mean \"b\"?")),
            "hang" => futures::future::pending().await,
            "panic" => panic!("boom"),
            _ => Ok(Answer::Done(0)),
        }
    }
}

fn rows(text: &str) -> Answer {
    let rows: Vec<Vec<String>> = text.split(';').map(|row| row.split(' ').map(str::to_owned).collect()).collect();
    Answer::Rows { types: vec![DefaultColumnType::Any; rows[0].len()], rows }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, options: &Options, verdicts: &[bool]) -> Summary {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let open = |_: &Path| {
            let verdicts = Mutex::new(verdicts.iter().copied().collect());
            Ok(Arc::new(Echo { verdicts, ..Echo::default() }) as Arc<dyn Database>)
        };
        runtime.block_on(run_paths_on(&[self.0.path().to_owned()], options, open, |_| {})).unwrap()
    }
}

fn run(text: &str, verdicts: &[bool]) -> FileReport {
    let summary = Folder::new(&[("a.slt", text)]).run(&Options::default(), verdicts);
    summary.files.into_iter().next().unwrap()
}

#[track_caller]
fn passes(text: &str) {
    assert_eq!(run(text, &[]).failure, None);
}

#[track_caller]
fn fails(text: &str, verdicts: &[bool], expect: &[&str]) {
    let failure = run(text, verdicts).failure.unwrap_or_default();
    for part in expect {
        assert!(failure.contains(part), "{failure}");
    }
}

#[test]
fn files_pass() {
    passes("statement ok\ncreate\n\nquery II rowsort\nrows 2 x;1 y\n----\n1 y\n2 x\n");
    passes("statement count 3\ncount 3\n");
    passes("statement error no such .* did you mean\nfail no such thing\n");
    passes(
        "skipif spate\nstatement ok\nfail x\n\nonlyif other\nstatement ok\nfail x\n\nonlyif spate\nstatement ok\nx\n",
    );
    passes("connection other\nstatement ok\nx\n\nstatement ok\ny\n");
    passes("query I retry 3 backoff 1ms\nnext\n----\n3\n");
    passes("control sortmode rowsort\n\nquery I\nrows 2;1\n----\n1\n2\n");
    passes("statement ok\nx\n\nhalt\n\nstatement ok\nfail x\n");
}

#[test]
fn failures_show_place_and_difference() {
    fails("\nquery I\nrows 2\n----\n1\n", &[], &["-   1", "+   2", "a.slt:2"]);
    fails("statement ok\nfail no such thing\n", &[], &["no such thing", "did you mean", "a.slt:1"]);
    fails("statement error other\nfail x\n", &[], &["other", "x (hint"]);
    fails("statement count 2\ncount 3\n", &[], &["affect 2 rows"]);
    fails("nonsense\n", &[], &["parse error", "a.slt:1"]);
    fails("statement ok\npanic\n", &[], &["panicked: boom"]);
}

#[test]
fn hangs_end() {
    let options = Options { timeout: Duration::from_millis(50), ..Options::default() };
    let summary = Folder::new(&[("a.slt", "statement ok\nhang on\n")]).run(&options, &[]);
    let failure = summary.files[0].failure.clone().unwrap();
    assert!(failure.contains("did not end") && failure.contains("hang on"), "{failure}");
}

#[test]
fn views_are_checked_after_every_flush_and_at_the_end() {
    let report = run("statement ok\nflush\n\nstatement ok\nx\n\nstatement ok\n-- now\nFLUSH;\n", &[]);
    assert_eq!((report.failure, report.statements, report.view_checks), (None, 3, 6));
    let report = run("statement ok\nflushed\n", &[]);
    assert_eq!(report.view_checks, 2);
    // Nothing in a file makes a failed check pass.
    for header in ["statement ok", "statement error", "statement ok retry 3 backoff 1ms", "query"] {
        fails(&format!("\n{header}\nflush\n"), &[false], &["after FLUSH", "view v differs", "a.slt:2"]);
    }
    fails("statement ok\nflush\n\nstatement ok\nx\n", &[true, false], &["at the end of the file", "- 1"]);
    fails("halt\n", &[false], &["at the end of the file"]);
    fails("", &[false], &["at the end of the file"]);
}

#[test]
fn files_can_name_their_folder_and_a_temporary_one() {
    let folder = Folder::new(&[(
        "sub/a.slt",
        "query T\nrows ${SLT_DIR}\n----\n<slt:ignore>sub\n\nsystem ok\ntest -f '${SLT_DIR}/a.slt' && echo hi > ${TMP}/x\n\nsystem ok\ncat ${TMP}/x\n----\nhi\n\n\ncontrol substitution on\n\nquery T\nrows ${SLT_DIR}\n----\n<slt:ignore>sub\n",
    )]);
    let summary = folder.run(&Options::default(), &[]);
    assert!(summary.ok(), "{summary:?}");
}

#[test]
fn complete_fills_in_answers() {
    let folder = Folder::new(&[
        (
            "a.slt",
            "# a test\ninclude part.inc\n\nquery I\nrows 1 2;3 (empty)\n----\n\nstatement ok\nfail no (x)\n\nstatement count 1\ncount 7\n\nquery I retry 9 backoff 1ms\nnext\n----\n2\n",
        ),
        ("part.inc", "query I\nrows 5\n"),
    ]);
    let options = Options { complete: true, ..Options::default() };
    let summary = folder.run(&options, &[]);
    assert!(summary.ok(), "{summary:?}");
    let text = std::fs::read_to_string(folder.path("a.slt")).unwrap();
    assert!(text.contains("----\n1 2\n3 (empty)\n"), "{text}");
    assert!(text.contains("statement count 7"), "{text}");
    assert!(text.contains("statement error"), "{text}");
    assert!(text.starts_with("# a test\ninclude part.inc\n"), "{text}");
    assert_eq!(std::fs::read_to_string(folder.path("part.inc")).unwrap(), "query I\nrows 5\n----\n5\n");
    // What was filled in passes, and completing again changes nothing.
    assert!(folder.run(&Options::default(), &[]).ok());
    assert!(folder.run(&options, &[]).ok());
    assert_eq!(std::fs::read_to_string(folder.path("a.slt")).unwrap(), text);
}

#[test]
fn complete_writes_nothing_when_views_are_wrong() {
    let text = "query I\nrows 1\n----\n2\n\nstatement ok\nflush\n";
    let folder = Folder::new(&[("a.slt", text)]);
    let summary = folder.run(&Options { complete: true, ..Options::default() }, &[false]);
    assert!(!summary.ok());
    assert_eq!(std::fs::read_to_string(folder.path("a.slt")).unwrap(), text);
}

#[test]
fn paths_expand_in_order() {
    let folder = Folder::new(&[("b.slt", ""), ("a/x.slt", ""), ("a/y.inc", ""), ("c.txt", "")]);
    let names = |paths: &[&str]| -> Vec<String> {
        let paths: Vec<PathBuf> = paths.iter().map(|p| folder.path(p)).collect();
        let strip = |p: &PathBuf| p.strip_prefix(folder.0.path()).unwrap().display().to_string();
        expand(&paths).unwrap().iter().map(strip).collect()
    };
    assert_eq!(names(&[""]), ["a/x.slt", "b.slt"]);
    assert_eq!(names(&["b.slt", "a", "b.slt"]), ["b.slt", "a/x.slt"]);
    assert_eq!(names(&["*.txt", "a*"]), ["c.txt", "a/x.slt"]);
    assert!(expand(&[folder.path("no/such")]).unwrap_err().message().contains("no such file or folder"));
}

#[test]
fn summaries_and_junit() {
    let folder = Folder::new(&[("a.slt", "statement ok\nx\n"), ("b.slt", "query I\nrows <2>\n----\n1\n")]);
    let summary = folder.run(&Options { jobs: 2, ..Options::default() }, &[]);
    assert_eq!(summary.to_string(), "2 files, 1 statement, 2 view checks: 1 failed");
    let xml = junit(&summary);
    assert!(xml.contains("tests=\"2\" failures=\"1\"") && xml.contains("+   &lt;2&gt;"), "{xml}");
    assert_eq!(Summary::default().to_string(), "0 files, 0 statements, 0 view checks: ok");
}

#[test]
fn tags_carry_counts() {
    for (tag, count) in [("INSERT 0 3", 3), ("DELETE 1", 1), ("CREATE TABLE", 0), ("", 0)] {
        assert_eq!(driver::count_of(tag), count);
    }
}
