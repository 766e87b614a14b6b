//! Over against recomputing every partition.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, StringArray};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type, Int64Type};
use datafusion_common::ScalarValue;
use datafusion_expr::{LimitEffect, PartitionEvaluator, WindowFrame};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::window::{StandardWindowExpr, StandardWindowFunctionExpr};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::*;
use crate::operator::testing::{Run, apply, cut, delta, texts};
use crate::plan::{OrderBy, WindowRef};

/// The sum of a column over the rows so far.
#[derive(Debug)]
struct Running(Arc<dyn PhysicalExpr>);

#[derive(Debug)]
struct Sum;

impl PartitionEvaluator for Sum {
    fn evaluate_all(&mut self, values: &[ArrayRef], _rows: usize) -> datafusion_common::Result<ArrayRef> {
        let mut sum = 0;
        let values: Vec<i64> = match values[0].data_type() {
            DataType::Int64 => values[0].as_primitive::<Int64Type>().iter().map(|v| v.unwrap_or(0)).collect(),
            _ => values[0].as_primitive::<Int32Type>().iter().map(|v| i64::from(v.unwrap_or(0))).collect(),
        };
        let sums = values.into_iter().map(|v| {
            sum += v;
            sum
        });
        Ok(Arc::new(sums.collect::<Int64Array>()))
    }

    fn evaluate(&mut self, _: &[ArrayRef], _: &std::ops::Range<usize>) -> datafusion_common::Result<ScalarValue> {
        unreachable!()
    }
}

impl StandardWindowFunctionExpr for Running {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn field(&self) -> datafusion_common::Result<FieldRef> {
        Ok(Arc::new(Field::new("sum", DataType::Int64, true)))
    }
    fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        vec![self.0.clone()]
    }
    fn create_evaluator(&self) -> datafusion_common::Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Sum))
    }
    fn limit_effect(&self) -> LimitEffect {
        LimitEffect::Unknown
    }
}

pub(crate) fn running(name: &str, column: usize) -> WindowRef {
    let f = Arc::new(Running(Arc::new(Column::new(name, column))));
    Arc::new(StandardWindowExpr::new(f, &[], &[], Arc::new(WindowFrame::new(None))))
}

fn pool(rng: &mut SmallRng) -> RecordBatch {
    let a: Int32Array = (0..30).map(|_| rng.random_bool(0.8).then(|| rng.random_range(0..4))).collect();
    let b: Int32Array = (0..30).map(|_| rng.random_bool(0.8).then(|| rng.random_range(-3..5))).collect();
    let c: StringArray = (0..30).map(|i| Some(format!("s{i}"))).collect();
    let field = |n: &str, t| Field::new(n, t, true);
    let schema =
        Schema::new(vec![field("c", DataType::Utf8), field("a", DataType::Int32), field("b", DataType::Int32)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(c), Arc::new(a), Arc::new(b)]).unwrap()
}

#[test]
fn follows_the_model() {
    for seed in 0..10u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let rows = pool(&mut rng);
        let partition = if seed % 2 == 0 { vec![1] } else { vec![] };
        let order = vec![OrderBy { column: 2, descending: seed % 3 == 0, nulls_first: false }];
        let schema = rows.schema();
        let mut fields = schema.fields().to_vec();
        fields.push(Arc::new(Field::new("x", DataType::Int64, true)));
        fields.push(Arc::new(Field::new("y", DataType::Int64, true)));
        let output = Arc::new(Schema::new(fields));
        // The second stage reads the first one's column.
        let stages = vec![vec![running("b", 2)], vec![running("x", 3)]];
        let (partition_by, order_by) = (partition.clone(), order.clone());
        let spec = OverSpec { partition: partition_by, order: order_by, stages, window: None, emit_on_close: false };
        let make = || {
            let (spec, schema, output) = (spec.clone(), schema.clone(), output.clone());
            Run::new(move || Box::new(Over::new(spec.clone(), schema.clone(), output.clone()).unwrap()))
        };
        let mut runs = [make(), make()];
        let mut weights = vec![0i64; rows.num_rows()];
        let mut result = BTreeMap::new();
        for epoch in 0..10 {
            let mut picks = vec![];
            for _ in 0..[12, 0, 6, 20][epoch % 4] {
                let i = rng.random_range(0..weights.len());
                let w = if epoch == 7 { -weights[i] } else { rng.random_range(-weights[i]..=2) };
                weights[i] += w;
                picks.push((i as u32, w));
            }
            if epoch == 9 {
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
            assert_eq!(result, model(&rows, &weights, &partition, &order[0]), "seed {seed}, epoch {epoch}");
        }
        assert!(result.is_empty());
    }
}

/// All copies sorted, with running sums and their running sums per partition.
fn model(rows: &RecordBatch, weights: &[i64], partition: &[usize], order: &OrderBy) -> BTreeMap<String, i64> {
    let copies: Vec<u32> =
        weights.iter().enumerate().flat_map(|(i, &w)| std::iter::repeat_n(i as u32, w as usize)).collect();
    let all = arrow::compute::take_record_batch(rows, &arrow::array::UInt32Array::from(copies)).unwrap();
    let column = |c: usize, descending, nulls_first| arrow::compute::SortColumn {
        values: all.column(c).clone(),
        options: Some(SortOptions { descending, nulls_first }),
    };
    let mut by: Vec<_> = partition.iter().map(|&c| column(c, false, true)).collect();
    by.push(column(order.column, order.descending, order.nulls_first));
    by.extend([column(0, false, true), column(1, false, true)]);
    let sorted =
        arrow::compute::take_record_batch(&all, &arrow::compute::lexsort_to_indices(&by, None).unwrap()).unwrap();
    let keys = sorted.column(1).as_primitive::<Int32Type>();
    let values = sorted.column(2).as_primitive::<Int32Type>();
    let (mut x, mut y) = (vec![], vec![]);
    let (mut sum, mut sums) = (0i64, 0i64);
    for i in 0..sorted.num_rows() {
        let key = |i: usize| keys.is_valid(i).then(|| keys.value(i));
        if i > 0 && !partition.is_empty() && key(i) != key(i - 1) {
            (sum, sums) = (0, 0);
        }
        sum += if values.is_valid(i) { i64::from(values.value(i)) } else { 0 };
        sums += sum;
        x.push(sum);
        y.push(sums);
    }
    let mut out = BTreeMap::new();
    for (i, (row, w)) in texts(&Delta::insert(sorted)).into_iter().enumerate() {
        apply(&mut out, &[(format!("{row}|{}|{}", x[i], y[i]), w)]);
    }
    out
}
