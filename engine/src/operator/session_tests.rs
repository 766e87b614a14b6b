//! SESSION windows against a model that cuts all rows anew.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use arrow::array::{Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::*;
use crate::operator::testing::{Run, apply, cut, delta};

const TS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

#[derive(Debug, Clone)]
struct R {
    k: Option<i32>,
    t: Option<i64>,
    s: &'static str,
}

fn schema() -> SchemaRef {
    let f = |n: &str, t: DataType| Field::new(n, t, true);
    Arc::new(Schema::new(vec![f("s", DataType::Utf8), f("t", TS), f("k", DataType::Int32)]))
}

fn batch(rows: &[R]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.s))),
        Arc::new(rows.iter().map(|r| r.t).collect::<TimestampMicrosecondArray>()),
        Arc::new(rows.iter().map(|r| r.k).collect::<Int32Array>()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn operator(partition: Vec<usize>, append_only_input: bool, emit_on_close: bool) -> Run {
    let mut fields: Vec<Field> = schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    fields.extend([Field::new("window_start", TS, true), Field::new("window_end", TS, true)]);
    let output: SchemaRef = Arc::new(Schema::new(fields));
    let spec = SessionSpec { partition, time: 1, gap_us: 10, append_only_input, emit_on_close };
    Run::new(move || Box::new(SessionWindows::new(spec.clone(), &schema(), output.clone()).unwrap()))
}

/// The rows with their sessions, those that end by `until` only.
fn model(keyed: bool, pool: &[R], weights: &[i64], until: i64) -> BTreeMap<String, i64> {
    let mut groups: BTreeMap<Option<i32>, Vec<(i64, &R, i64)>> = BTreeMap::new();
    for (r, w) in pool.iter().zip(weights).filter(|(_, w)| **w > 0) {
        if let Some(t) = r.t {
            groups.entry(if keyed { r.k } else { None }).or_default().push((t, r, *w));
        }
    }
    let mut out = BTreeMap::new();
    for rows in groups.values_mut() {
        rows.sort_by_key(|r| r.0);
        for session in rows.chunk_by(|a, b| b.0 - a.0 < 10) {
            let (first, end) = (session[0].0, session[session.len() - 1].0 + 10);
            for (t, r, w) in session.iter().filter(|_| end <= until) {
                let k = r.k.map_or("NULL".to_string(), |k| k.to_string());
                let time = |t: i64| format!("1970-01-01T00:00:00.{t:06}");
                let row = [r.s.to_string(), time(*t), k, time(first), time(end)].join("|");
                *out.entry(row).or_default() += w;
            }
        }
    }
    out
}

fn shown(rows: BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    // Arrow leaves out the fraction of whole seconds; the model does not.
    rows.into_iter().map(|(r, w)| (r.replace("00:00:00|", "00:00:00.000000|"), w)).collect()
}

#[test]
fn follows_the_model_under_any_cut_and_restore() {
    for seed in 0..12u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let keyed = seed % 2 == 0;
        let row = |rng: &mut SmallRng| R {
            k: rng.random_bool(0.8).then(|| rng.random_range(0..3)),
            t: rng.random_bool(0.9).then(|| rng.random_range(1..150)),
            s: ["", "a", "bb"][rng.random_range(0..3)],
        };
        let rows: Vec<R> = (0..40).map(|_| row(&mut rng)).collect();
        let pool = batch(&rows);
        let partition = if keyed { vec![2] } else { vec![] };
        let make = || operator(partition.clone(), false, false);
        let mut runs = [make(), make(), make()];
        let mut weights = vec![0i64; rows.len()];
        let mut result = BTreeMap::new();
        for epoch in 0..10 {
            let mut picks: Vec<(u32, i64)> = vec![];
            for _ in 0..[8, 20, 0, 3, 15, 1, 30, 0, 9, 5][epoch] {
                let i = rng.random_range(0..rows.len());
                let w = rng.random_range(-weights[i]..=2);
                picks.push((i as u32, w));
                weights[i] += w;
                if rng.random_bool(0.3) {
                    picks.extend([(i as u32, -3), (i as u32, 3)]);
                }
            }
            if epoch == 7 {
                picks = weights.iter().enumerate().map(|(i, w)| (i as u32, -w)).collect();
                weights.fill(0);
            }
            picks.retain(|p| p.1 != 0);
            picks.shuffle(&mut rng);
            let d = delta(&pool, &picks, true);
            let whole = runs[0].epoch(vec![d.clone()], 0);
            let mut seen = BTreeMap::new();
            for (r, w) in &whole {
                assert!(seen.insert(r.clone(), *w).is_none(), "two changes of one row: {r}");
            }
            assert_eq!(runs[1].epoch(cut(&mut rng, &d), 0), whole);
            assert_eq!(runs[2].epoch(cut(&mut rng, &d), 0), whole);
            runs[2].reincarnate(epoch % 3 == 0);
            apply(&mut result, &whole);
            assert_eq!(shown(result.clone()), model(keyed, &rows, &weights, i64::MAX), "seed {seed}, epoch {epoch}");
        }
    }
}

#[test]
fn closed_sessions_are_given_once_and_freed() {
    for (seed, on_close) in [(1, true), (2, false), (3, true), (4, false)] {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut rows: Vec<R> = vec![];
        for _ in 0..200 {
            let t = Some(rng.random_range(1..400));
            rows.push(R { k: Some(rng.random_range(0..2)), t, s: "x" });
        }
        let pool = batch(&rows);
        let mut runs = [operator(vec![2], true, on_close), operator(vec![2], true, on_close)];
        let mut weights = vec![0i64; rows.len()];
        let mut result = BTreeMap::new();
        let mut watermark = i64::MIN;
        for epoch in 0..14 {
            let open: Vec<usize> =
                (0..rows.len()).filter(|&i| rows[i].t.is_some_and(|t| t >= watermark && t < 60 + epoch * 40)).collect();
            let mut picks = vec![];
            for _ in 0..if epoch == 13 || open.is_empty() { 0 } else { 12 } {
                let i = open[rng.random_range(0..open.len())];
                weights[i] += 1;
                picks.push((i as u32, 1));
            }
            watermark = if epoch == 13 { i64::MAX } else { epoch * 33 };
            let d = delta(&pool, &picks, false);
            let whole = runs[0].epoch(vec![d.clone()], watermark);
            assert_eq!(runs[1].epoch(cut(&mut rng, &d), watermark), whole);
            runs[1].reincarnate(epoch % 5 == 0);
            apply(&mut result, &whole);
            if on_close {
                assert!(whole.iter().all(|(_, w)| *w > 0));
            }
            let until = if on_close { watermark } else { i64::MAX };
            assert_eq!(shown(result.clone()), model(true, &rows, &weights, until), "seed {seed}, epoch {epoch}");
            // What is over is forgotten.
            let all = model(true, &rows, &weights, i64::MAX);
            let closed = model(true, &rows, &weights, watermark);
            assert_eq!(runs[0].tables.ordered(0).unwrap().len(), all.len() - closed.len());
        }
        assert!((0..3).all(|t| runs[0].tables.ordered(t).unwrap().is_empty()));
    }
}

#[test]
fn times_at_the_end_of_time() {
    let rows = [i64::MAX, i64::MAX - 5, i64::MIN, i64::MIN + 9].map(|t| R { k: None, t: Some(t), s: "" });
    let mut run = operator(vec![], true, true);
    // No text has these times: count the rows.
    let mut epoch = |deltas: Vec<Delta>, watermark: i64| {
        let mut out = Output::default();
        for d in deltas {
            run.op.push(0, d, &mut run.tables, &mut out).unwrap();
        }
        let tick = crate::types::Tick { incarnation: 1, term: 1, epoch: 1, now_us: 1, opened_us: 0 };
        let info = BarrierInfo { tick, watermark, input_watermarks: &[watermark], complete: &[] };
        run.op.barrier(&info, &mut run.tables, &mut out).unwrap();
        let kept: Vec<usize> = (0..3).map(|t| run.tables.ordered(t).unwrap().len()).collect();
        (out.take().iter().map(Delta::num_rows).sum::<usize>(), kept)
    };
    assert_eq!(epoch(vec![delta(&batch(&rows), &[(0, 1), (1, 1), (2, 1), (3, 1)], false)], 0), (2, vec![2, 1, 1]));
    // A session whose end no time can hold closes with the input.
    assert_eq!(epoch(vec![], i64::MAX - 1), (0, vec![2, 1, 1]));
    assert_eq!(epoch(vec![], i64::MAX), (2, vec![0, 0, 0]));
}
