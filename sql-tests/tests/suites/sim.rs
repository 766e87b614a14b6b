//! Seeded runs of real plans on the simulated executor: tasks die at random steps and come back;
//! every epoch must put out exactly what an undisturbed run puts out.
//!
//! `SPATE_SIM_SEED=n` runs one seed; `SPATE_SIM_SEEDS=n` runs so many.

mod data;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use spate_engine::plan::fragment::FragmentGraph;
use spate_engine::plan::{ObjectId, OpSpec, StreamNode};
use spate_engine::sim::cluster::{Faults, Outcome, Setup, run};
use spate_engine::task::Limits;
use spate_planner::bind::{BindMode, bind_query};
use spate_planner::fragment::cut;
use spate_planner::lower::{LowerOptions, Target, lower};
use spate_planner::rules::guard::ErrorCounter;
use spate_planner::rules::optimize_continuous;
use spate_planner::sql::parse_query;

/// Plans; a leading `!` asks for results on window close.
const PLANS: &[&str] = &[
    "SELECT k, v + 1 AS w FROM r WHERE v > 3",
    "SELECT k, count(*), sum(v), avg(v), min(v), max(v) FROM r GROUP BY k",
    "SELECT k, count(*), sum(v), min(v), max(v), min(name), max(name) FROM t GROUP BY k",
    "SELECT count(*), sum(v), max(v) FROM t",
    "SELECT k, count(DISTINCT v), count(DISTINCT name) FILTER (WHERE v > 5), sum(DISTINCT v) FROM t GROUP BY k",
    "SELECT k, sum(CAST(v AS double precision) / 3), avg(v) FROM t GROUP BY k HAVING count(*) > 1",
    "SELECT DISTINCT k, name FROM t",
    "SELECT DISTINCT k FROM s",
    "SELECT id, k, v FROM t ORDER BY v DESC, id LIMIT 7",
    "SELECT k, v, name FROM r ORDER BY v, name DESC LIMIT 5 OFFSET 3",
    "SELECT t.id, t.v, r.v, r.name FROM t JOIN r ON t.k = r.k AND t.v > r.v",
    "SELECT t.id, t.v, mv.n FROM t LEFT JOIN mv ON t.k = mv.k",
    "SELECT t.id, t.name, mv.k, mv.n FROM t FULL JOIN mv ON t.k = mv.k AND t.v > mv.n",
    "SELECT x.k, x.n, y.m FROM (SELECT k, count(*) AS n FROM t GROUP BY k) x FULL JOIN (SELECT k, sum(n) AS m FROM mv GROUP BY k) y ON x.k = y.k",
    "SELECT n, count(*), max(k) FROM (SELECT k, count(*) AS n FROM t GROUP BY k) x GROUP BY n",
    "SELECT a.k, sum(b.m), count(*) FROM t a JOIN (SELECT k, max(v) AS m FROM t GROUP BY k) b ON a.k = b.k GROUP BY a.k",
    "SELECT k, v FROM r UNION ALL SELECT k, v FROM s UNION ALL SELECT k, n FROM lg",
    "SELECT k, count(*) FROM (SELECT k FROM s UNION ALL SELECT k FROM s UNION ALL SELECT k FROM mv) x GROUP BY k",
    "SELECT a.k, a.v, b.name FROM r a JOIN r b ON a.k = b.k AND a.v = b.v",
    "SELECT t.id FROM t JOIN (SELECT DISTINCT k FROM mv WHERE n > 4) x ON t.k = x.k",
    "SELECT t.id FROM t LEFT JOIN r ON r.k = t.k AND r.v > t.v WHERE r.k IS NULL",
    "SELECT k, window_start, window_end, count(*), max(v) FROM TUMBLE(s, ts, INTERVAL '5 seconds') GROUP BY k, window_start, window_end",
    "!SELECT k, window_start, window_end, count(*), max(v), min(name) FROM TUMBLE(s, ts, INTERVAL '5 seconds') GROUP BY k, window_start, window_end",
    "!SELECT window_end, count(DISTINCT k), avg(v) FROM HOP(w, ts, INTERVAL '2 seconds', INTERVAL '6 seconds') GROUP BY window_end",
    "!SELECT id2, v, name FROM (SELECT k AS id2, v, name, row_number() OVER (PARTITION BY window_start, k ORDER BY v) AS rn FROM TUMBLE(w, ts, INTERVAL '4 seconds')) x WHERE rn <= 2",
    "!SELECT k, v, sum(v) OVER (PARTITION BY k, window_end ORDER BY v), lag(name) OVER (PARTITION BY k, window_end ORDER BY v) FROM HOP(s, ts, INTERVAL '2 seconds', INTERVAL '6 seconds')",
    "!SELECT k, n FROM (SELECT k, window_end, count(*) AS n FROM TUMBLE(w, ts, INTERVAL '4 seconds') GROUP BY k, window_end) x QUALIFY rank() OVER (PARTITION BY window_end ORDER BY n DESC) = 1",
    "!SELECT a.k, a.v, b.v, b.name FROM TUMBLE(w, ts, INTERVAL '3 seconds') a LEFT JOIN TUMBLE(s, ts, INTERVAL '3 seconds') b ON a.k = b.k AND a.window_end = b.window_end",
    "!SELECT a.k, b.k, a.v, b.v FROM w a FULL JOIN s b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '1 second' AND b.ts + INTERVAL '2 seconds'",
    "SELECT k, v, row_number() OVER (PARTITION BY k, window_end ORDER BY v, name) FROM TUMBLE(w, ts, INTERVAL '4 seconds')",
    "SELECT k, window_end, sum(v) FROM HOP(w, ts, INTERVAL '2 seconds', INTERVAL '6 seconds') GROUP BY k, window_end",
    "SELECT window_end, max(n) FROM (SELECT k, window_end, count(*) AS n FROM TUMBLE(w, ts, INTERVAL '4 seconds') GROUP BY k, window_end) x GROUP BY window_end",
    "SELECT k, count(*) FROM w GROUP BY k",
    "SELECT w.k, w.v, t.name FROM w LEFT JOIN t ON w.k = t.k",
    "SELECT x.k, x.c FROM (VALUES (1, 'a'), (2, 'b')) AS x(k, c) JOIN mv ON mv.k = x.k",
    "SELECT k, n FROM lg WHERE n > 2",
    "SELECT a.id, a.v, b.v AS bv, b.name FROM t a ASOF LEFT JOIN t b MATCH_CONDITION (a.v >= b.v) ON a.k = b.id",
    "SELECT a.k, a.v, b.v AS bv, b.name FROM s a ASOF JOIN w b MATCH_CONDITION (a.ts > b.ts) ON a.k = b.k",
    "SELECT mv.k, mv.n, t.id FROM mv ASOF LEFT JOIN t MATCH_CONDITION (mv.n < t.v)",
    "SELECT s.k, s.v, t.id, t.name FROM s LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = t.k AND t.v > 0",
    "SELECT lg.n, mv.n FROM lg JOIN mv FOR SYSTEM_TIME AS OF PROCTIME() ON lg.k = mv.k",
    "SELECT w.k, x.c FROM w JOIN (SELECT k, count(*) AS c FROM s GROUP BY k) AS x ON w.k = x.k",
    "SELECT w.k, w.v, s.v AS sv FROM w LEFT JOIN s FOR SYSTEM_TIME AS OF PROCTIME() ON w.k = s.k",
    "SELECT k, name, count(*), sum(v) FROM t GROUP BY CUBE (k, name, k)",
    "SELECT CAST(lpad(CAST(v AS text), 32, '0') AS uuid) AS u, count(*), count(DISTINCT CAST(lpad(CAST(k AS text), 32, '0') AS uuid)) FROM t GROUP BY 1",
    "SELECT jsonb_build_object('k', k, 'n', name) AS j, count(*), jsonb_agg(v ORDER BY id) FROM t GROUP BY 1",
    "SELECT k, var_samp(v), stddev_pop(CAST(v AS double precision) / 3), corr(v, id), regr_slope(v, id) FROM t GROUP BY k",
    // Summed up in each task first.
    "SELECT count(*), sum(v), avg(v), var_pop(v), bool_or(v > 30) FROM t",
    "SELECT count(*), min(v), max(name), sum(CAST(v AS double precision) / 3) FROM r",
    // Parts that are computed once and feed several.
    "WITH g AS (SELECT k, count(*) AS n, max(v) AS m FROM r GROUP BY k) SELECT a.k, a.n, b.m FROM g a JOIN g b ON a.n = b.n AND a.k <= b.k",
    "WITH g AS (SELECT k, sum(v) AS m FROM t GROUP BY k) SELECT a.k, a.m FROM g a CROSS JOIN (SELECT max(m) AS x FROM g) b WHERE a.m = b.x",
    "SELECT a.k, b.v FROM s a JOIN s b ON a.v = b.k UNION ALL SELECT k, v FROM s UNION ALL SELECT k, count(*) FROM s GROUP BY k",
    "WITH g AS (SELECT window_end, k, count(*) AS n FROM HOP(w, ts, INTERVAL '2 seconds', INTERVAL '6 seconds') GROUP BY window_end, k) SELECT window_end, max(n), count(*) FROM (SELECT * FROM g UNION ALL SELECT * FROM g) x GROUP BY window_end",
    "SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v), sum(v) OVER (PARTITION BY k ORDER BY v), lag(name) OVER (PARTITION BY k ORDER BY v) FROM t",
    "SELECT id, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS rn FROM t) x WHERE rn <= 2",
    "SELECT k, n, dense_rank() OVER (PARTITION BY k ORDER BY n) AS d FROM mv QUALIFY d <= 2",
    "SELECT DISTINCT ON (k) k, v, name FROM r ORDER BY k, v DESC",
    "WITH RECURSIVE r AS (SELECT id, k FROM t UNION SELECT r.id, mv.n FROM r JOIN mv ON r.k = mv.k) SELECT * FROM r",
    "WITH RECURSIVE r AS (SELECT k, n, 0 AS d FROM lg UNION ALL SELECT t.k, r.n, d + 1 FROM r JOIN t ON r.n = t.id WHERE d < 3) SELECT * FROM r",
    "SELECT t.id, g FROM t, generate_series(1, t.v % 3) AS g",
    // The simulated time begins 10957 days after the rows' times do.
    "SELECT k, v, ts FROM s WHERE ts > now() - INTERVAL '10957 days'",
    "SELECT k, v, ts FROM w WHERE ts < now() - INTERVAL '10957 days' + INTERVAL '20 seconds' AND ts > now() - INTERVAL '10957 days' - INTERVAL '10 seconds'",
    "SELECT k, n, rank() OVER (ORDER BY n), first_value(k) OVER (ORDER BY n), avg(n) OVER (ORDER BY k ROWS 2 PRECEDING) FROM mv",
];

fn plan(sql: &str, parallelism: usize, sink: bool) -> FragmentGraph {
    let (query, on_close) = sql.strip_prefix('!').map_or((sql, false), |q| (q, true));
    let query = parse_query(query).unwrap();
    let mode = BindMode::Continuous { errors: ErrorCounter::ignore() };
    let bound = optimize_continuous(bind_query(&data::Catalog, &query, &mode).unwrap()).unwrap();
    let target = match sink {
        true => Target::Sink { id: 100, name: "out".into() },
        false => Target::Materialize { id: 100, name: "out".into() },
    };
    let root = lower(&bound, &LowerOptions { parallelism, emit_on_window_close: on_close, target }).unwrap();
    cut(root, parallelism)
}

fn reads(node: &StreamNode, out: &mut BTreeSet<ObjectId>) {
    match &node.op {
        OpSpec::Source(s) => drop(out.insert(s.id)),
        OpSpec::Scan(s) => drop(out.insert(s.id)),
        _ => {}
    }
    node.inputs.iter().for_each(|n| reads(n, out));
}

/// Epochs between snapshots, per task: all alike, or longer towards the sources, or anyhow.
fn intervals(graph: &FragmentGraph, rng: &mut SmallRng) -> BTreeMap<(u32, u32), u64> {
    let kind = rng.random_range(0..3);
    let same = rng.random_range(1..=4);
    let mut out: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for f in graph.fragments.iter().rev() {
        let is_consumer = |id: u32| f.to.iter().any(|o| o.consumer == id as usize);
        let consumer = out.iter().filter(|((id, _), _)| is_consumer(*id)).map(|(_, n)| *n).max();
        for task in 0..f.parallelism {
            let every = match kind {
                0 => same,
                1 => consumer.map_or(1, |c| (c << rng.random_range(0..2)).min(8)),
                _ => rng.random_range(1..=6),
            };
            out.insert((f.id as u32, task as u32), every);
        }
    }
    out
}

struct Seeded {
    what: String,
    setup: Setup,
    faults: Faults,
}

fn seeded(seed: u64) -> Seeded {
    let mut rng = SmallRng::seed_from_u64(seed);
    let sql = PLANS[seed as usize % PLANS.len()];
    let parallelism = rng.random_range(1..=3);
    let sink = rng.random_bool(0.25);
    let graph = plan(sql, parallelism, sink);
    let mut ids = BTreeSet::new();
    graph.fragments.iter().for_each(|f| reads(&f.root, &mut ids));
    let start = rng.random_range(1..=3);
    let last = start + rng.random_range(10..25);
    let mut sources = BTreeMap::new();
    let mut scripts = BTreeMap::new();
    for id in ids {
        if id <= 3 {
            sources.insert(id, data::source_rows(id, &mut rng));
        } else {
            scripts.insert(id, data::script(id, last, &mut rng));
        }
    }
    let limits = if rng.random_bool(0.5) {
        Limits::default()
    } else {
        Limits { source_rows: rng.random_range(5..40), catch_up_rows: rng.random_range(3..20) }
    };
    let every = intervals(&graph, &mut rng);
    let faults = Faults {
        kill_one_in: [40, 100, 250][rng.random_range(0..3)],
        most: rng.random_range(3..25),
        rebuild_one_in: if rng.random_bool(0.25) { rng.random_range(1..30) } else { 0 },
        every,
    };
    let spill = if rng.random_bool(0.2) { 2000 } else { 64 << 20 };
    let what = format!(
        "{sql}\n  parallelism {parallelism}, {}, epochs {start}-{last}, {limits:?}, {faults:?}",
        if sink { "sink" } else { "view" }
    );
    Seeded { what, setup: Setup { graph, sources, scripts, start, last, limits, spill }, faults }
}

fn differences(disturbed: &Outcome, calm: &Outcome) -> Option<String> {
    if disturbed.history.ticks != calm.history.ticks {
        return Some("other ticks".into());
    }
    if disturbed.history.ranges != calm.history.ranges {
        return Some("other ranges".into());
    }
    if disturbed.output.len() != calm.output.len() {
        return Some(format!("{} epochs of output instead of {}", disturbed.output.len(), calm.output.len()));
    }
    let pair = disturbed.output.iter().zip(&calm.output).find(|(a, b)| a != b)?;
    Some(format!("epoch {}:\ndisturbed {:#?}\nundisturbed {:#?}", pair.0.epoch, pair.0.partitions, pair.1.partitions))
}

fn check(seed: u64) -> Result<Outcome, String> {
    let Seeded { what, setup, faults } = seeded(seed);
    let disturbed = run(&setup, seed, Some(&faults), None).map_err(|e| format!("{what}\ndisturbed: {e}"))?;
    let again = Some(&disturbed.history);
    let calm = run(&setup, !seed, None, again).map_err(|e| format!("{what}\nundisturbed: {e}"))?;
    if let Some(d) = differences(&disturbed, &calm) {
        return Err(format!("{what}\n{} deaths; {d}", disturbed.deaths));
    }
    // Every row was either accepted once or told of as late once.
    let consumed: u64 = disturbed.history.ranges.values().flat_map(|r| r.iter()).map(|r| r.end - r.start).sum();
    if calm.accepted + disturbed.late != consumed {
        return Err(format!("{what}\n{} rows accepted, {} late, {consumed} read", calm.accepted, disturbed.late));
    }
    Ok(disturbed)
}

fn checked(seed: u64) -> Result<Outcome, String> {
    match catch_unwind(AssertUnwindSafe(|| check(seed))) {
        Ok(r) => r,
        Err(p) => {
            let text = p.downcast_ref::<String>().map(String::as_str).or(p.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", text.unwrap_or("?")))
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap())
}

#[test]
fn tasks_that_die_change_nothing() {
    if let Some(seed) = variable("SPATE_SIM_SEED") {
        println!("{}", seeded(seed).what);
        let o = checked(seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        println!("{} deaths, {} torn, {} replayed, {} late, {} steps", o.deaths, o.torn, o.replayed, o.late, o.steps);
        return;
    }
    let seeds = variable("SPATE_SIM_SEEDS").unwrap_or(200);
    let next = AtomicU64::new(0);
    let failures = Mutex::new(BTreeMap::new());
    let sums = Mutex::new([0u64; 6]);
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    match checked(seed) {
                        Ok(o) => {
                            let rows = o.output.iter().map(|e| e.num_rows() as u64).sum();
                            let all = [o.deaths, o.torn, o.replayed, o.late, o.steps, rows];
                            sums.lock().unwrap().iter_mut().zip(all).for_each(|(s, n)| *s += n);
                        }
                        Err(e) => drop(failures.lock().unwrap().insert(seed, e)),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    if let Some((seed, e)) = failures.first_key_value() {
        let others: Vec<&u64> = failures.keys().collect();
        panic!("{} of {seeds} seeds failed: {others:?}\nrun one again with SPATE_SIM_SEED={seed}\n{e}", failures.len());
    }
    let [deaths, torn, replayed, late, steps, rows] = sums.into_inner().unwrap();
    println!(
        "{deaths} deaths ({torn} torn), {replayed} epochs read again, {late} late, {steps} steps, {rows} rows out"
    );
    if seeds >= 200 {
        // What the runs are for must have happened.
        assert!(deaths > 5 * seeds && torn > 0 && replayed > seeds && late > 0 && rows > 10 * seeds);
    }
}

#[test]
fn one_seed_gives_one_run() {
    for seed in [1, 18, 23, 41] {
        let Seeded { setup, faults, .. } = seeded(seed);
        let a = run(&setup, seed, Some(&faults), None).unwrap();
        let b = run(&setup, seed, Some(&faults), None).unwrap();
        assert_eq!((a.steps, a.deaths, a.accepted), (b.steps, b.deaths, b.accepted), "seed {seed}");
        assert_eq!(a.history.ticks, b.history.ticks, "seed {seed}");
        assert!(differences(&a, &b).is_none(), "seed {seed}");
    }
}

/// A task whose snapshots are further apart than a store keeps epochs of its own accord still
/// finds all of the log it needs, and what it writes again is compared.
#[test]
fn logs_reach_back_to_the_current_snapshots() {
    let mut rng = SmallRng::seed_from_u64(7);
    let graph = plan("SELECT k, count(*), max(v), min(name) FROM t GROUP BY k", 2, false);
    let scripts = BTreeMap::from([(4, data::script(4, 200, &mut rng))]);
    let every =
        graph.fragments.iter().flat_map(|f| (0..f.parallelism).map(|t| ((f.id as u32, t as u32), 90))).collect();
    let limits = Limits::default();
    let setup = Setup { graph, sources: BTreeMap::new(), scripts, start: 1, last: 200, limits, spill: 1 << 20 };
    let faults = Faults { every, kill_one_in: 400, most: 1000, rebuild_one_in: 0 };
    for seed in 1..4 {
        let disturbed = run(&setup, seed, Some(&faults), None).unwrap();
        assert!(disturbed.deaths >= 5, "{}", disturbed.deaths);
        let calm = run(&setup, !seed, None, Some(&disturbed.history)).unwrap();
        assert_eq!(differences(&disturbed, &calm), None);
    }
}
