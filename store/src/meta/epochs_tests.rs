//! The log of epoch records over both stores, and what it makes of lost answers and damage.

use std::time::Duration;

use futures::executor::block_on;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use spate_engine::env::SystemClock;

use crate::env::BlockingSleep;
use crate::meta::conformance_tests::HandClock;
use crate::meta::{Embedded, Fault, Memory};

fn stores(dir: &std::path::Path) -> [Arc<dyn MetaStore>; 2] {
    let clock = Arc::new(HandClock::default());
    [Arc::new(Memory::new(clock.clone())), Arc::new(Embedded::open(dir.join("meta"), clock).unwrap())]
}

fn all(log: &EpochLog, from: Epoch) -> Vec<(Epoch, Bytes)> {
    let (mut out, mut from) = (Vec::new(), from);
    loop {
        let some = block_on(log.read(from)).unwrap();
        let Some(last) = some.last() else { return out };
        from = last.0 + 1;
        out.extend(some);
    }
}

#[test]
fn records_come_back_in_order_from_any_epoch() {
    let dir = tempfile::tempdir().unwrap();
    for store in stores(dir.path()) {
        block_on(store.commit(&[], &[Op::put("epochs/a", "no record"), Op::put("epochs.", "x")])).unwrap();
        let log = EpochLog::new(store.clone(), "epochs/1/", vec![]);
        assert_eq!(all(&log, 0), []);
        // With gaps, as idle epochs have no record.
        let epochs: Vec<Epoch> = (1..400).chain([1000, 5000, 1_000_000]).collect();
        for e in &epochs {
            block_on(log.append(*e, format!("record {e}").as_bytes())).unwrap();
        }
        for from in [0, 1, 17, 399, 400, 1001, 5001, 1_000_001] {
            let got = all(&log, from);
            assert_eq!(
                got.iter().map(|r| r.0).collect::<Vec<_>>(),
                epochs.iter().copied().filter(|e| *e >= from).collect::<Vec<_>>()
            );
            assert!(got.iter().all(|(e, r)| **r == *format!("record {e}").as_bytes()));
        }
        block_on(log.truncate(300)).unwrap();
        assert_eq!(all(&log, 0)[0].0, 300);
        block_on(log.truncate(2_000_000)).unwrap();
        assert_eq!(all(&log, 0), []);
        assert_eq!(block_on(store.list("epochs")).unwrap().entries.len(), 2);
    }
}

#[test]
fn an_epoch_has_one_record_and_only_the_leader_writes() {
    let dir = tempfile::tempdir().unwrap();
    for store in stores(dir.path()) {
        let term = block_on(store.put_if("leader", "a".into(), None)).unwrap();
        let log = EpochLog::new(store.clone(), "epochs/", vec![Condition::Version("leader".into(), term)]);
        block_on(log.append(1, b"x")).unwrap();
        block_on(log.append(1, b"x")).unwrap();
        assert!(matches!(block_on(log.append(1, b"y")), Err(MetaError::Conflict(k)) if k.starts_with("epochs/")));
        assert!(matches!(block_on(log.append(2, &vec![0; RECORD_MAX + 1])), Err(MetaError::Invalid(_))));
        block_on(log.append(2, &vec![7; RECORD_MAX])).unwrap();
        block_on(store.put_if("leader", "b".into(), Some(term))).unwrap();
        for r in [block_on(log.append(3, b"x")), block_on(log.truncate(9))] {
            assert_eq!(r, Err(MetaError::Conflict("leader".into())));
        }
        assert_eq!(all(&log, 0).len(), 2);
    }
}

#[test]
fn a_record_is_never_acknowledged_and_gone_nor_there_twice() {
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut faults = SmallRng::seed_from_u64(seed + 1000);
        let store = Memory::with_faults(Arc::new(HandClock::default()), Arc::new(BlockingSleep), move |_| match faults
            .random_range(0..6)
        {
            0 => Fault::Fail,
            1 => Fault::LoseAnswer,
            2 => Fault::Delay(Duration::ZERO),
            _ => Fault::None,
        });
        let log = EpochLog::new(Arc::new(store), "e/", vec![]);
        let read = |from| loop {
            match block_on(log.read(from)) {
                Ok(r) => return r,
                Err(e) => assert!(matches!(e, MetaError::Unavailable(_)), "never less than there is: {e}"),
            }
        };
        let mut below = 0;
        for epoch in 1..60u64 {
            while block_on(log.append(epoch, &epoch.to_le_bytes())).is_err() {}
            if rng.random_bool(0.1) {
                below = rng.random_range(below..=epoch);
                while block_on(log.truncate(below)).is_err() {}
            }
            let there: Vec<Epoch> = read(0).iter().map(|r| r.0).collect();
            assert_eq!(there, (below.max(1)..=epoch).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_damaged_record_is_told_whatever_byte_it_is() {
    let store: Arc<dyn MetaStore> = Arc::new(Memory::new(Arc::new(SystemClock::new())));
    let log = EpochLog::new(store.clone(), "e/", vec![]);
    block_on(log.append(5, b"record")).unwrap();
    let key = log.key(5);
    let good = block_on(store.get(&key)).unwrap().unwrap().value.to_vec();
    let set = |v: Vec<u8>| block_on(store.commit(&[], &[Op::put(key.clone(), v)])).unwrap();
    for i in 0..good.len() {
        for flip in [1, 0x80] {
            let mut bad = good.clone();
            bad[i] ^= flip;
            set(bad);
            assert!(matches!(block_on(log.read(0)), Err(MetaError::Corrupt(_))), "{i}");
        }
        set(good[..i].to_vec());
        assert!(matches!(block_on(log.read(0)), Err(MetaError::Corrupt(_))));
    }
    // A record in another's place.
    block_on(store.commit(&[], &[Op::delete(key), Op::put(log.key(6), good)])).unwrap();
    assert!(matches!(block_on(log.read(0)), Err(MetaError::Corrupt(_))));
    let newer = seal_as(2, 6, b"?");
    block_on(store.commit(&[], &[Op::put(log.key(6), newer)])).unwrap();
    assert_eq!(block_on(log.read(0)), Err(MetaError::Newer { found: 2, known: 1 }));
}
