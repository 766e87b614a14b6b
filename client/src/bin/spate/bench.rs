//! `spate bench`: how fast the engine is on this machine, and whether its answers are right.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;

use serde_json::json;
use spate_benches::nexmark::{self, Input, Measured, Options};
use spate_engine::types::{Result, SpateError};

use crate::args::{BenchArgs, BenchInput, Benchmark, NexmarkBenchArgs};

/// Gives the exit code.
pub fn run(args: &BenchArgs) -> u8 {
    let result = match &args.bench {
        Benchmark::Nexmark(args) => nexmark(args),
    };
    match result {
        Ok(()) => 0,
        Err(e) => {
            crate::report(&e);
            crate::FAILURE
        }
    }
}

fn nexmark(args: &NexmarkBenchArgs) -> Result<()> {
    let options = Options {
        queries: args.queries.clone(),
        events: args.events,
        input: match args.format {
            BenchInput::Parquet => Input::Parquet,
            BenchInput::Json => Input::Json,
            BenchInput::Generator => Input::Generator,
        },
        parallelism: args.parallelism.into(),
        runs: args.runs.into(),
        dir: args.dir.clone().unwrap_or_else(nexmark::default_dir),
    };
    nexmark::make_dir(&options.dir)?;
    if cfg!(debug_assertions) {
        eprint("note: a debug build; its figures say nothing about speed\n");
    }
    if std::io::stderr().is_terminal() {
        eprint(&format!("{} events under {}\n", options.events, options.dir.display()));
    }
    let runtime = spate_server::threads::runtime()?;
    print(&header());
    let all = nexmark::run(&runtime, &options, &mut |m| print(&line(m)))?;
    print(&format!(
        "\ngeometric mean of batch time / streaming time: {:.2}\n{} events, parallelism {}, median of {} runs; \
         answers equal batch; no checkpoints: this version keeps state in memory only\n",
        nexmark::mean_ratio(&all),
        options.events,
        options.parallelism,
        options.runs
    ));
    if let Some(path) = &args.json {
        write_json(path, &options, &all)?;
    }
    Ok(())
}

fn header() -> String {
    format!(
        "{:5} {:>10} {:>10} {:>9} {:>9} {:>6} {:>11} {:>11} {:>9} {:>9}\n",
        "query", "rows in", "rows out", "batch s", "sink s", "ratio", "rows/s", "rows/cpu s", "peak MiB", "view s"
    )
}

fn line(m: &Measured) -> String {
    format!(
        "{:5} {:>10} {:>10} {:>9.3} {:>9.3} {:>6.2} {:>11.0} {:>11.0} {:>9} {:>9.3}\n",
        m.query,
        m.rows_in,
        m.rows_out,
        m.batch.as_secs_f64(),
        m.sink.as_secs_f64(),
        m.ratio(),
        m.rows_per_s(),
        m.rows_per_cpu_s(),
        m.peak >> 20,
        m.view.as_secs_f64()
    )
}

fn write_json(path: &Path, options: &Options, all: &[Measured]) -> Result<()> {
    let queries: Vec<_> = all
        .iter()
        .map(|m| {
            json!({
                "query": m.query,
                "rows_in": m.rows_in,
                "rows_out": m.rows_out,
                "batch_s": m.batch.as_secs_f64(),
                "batch_cpu_s": m.batch_cpu.as_secs_f64(),
                "sink_s": m.sink.as_secs_f64(),
                "sink_cpu_s": m.sink_cpu.as_secs_f64(),
                "view_s": m.view.as_secs_f64(),
                "ratio": m.ratio(),
                "rows_per_s": m.rows_per_s(),
                "rows_per_cpu_s": m.rows_per_cpu_s(),
                "peak_bytes": m.peak,
            })
        })
        .collect();
    let report = json!({
        "benchmark": "nexmark",
        "events": options.events,
        "input": format!("{:?}", options.input).to_lowercase(),
        "parallelism": options.parallelism,
        "runs": options.runs,
        "checkpoints": false,
        "answers_equal_batch": true,
        "ratio_geometric_mean": nexmark::mean_ratio(all),
        "queries": queries,
    });
    let mut text = String::new();
    let _ = writeln!(text, "{report:#}");
    std::fs::write(path, text).map_err(|e| SpateError::from(e).context(format!("cannot write \"{}\"", path.display())))
}

fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn eprint(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
