//! Semi, anti and mark joins against nested loops over multisets.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::join::tests::{Row, Step, delta, filter, info, random_steps, read, schema};
use super::*;
use crate::state::TableSegment;

#[derive(Debug, Clone)]
struct Case {
    kind: JoinKind,
    keys: usize,
    null_equal: bool,
    filter: bool,
    append_only: bool,
}

impl Case {
    fn join(&self) -> SemiJoin {
        let keys: Vec<usize> = (0..self.keys).collect();
        let spec = JoinSpec {
            kind: self.kind,
            left_keys: keys.clone(),
            right_keys: keys,
            null_equal: self.null_equal,
            filter: self.filter.then(filter),
            append_only_inputs: self.append_only,
            expire: [None, None],
            apart: None,
        };
        let left = schema(["k", "j", "v"]);
        let mut fields: Vec<_> = left.fields().iter().cloned().collect();
        if self.kind == JoinKind::Mark {
            fields.push(Arc::new(arrow::datatypes::Field::new("mark", DataType::Boolean, true)));
        }
        SemiJoin::new(&spec, left, schema(["k2", "j2", "w"]), Arc::new(Schema::new(fields))).unwrap()
    }

    fn model(&self, bags: &[BTreeMap<Row, i64>; 2]) -> BTreeMap<String, i64> {
        let key = |a: Option<i64>, b: Option<i64>| a == b && (self.null_equal || a.is_some());
        let matches = |l: &Row, r: &Row| {
            (self.keys < 1 || key(l.0, r.0)) && (self.keys < 2 || key(l.1, r.1)) && (!self.filter || l.2 < r.2)
        };
        let cell = |v: Option<i64>| v.map_or(String::new(), |v| v.to_string());
        let text = |j: Option<i64>| j.map_or(String::new(), |j| format!("j{j}"));
        let mut all = BTreeMap::new();
        for (l, w) in &bags[0] {
            let has = bags[1].keys().any(|r| matches(l, r));
            let row = format!("{},{},{}", cell(l.0), text(l.1), l.2);
            match self.kind {
                JoinKind::Semi if has => all.insert(row, *w),
                JoinKind::Anti if !has => all.insert(row, *w),
                JoinKind::Mark => all.insert(format!("{row},{has}"), *w),
                _ => None,
            };
        }
        all
    }
}

struct Run {
    op: SemiJoin,
    tables: Tables,
}

impl Run {
    fn new(case: &Case) -> Self {
        let op = case.join();
        let tables = Tables::new(&op.tables()).unwrap();
        Self { op, tables }
    }

    /// Runs an epoch; `cut` says whether a new delta begins at a step.
    fn epoch(&mut self, n: u64, steps: &[Step], mut cut: impl FnMut() -> bool) -> Vec<(String, i64)> {
        let mut out = Output::default();
        let mut from = 0;
        for i in 1..=steps.len() {
            if i == steps.len() || steps[i].0 != steps[i - 1].0 || cut() {
                self.op.push(steps[from].0, delta(&steps[from..i]), &mut self.tables, &mut out).unwrap();
                from = i;
            }
        }
        self.op.barrier(&info(n), &mut self.tables, &mut out).unwrap();
        read(&out.take())
    }
}

fn check(case: &Case, seed: u64, epochs: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut bags = [BTreeMap::new(), BTreeMap::new()];
    let (mut one, mut many) = (Run::new(case), Run::new(case));
    let mut shown: BTreeMap<String, i64> = BTreeMap::new();
    let mut chain: Vec<Vec<TableSegment>> = Vec::new();
    for e in 1..=epochs {
        let steps = random_steps(&mut rng, &mut bags, case.append_only);
        let changes = one.epoch(e, &steps, || true);
        let density = rng.random_range(0.0..1.0);
        let again = many.epoch(e, &steps, || rng.random_bool(density));
        assert_eq!(changes, again, "{case:?}: cuts change the output of epoch {e}");
        if !(case.append_only && case.kind == JoinKind::Semi) {
            let mut rows: Vec<&String> = changes.iter().map(|c| &c.0).collect();
            rows.sort();
            rows.dedup();
            assert_eq!(rows.len(), changes.len(), "{case:?}: a row changes twice");
        }
        for (row, w) in changes {
            assert!(w > 0 || !(case.append_only && case.kind == JoinKind::Semi), "{case:?}: a row is taken back");
            *shown.entry(row).or_default() += w;
        }
        shown.retain(|_, w| *w != 0);
        assert_eq!(shown, case.model(&bags), "{case:?}: wrong after epoch {e}");
        // The table snapshots at times, is lost at others, and goes on from the chain.
        if e % 3 == 0 {
            chain.push(many.tables.snapshot(e % 9 == 3).unwrap());
        }
        if e % 6 == 0 {
            many = Run::new(case);
            many.tables.restore(&chain).unwrap();
        }
    }
}

#[test]
fn every_kind_against_nested_loops() {
    let mut seed = 100;
    for kind in [JoinKind::Semi, JoinKind::Anti, JoinKind::Mark] {
        for keys in 0..=2 {
            for flags in 0..8 {
                let case = Case {
                    kind,
                    keys,
                    null_equal: flags & 1 != 0,
                    filter: flags & 2 != 0,
                    append_only: flags & 4 != 0,
                };
                seed += 1;
                check(&case, seed, if case.append_only { 8 } else { 24 });
            }
        }
    }
}

#[test]
fn right_rows_that_repeat_touch_no_left_row() {
    let case = Case { kind: JoinKind::Anti, keys: 1, null_equal: false, filter: false, append_only: false };
    let mut run = Run::new(&case);
    let row = (Some(1), None, 5);
    let first = run.epoch(1, &[(0, row, 2), (1, row, 1)], || true);
    assert!(first.is_empty());
    assert!(run.epoch(2, &[(1, row, 3), (1, row, -1)], || true).is_empty());
    // A delete before its insert: the row counts only while its weight is above 0.
    assert!(run.epoch(3, &[(1, row, -4), (1, row, 1), (1, row, 1)], || true).is_empty());
    assert_eq!(run.epoch(4, &[(1, row, -2)], || true), vec![("1,,5".to_owned(), 2)]);
}

#[test]
fn an_append_only_semi_join_does_not_wait_and_forgets_what_matched() {
    let case = Case { kind: JoinKind::Semi, keys: 1, null_equal: false, filter: false, append_only: true };
    let mut run = Run::new(&case);
    let mut out = Output::default();
    run.op.push(1, delta(&[(1, (Some(1), None, 0), 1)]), &mut run.tables, &mut out).unwrap();
    run.op.push(0, delta(&[(0, (Some(1), None, 7), 1), (0, (None, None, 8), 1)]), &mut run.tables, &mut out).unwrap();
    assert_eq!(read(&out.take()), vec![("1,,7".to_owned(), 1)]);
    assert!(run.tables.bag(0).unwrap().is_empty());
}

#[test]
fn keys_and_output_must_fit() {
    let spec = |kind| JoinSpec {
        kind,
        left_keys: vec![0],
        right_keys: vec![0],
        null_equal: false,
        filter: None,
        append_only_inputs: false,
        expire: [None, None],
        apart: None,
    };
    let (l, r) = (schema(["k", "j", "v"]), schema(["k2", "j2", "w"]));
    assert!(SemiJoin::new(&spec(JoinKind::Semi), l.clone(), r.clone(), l.clone()).is_ok());
    assert!(SemiJoin::new(&spec(JoinKind::Mark), l.clone(), r.clone(), l.clone()).is_err());
    assert!(SemiJoin::new(&spec(JoinKind::Inner), l.clone(), r, l).is_err());
}
