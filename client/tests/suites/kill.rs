//! The real server is killed while it is written to, and started again over the same directory.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use spate_client::Client;

/// Kills, each after another time.
const KILLS: u64 = 6;
/// Rows that one statement writes.
const ROWS: u64 = 3;

fn start(dir: &Path) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spate"));
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--checkpoint-interval", "20", "-d"]);
    let mut child = command.arg(dir).stdout(Stdio::piped()).spawn().unwrap();
    let first = BufReader::new(child.stdout.take().unwrap()).lines().next().expect("an address").unwrap();
    (child, first.strip_prefix("flight: ").unwrap().to_owned())
}

async fn numbers(client: &Client, sql: &str) -> Vec<i64> {
    let rows = client.query(sql).await.unwrap().collect().await.unwrap();
    let number = |b: &arrow::array::RecordBatch, c: usize, r: usize| {
        arrow::util::display::array_value_to_string(b.column(c), r).unwrap().parse().unwrap_or(0)
    };
    rows.iter()
        .flat_map(|b| (0..b.num_rows()).flat_map(move |r| (0..b.num_columns()).map(move |c| number(b, c, r))))
        .collect()
}

/// Every statement that was answered is there whole, none is there in part or twice, and the view equals its query.
#[test]
fn acknowledged_writes_survive_a_kill() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (mut acknowledged, mut next) = (Vec::new(), 0u64);
        for kill in 0..=KILLS {
            let (mut child, url) = start(dir.path());
            let client = Client::connect(&url).await.unwrap();
            if kill == 0 {
                client.execute("CREATE TABLE t (batch bigint, n bigint, PRIMARY KEY (batch, n))").await.unwrap();
                let view =
                    "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS c, sum(batch) AS s, max(batch) AS x FROM t";
                client.execute(view).await.unwrap();
            }
            let batches = numbers(&client, "SELECT batch, count(*) AS c FROM t GROUP BY batch").await;
            let there: std::collections::BTreeMap<i64, i64> = batches.chunks(2).map(|p| (p[0], p[1])).collect();
            assert!(there.values().all(|n| *n == ROWS as i64), "a statement is there in part: {there:?}");
            let lost: Vec<&u64> = acknowledged.iter().filter(|b| !there.contains_key(&(**b as i64))).collect();
            assert!(lost.is_empty(), "lost after kill {kill}: {lost:?}");
            let view = numbers(&client, "SELECT * FROM m").await;
            let query = numbers(&client, "SELECT count(*), sum(batch), max(batch) FROM t").await;
            assert_eq!(view, query, "after kill {kill}");
            // Written until the server dies.
            let deadline = tokio::time::sleep(Duration::from_millis(150 + 130 * kill));
            tokio::pin!(deadline);
            loop {
                let rows: Vec<String> = (0..ROWS).map(|n| format!("({next}, {n})")).collect();
                let sql = format!("INSERT INTO t VALUES {}", rows.join(", "));
                tokio::select! {
                    () = &mut deadline => break,
                    done = client.execute(&sql) => {
                        done.unwrap();
                        acknowledged.push(next);
                    }
                }
                next += 1;
            }
            // A number is never written twice: the statement that was not answered may be there or not.
            next += 1;
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(acknowledged.len() as u64 > KILLS, "{acknowledged:?}");
    });
}
