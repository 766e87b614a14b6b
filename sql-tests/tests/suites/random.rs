//! Random queries under random changes: at parallelism 1, 2 and 5 every view equals its query in
//! batch, and two runs of one plan put out the same changes. `SPATE_SEEDS=FIRST..LAST` and
//! `SPATE_SEEDS=COUNT` choose other seeds; one seed is one query.

use spate_sql_tests::dml::{Dml, TABLES};
use spate_sql_tests::driver::{Answer, Change, Driver};
use spate_sql_tests::random::query;

/// Seeds that share engines and changes.
const TOGETHER: u64 = 20;
const STATEMENTS: usize = 14;
const SEEDS: u64 = 100;

fn seeds() -> Vec<u64> {
    let text = std::env::var("SPATE_SEEDS").unwrap_or_default();
    let number = |s: &str| s.trim().parse::<u64>().unwrap_or_else(|_| panic!("SPATE_SEEDS={text} is no range"));
    match text.split_once("..") {
        Some((a, b)) => (number(a)..number(b)).collect(),
        None if text.is_empty() => (0..SEEDS).collect(),
        None => (0..number(&text)).collect(),
    }
}

async fn engine(threads: usize, parallelism: usize) -> Driver {
    let mut d = Driver::with_threads(threads, parallelism).await.unwrap();
    for t in TABLES {
        d.run(t).await.unwrap();
    }
    d
}

/// Creates the views of seeds; gives those that were made and counts those refused.
async fn create(d: &mut Driver, seeds: &[u64], refused: &mut u64) -> Vec<u64> {
    let mut made = Vec::new();
    for s in seeds {
        match d.answer(&format!("CREATE MATERIALIZED VIEW v{s} AS {}", query(*s))).await {
            Answer::Done(_) => made.push(*s),
            Answer::Failed(e) if e.contains("not supported") => *refused += 1,
            other => panic!("seed {s}: {other:?}\n{}", query(*s)),
        }
    }
    made
}

fn fail(seeds: &[u64], d: &Driver, what: &str) -> ! {
    let one = (seeds.len() == 1).then(|| &seeds[0]);
    let named = seeds.iter().find(|s| what.contains(&format!("v{s}\""))).or(one);
    let queries = named.map_or_else(String::new, |s| format!("seed {s}: {}\n", query(*s)));
    let script: Vec<String> =
        d.history().split(";\n").filter(|s| !s.starts_with("CREATE MATERIALIZED")).map(str::to_owned).collect();
    panic!("{what}\n{queries}--- statements\n{}", script.join(";\n"));
}

/// What some seeds' views put out, epoch by epoch, with each statement its own epoch.
async fn changes(seeds: &[u64], statements: &[String], parallelism: usize) -> Vec<Vec<Vec<Change>>> {
    let mut d = engine(1, parallelism).await;
    create(&mut d, seeds, &mut 0).await;
    let mut logs = Vec::new();
    for s in seeds {
        logs.push(d.subscribe(&format!("v{s}")).await.unwrap());
    }
    for sql in statements {
        d.answer(sql).await;
        d.run("FLUSH").await.unwrap();
    }
    let mut out = Vec::new();
    for (s, mut log) in seeds.iter().zip(logs) {
        log.take().await.unwrap();
        let sum = log.sum().unwrap_or_else(|e| fail(seeds, &d, &format!("\"v{s}\": {e}")));
        let rows = d.rows(&format!("v{s}")).await.unwrap();
        if sum != rows {
            fail(seeds, &d, &format!("the changes of \"v{s}\" do not add up to its rows:\n{sum:#?}\n{rows:#?}"));
        }
        out.push(log.epochs());
    }
    out
}

/// Gives how many queries were made and how many refused.
async fn run_together(seeds: &[u64]) -> (u64, u64) {
    let first = seeds.first().copied().unwrap_or(0);
    let mut dml = Dml::new(first, first / TOGETHER % 2 == 1);
    let statements: Vec<String> = (0..STATEMENTS).map(|_| dml.statement()).collect();
    let mut refused = 0;
    let mut made = Vec::new();
    for (i, parallelism) in [1, 2, 5].into_iter().enumerate() {
        let mut d = engine(2, parallelism).await;
        let mut here = 0;
        // Some views see the rows come, some start from what is there.
        let (early, late) = seeds.split_at(seeds.len() / 2);
        let mut views = create(&mut d, early, &mut here).await;
        for (k, sql) in statements.iter().enumerate() {
            if k == STATEMENTS / 3 {
                views.extend(create(&mut d, late, &mut here).await);
            }
            if let Answer::Failed(e) = d.answer(sql).await
                && !e.contains("duplicate key")
                // The extremes reach beyond a type's end.
                && !e.contains("Can't cast value")
            {
                fail(seeds, &d, &format!("{sql}\n{e}"));
            }
            // Each epoch is compared at one of the parallelisms, the last at all.
            if k % 3 == i || k + 1 == STATEMENTS {
                match d.verify().await {
                    Ok(n) if n == views.len() => {}
                    Ok(n) => fail(seeds, &d, &format!("only {n} of {} views were compared", views.len())),
                    Err(e) => fail(seeds, &d, &format!("parallelism {parallelism}: {e}")),
                }
            }
        }
        if i == 0 {
            (made, refused) = (views, here);
        } else {
            assert_eq!(made, views, "what is refused must not depend on parallelism");
        }
    }
    let once = changes(&made, &statements, 2).await;
    let again = changes(&made, &statements, 2).await;
    for ((s, a), b) in made.iter().zip(once).zip(again) {
        assert!(a == b, "seed {s}: two runs differ\n{}\n{a:#?}\n{b:#?}", query(*s));
    }
    (made.len() as u64, refused)
}

#[test]
fn views_of_random_queries_equal_batch() {
    let all = seeds();
    let chunks: Vec<&[u64]> = all.chunks(TOGETHER as usize).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let counts = std::sync::Mutex::new((0, 0));
    // Two engines at a time: each waits a good part of its time.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                while let Some(chunk) = chunks.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let (made, refused) = runtime.block_on(run_together(chunk));
                    let mut c = counts.lock().unwrap();
                    *c = (c.0 + made, c.1 + refused);
                }
            });
        }
    });
    let (made, refused) = *counts.lock().unwrap();
    println!("{made} queries, {refused} refused");
    assert!(made > refused * 9, "{refused} of {} queries were refused", made + refused);
}
