//! Tests of the sinks.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Int64Type, SchemaRef};

use super::csv::CsvOptions;
use super::sink::{Flatten, StreamSink, TextFormat};
use super::{Options, Polled, SinkWriter, open_sink, open_source};
use crate::env::SystemClock;
use crate::types::{Delta, Result};

fn rows() -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(vec![
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3])) as arrow::array::ArrayRef, true),
        ("s", Arc::new(StringArray::from(vec![Some("a,\"b"), None, Some("c")])), true),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![0, 1_500_000, 2_000_001])), true),
    ])
    .unwrap()
}

fn changes() -> Delta {
    Delta::new(rows(), Some(Int64Array::from(vec![2, -1, 0]))).unwrap()
}

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn open(dir: &Path, pairs: &[(&str, &str)], append_only: bool) -> Result<Box<dyn SinkWriter>> {
    open_sink(&options(pairs), None, rows().schema(), append_only, None, dir)
}

fn stream(changelog: bool, format: TextFormat, epochs: &[&[Delta]]) -> String {
    let schema: SchemaRef = rows().schema();
    let flatten = Flatten::new(&schema, changelog, true).unwrap();
    let mut sink = StreamSink { out: Vec::new(), flatten, format, first: true };
    for (i, d) in epochs.iter().enumerate() {
        sink.write_epoch(i as u64 + 1, d).unwrap();
    }
    sink.finish().unwrap();
    String::from_utf8(sink.out).unwrap()
}

#[test]
fn text_rows() {
    let csv = TextFormat::Csv(CsvOptions { header: true, delimiter: b',', null: String::new() });
    assert_eq!(
        stream(false, TextFormat::Json, &[&[Delta::insert(rows().slice(0, 2))], &[]]),
        "{\"id\":1,\"s\":\"a,\\\"b\",\"at\":\"1970-01-01 00:00:00\"}\n{\"id\":2,\"s\":null,\"at\":\"1970-01-01 00:00:01.500\"}\n"
    );
    assert_eq!(
        stream(true, csv, &[&[changes()], &[Delta::insert(rows().slice(2, 1))]]),
        "__op,id,s,at\n+,1,\"a,\"\"b\",1970-01-01 00:00:00\n+,1,\"a,\"\"b\",1970-01-01 00:00:00\n\
         -,2,,1970-01-01 00:00:01.500\n+,3,c,1970-01-01 00:00:02.000001\n"
    );
}

#[test]
fn file_sink_writes_each_epoch_once() {
    for format in ["json", "csv", "parquet"] {
        let dir = tempfile::tempdir().unwrap();
        let o = [("connector", "file"), ("path", "out"), ("format", format)];
        let mut sink = open(dir.path(), &o, true).unwrap();
        assert_eq!(sink.last_epoch().unwrap(), None);
        sink.write_epoch(1, &[Delta::insert(rows()), Delta::insert(rows())]).unwrap();
        sink.write_epoch(2, &[]).unwrap();
        sink.write_epoch(7, &[Delta::insert(rows())]).unwrap();
        drop(sink);
        // The process died between a part and its index line, and in the middle of an index line.
        let out = dir.path().join("out");
        fs::write(out.join(format!("part-{:020}.{format}", 8)), "torn").unwrap();
        let index = out.join("_spate_index.json");
        let mut text = fs::read_to_string(&index).unwrap();
        assert_eq!(text.lines().count(), 2);
        text.push_str("{\"epoch\":8,\"pa");
        fs::write(&index, text).unwrap();
        let mut sink = open(dir.path(), &o, true).unwrap();
        assert_eq!(sink.last_epoch().unwrap(), Some(7));
        sink.write_epoch(7, &[Delta::insert(rows())]).unwrap();
        sink.write_epoch(8, &[Delta::insert(rows().slice(0, 1))]).unwrap();
        sink.finish().unwrap();
        // Read back by the file source.
        let o = options(&[("connector", "file"), ("path", "out")]);
        let source =
            open_source(&o, None, Some(rows().schema()), &[], dir.path(), Arc::new(SystemClock::new())).unwrap();
        let mut ids = Vec::new();
        for s in source.splits(true, 1).unwrap() {
            let mut r = source.open(&s, 0, &[0, 1, 2]).unwrap();
            while let Polled::Batch { rows, dead, .. } = r.poll(100, None).unwrap() {
                assert_eq!(dead, vec![]);
                ids.extend_from_slice(rows.column(0).as_primitive::<Int64Type>().values());
            }
        }
        assert_eq!(ids, [1, 2, 3, 1, 2, 3, 1, 2, 3, 1], "{format}");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 4);
    }
}

#[test]
fn sinks_refuse_what_they_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    let o = [("connector", "file"), ("path", "out"), ("format", "json")];
    let e = open(dir.path(), &o, false).err().unwrap();
    assert!(e.message().contains("cannot take rows away") && e.hint().unwrap().contains("changelog"), "{e}");
    let mut sink =
        open(dir.path(), &[("connector", "file"), ("path", "out"), ("format", "json"), ("changelog", "true")], false)
            .unwrap();
    sink.write_epoch(3, &[changes()]).unwrap();
    let text = fs::read_to_string(dir.path().join(format!("out/part-{:020}.json", 3))).unwrap();
    assert_eq!(text.lines().filter(|l| l.starts_with("{\"__op\":\"+\",\"id\":1")).count(), 2);
    assert_eq!(text.lines().filter(|l| l.starts_with("{\"__op\":\"-\",\"id\":2")).count(), 1);
    assert_eq!(text.lines().count(), 3);
    let e = open(dir.path(), &[("connector", "blckhole")], true).err().unwrap();
    assert!(e.hint().unwrap().contains("\"blackhole\""));
    let e = open(dir.path(), &[("connector", "stdout"), ("format", "parquet")], true).err().unwrap();
    assert!(e.message().contains("cannot write parquet"), "{e}");
    let e = open(dir.path(), &[("connector", "blackhole"), ("path", "x")], true).err().unwrap();
    assert!(e.message().contains("no option \"path\""), "{e}");
    let mut hole = open(dir.path(), &[("connector", "blackhole")], false).unwrap();
    hole.write_epoch(1, &[changes()]).unwrap();
    hole.finish().unwrap();
    // Plain rows of an append-only sink are never taken away.
    let mut plain = open(dir.path(), &[("connector", "file"), ("path", "p"), ("format", "csv")], true).unwrap();
    assert!(plain.write_epoch(1, &[changes()]).is_err());
}
