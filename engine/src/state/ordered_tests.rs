//! `OrderedTable` against a `BTreeMap`.
#![allow(clippy::unwrap_used)]

use super::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};

fn check(t: &OrderedTable, model: &BTreeMap<Vec<u8>, i64>) {
    assert_eq!(t.len(), model.len());
    let all: Vec<_> = t.scan_from(&[]).map(|(k, w)| (k.to_vec(), w)).collect();
    assert!(all.iter().cloned().eq(model.iter().map(|(k, w)| (k.clone(), *w))));
}

#[test]
fn follows_the_model_through_snapshots() {
    for seed in 0..6 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut t = OrderedTable::new();
        let mut model: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        let mut chain: Vec<TableSegment> = vec![];
        for step in 0..4000 {
            let len = rng.random_range(0..4);
            let top = if seed % 2 == 0 { 6 } else { 255 };
            let key: Vec<u8> =
                (0..len).map(|_| if rng.random_bool(0.1) { 255 } else { rng.random_range(0..=top) }).collect();
            match rng.random_range(0..100) {
                0 => {
                    let gone: Vec<_> = model.keys().filter(|k| k.starts_with(&key)).cloned().collect();
                    if gone.len() < 400 {
                        assert_eq!(t.delete_prefix(&key), gone.len());
                        model.retain(|k, _| !k.starts_with(&key));
                    }
                }
                1 => {
                    let first = model.iter().find(|(k, w)| k.starts_with(&key) && **w > 0).map(|(k, _)| k.as_slice());
                    let last = model.iter().rfind(|(k, w)| k.starts_with(&key) && **w > 0).map(|(k, _)| k.as_slice());
                    assert_eq!((t.first(&key), t.last(&key)), (first, last));
                    let scan: Vec<_> = t.scan_prefix(&key).map(|(k, w)| (k.to_vec(), w)).collect();
                    let want: Vec<_> =
                        model.iter().filter(|(k, _)| k.starts_with(&key)).map(|(k, w)| (k.clone(), *w)).collect();
                    assert_eq!(scan, want);
                }
                _ => {
                    let w = rng.random_range(-2..=3);
                    let old = model.get(&key).copied().unwrap_or(0);
                    assert_eq!(t.add(&key, w, len as u8), (old, old + w));
                    model.insert(key.clone(), old + w);
                    model.retain(|_, w| *w != 0);
                }
            }
            if step % 700 == 699 {
                let frozen = t.freeze();
                let before = frozen.segment().unwrap();
                t.add(b"zz", 1, 0);
                assert_eq!(frozen.segment().unwrap(), before);
                t.add(b"zz", -1, 0);
                chain.push(t.snapshot(step == 2099).unwrap());
                let mut r = OrderedTable::new();
                r.restore(&chain.iter().collect::<Vec<_>>()).unwrap();
                check(&r, &model);
                if seed == 3 {
                    t = r;
                }
            }
            if step % 100 == 0 {
                check(&t, &model);
            }
        }
        assert!(t.delete_range(&[], None) == model.len() && t.is_empty());
    }
}

#[test]
fn removals_leave_no_small_blocks() {
    let key = |i: u32| i.to_be_bytes();
    let mut t = OrderedTable::new();
    for i in 0..20_000 {
        t.add(&key(i), 1, 0);
    }
    let full = t.memory_size();
    for i in (0..20_000).filter(|i| i % 100 != 0) {
        t.add(&key(i), -1, 0);
    }
    assert_eq!(t.len(), 200);
    assert!(t.view.blocks.len() < 10 && t.memory_size() < full / 20, "{} of {full}", t.memory_size());
    assert!(t.scan_from(&[]).map(|(k, _)| k.to_vec()).eq((0..200).map(|i| key(i * 100).to_vec())));
}
