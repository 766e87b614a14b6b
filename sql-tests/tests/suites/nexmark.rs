//! The Nexmark queries as materialized views: over the generator's endless streams read to an end,
//! and over tables that change at random; each must equal its query in batch.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use spate_sql_tests::driver::Driver;
use spate_sql_tests::suite;

const EVENTS: u32 = 8000;
const RELATIONS: &[&str] = &["person", "auction", "bid"];

fn queries() -> Vec<(String, String)> {
    let queries = suite::queries("nexmark").unwrap();
    assert_eq!(queries.len(), 23);
    queries
}

fn run<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(f)
}

async fn side_input(d: &mut Driver) {
    d.run("CREATE TABLE side_input (key bigint PRIMARY KEY, value text)").await.unwrap();
    let rows: Vec<String> = (0..1500).map(|k| format!("({k}, 'v{}')", k % 7)).collect();
    d.run(&format!("INSERT INTO side_input VALUES {}", rows.join(", "))).await.unwrap();
}

/// Over the generator, append-only and with watermarks.
#[test]
fn streams_equal_batch() {
    run(async {
        for parallelism in [1, 3] {
            let mut d = Driver::open(parallelism).await.unwrap();
            for table in RELATIONS {
                d.run(&format!(
                    "CREATE SOURCE {table} WITH (connector = 'nexmark', table = '{table}', events = {EVENTS})"
                ))
                .await
                .unwrap();
            }
            side_input(&mut d).await;
            for (name, query) in queries() {
                d.run(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await.unwrap();
                let rows = d.rows(&name).await.unwrap();
                assert!(!rows.is_empty(), "{name} has no rows, so it shows nothing");
            }
            let n = d.verify().await.unwrap_or_else(|e| panic!("parallelism {parallelism}: {e}"));
            assert_eq!(n, 23, "parallelism {parallelism}");
            d.run(&format!("CREATE SINK q10_log AS {} WITH (connector = 'blackhole')", q10())).await.unwrap();
        }
    });
}

fn q10() -> String {
    queries().into_iter().find(|(n, _)| n == "q10").unwrap().1
}

/// q10 writes files.
#[test]
fn q10_logs_to_files() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut d = Driver::open(2).await.unwrap();
        let events = format!("events = {EVENTS}");
        d.run(&format!("CREATE SOURCE bid WITH (connector = 'nexmark', table = 'bid', {events})")).await.unwrap();
        let path = dir.path().join("log").display().to_string();
        d.run(&format!("CREATE SINK log AS {} WITH (connector = 'file', path = '{path}', format = 'json')", q10()))
            .await
            .unwrap();
        d.run("FLUSH").await.unwrap();
        let back = format!("CREATE SOURCE back WITH (connector = 'file', path = '{path}', format = 'json')");
        d.run(&back).await.unwrap();
        let count = d.run("SELECT count(*), count(day), sum(price) FROM back").await.unwrap();
        let expected = d.run("SELECT count(*), count(date_time), sum(price) FROM bid").await.unwrap();
        assert_eq!(count, expected);
    });
}

/// Over tables, with rows that change and go.
#[test]
fn changing_tables_equal_batch() {
    run(async {
        let mut d = Driver::open(2).await.unwrap();
        for table in RELATIONS {
            d.run(&format!(
                "CREATE SOURCE all_{table} WITH (connector = 'nexmark', table = '{table}', events = {EVENTS})"
            ))
            .await
            .unwrap();
            let columns = match *table {
                "person" => {
                    "id bigint PRIMARY KEY, name text, email_address text, credit_card text, city text, \
                             state text, date_time timestamp, extra text"
                }
                "auction" => {
                    "id bigint PRIMARY KEY, item_name text, description text, initial_bid bigint, \
                              reserve bigint, date_time timestamp, expires timestamp, seller bigint, category bigint, \
                              extra text"
                }
                _ => {
                    "auction bigint, bidder bigint, price bigint, channel text, url text, date_time timestamp, extra text"
                }
            };
            d.run(&format!("CREATE TABLE {table} ({columns})")).await.unwrap();
        }
        side_input(&mut d).await;
        for table in RELATIONS {
            d.run(&format!("INSERT INTO {table} SELECT * FROM all_{table} LIMIT 700")).await.unwrap();
        }
        for (name, query) in queries() {
            d.run(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await.unwrap();
        }
        let verify = async |d: &Driver, when: &str| {
            let n = d.verify().await.unwrap_or_else(|e| panic!("{when}: {e}"));
            assert_eq!(n, 23, "{when}");
        };
        verify(&d, "after loading").await;
        let mut rng = SmallRng::seed_from_u64(23);
        for round in 0..3 {
            let mut k = |n: u32| rng.random_range(0..n);
            let changes = [
                format!("DELETE FROM bid WHERE bidder % 5 = {}", k(5)),
                format!("INSERT INTO bid SELECT * FROM all_bid WHERE price % 11 = {}", k(11)),
                format!(
                    "INSERT INTO bid SELECT auction, bidder, NULL, channel, url, date_time, NULL AS no_extra FROM all_bid WHERE price % 41 = {}",
                    k(41)
                ),
                format!(
                    "UPDATE bid SET price = price * 100, date_time = date_time + INTERVAL '7 seconds' WHERE auction % 13 = {}",
                    k(13)
                ),
                format!("UPDATE bid SET date_time = NULL WHERE auction % 43 = {}", k(43)),
                format!(
                    "UPDATE auction SET category = 10, expires = expires + INTERVAL '1 minute' WHERE id % 3 = {}",
                    k(3)
                ),
                format!("DELETE FROM auction WHERE id % 17 = {}", k(17)),
                format!("UPDATE person SET state = 'or', name = NULL WHERE id % 4 = {}", k(4)),
                format!("DELETE FROM side_input WHERE key % 6 = {}", k(6)),
            ];
            for sql in &changes {
                d.run(sql).await.unwrap();
            }
            verify(&d, &format!("round {round}, after {changes:#?}")).await;
        }
        for table in RELATIONS {
            d.run(&format!("DELETE FROM {table}")).await.unwrap();
        }
        verify(&d, "after everything went").await;
    });
}
