//! Figures of the engine's foundation: how fast a write is seen through a view, how a continuous
//! query compares with batch, what whole-epoch hand-over costs, whether idling is free, and whether
//! a watermark keeps memory flat.
//!
//! `cargo run --release -p spate-benches --bin foundation [-- latency|throughput|handover|idle|memory|keys] [--events N]`

use std::path::{Path, PathBuf};
use std::time::Duration;

use spate_benches::queries::{FREED, GROUP_BY, Q1, Q4, Q5, Q9};
use spate_benches::{batch, cpu_time, data, median, now, resident_bytes, stream};
use spate_engine::connector::generate::Format;
use spate_engine::exchange::HandOver;
use spate_server::EngineConfig;
use tokio::runtime::Runtime;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const THREADS: usize = 2;
/// Views of the idle engine.
const VIEWS: usize = 20;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let events = args
        .iter()
        .position(|a| a == "--events")
        .and_then(|i| args.get(i + 1))
        .map_or(Ok(10_000_000), |n| n.parse::<u64>())?;
    let wanted = |name: &str| {
        args.iter().all(|a| a.starts_with('-') || a.parse::<u64>().is_ok()) || args.iter().any(|a| a == name)
    };
    let dir = std::env::temp_dir().join("spate-bench");
    let runtime = Runtime::new()?;
    if wanted("latency") {
        latency(&runtime)?;
    }
    if wanted("throughput") {
        throughput(&runtime, &dir, events)?;
    }
    if wanted("handover") {
        hand_over(&runtime, &dir, events)?;
    }
    if wanted("idle") {
        idle(&runtime)?;
    }
    if wanted("memory") {
        memory(events)?;
    }
    if wanted("keys") {
        keys(&runtime, &dir)?;
    }
    Ok(())
}

fn config() -> EngineConfig {
    EngineConfig { threads: THREADS, ..EngineConfig::default() }
}

/// INSERT of one row, then SELECT through a view of it, with either hand-over.
fn latency(runtime: &Runtime) -> Result<()> {
    for mode in [HandOver::WholeEpoch, HandOver::Eager] {
        let (engine, mut s) = stream::engine(runtime, EngineConfig { hand_over: mode, ..config() }, &[])?;
        stream::done(runtime, &mut s, "CREATE TABLE t (k bigint PRIMARY KEY, v bigint)")?;
        stream::done(
            runtime,
            &mut s,
            "CREATE MATERIALIZED VIEW m AS SELECT k % 10 AS g, count(*) AS c, sum(v) AS s FROM t GROUP BY k % 10",
        )?;
        let mut times = Vec::new();
        for i in 0..2000 {
            let start = now();
            stream::done(runtime, &mut s, &format!("INSERT INTO t VALUES ({i}, {i})"))?;
            let count = stream::number(runtime, &mut s, "SELECT CAST(sum(c) AS bigint) FROM m")?;
            times.push(start.elapsed());
            if count != i + 1 {
                return Err(format!("{count} rows seen after {} inserts", i + 1).into());
            }
        }
        times.sort_unstable();
        let at = |q: usize| times[(times.len() - 1) * q / 100];
        println!("insert + select through a view, {mode:?}: p50 {:?}, p99 {:?} (target p50 < 5 ms)", at(50), at(99));
        engine.shutdown();
    }
    Ok(())
}

fn files(dir: &Path, events: u64) -> Result<(PathBuf, PathBuf)> {
    println!("data: {events} Nexmark events and 10 M keyed rows under {}", dir.display());
    Ok((data::nexmark(dir, events, Format::Parquet)?, data::keyed(dir, 10_000_000, 1_000_000)?))
}

/// q1 and a GROUP BY of a million keys, against batch.
fn throughput(runtime: &Runtime, dir: &Path, events: u64) -> Result<()> {
    let (nexmark, keyed) = files(dir, events)?;
    let bid = nexmark.join("bid.parquet");
    for (name, sql, table, path, view) in
        [("q1", Q1, "bid", &bid, false), ("group by 1 M keys", GROUP_BY, "keyed", &keyed, true)]
    {
        let context = batch::context(runtime, THREADS, &[(table, path)])?;
        let (batch_time, batch_rows) = median(5, || batch::count_rows(runtime, &context, sql))?;
        let mut cpu = Duration::ZERO;
        let mut times = Vec::new();
        let (_, stream_rows) = median(5, || -> Result<i64> {
            let (engine, mut s) = stream::engine(runtime, config(), &[(table, path)])?;
            let (start, before) = (now(), cpu_time());
            let rows = if view {
                stream::done(runtime, &mut s, &format!("CREATE MATERIALIZED VIEW v AS {sql}"))?;
                times.push(start.elapsed());
                cpu = cpu_time() - before;
                stream::number(runtime, &mut s, "SELECT count(*) FROM v")?
            } else {
                stream::done(runtime, &mut s, &format!("CREATE SINK v AS {sql} WITH (connector = 'blackhole')"))?;
                times.push(start.elapsed());
                cpu = cpu_time() - before;
                i64::try_from(engine.progress().rows)?
            };
            engine.shutdown();
            Ok(rows)
        })?;
        times.sort_unstable();
        let stream_time = times[times.len() / 2];
        if batch_rows != stream_rows as u64 {
            return Err(format!("{name}: {stream_rows} rows, batch has {batch_rows}").into());
        }
        println!(
            "{name}: batch {batch_time:?}, stream {stream_time:?} ({cpu:?} CPU), ratio {:.2} (target 0.3)",
            batch_time.as_secs_f64() / stream_time.as_secs_f64()
        );
    }
    Ok(())
}

/// Whole epochs in channel order against eager merging.
fn hand_over(runtime: &Runtime, dir: &Path, events: u64) -> Result<()> {
    let (nexmark, _) = files(dir, events)?;
    let bid = nexmark.join("bid.parquet");
    let auction = nexmark.join("auction.parquet");
    for (name, sql) in [("q4", Q4), ("q5", Q5), ("q9", Q9)] {
        let mut times = [Vec::new(), Vec::new()];
        let mut counts = Vec::new();
        // In turn, so that whatever else the machine does hits both.
        for _ in 0..5 {
            for (i, mode) in [HandOver::WholeEpoch, HandOver::Eager].into_iter().enumerate() {
                let config = EngineConfig { hand_over: mode, ..config() };
                let (engine, mut s) = stream::engine(runtime, config, &[("bid", &bid), ("auction", &auction)])?;
                let start = now();
                stream::done(runtime, &mut s, &format!("CREATE MATERIALIZED VIEW v AS {sql}"))?;
                times[i].push(start.elapsed());
                counts.push(stream::number(runtime, &mut s, "SELECT count(*) FROM v")?);
                engine.shutdown();
            }
        }
        if counts.windows(2).any(|w| w[0] != w[1]) {
            return Err(format!("{name}: results differ: {counts:?}").into());
        }
        for t in &mut times {
            t.sort_unstable();
        }
        let (whole, eager) = (times[0][2], times[1][2]);
        println!(
            "{name}: whole epochs {whole:?}, eager {eager:?}: {:+.1}% throughput",
            (eager.as_secs_f64() / whole.as_secs_f64() - 1.0) * 100.0
        );
    }
    Ok(())
}

/// Memory and CPU of an engine whose views read a folder where nothing happens.
fn idle(runtime: &Runtime) -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("a.json"), "{\"a\": 1}\n")?;
    let (_engine, mut s) = stream::engine(runtime, config(), &[])?;
    let create = format!(
        "CREATE SOURCE w (a bigint) WITH (connector = 'file', path = '{}', format = 'json', mode = 'watch')",
        folder.path().display()
    );
    stream::done(runtime, &mut s, &create)?;
    stream::done(runtime, &mut s, "CREATE TABLE t (a bigint PRIMARY KEY, b bigint)")?;
    for n in 0..VIEWS / 2 {
        for (view, query) in [
            (format!("w{n}"), format!("SELECT a % {}, count(*) AS c FROM w GROUP BY 1", n + 2)),
            (
                format!("t{n}"),
                format!("SELECT w.a, sum(b) AS b FROM w JOIN t USING (a) GROUP BY w.a HAVING sum(b) > {n}"),
            ),
        ] {
            stream::done(runtime, &mut s, &format!("CREATE MATERIALIZED VIEW {view} AS {query}"))?;
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    let (memory, cpu) = (resident_bytes(), cpu_time());
    std::thread::sleep(Duration::from_secs(20));
    println!(
        "{VIEWS} views, idle for 20 s: resident memory {} KiB -> {} KiB, CPU {:.2}% of a core",
        memory >> 10,
        resident_bytes() >> 10,
        (cpu_time() - cpu).as_secs_f64() / 20.0 * 100.0
    );
    Ok(())
}

/// `count(*)` by a bigint that is never the same: time per key, against batch, and bytes of state.
fn keys(runtime: &Runtime, dir: &Path) -> Result<()> {
    const SQL: &str = "SELECT k, count(*) AS c FROM keyed GROUP BY k";
    for keys in [1_000_000, 10_000_000, 50_000_000] {
        let path = data::distinct(dir, keys)?;
        let context = batch::context(runtime, THREADS, &[("keyed", &path)])?;
        let mut times = [Vec::new(), Vec::new()];
        let mut most = 0;
        for _ in 0..3 {
            let start = now();
            let rows = batch::count_rows(runtime, &context, SQL)?;
            times[0].push(start.elapsed());
            if rows != u64::from(keys) {
                return Err(format!("batch gives {rows} rows").into());
            }
            let (engine, mut s) = stream::engine(runtime, config(), &[("keyed", &path)])?;
            let create = format!("CREATE SINK s AS {SQL} WITH (connector = 'blackhole')");
            let start = now();
            let run = std::thread::spawn(move || stream::done(&Runtime::new()?, &mut s, &create));
            while !run.is_finished() {
                std::thread::sleep(Duration::from_millis(5));
                most = most.max(engine.state_bytes());
            }
            times[1].push(start.elapsed());
            run.join().map_err(|_| "the query panicked")??;
            engine.shutdown();
        }
        let [batch, stream] = times.map(|mut t| {
            t.sort_unstable();
            t[t.len() / 2].as_nanos() as f64 / f64::from(keys)
        });
        println!(
            "{keys} keys: batch {batch:.0} ns per key, stream {stream:.0} ns, ratio {:.2}, {:.0} bytes of state per key",
            batch / stream,
            most as f64 / f64::from(keys)
        );
    }
    Ok(())
}

/// Memory of queries whose state a watermark frees, over generated bids: the most that was resident
/// in each fifth of the run.
fn memory(events: u64) -> Result<()> {
    const FIFTHS: usize = 5;
    for (name, sql) in FREED {
        let runtime = Runtime::new()?;
        let (engine, mut s) = stream::engine(&runtime, config(), &[])?;
        let create = format!(
            "CREATE SOURCE bid (auction bigint, bidder bigint, price bigint, date_time timestamp, \
             WATERMARK FOR date_time AS date_time) WITH (connector = 'nexmark', table = 'bid', events = {events})"
        );
        stream::done(&runtime, &mut s, &create)?;
        let sink = format!("CREATE SINK s AS {sql} WITH (connector = 'blackhole')");
        let start = now();
        let run = std::thread::spawn(move || stream::done(&runtime, &mut s, &sink));
        let mut samples = Vec::new();
        while !run.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
            samples.push(resident_bytes() >> 20);
        }
        run.join().map_err(|_| "the query panicked")??;
        let elapsed = start.elapsed();
        engine.shutdown();
        let fifths = samples.chunks(samples.len().div_ceil(FIFTHS).max(1));
        let most: Vec<String> = fifths.map(|f| f.iter().max().copied().unwrap_or_default().to_string()).collect();
        println!(
            "{name}: {events} events in {elapsed:.1?} ({:.0} bids/s), most resident MiB in each fifth: {}",
            events as f64 * 46.0 / 50.0 / elapsed.as_secs_f64(),
            most.join(" ")
        );
    }
    Ok(())
}
