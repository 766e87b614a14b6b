//! `spate bench latency`: from an event to the sink, with events that come at a part of the highest
//! rate that the query keeps up with.
//!
//! Events of the connector `nexmark` happen by the clock here, so the time of an event is when it
//! was there to be read, whether or not the engine was ready for it: what piles up while the engine is
//! busy counts. Each query gives the time of the newest event in a row as the column `at`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::TimestampMicrosecondType;
use parking_lot::Mutex;
use spate_engine::env::{Clock, SystemClock};
use spate_engine::types::{Delta, Result, SpateError};
use spate_server::{Engine, EngineConfig, Session, SinkObserver};
use tokio::runtime::Runtime;

use crate::{now, stream};

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of [`names`]; empty for all.
    pub queries: Vec<String>,
    /// Percents of the highest rate.
    pub loads: Vec<u8>,
    /// Longest time between epochs.
    pub epoch_interval: Duration,
    /// How long rows are timed per load.
    pub time: Duration,
    /// Threads, and tasks per fragment.
    pub parallelism: usize,
    /// Folder for data directories, with records of all epochs and a checkpoint each second; `None` is without.
    pub checkpoints: Option<PathBuf>,
}

/// An engine that runs a query.
struct Started {
    engine: Arc<Engine>,
    _session: Session,
    _data: Option<tempfile::TempDir>,
}

/// One query at one load.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The query's name.
    pub query: &'static str,
    /// Highest rate, in events of all kinds per second.
    pub highest: f64,
    /// Percent of it.
    pub load: u8,
    /// Rows timed.
    pub rows: u64,
    /// Half of the rows took no longer.
    pub p50: Duration,
    /// 99% of the rows took no longer.
    pub p99: Duration,
    /// 99.9% of the rows took no longer.
    pub p999: Duration,
    /// The slowest row.
    pub max: Duration,
}

struct Query {
    name: &'static str,
    sql: &'static str,
    reads: &'static [&'static str],
    /// Rows that sources deliver per event.
    rows_per_event: f64,
}

const BIDS: f64 = 46.0 / 50.0;
const AUCTIONS: f64 = 3.0 / 50.0;

const QUERIES: &[Query] = &[
    Query {
        name: "project",
        sql: "SELECT auction, bidder, 0.908 * price AS price, date_time AS at FROM bid",
        reads: &["bid"],
        rows_per_event: BIDS,
    },
    Query {
        name: "aggregate",
        sql: "SELECT bidder, count(*) AS c, sum(price) AS s, max(date_time) AS at FROM bid GROUP BY bidder",
        reads: &["bid"],
        rows_per_event: BIDS,
    },
    Query {
        name: "window",
        sql: "SELECT auction, window_start, count(*) AS c, max(date_time) AS at \
              FROM TUMBLE(bid, date_time, INTERVAL '1 second') GROUP BY auction, window_start",
        reads: &["bid"],
        rows_per_event: BIDS,
    },
    Query {
        name: "join",
        sql: "SELECT b.auction, b.price, a.category, greatest(a.date_time, b.date_time) AS at \
              FROM bid b JOIN auction a ON b.auction = a.id",
        reads: &["bid", "auction"],
        rows_per_event: BIDS + AUCTIONS,
    },
    Query {
        name: "topn",
        sql: "SELECT auction, price, at FROM (SELECT auction, price, date_time AS at, \
              row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS r FROM bid) WHERE r <= 10",
        reads: &["bid"],
        rows_per_event: BIDS,
    },
];

/// Names of all queries.
pub fn names() -> Vec<&'static str> {
    QUERIES.iter().map(|q| q.name).collect()
}

/// Counts of times, in buckets that are at most 1/32 of their times wide.
struct Histogram {
    counts: Vec<u64>,
    max_us: u64,
    /// Rows before this time, in microseconds since 1970, are not counted.
    from_us: i64,
}

const STEPS: u64 = 32;

impl Histogram {
    fn new() -> Self {
        Self { counts: vec![0; 64 * STEPS as usize], max_us: 0, from_us: i64::MAX }
    }

    fn bucket(us: u64) -> usize {
        if us < STEPS {
            return us as usize;
        }
        // The leading bit, and the five below it.
        let log = u64::from(us.ilog2());
        ((log - 4) * STEPS + ((us >> (log - 5)) & (STEPS - 1))) as usize
    }

    /// The greatest time of a bucket.
    fn end(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < STEPS {
            return bucket;
        }
        let log = bucket / STEPS + 4;
        ((STEPS + bucket % STEPS + 1) << (log - 5)) - 1
    }

    fn add(&mut self, us: u64) {
        if let Some(c) = self.counts.get_mut(Self::bucket(us)) {
            *c += 1;
        }
        self.max_us = self.max_us.max(us);
    }

    fn rows(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What a part of the rows did not exceed.
    fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.rows() as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (i, c) in self.counts.iter().enumerate() {
            seen += c;
            if seen >= wanted.max(1) {
                return Duration::from_micros(Self::end(i).min(self.max_us));
            }
        }
        Duration::ZERO
    }
}

fn observe(times: &Mutex<Histogram>, deltas: &[Delta]) {
    let now = SystemClock::new().now_us();
    let mut times = times.lock();
    for d in deltas {
        let rows = d.rows();
        let column = rows.column_by_name("at").and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>());
        let (Some(at), weights) = (column, d.weights_or_ones()) else { continue };
        for (at, w) in at.iter().zip(weights.iter()) {
            if let Some(at) = at.filter(|at| w.is_some_and(|w| w > 0) && *at >= times.from_us) {
                times.add(u64::try_from(now - at).unwrap_or(0));
            }
        }
    }
}

struct Bench<'a> {
    options: &'a Options,
    runtime: &'a Runtime,
}

/// Runs the queries one after the other. `done` hears of each load as soon as it is measured.
///
/// # Errors
/// An unknown query, or one that fails.
pub fn run(runtime: &Runtime, options: &Options, done: &mut dyn FnMut(&Measured)) -> Result<Vec<Measured>> {
    let unknown = options.queries.iter().find(|n| !names().contains(&n.as_str()));
    if let Some(name) = unknown {
        return Err(SpateError::invalid(format!("there is no query \"{name}\""))
            .with_hint(format!("there are {}", names().join(", "))));
    }
    let wanted = |q: &&Query| options.queries.is_empty() || options.queries.iter().any(|n| n == q.name);
    let bench = Bench { options, runtime };
    let mut all = Vec::new();
    for query in QUERIES.iter().filter(wanted) {
        let highest = bench.highest(query).map_err(|e| e.context(query.name))?;
        for load in &options.loads {
            let measured = bench.measure(query, highest, *load).map_err(|e| e.context(query.name))?;
            done(&measured);
            all.push(measured);
        }
    }
    Ok(all)
}

/// Time that is not measured at the start of a run.
const WARM_UP: Duration = Duration::from_secs(2);

impl Bench<'_> {
    /// Events per second that a query gets through with epochs as in the timed runs.
    fn highest(&self, query: &Query) -> Result<f64> {
        let mut rate = 1_000_000.0;
        // More events than it can take must be there all the time.
        loop {
            let Started { engine, .. } = &self.start(query, rate, None)?;
            std::thread::sleep(WARM_UP);
            let (start, before) = (now(), engine.progress().rows);
            std::thread::sleep(WARM_UP);
            let rows = engine.progress().rows - before;
            let reached = rows as f64 / start.elapsed().as_secs_f64() / query.rows_per_event;
            engine.shutdown();
            if reached < 0.8 * rate || rate >= 1e9 {
                return Ok(reached);
            }
            rate *= 4.0;
        }
    }

    fn measure(&self, query: &Query, highest: f64, load: u8) -> Result<Measured> {
        let times = Arc::new(Mutex::new(Histogram::new()));
        let seen = times.clone();
        let observer = SinkObserver(Arc::new(move |_, deltas| observe(&seen, deltas)));
        let Started { engine, .. } = &self.start(query, highest * f64::from(load) / 100.0, Some(observer))?;
        std::thread::sleep(WARM_UP);
        times.lock().from_us = SystemClock::new().now_us();
        std::thread::sleep(self.options.time);
        engine.shutdown();
        let times = times.lock();
        if times.rows() == 0 {
            return Err(SpateError::internal("no row has reached the sink"));
        }
        Ok(Measured {
            query: query.name,
            highest,
            load,
            rows: times.rows(),
            p50: times.quantile(0.5),
            p99: times.quantile(0.99),
            p999: times.quantile(0.999),
            max: Duration::from_micros(times.max_us),
        })
    }

    fn start(&self, query: &Query, rate: f64, observer: Option<SinkObserver>) -> Result<Started> {
        let data = self.options.checkpoints.as_deref().map(stream::data_dir).transpose()?;
        let config = EngineConfig {
            threads: self.options.parallelism,
            epoch_interval: self.options.epoch_interval,
            sink_observer: observer,
            data_dir: data.as_ref().map(|d| d.path().to_owned()),
            ..EngineConfig::default()
        };
        let (engine, mut session) = stream::engine(self.runtime, config, &[])?;
        let mut run = |sql: &str| stream::done(self.runtime, &mut session, sql);
        run(&format!("SET parallelism = {}", self.options.parallelism))?;
        for table in query.reads {
            run(&format!(
                "CREATE SOURCE {table} WITH (connector = 'nexmark', table = '{table}', rate = {}, base_time = 'now')",
                (rate.max(1.0)) as u64
            ))?;
        }
        run(&format!("CREATE SINK answer AS {} WITH (connector = 'blackhole')", query.sql))?;
        Ok(Started { engine, _session: session, _data: data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut h = Histogram::new();
        (1..=100_000).for_each(|us| h.add(us));
        for (part, exact) in [(0.0001, 10.0), (0.5, 50_000.0), (0.99, 99_000.0), (0.999, 99_900.0), (1.0, 100_000.0)] {
            let got = h.quantile(part).as_micros() as f64;
            assert!(got >= exact && got <= exact * (1.0 + 1.0 / STEPS as f64), "{part}: {got} for {exact}");
        }
        assert_eq!(h.rows(), 100_000);
    }

    #[test]
    fn every_time_has_a_bucket_that_holds_it() {
        for us in (0..2000).chain((0..50).map(|s| 1u64 << s)).chain((1..50).map(|s| (1u64 << s) - 1)) {
            let b = Histogram::bucket(us);
            assert!(us <= Histogram::end(b) && (b == 0 || us > Histogram::end(b - 1)), "{us}");
        }
    }
}
