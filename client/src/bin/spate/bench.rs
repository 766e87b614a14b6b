//! `spate bench`: how fast the engine is on this machine, and whether its answers are right.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use spate_benches::latency;
use spate_benches::nexmark::{self, Input, Measured, Options};
use spate_engine::types::{Result, SpateError};

use crate::args::{BenchArgs, BenchInput, Benchmark, LatencyBenchArgs, NexmarkBenchArgs};

/// Gives the exit code.
pub fn run(args: &BenchArgs) -> u8 {
    let result = match &args.bench {
        Benchmark::Nexmark(args) => nexmark(args),
        Benchmark::Latency(args) => latency(args),
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
        checkpoints: !args.no_checkpoints,
        dir: args.dir.clone().unwrap_or_else(nexmark::default_dir),
    };
    nexmark::make_dir(&options.dir)?;
    warn_of_debug();
    if std::io::stderr().is_terminal() {
        eprint(&format!("{} events under {}\n", options.events, options.dir.display()));
    }
    let runtime = spate_server::threads::runtime()?;
    print(&header());
    let all = nexmark::run(&runtime, &options, &mut |m| print(&line(m)))?;
    print(&format!(
        "\ngeometric mean of batch time / streaming time: {:.2}\n{} events, parallelism {}, median of {} runs; \
         answers equal batch; {}\n",
        nexmark::mean_ratio(&all),
        options.events,
        options.parallelism,
        options.runs,
        mode(options.checkpoints)
    ));
    if let Some(path) = &args.json {
        write_json(path, &options, &all)?;
    }
    Ok(())
}

/// What is kept of the state that the figures are of.
fn mode(checkpoints: bool) -> &'static str {
    if checkpoints { "exactly once, checkpoints each second" } else { "no checkpoints: state is in memory only" }
}

fn warn_of_debug() {
    if cfg!(debug_assertions) {
        eprint("note: a debug build; its figures say nothing about speed\n");
    }
}

fn latency(args: &LatencyBenchArgs) -> Result<()> {
    let options = latency::Options {
        queries: args.queries.clone(),
        loads: args.load.clone(),
        epoch_interval: Duration::from_millis(args.epoch_interval),
        time: Duration::from_secs(args.seconds),
        parallelism: args.parallelism.into(),
        checkpoints: (!args.no_checkpoints).then(std::env::temp_dir),
    };
    warn_of_debug();
    let runtime = spate_server::threads::runtime()?;
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let mut first = true;
    let all = latency::run(&runtime, &options, &mut |m| {
        // Names are checked before anything is measured.
        if std::mem::take(&mut first) {
            print(&format!(
                "{:10} {:>12} {:>6} {:>10} {:>8} {:>8} {:>8} {:>8}\n",
                "query", "highest ev/s", "load %", "rows", "p50 ms", "p99 ms", "p99.9 ms", "max ms"
            ));
        }
        print(&format!(
            "{:10} {:>12.0} {:>6} {:>10} {:>8.1} {:>8.1} {:>8.1} {:>8.1}\n",
            m.query,
            m.highest,
            m.load,
            m.rows,
            ms(m.p50),
            ms(m.p99),
            ms(m.p999),
            ms(m.max)
        ));
    })?;
    print(&format!(
        "\nfrom the newest event in a row to the sink; epochs of {} ms, parallelism {}, {} s per load; {}\n",
        args.epoch_interval,
        args.parallelism,
        args.seconds,
        mode(options.checkpoints.is_some())
    ));
    let Some(path) = &args.json else { return Ok(()) };
    let loads: Vec<_> = all
        .iter()
        .map(|m| {
            json!({
                "query": m.query,
                "highest_events_per_s": m.highest,
                "load_percent": m.load,
                "rows": m.rows,
                "p50_s": m.p50.as_secs_f64(),
                "p99_s": m.p99.as_secs_f64(),
                "p999_s": m.p999.as_secs_f64(),
                "max_s": m.max.as_secs_f64(),
            })
        })
        .collect();
    let report = json!({
        "benchmark": "latency",
        "epoch_interval_s": options.epoch_interval.as_secs_f64(),
        "parallelism": options.parallelism,
        "checkpoints": options.checkpoints.is_some(),
        "loads": loads,
    });
    write_report(path, &report)
}

fn header() -> String {
    format!(
        "{:5} {:>10} {:>10} {:>9} {:>9} {:>6} {:>11} {:>11} {:>9} {:>9} {:>9}\n",
        "query",
        "rows in",
        "rows out",
        "batch s",
        "sink s",
        "ratio",
        "rows/s",
        "rows/cpu s",
        "peak MiB",
        "epoch ms",
        "view s"
    )
}

fn line(m: &Measured) -> String {
    format!(
        "{:5} {:>10} {:>10} {:>9.3} {:>9.3} {:>6.2} {:>11.0} {:>11.0} {:>9} {:>9} {:>9.3}\n",
        m.query,
        m.rows_in,
        m.rows_out,
        m.batch.as_secs_f64(),
        m.sink.as_secs_f64(),
        m.ratio(),
        m.rows_per_s(),
        m.rows_per_cpu_s(),
        m.peak >> 20,
        m.epoch.as_millis(),
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
                "longest_epoch_s": m.epoch.as_secs_f64(),
            })
        })
        .collect();
    let report = json!({
        "benchmark": "nexmark",
        "events": options.events,
        "input": format!("{:?}", options.input).to_lowercase(),
        "parallelism": options.parallelism,
        "runs": options.runs,
        "checkpoints": options.checkpoints,
        "answers_equal_batch": true,
        "ratio_geometric_mean": nexmark::mean_ratio(all),
        "queries": queries,
    });
    write_report(path, &report)
}

fn write_report(path: &Path, report: &serde_json::Value) -> Result<()> {
    std::fs::write(path, format!("{report:#}\n"))
        .map_err(|e| SpateError::from(e).context(format!("cannot write \"{}\"", path.display())))
}

fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn eprint(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
