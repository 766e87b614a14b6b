//! From SQL to a stream plan, by EXPLAIN.

use criterion::{Criterion, criterion_group, criterion_main};
use futures::TryStreamExt;
use spate_benches::{queries, stream};
use spate_server::{EngineConfig, Outcome, Session};
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn explain(runtime: &Runtime, session: &mut Session, sql: &str) -> usize {
    let run = async {
        match session.execute(&format!("EXPLAIN {sql}")).await.expect("a plan") {
            Outcome::Rows(rows) => rows.stream.try_collect::<Vec<_>>().await.expect("rows").len(),
            Outcome::Done(_) => 0,
        }
    };
    runtime.block_on(run)
}

fn join_of(tables: usize) -> String {
    let joins: Vec<String> = (1..tables).map(|i| format!("JOIN t t{i} ON t{i}.k = t{}.v", i - 1)).collect();
    format!("SELECT t0.k, t{}.v FROM t t0 {}", tables - 1, joins.join(" "))
}

fn planner(c: &mut Criterion) {
    let runtime = Runtime::new().expect("runtime");
    let (engine, mut session) = stream::engine(&runtime, EngineConfig::default(), &[]).expect("engine");
    let mut run = |sql: &str| stream::done(&runtime, &mut session, sql).expect("statement");
    run("CREATE TABLE t (k bigint PRIMARY KEY, v bigint, s text)");
    for table in ["bid", "auction", "person"] {
        run(&format!("CREATE SOURCE {table} WITH (connector = 'nexmark', table = '{table}', events = 1)"));
    }
    let mut group = c.benchmark_group("plan");
    group.sample_size(20);
    let wide = join_of(20);
    for (name, sql) in [
        ("point query", "SELECT v FROM t WHERE k = 1"),
        ("aggregate", "SELECT k % 10, count(*), sum(v) FROM t GROUP BY k % 10"),
        ("nexmark q4", queries::Q4),
        ("nexmark q5", queries::Q5),
        ("nexmark q9", queries::Q9),
        ("join of 20 tables", &wide),
    ] {
        group.bench_function(name, |b| b.iter(|| explain(&runtime, &mut session, sql)));
    }
    group.finish();
    engine.shutdown();
}

criterion_group!(benches, planner);
criterion_main!(benches);
