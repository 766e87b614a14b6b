//! `spate bench nexmark`: each Nexmark query from the first row of bounded input to the last, next
//! to DataFusion in batch over the same files with as many threads, and its answer checked.
//!
//! Batch and streaming runs take turns, so that a slow moment of the machine hits both. The
//! streaming run that is timed writes to a sink that drops its rows; another fills a materialized
//! view, whose rows are then compared with those of the query computed in batch.

use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::prelude::SessionContext;
use spate_engine::connector::generate::Format;
use spate_engine::types::{Result, SpateError};
use spate_server::{EngineConfig, Session};
use tokio::runtime::Runtime;

use crate::batch::failed;
use crate::checksum::Checksum;
use crate::{batch, cpu_time, data, forget_peak, now, peak_bytes, stream};

/// Where rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Parquet files.
    Parquet,
    /// Files of JSON lines.
    Json,
    /// The connector `nexmark`; batch reads Parquet files with the same rows.
    Generator,
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names such as `q5`; empty for all.
    pub queries: Vec<String>,
    /// Events of all three kinds together.
    pub events: u64,
    /// Where rows come from.
    pub input: Input,
    /// Threads, and tasks per fragment.
    pub parallelism: usize,
    /// Timed runs of each side; the median counts.
    pub runs: usize,
    /// Whether the timed streaming runs have a data directory, with records of all epochs and a
    /// checkpoint each second.
    pub checkpoints: bool,
    /// Folder of the generated files, which are kept.
    pub dir: PathBuf,
}

/// What one query took.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Such as `q5`.
    pub query: String,
    /// Rows of the tables that the query reads.
    pub rows_in: u64,
    /// Rows of the answer.
    pub rows_out: u64,
    /// Median time of DataFusion in batch.
    pub batch: Duration,
    /// Its CPU time.
    pub batch_cpu: Duration,
    /// Median time of the query into a blackhole sink.
    pub sink: Duration,
    /// Its CPU time.
    pub sink_cpu: Duration,
    /// Most memory that was resident in a timed run, in bytes.
    pub peak: u64,
    /// The longest that an epoch of a timed run took from its end to its output.
    pub epoch: Duration,
    /// Time of the query into a materialized view, once.
    pub view: Duration,
}

impl Measured {
    /// Batch time by streaming time: 1 is as fast as batch.
    pub fn ratio(&self) -> f64 {
        self.batch.as_secs_f64() / self.sink.as_secs_f64().max(1e-9)
    }

    /// Input rows per second.
    pub fn rows_per_s(&self) -> f64 {
        self.rows_in as f64 / self.sink.as_secs_f64().max(1e-9)
    }

    /// Input rows per second of CPU time.
    pub fn rows_per_cpu_s(&self) -> f64 {
        self.rows_in as f64 / self.sink_cpu.as_secs_f64().max(1e-9)
    }
}

/// A query of the benchmark.
struct Query {
    name: &'static str,
    sql: &'static str,
    /// In DataFusion's own words, where it lacks a function.
    batch: Option<&'static str>,
    reads: &'static [&'static str],
}

impl Query {
    /// For DataFusion, whose patterns of dates are others.
    fn for_batch(&self) -> String {
        self.batch.unwrap_or(self.sql).replace("'YYYY-MM-DD'", "'%Y-%m-%d'").replace("'HH24:MI'", "'%H:%M'")
    }
}

macro_rules! standard {
    ($file:literal) => {
        include_str!(concat!("../../sql-tests/nexmark/", $file, ".sql"))
    };
}

macro_rules! query {
    ($name:literal, $file:literal, $reads:expr) => {
        Query { name: $name, sql: standard!($file), batch: None, reads: &$reads }
    };
    ($name:literal, $file:literal, $reads:expr, own) => {
        Query {
            name: $name,
            sql: standard!($file),
            batch: Some(include_str!(concat!("nexmark/batch/", $file, ".sql"))),
            reads: &$reads,
        }
    };
}

const QUERIES: &[Query] = &[
    query!("q0", "q00", ["bid"]),
    query!("q1", "q01", ["bid"]),
    query!("q2", "q02", ["bid"], own),
    query!("q3", "q03", ["auction", "person"]),
    query!("q4", "q04", ["auction", "bid"]),
    query!("q5", "q05", ["bid"], own),
    query!("q7", "q07", ["bid"], own),
    query!("q8", "q08", ["person", "auction"], own),
    query!("q9", "q09", ["auction", "bid"]),
    query!("q11", "q11", ["bid"], own),
    query!("q12", "q12", ["bid"], own),
    query!("q13", "q13", ["bid"], own),
    query!("q14", "q14", ["bid"]),
    query!("q15", "q15", ["bid"]),
    query!("q16", "q16", ["bid"]),
    query!("q17", "q17", ["bid"]),
    query!("q18", "q18", ["bid"]),
    query!("q19", "q19", ["bid"]),
    query!("q20", "q20", ["bid", "auction"]),
    query!("q21", "q21", ["bid"]),
    query!("q22", "q22", ["bid"]),
];

/// Names of all queries.
pub fn names() -> Vec<&'static str> {
    QUERIES.iter().map(|q| q.name).collect()
}

const TABLES: &[&str] = &["person", "auction", "bid"];

struct Bench<'a> {
    options: &'a Options,
    runtime: &'a Runtime,
    files: PathBuf,
    batch: SessionContext,
}

/// Runs the queries one after the other. `done` hears of each as soon as it is measured.
///
/// # Errors
/// An unknown query, files that cannot be written, a query that fails, an answer that is wrong.
pub fn run(runtime: &Runtime, options: &Options, done: &mut dyn FnMut(&Measured)) -> Result<Vec<Measured>> {
    let mut queries = Vec::new();
    for name in &options.queries {
        queries.push(QUERIES.iter().find(|q| q.name == name).ok_or_else(|| {
            SpateError::invalid(format!("there is no query \"{name}\""))
                .with_hint(format!("there are {}", names().join(", ")))
        })?);
    }
    if queries.is_empty() {
        queries.extend(QUERIES);
    }
    let format = match options.input {
        Input::Json => Format::Json,
        Input::Parquet | Input::Generator => Format::Parquet,
    };
    let files = data::nexmark(&options.dir, options.events, format)?;
    let json: Option<&dyn Fn(&str) -> Schema> = (options.input == Input::Json).then_some(&schema);
    let batch = batch::context_over(runtime, options.parallelism, &files, TABLES, json)?;
    batch::read_parquet(runtime, &batch, "side_input", &files.join(data::SIDE_INPUT)).map_err(failed)?;
    let bench = Bench { options, runtime, files, batch };
    let mut all = Vec::new();
    for query in queries {
        let measured = bench.measure(query).map_err(|e| e.context(query.name))?;
        done(&measured);
        all.push(measured);
    }
    Ok(all)
}

impl Bench<'_> {
    fn measure(&self, query: &Query) -> Result<Measured> {
        let batch_sql = query.for_batch();
        let runs = self.options.runs.max(1);
        let (mut batch, mut batch_cpu, mut sink, mut sink_cpu) = (vec![], vec![], vec![], vec![]);
        let (mut rows_out, mut peak, mut epoch) = (0, 0, Duration::ZERO);
        for _ in 0..runs {
            let (start, cpu) = (now(), cpu_time());
            rows_out = batch::count_rows(self.runtime, &self.batch, &batch_sql).map_err(failed)?;
            batch.push(start.elapsed());
            batch_cpu.push(cpu_time() - cpu);

            forget_peak();
            let kept = self.options.checkpoints.then(|| stream::data_dir(&self.options.dir)).transpose()?;
            let data_dir = kept.as_ref().map(|d| d.path().to_owned());
            let (engine, mut session) = self.engine(query, EngineConfig { data_dir, ..EngineConfig::default() })?;
            let (start, cpu) = (now(), cpu_time());
            let create = format!("CREATE SINK answer AS {} WITH (connector = 'blackhole')", query.sql);
            stream::done(self.runtime, &mut session, &create)?;
            sink.push(start.elapsed());
            sink_cpu.push(cpu_time() - cpu);
            peak = peak.max(peak_bytes());
            epoch = epoch.max(engine.epoch_times().max());
            engine.shutdown();
        }
        let view = self.check(query, rows_out)?;
        Ok(Measured {
            query: query.name.to_owned(),
            rows_in: self.rows(query.reads)?,
            rows_out,
            batch: middle(batch),
            batch_cpu: middle(batch_cpu),
            sink: middle(sink),
            sink_cpu: middle(sink_cpu),
            peak,
            epoch,
            view,
        })
    }

    /// Fills a view, and compares it with what batch gives. Gives what the view took.
    fn check(&self, query: &Query, rows: u64) -> Result<Duration> {
        let ties = TIES.contains(&query.name);
        // The oracle breaks ties as views do; it needs all input, though.
        let (engine, mut session) =
            self.engine(query, EngineConfig { record_sources: ties, ..EngineConfig::default() })?;
        let start = now();
        stream::done(self.runtime, &mut session, &format!("CREATE MATERIALIZED VIEW answer AS {}", query.sql))?;
        let took = start.elapsed();
        let (schema, kept) = stream::checksum(self.runtime, &mut session, "SELECT * FROM answer")?;
        let wrong = |by: &str, other: Checksum| {
            Err(SpateError::internal(format!("the view is not what {by} gives: {kept} but {other}")))
        };
        if ties {
            if self.runtime.block_on(engine.verify_views())? != 1 {
                return Err(SpateError::internal("the view was not checked"));
            }
        } else {
            let (_, computed) = stream::checksum(self.runtime, &mut session, query.sql)?;
            if kept != computed {
                return wrong("its query", computed);
            }
        }
        engine.shutdown();
        if kept.rows != rows {
            return wrong("DataFusion", Checksum { rows, ..kept });
        }
        if !ties {
            let alone = batch::checksum(self.runtime, &self.batch, &query.for_batch(), &schema)?;
            if kept != alone {
                return wrong("DataFusion", alone);
            }
        }
        Ok(took)
    }

    fn engine(&self, query: &Query, config: EngineConfig) -> Result<(std::sync::Arc<spate_server::Engine>, Session)> {
        let config = EngineConfig { threads: self.options.parallelism, ..config };
        let (engine, mut session) = stream::engine(self.runtime, config, &[])?;
        let mut run = |sql: &str| stream::done(self.runtime, &mut session, sql);
        run(&format!("SET parallelism = {}", self.options.parallelism))?;
        for table in query.reads {
            run(&self.source(table))?;
        }
        if query.sql.contains("side_input") {
            let path = self.files.join(data::SIDE_INPUT).display().to_string().replace('\'', "''");
            run(&format!("CREATE SOURCE side_input WITH (connector = 'file', path = '{path}')"))?;
        }
        Ok((engine, session))
    }

    fn source(&self, table: &str) -> String {
        let events = self.options.events;
        let file =
            |ending: &str| self.files.join(format!("{table}.{ending}")).display().to_string().replace('\'', "''");
        match self.options.input {
            Input::Generator => {
                format!("CREATE SOURCE {table} WITH (connector = 'nexmark', table = '{table}', events = {events})")
            }
            Input::Parquet => declared(table, &file("parquet")),
            Input::Json => declared(table, &file("json")),
        }
    }

    fn rows(&self, tables: &[&str]) -> Result<u64> {
        let mut rows = 0;
        for t in tables {
            rows += batch::number(self.runtime, &self.batch, &format!("SELECT count(*) FROM {t}")).map_err(failed)?;
        }
        Ok(rows)
    }
}

/// Queries whose ties batch may break either way.
const TIES: &[&str] = &["q9", "q18", "q19"];

/// As the benchmark has it: rows are at most 4 s late.
fn declared(table: &str, path: &str) -> String {
    let columns: Vec<String> = columns(table).iter().map(|(name, t)| format!("{name} {t}")).collect();
    let watermark = "WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'";
    format!("CREATE SOURCE {table} ({}, {watermark}) WITH (connector = 'file', path = '{path}')", columns.join(", "))
}

fn columns(table: &str) -> &'static [(&'static str, &'static str)] {
    match table {
        "person" => &[
            ("id", "bigint"),
            ("name", "text"),
            ("email_address", "text"),
            ("credit_card", "text"),
            ("city", "text"),
            ("state", "text"),
            ("date_time", "timestamp"),
            ("extra", "text"),
        ],
        "auction" => &[
            ("id", "bigint"),
            ("item_name", "text"),
            ("description", "text"),
            ("initial_bid", "bigint"),
            ("reserve", "bigint"),
            ("date_time", "timestamp"),
            ("expires", "timestamp"),
            ("seller", "bigint"),
            ("category", "bigint"),
            ("extra", "text"),
        ],
        _ => &[
            ("auction", "bigint"),
            ("bidder", "bigint"),
            ("price", "bigint"),
            ("channel", "text"),
            ("url", "text"),
            ("date_time", "timestamp"),
            ("extra", "text"),
        ],
    }
}

/// The columns as Arrow has them.
fn schema(table: &str) -> Schema {
    let of = |t: &str| match t {
        "bigint" => DataType::Int64,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => DataType::Utf8,
    };
    Schema::new(columns(table).iter().map(|(name, t)| Field::new(*name, of(t), true)).collect::<Vec<_>>())
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Geometric mean of the ratios; 0 of none.
pub fn mean_ratio(all: &[Measured]) -> f64 {
    if all.is_empty() {
        return 0.0;
    }
    (all.iter().map(|m| m.ratio().max(1e-9).ln()).sum::<f64>() / all.len() as f64).exp()
}

/// Default folder of the generated files.
pub fn default_dir() -> PathBuf {
    std::env::temp_dir().join("spate-bench")
}

/// Whether a folder is fit for the files.
///
/// # Errors
/// It cannot be made.
pub fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)
        .map_err(|e| SpateError::from(e).context(format!("cannot make directory \"{}\"", dir.display())))
}
