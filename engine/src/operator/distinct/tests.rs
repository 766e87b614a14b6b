//! DISTINCT against sets.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::operator::join::tests::info;

fn delta(rows: &[(i64, i64)]) -> Delta {
    let a: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0)));
    let w = Int64Array::from_iter_values(rows.iter().map(|r| r.1));
    Delta::new(RecordBatch::try_from_iter([("a", a)]).unwrap(), Some(w)).unwrap()
}

fn read(deltas: Vec<Delta>) -> Vec<(i64, i64)> {
    let one = |d: &Delta| {
        let a = d.column(0).as_primitive::<Int64Type>().clone();
        (0..d.num_rows()).map(|i| (a.value(i), d.weight(i))).collect::<Vec<_>>()
    };
    deltas.iter().flat_map(one).collect()
}

fn epoch(op: &mut Distinct, tables: &mut Tables, parts: &[&[(i64, i64)]]) -> Vec<(i64, i64)> {
    let mut out = Output::default();
    for p in parts {
        op.push(0, delta(p), tables, &mut out).unwrap();
    }
    op.barrier(&info(1), tables, &mut out).unwrap();
    read(out.take())
}

#[test]
fn follows_the_set_and_not_the_cuts() {
    let mut rng = SmallRng::seed_from_u64(5);
    let schema = delta(&[]).schema();
    let mut a = Distinct::new(schema.clone(), false).unwrap();
    let mut b = Distinct::new(schema, false).unwrap();
    let (mut ta, mut tb) = (Tables::new(&a.tables()).unwrap(), Tables::new(&b.tables()).unwrap());
    let mut bag: BTreeMap<i64, i64> = BTreeMap::new();
    let mut shown: BTreeMap<i64, i64> = BTreeMap::new();
    for _ in 0..100 {
        let mut rows: Vec<(i64, i64)> = Vec::new();
        for _ in 0..rng.random_range(0..12) {
            let v = rng.random_range(0..8);
            let have = bag.entry(v).or_default();
            let w = rng.random_range(-*have.min(&mut 2)..=2);
            *have += w;
            // A detour that nets to w, some of it below zero.
            let detour = rng.random_range(-3..=3);
            rows.insert(rng.random_range(0..=rows.len()), (v, w - detour));
            rows.insert(rng.random_range(0..=rows.len()), (v, detour));
        }
        let cut = rng.random_range(0..=rows.len());
        let (x, y) = rows.split_at(cut);
        let changed = epoch(&mut a, &mut ta, &[x, y]);
        let single: Vec<&[(i64, i64)]> = rows.chunks(1).collect();
        assert_eq!(changed, epoch(&mut b, &mut tb, &single));
        for (v, w) in changed {
            assert_eq!(w.abs(), 1);
            *shown.entry(v).or_default() += w;
        }
        shown.retain(|_, w| *w != 0);
        let expect: BTreeMap<i64, i64> = bag.iter().filter(|b| *b.1 > 0).map(|b| (*b.0, 1)).collect();
        assert_eq!(shown, expect);
    }
}

#[test]
fn append_only_input_is_answered_at_once() {
    let schema = delta(&[]).schema();
    let mut op = Distinct::new(schema, true).unwrap();
    let mut tables = Tables::new(&op.tables()).unwrap();
    let mut out = Output::default();
    op.push(0, delta(&[(2, 1), (1, 1), (2, 1)]), &mut tables, &mut out).unwrap();
    let now = out.take();
    assert!(now[0].weights().is_none());
    assert_eq!(read(now), vec![(2, 1), (1, 1)]);
    op.push(0, delta(&[(2, 1)]), &mut tables, &mut out).unwrap();
    assert!(out.is_empty());
}
