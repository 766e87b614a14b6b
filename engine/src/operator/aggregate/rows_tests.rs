//! A function of sorted rows for the model of `tests.rs`: it lists its rows as text.
#![allow(clippy::unwrap_used)]

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::row::{RowConverter, SortField};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::Accumulator;

use super::tests::{R, batch, schema, text};
use super::*;
use crate::operator::testing::Run;
use crate::plan::{AggCall, AggFunc, OrderBy, RowsCall, RowsFunction};

#[derive(Debug)]
struct List;

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("list()")
    }
}

impl RowsFunction for List {
    fn start(&self) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Listed(vec![])))
    }
}

#[derive(Debug)]
struct Listed(Vec<String>);

impl Accumulator for Listed {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        for i in 0..columns[0].len() {
            let row: Vec<String> = columns.iter().map(|c| text(c.slice(i, 1))).collect();
            self.0.push(row.join(":"));
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Utf8((!self.0.is_empty()).then(|| self.0.join(","))))
    }

    fn size(&self) -> usize {
        0
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("not merged")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("not merged")
    }
}

/// A call that lists these columns (descending?, NULLs first?).
pub(super) fn listed(
    columns: &[(usize, bool, bool)],
    distinct: bool,
    filter: Option<usize>,
    not_null: Option<usize>,
    first: Option<usize>,
) -> AggCall {
    let order = |&(column, descending, nulls_first): &(usize, bool, bool)| OrderBy { column, descending, nulls_first };
    AggCall {
        func: AggFunc::Rows,
        arg: None,
        other: None,
        distinct,
        filter,
        outward: false,
        arg_type: DataType::Null,
        result_type: DataType::Utf8,
        rows: Some(RowsCall {
            columns: columns.iter().map(order).collect(),
            not_null,
            first,
            function: Arc::new(List),
        }),
    }
}

/// What such a call gives for rows with weights.
pub(super) fn expected_list(call: &RowsCall, distinct: bool, rows: &[(&R, i64)]) -> String {
    let fields = call.columns.iter().map(|o| {
        let options = SortOptions { descending: o.descending, nulls_first: o.nulls_first };
        SortField::new_with_options(schema().field(o.column).data_type().clone(), options)
    });
    let codec = RowConverter::new(fields.collect()).unwrap();
    let mut all: Vec<(Vec<u8>, String)> = vec![];
    for (r, w) in rows {
        let b = batch(std::slice::from_ref(*r));
        let columns: Vec<ArrayRef> = call.columns.iter().map(|o| b.column(o.column).clone()).collect();
        if call.not_null.is_some_and(|n| columns[n].is_null(0)) {
            continue;
        }
        let key = codec.convert_columns(&columns).unwrap().row(0).data().to_vec();
        let shown: Vec<String> = columns.into_iter().map(text).collect();
        all.extend((0..*w).map(|_| (key.clone(), shown.join(":"))));
    }
    all.sort();
    if distinct {
        all.dedup();
    }
    all.truncate(call.first.unwrap_or(usize::MAX));
    if all.is_empty() { "NULL".into() } else { all.into_iter().map(|a| a.1).collect::<Vec<_>>().join(",") }
}

/// More rows than are decoded at once, in one group and over many.
#[test]
fn many_rows() {
    let input =
        Arc::new(Schema::new(vec![Field::new("g", DataType::Int64, true), Field::new("x", DataType::Int64, true)]));
    let call = listed(&[(1, true, false)], false, None, None, None);
    let output =
        Arc::new(Schema::new(vec![Field::new("g", DataType::Int64, true), Field::new("l", DataType::Utf8, true)]));
    let n = 10_000i64;
    let spec = AggregateSpec {
        group: vec![0],
        calls: vec![call],
        append_only_input: false,
        window: None,
        emit_on_close: false,
        always: vec![],
        phase: Phase::Whole,
    };
    let schema = input.clone();
    let mut run = Run::new(move || Box::new(HashAggregate::new(spec.clone(), &schema, output.clone()).unwrap()));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((0..n).map(|i| if i < n / 2 { 0 } else { i }))),
        Arc::new(Int64Array::from_iter_values(0..n)),
    ];
    let rows = RecordBatch::try_new(input, columns).unwrap();
    let weights = Int64Array::from_iter_values((0..n).map(|i| if i % 3 == 0 { 2 } else { 1 }));
    let out = run.epoch(vec![Delta::new(rows, Some(weights)).unwrap()], 0);
    assert_eq!(out.len() as i64, n / 2 + 1);
    let mut want = vec![];
    for i in (0..n / 2).rev() {
        want.extend(std::iter::repeat_n(i.to_string(), if i % 3 == 0 { 2 } else { 1 }));
    }
    assert_eq!(out[0].0, format!("0|{}", want.join(",")));
    assert_eq!(out[1].0, "5000|5000");
    assert_eq!(out.last().unwrap().0, "9999|9999,9999");
}
