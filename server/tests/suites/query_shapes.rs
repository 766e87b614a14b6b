//! Every shape of query that the planner lowers, kept up to date under random changes with
//! one task and with three, and compared with its batch result.

use spate_server::{Engine, EngineConfig, Outcome, Session};

const TABLES: &[&str] = &[
    "CREATE TABLE t(id int primary key, k int, v bigint, s text)",
    "CREATE TABLE u(id int primary key, k bigint, d numeric(10,2), f float8)",
    "CREATE TABLE e(a bigint, price bigint, ts timestamp)",
    "CREATE VIEW vw AS SELECT k, v + 1 AS w FROM t WHERE v > 0 OR v IS NULL",
];

const VIEWS: &[&str] = &[
    // Projections, filters, expressions that fail in some rows.
    "SELECT id, v FROM t WHERE v > 1",
    "SELECT k, w FROM vw ORDER BY w",
    "SELECT id FROM t WHERE k IN (1, 2, 3) AND s NOT IN ('5', '6')",
    "SELECT id, v / k AS q, CAST(s AS INT) AS i, v % k AS m, substr(s, 1, k) AS x, CASE WHEN k > 0 THEN v / k END AS c FROM t",
    "SELECT id, d / 3 AS a, d * d AS b, d % 2 AS c, -d AS e, d + f AS g FROM u",
    "SELECT id, unnest(string_to_array(s, ',')) AS e FROM t",
    "SELECT 1 AS one",
    "VALUES (1, 'a'), (2, NULL)",
    // Aggregates.
    "SELECT count(*) AS n FROM t",
    "SELECT k, count(*) AS n, sum(v) AS s, avg(v) AS a, min(s) AS mi, max(s) AS ma, count(DISTINCT v) FILTER (WHERE v > 3) AS f FROM t GROUP BY k HAVING count(*) > 1",
    "SELECT sum(d) AS a, avg(d) AS b, min(f) AS c, sum(k) AS x, avg(f) AS y, max(d) AS z, sum(DISTINCT k) AS w FROM u",
    "SELECT date_trunc('minute', ts) AS m, count(*) AS n, min(ts) AS a FROM e GROUP BY 1",
    "SELECT CASE WHEN v > 5 THEN 'big' WHEN v IS NULL THEN 'none' ELSE 'small' END AS c, count(*) AS n FROM t GROUP BY 1",
    "SELECT max(n) AS m FROM (SELECT k, count(*) AS n FROM t GROUP BY k) x",
    // Joins.
    "SELECT t.id, u.d, u.id AS uid FROM t JOIN u ON t.k = u.k AND t.v > u.id",
    "SELECT t.id, u.d, u.id AS uid FROM t LEFT JOIN u ON t.k = u.k AND t.v > u.id",
    "SELECT t.id, u.d, u.id AS uid FROM t RIGHT JOIN u ON t.k + 1 = u.k",
    "SELECT t.id, u.d, u.id AS uid FROM t FULL JOIN u ON t.k = u.k",
    "SELECT t.id, u.id AS uid FROM t CROSS JOIN u",
    "SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON t.v > u.k",
    "SELECT t.id, x.b FROM t JOIN (VALUES (1, 'a'), (2, 'b')) AS x(a, b) ON t.k = x.a",
    "SELECT count(*) AS n FROM t a CROSS JOIN u b",
    "SELECT count(*) AS n FROM (SELECT 1 AS x FROM t) a, (SELECT 2 AS y FROM u) b",
    "SELECT t.id, a.n FROM t JOIN (SELECT k, count(*) AS n FROM u GROUP BY k) a ON t.k IS NOT DISTINCT FROM a.k",
    "SELECT a.id, b.id AS bid, c.id AS cid FROM t a JOIN t b ON a.k = b.k JOIN u c ON c.k = b.v",
    "SELECT coalesce(t.k, u.k) AS k, t.v, u.f FROM t FULL JOIN u ON t.k = u.k AND t.v IS NOT DISTINCT FROM u.id",
    "WITH a AS (SELECT k, count(*) c FROM t GROUP BY k) SELECT x.k, y.k AS k2 FROM a x JOIN a y ON x.c = y.c + 1",
    // Sets and order.
    "SELECT DISTINCT k FROM t",
    "SELECT DISTINCT a.k, u.k AS uk FROM (SELECT DISTINCT k FROM t) a LEFT JOIN u ON a.k = u.id",
    "SELECT k FROM t UNION SELECT k FROM u",
    "SELECT k FROM t UNION ALL SELECT k FROM u UNION ALL SELECT 1",
    "SELECT s, v FROM t ORDER BY v DESC, k NULLS FIRST LIMIT 3 OFFSET 1",
    "SELECT id FROM t ORDER BY v * 2 LIMIT 3",
    "SELECT s FROM t LIMIT 3",
    "SELECT k, count(*) AS n FROM (SELECT k FROM t ORDER BY v LIMIT 4) x GROUP BY k",
    "SELECT k % 3 AS m, sum(v * 2) AS b, max(CAST(s AS INT)) AS c FROM t GROUP BY k % 3 ORDER BY b LIMIT 2",
    // Subqueries.
    "SELECT id FROM t WHERE v > (SELECT avg(k) FROM u)",
    "SELECT id, (SELECT count(*) FROM u WHERE u.k = t.k) AS n, (SELECT max(d) FROM u WHERE u.k = t.k) AS m FROM t",
    "SELECT id, (SELECT 10 / count(*) FROM u WHERE u.k = t.k) AS n FROM t",
    "SELECT x.n, t.id FROM t, LATERAL (SELECT max(u.f) AS n FROM u WHERE u.k = t.k) x",
    // Windows.
    "SELECT a, window_start, window_end, count(*) AS n, sum(price) AS p FROM TUMBLE(e, ts, INTERVAL '10 seconds') GROUP BY a, window_start, window_end",
    "SELECT window_start, window_end, max(price) AS p FROM HOP(e, ts, INTERVAL '3 seconds', INTERVAL '10 seconds') GROUP BY window_start, window_end",
    "SELECT x.window_end, x.n, y.p FROM (SELECT window_end, count(*) AS n FROM TUMBLE(e, ts, INTERVAL '10 seconds') GROUP BY window_end) x LEFT JOIN (SELECT window_end, max(price) AS p FROM HOP(e, ts, INTERVAL '5 seconds', INTERVAL '10 seconds') GROUP BY window_end) y ON x.window_end = y.window_end",
];

/// Numbers that are the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// A value, or NULL one time in six.
    fn or_null(&mut self, value: impl ToString) -> String {
        if self.below(6) == 0 { "NULL".into() } else { value.to_string() }
    }

    /// A statement that changes one of the tables; keys and values collide often.
    fn change(&mut self) -> String {
        let (id, k, v) = (self.below(40), self.below(6), self.below(10));
        let text = ["'1,2'", "'5'", "'x'", "'12'", "''", "'7,x'", "'6'"][self.below(7) as usize];
        match self.below(8) {
            0..=2 => {
                let (k, v, s) = (self.or_null(k as i64 - 2), self.or_null(v), self.or_null(text));
                format!("INSERT INTO t VALUES ({id}, {k}, {v}, {s})")
            }
            3..=4 => {
                let (k, d, f) = (self.or_null(k), self.or_null(format!("{v}.25")), self.or_null(format!("{v}.5")));
                format!("INSERT INTO u VALUES ({id}, {k}, {d}, {f})")
            }
            5 => {
                let ts = self.or_null(format!("'1970-01-01 00:00:{id:02}.5'"));
                format!("INSERT INTO e VALUES ({k}, {v}, {ts})")
            }
            6 => format!("UPDATE t SET v = {v}, k = {} WHERE k = {k}", self.or_null(v)),
            _ => match self.below(3) {
                0 => format!("DELETE FROM t WHERE id = {id}"),
                1 => format!("DELETE FROM u WHERE id = {id}"),
                _ => format!("DELETE FROM e WHERE a = {k}"),
            },
        }
    }
}

async fn run(session: &mut Session, sql: &str) -> Result<(), String> {
    match session.execute(sql).await {
        Ok(Outcome::Done(_) | Outcome::Rows(_)) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

async fn agree(parallelism: usize) {
    let engine = Engine::open(EngineConfig { threads: 2, ..EngineConfig::default() }).unwrap();
    let mut s = engine.session();
    run(&mut s, &format!("SET parallelism = {parallelism}")).await.unwrap();
    for sql in TABLES {
        run(&mut s, sql).await.unwrap();
    }
    for (i, query) in VIEWS.iter().enumerate() {
        let created = run(&mut s, &format!("CREATE MATERIALIZED VIEW m{i} AS {query}")).await;
        assert_eq!(created, Ok(()), "m{i}: {query}");
    }
    let mut draw = Draw(7);
    for round in 0..4 {
        for _ in 0..25 {
            let sql = draw.change();
            // A key that is taken already is refused, and changes nothing.
            if let Err(e) = run(&mut s, &sql).await {
                assert!(e.contains("duplicate"), "{sql}: {e}");
            }
        }
        match engine.verify_views().await {
            Ok(checked) => assert_eq!(checked, VIEWS.len()),
            Err(e) => panic!("round {round}, {parallelism} tasks: {e}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_task() {
    agree(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_tasks() {
    agree(3).await;
}
