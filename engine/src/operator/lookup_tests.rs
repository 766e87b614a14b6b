//! Looking up: what a row meets is what was there at the barrier before it.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::operator::join::tests::{Step, delta, filter, info, schema};
use crate::operator::testing::texts;
use arrow::datatypes::{Field, Schema};
use std::sync::Arc;

fn lookup(outer: bool, with_filter: bool) -> Lookup {
    let fields = [schema(["k", "j", "v"]), schema(["k2", "j2", "w"])];
    let fields = fields.iter().flat_map(|s| s.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)));
    let output = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
    let filter = with_filter.then(filter);
    let spec = LookupSpec { left_keys: vec![0], right_keys: vec![0], filter, outer };
    Lookup::new(spec, schema(["k", "j", "v"]), schema(["k2", "j2", "w"]), output).unwrap()
}

struct Run {
    op: Lookup,
    tables: Tables,
    epoch: u64,
}

impl Run {
    fn new(outer: bool, with_filter: bool) -> Self {
        let op = lookup(outer, with_filter);
        let tables = Tables::new(&op.tables()).unwrap();
        Self { op, tables, epoch: 0 }
    }

    /// Pushes each step as a delta of its own, then ends the epoch.
    fn epoch(&mut self, steps: &[Step], complete: bool) -> Vec<String> {
        self.epoch += 1;
        let mut out = Output::default();
        for step in steps {
            self.op.push(step.0, delta(std::slice::from_ref(step)), &mut self.tables, &mut out).unwrap();
        }
        let info = BarrierInfo { complete: &[true, complete], ..info(self.epoch) };
        self.op.barrier(&info, &mut self.tables, &mut out).unwrap();
        out.take().iter().flat_map(texts).map(|(r, w)| format!("{r} {w:+}")).collect()
    }

    /// Goes on with a new operator over restored tables.
    fn reincarnate(&mut self, outer: bool, with_filter: bool) {
        let segments = self.tables.snapshot(true).unwrap();
        self.op = lookup(outer, with_filter);
        self.tables = Tables::new(&self.op.tables()).unwrap();
        self.tables.restore(&[segments]).unwrap();
    }
}

fn left(k: i64, v: i64) -> Step {
    (0, (Some(k), None, v), 1)
}

fn right(k: i64, v: i64, weight: i64) -> Step {
    (1, (Some(k), None, v), weight)
}

#[test]
fn rows_wait_until_the_other_side_is_complete() {
    let mut run = Run::new(true, false);
    assert!(run.epoch(&[left(1, 10), left(2, 11)], false).is_empty());
    run.reincarnate(true, false);
    assert!(run.epoch(&[right(1, 5, 1), left(3, 12), (0, (None, None, 13), 1)], false).is_empty());
    run.reincarnate(true, false);
    // In the order in which they came, with all that has come of the other side.
    let first = run.epoch(&[left(2, 14), right(2, 6, 1)], true);
    let expected = [
        "1|NULL|10|1|NULL|5 +1",
        "2|NULL|11|2|NULL|6 +1",
        "3|NULL|12|NULL|NULL|NULL +1",
        "NULL|NULL|13|NULL|NULL|NULL +1",
        "2|NULL|14|2|NULL|6 +1",
    ];
    assert_eq!(first, expected);
    assert_eq!(run.tables.bag(1).unwrap().len(), 0);
    // That it was complete is not forgotten.
    run.reincarnate(true, false);
    assert_eq!(run.epoch(&[left(1, 15)], false), ["1|NULL|15|1|NULL|5 +1"]);
}

#[test]
fn an_epoch_meets_what_was_there_before_it() {
    let mut run = Run::new(false, false);
    assert!(run.epoch(&[right(1, 5, 1)], true).is_empty());
    // What comes and goes in the same epoch is for the next, wherever it stands.
    assert_eq!(run.epoch(&[right(1, 5, -1), right(1, 6, 2), left(1, 1)], true), ["1|NULL|1|1|NULL|5 +1"]);
    assert_eq!(run.epoch(&[left(1, 2), right(1, 6, -2)], true), ["1|NULL|2|1|NULL|6 +2"]);
    assert!(run.epoch(&[left(1, 3)], true).is_empty());
    // Taken back before it came.
    assert!(run.epoch(&[right(1, 7, -1), right(1, 7, 2)], true).is_empty());
    assert_eq!(run.epoch(&[(0, (Some(1), None, 4), 3)], true), ["1|NULL|4|1|NULL|7 +3"]);
}

#[test]
fn rows_that_the_condition_leaves_alone_stay() {
    // v < w.
    let mut run = Run::new(true, true);
    assert!(run.epoch(&[right(1, 5, 1), right(1, 9, 1), right(2, 0, 1)], true).is_empty());
    let rows = run.epoch(&[(0, (Some(1), None, 7), 1), left(2, 7), left(1, 2), left(1, 9)], true);
    let expected = [
        "1|NULL|7|1|NULL|9 +1",
        "2|NULL|7|NULL|NULL|NULL +1",
        "1|NULL|2|1|NULL|5 +1",
        "1|NULL|2|1|NULL|9 +1",
        "1|NULL|9|NULL|NULL|NULL +1",
    ];
    assert_eq!(rows, expected);
}

/// How rows are cut into deltas does not show: rows without a match stand in their places.
#[test]
fn the_cut_does_not_show() {
    let steps: Vec<Step> = (0..40).map(|i| left(i % 7, i)).collect();
    let mut whole = Run::new(true, true);
    let mut single = Run::new(true, true);
    let other: Vec<Step> = (0..20).map(|i| right(i % 4, i * 3, 1)).collect();
    assert!(whole.epoch(&other, true).is_empty() && single.epoch(&other, true).is_empty());
    let mut out = Output::default();
    whole.op.push(0, delta(&steps), &mut whole.tables, &mut out).unwrap();
    let at_once: Vec<String> = out.take().iter().flat_map(texts).map(|(r, w)| format!("{r} {w:+}")).collect();
    assert_eq!(single.epoch(&steps, true), at_once);
    assert!(at_once.len() > 40);
}
