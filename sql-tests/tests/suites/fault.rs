//! EXPLAIN FAULT: every query has a plan for every strategy, told in numbers that are numbers.

use spate_sql_tests::driver::{Answer, Driver};
use spate_sql_tests::suite;

fn run<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(f)
}

async fn nexmark() -> Driver {
    let mut d = Driver::open(2).await.unwrap();
    for table in ["person", "auction", "bid"] {
        d.run(&format!("CREATE SOURCE {table} WITH (connector = 'nexmark', table = '{table}')")).await.unwrap();
    }
    d.run("CREATE TABLE side_input (key bigint PRIMARY KEY, value text)").await.unwrap();
    d
}

#[test]
fn every_nexmark_query_has_a_plan() {
    run(async {
        let mut d = nexmark().await;
        for (name, query) in suite::queries("nexmark").unwrap() {
            for strategy in ["cost", "latency", "burst", "none", "checkpoint", "active"] {
                d.run(&format!("SET fault.strategy = '{strategy}'")).await.unwrap();
                let text = d.run(&format!("EXPLAIN FAULT {query}")).await.unwrap();
                assert!(text.contains(&format!("Fault plan, strategy {strategy}")), "{name}: {text}");
                assert!(!text.contains("NaN") && !text.contains("inf"), "{name}: {text}");
                for part in ["Legend", "priors", "sink view: deadline 2.00 s", "no cluster is described"] {
                    assert!(text.contains(part), "{name}, {strategy} lacks {part}: {text}");
                }
                // Both tasks of a source that is read twice at the most.
                assert!(text.contains("source-") && text.contains(".0 ~") && text.contains(".1 ~"), "{name}: {text}");
                assert!(strategy != "active" || text.contains("  active  "), "{name}: {text}");
                assert!(strategy != "none" || !text.contains("  active  "), "{name}: {text}");
            }
        }
    });
}

/// More tasks share the work that is assumed; they do not bring more of it.
#[test]
fn joins_of_many_tables_have_a_plan_at_every_parallelism() {
    run(async {
        let mut d = nexmark().await;
        for n in [1, 2, 64] {
            d.run(&format!("SET parallelism = {n}")).await.unwrap();
            let sql = "EXPLAIN FAULT SELECT a.id FROM auction a JOIN bid b ON a.id = b.auction \
                       JOIN person p ON p.id = a.seller JOIN bid c ON c.auction = a.id \
                       JOIN auction d ON d.id = c.auction";
            let text = d.run(sql).await.unwrap();
            assert!(text.contains("Fault plan, strategy cost"), "{n}: {text}");
        }
    });
}

#[test]
fn what_is_set_decides() {
    run(async {
        let mut d = nexmark().await;
        let query = "SELECT auction, count(*) FROM bid GROUP BY auction";
        let explained = format!("EXPLAIN FAULT {query}");
        let loose = d.run(&explained).await.unwrap();
        // A global checkpoint alone takes longer than this.
        d.run("SET fault.recovery_slo = '2 s'").await.unwrap();
        let tight = d.run(&explained).await.unwrap();
        assert!(!loose.contains("checkpoint  ") && tight.contains("checkpoint  "), "{loose}\n{tight}");
        d.run("SET fault.recovery_slo = '1 ms'").await.unwrap();
        let Answer::Failed(e) = d.answer(&explained).await else { panic!("an impossible goal was planned") };
        assert!(e.contains("cannot meet recovery_slo = 0.001 s") && e.contains("at best"), "{e}");
        d.run("RESET fault.recovery_slo").await.unwrap();
        assert_eq!(d.run(&explained).await.unwrap(), loose);
        d.run("SET fault.deadline = '5 s'").await.unwrap();
        assert!(d.run(&explained).await.unwrap().contains("deadline 5.00 s"));
        let json = d.run(&format!("EXPLAIN (FAULT, FORMAT JSON) {query}")).await.unwrap();
        assert!(json.contains("\"running_cost_per_h\"") && json.contains("\"interval_s\""), "{json}");
    });
}
