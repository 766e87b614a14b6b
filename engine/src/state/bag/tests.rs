//! Bag tables against a plain list of rows.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::state::TableSegment;

type Row = (Option<i64>, Option<String>);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("s", DataType::Utf8, true)]))
}

fn delta(rows: &[(Row, i64)]) -> Delta {
    let k: ArrayRef = Arc::new(rows.iter().map(|r| r.0.0).collect::<Int64Array>());
    let s: ArrayRef = Arc::new(rows.iter().map(|r| r.0.1.as_deref()).collect::<StringArray>());
    let w = Int64Array::from_iter_values(rows.iter().map(|r| r.1));
    Delta::new(RecordBatch::try_new(schema(), vec![k, s]).unwrap(), Some(w)).unwrap()
}

fn read(rows: &RecordBatch, i: usize) -> Row {
    let (k, s) = (rows.column(0).as_primitive::<Int64Type>(), rows.column(1).as_string::<i32>());
    (k.is_valid(i).then(|| k.value(i)), s.is_valid(i).then(|| s.value(i).to_owned()))
}

fn listed(frozen: &crate::state::FrozenBag) -> Vec<(Row, i64)> {
    let mut all = Vec::new();
    for b in frozen.batches() {
        let (rows, weights) = b.unwrap();
        all.extend((0..rows.num_rows()).map(|i| (read(&rows, i), weights.value(i))));
    }
    assert_eq!(all.len(), frozen.num_rows());
    assert_eq!(all.iter().map(|r| r.1).sum::<i64>(), frozen.total_weight());
    all
}

fn list(t: &BagTable) -> Vec<(Row, i64)> {
    listed(&t.freeze())
}

/// The list that a table should be: merged rows in insertion order.
#[derive(Default, Clone)]
struct Model(Vec<(Row, i64)>);

impl Model {
    fn merge(&mut self, row: &Row, w: i64) -> (i64, i64) {
        match self.0.iter().position(|r| r.0 == *row) {
            Some(p) => {
                let old = self.0[p].1;
                self.0[p].1 += w;
                if old + w == 0 {
                    self.0.remove(p);
                }
                (old, old + w)
            }
            None => {
                self.0.push((row.clone(), w));
                (0, w)
            }
        }
    }
}

fn random_row(rng: &mut SmallRng, keys: i64, values: i64) -> Row {
    let k = rng.random_range(0..keys);
    let s = rng.random_range(0..values);
    ((k != 0).then_some(k), (s != 0).then(|| format!("value {s}")))
}

/// All matches, asked for `limit` at a time.
fn probe(t: &BagTable, d: &Delta, null_equal: bool, limit: usize) -> Vec<(u32, (Row, i64))> {
    let keys = ProbeKeys::new(d.rows(), t.key(), null_equal).unwrap();
    let mut cursor = ProbeCursor::default();
    let mut all = Vec::new();
    while cursor.row() < d.num_rows() {
        let m = t.probe(&keys, &mut cursor, limit).unwrap();
        let rows = RecordBatch::try_new(schema(), t.gather(&m.slots, &[0, 1]).unwrap()).unwrap();
        let weights = t.weights(&m.slots);
        all.extend((0..m.slots.len()).map(|i| (m.probe[i], (read(&rows, i), weights[i]))));
    }
    all
}

fn same_key(key: &[usize], a: &Row, b: &Row, null_equal: bool) -> bool {
    key.iter().all(|c| match c {
        0 => a.0 == b.0 && (null_equal || a.0.is_some()),
        _ => a.1 == b.1 && (null_equal || a.1.is_some()),
    })
}

#[test]
fn merge_probe_find_snapshot_against_a_list() {
    for key in [vec![0], vec![0, 1], vec![1], vec![]] {
        let mut rng = SmallRng::seed_from_u64(7 + key.len() as u64);
        let mut table = BagTable::new(schema(), key.clone(), key.clone()).unwrap();
        let mut model = Model::default();
        let mut chain: Vec<TableSegment> = Vec::new();
        let mut frozen = Vec::new();
        for round in 0..60 {
            let rows: Vec<(Row, i64)> =
                (0..rng.random_range(0..40)).map(|_| (random_row(&mut rng, 6, 12), rng.random_range(-2..=2))).collect();
            let changes = table.merge(&delta(&rows), None, None).unwrap();
            for ((row, w), c) in rows.iter().zip(&changes) {
                let expect = if *w == 0 { (0, 0) } else { model.merge(row, *w) };
                assert_eq!((c.old, c.new), expect);
            }
            assert_eq!(list(&table), model.0);
            frozen.push((table.freeze(), model.clone()));

            let asked: Vec<(Row, i64)> = (0..10).map(|_| (random_row(&mut rng, 6, 12), 1)).collect();
            let d = delta(&asked);
            for null_equal in [false, true] {
                let expect: Vec<(u32, (Row, i64))> = asked
                    .iter()
                    .enumerate()
                    .flat_map(|(i, a)| {
                        let m = model.0.iter().filter(|r| same_key(&key, &a.0, &r.0, null_equal));
                        m.map(move |r| (i as u32, r.clone()))
                    })
                    .collect();
                assert_eq!(probe(&table, &d, null_equal, 8192), expect);
                assert_eq!(probe(&table, &d, null_equal, 3), expect);
            }
            let found = table.find(d.rows().columns(), d.num_rows()).unwrap();
            for (a, f) in asked.iter().zip(found) {
                let expect = model.0.iter().find(|r| r.0 == a.0).map_or(0, |r| r.1);
                assert_eq!(f.map_or(0, |s| table.weight(s)), expect);
            }
            let slot = table.live_slots().nth(round % 5);
            if let Some(slot) = slot {
                table.add_aux(slot, round as i64);
            }
            table.maintain().unwrap();
            if round % 7 == 3 {
                chain.push(table.snapshot(round % 21 == 3).unwrap());
            }
            if round % 7 == 4 {
                let mut other = BagTable::new(schema(), key.clone(), key.clone()).unwrap();
                other.restore(&chain.iter().collect::<Vec<_>>()).unwrap();
                // The chain is one round old; catch up by taking this round's changes again.
                let last = &frozen[frozen.len() - 2].1;
                assert_eq!(list(&other), last.0);
                other.merge(&delta(&rows), None, None).unwrap();
                assert_eq!(list(&other), model.0);
                let (a, b) = (other.snapshot(true).unwrap(), table.snapshot(true).unwrap());
                assert_eq!((&a.weights, &a.vnodes, &a.ids.is_sorted()), (&b.weights, &b.vnodes, &true));
                // Aux of this round is not in the chain; take the other's place from here on.
                chain = vec![b];
            }
        }
        for (f, m) in frozen {
            assert_eq!(listed(&f), m.0, "frozen pictures do not change");
        }
    }
}

#[test]
fn aux_survives_a_chain() {
    let mut t = BagTable::new(schema(), vec![0], vec![0]).unwrap();
    let rows: Vec<(Row, i64)> = (0..10).map(|i| ((Some(i), None), 1)).collect();
    t.merge(&delta(&rows), None, Some(&[5; 10])).unwrap();
    let base = t.snapshot(true).unwrap();
    let slots: Vec<Slot> = t.live_slots().collect();
    t.add_aux(slots[3], 2);
    t.merge(&delta(&[((Some(4), None), -1), ((Some(11), None), 1), ((Some(12), None), 1)]), None, None).unwrap();
    t.merge(&delta(&[((Some(12), None), -1)]), None, None).unwrap();
    let next = t.snapshot(false).unwrap();
    // Row 4 is gone, row 3 has a new number, row 11 is new; row 12 never was.
    assert_eq!(next.ids, vec![4, 3, 10]);
    assert_eq!(next.weights, vec![0, 1, 1]);
    let mut r = BagTable::new(schema(), vec![0], vec![0]).unwrap();
    r.restore(&[&base, &next]).unwrap();
    assert_eq!(list(&r), list(&t));
    let aux: Vec<i64> = r.live_slots().map(|s| r.aux(s)).collect();
    assert_eq!(aux, vec![5, 5, 5, 7, 5, 5, 5, 5, 5, 0]);
    assert_eq!(aux, t.live_slots().map(|s| t.aux(s)).collect::<Vec<_>>());
    assert!(r.snapshot(false).unwrap().ids.is_empty());
}

#[test]
fn many_rows_compaction_and_freeing() {
    let mut rng = SmallRng::seed_from_u64(3);
    let mut t = BagTable::new(schema(), vec![0], vec![0]).unwrap();
    let all: Vec<(Row, i64)> = (0..20_000).map(|i| ((Some(i % 500), Some(format!("{i}"))), 1)).collect();
    for part in all.chunks(777) {
        t.merge(&delta(part), None, None).unwrap();
    }
    let base = t.snapshot(true).unwrap();
    let before = t.freeze();
    let (mut dead, mut left) = (Vec::new(), Vec::new());
    for r in &all[..16_000] {
        if rng.random_range(0..10) < 8 { dead.push((r.0.clone(), -1)) } else { left.push(r.clone()) }
    }
    left.extend_from_slice(&all[16_000..]);
    t.merge(&delta(&dead), None, None).unwrap();
    let size = t.memory_size();
    t.maintain().unwrap();
    assert!(t.memory_size() < size);
    assert!(t.slots == t.live && t.live == left.len());
    assert_eq!(list(&t), left);
    assert_eq!(listed(&before), all);
    let asked = delta(&[((Some(17), None), 1)]);
    let hits: Vec<_> = probe(&t, &asked, false, 5).into_iter().map(|m| m.1).collect();
    assert_eq!(hits, left.iter().filter(|r| r.0.0 == Some(17)).cloned().collect::<Vec<_>>());
    // The changes survive the compaction.
    let next = t.snapshot(false).unwrap();
    assert_eq!(next.ids.len(), dead.len());
    let mut r = BagTable::new(schema(), vec![0], vec![0]).unwrap();
    r.restore(&[&base, &next]).unwrap();
    assert_eq!(list(&r), left);
    // Whole chunks of dead rows are freed without moving the rest.
    let mut t = BagTable::new(schema(), vec![0], vec![0]).unwrap();
    t.append(&delta(&all), None, None).unwrap();
    for slot in 0..(2 * crate::state::chunk::CHUNK_ROWS as u32) {
        t.set_weight(slot, 0);
    }
    t.maintain().unwrap();
    assert_eq!(t.slots, 20_000);
    assert_eq!(list(&t), all[8192..]);
    assert_eq!(probe(&t, &asked, false, 8192).len(), all[8192..].iter().filter(|r| r.0.0 == Some(17)).count());
    t.merge(&delta(&[(all[9000].0.clone(), -1)]), None, None).unwrap();
    assert_eq!(t.len(), 20_000 - 8192 - 1);
}

#[test]
fn appended_rows_stay_apart() {
    let mut t = BagTable::new(schema(), vec![0], vec![0]).unwrap();
    let row: Row = (Some(1), Some("x".into()));
    t.append(&delta(&[(row.clone(), 1), (row.clone(), 0), (row.clone(), 2)]), None, Some(&[1, 2, 3])).unwrap();
    assert_eq!(list(&t), vec![(row.clone(), 1), (row.clone(), 2)]);
    assert_eq!(t.live_slots().map(|s| t.aux(s)).collect::<Vec<_>>(), vec![1, 3]);
    assert!(!t.is_unit());
}

#[test]
fn colliding_hashes_never_mix_rows() {
    let mut rng = SmallRng::seed_from_u64(11);
    for key in [vec![0, 1], vec![0]] {
        let mut t = BagTable::new(schema(), key.clone(), key.clone()).unwrap();
        let mut model = Model::default();
        for _ in 0..30 {
            let rows: Vec<(Row, i64)> =
                (0..20).map(|_| (random_row(&mut rng, 4, 4), if rng.random_bool(0.5) { 1 } else { -1 })).collect();
            t.merge(&delta(&rows), Some(&[42; 20]), None).unwrap();
            for (r, w) in &rows {
                model.merge(r, *w);
            }
            assert_eq!(list(&t), model.0);
            let d = delta(&rows);
            let mut keys = ProbeKeys::new(d.rows(), &key, true).unwrap();
            keys.hashes = vec![42; 20];
            let m = t.probe(&keys, &mut ProbeCursor::default(), usize::MAX).unwrap();
            let expect: usize =
                rows.iter().map(|a| model.0.iter().filter(|r| same_key(&key, &a.0, &r.0, true)).count()).sum();
            assert_eq!(m.slots.len(), expect);
        }
    }
}

#[test]
fn zeros_and_nans_are_one_row() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("f", DataType::Float64, true)]));
    let mut t = BagTable::new(schema.clone(), vec![0], vec![0]).unwrap();
    let f: ArrayRef = Arc::new(Float64Array::from(vec![0.0, f64::NAN, -0.0, -f64::NAN]));
    let changes = t.merge(&Delta::insert(RecordBatch::try_new(schema, vec![f]).unwrap()), None, None).unwrap();
    assert_eq!(changes.iter().map(|c| c.new).collect::<Vec<_>>(), vec![1, 1, 2, 2]);
}

#[test]
fn delete_below_skips_what_is_new_enough() {
    let ts = DataType::Timestamp(TimeUnit::Microsecond, None);
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("t", ts, true)]));
    let mut t = BagTable::new(schema.clone(), vec![], vec![]).unwrap();
    let values: Vec<Option<i64>> = (0..10_000).map(|i| (i % 100 != 0).then_some(i)).collect();
    let c: ArrayRef = Arc::new(TimestampMicrosecondArray::from(values));
    t.append(&Delta::insert(RecordBatch::try_new(schema.clone(), vec![c]).unwrap()), None, None).unwrap();
    assert_eq!(t.delete_below(0, 5000).unwrap(), 4950);
    assert_eq!(t.delete_below(0, 5000).unwrap(), 0);
    t.maintain().unwrap();
    assert_eq!(t.delete_below(0, 6000).unwrap(), 990);
    let late: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![3]));
    t.append(&Delta::insert(RecordBatch::try_new(schema, vec![late]).unwrap()), None, None).unwrap();
    assert_eq!(t.delete_below(0, 6000).unwrap(), 1);
    assert_eq!(t.len(), 10_000 - 5940);
    assert!(t.delete_below(1, 0).is_err());
}

#[test]
fn tables_without_columns() {
    let schema: SchemaRef = Arc::new(Schema::empty());
    let rows = super::super::frozen::record_batch(&schema, vec![], 3).unwrap();
    let mut t = BagTable::new(schema, vec![], vec![]).unwrap();
    t.merge(&Delta::insert(rows), None, None).unwrap();
    assert_eq!((t.len(), t.total_weight()), (1, 3));
    let s = t.snapshot(true).unwrap();
    t.restore(&[&s]).unwrap();
    assert_eq!(t.freeze().batches().next().unwrap().unwrap().1.values(), &[3]);
}

#[test]
fn stored_rows_do_not_pin_batches() {
    let big = delta(&(0..1000).map(|i| ((Some(i), Some("y".repeat(1000))), 1)).collect::<Vec<_>>());
    let mut t = BagTable::new(schema(), vec![0], vec![0]).unwrap();
    t.merge(&big.slice(3, 1), None, None).unwrap();
    t.append(&big.slice(4, 1), None, None).unwrap();
    assert!(t.memory_size() < 20_000, "{}", t.memory_size());
}
