//! Random changes against many views: every view equals its query in batch, whatever the
//! parallelism and whether it was made before or after the data; and a run repeats bit by bit.
//!
//! `SPATE_DML_SEED=n` runs that seed, `SPATE_DML_SEEDS=n` so many (without a limit of time),
//! `SPATE_DML_STEPS=n` sets the statements of a run. A failure prints its seed and all statements.

use std::time::{Duration, Instant};

use spate_sql_tests::dml::{Dml, NAMES, TABLES};
use spate_sql_tests::driver::{Answer, Change, Driver};
use spate_sql_tests::views::{VIEWS, View, closure};

/// No new seed is begun after this time, so that a slow machine is done in time too.
const BUDGET: Duration = Duration::from_secs(15);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap())
}

fn seeds(default: u64) -> Vec<u64> {
    match (number("SPATE_DML_SEED"), number("SPATE_DML_SEEDS")) {
        (Some(first), n) => (first..first + n.unwrap_or(1)).collect(),
        (None, n) => (1..=n.unwrap_or(default)).collect(),
    }
}

fn steps(default: u64) -> usize {
    number("SPATE_DML_STEPS").unwrap_or(default) as usize
}

fn over(started: Instant) -> bool {
    number("SPATE_DML_SEEDS").is_none() && started.elapsed() > BUDGET
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn fail(seed: u64, drivers: &[Driver], what: &str) -> ! {
    let scripts: Vec<String> = drivers.iter().map(Driver::history).collect();
    let last = scripts.last().map_or("", String::as_str);
    panic!("seed {seed}: {what}\n--- statements\n{last}\n---");
}

/// The name and parallelism of each engine: one of 1 task and one of 3.
const PARALLELISM: [usize; 2] = [1, 3];

async fn create(seed: u64, drivers: &mut [Driver], views: &[View]) {
    for view in views {
        for i in 0..drivers.len() {
            let sql = format!("CREATE MATERIALIZED VIEW {} AS {}", view.name, view.query);
            if let Err(e) = drivers[i].run(&sql).await {
                fail(seed, drivers, &e.to_string());
            }
        }
    }
}

async fn verify(seed: u64, drivers: &[Driver], views: usize) {
    for (i, d) in drivers.iter().enumerate() {
        match d.verify().await {
            Ok(n) if n == views => {}
            Ok(n) => fail(
                seed,
                drivers,
                &format!("only {n} of {views} views were verified (parallelism {})", PARALLELISM[i]),
            ),
            Err(e) => fail(seed, drivers, &format!("parallelism {}: {e}", PARALLELISM[i])),
        }
    }
}

/// One seed: a share of the views (in percent), random statements, at both parallelisms; the
/// views are verified every `verify_every` statements.
async fn run_seed(seed: u64, steps: usize, extremes: bool, share: usize, verify_every: usize) {
    let mut dml = Dml::new(seed, extremes);
    let mut views = closure(|_| dml.below(100) < share);
    // Half before the data, half after.
    let late = views.split_off(views.len() / 2);
    let mut drivers = Vec::new();
    for p in PARALLELISM {
        let mut d = Driver::open(p).await.unwrap();
        for t in TABLES {
            d.run(t).await.unwrap();
        }
        drivers.push(d);
    }
    create(seed, &mut drivers, &views).await;
    let mut made = views.clone();
    for step in 0..steps {
        if step == steps / 2 {
            create(seed, &mut drivers, &late).await;
            made.extend(late.iter().copied());
        }
        let sql = dml.statement();
        let mut answers: Vec<Answer> = Vec::new();
        for d in &mut drivers {
            answers.push(d.answer(&sql).await);
        }
        if answers[0] != answers[1] {
            fail(seed, &drivers, &format!("answers differ: {answers:?}"));
        }
        if let Answer::Failed(e) = &answers[0]
            && !e.contains("duplicate key")
        {
            fail(seed, &drivers, &format!("{sql}\n{e}"));
        }
        if step % verify_every == verify_every - 1 || step + 1 == steps {
            verify(seed, &drivers, made.len()).await;
        }
    }
    for name in made.iter().map(|v| v.name).chain(NAMES.iter().copied()) {
        // Closed windows differ in time, not in what they become.
        if name.ends_with("_close") {
            continue;
        }
        let one = drivers[0].rows(name).await.unwrap();
        let three = drivers[1].rows(name).await.unwrap();
        if one != three {
            fail(seed, &drivers, &format!("{name} differs by parallelism:\n{one:#?}\n{three:#?}"));
        }
    }
    // Everything goes, and nothing stays behind.
    for sql in ["DELETE FROM t", "DELETE FROM u", "DELETE FROM w"] {
        for d in &mut drivers {
            d.run(sql).await.unwrap();
        }
    }
    verify(seed, &drivers, made.len()).await;
}

#[test]
fn views_equal_their_queries() {
    let started = Instant::now();
    runtime().block_on(async {
        for (i, seed) in seeds(12).into_iter().enumerate() {
            if i > 0 && over(started) {
                break;
            }
            run_seed(seed, steps(40), false, 20, 6).await;
        }
    });
}

#[test]
fn views_equal_their_queries_with_extreme_values() {
    let started = Instant::now();
    runtime().block_on(async {
        for (i, seed) in seeds(12).into_iter().enumerate() {
            if i > 0 && over(started) {
                break;
            }
            run_seed(1000 + seed, steps(40), true, 20, 6).await;
        }
    });
}

/// Several sessions write while others make and drop views and check them: nothing is lost
/// between the rows that a view starts from and the changes that follow.
#[test]
fn views_made_while_others_write() {
    runtime().block_on(async {
        for p in PARALLELISM {
            let mut d = Driver::open(p).await.unwrap();
            for t in TABLES {
                d.run(t).await.unwrap();
            }
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let mut writers = Vec::new();
            for w in 0..2 {
                let mut session = d.another();
                let stop = stop.clone();
                let mut dml = Dml::new(3000 + w, false);
                writers.push(tokio::spawn(async move {
                    let mut written = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let sql = dml.statement();
                        match session.answer(&sql).await {
                            Answer::Failed(e) => assert!(e.contains("duplicate key"), "{sql}\n{e}"),
                            _ => written += 1,
                        }
                    }
                    written
                }));
            }
            let mut dice = Dml::new(7, false);
            let started = Instant::now();
            let mut made = 0;
            while started.elapsed() < Duration::from_secs(5) {
                let views = closure(|v| v.reads.is_empty() && dice.below(100) < 4);
                for v in &views {
                    d.run(&format!("CREATE MATERIALIZED VIEW {} AS {}", v.name, v.query)).await.unwrap();
                }
                made += views.len();
                let n = d.verify().await.unwrap_or_else(|e| panic!("parallelism {p}: {e}"));
                assert_eq!(n, views.len());
                for v in &views {
                    d.run(&format!("DROP MATERIALIZED VIEW {}", v.name)).await.unwrap();
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            for w in writers {
                assert!(w.await.unwrap() > 0);
            }
            assert!(made > 3);
        }
    });
}

/// Every view at least once, over every kind of change.
#[test]
fn every_view_at_once() {
    runtime().block_on(async { run_seed(1, steps(12), false, 100, 12).await });
    assert!(VIEWS.len() > 100);
}

/// The changelogs of all views after the same statements, each statement its own epoch.
async fn changelogs(
    seed: u64,
    threads: usize,
    parallelism: usize,
    views: &[View],
    statements: &[String],
) -> Vec<Vec<Vec<Change>>> {
    let mut d = Driver::with_threads(threads, parallelism).await.unwrap();
    for t in TABLES {
        d.run(t).await.unwrap();
    }
    for v in views {
        d.run(&format!("CREATE MATERIALIZED VIEW {} AS {}", v.name, v.query)).await.unwrap();
    }
    let mut logs = Vec::new();
    for v in views {
        logs.push(d.subscribe(v.name).await.unwrap());
    }
    for sql in statements {
        d.answer(sql).await;
        d.run("FLUSH").await.unwrap();
    }
    let mut out = Vec::new();
    for (v, mut log) in views.iter().zip(logs) {
        log.take().await.unwrap();
        let sum = log.sum().unwrap_or_else(|e| panic!("seed {seed}, {}: {e}\n{}", v.name, d.history()));
        let rows = d.rows(v.name).await.unwrap();
        assert_eq!(sum, rows, "seed {seed}: the changes of {} do not add up to its rows\n{}", v.name, d.history());
        if let Err(e) = log.check_net() {
            // Rows of an append-only view may well be alike, and so may those that several tasks
            // hold of a view without a key.
            let props = d.engine.derived(v.name).unwrap().0;
            let alike = props.append_only || parallelism > 1 && props.stream_key.is_none();
            assert!(alike, "seed {seed}, {}: {e}\n{}", v.name, d.history());
        }
        out.push(log.epochs());
    }
    out
}

fn same(what: &str, views: &[View], first: &[Vec<Vec<Change>>], second: &[Vec<Vec<Change>>], statements: &[String]) {
    for ((v, a), b) in views.iter().zip(first).zip(second) {
        let at = a.iter().zip(b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()));
        assert!(
            a == b,
            "{what}: change {at} of {} is not repeated:\n{:?}\n{:?}\n{}",
            v.name,
            a.get(at),
            b.get(at),
            statements.join(";\n")
        );
    }
}

#[test]
fn a_run_repeats_bit_by_bit() {
    let started = Instant::now();
    runtime().block_on(async {
        for (i, seed) in seeds(6).into_iter().enumerate() {
            if i > 0 && over(started) {
                break;
            }
            let mut dml = Dml::new(2000 + seed, true);
            let views = closure(|_| dml.below(100) < 25);
            let statements: Vec<String> = (0..steps(30)).map(|_| dml.statement()).collect();
            for p in PARALLELISM {
                let first = changelogs(seed, 1, p, &views, &statements).await;
                let mut second = changelogs(seed, 1, p, &views, &statements).await;
                let what = format!("seed {seed}, parallelism {p}");
                same(&what, &views, &first, &second, &statements);
                // On two threads an UPDATE may write its rows in another order; the changes of an
                // epoch are the same ones.
                let mut threaded = changelogs(seed, 2, p, &views, &statements).await;
                for log in second.iter_mut().chain(&mut threaded).flatten() {
                    log.sort();
                }
                same(&format!("{what}, two threads"), &views, &second, &threaded, &statements);
                assert!(first.iter().any(|v| v.len() > 3), "seed {seed}: nothing happened");
            }
        }
    });
}
