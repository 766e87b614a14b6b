//! What waits for its window: each row once, when it is final, and state that is freed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::*;
use crate::operator::group_topn::GroupTopN;
use crate::operator::over::Over;
use crate::operator::testing::{Run, apply, cut, delta, texts};
use crate::plan::{GroupTopNSpec, OrderBy, OverSpec, RankKind, WatermarkColumn, WatermarkKind};

const SIZE: i64 = 10;

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let field = |n: &str, t| Field::new(n, t, true);
    Arc::new(Schema::new(vec![field("k", DataType::Utf8), field("v", DataType::Int64), field("w", time)]))
}

/// Rows `(k, v, w)`.
fn rows(all: &[(&str, i64, Option<i64>)]) -> RecordBatch {
    let k: ArrayRef = Arc::new(StringArray::from_iter_values(all.iter().map(|r| r.0)));
    let v: ArrayRef = Arc::new(Int64Array::from_iter_values(all.iter().map(|r| r.1)));
    let w: ArrayRef = Arc::new(all.iter().map(|r| r.2).collect::<TimestampMicrosecondArray>());
    RecordBatch::try_new(schema(), vec![k, v, w]).unwrap()
}

fn window() -> WatermarkColumn {
    WatermarkColumn { column: 2, kind: WatermarkKind::WindowStart { size_us: SIZE } }
}

fn is_closed(start: Option<i64>, watermark: i64) -> bool {
    watermark == WATERMARK_MAX || start.is_some_and(|s| watermark != WATERMARK_MIN && s + SIZE <= watermark)
}

fn close(append_only_input: bool) -> Run {
    Run::new(move || {
        let spec = CloseSpec { time: window(), append_only_input };
        Box::new(Close::new(spec, vec![0], schema()).unwrap())
    })
}

#[test]
fn rows_wait_and_those_taken_back_are_never_seen() {
    let mut run = close(false);
    let pool = rows(&[("a", 1, Some(0)), ("b", 2, Some(0)), ("c", 3, Some(10)), ("n", 4, None)]);
    assert!(run.epoch(vec![], WATERMARK_MIN).is_empty());
    // Taken back before it came, within an epoch.
    assert!(run.epoch(vec![delta(&pool, &[(1, -1), (0, 1), (1, 2), (2, 1), (3, 1)], true)], 5).is_empty());
    assert!(run.epoch(vec![delta(&pool, &[(0, -1), (2, 1)], true)], 9).is_empty());
    assert_eq!(run.epoch(vec![], 10), [("b|2|1970-01-01T00:00:00".to_string(), 1)]);
    assert!(run.epoch(vec![], 19).is_empty());
    assert_eq!(run.epoch(vec![], 25), [("c|3|1970-01-01T00:00:00.000010".to_string(), 2)]);
    assert_eq!(run.tables.bag(0).unwrap().len(), 1);
    assert_eq!(run.epoch(vec![], WATERMARK_MAX), [("n|4|NULL".to_string(), 1)]);
    assert!(run.tables.bag(0).unwrap().is_empty());
    assert!(run.epoch(vec![], WATERMARK_MAX).is_empty());
}

/// Random rows in windows that close one after the other. Each row must come out once, in the epoch
/// that closes its window, as `model` has it; and nothing that is closed may stay.
fn follows(make: impl Fn() -> Run, model: impl Fn(&[(&str, i64, Option<i64>)]) -> BTreeMap<String, i64>, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut runs = [make(), make()];
    let mut open: Vec<(&str, i64, Option<i64>)> = Vec::new();
    let mut watermark = WATERMARK_MIN;
    for epoch in 0..14 {
        let mut fresh = Vec::new();
        for _ in 0..[7, 0, 30, 3][epoch % 4] {
            let first = if watermark == WATERMARK_MIN { 0 } else { watermark / SIZE };
            let start = rng.random_bool(0.9).then(|| rng.random_range(first..first + 4) * SIZE);
            let row = (["a", "b", "bb", ""][rng.random_range(0..4)], rng.random_range(0..5), start);
            fresh.extend(std::iter::repeat_n(row, rng.random_range(1..3)));
        }
        fresh.shuffle(&mut rng);
        open.extend(&fresh);
        watermark = match epoch {
            0 | 1 => WATERMARK_MIN,
            13 => WATERMARK_MAX,
            _ => watermark.max(0) + rng.random_range(0..25),
        };
        let d = Delta::insert(rows(&fresh));
        let whole = runs[0].epoch(vec![d.clone()], watermark);
        assert_eq!(runs[1].epoch(cut(&mut rng, &d), watermark), whole);
        runs[1].reincarnate(epoch == 5);
        let (closed, rest): (Vec<_>, Vec<_>) = open.iter().partition(|r| is_closed(r.2, watermark));
        open = rest;
        let mut found = BTreeMap::new();
        apply(&mut found, &whole);
        assert!(whole.iter().all(|(_, w)| *w > 0));
        assert_eq!(found, model(&closed), "seed {seed}, epoch {epoch}, watermark {watermark}");
        let kept = match &runs[0].tables.all()[0] {
            crate::state::Table::Ordered(t) => t.len(),
            crate::state::Table::Bag(t) => t.len(),
            crate::state::Table::Group(_) => unreachable!(),
        };
        assert!(kept <= open.len(), "{kept} rows are kept for {}", open.len());
    }
    assert!(open.is_empty());
}

fn plain(all: &[(&str, i64, Option<i64>)]) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    apply(&mut out, &texts(&Delta::insert(rows(all))));
    out
}

#[test]
fn rows_that_are_held_back_follow_the_model() {
    for seed in 0..10 {
        follows(|| close(seed % 2 == 0), plain, seed);
    }
}

/// The rows with their number (or rank) among those of their key and window, by `v`.
fn ranked(all: &[(&str, i64, Option<i64>)], kind: RankKind, limit: usize) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    let mut sorted = all.to_vec();
    sorted.sort();
    for (i, row) in sorted.iter().enumerate() {
        let before = sorted[..i].iter().filter(|r| (r.0, r.2) == (row.0, row.2));
        let rank = 1 + match kind {
            RankKind::RowNumber => before.count(),
            _ => before.filter(|r| r.1 < row.1).count(),
        };
        if rank <= limit {
            let text = texts(&Delta::insert(rows(&[*row]))).remove(0).0;
            apply(&mut out, &[(format!("{text}|{rank}"), 1)]);
        }
    }
    out
}

#[test]
fn the_first_rows_of_closed_windows_follow_the_model() {
    for seed in 0..12 {
        let kind = [RankKind::RowNumber, RankKind::Rank][seed as usize % 2];
        let limit = 1 + seed as usize % 3;
        let mut fields = schema().fields().to_vec();
        fields.push(Arc::new(Field::new("n", DataType::Int64, true)));
        let output = Arc::new(Schema::new(fields));
        let spec = GroupTopNSpec {
            // The window is not the first of the partition's columns.
            partition: vec![0, 2],
            order: vec![OrderBy { column: 1, descending: false, nulls_first: false }],
            kind,
            limit,
            with_rank: true,
            append_only_input: true,
            window: Some(window()),
            emit_on_close: true,
        };
        let make = || {
            let (spec, output) = (spec.clone(), output.clone());
            Run::new(move || Box::new(GroupTopN::new(spec.clone(), schema(), output.clone()).unwrap()))
        };
        follows(make, |closed| ranked(closed, kind, limit), seed);
    }
}

#[test]
fn functions_over_closed_windows_follow_the_model() {
    for seed in 0..10 {
        let mut fields = schema().fields().to_vec();
        fields.push(Arc::new(Field::new("sum", DataType::Int64, true)));
        let output = Arc::new(Schema::new(fields));
        let make = || {
            let output = output.clone();
            Run::new(move || {
                let spec = OverSpec {
                    partition: vec![0, 2],
                    order: vec![OrderBy { column: 1, descending: false, nulls_first: false }],
                    stages: vec![vec![crate::operator::over::tests::running("v", 1)]],
                    window: Some(window()),
                    emit_on_close: true,
                };
                Box::new(Over::new(spec, schema(), output.clone()).unwrap())
            })
        };
        let model = |closed: &[(&str, i64, Option<i64>)]| {
            let mut sorted = closed.to_vec();
            sorted.sort();
            let mut out = BTreeMap::new();
            for (i, row) in sorted.iter().enumerate() {
                let before = sorted[..=i].iter().filter(|r| (r.0, r.2) == (row.0, row.2));
                let text = texts(&Delta::insert(rows(&[*row]))).remove(0).0;
                apply(&mut out, &[(format!("{text}|{}", before.map(|r| r.1).sum::<i64>()), 1)]);
            }
            out
        };
        follows(make, model, seed);
    }
}

/// Without `emit_on_close` rows come at once, and closed partitions are freed all the same.
#[test]
fn partitions_that_are_closed_are_freed() {
    let spec = GroupTopNSpec {
        partition: vec![0, 2],
        order: vec![OrderBy { column: 1, descending: false, nulls_first: false }],
        kind: RankKind::RowNumber,
        limit: 2,
        with_rank: false,
        append_only_input: true,
        window: Some(window()),
        emit_on_close: false,
    };
    let mut run = Run::new(move || Box::new(GroupTopN::new(spec.clone(), schema(), schema()).unwrap()));
    for n in 0..50 {
        let start = n * SIZE;
        let fresh: Vec<_> = (0..6).map(|v| (["a", "b"][v % 2], v as i64, Some(start))).collect();
        let out = run.epoch(vec![Delta::insert(rows(&fresh))], start + SIZE / 2);
        assert_eq!(out.iter().map(|r| r.1).sum::<i64>(), 4);
        let kept = run.tables.ordered(0).unwrap().len();
        assert_eq!(kept, 4, "window {n}");
    }
}
