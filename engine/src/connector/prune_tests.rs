//! Tests of reading only those row groups that may hold rows which a filter keeps.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion_common::ScalarValue;
use datafusion_expr::Operator::{self, And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Options, Polled, SourceConnector, SplitReader, open_source};
use crate::env::SystemClock;
use crate::plan::ExprRef;

const GROUP: usize = 100;
const COLUMNS: [&str; 4] = ["id", "name", "at", "score"];

/// Ten row groups: `id` rises and is missing in the fifth, `name` rises, `at` falls, `score` holds a NaN in each
/// group, of which a file states nothing.
fn rows() -> RecordBatch {
    let n = 10 * GROUP as i64;
    let id: Int64Array = (0..n).map(|i| (i / 100 != 4 && i % 7 != 0).then_some(i)).collect();
    let name: StringArray = (0..n).map(|i| Some(format!("name {:04} of a row", i))).collect();
    let at = TimestampMicrosecondArray::from_iter_values((0..n).map(|i| (n - i) * 1000));
    let score: Float64Array = (0..n).map(|i| Some(if i % 50 == 3 { f64::NAN } else { (i % 100) as f64 })).collect();
    let columns: [ArrayRef; 4] = [Arc::new(id), Arc::new(name), Arc::new(at), Arc::new(score)];
    RecordBatch::try_from_iter(COLUMNS.into_iter().zip(columns)).unwrap()
}

fn source(dir: &Path) -> Arc<dyn SourceConnector> {
    let path = dir.join("a.parquet");
    let props = parquet::file::properties::WriterProperties::builder().set_max_row_group_row_count(Some(GROUP)).build();
    let file = File::create(&path).unwrap();
    let mut w = parquet::arrow::ArrowWriter::try_new(file, rows().schema(), Some(props)).unwrap();
    w.write(&rows()).unwrap();
    w.close().unwrap();
    let options = [("connector", "file".to_owned()), ("path", path.display().to_string())];
    let options: Options = options.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    open_source(&options, None, None, &[], dir, Arc::new(SystemClock::new())).unwrap()
}

fn cmp(column: usize, op: Operator, value: ScalarValue) -> ExprRef {
    let (column, value) = (Arc::new(Column::new(COLUMNS[column], column)), Arc::new(Literal::new(value)));
    Arc::new(BinaryExpr::new(column, op, value))
}

fn id(op: Operator, value: i64) -> ExprRef {
    cmp(0, op, ScalarValue::Int64(Some(value)))
}

fn both(a: ExprRef, op: Operator, b: ExprRef) -> ExprRef {
    Arc::new(BinaryExpr::new(a, op, b))
}

fn keep(rows: &RecordBatch, wanted: &ExprRef) -> RecordBatch {
    let mask = wanted.evaluate(rows).unwrap().into_array(rows.num_rows()).unwrap();
    filter_record_batch(rows, mask.as_boolean()).unwrap()
}

fn drain(reader: &mut dyn SplitReader, schema: &SchemaRef, until: Option<u64>) -> RecordBatch {
    let mut batches = Vec::new();
    while let Polled::Batch { rows, dead, .. } = reader.poll(64, until).unwrap() {
        assert_eq!(dead, vec![]);
        batches.push(rows);
    }
    concat_batches(schema, &batches).unwrap()
}

/// Rows that are read for a filter, after checking that all that it keeps are among them.
fn read(source: &dyn SourceConnector, wanted: &ExprRef) -> usize {
    let split = source.splits(true, 1).unwrap().remove(0);
    let mut reader = source.open_for(&split, split.start, &[0, 1, 2, 3], wanted).unwrap();
    let got = drain(reader.as_mut(), &source.schema(), None);
    assert_eq!(reader.offset(), 10 * GROUP as u64);
    // As text, where a NaN is equal to a NaN.
    let text = |rows: &RecordBatch| format!("{:?}", keep(rows, wanted));
    assert_eq!(text(&got), text(&rows()), "{wanted}");
    got.num_rows()
}

#[test]
fn groups_without_a_wanted_row_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let text = |v: &str| ScalarValue::Utf8(Some(v.into()));
    let time = |v: i64| ScalarValue::TimestampMicrosecond(Some(v), None);
    // Nothing is known of the fifth group's ids.
    for (wanted, groups) in [
        (id(Lt, 150), 3),
        (id(Eq, 555), 2),
        (id(GtEq, 901), 2),
        (id(Gt, 5000), 1),
        (id(LtEq, -1), 1),
        (id(NotEq, 5), 10),
        (both(id(Gt, 250), And, id(Lt, 310)), 3),
        (both(id(Lt, 50), Or, id(Gt, 950)), 3),
        (both(id(Lt, 50), Or, cmp(3, Gt, ScalarValue::Float64(Some(1e9)))), 10),
        (both(id(Lt, 50), And, cmp(3, Gt, ScalarValue::Float64(Some(1e9)))), 2),
        (cmp(1, Lt, text("name 02")), 2),
        (cmp(1, Eq, text("name 0999 of a row")), 1),
        (cmp(2, LtEq, time(1000)), 1),
        (both(cmp(2, LtEq, time(1000)), And, id(Lt, 5)), 0),
        (cmp(3, Gt, ScalarValue::Float64(Some(1e9))), 10),
        (cmp(0, Gt, ScalarValue::Int64(None)), 10),
    ] {
        assert_eq!(read(source.as_ref(), &wanted), groups * GROUP, "{wanted}");
    }
    // The constant on the other side.
    let five: ExprRef = Arc::new(Literal::new(ScalarValue::Int64(Some(150))));
    let swapped = both(five, Gt, Arc::new(Column::new("id", 0)));
    assert_eq!(read(source.as_ref(), &swapped), 3 * GROUP);
}

#[test]
fn any_filter_keeps_what_it_would_keep_of_all_rows() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let mut rng = SmallRng::seed_from_u64(7);
    let mut least = usize::MAX;
    for _ in 0..300 {
        let mut wanted: Option<ExprRef> = None;
        for _ in 0..rng.random_range(1..5) {
            let op = [Eq, NotEq, Lt, LtEq, Gt, GtEq][rng.random_range(0..6)];
            let at: i64 = rng.random_range(-50..1100);
            let value = match rng.random_range(0..4) {
                0 => ScalarValue::Int64(Some(at)),
                1 => ScalarValue::Utf8(Some(format!("name {at:04}"))),
                2 => ScalarValue::TimestampMicrosecond(Some(at * 1000), None),
                _ => ScalarValue::Float64(Some((at % 120) as f64)),
            };
            let column = match value {
                ScalarValue::Int64(_) => 0,
                ScalarValue::Utf8(_) => 1,
                ScalarValue::TimestampMicrosecond(..) => 2,
                _ => 3,
            };
            let one = cmp(column, op, value);
            wanted = Some(match wanted {
                None => one,
                Some(w) => both(w, if rng.random_bool(0.5) { And } else { Or }, one),
            });
        }
        least = least.min(read(source.as_ref(), &wanted.unwrap()));
    }
    assert!(least < 10 * GROUP, "nothing was ever left out");
}

#[test]
fn what_was_left_out_is_left_out_again_in_a_replay() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let split = source.splits(true, 1).unwrap().remove(0);
    let wanted = both(id(Lt, 150), Or, id(Gt, 850));
    let (schema, columns) = (source.schema(), [0, 1, 2, 3]);
    // From within what is read and what is not, to within either.
    for (from, until) in [(0, 1000), (20, 130), (150, 250), (250, 260), (250, 450), (299, 905), (999, 1000), (7, 7)] {
        let mut r = source.open_for(&split, from, &columns, &wanted).unwrap();
        let got = drain(r.as_mut(), &schema, Some(until));
        assert_eq!(r.offset(), until.max(from));
        let part = rows().slice(from as usize, (until - from) as usize);
        assert_eq!(keep(&got, &wanted).num_rows(), keep(&part, &wanted).num_rows(), "{from}..{until}");
        // And on from there.
        let rest = drain(r.as_mut(), &schema, None);
        let part = rows().slice(until as usize, 1000 - until as usize);
        assert_eq!(keep(&rest, &wanted).num_rows(), keep(&part, &wanted).num_rows(), "{until}..");
    }
}
