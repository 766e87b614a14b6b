//! ASOF JOIN against looking at all right rows for each left one.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::operator::testing::{apply, cut, delta, texts};
use crate::plan::WatermarkKind;
use crate::types::{Tick, WATERMARK_MAX};

type Row = (Option<i64>, Option<i64>, String);

fn schema() -> SchemaRef {
    let field = |n: &str, t| Field::new(n, t, true);
    Arc::new(Schema::new(vec![field("s", DataType::Utf8), field("k", DataType::Int64), field("t", DataType::Int64)]))
}

fn pool(rng: &mut SmallRng, name: &str) -> (Vec<Row>, RecordBatch) {
    let mut number = |most: i64| rng.random_bool(0.9).then(|| rng.random_range(0..most));
    let rows: Vec<Row> = (0..24).map(|i| (number(3), number(8), format!("{name}{i:02}"))).collect();
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.2.clone())));
    let k: ArrayRef = Arc::new(rows.iter().map(|r| r.0).collect::<Int64Array>());
    let t: ArrayRef = Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>());
    (rows, RecordBatch::try_new(schema(), vec![s, k, t]).unwrap())
}

fn text(r: Option<&Row>) -> String {
    let cell = |v: Option<i64>| v.map_or("NULL".to_owned(), |v| v.to_string());
    r.map_or("NULL|NULL|NULL".to_owned(), |r| format!("{}|{}|{}", r.2, cell(r.0), cell(r.1)))
}

/// All left rows with what they match, of those pairs that `keep` lets pass.
fn model(
    spec: &AsOfSpec,
    rows: [&[Row]; 2],
    weights: &[Vec<i64>; 2],
    keep: impl Fn(&Row, Option<&Row>) -> bool,
) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    for (l, w) in rows[0].iter().zip(&weights[0]).filter(|(_, w)| **w > 0) {
        let fits = |r: &&Row| {
            let (Some(a), Some(b)) = (l.1, r.1) else { return false };
            let same_key = spec.left_keys.is_empty() || (l.0.is_some() && l.0 == r.0);
            same_key
                && match (spec.backward, spec.strict) {
                    (true, false) => a >= b,
                    (true, true) => a > b,
                    (false, false) => a <= b,
                    (false, true) => a < b,
                }
        };
        let there = rows[1].iter().zip(&weights[1]).filter(|(_, w)| **w > 0).map(|(r, _)| r);
        // NULL keys are the greatest; names differ, so nothing else decides after them.
        let nearness = |r: &Row| if spec.backward { r.1 } else { r.1.map(|t| -t) };
        let best = there.filter(fits).max_by_key(|r| (nearness(r), r.2.clone()));
        if (best.is_some() || spec.outer) && keep(l, best) {
            apply(&mut out, &[(format!("{}|{}", text(Some(l)), text(best)), *w)]);
        }
    }
    out
}

struct Both {
    op: AsOf,
    tables: Tables,
}

impl Both {
    fn new(spec: &AsOfSpec) -> Self {
        Self::of(spec, schema())
    }

    fn of(spec: &AsOfSpec, schema: SchemaRef) -> Self {
        let names = ["s", "k", "t", "s2", "k2", "t2"];
        let types = schema.fields().iter().chain(schema.fields()).map(|f| f.data_type().clone()).collect::<Vec<_>>();
        let fields: Vec<Field> = names.iter().zip(types).map(|(n, t)| Field::new(*n, t, true)).collect();
        let op = AsOf::new(spec.clone(), schema.clone(), schema, Arc::new(Schema::new(fields))).unwrap();
        let tables = Tables::new(&op.tables()).unwrap();
        Self { op, tables }
    }

    fn epoch(&mut self, epoch: u64, input: Vec<(usize, Delta)>) -> Vec<(String, i64)> {
        self.closing(epoch, input, [0, 0])
    }

    fn closing(&mut self, epoch: u64, input: Vec<(usize, Delta)>, watermarks: [i64; 2]) -> Vec<(String, i64)> {
        let mut out = Output::default();
        for (side, d) in input {
            self.op.push(side, d, &mut self.tables, &mut out).unwrap();
        }
        assert!(out.is_empty());
        let tick = Tick { incarnation: 1, term: 1, epoch, opened_us: epoch as i64 - 1, now_us: epoch as i64 };
        let watermark = watermarks[0].min(watermarks[1]);
        let info = BarrierInfo { tick, watermark, input_watermarks: &watermarks, complete: &[] };
        self.op.barrier(&info, &mut self.tables, &mut out).unwrap();
        out.take().iter().flat_map(texts).collect()
    }
}

#[test]
fn follows_the_model() {
    for seed in 0..32u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let keys = if seed % 5 == 4 { vec![] } else { vec![1] };
        let spec = AsOfSpec {
            left_keys: keys.clone(),
            right_keys: keys,
            left_time: 2,
            right_time: 2,
            backward: seed & 1 == 0,
            strict: seed & 2 == 0,
            outer: seed & 4 == 0,
            times: None,
            emit_on_close: false,
        };
        let pools = [pool(&mut rng, "l"), pool(&mut rng, "r")];
        let mut weights = [vec![0i64; 24], vec![0i64; 24]];
        let mut runs = [Both::new(&spec), Both::new(&spec)];
        let mut chain = Vec::new();
        let mut result = BTreeMap::new();
        for epoch in 1..16u64 {
            let (mut whole, mut pieces) = (Vec::new(), Vec::new());
            for side in [0, 1] {
                let mut picks = Vec::new();
                // Often one side alone changes, and at last all goes.
                for _ in 0..[8, 0, 3, 1, 12][(epoch as usize + 2 * side) % 5] {
                    let i = rng.random_range(0..24);
                    let w = rng.random_range(-weights[side][i]..=2);
                    weights[side][i] += w;
                    picks.push((i as u32, w));
                }
                if epoch == 15 {
                    picks.extend(weights[side].iter().enumerate().map(|(i, w)| (i as u32, -w)));
                    weights[side].fill(0);
                }
                let d = delta(&pools[side].1, &picks, true);
                pieces.extend(cut(&mut rng, &d).into_iter().map(|d| (side, d)));
                whole.push((side, d));
            }
            // Neither the cut nor the order of the sides matters.
            pieces.reverse();
            let changes = runs[0].epoch(epoch, whole);
            assert_eq!(runs[1].epoch(epoch, pieces), changes, "seed {seed}, epoch {epoch}");
            let mut once = std::collections::BTreeSet::new();
            assert!(changes.iter().all(|(r, w)| *w != 0 && once.insert(r.clone())), "{changes:?}");
            apply(&mut result, &changes);
            let rows = [pools[0].0.as_slice(), pools[1].0.as_slice()];
            assert_eq!(result, model(&spec, rows, &weights, |_, _| true), "seed {seed}, epoch {epoch}, {spec:?}");
            let full = epoch == 7;
            if full {
                chain.clear();
            }
            let first = chain.is_empty();
            chain.push(runs[1].tables.snapshot(first).unwrap());
            runs[1] = Both::new(&spec);
            runs[1].tables.restore(&chain).unwrap();
        }
        assert!(result.is_empty());
    }
}

/// Rows with a time of whole seconds, as text too.
fn stamped(rows: &[Row]) -> RecordBatch {
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.2.clone())));
    let k: ArrayRef = Arc::new(rows.iter().map(|r| r.0).collect::<Int64Array>());
    let t: ArrayRef = Arc::new(rows.iter().map(|r| r.1.map(|t| t * 1_000_000)).collect::<TimestampMicrosecondArray>());
    let stamp = Field::new("t", DataType::Timestamp(TimeUnit::Microsecond, None), true);
    let fields = schema().fields().iter().take(2).map(|f| f.as_ref().clone()).chain([stamp]).collect::<Vec<_>>();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![s, k, t]).unwrap()
}

/// A printed row without the seconds' form of its times: `1970-01-01T00:00:07` is 7.
fn plain(row: &str) -> String {
    let cell = |c: &str| match c.strip_prefix("1970-01-01T00:") {
        Some(t) => {
            let (m, s) = t.split_once(':').unwrap();
            (m.parse::<i64>().unwrap() * 60 + s.parse::<i64>().unwrap()).to_string()
        }
        None => c.to_owned(),
    };
    row.split('|').map(cell).collect::<Vec<_>>().join("|")
}

/// Under watermarks that pass: what is put out is right all along, once and final if it waits; and no
/// more rows are kept than can still be reached.
#[test]
fn what_the_watermark_closes_goes() {
    for seed in 0..64u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let keys = if seed % 5 == 4 { vec![] } else { vec![1] };
        let spec = AsOfSpec {
            left_keys: keys.clone(),
            right_keys: keys.clone(),
            left_time: 2,
            right_time: 2,
            backward: seed & 1 == 0,
            strict: seed & 2 == 0,
            outer: seed & 4 == 0,
            times: Some([WatermarkKind::EventTime; 2]),
            emit_on_close: seed & 8 == 0,
        };
        let schema = stamped(&[]).schema();
        let mut runs = [Both::of(&spec, schema.clone()), Both::of(&spec, schema.clone())];
        let mut rows: [Vec<Row>; 2] = Default::default();
        let mut weights: [Vec<i64>; 2] = Default::default();
        let delays = [rng.random_range(0..9), rng.random_range(0..9)];
        let mut watermarks = [i64::MIN; 2];
        let (mut clock, mut chain, mut result) = (20i64, Vec::new(), BTreeMap::new());
        for epoch in 1..24u64 {
            let (mut whole, mut pieces) = (Vec::new(), Vec::new());
            for side in [0, 1] {
                let (mut new, mut picks) = (Vec::new(), Vec::new());
                for _ in 0..[3, 0, 6, 1][(epoch as usize + side) % 4] {
                    let t = rng.random_range(clock - 8..clock + 4);
                    let t = (rng.random_bool(0.9) && t >= watermarks[side]).then_some(t);
                    let k = rng.random_bool(0.9).then(|| rng.random_range(0..3));
                    picks.push((new.len() as u32, rng.random_range(1..3)));
                    new.push((k, t, format!("{}{:03}", ["l", "r"][side], rows[side].len() + new.len())));
                }
                let d = delta(&stamped(&new), &picks, true);
                weights[side].extend(picks.iter().map(|p| p.1));
                rows[side].extend(new);
                pieces.extend(cut(&mut rng, &d).into_iter().map(|d| (side, d)));
                whole.push((side, d));
            }
            pieces.reverse();
            clock += rng.random_range(0..6);
            for side in [0, 1] {
                watermarks[side] = if epoch == 23 { WATERMARK_MAX } else { watermarks[side].max(clock - delays[side]) };
            }
            let micros = watermarks.map(|w| w.saturating_mul(1_000_000));
            let changes = runs[0].closing(epoch, whole, micros);
            assert_eq!(runs[1].closing(epoch, pieces, micros), changes, "seed {seed}, epoch {epoch}");
            assert!(!spec.emit_on_close || changes.iter().all(|c| c.1 > 0), "seed {seed}, epoch {epoch}: {changes:?}");
            let changes: Vec<(String, i64)> = changes.into_iter().map(|(r, w)| (plain(&r), w)).collect();
            apply(&mut result, &changes);

            let bound = watermarks[0].min(watermarks[1]);
            let there = |r: &Row| r.1.is_some() && (keys.is_empty() || r.0.is_some());
            let below = |r: &Row| r.1.is_some_and(|t| t < bound);
            let last = bound == WATERMARK_MAX;
            let is_final = |l: &Row, m: Option<&Row>| {
                last || !there(l) || if spec.backward { below(l) } else { m.is_some_and(below) }
            };
            let both = [rows[0].as_slice(), rows[1].as_slice()];
            let expected = model(&spec, both, &weights, |l, m| !spec.emit_on_close || is_final(l, m));
            assert_eq!(result, expected, "seed {seed}, epoch {epoch}, {spec:?}");

            let outer = AsOfSpec { outer: true, ..spec.clone() };
            let ones = [vec![1; rows[0].len()], vec![1; rows[1].len()]];
            let waiting = model(&outer, both, &ones, |l, m| there(l) && !is_final(l, m)).len();
            let open = rows[1].iter().filter(|r| there(r) && !below(r)).count();
            let behind: std::collections::BTreeSet<_> =
                rows[1].iter().filter(|r| there(r) && below(r)).map(|r| r.0.filter(|_| !keys.is_empty())).collect();
            let behind = if spec.backward && !last { behind.len() } else { 0 };
            let [Table::Ordered(left), Table::Ordered(right), Table::Ordered(index)] = runs[1].tables.all() else {
                panic!("three tables")
            };
            assert_eq!((left.len(), right.len()), (waiting, open + behind), "seed {seed}, epoch {epoch}, {spec:?}");
            assert!(index.len() <= left.len() + right.len());
            let first = chain.is_empty() || epoch == 9;
            if first {
                chain.clear();
            }
            chain.push(runs[1].tables.snapshot(first).unwrap());
            runs[1] = Both::of(&spec, schema.clone());
            runs[1].tables.restore(&chain).unwrap();
        }
    }
}
