//! Tests of the writers: whole results in every format.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::reader::StreamReader;

use super::*;

fn people() -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("score", DataType::Float64, true),
        Field::new("ok", DataType::Boolean, true),
    ]);
    RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int64Array::from(vec![1, 20, 300])),
            Arc::new(StringArray::from(vec![Some("Ann"), None, Some("O\"Neil, Bo")])),
            Arc::new(Float64Array::from(vec![Some(0.5), Some(f64::NAN), None])),
            Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
        ],
    )
    .unwrap()
}

fn write(format: Format, layout: Layout, batches: &[RecordBatch]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = row_writer(format, &batches[0].schema(), layout).unwrap();
    for batch in batches {
        writer.write(batch, &mut out).unwrap();
    }
    writer.finish(&mut out).unwrap();
    out
}

#[track_caller]
fn check(format: Format, layout: Layout, batches: &[RecordBatch], expect: &str) {
    assert_eq!(String::from_utf8(write(format, layout, batches)).unwrap(), expect);
}

fn strings(name: &str, values: Vec<Option<&str>>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new(name, DataType::Utf8, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(StringArray::from(values))]).unwrap()
}

#[test]
fn tables_align_as_psql_does() {
    check(
        Format::Table,
        Layout::default(),
        &[people()],
        " id  |    name    | score | ok
-----+------------+-------+----
   1 | Ann        |   0.5 | t
  20 |            |   NaN | f
 300 | O\"Neil, Bo |       |
(3 rows)

",
    );
    check(
        Format::Table,
        Layout::default(),
        &[people().slice(0, 0)],
        " id | name | score | ok\n----+------+-------+----\n(0 rows)\n\n",
    );
}

#[test]
fn tables_continue_lines_and_hide_control_characters() {
    check(
        Format::Table,
        Layout::default(),
        &[strings("a", vec![Some("x\nlong"), Some("\x1b[31m"), Some("日本")])],
        "    a\n----------\n x       +\n long\n \\x1B[31m\n 日本\n(3 rows)\n\n",
    );
}

#[test]
fn tables_stream_after_the_sample() {
    let schema = Schema::new(vec![Field::new("n", DataType::Int32, false)]);
    let batch = |from: i32| {
        let numbers = Int32Array::from_iter_values(from..from + 600);
        RecordBatch::try_new(Arc::new(schema.clone()), vec![Arc::new(numbers)]).unwrap()
    };
    let out = String::from_utf8(write(Format::Table, Layout::default(), &[batch(0), batch(600), batch(1200)])).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2 + 1800 + 2);
    assert_eq!((lines[2], lines[1001], lines[1002], lines[1801]), ("   0", " 999", " 1000", " 1799"));
    assert_eq!(lines[1802], "(1800 rows)");
}

#[test]
fn endless_tables_print_at_once_and_count_nothing() {
    let mut out = Vec::new();
    let layout = Layout { endless: true, expanded: false };
    let mut writer = row_writer(Format::Table, &people().schema(), layout).unwrap();
    writer.write(&strings("ab", vec![Some("x")]), &mut out).unwrap();
    assert!(!out.is_empty());
    check(
        Format::Table,
        layout,
        &[strings("ab", vec![Some("x")]), strings("ab", vec![Some("yyyy")])],
        " ab\n----\n x\n yyyy\n",
    );
}

#[test]
fn expanded_tables_have_a_line_per_value() {
    check(
        Format::Table,
        Layout { endless: false, expanded: true },
        &[people().slice(0, 1)],
        "-[ RECORD 1 ]\nid    | 1\nname  | Ann\nscore | 0.5\nok    | t\n\n",
    );
}

#[test]
fn csv_quotes_and_tells_null_from_empty() {
    check(
        Format::Csv,
        Layout::default(),
        &[people()],
        "id,name,score,ok\n1,Ann,0.5,t\n20,,NaN,f\n300,\"O\"\"Neil, Bo\",,\n",
    );
    check(Format::Csv, Layout::default(), &[strings("a,b", vec![Some(""), None])], "\"a,b\"\n\"\"\n\n");
    check(Format::Csv, Layout::default(), &[people().slice(0, 0)], "id,name,score,ok\n");
}

#[test]
fn json_is_valid_and_typed() {
    let expect = r#"[{"id":1,"name":"Ann","score":0.5,"ok":true},
 {"id":20,"name":null,"score":"NaN","ok":false},
 {"id":300,"name":"O\"Neil, Bo","score":null,"ok":null}]
"#;
    check(Format::Json, Layout::default(), &[people()], expect);
    let parsed: serde_json::Value = serde_json::from_str(expect).unwrap();
    assert_eq!(parsed[2]["name"], "O\"Neil, Bo");
    check(Format::Json, Layout::default(), &[people().slice(0, 0)], "[]\n");
    check(
        Format::Ndjson,
        Layout::default(),
        &[people().slice(0, 1), people().slice(1, 1)],
        "{\"id\":1,\"name\":\"Ann\",\"score\":0.5,\"ok\":true}\n{\"id\":20,\"name\":null,\"score\":\"NaN\",\"ok\":false}\n",
    );
    check(Format::Ndjson, Layout::default(), &[strings("k", vec![Some("a\u{1}\n")])], "{\"k\":\"a\\u0001\\n\"}\n");
}

#[test]
fn json_nests() {
    let mut list = ListBuilder::new(Int32Builder::new());
    list.append_value([Some(1), None]);
    let stamps = TimestampMicrosecondArray::from(vec![1_500_000]).with_timezone("UTC");
    let batch = RecordBatch::try_from_iter(vec![
        ("l", Arc::new(list.finish()) as ArrayRef),
        ("t", Arc::new(stamps) as ArrayRef),
        ("d", Arc::new(Decimal128Array::from(vec![150]).with_precision_and_scale(5, 2).unwrap()) as ArrayRef),
    ])
    .unwrap();
    check(
        Format::Ndjson,
        Layout::default(),
        &[batch],
        "{\"l\":[1,null],\"t\":\"1970-01-01T00:00:01.5+00:00\",\"d\":1.50}\n",
    );
}

#[test]
fn arrow_streams_read_back() {
    let bytes = write(Format::Arrow, Layout::default(), &[people(), people()]);
    let read: Vec<RecordBatch> = StreamReader::try_new(&bytes[..], None).unwrap().map(|b| b.unwrap()).collect();
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].num_rows(), 3);
    let empty = people();
    let mut out = Vec::new();
    row_writer(Format::Arrow, &empty.schema(), Layout::default()).unwrap().finish(&mut out).unwrap();
    assert_eq!(StreamReader::try_new(&out[..], None).unwrap().count(), 0);
}
