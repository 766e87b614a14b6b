//! GroupTopN against ranking every partition.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::*;
use crate::operator::testing::{Run, apply, cut, delta, texts};
use crate::plan::OrderBy;

fn pool(rng: &mut SmallRng) -> RecordBatch {
    let a: Int32Array = (0..30).map(|_| rng.random_bool(0.8).then(|| rng.random_range(0..3))).collect();
    let b: Int32Array = (0..30).map(|_| rng.random_bool(0.8).then(|| rng.random_range(-2..3))).collect();
    let c: StringArray = (0..30).map(|i| Some(format!("{}s{i}", "long ".repeat(i % 9)))).collect();
    let field = |n: &str, t| Field::new(n, t, true);
    let schema =
        Schema::new(vec![field("c", DataType::Utf8), field("a", DataType::Int32), field("b", DataType::Int32)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(c), Arc::new(a), Arc::new(b)]).unwrap()
}

/// A row's partition, order and text, by which ties are broken.
type Place = (Option<i32>, bool, i32, String);

fn model(rows: &RecordBatch, weights: &[i64], spec: &GroupTopNSpec) -> BTreeMap<String, i64> {
    let a = rows.column(1).as_primitive::<Int32Type>();
    let b = rows.column(2).as_primitive::<Int32Type>();
    let c = rows.column(0).as_string::<i32>();
    let shown = texts(&Delta::insert(rows.clone()));
    let mut all: Vec<(Place, usize)> = vec![];
    for (i, w) in weights.iter().enumerate() {
        let part = (!spec.partition.is_empty() && a.is_valid(i)).then(|| a.value(i));
        let order = if b.is_valid(i) { b.value(i) } else { 0 };
        // NULLs come last, whichever the direction.
        let order = if spec.order[0].descending { -order } else { order };
        for _ in 0..*w {
            all.push(((part, b.is_null(i), order, c.value(i).to_string()), i));
        }
    }
    all.sort();
    let mut out = BTreeMap::new();
    let (mut number, mut rank, mut dense) = (0, 0, 0);
    for (at, ((part, null, order, _), i)) in all.iter().enumerate() {
        let before = at.checked_sub(1).map(|p| &all[p].0);
        if before.is_none_or(|p| p.0 != *part) {
            (number, rank, dense) = (1, 1, 1);
        } else {
            number += 1;
            if before.is_some_and(|p| (p.1, p.2) != (*null, *order)) {
                rank = number;
                dense += 1;
            }
        }
        let place = match spec.kind {
            RankKind::RowNumber => number,
            RankKind::Rank => rank,
            RankKind::DenseRank => dense,
        };
        if place <= spec.limit as i64 {
            let row = &shown[*i].0;
            let text = if spec.with_rank { format!("{row}|{place}") } else { row.clone() };
            apply(&mut out, &[(text, 1)]);
        }
    }
    out
}

fn run(kind: RankKind, seed: u64, append_only_input: bool) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let rows = pool(&mut rng);
    let schema = rows.schema();
    let descending = seed.is_multiple_of(2);
    let mut order = vec![OrderBy { column: 2, descending, nulls_first: false }];
    if kind == RankKind::RowNumber {
        order.push(OrderBy { column: 0, descending: false, nulls_first: false });
    }
    let partition = if seed.is_multiple_of(3) { vec![] } else { vec![1] };
    let with_rank = seed % 5 < 3;
    let limit = (seed % 4) as usize;
    let (window, emit_on_close) = (None, false);
    let spec = GroupTopNSpec { partition, order, kind, limit, with_rank, append_only_input, window, emit_on_close };
    let mut fields = schema.fields().to_vec();
    if with_rank {
        fields.push(Arc::new(Field::new("n", DataType::Int64, true)));
    }
    let output = Arc::new(Schema::new(fields));
    let make = || {
        let (spec, schema, output) = (spec.clone(), schema.clone(), output.clone());
        Run::new(move || Box::new(GroupTopN::new(spec.clone(), schema.clone(), output.clone()).unwrap()))
    };
    let mut runs = [make(), make()];
    let mut weights = vec![0i64; rows.num_rows()];
    let mut result = BTreeMap::new();
    for epoch in 0..10 {
        let mut picks = vec![];
        for _ in 0..[9, 0, 5, 20][epoch % 4] {
            let i = rng.random_range(0..weights.len());
            let least = if append_only_input { 1 } else { -weights[i] };
            let w = rng.random_range(least..=2);
            weights[i] += w;
            picks.push((i as u32, w));
        }
        if epoch == 9 && !append_only_input {
            picks = weights.iter().enumerate().map(|(i, w)| (i as u32, -w)).collect();
            weights.fill(0);
        }
        picks.shuffle(&mut rng);
        let d = delta(&rows, &picks, true);
        let whole = runs[0].epoch(vec![d.clone()], 0);
        assert_eq!(runs[1].epoch(cut(&mut rng, &d), 0), whole);
        runs[1].reincarnate(epoch == 5);
        let mut once = std::collections::BTreeSet::new();
        assert!(whole.iter().all(|(r, w)| *w != 0 && once.insert(r.clone())), "{whole:?}");
        apply(&mut result, &whole);
        assert_eq!(result, model(&rows, &weights, &spec), "seed {seed}, epoch {epoch}, {spec:?}");
        if append_only_input && kind == RankKind::RowNumber && spec.partition.is_empty() {
            let kept = runs[1].tables.ordered(0).unwrap().len();
            assert!(kept <= spec.limit, "{kept} rows are kept for {}", spec.limit);
        }
    }
}

#[test]
fn follows_the_model() {
    for kind in [RankKind::RowNumber, RankKind::Rank, RankKind::DenseRank] {
        for seed in 0..12 {
            run(kind, seed, false);
            run(kind, seed, true);
        }
    }
}
