//! Subscriptions over a network that fails: what a subscriber hears, whatever happens to its
//! connections, is what the view went through.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, UInt64Type};
use arrow::util::display::array_value_to_string;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use spate_client::protocol::{Change, Client, Kind, Subscription, SubscriptionOptions};
use spate_server::flight::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::flight::{on_server, start};

/// Between client and server: cuts connections after a random number of bytes.
struct Proxy {
    url: String,
    /// No longer cuts.
    calm: Arc<AtomicBool>,
    cuts: Arc<AtomicU64>,
    /// Cuts all connections at once.
    cut_now: Arc<Notify>,
}

impl Proxy {
    async fn start(server: &str, seed: u64, mean_bytes: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("grpc://{}", listener.local_addr().unwrap());
        let server = server.replace("grpc://", "");
        let (calm, cuts, cut_now) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (c, n, now) = (calm.clone(), cuts.clone(), cut_now.clone());
        tokio::spawn(async move {
            let mut random = SmallRng::seed_from_u64(seed);
            while let Ok((client, _)) = listener.accept().await {
                let (server, c, n, now) = (server.clone(), c.clone(), n.clone(), now.clone());
                let allowed = random.random_range(mean_bytes / 10..mean_bytes * 2);
                tokio::spawn(async move {
                    if pass(client, &server, allowed, &c, &now).await {
                        n.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Self { url, calm, cuts, cut_now }
    }
}

/// Passes bytes on until there were enough; says whether it cut the connection.
async fn pass(mut client: TcpStream, server: &str, mut allowed: u64, calm: &AtomicBool, now: &Notify) -> bool {
    let Ok(mut server) = TcpStream::connect(server).await else { return false };
    let (mut up, mut down) = (vec![0; 4096], vec![0; 4096]);
    loop {
        let n = tokio::select! {
            n = client.read(&mut up) => match n {
                Ok(n) if n > 0 && server.write_all(&up[..n]).await.is_ok() => n,
                _ => return false,
            },
            n = server.read(&mut down) => match n {
                Ok(n) if n > 0 => {
                    // The cut comes within a message as well.
                    let part = n.min(allowed as usize);
                    let pass = if calm.load(Ordering::Relaxed) { n } else { part };
                    if client.write_all(&down[..pass]).await.is_err() {
                        return false;
                    }
                    n
                }
                _ => return false,
            },
            () = now.notified() => return true,
        };
        allowed = allowed.saturating_sub(n as u64);
        if allowed == 0 && !calm.load(Ordering::Relaxed) {
            return true;
        }
    }
}

/// The rows that changes leave, and how often.
#[derive(Debug, Default)]
struct Mirror {
    rows: BTreeMap<Vec<String>, i64>,
    epoch: u64,
    changes: usize,
}

impl Mirror {
    fn apply(&mut self, change: &Change) {
        assert!(change.epoch > self.epoch, "epoch {} after {}", change.epoch, self.epoch);
        self.epoch = change.epoch;
        for batch in &change.rows {
            let width = batch.num_columns() - 2;
            let weights = batch.column(width).as_primitive::<Int64Type>();
            let epochs = batch.column(width + 1).as_primitive::<UInt64Type>();
            for i in 0..batch.num_rows() {
                assert_eq!(epochs.value(i), change.epoch);
                let key: Vec<String> = (0..width).map(|c| array_value_to_string(batch.column(c), i).unwrap()).collect();
                let n = self.rows.entry(key).or_default();
                *n += weights.value(i);
                self.changes += 1;
            }
        }
        // An epoch that came twice, or not at all, would leave less or more.
        assert!(self.rows.values().all(|n| *n >= 0), "{:?}", self.rows);
        self.rows.retain(|_, n| *n > 0);
    }

    async fn until(&mut self, subscription: &mut Subscription, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let change = subscription.next().await.unwrap().expect("more");
            self.apply(&change);
        }
    }
}

/// The rows of a query, as a mirror has them.
async fn truth(client: &Client, sql: &str) -> BTreeMap<Vec<String>, i64> {
    let mut out = BTreeMap::new();
    let batches: Vec<RecordBatch> = client.query(sql).await.unwrap().collect().await.unwrap();
    for b in batches {
        for i in 0..b.num_rows() {
            let row = b.columns().iter().map(|c| array_value_to_string(c, i).unwrap()).collect();
            *out.entry(row).or_default() += 1;
        }
    }
    out
}

#[test]
fn a_subscription_survives_cut_connections() {
    on_server(Limits::default(), async |client, url| {
        client.execute("CREATE TABLE t (id bigint PRIMARY KEY, g int, v int, pad text)").await.unwrap();
        client
            .execute("CREATE MATERIALIZED VIEW m AS SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g")
            .await
            .unwrap();
        client
            .execute("INSERT INTO t SELECT value, value % 50, value, repeat('x', 200) FROM generate_series(1, 2000) AS a(value)")
            .await
            .unwrap();
        let mut cuts = 0;
        for (seed, relation) in [(1, "m"), (2, "t"), (3, "m"), (4, "t")] {
            // The first rows of t alone are more than what one connection lives for at times.
            let mean = if relation == "t" { 400_000 } else { 5_000 };
            let proxy = Proxy::start(&url, seed, mean).await;
            let connected = loop {
                // The handshake can be cut too.
                if let Ok(c) = Client::connect(&proxy.url).await {
                    break c;
                }
            };
            let options = SubscriptionOptions {
                backoff: (Duration::from_millis(5), Duration::from_millis(50)),
                attempts: 1000,
                ..SubscriptionOptions::default()
            };
            let mut subscription = loop {
                match connected.subscribe_with(relation, options.clone()).await {
                    Ok(s) => break s,
                    Err(e) => assert_eq!(e.kind(), Kind::Unavailable, "{e}"),
                }
            };
            let mut mirror = Mirror::default();
            let mut random = SmallRng::seed_from_u64(seed);
            let base = 10_000 * seed as i64;
            for round in 0..60 {
                let (a, b) = (random.random_range(0..50), random.random_range(1..1000));
                client
                    .execute(&format!("INSERT INTO t VALUES ({}, {a}, {b}, repeat('y', 300))", base + round))
                    .await
                    .unwrap();
                client.execute(&format!("UPDATE t SET v = v + {b} WHERE g = {a}")).await.unwrap();
                if round % 7 == 3 {
                    client.execute(&format!("DELETE FROM t WHERE id = {}", base + round - 2)).await.unwrap();
                }
                if round % 3 == 0 {
                    let change = subscription.next().await.unwrap().expect("a change");
                    mirror.apply(&change);
                }
                if round % 20 == 11 {
                    proxy.cut_now.notify_waiters();
                }
            }
            proxy.calm.store(true, Ordering::Relaxed);
            let expect = truth(&client, &format!("SELECT * FROM {relation}")).await;
            mirror.until(&mut subscription, |m| m.rows == expect).await;
            cuts += proxy.cuts.load(Ordering::Relaxed);
            assert!(subscription.resumed() > 0, "{relation} was never cut");
        }
        assert!(cuts >= 8, "only {cuts} cuts");
    });
}

#[test]
fn a_subscription_goes_on_after_a_named_epoch() {
    on_server(Limits::default(), async |client, _| {
        client.execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
        client.execute("INSERT INTO t VALUES (1)").await.unwrap();
        let mut first = client.subscribe("t").await.unwrap();
        let mut mirror = Mirror::default();
        mirror.until(&mut first, |m| m.rows.len() == 1).await;
        let epoch = first.complete().unwrap();
        drop(first);
        client.execute("INSERT INTO t VALUES (2), (3)").await.unwrap();
        let options = SubscriptionOptions { as_of: Some(epoch), ..SubscriptionOptions::default() };
        let mut second = client.subscribe_with("t", options).await.unwrap();
        mirror.until(&mut second, |m| m.rows.len() == 3).await;
        assert_eq!(mirror.changes, 3);
        // Without the rows that are there: what comes is what changes from now on.
        let options = SubscriptionOptions { snapshot: false, ..SubscriptionOptions::default() };
        let mut third = client.subscribe_with("t", options).await.unwrap();
        assert!(third.complete().is_some());
        client.execute("DELETE FROM t WHERE id = 1").await.unwrap();
        let change = third.next().await.unwrap().unwrap();
        assert_eq!(change.rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
        // What is gone is told.
        client.execute("DROP TABLE t").await.unwrap();
        assert_eq!(third.next().await.unwrap_err().kind(), Kind::NotFound);
    });
}

/// Input that ends, ends a subscription. It once did so at times before its last rows were visible.
#[test]
fn a_subscription_to_what_ends_has_all_of_it() {
    on_server(Limits::default(), async |client, _| {
        for _ in 0..30 {
            let mut bounded = client.subscribe("SELECT value FROM generate_series(1, 3) AS a(value)").await.unwrap();
            let mut mirror = Mirror::default();
            while let Some(change) = bounded.next().await.unwrap() {
                mirror.apply(&change);
            }
            assert_eq!(mirror.rows.len(), 3);
        }
    });
}

#[test]
fn a_slow_subscriber_is_let_go_with_the_epoch_to_go_on_from() {
    on_server(Limits { epochs_behind: 20, ..Limits::default() }, async |client, _| {
        client.execute("CREATE TABLE t (id bigint PRIMARY KEY, pad text)").await.unwrap();
        client.execute("INSERT INTO t VALUES (0, 'x')").await.unwrap();
        let mut subscription = client.subscribe("t").await.unwrap();
        let mut mirror = Mirror::default();
        mirror.until(&mut subscription, |m| m.rows.len() == 1).await;
        // More than what networks and buffers take in, and nobody reads.
        for i in 1..=120 {
            client.execute(&format!("INSERT INTO t VALUES ({i}, repeat('{}', 200000))", i % 10)).await.unwrap();
        }
        let e = loop {
            match subscription.next().await {
                Ok(change) => mirror.apply(&change.expect("more")),
                Err(e) => break e,
            }
        };
        assert_eq!(e.kind(), Kind::Limit, "{e}");
        let hint = e.hint().unwrap();
        let epoch: u64 = hint.rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(Some(epoch), subscription.complete(), "{e}");
        assert!(mirror.rows.len() < 100, "{}", mirror.rows.len());
        let options = SubscriptionOptions { as_of: Some(epoch), ..SubscriptionOptions::default() };
        let mut again = client.subscribe_with("t", options).await.unwrap();
        mirror.until(&mut again, |m| m.rows.len() == 121).await;
        assert_eq!(mirror.changes, 121);
    });
}

#[test]
fn another_server_is_no_place_to_go_on() {
    spate_server::threads::runtime().unwrap().block_on(async {
        let one = start(Limits::default()).await;
        let client = Client::connect(&one.flight_url()).await.unwrap();
        client.execute("CREATE TABLE t (id int)").await.unwrap();
        client.execute("INSERT INTO t VALUES (1)").await.unwrap();
        // A proxy that leads to the second server once the first is gone.
        let two = start(Limits::default()).await;
        let direct = Client::connect(&two.flight_url()).await.unwrap();
        direct.execute("CREATE TABLE t (id int)").await.unwrap();
        for i in 0..20 {
            direct.execute(&format!("INSERT INTO t VALUES ({i})")).await.unwrap();
            direct.execute("FLUSH").await.unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("grpc://{}", listener.local_addr().unwrap());
        let second = Arc::new(AtomicBool::new(false));
        let (leads, cut) = (second.clone(), Arc::new(Notify::new()));
        let cut_all = cut.clone();
        let (first_url, second_url) = (one.flight_url(), two.flight_url());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to = if leads.load(Ordering::Relaxed) { &second_url } else { &first_url };
                let (to, cut) = (to.replace("grpc://", ""), cut.clone());
                tokio::spawn(async move { pass(client, &to, u64::MAX, &AtomicBool::new(true), &cut).await });
            }
        });
        let through = Client::connect(&url).await.unwrap();
        let mut subscription = through.subscribe("t").await.unwrap();
        assert!(subscription.next().await.unwrap().is_some());
        second.store(true, Ordering::Relaxed);
        // Again and again: a connection hears of it only while it waits.
        let cutter = tokio::spawn({
            let cut = cut_all.clone();
            async move {
                loop {
                    cut.notify_waiters();
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        });
        let e = tokio::time::timeout(Duration::from_secs(60), subscription.next()).await.unwrap().unwrap_err();
        cutter.abort();
        assert!(e.message().contains("started anew"), "{e}");
        one.stop().await;
        two.stop().await;
    });
}
