//! A merged chain is what restoring the chain gives, held in little memory.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use bytes::Bytes;
use futures::executor::block_on;
use object_store::memory::InMemory;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::checkpoint::manifest::tests::part;
use crate::checkpoint::objects::tests::over;

type State = BTreeMap<u64, (u8, i64, i64)>;

/// A segment that gives these states (weight 0: gone) in a random order, as tables do.
fn segment(full: bool, mut states: Vec<(u64, (u8, i64, i64))>, rng: &mut SmallRng) -> TableSegment {
    for i in (1..states.len()).rev() {
        states.swap(i, rng.random_range(0..=i));
    }
    let value = |s: &(u64, (u8, i64, i64))| (s.1.1 != 0).then_some(s.1.2);
    let ints: ArrayRef = Arc::new(states.iter().map(value).collect::<Int64Array>());
    let texts: ArrayRef =
        Arc::new(states.iter().map(|s| value(s).map(|v| format!("text {v}"))).collect::<StringArray>());
    TableSegment {
        full,
        ids: states.iter().map(|s| s.0).collect(),
        vnodes: states.iter().map(|s| s.1.0).collect(),
        weights: states.iter().map(|s| s.1.1).collect(),
        rows: RecordBatch::try_from_iter_with_nullable([("a", ints, true), ("b", texts, true)]).unwrap(),
    }
}

/// A table that changes at random, and the segments of its snapshots.
fn chain(rng: &mut SmallRng) -> (Vec<TableSegment>, State) {
    let mut state = State::new();
    let mut next = rng.random_range(0..5);
    let mut out = Vec::new();
    for n in 0..rng.random_range(1..7) {
        let mut dirty = BTreeMap::new();
        for _ in 0..rng.random_range(0..60) {
            let old = state.keys().nth(rng.random_range(0..state.len().max(1))).copied();
            let id = match old {
                Some(id) if rng.random_bool(0.5) => id,
                _ => {
                    next += rng.random_range(1..4);
                    next
                }
            };
            let weight = rng.random_range(0..4i64) - i64::from(rng.random_bool(0.1));
            let row = (rng.random(), weight, rng.random_range(0..1000));
            dirty.insert(id, row);
            if weight == 0 {
                state.remove(&id)
            } else {
                state.insert(id, row)
            };
        }
        let full = n == 0 || rng.random_bool(0.1);
        let states = if full { state.iter().map(|(k, v)| (*k, *v)).collect() } else { dirty.into_iter().collect() };
        out.push(segment(full, states, rng));
    }
    (out, state)
}

fn state_of(s: &TableSegment) -> State {
    use arrow::array::AsArray;
    let ints = s.rows.column(0).as_primitive::<arrow::datatypes::Int64Type>();
    let texts = s.rows.column(1).as_string::<i32>();
    let row = |i: usize| {
        assert_eq!(texts.value(i), format!("text {}", ints.value(i)));
        (s.ids[i], (s.vnodes[i], s.weights[i], ints.value(i)))
    };
    (0..s.ids.len()).map(row).collect()
}

fn task() -> TaskId {
    TaskId { job: 1, fragment: 0, index: 0 }
}

/// Puts a chain of snapshots of two operators, the second with two tables.
fn put(o: &SnapshotObjects, chains: &[Vec<TableSegment>; 3], layout: Layout) -> Vec<Arc<SnapshotEntry>> {
    let put = |epoch: u64, table: u32, s: &TableSegment| {
        let name = PartName { op: table / 2, table: table % 2, ..part(task(), 1, epoch, 0, false) };
        block_on(put_segment(o, name, s, layout)).unwrap()
    };
    let mut out: Vec<Arc<SnapshotEntry>> = Vec::new();
    for (n, first) in chains[0].iter().enumerate() {
        let epoch = n as u64 + 1;
        let of = |t: u32| put(epoch, t, &chains[t as usize][n]);
        let since = (n > 0 && !first.full).then_some(epoch - 1);
        let tables = vec![vec![of(0)], vec![of(1), of(2)]];
        let leaves = vec![Bytes::from(vec![n as u8])];
        out.push(Arc::new(SnapshotEntry { epoch, since, generation: 1, tables, leaves }));
    }
    out
}

#[test]
fn a_merged_chain_is_what_restoring_it_gives() {
    let mut rng = SmallRng::seed_from_u64(11);
    let mut merged = 0;
    for round in 0..150 {
        let mut make = |len: Option<(usize, Vec<bool>)>| loop {
            let (c, state) = chain(&mut rng);
            let fulls: Vec<bool> = c.iter().map(|s| s.full).collect();
            if len.as_ref().is_none_or(|(l, f)| *l == c.len() && *f == fulls) {
                return (c, state, fulls);
            }
        };
        let (a, state_a, fulls) = make(None);
        let same = Some((a.len(), fulls));
        let (b, state_b, _) = make(same.clone());
        let (c, state_c, _) = make(same);
        let layout = match round % 3 {
            0 => Layout { batch_rows: 1, part_bytes: 1, compression: None, ..Layout::default() },
            1 => Layout { batch_rows: 7, batch_bytes: 200, part_bytes: 3000, ..Layout::default() },
            _ => Layout::default(),
        };
        let o = over(Arc::new(InMemory::new()));
        let chain = put(&o, &[a, b, c], layout);
        let whole = block_on(compact(&o, 1, task(), 2, &chain, layout)).unwrap();
        assert_eq!((whole.epoch, whole.since, whole.generation), (chain.len() as u64, None, 2));
        assert_eq!(whole.leaves, chain[chain.len() - 1].leaves);
        for (op, table, state) in [(0, 0, &state_a), (1, 0, &state_b), (1, 1, &state_c)] {
            let s = block_on(get_segment(&o, &whole.tables[op][table])).unwrap().unwrap();
            assert!(s.full && s.ids.is_sorted());
            assert_eq!(state_of(&s), *state);
            merged += s.ids.len();
        }
        // Doing it again writes the same bytes, which is no conflict.
        assert_eq!(block_on(compact(&o, 1, task(), 2, &chain, layout)).unwrap(), whole);
    }
    assert!(merged > 10_000, "{merged}");
}

#[test]
fn memory_does_not_grow_with_the_chain() {
    // Of 200 batches each only the last row stays: what was picked must not pin them all.
    let rows = |n: u64| {
        let ids: Vec<u64> = (n * 100..n * 100 + 100).collect();
        let a: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.iter().map(|i| *i as i64)));
        let weights = ids.iter().map(|i| i64::from(i % 100 == 99)).collect();
        Rows { vnodes: vec![0; 100], weights, rows: RecordBatch::try_from_iter([("a", a)]).unwrap(), ids }
    };
    let mut m = Merger::new(1, Layout { batch_rows: 1000, ..Layout::default() });
    let (mut fed, mut got, mut most) = (0, 0, 0);
    loop {
        while let Some(i) = m.wants() {
            m.feed(i, (fed < 200).then(|| rows(fed)));
            fed += 1;
            most = most.max(m.held.len());
            match m.next_rows().unwrap() {
                Some(r) => got += r.ids.len(),
                None if m.wants().is_none() => {
                    assert_eq!((got, fed), (200, 201));
                    assert!(most <= 6, "{most}");
                    return;
                }
                None => {}
            }
        }
    }
}

#[test]
fn chains_that_do_not_fit_are_refused() {
    let o = over(Arc::new(InMemory::new()));
    let mut rng = SmallRng::seed_from_u64(1);
    let mut one = |full| segment(full, vec![(1, (0, 1, 1))], &mut rng);
    let chains = [vec![one(true), one(false)], vec![one(true), one(false)], vec![one(true), one(false)]];
    let chain = put(&o, &chains, Layout::default());
    let compacted = |c: &[Arc<SnapshotEntry>]| block_on(compact(&o, 1, task(), 2, c, Layout::default()));
    assert!(compacted(&chain[1..]).is_err());
    let mut fewer = SnapshotEntry::clone(&chain[1]);
    fewer.tables[1].pop();
    fewer.tables[0].push(vec![]);
    assert!(compacted(&[chain[0].clone(), fewer.into()]).is_err());
    // Another layout of rows.
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let mut other = one(false);
    other.rows = RecordBatch::try_from_iter([("z", text)]).unwrap();
    let name = part(task(), 3, 2, 0, false);
    let mut changed = SnapshotEntry::clone(&chain[1]);
    changed.tables[0][0] = block_on(put_segment(&o, name, &other, Layout::default())).unwrap();
    assert!(matches!(compacted(&[chain[0].clone(), changed.into()]), Err(StoreError::Corrupt { .. })));
    // A part is gone.
    block_on(o.delete(chain[1].objects().map(|o| o.name))).unwrap();
    assert!(matches!(compacted(&chain), Err(StoreError::NotFound { .. })));
}
