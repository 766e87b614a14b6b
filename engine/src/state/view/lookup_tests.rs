//! Reading by key and by index, at recent epochs, against reading all rows.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Int32Type, SchemaRef};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::env::MemoryStorage;
use crate::exchange::Spill;
use crate::types::{Barrier, Tick};

const INDEX: u64 = 7;

fn schema() -> SchemaRef {
    let field = |n: &str, t| Field::new(n, t, true);
    Arc::new(Schema::new(vec![field("k", DataType::Int32), field("a", DataType::Int32), field("b", DataType::Utf8)]))
}

type Row = (i32, Option<i32>, Option<String>);

fn batch(rows: &[Row]) -> RecordBatch {
    let k: Int32Array = rows.iter().map(|r| Some(r.0)).collect();
    let a: Int32Array = rows.iter().map(|r| r.1).collect();
    let b: StringArray = rows.iter().map(|r| r.2.clone()).collect();
    RecordBatch::try_new(schema(), vec![Arc::new(k), Arc::new(a), Arc::new(b)]).unwrap()
}

fn rows(batches: &[RecordBatch]) -> BTreeMap<Row, usize> {
    let mut out = BTreeMap::new();
    for batch in batches {
        let (k, a) = (batch.column(0).as_primitive::<Int32Type>(), batch.column(1).as_primitive::<Int32Type>());
        let b = batch.column(2).as_string::<i32>();
        for i in 0..batch.num_rows() {
            let row = (k.value(i), a.is_valid(i).then(|| a.value(i)), b.is_valid(i).then(|| b.value(i).to_string()));
            *out.entry(row).or_default() += 1;
        }
    }
    out
}

fn random_row(rng: &mut SmallRng, k: i32) -> Row {
    let a = rng.random_bool(0.9).then(|| rng.random_range(-3..6));
    (k, a, rng.random_bool(0.9).then(|| "xy".repeat(rng.random_range(0..25))))
}

fn barrier(epoch: u64) -> Barrier {
    let tick = Tick { incarnation: 1, term: 1, epoch, opened_us: 0, now_us: 0 };
    Barrier { tick, ranges: Arc::new([]), watermark: 0, complete: true }
}

type Inside = Box<dyn Fn(&Row) -> bool>;

/// A range of `a`, or of `b` under some values of `a`; and which rows it means.
fn wanted(rng: &mut SmallRng) -> (Wanted, Inside) {
    let values: Vec<i32> = (0..rng.random_range(1..4)).map(|_| rng.random_range(-3..7)).collect();
    let equal = vec![Arc::new(Int32Array::from(values.clone())) as ArrayRef];
    match rng.random_range(0..3) {
        0 => {
            let (low, high) = (rng.random_range(-4..7), rng.random_range(-4..7));
            let one = |v: i32| Some(Arc::new(Int32Array::from(vec![v])) as ArrayRef);
            let inside = move |r: &Row| r.1.is_some_and(|a| a >= low && a <= high);
            (Wanted { equal: vec![], lower: one(low), upper: one(high) }, Box::new(inside))
        }
        1 => (Wanted { equal, lower: None, upper: None }, Box::new(move |r| r.1.is_some_and(|a| values.contains(&a)))),
        _ => {
            let low = "xy".repeat(rng.random_range(0..20));
            let lower = Some(Arc::new(StringArray::from(vec![low.clone()])) as ArrayRef);
            let inside =
                move |r: &Row| r.1.is_some_and(|a| values.contains(&a)) && r.2.as_ref().is_some_and(|b| *b >= low);
            (Wanted { equal, lower, upper: None }, Box::new(inside))
        }
    }
}

#[test]
fn an_index_gives_the_rows_of_every_kept_epoch() {
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (append_only, keyed) = [(false, true), (false, false), (true, false)][seed as usize % 3];
        let spill = Spill::new(usize::MAX, Arc::new(MemoryStorage));
        let store = ViewStore::new(schema(), keyed.then(|| vec![0]), append_only, 2, 0, spill).unwrap();
        let mut live: Vec<Vec<Row>> = vec![vec![], vec![]];
        for epoch in 1..12u64 {
            if epoch == 3 {
                store.add_index(INDEX, &[1, 2]).unwrap();
            }
            for (p, live) in live.iter_mut().enumerate() {
                let (mut changed, mut weights) = (vec![], vec![]);
                for n in 0..rng.random_range(0..12) {
                    if !append_only && !live.is_empty() && rng.random_bool(0.4) {
                        changed.push(live.swap_remove(rng.random_range(0..live.len())));
                        weights.push(-1);
                    } else {
                        let k = (epoch * 1000) as i32 + n * 2 + p as i32;
                        let row = random_row(&mut rng, k);
                        live.push(row.clone());
                        changed.push(row);
                        weights.push(1);
                    }
                }
                let weights = (!append_only).then(|| Int64Array::from(weights));
                let delta = Delta::new(batch(&changed), weights).unwrap();
                store.apply(p, &barrier(epoch), vec![delta]).unwrap();
            }
            store.set_visible(epoch);
            for at in 3..=epoch {
                let all = rows(&store.rows_at(at).unwrap());
                let (ask, inside) = wanted(&mut rng);
                let found = rows(&store.indexed_at(at, INDEX, &ask).unwrap());
                let expected: BTreeMap<Row, usize> =
                    all.iter().filter(|(r, _)| inside(r)).map(|(r, n)| (r.clone(), *n)).collect();
                // It may give more, which is tested again; but nothing that is not there.
                let kept: BTreeMap<Row, usize> =
                    found.iter().filter(|(r, _)| inside(r)).map(|(r, n)| (r.clone(), *n)).collect();
                assert_eq!(kept, expected, "seed {seed}, epoch {at} at {epoch}");
                assert!(found.iter().all(|(r, n)| all.get(r) == Some(n)), "seed {seed}");
                if keyed {
                    let keys: Vec<i32> = all.keys().map(|r| r.0).filter(|_| rng.random_bool(0.2)).chain([-1]).collect();
                    let found = rows(&store.keyed_at(at, &[Arc::new(Int32Array::from(keys.clone()))]).unwrap());
                    let expected: BTreeMap<Row, usize> =
                        all.iter().filter(|(r, _)| keys.contains(&r.0)).map(|(r, n)| (r.clone(), *n)).collect();
                    assert_eq!(found, expected, "seed {seed}, epoch {at} at {epoch}");
                }
            }
        }
        // Other columns: the index follows; without its column it goes.
        let from = [Some(2), Some(1), Some(0)];
        let swapped = Arc::new(schema().project(&[2, 1, 0]).unwrap());
        let convert = |b: &RecordBatch| Ok(b.project(&[2, 1, 0])?);
        store.alter(swapped, keyed.then(|| vec![2]), &from, &convert).unwrap();
        let one = Wanted { equal: vec![Arc::new(Int32Array::from(vec![2]))], lower: None, upper: None };
        let found: usize = store.indexed_at(11, INDEX, &one).unwrap().iter().map(RecordBatch::num_rows).sum();
        let all = rows(&store.rows_at(11).unwrap().iter().map(|b| b.project(&[2, 1, 0]).unwrap()).collect::<Vec<_>>());
        assert_eq!(found, all.iter().filter(|(r, _)| r.1 == Some(2)).map(|(_, n)| n).sum::<usize>());
        let narrow = Arc::new(Schema::new(vec![Field::new("k", DataType::Int32, true)]));
        let convert = |b: &RecordBatch| Ok(b.project(&[2])?);
        store.alter(narrow, keyed.then(|| vec![0]), &[Some(2)], &convert).unwrap();
        assert_eq!(store.indexed_at(11, INDEX, &one).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
