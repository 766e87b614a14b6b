//! `GroupTable` against a map, with snapshots, removal and compaction.
#![allow(clippy::unwrap_used)]

use super::*;
use arrow::array::{StringArray, TimestampMicrosecondArray};
use rand::{Rng, SeedableRng, rngs::SmallRng};

fn int_table() -> GroupTable {
    let key = Arc::new(Schema::new(vec![Field::new("k", DataType::Int32, true)]));
    GroupTable::new(key, vec![0], vec![ColumnKind::I64, ColumnKind::Bytes, ColumnKind::Time]).unwrap()
}

fn wide_table() -> GroupTable {
    let ts = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    let key = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, true), Field::new("t", ts, true)]));
    GroupTable::new(key, vec![1], vec![ColumnKind::I64, ColumnKind::Bytes, ColumnKind::Time]).unwrap()
}

fn keys(wide: bool, k: &[Option<i32>]) -> Vec<ArrayRef> {
    if wide {
        let s: StringArray = k.iter().map(|v| v.map(|v| format!("key {}", v / 3))).collect();
        let t: TimestampMicrosecondArray = k.iter().map(|v| v.map(|v| i64::from(v % 3))).collect();
        vec![Arc::new(s), Arc::new(t)]
    } else {
        vec![Arc::new(k.iter().copied().collect::<arrow::array::Int32Array>())]
    }
}

type Row = (i64, Option<Vec<u8>>);

fn contents(t: &GroupTable) -> Vec<(Vec<String>, Row)> {
    let slots = t.live_slots();
    let arrays = t.keys_at(&slots).unwrap();
    let text = |row: usize| {
        arrays.iter().map(|a| arrow::util::display::array_value_to_string(a, row).unwrap()).collect::<Vec<_>>()
    };
    let (Column::I64(n), Column::Bytes(b)) = (&t.columns()[0], &t.columns()[1]) else { panic!() };
    let row = |(i, &s): (usize, &u32)| (text(i), (*n.get(s), b.get(s).as_ref().map(|b| b.to_vec())));
    slots.iter().enumerate().map(row).collect()
}

#[test]
fn follows_the_model() {
    for (seed, wide) in [(1, false), (2, true), (3, false)] {
        let make = || if wide { wide_table() } else { int_table() };
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut t = make();
        // In order of insertion.
        let mut model: Vec<(Option<i32>, Row)> = vec![];
        let mut chain: Vec<TableSegment> = vec![];
        for step in 0..40 {
            let n = rng.random_range(0..300);
            let batch: Vec<Option<i32>> =
                (0..n).map(|_| rng.random_bool(0.95).then(|| rng.random_range(0..4000))).collect();
            let mut slots = vec![];
            t.find_or_insert(&keys(wide, &batch), n, &mut slots).unwrap();
            for (k, &slot) in batch.iter().zip(&slots) {
                let at = model.iter().position(|m| m.0 == *k).unwrap_or_else(|| {
                    model.push((*k, (0, None)));
                    model.len() - 1
                });
                model[at].1.0 += 1;
                model[at].1.1 = Some(vec![step as u8]);
                let (a, rest) = t.columns_mut().split_first_mut().unwrap();
                let (Column::I64(a), Column::Bytes(b)) = (a, &mut rest[0]) else { panic!() };
                *a.get_mut(slot) += 1;
                *b.get_mut(slot) = Some([step as u8].into());
                t.set_time(2, slot, k.map_or(i64::MAX, |k| i64::from(k % 1000)));
            }
            if step % 3 == 2 {
                let bound = rng.random_range(0..700);
                let closed = t.take_below(2, bound);
                let before = model.len();
                model.retain(|m| m.0.is_none_or(|k| i64::from(k % 1000) >= bound));
                assert_eq!(closed.len(), before - model.len());
                t.remove(&closed).unwrap();
                t.maintain().unwrap();
            }
            let want: Vec<_> = model
                .iter()
                .map(|(k, r)| {
                    let arrays = keys(wide, &[*k]);
                    let text =
                        arrays.iter().map(|a| arrow::util::display::array_value_to_string(a, 0).unwrap()).collect();
                    (text, r.clone())
                })
                .collect::<Vec<(Vec<String>, Row)>>();
            assert_eq!(contents(&t), want);
            if step % 4 == 1 {
                let frozen = t.freeze().segment().unwrap();
                chain.push(t.snapshot(step % 16 == 1).unwrap());
                let mut r = make();
                r.restore(&chain.iter().collect::<Vec<_>>()).unwrap();
                assert_eq!(contents(&r), want);
                assert_eq!(r.freeze().segment().unwrap(), frozen);
                if seed == 3 {
                    t = r;
                }
            }
        }
    }
}

#[test]
fn one_row_without_key_columns() {
    let mut t = GroupTable::new(Arc::new(Schema::empty()), vec![], vec![]).unwrap();
    let mut slots = vec![];
    t.find_or_insert(&[], 3, &mut slots).unwrap();
    assert_eq!((slots, t.len()), (vec![0, 0, 0], 1));
    let s = t.snapshot(true).unwrap();
    let mut r = GroupTable::new(Arc::new(Schema::empty()), vec![], vec![]).unwrap();
    r.restore(&[&s]).unwrap();
    assert_eq!(r.len(), 1);
}

#[test]
fn a_count_by_bigint_is_small() {
    let key = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
    let mut t = GroupTable::new(key, vec![0], vec![ColumnKind::I64]).unwrap();
    let n = 50_000;
    let a: ArrayRef = Arc::new(Int64Array::from_iter_values(0..n));
    t.find_or_insert(&[a], n as usize, &mut vec![]).unwrap();
    assert!(t.memory_size() < n as usize * 60, "{} bytes per key", t.memory_size() / n as usize);
}
