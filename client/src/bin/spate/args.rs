//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Args as ClapArgs, Parser, Subcommand, ValueEnum};
use spate_client::format::Format;
use spate_planner::fault::optimize::Strategy;

/// SQL over streams: materialized views that are always up to date
#[derive(Debug, Parser)]
#[command(
    name = "spate",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "COMMAND",
    after_help = "Without -c, -f or a script on standard input, spate shows a prompt.\n\n\
        Exit codes: 0 success, 1 a statement or test failed, 2 wrong usage, 130 Ctrl-C.\n\n\
        Examples:\n  \
        spate\n  \
        spate -c 'SELECT 1 + 1'\n  \
        spate -f views.sql --format csv > result.csv\n  \
        spate -u grpc://127.0.0.1:50051 -c 'SHOW TABLES'\n  \
        echo 'SHOW TABLES;' | spate"
)]
pub struct Args {
    /// Run these statements and exit; may be repeated and mixed with -f
    #[arg(short, long, value_name = "SQL")]
    pub command: Vec<String>,

    /// Run the statements of this file and exit; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: Vec<PathBuf>,

    /// Keep data and running queries in this directory, and go on with what is in it
    #[arg(short, long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Be a client of the server at this address, such as grpc://127.0.0.1:50051
    #[arg(short, long, value_name = "URL")]
    pub url: Option<String>,

    /// How results are written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    #[command(flatten)]
    pub engine: EngineArgs,

    /// No command tags, no progress, no welcome
    #[arg(short, long)]
    pub quiet: bool,

    #[command(subcommand)]
    pub command_name: Option<Command>,
}

/// Settings of the embedded engine.
#[derive(Debug, ClapArgs)]
pub struct EngineArgs {
    /// Worker threads [default: one per core; 2 for slt]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Longest time between two epochs while there is input, in milliseconds [default: 100; 10 for slt]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub epoch_interval: Option<u32>,

    /// Bytes that continuous queries and their views may keep [default: half of the memory]
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<u64>,

    /// Bytes that all running SELECTs and DML statements may take [default: a quarter of the memory]
    #[arg(long, value_name = "BYTES")]
    pub query_memory_limit: Option<u64>,
}

impl EngineArgs {
    /// The configuration, with these settings over `base`.
    pub fn over(&self, base: spate_server::EngineConfig) -> spate_server::EngineConfig {
        spate_server::EngineConfig {
            threads: self.threads.map_or(base.threads, usize::from),
            epoch_interval: self.epoch_interval.map_or(base.epoch_interval, |ms| Duration::from_millis(ms.into())),
            memory_limit: bytes(self.memory_limit).unwrap_or(base.memory_limit),
            query_memory_limit: bytes(self.query_memory_limit).unwrap_or(base.query_memory_limit),
            ..base
        }
    }
}

/// A limit as the engine has it.
pub fn bytes(limit: Option<u64>) -> Option<usize> {
    limit.map(|b| usize::try_from(b).unwrap_or(usize::MAX))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve Flight SQL and HTTP
    Server(ServerArgs),
    /// Run sqllogictest files, each on a fresh engine
    Slt(SltArgs),
    /// Write data sets to files
    Generate(GenerateArgs),
    /// Measure the engine on this machine, next to DataFusion in batch
    Bench(BenchArgs),
    /// Plan the protection of a query on a described cluster, and let it fail for years
    Simulate(SimulateArgs),
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Every setting is a flag, a variable and a key of the configuration file (with _ for -). A flag \
        comes before its variable, that before the file, and the file before the default.\n\n\
        The addresses are printed once they are bound, one on a line: flight: grpc://..., http: http://... \
        SIGTERM and Ctrl-C stop the server: new statements are refused, running streams end, exit code 0.\n\n\
        HTTP has /healthz, /readyz and /metrics.\n\n\
        Examples:\n  \
        spate server\n  \
        spate server --listen 0.0.0.0:50051 --http 127.0.0.1:0\n  \
        SPATE_LISTEN=127.0.0.1:0 spate server --config spate.toml"
)]
pub struct ServerArgs {
    /// Address of Flight SQL; port 0 takes a free one [default: 127.0.0.1:50051]
    #[arg(long, value_name = "ADDR", env = "SPATE_LISTEN")]
    pub listen: Option<String>,

    /// Address of HTTP; port 0 takes a free one [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR", env = "SPATE_HTTP")]
    pub http: Option<String>,

    /// Directory to keep data and running queries in, and to go on from [default: in memory]
    #[arg(short, long, value_name = "DIR", env = "SPATE_DATA_DIR")]
    pub data_dir: Option<PathBuf>,

    /// Time between checkpoints while there is input, in milliseconds [default: 1000]
    #[arg(long, value_name = "MS", env = "SPATE_CHECKPOINT_INTERVAL", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub checkpoint_interval: Option<u32>,

    /// Configuration file, in TOML
    #[arg(long, value_name = "FILE", env = "SPATE_CONFIG")]
    pub config: Option<PathBuf>,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", env = "SPATE_THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// Longest time between two epochs while there is input, in milliseconds [default: 100]
    #[arg(long, value_name = "MS", env = "SPATE_EPOCH_INTERVAL", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub epoch_interval: Option<u32>,

    /// Bytes that continuous queries and their views may keep [default: half of the memory]
    #[arg(long, value_name = "BYTES", env = "SPATE_MEMORY_LIMIT")]
    pub memory_limit: Option<u64>,

    /// Bytes that all running SELECTs and DML statements may take [default: a quarter of the memory]
    #[arg(long, value_name = "BYTES", env = "SPATE_QUERY_MEMORY_LIMIT")]
    pub query_memory_limit: Option<u64>,

    /// Sessions at a time [default: 1024]
    #[arg(long, value_name = "N", env = "SPATE_MAX_SESSIONS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_sessions: Option<u32>,

    /// Seconds after which a session with a token or cookie ends if nobody uses it [default: 1800]
    #[arg(long, value_name = "S", env = "SPATE_SESSION_TIMEOUT", value_parser = clap::value_parser!(u32).range(1..))]
    pub session_timeout: Option<u32>,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "All statements of the SQL file but the last are carried out (sources, views); the last one is the query, \
        or a statement that keeps one up to date. It is planned, not run. What the model expects and what the \
        simulation counts are printed side by side.\n\n\
        Example:\n  spate simulate examples/cluster-3.toml examples/auctions.sql --years 10 --draw figures"
)]
pub struct SimulateArgs {
    /// Description of the cluster, in TOML
    pub cluster: PathBuf,

    /// SQL whose last statement is the query to protect
    pub query: PathBuf,

    /// What protection is chosen for [default: as the cluster file says]
    #[arg(long, value_parser = strategies())]
    pub strategy: Option<Strategy>,

    /// Years to simulate
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub years: f64,

    /// Seed of everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Write the plan and the figures to a file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Folder for drawings (SVG) of outages, lateness against budget, and the plan
    #[arg(long, value_name = "DIR")]
    pub draw: Option<PathBuf>,
}

/// A strategy by its name; `--help` tells what each does.
fn strategies() -> impl TypedValueParser<Value = Strategy> {
    let names = Strategy::ALL.map(|s| PossibleValue::new(s.name()).help(s.meaning()));
    PossibleValuesParser::new(names).map(|name| Strategy::named(&name).unwrap_or_default())
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "After every FLUSH and at the end of a file, all materialized views are recomputed in \
        batch and compared. In SQL, ${SLT_DIR} is the folder of the file and ${TMP} an empty folder.\n\n\
        Examples:\n  \
        spate slt sql-tests/slt\n  \
        spate slt 'sql-tests/slt/join*.slt' --junit report.xml\n  \
        spate slt new.slt --complete")]
pub struct SltArgs {
    /// Files, folders (all *.slt below) and globs
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,

    /// Write the actual answers into the files
    #[arg(long)]
    pub complete: bool,

    /// Write a JUnit report
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,

    /// Run on the server at this address, one file after the other; it must be empty, and is afterwards
    #[arg(short, long, value_name = "URL", conflicts_with_all = ["threads", "epoch_interval", "jobs"])]
    pub url: Option<String>,

    /// Files to run at a time
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,

    /// Longest time for one file, in seconds
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: u32,

    #[command(flatten)]
    pub engine: EngineArgs,

    /// Only failures and the summary
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  spate generate nexmark --out data --events 1000000 --format parquet")]
pub struct GenerateArgs {
    #[command(subcommand)]
    pub set: DataSet,
}

#[derive(Debug, Subcommand)]
pub enum DataSet {
    /// An online auction: persons, auctions and bids, one file each
    Nexmark(NexmarkArgs),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "The rows are those of connector = 'nexmark' with the same seed.\n\n\
        Example:\n  spate generate nexmark --out data --events 1000000 --format parquet --seed 7")]
pub struct NexmarkArgs {
    /// Folder for person, auction and bid; made if missing, files are overwritten
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Events of all three kinds together; of 50, one is a person, three are auctions, 46 are bids
    #[arg(long, value_name = "N")]
    pub events: u64,

    /// File format
    #[arg(long, value_enum, default_value_t = FileFormat::Parquet)]
    pub format: FileFormat,

    /// Another seed gives other rows
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// No progress, no summary
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  spate bench nexmark --queries q1,q5 --events 1000000")]
pub struct BenchArgs {
    #[command(subcommand)]
    pub bench: Benchmark,
}

#[derive(Debug, Subcommand)]
pub enum Benchmark {
    /// The Nexmark queries over bounded input
    Nexmark(NexmarkBenchArgs),
    /// From an event to the sink, at parts of the highest rate
    Latency(LatencyBenchArgs),
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "For each query the highest rate that it keeps up with is measured first. Then events come at a part         of it, by the clock, and each row that is given to the sink is timed from the newest event in it.\n\n\
        Example:\n  spate bench latency --queries join --load 50 --epoch-interval 10"
)]
pub struct LatencyBenchArgs {
    /// Queries, separated by commas: project, aggregate, window, join, topn [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub queries: Vec<String>,

    /// Percent of the highest rate
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_values_t = [20, 50, 80], value_parser = clap::value_parser!(u8).range(1..=100))]
    pub load: Vec<u8>,

    /// Longest time between epochs, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub epoch_interval: u64,

    /// Seconds that are timed per load
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,

    /// Threads, and tasks per fragment
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallelism: u16,

    /// Without checkpoints: state is kept in memory only
    #[arg(long)]
    pub no_checkpoints: bool,

    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Each query runs as a continuous query from the first row to the last, into a sink that drops \
        its rows, and in turn in batch with DataFusion over the same files. A view of it is then compared with its \
        batch answer; a wrong answer fails.\n\n\
        ratio: batch time / sink time. The files are kept for the next run.\n\n\
        Example:\n  spate bench nexmark --queries q1,q5 --events 1000000 --json result.json")]
pub struct NexmarkBenchArgs {
    /// Queries such as q5, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub queries: Vec<String>,

    /// Events of all three kinds together; of 50, one is a person, three are auctions, 46 are bids
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub events: u64,

    /// Where the rows come from
    #[arg(long, value_enum, default_value_t = BenchInput::Parquet)]
    pub format: BenchInput,

    /// Threads, and tasks per fragment
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallelism: u16,

    /// Timed runs per query and side; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,

    /// Without checkpoints: state is kept in memory only
    #[arg(long)]
    pub no_checkpoints: bool,

    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Folder of the generated files [default: spate-bench in the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Inputs of the benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchInput {
    /// Parquet files
    Parquet,
    /// Files of JSON lines
    Json,
    /// The connector nexmark; batch reads Parquet files with the same rows
    Generator,
}

/// Formats of generated files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// Parquet, zstd-compressed
    Parquet,
    /// One JSON object per line
    Json,
    /// CSV with a header
    Csv,
}

/// A script to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// From `-c`.
    Sql(String),
    /// From `-f`.
    File(PathBuf),
}

/// `-c` and `-f` in the order in which they were given.
pub fn inputs(matches: &ArgMatches) -> Vec<Input> {
    let mut inputs: Vec<(usize, Input)> = Vec::new();
    if let (Some(indices), Some(values)) = (matches.indices_of("command"), matches.get_many::<String>("command")) {
        inputs.extend(indices.zip(values.map(|sql| Input::Sql(sql.clone()))));
    }
    if let (Some(indices), Some(values)) = (matches.indices_of("file"), matches.get_many::<PathBuf>("file")) {
        inputs.extend(indices.zip(values.map(|path| Input::File(path.clone()))));
    }
    inputs.sort_by_key(|(index, _)| *index);
    inputs.into_iter().map(|(_, input)| input).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn scripts_keep_their_order() {
        let matches = Args::command()
            .try_get_matches_from(["spate", "-c", "a", "-f", "b", "-c", "c", "--format", "csv"])
            .unwrap();
        assert_eq!(inputs(&matches), [Input::Sql("a".into()), Input::File("b".into()), Input::Sql("c".into())]);
    }

    #[test]
    fn wrong_usage_is_refused() {
        for line in [
            "spate --format xml",
            "spate --threads 0",
            "spate nonsense",
            "spate slt",
            "spate -c x slt y",
            "spate generate nexmark --out d",
        ] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
