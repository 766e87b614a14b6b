//! TopN against sorting the whole multiset; and the stateless operators.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion_expr::Operator as BinaryOp;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::*;
use crate::operator::testing::{Run, apply, cut, delta, texts};
use crate::operator::{filter::Filter, project::Project, union::Union, unnest::Unnest, values::Values};
use crate::plan::{ExprRef, FilterSpec, OrderBy, ProjectSpec, UnnestSpec, ValuesSpec};

fn pool(rng: &mut SmallRng) -> RecordBatch {
    let a: Int32Array = (0..40).map(|_| rng.random_bool(0.8).then(|| rng.random_range(0..5))).collect();
    let b: StringArray =
        (0..40).map(|_| rng.random_bool(0.8).then(|| format!("s{}", rng.random_range(0..9)))).collect();
    let schema = Schema::new(vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(a), Arc::new(b)]).unwrap()
}

#[test]
fn follows_the_model() {
    let orders: [&[(usize, bool, bool)]; 4] =
        [&[(0, true, false)], &[(1, false, true), (0, true, true)], &[], &[(1, true, true), (1, false, false)]];
    for seed in 0..12u64 {
        let order: Vec<OrderBy> = orders[seed as usize % 4]
            .iter()
            .map(|&(column, descending, nulls_first)| OrderBy { column, descending, nulls_first })
            .collect();
        let (offset, limit) = [(0, Some(5)), (3, Some(4)), (2, None), (0, None), (0, Some(0))][seed as usize % 5];
        let mut rng = SmallRng::seed_from_u64(seed);
        let rows = pool(&mut rng);
        let spec = TopNSpec { order: order.clone(), offset, limit };
        let schema = rows.schema();
        let make = || {
            let (spec, schema) = (spec.clone(), schema.clone());
            Run::new(move || Box::new(TopN::new(spec.clone(), schema.clone()).unwrap()))
        };
        let mut runs = [make(), make()];
        let mut weights = vec![0i64; rows.num_rows()];
        let mut result = BTreeMap::new();
        for epoch in 0..10 {
            let mut picks = vec![];
            for _ in 0..[10, 0, 6, 20][epoch % 4] {
                let i = rng.random_range(0..weights.len());
                let w = if epoch == 7 { -weights[i] } else { rng.random_range(-weights[i]..=2) };
                weights[i] += w;
                picks.push((i as u32, w));
            }
            picks.shuffle(&mut rng);
            let d = delta(&rows, &picks, true);
            let whole = runs[0].epoch(vec![d.clone()], 0);
            assert_eq!(runs[1].epoch(cut(&mut rng, &d), 0), whole);
            runs[1].reincarnate(epoch == 5);
            let mut once = std::collections::BTreeSet::new();
            assert!(whole.iter().all(|(r, w)| *w != 0 && once.insert(r.clone())));
            apply(&mut result, &whole);
            // The model: all rows, one by one, sorted by the order and then by the whole row.
            let copies: Vec<u32> =
                weights.iter().enumerate().flat_map(|(i, &w)| std::iter::repeat_n(i as u32, w as usize)).collect();
            let all = arrow::compute::take_record_batch(&rows, &arrow::array::UInt32Array::from(copies)).unwrap();
            let column = |c: usize, descending, nulls_first| arrow::compute::SortColumn {
                values: all.column(c).clone(),
                options: Some(SortOptions { descending, nulls_first }),
            };
            let mut by: Vec<_> = order.iter().map(|o| column(o.column, o.descending, o.nulls_first)).collect();
            by.extend([column(0, false, true), column(1, false, true)]);
            let sorted = arrow::compute::lexsort_to_indices(&by, None).unwrap();
            let keep: Vec<u32> =
                sorted.values().iter().copied().skip(offset).take(limit.unwrap_or(usize::MAX)).collect();
            let kept = arrow::compute::take_record_batch(&all, &arrow::array::UInt32Array::from(keep)).unwrap();
            let mut want = BTreeMap::new();
            apply(&mut want, &texts(&Delta::insert(kept)));
            assert_eq!(result, want, "seed {seed}, epoch {epoch}");
        }
    }
}

fn ints(name: &str, v: Vec<Option<i64>>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new(name, DataType::Int64, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(v))]).unwrap()
}

fn strings(rows: &[(&str, i64)]) -> Vec<(String, i64)> {
    rows.iter().map(|(r, w)| (r.to_string(), *w)).collect()
}

/// What a stateless operator makes of one delta.
fn through(mut op: impl Operator, d: Delta) -> Vec<(String, i64)> {
    let mut out = Output::default();
    op.push(0, d, &mut Tables::default(), &mut out).unwrap();
    out.take().iter().flat_map(texts).collect()
}

#[test]
fn filters_and_projections_keep_weights() {
    let rows = ints("x", vec![Some(1), None, Some(5)]);
    let d = Delta::new(rows, Some(vec![2, 1, -3].into())).unwrap();
    let x: ExprRef = Arc::new(Column::new("x", 0));
    let two: ExprRef = Arc::new(Literal::new(datafusion_common::ScalarValue::Int64(Some(2))));
    let more: ExprRef = Arc::new(BinaryExpr::new(x.clone(), BinaryOp::Gt, two.clone()));
    assert_eq!(through(Filter::new(FilterSpec { predicate: more }), d.clone()), strings(&[("5", -3)]));
    let null: ExprRef = Arc::new(Literal::new(datafusion_common::ScalarValue::Null));
    assert_eq!(through(Filter::new(FilterSpec { predicate: null }), d.clone()), vec![]);
    let schema =
        Arc::new(Schema::new(vec![Field::new("two", DataType::Int64, true), Field::new("y", DataType::Int64, true)]));
    let project = Project::new(ProjectSpec { exprs: vec![two, x] }, schema).unwrap();
    assert_eq!(through(project, d.clone()), strings(&[("2|1", 2), ("2|NULL", 1), ("2|5", -3)]));
    let other = ints("other name", vec![Some(1)]);
    let mut out = Output::default();
    Union::new(other.schema()).push(1, d, &mut Tables::default(), &mut out).unwrap();
    assert_eq!(out.take()[0].schema(), other.schema());
}

#[test]
fn constant_rows_come_once() {
    let rows = ints("x", vec![Some(1), Some(1)]);
    let mut run = Run::new(move || Box::new(Values::new(ValuesSpec { rows: rows.clone() })));
    assert_eq!(run.epoch(vec![], 0), strings(&[("1", 1), ("1", 1)]));
    run.reincarnate(true);
    assert_eq!(run.epoch(vec![], 0), vec![]);
}

#[test]
fn lists_unfold_side_by_side() {
    let list = |v: Vec<Option<Vec<Option<i64>>>>| ListArray::from_iter_primitive::<Int64Type, _, _>(v);
    let a = list(vec![Some(vec![Some(1), None, Some(3)]), None, Some(vec![]), Some(vec![Some(9)])]);
    let b = list(vec![Some(vec![Some(7)]), None, None, Some(vec![Some(8), Some(6)])]);
    let field = |n: &str, t: &DataType| Field::new(n, t.clone(), true);
    let schema = Schema::new(vec![field("a", a.data_type()), field("k", &DataType::Int64), field("b", b.data_type())]);
    let k = Int64Array::from(vec![0, 1, 2, 3]);
    let rows = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(a), Arc::new(k), Arc::new(b)]).unwrap();
    // A slice, so that offsets do not start at 0.
    let d = Delta::new(rows, Some(vec![1, 1, 1, -2].into())).unwrap();
    let int = DataType::Int64;
    let out = Arc::new(Schema::new(vec![field("a", &int), field("k", &int), field("b", &int)]));
    let op = |preserve_nulls| Unnest::new(UnnestSpec { columns: vec![0, 2], preserve_nulls }, out.clone());
    let tail = [("9|3|8", -2), ("NULL|3|6", -2)];
    assert_eq!(through(op(false), d.slice(1, 3)), strings(&tail));
    let head = [("1|0|7", 1), ("NULL|0|NULL", 1), ("3|0|NULL", 1), ("NULL|1|NULL", 1), ("NULL|2|NULL", 1)];
    assert_eq!(through(op(true), d), strings(&[&head[..], &tail[..]].concat()));
}
