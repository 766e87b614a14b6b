//! Upsert against a map from keys to rows.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use arrow::array::{Int16Array, Int32Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::operator::testing::{Run, apply};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Int32, true), Field::new("v", DataType::Utf8, true)]))
}

type Record = (i32, Option<String>, i16);

fn records(all: &[Record], with_change: bool) -> Delta {
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(all.iter().map(|r| r.0).collect::<Int32Array>()),
        Arc::new(all.iter().map(|r| r.1.clone()).collect::<StringArray>()),
    ];
    let mut fields = schema().fields().to_vec();
    if with_change {
        columns.push(Arc::new(all.iter().map(|r| r.2).collect::<Int16Array>()));
        fields.push(Arc::new(Field::new("change", DataType::Int16, false)));
    }
    Delta::insert(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap())
}

fn run(keep_first: bool, with_change: bool) -> Run {
    let spec = UpsertSpec { key: vec![0], keep_first, with_change };
    Run::new(move || Box::new(Upsert::new(spec.clone(), schema()).unwrap()))
}

fn text(k: i32, v: &Option<String>) -> String {
    format!("{k}|{}", v.as_deref().unwrap_or("NULL"))
}

#[test]
fn the_last_record_of_a_key_counts() {
    let mut run = run(false, true);
    let record = |k, v: &str, c| (k, Some(v.to_string()), c);
    let first = vec![record(1, "a", 1), record(2, "b", 1), record(1, "c", 1), record(3, "d", 1), record(3, "", -1)];
    let out = run.epoch(vec![records(&first, true)], 0);
    assert_eq!(out, [("1|c".to_string(), 1), ("2|b".to_string(), 1)]);
    // Unchanged, taken away and set again, taken away, never there.
    let next = vec![
        record(1, "c", 1),
        record(2, "", -1),
        record(2, "e", 1),
        record(1, "", -1),
        record(1, "c", 1),
        (9, None, -1),
    ];
    let out = run.epoch(vec![records(&next, true)], 0);
    assert_eq!(out, [("2|b".to_string(), -1), ("2|e".to_string(), 1)]);
    let out = run.epoch(vec![records(&[record(1, "", -1), record(2, "", -1)], true)], 0);
    assert_eq!(out, [("1|c".to_string(), -1), ("2|e".to_string(), -1)]);
    assert!(run.tables.bag(0).unwrap().is_empty());
}

#[test]
fn the_first_record_of_a_key_counts() {
    let mut run = run(true, false);
    let one = |k, v: &str| (k, Some(v.to_string()), 1);
    assert_eq!(run.epoch(vec![records(&[one(1, "a"), one(1, "b")], false)], 0), [("1|a".to_string(), 1)]);
    assert_eq!(run.epoch(vec![records(&[one(1, "c"), one(2, "d")], false)], 0), [("2|d".to_string(), 1)]);
}

#[test]
fn random_records_cut_anyhow_over_restores() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (keep_first, with_change) = [(false, true), (false, false), (true, false)][seed as usize % 3];
        let mut one = run(keep_first, with_change);
        let mut other = run(keep_first, with_change);
        let mut model: BTreeMap<i32, Option<String>> = BTreeMap::new();
        let mut view = BTreeMap::new();
        for _ in 0..12 {
            let all: Vec<Record> = (0..rng.random_range(0..20))
                .map(|_| {
                    let v = rng.random_bool(0.8).then(|| format!("v{}", rng.random_range(0..3)));
                    (rng.random_range(0..8), v, if with_change && rng.random_bool(0.3) { -1 } else { 1 })
                })
                .collect();
            for (k, v, change) in &all {
                match *change {
                    1 if keep_first => {
                        model.entry(*k).or_insert_with(|| v.clone());
                    }
                    1 => {
                        model.insert(*k, v.clone());
                    }
                    _ => {
                        model.remove(k);
                    }
                }
            }
            let out = one.epoch(vec![records(&all, with_change)], 0);
            let at = rng.random_range(0..=all.len());
            let cut = vec![records(&all[..at], with_change), records(&all[at..], with_change)];
            assert_eq!(other.epoch(cut, 0), out, "seed {seed}: the cut shows");
            apply(&mut view, &out);
            let expected: BTreeMap<String, i64> = model.iter().map(|(k, v)| (text(*k, v), 1)).collect();
            assert_eq!(view, expected, "seed {seed}");
            if rng.random_bool(0.3) {
                one.reincarnate(rng.random_bool(0.3));
            }
        }
    }
}
