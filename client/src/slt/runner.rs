//! Runs files: parses them, feeds their records to the sqllogictest runner, checks the views
//! after every `FLUSH` and at the end, and with `complete` writes the answers back.
#![allow(clippy::disallowed_methods)]

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use spate_engine::types::{Result, SpateError};
use spate_server::EngineConfig;
use sqllogictest::{
    AsyncDB, DBOutput, DefaultColumnType, Injected, Location, MakeConnection, Record, Runner, default_column_validator,
    default_normalizer, default_validator, update_record_with_output,
};

use super::{Answer, Connection, Database, Embedded, expand};
use crate::scan;

/// How to run files.
#[derive(Debug, Clone)]
pub struct Options {
    /// Write the actual answers into the files instead of comparing.
    pub complete: bool,
    /// Files at a time; at least 1.
    pub jobs: usize,
    /// Longest time for one file.
    pub timeout: Duration,
    /// The engine of each file.
    pub engine: EngineConfig,
}

impl Default for Options {
    fn default() -> Self {
        let engine = EngineConfig { threads: 2, epoch_interval: Duration::from_millis(10), ..EngineConfig::default() };
        Self { complete: false, jobs: 1, timeout: Duration::from_secs(600), engine }
    }
}

/// What became of one file.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// Statements and queries that ran.
    pub statements: u64,
    /// Views that were recomputed and compared, summed over all checks.
    pub view_checks: u64,
    /// Why it failed, with the place and the difference.
    pub failure: Option<String>,
    /// How long it took.
    pub elapsed: Duration,
}

/// What became of all files, in order.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// One per file.
    pub files: Vec<FileReport>,
}

impl Summary {
    /// Whether every file passed.
    pub fn ok(&self) -> bool {
        self.files.iter().all(|file| file.failure.is_none())
    }
}

/// `12 files, 345 statements, 120 view checks: ok`
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let failed = self.files.iter().filter(|file| file.failure.is_some()).count();
        write!(
            f,
            "{}, {}, {}: ",
            count(self.files.len() as u64, "file"),
            count(self.files.iter().map(|file| file.statements).sum(), "statement"),
            count(self.files.iter().map(|file| file.view_checks).sum(), "view check"),
        )?;
        if failed == 0 { f.write_str("ok") } else { write!(f, "{failed} failed") }
    }
}

/// Runs files, folders and globs on embedded engines. Blocks; not for use inside an async
/// runtime. The error is about the paths; failures of tests are in the summary.
pub fn run_paths(paths: &[PathBuf], options: &Options) -> Result<Summary> {
    let runtime = spate_server::threads::runtime()?;
    let engine = options.engine.clone();
    let open = move |_: &Path| Ok(Arc::new(Embedded::open(engine.clone())?) as Arc<dyn Database>);
    let summary = runtime.block_on(run_paths_on(paths, options, open, |_| {}));
    runtime.shutdown_timeout(Duration::from_secs(5));
    summary
}

/// As [`run_paths`], on the database that `open` makes for each file. `done` sees every report
/// as soon as it and all before it are there.
pub async fn run_paths_on(
    paths: &[PathBuf],
    options: &Options,
    open: impl Fn(&Path) -> Result<Arc<dyn Database>>,
    done: impl Fn(&FileReport),
) -> Result<Summary> {
    let files = expand(paths)?;
    let mut reports =
        futures::stream::iter(files.iter().map(|file| run_file(file, options, &open))).buffered(options.jobs.max(1));
    let mut summary = Summary::default();
    while let Some(report) = reports.next().await {
        done(&report);
        summary.files.push(report);
    }
    Ok(summary)
}

/// Runs one file on a database of its own; a panic or a hang is a failure of the file.
async fn run_file(path: &Path, options: &Options, open: &impl Fn(&Path) -> Result<Arc<dyn Database>>) -> FileReport {
    let started = Instant::now();
    let counts = Arc::new(Shared::default());
    let work = async {
        let database = open(path).map_err(|e| message_of(&e))?;
        let result = run_records(path, options, &database, &counts).await;
        database.shutdown().await;
        result
    };
    let failure = match tokio::time::timeout(options.timeout, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(result)) => result.err(),
        Ok(Err(panic)) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("unknown cause");
            Some(format!("panicked: {text}\nin {}", path.display()))
        }
        Err(_) => {
            let last = counts.last_sql.lock().map(|sql| sql.clone()).unwrap_or_default();
            Some(format!("did not end within {:?}\nin {}\n[SQL] {last}", options.timeout, path.display()))
        }
    };
    FileReport {
        path: path.to_owned(),
        statements: counts.statements.load(Ordering::Relaxed),
        view_checks: counts.view_checks.load(Ordering::Relaxed),
        failure,
        elapsed: started.elapsed(),
    }
}

/// What the connections of a file share with its runner.
#[derive(Default)]
struct Shared {
    statements: AtomicU64,
    view_checks: AtomicU64,
    /// First failed view check; nothing takes it back.
    view_failure: Mutex<Option<String>>,
    last_sql: Mutex<String>,
}

impl Shared {
    async fn check_views(&self, database: &dyn Database, when: &str) {
        match database.verify_views().await {
            Ok(views) => {
                self.view_checks.fetch_add(views as u64, Ordering::Relaxed);
            }
            Err(e) => {
                if let Ok(mut failure) = self.view_failure.lock() {
                    failure.get_or_insert_with(|| format!("view check {when} failed: {}", message_of(&e)));
                }
            }
        }
    }

    /// The first failed view check, with its place.
    fn views_ok(&self, place: &str) -> Result<(), String> {
        match self.view_failure.lock() {
            Ok(failure) => failure.as_ref().map_or(Ok(()), |text| Err(format!("{text}\nat {place}"))),
            Err(_) => Err(format!("view check panicked\nat {place}")),
        }
    }
}

/// Runs (or completes) the records of a file.
async fn run_records(
    path: &Path,
    options: &Options,
    database: &Arc<dyn Database>,
    shared: &Arc<Shared>,
) -> Result<(), String> {
    let name = path.display();
    // The parser panics on a file that it cannot read as text.
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {name}: {e}"))?;
    let records = sqllogictest::parse_file::<DefaultColumnType>(path).map_err(|e| e.to_string())?;
    let temporary = tempfile::tempdir().map_err(|e| format!("cannot make a temporary folder: {e}"))?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let folder = folder.canonicalize().unwrap_or(folder);
    let variables = Variables {
        slt_dir: folder.to_string_lossy().into_owned(),
        tmp: temporary.path().to_string_lossy().into_owned(),
    };

    let make = {
        let (database, shared, variables) = (database.clone(), shared.clone(), variables.clone());
        move || {
            let (database, shared, variables) = (database.clone(), shared.clone(), variables.clone());
            async move {
                let connection = database.connect().await.map_err(|e| Failed(message_of(&e)))?;
                Ok(Driver { connection, database, shared, variables })
            }
        }
    };
    let mut runner = Runner::new(make);
    runner.set_var("SLT_DIR".into(), variables.slt_dir.clone());
    runner.set_var("TMP".into(), variables.tmp.clone());

    if options.complete {
        complete(path, records, &mut runner, shared, &variables).await?;
    } else {
        let mut place = name.to_string();
        for record in records {
            if matches!(record, Record::Halt { .. }) {
                break;
            }
            if let Some(location) = location_of(&record) {
                place = location.to_string();
            }
            let counts = counts_as_statement(&record);
            let output = runner.run_async(variables.in_command(record)).await.map_err(|e| e.to_string());
            shared.views_ok(&place)?;
            if counts && !matches!(output?, sqllogictest::RecordOutput::Nothing) {
                shared.statements.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    shared.check_views(database.as_ref(), "at the end of the file").await;
    let checked = shared.views_ok(&name.to_string());
    runner.shutdown_async().await;
    checked
}

/// Runs the records and writes what they gave into the file, and into the files it includes.
/// Nothing is written if a view check fails.
async fn complete<M: MakeConnection<Conn = Driver>>(
    path: &Path,
    records: Vec<Record<DefaultColumnType>>,
    runner: &mut Runner<Driver, M>,
    shared: &Shared,
    variables: &Variables,
) -> Result<(), String> {
    struct Output {
        path: PathBuf,
        text: String,
    }
    let mut open = vec![Output { path: path.to_owned(), text: String::new() }];
    let mut whole = Vec::new();
    let mut halted = false;
    for record in records {
        match &record {
            Record::Injected(Injected::BeginInclude(file)) => {
                open.push(Output { path: file.into(), text: String::new() });
                continue;
            }
            Record::Injected(Injected::EndInclude(_)) => {
                whole.extend(open.pop());
                continue;
            }
            Record::Halt { .. } => halted = true,
            _ => {}
        }
        let mut record = record;
        // What passes, maybe after some tries, stays as it is.
        if !halted && (!has_retry(&record) || runner.run_async(variables.in_command(record.clone())).await.is_err()) {
            let output = runner.apply_record(variables.in_command(record.clone())).await;
            if counts_as_statement(&record) && !matches!(output, sqllogictest::RecordOutput::Nothing) {
                shared.statements.fetch_add(1, Ordering::Relaxed);
            }
            shared.views_ok(&location_of(&record).map_or(path.display().to_string(), |l| l.to_string()))?;
            if let Some(updated) = update_record_with_output(
                &record,
                &output,
                " ",
                default_validator,
                default_normalizer,
                default_column_validator,
            ) {
                record = updated;
            }
        }
        if let Some(output) = open.last_mut() {
            output.text.push_str(&format!("{record}\n"));
        }
    }
    whole.extend(open);
    for output in whole {
        let text = format!("{}\n", output.text.trim_end_matches('\n'));
        let before = std::fs::read_to_string(&output.path).unwrap_or_default();
        if before != text {
            replace(&output.path, &text).map_err(|e| format!("cannot write {}: {e}", output.path.display()))?;
        }
    }
    Ok(())
}

/// Replaces a file at once, so that an interruption cannot leave half of it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    if let Ok(metadata) = std::fs::metadata(path) {
        file.as_file().set_permissions(metadata.permissions())?;
    }
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

fn location_of(record: &Record<DefaultColumnType>) -> Option<&Location> {
    match record {
        Record::Statement { loc, .. }
        | Record::Query { loc, .. }
        | Record::System { loc, .. }
        | Record::Let { loc, .. } => Some(loc),
        _ => None,
    }
}

fn counts_as_statement(record: &Record<DefaultColumnType>) -> bool {
    matches!(record, Record::Statement { .. } | Record::Query { .. } | Record::Let { .. })
}

fn has_retry(record: &Record<DefaultColumnType>) -> bool {
    matches!(
        record,
        Record::Statement { retry: Some(_), .. }
            | Record::Query { retry: Some(_), .. }
            | Record::System { retry: Some(_), .. }
    )
}

/// The two names that every file can use.
#[derive(Clone)]
struct Variables {
    slt_dir: String,
    tmp: String,
}

impl Variables {
    fn substitute(&self, text: &str) -> String {
        text.replace("${SLT_DIR}", &self.slt_dir).replace("${TMP}", &self.tmp)
    }

    /// SQL is substituted by the driver; commands are run by the sqllogictest runner itself.
    fn in_command(&self, mut record: Record<DefaultColumnType>) -> Record<DefaultColumnType> {
        if let Record::System { command, .. } = &mut record {
            *command = self.substitute(command);
        }
        record
    }
}

/// A failed statement, as `statement error <regex>` sees it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String);

/// Message and hint on one line, so that a regular expression can look at both.
fn message_of(error: &SpateError) -> String {
    match error.hint() {
        Some(hint) => format!("{} (hint: {hint})", error.message()),
        None => error.message().to_owned(),
    }
}

/// A connection of a test file.
struct Driver {
    connection: Box<dyn Connection>,
    database: Arc<dyn Database>,
    shared: Arc<Shared>,
    variables: Variables,
}

#[async_trait]
impl AsyncDB for Driver {
    type Error = Failed;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failed> {
        let sql = self.variables.substitute(sql);
        if let Ok(mut last) = self.shared.last_sql.lock() {
            last.clone_from(&sql);
        }
        let mut answer = Answer::Done(0);
        for range in self.connection.split(&sql).map_err(|e| Failed(message_of(&e)))? {
            let statement = sql.get(range).unwrap_or("");
            answer = self.connection.run(statement).await.map_err(|e| Failed(message_of(&e)))?;
            if is_flush(statement) {
                self.shared.check_views(self.database.as_ref(), "after FLUSH").await;
            }
        }
        Ok(match answer {
            Answer::Rows { types, rows } => DBOutput::Rows { types, rows },
            Answer::Done(count) => DBOutput::StatementComplete(count),
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "spate"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

fn is_flush(statement: &str) -> bool {
    let statement = statement.get(scan::skip_blank(statement)..).unwrap_or("");
    let word = statement.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
    word.eq_ignore_ascii_case("flush")
}
