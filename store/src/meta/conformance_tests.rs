//! What every meta store must do, held against each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::executor::block_on;
use futures::{FutureExt, StreamExt};

use super::*;
use spate_engine::env::Clock;

/// A clock that is set by hand.
#[derive(Debug, Default)]
pub(super) struct HandClock(AtomicU64);

impl HandClock {
    pub fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now_us(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

type Check = fn(Arc<dyn MetaStore>, Arc<HandClock>);

const CHECKS: [(&str, Check); 10] = [
    ("keys", keys),
    ("conditions", conditions),
    ("transactions", transactions),
    ("limits", limits),
    ("ranges", ranges),
    ("watches", watches),
    ("slow watchers", slow_watchers),
    ("leases", leases),
    ("leases in transactions", leases_in_transactions),
    ("many writers", many_writers),
];

#[test]
fn a_store_in_memory_conforms() {
    for (name, check) in CHECKS {
        println!("{name}");
        let clock = Arc::new(HandClock::default());
        check(Arc::new(Memory::new(clock.clone())), clock);
    }
}

#[test]
fn an_embedded_store_conforms() {
    for (name, check) in CHECKS {
        println!("{name}");
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(HandClock::default());
        check(Arc::new(Embedded::open(dir.path().join("new/meta"), clock.clone()).unwrap()), clock);
    }
}

fn put(s: &Arc<dyn MetaStore>, key: &str, value: &'static str) -> Revision {
    block_on(s.commit(&[], &[Op::put(key, value)])).unwrap()
}

fn get(s: &Arc<dyn MetaStore>, key: &str) -> Option<(String, Revision)> {
    let e = block_on(s.get(key)).unwrap()?;
    assert_eq!(e.key, key);
    Some((String::from_utf8(e.value.to_vec()).unwrap(), e.version))
}

fn names(s: &Arc<dyn MetaStore>, prefix: &str) -> Vec<String> {
    block_on(s.list(prefix)).unwrap().entries.into_iter().map(|e| e.key).collect()
}

fn conflict(key: &str) -> MetaResult<Revision> {
    Err(MetaError::Conflict(key.to_owned()))
}

fn keys(s: Arc<dyn MetaStore>, _: Arc<HandClock>) {
    assert_eq!(get(&s, "a"), None);
    assert_eq!(put(&s, "a", "1"), 1);
    assert_eq!(put(&s, "a", "2"), 2);
    assert_eq!(put(&s, "b", ""), 3);
    assert_eq!(get(&s, "a"), Some(("2".into(), 2)));
    assert_eq!(get(&s, "b"), Some((String::new(), 3)));
    assert_eq!(block_on(s.commit(&[], &[Op::delete("a")])), Ok(4));
    assert_eq!(get(&s, "a"), None);
    // Nothing changes, so there is no new revision.
    assert_eq!(block_on(s.commit(&[], &[Op::delete("a")])), Ok(4));
    assert_eq!(block_on(s.commit(&[], &[])), Ok(4));
}

fn conditions(s: Arc<dyn MetaStore>, _: Arc<HandClock>) {
    let put_if = |key: &str, value: &'static str, expected| block_on(s.put_if(key, Bytes::from(value), expected));
    assert_eq!(put_if("a", "1", Some(1)), conflict("a"));
    assert_eq!(put_if("a", "1", None), Ok(1));
    assert_eq!(put_if("a", "2", None), conflict("a"));
    assert_eq!(put_if("a", "2", Some(2)), conflict("a"));
    assert_eq!(put_if("a", "2", Some(1)), Ok(2));
    assert_eq!(block_on(s.delete_if("a", 1)), conflict("a"));
    assert_eq!(block_on(s.delete_if("a", 2)), Ok(3));
    assert_eq!(block_on(s.delete_if("a", 2)), conflict("a"));
    // A key that is there again is another.
    assert_eq!(put_if("a", "3", None), Ok(4));
    assert_eq!(put_if("a", "4", Some(2)), conflict("a"));
    assert_eq!(get(&s, "a"), Some(("3".into(), 4)));
}

fn transactions(s: Arc<dyn MetaStore>, _: Arc<HandClock>) {
    put(&s, "leader", "me");
    let all = [Op::put("x", "1"), Op::put("y", "2"), Op::delete("leader")];
    let leads = |v| Condition::Version("leader".into(), v);
    assert_eq!(block_on(s.commit(&[leads(1), Condition::Absent("leader".into())], &all)), conflict("leader"));
    assert_eq!(block_on(s.commit(&[leads(2)], &all)), conflict("leader"));
    assert_eq!(names(&s, ""), ["leader"]);
    assert_eq!(block_on(s.commit(&[leads(1), Condition::Absent("x".into())], &all)), Ok(2));
    assert_eq!((names(&s, ""), get(&s, "x").unwrap().1, get(&s, "y").unwrap().1), (vec!["x".into(), "y".into()], 2, 2));
    // Conditions see what was before, not the commit's own writes.
    assert_eq!(block_on(s.commit(&[Condition::Absent("z".into())], &[Op::put("z", "1")])), Ok(3));
    assert_eq!(block_on(s.commit(&[leads(1)], &[])), conflict("leader"));
}

fn limits(s: Arc<dyn MetaStore>, _: Arc<HandClock>) {
    let invalid = |ops: &[Op]| matches!(block_on(s.commit(&[], ops)), Err(MetaError::Invalid(_)));
    let big = |n: usize| Bytes::from(vec![7; n]);
    assert!(!invalid(&[Op::put("big", big(VALUE_MAX))]));
    assert_eq!(block_on(s.get("big")).unwrap().unwrap().value.len(), VALUE_MAX);
    assert!(invalid(&[Op::put("big", big(VALUE_MAX + 1))]));
    assert!(invalid(&[Op::put("a", big(VALUE_MAX)), Op::put("b", big(VALUE_MAX))]));
    assert!(invalid(&[Op::put("", "x")]) && invalid(&[Op::put("a\0b", "x")]));
    assert!(!invalid(&[Op::put("k".repeat(KEY_MAX), "x")]) && invalid(&[Op::put("k".repeat(KEY_MAX + 1), "x")]));
    let range = |from: &str, to: &str| Op::DeleteRange { from: from.into(), to: to.into() };
    assert!(invalid(&[Op::put("a", "1"), Op::delete("a")]) && invalid(&[Op::put("b", "1"), range("a", "c")]));
    assert!(invalid(&[range("a", "c"), range("b", "d")]) && invalid(&[range("a", "c"), Op::delete("a")]));
    assert!(!invalid(&[range("x", "y"), Op::put("y", "1"), range("z", "zz")]));
    let many = |n: usize| (0..n).map(|i| Op::put(format!("many{i}"), "x")).collect::<Vec<_>>();
    assert!(!invalid(&many(OPS_MAX)) && invalid(&many(OPS_MAX + 1)));
    assert_eq!(names(&s, "many").len(), OPS_MAX);
}

fn ranges(s: Arc<dyn MetaStore>, _: Arc<HandClock>) {
    for key in ["a", "a/1", "a/2", "a/é", "a0", "b", "\u{10ffff}x"] {
        put(&s, key, "x");
    }
    assert_eq!(names(&s, "a/"), ["a/1", "a/2", "a/é"]);
    assert_eq!(names(&s, "a"), ["a", "a/1", "a/2", "a/é", "a0"]);
    assert_eq!(names(&s, "\u{10ffff}"), ["\u{10ffff}x"]);
    assert_eq!(names(&s, "").len(), 7);
    let listing = block_on(s.range("a/2", "b")).unwrap();
    assert_eq!(listing.revision, 7);
    assert_eq!(listing.entries.iter().map(|e| e.version).collect::<Vec<_>>(), [3, 4, 5]);
    let op = Op::DeleteRange { from: "a/1".into(), to: "a0".into() };
    assert_eq!(block_on(s.commit(&[], &[op])), Ok(8));
    assert_eq!(names(&s, ""), ["a", "a0", "b", "\u{10ffff}x"]);
}

/// All changes that a watcher can have now.
fn now(w: &mut Watch) -> Vec<(Revision, String, Option<String>)> {
    let mut out = Vec::new();
    while let Some(Some(change)) = w.next().now_or_never() {
        let c = change.unwrap();
        assert!(c.entry.as_ref().is_none_or(|e| e.key == c.key && e.version == c.revision));
        out.push((c.revision, c.key, c.entry.map(|e| String::from_utf8(e.value.to_vec()).unwrap())));
    }
    out
}

fn watches(s: Arc<dyn MetaStore>, _: Arc<HandClock>) {
    put(&s, "a/1", "1");
    let mut from_start = block_on(s.watch("a/", 0)).unwrap();
    let mut from_here = block_on(s.watch("a/", 1)).unwrap();
    assert_eq!(now(&mut from_here), []);
    block_on(s.commit(&[], &[Op::put("a/2", "2"), Op::put("b", "x"), Op::delete("a/1")])).unwrap();
    put(&s, "b", "y");
    let all = [(2, "a/2".to_owned(), Some("2".to_owned())), (2, "a/1".into(), None)];
    assert_eq!(now(&mut from_here), all);
    assert_eq!(now(&mut from_start)[1..], all);
    // Who waits is woken.
    let waiting = std::thread::spawn(move || block_on(from_here.next()).unwrap().unwrap());
    put(&s, "a/3", "3");
    assert_eq!(waiting.join().unwrap().key, "a/3");
    // A closed store ends its watches.
    assert_eq!(now(&mut from_start).len(), 1);
    let waiting = std::thread::spawn(move || block_on(from_start.next()));
    drop(s);
    assert_eq!(waiting.join().unwrap(), None);
}

fn slow_watchers(s: Arc<dyn MetaStore>, _: Arc<HandClock>) {
    let value = Bytes::from(vec![1; VALUE_MAX]);
    let mut slow = block_on(s.watch("", 0)).unwrap();
    let mut last = 0;
    for _ in 0..20 {
        last = block_on(s.commit(&[], &[Op::put("k", value.clone()), Op::put("l", "x")])).unwrap();
    }
    let Some(Err(MetaError::Compacted { oldest })) = block_on(slow.next()) else { panic!("it has all of it") };
    assert_eq!(block_on(slow.next()), None);
    assert_eq!(block_on(s.watch("", oldest - 1)).err().unwrap(), MetaError::Compacted { oldest });
    // From there on everything is there.
    let all: Vec<Revision> = now_revisions(&mut block_on(s.watch("l", oldest)).unwrap());
    assert_eq!(all, (oldest + 1..=last).collect::<Vec<_>>());
}

fn now_revisions(w: &mut Watch) -> Vec<Revision> {
    std::iter::from_fn(|| w.next().now_or_never().flatten().map(|c| c.unwrap().revision)).collect()
}

fn put_with(s: &Arc<dyn MetaStore>, key: &str, lease: LeaseId) -> MetaResult<Revision> {
    let op = Op::Put { key: key.into(), value: "x".into(), lease: Some(lease) };
    block_on(s.commit(&[], &[op]))
}

fn leases(s: Arc<dyn MetaStore>, clock: Arc<HandClock>) {
    let second = Duration::from_secs(1);
    let (a, b) = (block_on(s.grant(second * 3)).unwrap(), block_on(s.grant(second * 10)).unwrap());
    assert_ne!(a, b);
    assert_eq!(put_with(&s, "a/1", a), Ok(1));
    assert_eq!(put_with(&s, "a/2", a), Ok(2));
    assert_eq!(put_with(&s, "b", b), Ok(3));
    assert_eq!(block_on(s.get("b")).unwrap().unwrap().lease, Some(b));
    put(&s, "c", "x");
    let mut w = block_on(s.watch("", 4)).unwrap();
    clock.pass(second * 2);
    block_on(s.keep_alive(a)).unwrap();
    clock.pass(second * 2);
    block_on(s.expire()).unwrap();
    assert_eq!(names(&s, "").len(), 4);
    clock.pass(second);
    assert_eq!(block_on(s.keep_alive(a)), Err(MetaError::LeaseLost), "its time is over to the microsecond");
    block_on(s.expire()).unwrap();
    assert_eq!(names(&s, ""), ["b", "c"]);
    assert_eq!(now(&mut w), [(5, "a/1".into(), None), (5, "a/2".into(), None)]);
    assert_eq!(block_on(s.keep_alive(a)), Err(MetaError::LeaseLost));
    assert_eq!(put_with(&s, "a/3", a), Err(MetaError::LeaseLost));
    block_on(s.revoke(b)).unwrap();
    assert_eq!(names(&s, ""), ["c"]);
    assert_eq!(block_on(s.keep_alive(b)), Err(MetaError::LeaseLost));
    block_on(s.revoke(b)).unwrap();
    assert_ne!(block_on(s.grant(second)).unwrap(), b);
}

fn leases_in_transactions(s: Arc<dyn MetaStore>, clock: Arc<HandClock>) {
    let second = Duration::from_secs(1);
    let a = block_on(s.grant(second)).unwrap();
    put_with(&s, "leader", a).unwrap();
    put_with(&s, "other", a).unwrap();
    // A key written without a lease stays.
    put(&s, "other", "kept");
    let b = block_on(s.grant(second * 5)).unwrap();
    put_with(&s, "moved", a).unwrap();
    put_with(&s, "moved", b).unwrap();
    clock.pass(second * 2);
    // Nobody has to call `expire`: a commit sees the lease as over.
    let candidate = Op::Put { key: "leader".into(), value: "me".into(), lease: Some(b) };
    block_on(s.commit(&[Condition::Absent("leader".into())], &[candidate])).unwrap();
    assert_eq!(names(&s, ""), ["leader", "moved", "other"]);
    let both = [Op::put("p", "1"), Op::Put { key: "q".into(), value: "2".into(), lease: Some(a) }];
    assert_eq!(block_on(s.commit(&[], &both)), Err(MetaError::LeaseLost));
    assert_eq!(get(&s, "p"), None);
    block_on(s.revoke(b)).unwrap();
    assert_eq!(names(&s, ""), ["other"]);
}

fn many_writers(s: Arc<dyn MetaStore>, _: Arc<HandClock>) {
    // Each adds to one number under its version: nothing is lost, and revisions have no gaps.
    let mut w = block_on(s.watch("n", 0)).unwrap();
    std::thread::scope(|scope| {
        for t in 0..8 {
            let s = &s;
            scope.spawn(move || {
                for i in 0..10 {
                    loop {
                        let old = block_on(s.get("n")).unwrap();
                        let n: u64 =
                            old.as_ref().map_or(0, |e| std::str::from_utf8(&e.value).unwrap().parse().unwrap());
                        let expected = expecting("n", old.map(|e| e.version));
                        let ops = [Op::put("n", (n + 1).to_string()), Op::put(format!("by/{t}/{i}"), "x")];
                        match block_on(s.commit(&[expected], &ops)) {
                            Ok(_) => break,
                            Err(MetaError::Conflict(_)) => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(get(&s, "n"), Some(("80".into(), 80)));
    assert_eq!(names(&s, "by/").len(), 80);
    let values: Vec<String> = now(&mut w).into_iter().filter_map(|c| c.2).collect();
    assert_eq!(values, (1..=80).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn faults_do_what_they_say() {
    struct NoSleep;
    impl crate::env::Sleep for NoSleep {
        fn sleep(&self, _: Duration) -> futures::future::BoxFuture<'static, ()> {
            Box::pin(async {})
        }
    }
    let mut faults = vec![Fault::None, Fault::LoseAnswer, Fault::Fail, Fault::Delay(Duration::from_secs(1))];
    let store = Memory::with_faults(Arc::new(HandClock::default()), Arc::new(NoSleep), move |call| match call {
        Call::Commit => faults.pop().unwrap_or(Fault::None),
        _ => Fault::None,
    });
    let s: Arc<dyn MetaStore> = Arc::new(store);
    let put = |value: &'static str| block_on(s.commit(&[], &[Op::put("k", value)]));
    assert_eq!(put("delayed"), Ok(1));
    assert!(matches!(put("failed"), Err(MetaError::Unavailable(_))));
    assert_eq!(get(&s, "k"), Some(("delayed".into(), 1)));
    assert!(matches!(put("lost"), Err(MetaError::Unknown(_))));
    assert_eq!(get(&s, "k"), Some(("lost".into(), 2)));
    assert_eq!(put("done"), Ok(3));
}

/// What anybody can see of a store.
fn seen(s: &Arc<dyn MetaStore>, w: &mut Watch) -> (Listing, Vec<(Revision, String, Option<String>)>) {
    (block_on(s.list("")).unwrap(), now(w))
}

#[test]
fn both_stores_do_the_same_whatever_is_asked() {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    let mut conflicts = 0;
    for seed in 0..15 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(HandClock::default());
        let open = || Arc::new(Embedded::open(dir.path().join("meta"), clock.clone()).unwrap());
        let mut stores: [Arc<dyn MetaStore>; 2] = [Arc::new(Memory::new(clock.clone())), open()];
        let mut watches: Vec<Watch> = stores.iter().map(|s| block_on(s.watch("", 0)).unwrap()).collect();
        let mut leases = vec![LeaseId(99)];
        for _ in 0..150 {
            let key = |rng: &mut SmallRng| format!("k/{}", rng.random_range(0..8));
            let mut conditions = Vec::new();
            for _ in 0..rng.random_range(0..3) {
                let key = key(&mut rng);
                let there = block_on(stores[0].get(&key)).unwrap().map(|e| e.version);
                let wrong = rng.random_bool(0.1);
                conditions.push(expecting(&key, if wrong { Some(1) } else { there }));
            }
            let mut ops = Vec::new();
            for _ in 0..rng.random_range(0..4) {
                let key = key(&mut rng);
                ops.push(match rng.random_range(0..10) {
                    0..3 => Op::delete(key),
                    3 => Op::DeleteRange { from: key.clone(), to: format!("{key}~") },
                    4..6 => {
                        Op::Put { key, value: "leased".into(), lease: Some(leases[rng.random_range(0..leases.len())]) }
                    }
                    _ => Op::put(key, rng.random_range(0..100).to_string()),
                });
            }
            let what = rng.random_range(0..20);
            let ttl = Duration::from_secs(rng.random_range(1..30));
            clock.pass(Duration::from_secs(rng.random_range(0..3)));
            let lease = leases[rng.random_range(0..leases.len())];
            let results = stores.each_ref().map(|s| match what {
                0 => block_on(s.grant(ttl)).map(|l| l.0),
                1 => block_on(s.keep_alive(lease)).map(|()| 0),
                2 => block_on(s.revoke(lease)).map(|()| 0),
                _ => block_on(s.commit(&conditions, &ops)),
            });
            assert_eq!(results[0], results[1], "seed {seed}: {conditions:?} {ops:?}");
            conflicts += usize::from(matches!(results[0], Err(MetaError::Conflict(_))));
            if let (0, Ok(lease)) = (what, &results[0]) {
                leases.push(LeaseId(*lease));
            }
            stores.iter().for_each(|s| block_on(s.expire()).unwrap());
            let [a, b] = [0, 1].map(|i| seen(&stores[i], &mut watches[i]));
            assert_eq!(a, b, "seed {seed}");
        }
        // What is on disk is what was seen; without leases, since they begin anew.
        for lease in leases {
            stores.iter().for_each(|s| block_on(s.revoke(lease)).unwrap());
        }
        let before = block_on(stores[0].list("")).unwrap();
        watches.clear();
        stores[1] = Arc::new(Memory::new(clock.clone()));
        stores[1] = open();
        assert_eq!(block_on(stores[1].list("")).unwrap(), before);
    }
    assert!(conflicts > 50, "{conflicts}");
}
