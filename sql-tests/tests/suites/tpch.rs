//! The 22 queries of TPC-H as materialized views: after loading, after random changes of every
//! table, after orders came and went, each must equal its query in batch.

use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use spate_sql_tests::driver::Driver;
use spate_sql_tests::{suite, tpch};

const SCALE: f64 = 0.002;

async fn create(d: &mut Driver, queries: &[(String, String)]) {
    for (name, query) in queries {
        d.run(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await.unwrap();
    }
}

async fn copy(d: &mut Driver, dir: &Path, table: &str, file: &str) {
    d.run(&format!("COPY {table} FROM '{}'", dir.join(format!("{file}.csv")).display())).await.unwrap();
}

async fn verify(d: &Driver, views: usize, when: &str) {
    let n = d.verify().await.unwrap_or_else(|e| panic!("{when}: {e}"));
    assert_eq!(n, views, "{when}: not all views were compared");
}

/// Changes of every table, of key columns too, with NULLs; `k` varies them.
fn changes(rng: &mut SmallRng) -> Vec<String> {
    let mut k = |n: u32| rng.random_range(0..n);
    vec![
        format!("UPDATE supplier SET s_nationkey = (s_nationkey + {}) % 25 WHERE s_suppkey % 3 = {}", 1 + k(24), k(3)),
        format!("UPDATE supplier SET s_comment = 'Customer then Complaints' WHERE s_suppkey % 5 = {}", k(5)),
        format!("UPDATE nation SET n_regionkey = NULL WHERE n_nationkey % 9 = {}", k(9)),
        format!("DELETE FROM partsupp WHERE ps_partkey % 17 = {}", k(17)),
        format!("UPDATE partsupp SET ps_availqty = NULL WHERE ps_partkey % 13 = {}", k(13)),
        format!(
            "UPDATE part SET p_type = 'PROMO BURNISHED COPPER', p_brand = 'Brand#23' WHERE p_partkey % 6 = {}",
            k(6)
        ),
        format!("UPDATE customer SET c_acctbal = NULL, c_mktsegment = 'BUILDING' WHERE c_custkey % 7 = {}", k(7)),
        format!("DELETE FROM customer WHERE c_custkey % 23 = {}", k(23)),
        format!("UPDATE orders SET o_custkey = o_custkey + 1, o_orderstatus = 'F' WHERE o_orderkey % 11 = {}", k(11)),
        format!("UPDATE orders SET o_orderkey = o_orderkey + 1000000 WHERE o_orderkey % 19 = {}", k(19)),
        format!(
            "UPDATE lineitem SET l_linenumber = l_linenumber + 10, l_quantity = l_quantity * 3 WHERE l_partkey % 29 = {}",
            k(29)
        ),
        format!("UPDATE lineitem SET l_receiptdate = NULL, l_discount = NULL WHERE l_suppkey % 9 = {}", k(9)),
        format!(
            "INSERT INTO lineitem SELECT l_orderkey, l_partkey, l_suppkey, l_linenumber + 100, l_quantity, NULL, l_discount, \
             l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, \
             l_comment FROM lineitem WHERE l_orderkey % 31 = {} AND l_linenumber < 10",
            k(31)
        ),
        format!("DELETE FROM lineitem WHERE l_partkey % 37 = {}", k(37)),
    ]
}

#[test]
fn all_queries_equal_batch() {
    let dir = tempfile::tempdir().unwrap();
    tpch::write_tables(dir.path(), SCALE).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut d = Driver::open(2).await.unwrap();
        for sql in suite::script("tpch", "schema").unwrap() {
            d.run(&sql).await.unwrap();
        }
        let queries = suite::queries("tpch").unwrap();
        assert_eq!(queries.len(), 22);
        // Half of the views see the tables fill, half start from full ones.
        let (odd, even): (Vec<_>, Vec<_>) = queries.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
        let pick = |v: Vec<(usize, (String, String))>| v.into_iter().map(|(_, q)| q).collect::<Vec<_>>();
        let (odd, even) = (pick(odd), pick(even));
        create(&mut d, &odd).await;
        for table in tpch::TABLES {
            copy(&mut d, dir.path(), table, table).await;
        }
        create(&mut d, &even).await;
        verify(&d, 22, "after loading").await;
        let mut empty = Vec::new();
        for (name, _) in odd.iter().chain(&even) {
            if d.rows(name).await.unwrap().is_empty() {
                empty.push(name);
            }
        }
        assert!(empty.is_empty(), "these have no rows, so they show nothing: {empty:?}");
        let mut rng = SmallRng::seed_from_u64(22);
        let all = changes(&mut rng);
        for part in all.chunks(5) {
            for sql in part {
                d.run(sql).await.unwrap();
            }
            verify(&d, 22, &format!("after {part:#?}")).await;
        }
        // New orders, then the oldest go.
        copy(&mut d, dir.path(), "orders", "orders-later").await;
        copy(&mut d, dir.path(), "lineitem", "lineitem-later").await;
        verify(&d, 22, "after orders came").await;
        d.run("DELETE FROM lineitem WHERE l_orderkey % 7 < 3").await.unwrap();
        d.run("DELETE FROM orders WHERE o_orderkey % 7 < 3").await.unwrap();
        verify(&d, 22, "after orders went").await;
        for table in tpch::TABLES {
            d.run(&format!("DELETE FROM {table}")).await.unwrap();
        }
        verify(&d, 22, "after everything went").await;
    });
}
