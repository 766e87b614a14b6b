//! What the planner derives of rows (EXPLAIN shows it, operators rely on it) holds of what is put out:
//! keys, append-only, watermarks, columns that move one way, and independence of the order of rows.
//! Over tables that change and over tables that only grow, for the views of the differential suite,
//! for random queries, and for views in which much is derived.

use spate_sql_tests::dml::{Dml, NAMES, TABLES};
use spate_sql_tests::driver::{Answer, Driver};
use spate_sql_tests::properties::Checker;
use spate_sql_tests::random::query;
use spate_sql_tests::views::VIEWS;

/// Views of which something else than a key is derived when their tables only grow.
const MOVING: &[&str] = &[
    "SELECT k, count(*) AS n, count(v) AS c, max(v) AS m, min(v) AS l, min(ts) AS t FROM ev GROUP BY k",
    "SELECT count(*) AS n, max(s) AS m, min(d) AS l, max(f) AS f, bool_or(a > 5) AS o, bool_and(a > 0) AS e FROM u",
    "SELECT a, count(*) FILTER (WHERE s > 'a') AS n, max(d) FILTER (WHERE a > 2) AS m, count(DISTINCT s) AS c FROM u GROUP BY a",
    "SELECT a, sum(d) AS s, avg(f) AS v, count(*) % 3 AS r, max(d) AS m FROM u GROUP BY a",
    "SELECT k FROM ev GROUP BY k HAVING count(*) > 2",
    "SELECT k FROM ev GROUP BY k HAVING count(*) = 2",
    "SELECT k FROM ev GROUP BY k HAVING count(*) < 5",
    "SELECT k + 1 AS x, 7 AS y FROM ev GROUP BY k HAVING max(v) >= 4 OR count(*) > 3",
    "SELECT k, max(v) AS m FROM ev GROUP BY k HAVING max(v) >= 4 AND min(v) < 2 AND max(v) IS NOT NULL",
    "SELECT k FROM ev GROUP BY k HAVING max(v) <= 4",
    "SELECT k FROM ev GROUP BY k HAVING max(v) > min(v)",
    "SELECT k FROM ev GROUP BY k HAVING NOT (min(v) >= 1)",
    "SELECT k FROM ev GROUP BY k HAVING max(v) IS NULL",
    "SELECT k FROM ev GROUP BY k HAVING bool_or(v > 4)",
    "SELECT max(n) AS m, min(n) AS l, count(*) AS c, max(l) AS ml, min(l) AS ll FROM (SELECT k, count(*) AS n, min(v) AS l FROM ev GROUP BY k) x",
    "SELECT k % 2 AS p, max(n) AS m, count(n) AS c, max(k) AS x FROM (SELECT k, v, count(*) AS n FROM ev GROUP BY k, v) x GROUP BY k % 2",
    "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM ev GROUP BY k) x GROUP BY n",
    "SELECT a, s FROM u GROUP BY a, s",
    "SELECT a, s, count(*) AS n, grouping(a) AS g FROM u GROUP BY ROLLUP (a, s)",
    "SELECT a FROM u GROUP BY CUBE (a, s) HAVING count(*) > 3",
    "SELECT ev.v, x.n FROM ev JOIN (SELECT a, count(*) AS n FROM u GROUP BY a) x ON ev.k = x.a",
    "SELECT ev.v FROM ev JOIN (SELECT a, count(*) AS n FROM u GROUP BY a) x ON ev.k = x.a WHERE x.n > 2",
    "SELECT x.k, x.n, y.m FROM (SELECT k, count(*) AS n FROM ev GROUP BY k) x JOIN (SELECT a, min(d) AS m FROM u GROUP BY a) y ON x.k = y.a",
    "SELECT x.k, y.m FROM (SELECT k, count(*) AS n FROM ev GROUP BY k) x JOIN (SELECT a, min(d) AS m FROM u GROUP BY a) y ON x.n = y.a",
    "SELECT x.k FROM (SELECT k, count(*) AS n FROM ev GROUP BY k) x JOIN (SELECT a, min(d) AS m FROM u GROUP BY a) y ON x.k = y.a AND x.n > y.m",
    "SELECT k, v FROM ev WHERE k IN (SELECT a FROM u GROUP BY a HAVING count(*) > 2)",
    "SELECT k, v FROM ev WHERE k NOT IN (SELECT a FROM u WHERE a IS NOT NULL GROUP BY a HAVING count(*) > 2)",
    "SELECT k, v FROM ev WHERE v = 1 OR EXISTS (SELECT 1 FROM (SELECT a, count(*) AS n FROM u GROUP BY a) x WHERE x.a = ev.k AND n > 2)",
    "SELECT k, n FROM (SELECT k, count(*) AS n FROM ev GROUP BY k) x WHERE EXISTS (SELECT 1 FROM u WHERE u.a = x.k)",
    "SELECT k, n FROM (SELECT k, count(*) AS n FROM ev GROUP BY k) x WHERE EXISTS (SELECT 1 FROM u WHERE u.a = x.n)",
    "SELECT ev.k, u.d FROM ev LEFT JOIN u ON ev.k = u.a AND u.d > 20",
    "SELECT k, count(*) AS n FROM ev GROUP BY k UNION ALL SELECT a, a AS n FROM u",
    "SELECT k, max(v) AS n FROM ev GROUP BY k UNION ALL SELECT k, min(v) FROM ev GROUP BY k",
    "SELECT count(*) FILTER (WHERE n < 3) AS c, max(k) FILTER (WHERE n < 3) AS m, count(DISTINCT n) AS d, count(DISTINCT k) AS e FROM (SELECT k, count(*) AS n FROM ev GROUP BY k) x",
    "SELECT k FROM (SELECT k, count(*) AS n FROM ev GROUP BY k UNION ALL SELECT 7, count(*) FROM ev) x",
    "SELECT k, max(n) AS m, grouping(k) AS g FROM (SELECT k, count(*) AS n FROM ev GROUP BY k) x GROUP BY ROLLUP (k)",
    "SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM ev",
    "SELECT k, v FROM ev WHERE k IN (SELECT a FROM u GROUP BY a HAVING count(*) = 2)",
    "SELECT k, v FROM ev WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = ev.k AND u.d > 5)",
    "SELECT ev.k, ev.v, u.d FROM ev LEFT JOIN u ON ev.k = u.a AND u.d > 5",
    "SELECT ts, k FROM ev UNION ALL SELECT ts, a FROM u",
    "SELECT DISTINCT k, v FROM ev",
    "SELECT DISTINCT n FROM (SELECT k, count(*) AS n FROM ev GROUP BY k) x",
    "SELECT u.a, u.ts, t.id, t.ts AS at FROM u ASOF JOIN t MATCH_CONDITION (u.ts >= t.ts) ON u.a = t.a",
    "SELECT u.a, u.ts, t.id, t.ts AS at FROM u ASOF LEFT JOIN t MATCH_CONDITION (u.ts < t.ts) ON u.a = t.a",
    "SELECT u.a, u.d FROM u ASOF JOIN t MATCH_CONDITION (u.ts >= t.ts) ON u.a = t.a",
    "SELECT k, i FROM (SELECT k, count(*) AS n FROM ev GROUP BY k HAVING count(*) > 1) x, unnest(make_array(k, 5)) AS y (i)",
    "SELECT a, ts FROM u WHERE ts <= now()",
    "SELECT a, ts FROM u WHERE ts > now() - INTERVAL '20000 days'",
    "SELECT a, n FROM (SELECT a, count(*) AS n, max(ts) AS m FROM u GROUP BY a) x WHERE m < now()",
    "SELECT a, s, d FROM u ORDER BY d DESC LIMIT 3",
    "SELECT t.id, w.n, w.v FROM t JOIN w ON t.a = w.k",
    "SELECT t.id, w.v FROM t LEFT JOIN w ON t.a = w.k AND t.s = w.n",
    "SELECT a, s FROM u QUALIFY row_number() OVER (PARTITION BY a ORDER BY ts) = 1",
    "SELECT a, s FROM u INTERSECT ALL SELECT a, s FROM t",
    "SELECT a, s FROM u EXCEPT ALL SELECT a, s FROM t",
    "WITH RECURSIVE r AS (SELECT a FROM u UNION SELECT w.v FROM r JOIN w ON r.a = w.k) SELECT a, count(*) AS n FROM r GROUP BY a",
    // Event time.
    "SELECT a.ts, b.ts AS at FROM ev a ASOF LEFT JOIN ev b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k EMIT ON WINDOW CLOSE",
    "SELECT a.ts, b.ts AS at FROM ev a ASOF LEFT JOIN ev b MATCH_CONDITION (a.ts < b.ts) ON a.k = b.k EMIT ON WINDOW CLOSE",
    "SELECT DISTINCT window_end, ts, k FROM HOP(ev, ts, INTERVAL '5 seconds', INTERVAL '10 seconds') EMIT ON WINDOW CLOSE",
    "SELECT DISTINCT window_start, window_end, k FROM TUMBLE(ev, ts, INTERVAL '5 seconds')",
    "SELECT ts, k FROM ev WHERE v > 0",
    "SELECT window_start, window_end, k, count(*) AS n FROM HOP(ev, ts, INTERVAL '5 seconds', INTERVAL '10 seconds') GROUP BY window_start, window_end, k",
    "SELECT window_start, k FROM TUMBLE(ev, ts, INTERVAL '10 seconds') GROUP BY window_start, k HAVING count(*) > 1",
    "SELECT window_end, max(v) AS m FROM TUMBLE(ev, ts, INTERVAL '10 seconds') GROUP BY window_end EMIT ON WINDOW CLOSE",
    "SELECT ts, window_end, k, v FROM SESSION(ev PARTITION BY k, ts, INTERVAL '4 seconds') EMIT ON WINDOW CLOSE",
    "SELECT a.ts, b.ts AS at, a.k FROM ev a JOIN ev b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '3 seconds' AND a.ts + INTERVAL '2 seconds'",
    "SELECT a.ts, b.ts AS at, a.k FROM ev a LEFT JOIN ev b ON a.k = b.v AND b.ts BETWEEN a.ts - INTERVAL '3 seconds' AND a.ts + INTERVAL '2 seconds' EMIT ON WINDOW CLOSE",
];

fn tables(grow: bool) -> Vec<String> {
    let only = |t: &&str| {
        let t = t.replace(" PRIMARY KEY,", ",").replace(", PRIMARY KEY (k, n)) ON CONFLICT DO OVERWRITE", ")");
        if t.contains("APPEND ONLY") { t } else { format!("{t} APPEND ONLY") }
    };
    TABLES.iter().map(|t| if grow { only(t) } else { (*t).to_owned() }).collect()
}

/// Makes what can be made of these views; gives their names.
async fn create(d: &mut Driver, views: &[(String, String)]) -> Vec<String> {
    let mut made = Vec::new();
    for (name, query) in views {
        match d.answer(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await {
            Answer::Failed(e) => {
                assert!(e.contains("not supported") || e.contains("EMIT ON WINDOW CLOSE"), "{query}\n{e}")
            }
            _ => made.push(name.clone()),
        }
    }
    made
}

/// What was derived, for each thing at how many views.
#[derive(Debug, Default)]
struct Derived {
    keys: usize,
    append_only: usize,
    watermarks: usize,
    moving: usize,
    free: usize,
}

async fn check(seed: u64, grow: bool, parallelism: usize, views: &[(String, String)], statements: usize) -> Derived {
    let mut d = Driver::open(parallelism).await.unwrap();
    for t in tables(grow) {
        d.run(&t).await.unwrap();
    }
    let names = create(&mut d, views).await;
    let mut logs = Vec::new();
    let mut derived = Derived::default();
    for name in names {
        let props = d.engine.derived(&name).unwrap().0;
        derived.keys += usize::from(props.stream_key.is_some());
        derived.append_only += usize::from(props.append_only);
        derived.watermarks += usize::from(!props.watermarks.is_empty());
        derived.moving += usize::from(props.motion.is_some());
        derived.free += usize::from(props.order.is_free());
        logs.push((d.subscribe(&name).await.unwrap(), Checker::new(props), name));
    }
    let mut dml = Dml::new(seed, false);
    for _ in 0..statements {
        let mut sql = dml.statement();
        while grow && !sql.starts_with("INSERT") {
            sql = dml.statement();
        }
        d.answer(&sql).await;
        d.run("FLUSH").await.unwrap();
        for (log, checker, name) in &mut logs {
            log.take().await.unwrap();
            for changes in log.take_deltas().values() {
                if let Err(e) = checker.epoch(changes) {
                    let query = views.iter().find(|v| v.0 == *name).map(|v| &v.1);
                    panic!("seed {seed}, {name} {query:?}: {e}\n{:?}\n{}", checker.props(), d.history());
                }
            }
            let watermark = d.engine.derived(name).unwrap().1;
            checker.reached(watermark);
        }
    }
    if let Err(e) = d.verify().await {
        panic!("seed {seed}: {e}\n{}", d.history());
    }
    derived
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn named(queries: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    queries.into_iter().enumerate().map(|(i, q)| (format!("q{i}"), q)).collect()
}

fn moving() -> Vec<(String, String)> {
    named(MOVING.iter().map(|q| (*q).to_owned()))
}

#[test]
fn what_is_derived_holds_over_tables_that_grow() {
    runtime().block_on(async {
        for (seed, parallelism) in [(1, 1), (2, 3)] {
            let derived = check(seed, true, parallelism, &moving(), 24).await;
            assert!(derived.keys > 15 && derived.append_only > 15 && derived.watermarks > 4, "{derived:?}");
            assert!(derived.moving > 10 && derived.free > 40, "{derived:?}");
        }
    });
}

#[test]
fn what_is_derived_holds_over_tables_that_change() {
    runtime().block_on(async {
        check(4, false, 3, &moving(), 24).await;
        let all: Vec<_> = VIEWS.iter().map(|v| (v.name.to_owned(), v.query.to_owned())).collect();
        let derived = check(5, false, 2, &all, 10).await;
        assert!(derived.keys > 50 && derived.append_only > 3, "{derived:?}");
    });
}

#[test]
fn what_is_derived_of_random_queries_holds() {
    runtime().block_on(async {
        for chunk in 0..2 {
            let queries = named((chunk * 20..chunk * 20 + 20).map(query));
            let derived = check(10 + chunk, true, 2, &queries, 14).await;
            assert!(derived.keys > 3 && derived.append_only > 0 && derived.free > 10, "{derived:?}");
            check(20 + chunk, false, 2, &queries, 14).await;
        }
    });
}

/// Rows of `INSERT … VALUES` statements, as many for each table; no two of one key.
fn rows(seed: u64) -> Vec<(String, String)> {
    let mut dml = Dml::new(seed, false);
    let mut keys = std::collections::BTreeSet::new();
    let mut out = Vec::new();
    while out.len() < 160 {
        let sql = dml.statement();
        let Some((table, values)) = sql.strip_prefix("INSERT INTO ").and_then(|s| s.split_once(" VALUES ")) else {
            continue;
        };
        for row in values[1..values.len() - 1].split("), (") {
            let cells = if table == "w" { 2 } else { 1 };
            let key = row.split(", ").take(cells).collect::<Vec<_>>().join(", ");
            if ["t", "w"].contains(&table) && !keys.insert((table.to_owned(), key)) {
                continue;
            }
            out.push((table.to_owned(), row.to_owned()));
        }
    }
    out
}

/// The rows of all views that do not care about order, after these rows came, `together` in an epoch.
async fn results(
    views: &[(String, String)],
    rows: &[(String, String)],
    together: usize,
) -> Vec<(String, bool, Vec<String>)> {
    let mut d = Driver::open(2).await.unwrap();
    for t in tables(false) {
        // Late rows would be dropped, and which are late is a matter of order.
        d.run(&t.replace(", WATERMARK FOR ts AS ts - INTERVAL '10 seconds'", "")).await.unwrap();
    }
    let names = create(&mut d, views).await;
    for part in rows.chunks(together) {
        for table in NAMES {
            let of: Vec<&str> = part.iter().filter(|r| r.0 == *table).map(|r| r.1.as_str()).collect();
            if !of.is_empty() {
                d.run(&format!("INSERT INTO {table} VALUES ({})", of.join("), ("))).await.unwrap();
            }
        }
        d.run("FLUSH").await.unwrap();
    }
    let mut out = Vec::new();
    for name in names {
        let free = d.engine.derived(&name).unwrap().0.order.is_free();
        out.push((name.clone(), free, d.rows(&name).await.unwrap()));
    }
    out
}

#[test]
fn what_is_free_of_order_does_not_depend_on_it() {
    runtime().block_on(async {
        for seed in [1u64] {
            let mut rows = rows(seed);
            let mut views: Vec<_> = VIEWS.iter().filter(|v| v.reads.is_empty()).map(|v| v.query.to_owned()).collect();
            views.extend((seed * 30..seed * 30 + 30).map(query));
            views.extend(MOVING.iter().map(|q| (*q).to_owned()));
            let views = named(views.into_iter().filter(|q| !q.contains("EMIT ON WINDOW CLOSE")));
            let first = results(&views, &rows, 40).await;
            // Another order, in other epochs.
            let mut dice = Dml::new(seed + 100, false);
            for i in (1..rows.len()).rev() {
                rows.swap(i, dice.below(i + 1));
            }
            let second = results(&views, &rows, 73).await;
            assert!(first.iter().filter(|v| v.1).count() > 100);
            for ((name, free, a), (_, _, b)) in first.iter().zip(&second) {
                let query = views.iter().find(|v| v.0 == *name).map(|v| &v.1);
                assert!(!free || a == b, "seed {seed}, {query:?}\n{a:#?}\n{b:#?}");
            }
        }
    });
}

/// Which queries care, and that they do: what is said of order is not said for nothing.
#[test]
fn what_depends_on_order_is_known() {
    runtime().block_on(async {
        let run = |rows: [&'static str; 5], query: &'static str| async move {
            let mut d = Driver::open(2).await.unwrap();
            d.run("CREATE TABLE p (k int, x double precision) APPEND ONLY").await.unwrap();
            d.run(&format!("CREATE MATERIALIZED VIEW q AS {query}")).await.unwrap();
            for r in rows {
                d.run(&format!("INSERT INTO p VALUES ({r})")).await.unwrap();
                d.run("FLUSH").await.unwrap();
            }
            (d.engine.derived("q").unwrap().0.order, d.rows("q").await.unwrap())
        };
        let (there, back) = (
            ["1, 1", "1, 1e200", "1, 1e100", "1, -1e200", "1, -1e100"],
            ["1, 1e200", "1, -1e200", "1, 1e100", "1, -1e100", "1, 1"],
        );
        for (query, free) in [
            ("SELECT sum(x) AS s FROM p", false),
            ("SELECT k, avg(x) * 5 AS s FROM p GROUP BY k", false),
            ("SELECT k, sum(DISTINCT x) AS s FROM p GROUP BY k", false),
            ("SELECT sum(k) AS s, avg(k) AS a, max(x) AS m, var_pop(x) AS v, array_agg(x) AS l FROM p", true),
            ("SELECT x, sum(x) OVER (ORDER BY k) AS s FROM p", true),
            ("SELECT median(x) AS m, first_value(x) AS f FROM p", true),
        ] {
            let (a, b) = (run(there, query).await, run(back, query).await);
            assert_eq!(a.0, b.0);
            assert_eq!(a.0.is_free(), free, "{query}");
            assert_eq!(a.1 == b.1, free, "{query}: {:?} {:?}", a.1, b.1);
        }
        // What is found is what is there.
        let lookup = "SELECT a.k, b.x FROM p a LEFT JOIN p FOR SYSTEM_TIME AS OF PROCTIME() AS b ON a.k = b.k";
        let (order, rows) = run(there, lookup).await;
        let (_, other) = run(back, lookup).await;
        assert!(order.epochs && rows != other, "{order:?} {rows:?} {other:?}");
    });
}
