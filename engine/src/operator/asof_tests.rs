//! ASOF JOIN against looking at all right rows for each left one.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::operator::testing::{apply, cut, delta, texts};
use crate::types::Tick;

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

fn model(spec: &AsOfSpec, rows: [&[Row]; 2], weights: &[Vec<i64>; 2]) -> BTreeMap<String, i64> {
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
        if best.is_some() || spec.outer {
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
        let names = ["s", "k", "t", "s2", "k2", "t2"];
        let types =
            schema().fields().iter().chain(schema().fields()).map(|f| f.data_type().clone()).collect::<Vec<_>>();
        let fields: Vec<Field> = names.iter().zip(types).map(|(n, t)| Field::new(*n, t, true)).collect();
        let op = AsOf::new(spec.clone(), schema(), schema(), Arc::new(Schema::new(fields))).unwrap();
        let tables = Tables::new(&op.tables()).unwrap();
        Self { op, tables }
    }

    fn epoch(&mut self, epoch: u64, input: Vec<(usize, Delta)>) -> Vec<(String, i64)> {
        let mut out = Output::default();
        for (side, d) in input {
            self.op.push(side, d, &mut self.tables, &mut out).unwrap();
        }
        assert!(out.is_empty());
        let tick = Tick { incarnation: 1, term: 1, epoch, opened_us: epoch as i64 - 1, now_us: epoch as i64 };
        let info = BarrierInfo { tick, watermark: 0, input_watermarks: &[0, 0], complete: &[] };
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
            assert_eq!(result, model(&spec, rows, &weights), "seed {seed}, epoch {epoch}, {spec:?}");
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
