//! The embedded store after crashes: of the process, of the machine, of the disk.

use std::io;
use std::io::BufRead;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use futures::executor::block_on;
use futures::future::join_all;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::meta::conformance_tests::HandClock;
use spate_engine::env::SystemClock;

fn open(file: &Path) -> MetaResult<Embedded> {
    Embedded::open(file, Arc::new(SystemClock::new()))
}

/// Run in a child process: commits until it is killed, and says what was acknowledged.
#[test]
fn child_that_commits() {
    let Ok(file) = std::env::var("SPATE_META_CHILD") else { return };
    let store = open(Path::new(&file)).unwrap();
    let start = block_on(store.list("k/")).unwrap().entries.len() / 4;
    for n in start.. {
        // Several at a time, so that groups are made; sizes from a few bytes to more than a page.
        let commits = (0..4).map(|i| {
            let value = Bytes::from(vec![n as u8; (n * 37 + i * 1000) % 9000]);
            let ops = [Op::put(format!("k/{n:08}/{i}"), value), Op::put(format!("last/{i}"), format!("{n}"))];
            let store = &store;
            async move { store.commit(&[], &ops).await }
        });
        for r in block_on(join_all(commits.collect::<Vec<_>>())) {
            r.unwrap();
        }
        println!("acknowledged {n}");
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("meta");
    let mut rng = SmallRng::seed_from_u64(7);
    let mut acknowledged = 0;
    for _ in 0..20 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "meta::embedded::tests::child_that_commits", "--nocapture"])
            .env("SPATE_META_CHILD", &file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = io::BufReader::new(child.stdout.take().unwrap()).lines();
        let mut wanted = rng.random_range(1..40);
        let mut note = |line: String| {
            // The test harness writes its own text before the first.
            let n = line.rsplit_once("acknowledged ").map(|(_, n)| n.parse::<usize>().unwrap());
            acknowledged = n.map_or(acknowledged, |n| n + 1);
            n.is_some()
        };
        while wanted > 0 {
            wanted -= usize::from(note(lines.next().expect("the child ended").unwrap()));
        }
        // Somewhere in the middle of the next ones.
        std::thread::sleep(Duration::from_micros(rng.random_range(0..1500)));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            note(line);
        }
        let store = open(&file).unwrap();
        let entries = block_on(store.list("k/")).unwrap().entries;
        assert!(entries.len() >= 4 * acknowledged, "{} of {}", entries.len(), 4 * acknowledged);
        for (n, i) in (0..acknowledged).flat_map(|n| (0..4).map(move |i| (n, i))) {
            let value = vec![n as u8; (n * 37 + i * 1000) % 9000];
            assert_eq!(block_on(store.get(&format!("k/{n:08}/{i}"))).unwrap().unwrap().value, value);
        }
        for i in 0..4 {
            // Both keys of a commit are there, or neither.
            let last = block_on(store.get(&format!("last/{i}"))).unwrap().unwrap();
            let n: usize = std::str::from_utf8(&last.value).unwrap().parse().unwrap();
            let same = block_on(store.get(&format!("k/{n:08}/{i}"))).unwrap().unwrap();
            assert_eq!(same.version, last.version);
            assert!(n + 1 >= acknowledged);
            assert_eq!(block_on(store.get(&format!("k/{:08}/{i}", n + 1))).unwrap(), None);
        }
        // Groups that were cut off in the middle are done anew by the next child.
        let whole = entries.len() / 4;
        let rest = Op::DeleteRange { from: format!("k/{whole:08}"), to: "k0".into() };
        block_on(store.commit(&[], &[rest])).unwrap();
        acknowledged = whole.min(block_on(store.list("k/")).unwrap().entries.len() / 4);
    }
    assert!(acknowledged > 100, "{acknowledged}");
}

/// A disk that loses some of what was not made durable when the power fails.
#[derive(Debug, Default)]
struct Disk {
    content: Mutex<Content>,
    /// Writes fail as on a full disk; syncs fail.
    full: AtomicBool,
    unsound: AtomicBool,
}

#[derive(Debug, Default, Clone)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
}

impl Disk {
    fn power_fails(&self, rng: &mut SmallRng) {
        let mut c = self.content.lock();
        let len = if rng.random() { c.now.len() } else { c.durable.len() };
        let mut bytes = c.durable.clone();
        bytes.resize(len, 0);
        let keep = rng.random_range(0.0..1.0);
        for (i, sector) in bytes.chunks_mut(512).enumerate() {
            if let Some(new) = c.now.get(i * 512..i * 512 + sector.len())
                && rng.random_bool(keep)
            {
                sector.copy_from_slice(new);
            }
        }
        *c = Content { now: bytes.clone(), durable: bytes };
    }
}

#[derive(Debug)]
struct Backend(Arc<Disk>);

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.content.lock().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let c = self.0.content.lock();
        let part = c.now.get(offset as usize..offset as usize + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(part);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut c = self.0.content.lock();
        if len as usize > c.now.len() && self.0.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        c.now.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.0.unsound.load(Ordering::Relaxed) {
            return Err(io::Error::other("injected"));
        }
        let mut c = self.0.content.lock();
        c.durable = c.now.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.0.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.content.lock().now[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn on(disk: &Arc<Disk>, clock: Arc<dyn Clock>) -> MetaResult<Embedded> {
    let disk = disk.clone();
    Embedded::with_opener(
        "disk".into(),
        Box::new(move || Database::builder().create_with_backend(Backend(disk.clone()))),
        clock,
    )
}

#[test]
fn what_was_acknowledged_is_there_after_the_power_failed() {
    let mut total = 0;
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = Arc::new(Disk::default());
        let mut expected: std::collections::BTreeMap<String, u64> = Default::default();
        for round in 0..4 {
            let mut store = Some(on(&disk, Arc::new(HandClock::default())).unwrap());
            let s = store.as_ref().unwrap();
            let found = block_on(s.list("")).unwrap().entries;
            let found: std::collections::BTreeMap<String, u64> =
                found.into_iter().map(|e| (e.key, e.version)).collect();
            assert_eq!(found, expected, "seed {seed} round {round}");
            for _ in 0..rng.random_range(1..12) {
                let key = format!("k{}", rng.random_range(0..30));
                let op = match rng.random_bool(0.2) {
                    true => Op::delete(key.clone()),
                    false => Op::put(key.clone(), vec![1; rng.random_range(0..20_000)]),
                };
                let v = block_on(s.commit(&[], std::slice::from_ref(&op))).unwrap();
                match op {
                    Op::Put { .. } => expected.insert(key, v),
                    _ => expected.remove(&key),
                };
                total += 1;
            }
            // It fails in the middle of a commit: nothing of that becomes durable by a sync, but
            // anything may have reached the disk.
            disk.unsound.store(true, Ordering::Relaxed);
            let last = block_on(s.commit(&[], &[Op::put("k-last", vec![2; 5000])]));
            assert!(last.is_err());
            let before = disk.content.lock().clone();
            drop(store.take());
            *disk.content.lock() = before;
            disk.unsound.store(false, Ordering::Relaxed);
            disk.power_fails(&mut rng);
            // The commit under way may be there or not, as a whole.
            let s = on(&disk, Arc::new(HandClock::default())).unwrap();
            if let Some(e) = block_on(s.get("k-last")).unwrap() {
                assert_eq!(e.value.len(), 5000);
                expected.insert(e.key, e.version);
            }
        }
    }
    assert!(total > 1000);
}

#[test]
fn a_full_disk_is_told_and_the_store_goes_on_once_there_is_space() {
    let disk = Arc::new(Disk::default());
    let s = on(&disk, Arc::new(HandClock::default())).unwrap();
    let mut w = block_on(s.watch("", 0)).unwrap();
    assert_eq!(block_on(s.commit(&[], &[Op::put("a", "1")])), Ok(1));
    disk.full.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let e = block_on(s.commit(&[], &[Op::put("b", vec![1; 100_000])])).unwrap_err();
        assert!(matches!(e, MetaError::Full), "{e}");
    }
    disk.full.store(false, Ordering::Relaxed);
    assert_eq!(block_on(s.commit(&[], &[Op::put("c", "3")])), Ok(2));
    let entries = block_on(s.list("")).unwrap().entries;
    assert_eq!(entries.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    let seen: Vec<String> = std::iter::from_fn(|| {
        use futures::{FutureExt, StreamExt};
        w.next().now_or_never().flatten().map(|c| c.unwrap().key)
    })
    .collect();
    assert_eq!(seen, ["a", "c"]);
}

#[test]
fn a_disk_that_does_not_sync_gives_no_acknowledgement() {
    let disk = Arc::new(Disk::default());
    let s = on(&disk, Arc::new(HandClock::default())).unwrap();
    block_on(s.commit(&[], &[Op::put("a", "1")])).unwrap();
    disk.unsound.store(true, Ordering::Relaxed);
    for key in ["b", "c"] {
        let e = block_on(s.commit(&[], &[Op::put(key, "2")])).unwrap_err();
        assert!(matches!(e, MetaError::Unknown(_) | MetaError::Unavailable(_)), "{e}");
    }
    disk.unsound.store(false, Ordering::Relaxed);
    block_on(s.commit(&[], &[Op::put("d", "2")])).unwrap();
    assert!(block_on(s.get("a")).unwrap().is_some() && block_on(s.get("d")).unwrap().is_some());
}

#[test]
fn leases_and_revisions_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("meta");
    let clock = Arc::new(HandClock::default());
    let s = Embedded::open(&file, clock.clone()).unwrap();
    let lease = block_on(s.grant(Duration::from_secs(5))).unwrap();
    let op = |key: &str| Op::Put { key: key.into(), value: "x".into(), lease: Some(lease) };
    block_on(s.commit(&[], &[op("worker")])).unwrap();
    drop(s);
    clock.pass(Duration::from_secs(100));
    let s = Embedded::open(&file, clock.clone()).unwrap();
    block_on(s.keep_alive(lease)).unwrap();
    assert_ne!(block_on(s.grant(Duration::from_secs(1))).unwrap(), lease);
    assert_eq!(block_on(s.commit(&[], &[op("other")])), Ok(2));
    // What was before it was opened is no longer kept for watchers.
    assert_eq!(block_on(s.watch("", 0)).err().unwrap(), MetaError::Compacted { oldest: 1 });
    clock.pass(Duration::from_secs(6));
    block_on(s.expire()).unwrap();
    assert_eq!(block_on(s.list("")).unwrap(), Listing { revision: 3, entries: vec![] });
}

#[test]
fn a_store_that_cannot_be_opened_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("meta");
    let first = open(&file).unwrap();
    let e = open(&file).unwrap_err();
    assert_eq!(e, MetaError::Locked(file.display().to_string()));
    drop(first);

    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "meta::embedded::tests::child_that_commits", "--nocapture"])
        .env("SPATE_META_CHILD", &file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = io::BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("acknowledged") {}
    let e = open(&file).unwrap_err();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(e.to_string(), format!("\"{}\" is in use by another process", file.display()));
    drop(open(&file).unwrap());

    let db = Database::create(&file).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(NUMBERS).unwrap().insert(N_FORMAT, 9).unwrap();
    txn.commit().unwrap();
    drop(db);
    assert_eq!(open(&file).unwrap_err(), MetaError::Newer { found: 9, known: FORMAT });

    std::fs::write(&file, vec![b'x'; 10_000]).unwrap();
    let e = open(&file).unwrap_err();
    assert!(matches!(&e, MetaError::Corrupt(why) if why.contains("meta")), "{e}");
}

#[test]
fn waiting_commits_share_a_sync() {
    let disk = Arc::new(Disk::default());
    let s = on(&disk, Arc::new(HandClock::default())).unwrap();
    let commit = |i: u64| {
        let s = &s;
        let key = format!("k{}", i / 2);
        async move { s.commit(&[Condition::Absent(key.clone())], &[Op::put(key, "x")]).await }
    };
    let done = block_on(join_all((0..200).map(commit)));
    // Of the two that want one key the first has it; the other's refusal harms nobody in its group.
    for (i, r) in done.iter().enumerate() {
        assert_eq!(r.is_ok(), i % 2 == 0, "{i} {r:?}");
    }
    let txn = s.shared.read(|t| number(&t.open_table(NUMBERS).map_err(failed)?, N_GROUP)).unwrap();
    assert!(txn <= 10, "{txn} transactions for 100 commits");
}
