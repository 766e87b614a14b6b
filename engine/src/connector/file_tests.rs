//! Tests of the `file` source, through the registry as a user's options reach it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};

use super::{DeadLetter, FormatSpec, Options, Polled, SourceConnector, Split, SplitReader, open_source};
use crate::env::SystemClock;
use crate::types::{Result, SpateError};

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn open(dir: &Path, pairs: &[(&str, &str)], declared: Option<SchemaRef>) -> Result<Arc<dyn SourceConnector>> {
    let mut o = options(pairs);
    o.insert("connector".into(), "file".into());
    open_source(&o, None, declared, &[], dir, Arc::new(SystemClock::new()))
}

fn fail(dir: &Path, pairs: &[(&str, &str)], declared: Option<SchemaRef>) -> SpateError {
    open(dir, pairs, declared).err().unwrap()
}

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(fields.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
}

const STAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Reads until there is nothing more for now; the rows and the dead letters.
fn drain(
    reader: &mut dyn SplitReader,
    schema: &SchemaRef,
    max: usize,
    until: Option<u64>,
) -> (RecordBatch, Vec<DeadLetter>) {
    let (mut batches, mut all) = (Vec::new(), Vec::new());
    while let Polled::Batch { rows, dead, .. } = reader.poll(max, until).unwrap() {
        assert!(rows.num_rows() <= max);
        batches.push(rows);
        all.extend(dead);
    }
    (concat_batches(schema, &batches).unwrap(), all)
}

fn all_columns(source: &dyn SourceConnector) -> Vec<usize> {
    (0..source.schema().fields().len()).collect()
}

fn read_split(source: &dyn SourceConnector, split: &Split) -> (RecordBatch, Vec<DeadLetter>) {
    let mut r = source.open(split, split.start, &all_columns(source)).unwrap();
    drain(r.as_mut(), &source.schema(), 100, None)
}

fn read(source: &dyn SourceConnector) -> (RecordBatch, Vec<DeadLetter>) {
    let (mut batches, mut all) = (Vec::new(), Vec::new());
    for s in source.splits(false, 2).unwrap() {
        let (b, d) = read_split(source, &s);
        batches.push(b);
        all.extend(d);
    }
    (concat_batches(&source.schema(), &batches).unwrap(), all)
}

fn ints(batch: &RecordBatch, column: usize) -> Vec<Option<i64>> {
    batch.column(column).as_primitive::<Int64Type>().iter().collect()
}

fn texts(batch: &RecordBatch, column: usize) -> Vec<Option<&str>> {
    batch.column(column).as_string::<i32>().iter().collect()
}

#[test]
fn json_is_inferred() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("a.ndjson"),
        "\u{feff}{\"i\":1,\"f\":1,\"t\":\"2015-07-15 00:00:00.123\",\"z\":\"2015-07-15T02:00:00+02:00\",\"s\":\"x\",\"b\":true,\"n\":{\"k\": [1]},\"big\":9223372036854775808}\r\n\
         \n  \n{\"f\":2.5,\"i\":null,\"s\":\"\\u00e9\\ud83d\\ude00\\n\",\"extra\":[]}",
    )
    .unwrap();
    let source = open(dir.path(), &[("path", "a.ndjson")], None).unwrap();
    let types: Vec<(String, DataType)> =
        source.schema().fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect();
    let expected = [
        ("i", DataType::Int64),
        ("f", DataType::Float64),
        ("t", STAMP),
        ("z", STAMP),
        ("s", DataType::Utf8),
        ("b", DataType::Boolean),
        ("n", DataType::Utf8),
        ("big", DataType::Decimal128(38, 0)),
        ("extra", DataType::Utf8),
    ];
    assert_eq!(types, expected.map(|(n, t)| (n.to_owned(), t)));
    assert!(source.bounded());
    let (rows, dead) = read(source.as_ref());
    assert_eq!(dead, vec![]);
    assert_eq!(ints(&rows, 0), [Some(1), None]);
    assert_eq!(rows.column(2).as_primitive::<TimestampMicrosecondType>().value(0), 1_436_918_400_123_000);
    assert_eq!(rows.column(3).as_primitive::<TimestampMicrosecondType>().value(0), 1_436_918_400_000_000);
    assert_eq!(texts(&rows, 4), [Some("x"), Some("é😀\n")]);
    assert_eq!(texts(&rows, 6), [Some("{\"k\": [1]}"), None]);
    assert_eq!(texts(&rows, 8), [None, Some("[]")]);
}

#[test]
fn bad_json_records_become_dead_letters_and_their_neighbours_survive() {
    let dir = tempfile::tempdir().unwrap();
    let good = "{\"a\":1,\"b\":\"x\"}\n";
    let bad: [(&[u8], &str); 14] = [
        (b"{\"a\":", "ends where"),
        (b"1}", "expected an object"),
        (b"{\"a\":\"x\"}", "column \"a\": expected bigint, found \"x\""),
        (b"{\"a\":1.5}", "column \"a\": expected bigint, found 1.5"),
        (b"{\"a\":9223372036854775808}", "expected bigint"),
        (b"{\"a\":1} {\"a\":2}", "expected the end of the record"),
        (b"{\"a\":[1]}", "column \"a\": expected bigint, found [1]"),
        (b"{\"a\":true}", "found true"),
        (b"{\"a\":1,}", "expected a string"),
        (b"{\"a\":01}", "expected"),
        (b"{\"a\":2,\"b\":\"\xff\"}", "invalid UTF-8"),
        (b"{\"a\":2,\"b\":\"\\ud800\"}", "surrogate"),
        (b"[1,2]", "expected an object"),
        (b"{\"b\":\"no a\"}", "column \"a\" must not be NULL"),
    ];
    let mut text: Vec<u8> = good.into();
    let mut offsets = Vec::new();
    for (b, _) in bad {
        offsets.push(text.len() as u64);
        text.extend_from_slice(b);
        text.push(b'\n');
        text.extend_from_slice(good.as_bytes());
    }
    fs::write(dir.path().join("bad.json"), text).unwrap();
    let declared =
        Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false), Field::new("b", DataType::Utf8, true)]));
    let source = open(dir.path(), &[("path", "bad.json")], Some(declared)).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!(ints(&rows, 0), vec![Some(1); bad.len() + 1]);
    assert_eq!(dead.iter().map(|d| d.offset).collect::<Vec<_>>(), offsets);
    for (d, (text, error)) in dead.iter().zip(bad) {
        assert!(d.error.contains(error), "{}: {}", d.text, d.error);
        assert_eq!(d.text, String::from_utf8_lossy(text));
    }
}

#[test]
fn deep_nesting_is_a_dead_letter_and_no_crash() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("d.json"), format!("{{\"a\":{}}}\n{{\"a\":\"1\"}}\n", "[".repeat(100_000))).unwrap();
    let source = open(dir.path(), &[("path", "d.json")], Some(schema(&[("a", DataType::Int64)]))).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!((ints(&rows, 0), dead.len()), (vec![Some(1)], 1));
    assert!(dead[0].error.contains("nested deeper"));
    assert_eq!(dead[0].text.len(), 4096);
}

#[test]
fn json_names_match_exactly_first_and_then_in_any_case() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("c.json"),
        "{\"AB\":1,\"ab\":2}\n{\"ab\":3,\"AB\":4}\n{\"Ab\":5}\n{\"\\u0061b\":6}\n{}\n",
    )
    .unwrap();
    let source = open(dir.path(), &[("path", "c.json")], Some(schema(&[("ab", DataType::Int64)]))).unwrap();
    assert_eq!(ints(&read(source.as_ref()).0, 0), [Some(2), Some(3), Some(5), Some(6), None]);
}

#[test]
fn json_types() {
    let dir = tempfile::tempdir().unwrap();
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let s = schema(&[
        ("d", DataType::Decimal128(10, 2)),
        ("day", DataType::Date32),
        ("time", DataType::Time64(TimeUnit::Microsecond)),
        ("u", DataType::FixedSizeBinary(16)),
        ("bytes", DataType::Binary),
        ("l", DataType::List(item)),
        ("span", DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano)),
        ("small", DataType::Int16),
        ("ts", STAMP),
    ]);
    fs::write(
        dir.path().join("t.json"),
        "{\"d\":12.5,\"day\":\"2024-02-29\",\"time\":\"01:02:03.5\",\"u\":\"123e4567-e89b-12d3-a456-426614174000\",\"bytes\":\"\\\\x00ff\",\"l\":[1,null],\"span\":\"1 month 2 days\",\"small\":\"7\",\"ts\":1000}\n\
         {\"l\":[\"x\"]}\n{\"small\":40000}\n{\"l\":[1.5]}\n{\"span\":\"soon\"}\n{\"day\":\"2023-02-29\"}\n{\"l\":[]}\n",
    )
    .unwrap();
    let source = open(dir.path(), &[("path", "t.json")], Some(s)).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!(rows.num_rows(), 2);
    let shown: Vec<String> =
        rows.columns().iter().map(|c| arrow::util::display::array_value_to_string(c, 0).unwrap()).collect();
    assert_eq!(shown[0], "12.50");
    assert_eq!(shown[1], "2024-02-29");
    assert_eq!(shown[2], "01:02:03.500");
    assert_eq!(shown[4], "00ff");
    assert_eq!(shown[5], "[1, ]");
    assert_eq!(shown[7], "7");
    assert_eq!(shown[8], "1970-01-01T00:00:00.001");
    let errors: Vec<&str> = dead.iter().map(|d| d.error.as_str()).collect();
    assert_eq!(errors.len(), 5);
    assert!(errors[0].contains("expected bigint[], found [\"x\"]"), "{errors:?}");
    assert!(errors[1].contains("expected smallint, found 40000"), "{errors:?}");
}

#[test]
fn long_records_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{{\"a\":1,\"x\":\"{}\"}}", "y".repeat(1 << 20));
    fs::write(dir.path().join("l.json"), format!("{{\"a\":1}}\n{long}\n{{\"a\":2}}\n{long}")).unwrap();
    let s = schema(&[("a", DataType::Int64)]);
    let source = open(dir.path(), &[("path", "l.json"), ("max_record_bytes", "100kB")], Some(s)).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!(ints(&rows, 0), [Some(1), Some(2)]);
    assert_eq!(dead.len(), 2);
    assert_eq!((dead[0].offset, dead[0].text.len()), (8, 4096));
    assert!(dead[0].error.contains("max_record_bytes (100000 bytes)"), "{}", dead[0].error);
    // One that fits into the buffer but not under the limit is judged the same.
    fs::write(dir.path().join("m.json"), "{\"a\":1234567890}\n{\"a\":2}\n").unwrap();
    let s = schema(&[("a", DataType::Int64)]);
    let source = open(dir.path(), &[("path", "m.json"), ("max_record_bytes", "10")], Some(s)).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!((ints(&rows, 0), dead.len()), (vec![Some(2)], 1));
}

#[test]
fn wide_records() {
    let dir = tempfile::tempdir().unwrap();
    let record = |n: usize| {
        let members: Vec<String> = (0..10_000).map(|i| format!("\"c{i}\":{}", i * n)).collect();
        format!("{{{}}}\n", members.join(","))
    };
    fs::write(dir.path().join("w.json"), format!("{}{}{}", record(1), record(2), record(3))).unwrap();
    let source = open(dir.path(), &[("path", "w.json")], None).unwrap();
    assert_eq!(source.schema().fields().len(), 10_000);
    let split = source.splits(true, 1).unwrap().remove(0);
    let mut r = source.open(&split, 0, &[9_999, 3]).unwrap();
    let Polled::Batch { rows, dead, .. } = r.poll(10, None).unwrap() else { panic!() };
    assert_eq!(dead, vec![]);
    assert_eq!(ints(&rows, 0), [Some(9_999), Some(19_998), Some(29_997)]);
    assert_eq!(ints(&rows, 1), [Some(3), Some(6), Some(9)]);
    let (rows, _) = read(source.as_ref());
    assert_eq!(ints(&rows, 5_000), [Some(5_000), Some(10_000), Some(15_000)]);
}

/// Every way to cut a file into splits, polls and replays gives the same rows.
#[test]
fn splits_and_replays_give_each_row_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for i in 0..700 {
        text.push_str(&format!("{{\"a\":{i},\"pad\":\"{}\"}}", "p".repeat(i % 37)));
        text.push_str(if i % 5 == 0 { "\r\n" } else { "\n" });
        if i % 11 == 0 {
            text.push_str("\nbroken\n");
        }
    }
    fs::write(dir.path().join("s.json"), text.trim_end()).unwrap();
    let s = schema(&[("a", DataType::Int64)]);
    let source = open(dir.path(), &[("path", "s.json"), ("split_bytes", "1KiB")], Some(s.clone())).unwrap();
    let splits = source.splits(false, 4).unwrap();
    assert!(splits.len() > 10);
    let expected: Vec<Option<i64>> = (0..700).map(Some).collect();
    let (rows, dead) = read(source.as_ref());
    assert_eq!(ints(&rows, 0), expected);
    assert_eq!(dead.len(), 64);
    assert_eq!(source.splits(true, 4).unwrap().len(), 1);
    for split in &splits {
        let mut offsets = vec![split.start];
        let mut parts = Vec::new();
        let mut r = source.open(split, split.start, &[0]).unwrap();
        while let Polled::Batch { rows, dead, progress } = r.poll(3, None).unwrap() {
            let (done, total) = progress.unwrap();
            assert!(done <= total);
            parts.push((rows, dead));
            offsets.push(r.offset());
        }
        for (i, range) in offsets.windows(2).enumerate() {
            let mut again = source.open(split, range[0], &[0]).unwrap();
            let (rows, dead) = drain(again.as_mut(), &s, 2, Some(range[1]));
            assert_eq!(again.offset(), range[1]);
            assert_eq!((&rows, &dead), (&parts[i].0, &parts[i].1));
        }
        let whole = concat_batches(&s, parts.iter().map(|p| &p.0)).unwrap();
        for &from in &offsets {
            let mut again = source.open(split, from, &[0]).unwrap();
            let (rows, _) = drain(again.as_mut(), &s, 100, None);
            assert_eq!(rows, whole.slice(whole.num_rows() - rows.num_rows(), rows.num_rows()));
        }
    }
}

#[test]
fn no_columns_still_count() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("n.json"), "{\"a\":1}\n{\"a\":2}\n").unwrap();
    let source = open(dir.path(), &[("path", "n.json")], None).unwrap();
    let split = source.splits(false, 1).unwrap().remove(0);
    let Polled::Batch { rows, .. } = source.open(&split, 0, &[]).unwrap().poll(10, None).unwrap() else { panic!() };
    assert_eq!((rows.num_rows(), rows.num_columns()), (2, 0));
}

#[test]
fn csv() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("a.csv"),
        "id,name,at,zip,x\n1,\"a \"\"b\"\"\nc\",2024-01-01 00:00:00,01234,1.5\n\n2,,2024-01-02,00001,\r\n3,\"\",,1,-1e3\nx,y\n",
    )
    .unwrap();
    let source = open(dir.path(), &[("path", "a.csv")], None).unwrap();
    let types: Vec<DataType> = source.schema().fields().iter().map(|f| f.data_type().clone()).collect();
    assert_eq!(types, [DataType::Int64, DataType::Utf8, STAMP, DataType::Utf8, DataType::Float64]);
    let (rows, dead) = read(source.as_ref());
    assert_eq!(ints(&rows, 0), [Some(1), Some(2), Some(3)]);
    assert_eq!(texts(&rows, 1), [Some("a \"b\"\nc"), None, Some("")]);
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].error, "expected 5 fields, found 2");
    // Declared: by name, in any order, strict types.
    let s = schema(&[("X", DataType::Int64), ("id", DataType::Int64)]);
    let source = open(dir.path(), &[("path", "a.csv")], Some(s)).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!((ints(&rows, 0), ints(&rows, 1)), (vec![None, Some(-1000)], vec![Some(2), Some(3)]));
    assert_eq!(dead[0].error, "column \"X\": expected bigint, found \"1.5\"");
    let e = fail(dir.path(), &[("path", "a.csv")], Some(schema(&[("nmae", DataType::Utf8)])));
    assert!(e.message().contains("has no column \"nmae\""), "{e}");
    assert_eq!(e.hint(), Some("did you mean \"name\"?"));
}

#[test]
fn csv_header_with_a_name_left_out() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("p.csv"), "\u{feff},\"a b\"\n0,5\n1,6").unwrap();
    let source = open(dir.path(), &[("path", "p.csv")], None).unwrap();
    let names: Vec<&str> = vec!["column1", "a b"];
    assert_eq!(source.schema().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>(), names);
    assert_eq!(ints(&read(source.as_ref()).0, 1), [Some(5), Some(6)]);
    fs::write(dir.path().join("h.csv"), "a,b").unwrap();
    let source = open(dir.path(), &[("path", "h.csv")], None).unwrap();
    assert_eq!((source.schema().fields().len(), read(source.as_ref()).0.num_rows()), (2, 0));
}

#[test]
fn csv_without_header_and_with_other_signs() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.txt"), "1;NULL\n2;\"NULL\"").unwrap();
    let o = [("path", "a.txt"), ("format", "csv"), ("header", "false"), ("delimiter", ";"), ("null", "NULL")];
    let source = open(dir.path(), &o, None).unwrap();
    assert_eq!(source.schema().field(0).name(), "column1");
    assert_eq!(texts(&read(source.as_ref()).0, 1), [None, Some("NULL")]);
    let source = open(dir.path(), &o, Some(schema(&[("a", DataType::Int64), ("b", DataType::Utf8)]))).unwrap();
    assert_eq!(ints(&read(source.as_ref()).0, 0), [Some(1), Some(2)]);
}

/// A stray quote costs its own line only.
#[test]
fn csv_quotes_that_do_not_close() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("q.csv"), "a,b\n1,\"open\n2,\"x\"\n3,\"y\" z\n4,w\"w\n5,\"end\n6,z\n").unwrap();
    let s = schema(&[("a", DataType::Int64), ("b", DataType::Utf8)]);
    let source = open(dir.path(), &[("path", "q.csv")], Some(s.clone())).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!(ints(&rows, 0), [Some(2), Some(4), Some(6)]);
    assert_eq!(dead.iter().map(|d| d.text.as_str()).collect::<Vec<_>>(), ["1,\"open", "3,\"y\" z", "5,\"end"]);
    let split = source.splits(false, 1).unwrap().remove(0);
    let mut one = source.open(&split, 0, &[0, 1]).unwrap();
    let mut seen = 0;
    while let Polled::Batch { rows, .. } = one.poll(1, None).unwrap() {
        seen += rows.num_rows();
        let mut rest = source.open(&split, one.offset(), &[0, 1]).unwrap();
        assert_eq!(drain(rest.as_mut(), &s, 10, None).0.num_rows(), 3 - seen);
    }
}

#[test]
fn a_file_changed_while_being_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    fs::write(&path, "{\"a\":1}\n".repeat(100_000)).unwrap();
    let source = open(dir.path(), &[("path", "a.json")], None).unwrap();
    let split = source.splits(false, 1).unwrap().remove(0);
    let mut r = source.open(&split, 0, &[0]).unwrap();
    assert!(matches!(r.poll(10, None).unwrap(), Polled::Batch { .. }));
    fs::write(&path, "{\"a\":2}\n".repeat(100_001)).unwrap();
    let e = loop {
        match r.poll(1000, None) {
            Ok(Polled::Batch { .. }) => {}
            Ok(other) => panic!("{other:?}"),
            Err(e) => break e,
        }
    };
    assert!(e.message().contains("was changed while being read"), "{e}");
    assert!(source.open(&split, 8, &[0]).is_err());
}

#[test]
fn watch_follows_new_files_and_new_lines() {
    let dir = tempfile::tempdir().unwrap();
    let s = schema(&[("a", DataType::Int64)]);
    let o = [("path", "*.json"), ("mode", "watch")];
    let source = open(dir.path(), &o, Some(s.clone())).unwrap();
    assert!(!source.bounded() && source.discover_every().is_some());
    assert_eq!(source.splits(false, 2).unwrap(), vec![]);
    let path = dir.path().join("b.json");
    fs::write(&path, "{\"a\":1}\n{\"a\":").unwrap();
    let splits = source.splits(false, 2).unwrap();
    assert_eq!(splits.len(), 1);
    let mut r = source.open(&splits[0], 0, &[0]).unwrap();
    assert_eq!(ints(&drain(r.as_mut(), &s, 10, None).0, 0), [Some(1)]);
    assert_eq!(r.offset(), 8);
    for _ in 0..3 {
        assert!(matches!(r.poll(10, None).unwrap(), Polled::Pending(_)));
    }
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"2}\n{\"a\":3}\n{\"a\":4}").unwrap();
    assert_eq!(ints(&drain(r.as_mut(), &s, 10, None).0, 0), [Some(2), Some(3)]);
    fs::write(dir.path().join("a.json"), "{\"a\":9}\n").unwrap();
    let more = source.splits(false, 2).unwrap();
    assert_eq!(more.len(), 2);
    assert!(more.contains(&splits[0]));
    // After a restart at an offset.
    let mut again = source.open(&splits[0], 8, &[0]).unwrap();
    assert_eq!(ints(&drain(again.as_mut(), &s, 10, None).0, 0), [Some(2), Some(3)]);
    // Truncated.
    file.set_len(10).unwrap();
    let e = r.poll(10, None).err().unwrap();
    assert!(e.message().contains("was truncated or replaced"), "{e}");
    // Replaced.
    let replaced = more.iter().find(|s| s.id.ends_with("a.json")).unwrap();
    let mut r = source.open(replaced, 0, &[0]).unwrap();
    drain(r.as_mut(), &s, 10, None);
    fs::write(dir.path().join("new"), "{\"a\":9}\n{\"a\":10}\n").unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("a.json")).unwrap();
    assert!(r.poll(10, None).is_err());
}

fn parquet_file(path: &Path, batch: &RecordBatch, group: usize) {
    let props = parquet::file::properties::WriterProperties::builder().set_max_row_group_row_count(Some(group)).build();
    let mut w =
        parquet::arrow::ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), Some(props)).unwrap();
    w.write(batch).unwrap();
    w.close().unwrap();
}

fn mixed(n: i64) -> RecordBatch {
    use arrow::array::{DictionaryArray, Int64Array, LargeStringArray, TimestampNanosecondArray, UInt32Array};
    let names: Vec<String> = (0..n).map(|i| format!("n{}", i % 3)).collect();
    let dict: DictionaryArray<arrow::datatypes::Int32Type> = names.iter().map(|s| Some(s.as_str())).collect();
    RecordBatch::try_from_iter(vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..n)) as arrow::array::ArrayRef),
        ("at", Arc::new(TimestampNanosecondArray::from_iter_values((0..n).map(|i| i * 1_000_999)))),
        ("name", Arc::new(LargeStringArray::from_iter_values(&names))),
        ("kind", Arc::new(dict)),
        ("u", Arc::new(UInt32Array::from_iter_values((0..n).map(|i| i as u32)))),
    ])
    .unwrap()
}

#[test]
fn parquet_and_arrow() {
    let dir = tempfile::tempdir().unwrap();
    let batch = mixed(1000);
    parquet_file(&dir.path().join("a.parquet"), &batch, 300);
    let mut w =
        arrow::ipc::writer::FileWriter::try_new(fs::File::create(dir.path().join("a.arrow")).unwrap(), &batch.schema())
            .unwrap();
    for i in 0..4 {
        w.write(&batch.slice(i * 250, 250)).unwrap();
    }
    w.finish().unwrap();
    for (file, splits) in [("a.parquet", 4), ("a.arrow", 1)] {
        let source = open(dir.path(), &[("path", file)], None).unwrap();
        let types: Vec<DataType> = source.schema().fields().iter().map(|f| f.data_type().clone()).collect();
        assert_eq!(types, [DataType::Int64, STAMP, DataType::Utf8, DataType::Utf8, DataType::Int64]);
        assert_eq!(source.splits(false, 1).unwrap().len(), splits);
        let (rows, dead) = read(source.as_ref());
        assert_eq!(dead, vec![]);
        assert_eq!(ints(&rows, 0), (0..1000).map(Some).collect::<Vec<_>>());
        assert_eq!(rows.column(1).as_primitive::<TimestampMicrosecondType>().value(5), 5004);
        assert_eq!(texts(&rows, 3)[..3], [Some("n0"), Some("n1"), Some("n2")]);
        // Replay, over row groups, in another order of columns.
        let whole = source.splits(true, 1).unwrap();
        assert_eq!(whole.len(), 1);
        for (from, until) in [(0, 7), (299, 301), (250, 900), (999, 1000), (600, 600)] {
            let mut r = source.open(&whole[0], from, &[2, 0]).unwrap();
            let s = Arc::new(source.schema().project(&[2, 0]).unwrap());
            let (rows, _) = drain(r.as_mut(), &s, 64, Some(until));
            assert_eq!(ints(&rows, 1), (from as i64..until as i64).map(Some).collect::<Vec<_>>());
            assert_eq!(r.offset(), until);
        }
        let Polled::Batch { rows, .. } = source.open(&whole[0], 10, &[]).unwrap().poll(5000, None).unwrap() else {
            panic!()
        };
        assert!(rows.num_rows() > 0);
        // Declared, with a type that some values do not fit.
        let s = Arc::new(Schema::new(vec![
            Field::new("ID", DataType::Int16, false),
            Field::new("kind", DataType::Utf8, true),
        ]));
        let source = open(dir.path(), &[("path", file)], Some(s)).unwrap();
        assert_eq!(read(source.as_ref()).0.num_rows(), 1000);
        let e = fail(dir.path(), &[("path", file)], Some(schema(&[("nam", DataType::Utf8)])));
        assert_eq!(e.hint(), Some("did you mean \"name\"?"));
        let e = fail(dir.path(), &[("path", file)], Some(schema(&[("id", DataType::FixedSizeBinary(16))])));
        assert!(e.message().contains("does not become uuid"), "{e}");
    }
    let s = schema(&[("name", DataType::Int64), ("id", DataType::Int64)]);
    let source = open(dir.path(), &[("path", "a.parquet")], Some(s)).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!((rows.num_rows(), dead.len()), (0, 1000));
    assert_eq!(dead[4].error, "column \"name\": expected bigint, found n1");
    assert!(dead[4].text.contains("id: 4"), "{}", dead[4].text);
}

#[test]
fn directories_globs_and_their_errors() {
    let dir = tempfile::tempdir().unwrap();
    let p = dir.path();
    fs::create_dir(p.join("d")).unwrap();
    fs::write(p.join("d/b.json"), "{\"a\":2}\n").unwrap();
    fs::write(p.join("d/a.json"), "{\"a\":1}\n").unwrap();
    fs::write(p.join("d/_index.json"), "{\"a\":7}\n").unwrap();
    fs::write(p.join("d/x.csv"), "a\n1\n").unwrap();
    fs::write(p.join("d/e.json"), "").unwrap();
    let o = [("path", "d"), ("format", "json")];
    assert_eq!(ints(&read(open(p, &o, None).unwrap().as_ref()).0, 0), [Some(1), Some(2)]);
    assert_eq!(ints(&read(open(p, &[("path", "d/[ab].json")], None).unwrap().as_ref()).0, 0), [Some(1), Some(2)]);
    let e = fail(p, &[("path", "d/*.parquet")], None);
    assert!(e.message().contains("no file matches"), "{e}");
    let e = fail(p, &[("path", "d/c.json")], None);
    assert!(e.message().contains("does not exist") && e.hint().is_some(), "{e}");
    fs::write(p.join("z.json.gz"), "").unwrap();
    assert!(fail(p, &[("path", "z.json.gz")], None).message().contains(".gz"));
    fs::write(p.join("noname"), "").unwrap();
    assert!(fail(p, &[("path", "noname")], None).message().contains("format"));
    assert!(fail(p, &[("path", "d/e.json")], None).message().contains("cannot infer"));
    fs::write(p.join("arr.json"), "[\n{\"a\":1},\n").unwrap();
    assert!(fail(p, &[("path", "arr.json")], None).message().contains("one JSON array"));
}

#[test]
fn option_errors_say_what_is_right() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.json"), "{\"a\":1}\n").unwrap();
    let check = |pairs: &[(&str, &str)], message: &str, hint: Option<&str>| {
        let e = fail(dir.path(), pairs, None);
        assert!(e.message().contains(message), "{e}");
        if let Some(h) = hint {
            assert!(e.hint().unwrap().contains(h), "{:?}", e.hint());
        }
    };
    check(&[("pth", "a.json")], "has no option \"pth\"", Some("did you mean \"path\"?"));
    check(&[], "needs the option \"path\"", None);
    check(&[("path", "")], "must not be empty", None);
    check(&[("path", "a.json"), ("mode", "wach")], "must be one of once, watch, not \"wach\"", Some("\"watch\""));
    check(&[("path", "a.json"), ("max_record_bytes", "lots")], "must be a size", None);
    check(&[("path", "a.json"), ("header", "true")], "is for CSV", None);
    check(&[("path", "a.json"), ("format", "avro")], "must be one of json", None);
    let o = options(&[("connector", "fiel"), ("path", "a.json")]);
    let clock = Arc::new(SystemClock::new());
    let e = open_source(&o, None, None, &[], dir.path(), clock.clone()).err().unwrap();
    assert!(e.message().contains("no source connector \"fiel\"") && e.hint().unwrap().contains("\"file\""), "{e}");
    let e = open_source(&Options::new(), None, None, &[], dir.path(), clock.clone()).err().unwrap();
    assert!(e.message().contains("\"connector\""));
    let o = options(&[("connector", "file"), ("path", "a.json")]);
    for (f, enc, named) in
        [("UPSERT", "CSV", "UPSERT"), ("debezium", "json", "not inferred"), ("PLAIN", "AVRO", "AVRO")]
    {
        let spec = FormatSpec { format: f.into(), encode: enc.into() };
        let e = open_source(&o, Some(&spec), None, &[], dir.path(), clock.clone()).err().unwrap();
        assert!(e.message().contains(named), "{e}");
    }
}

#[test]
fn keys_left_out_or_in_another_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for i in 0..50 {
        let mut members: Vec<String> = (0..20)
            .filter(|k| (i * 7 + k * 3) % 5 != 0 || i == 0)
            .map(|k| format!("\"k{k}\":{}", i * 100 + k))
            .collect();
        if i % 3 == 0 {
            members.reverse();
        }
        text.push_str(&format!("{{{}}}\n", members.join(" , ")));
    }
    fs::write(dir.path().join("k.json"), text).unwrap();
    let source = open(dir.path(), &[("path", "k.json")], None).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!((rows.num_rows(), dead.len()), (50, 0));
    for (c, field) in source.schema().fields().iter().enumerate() {
        let k: i64 = field.name().strip_prefix('k').unwrap().parse().unwrap();
        let expected: Vec<Option<i64>> =
            (0..50).map(|i| ((i * 7 + k * 3) % 5 != 0 || i == 0).then_some(i * 100 + k)).collect();
        assert_eq!(ints(&rows, c), expected);
    }
}

#[test]
fn places_that_are_refused_or_only_look_like_patterns() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join("x[1]");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("a.json"), "{\"a\":1}\n").unwrap();
    assert_eq!(ints(&read(open(&odd, &[("path", "*.json")], None).unwrap().as_ref()).0, 0), [Some(1)]);
    assert!(fail(&odd, &[("path", "s3://b/a.json")], None).message().contains("s3://"));
    let floats = RecordBatch::try_from_iter(vec![(
        "f",
        Arc::new(arrow::array::Float64Array::from(vec![1.7])) as arrow::array::ArrayRef,
    )])
    .unwrap();
    parquet_file(&odd.join("f.parquet"), &floats, 10);
    let e = fail(&odd, &[("path", "f.parquet")], Some(schema(&[("f", DataType::Int64)])));
    assert!(e.message().contains("has type double precision, which does not become bigint"), "{e}");
}

/// A watched Parquet file that is still being written is left alone until it is whole.
#[test]
fn watch_waits_for_whole_parquet_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    let s = schema(&[("id", DataType::Int64)]);
    let o = [("path", "in"), ("mode", "watch"), ("format", "parquet")];
    let source = open(dir.path(), &o, Some(s.clone())).unwrap();
    fs::write(dir.path().join("in/a.parquet"), "PAR1 and then").unwrap();
    assert_eq!(source.splits(false, 1).unwrap(), vec![]);
    parquet_file(&dir.path().join("in/a.parquet"), &mixed(100), 30);
    let splits = source.splits(false, 1).unwrap();
    assert_eq!(splits.len(), 1);
    assert_eq!(ints(&read_split(source.as_ref(), &splits[0]).0, 0).len(), 100);
}

/// Small numbers that look random, the same on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// serde_json is the oracle for what is valid JSON and for what strings say.
#[test]
fn json_is_accepted_as_serde_json_accepts_it() {
    let seeds = [
        r#"{"a":"x\u00e9\ud83d\ude00\n\\y","b":[1,-2.5e+3,{"c":null}],"d":true}"#,
        r#" { "a" : "" , "b" : { } , "e" : [ ] , "f" : -0.0 } "#,
        r#"{"a":"\t\"q\"","b":0,"b":1E5,"g":[[["z"]],false]}"#,
    ];
    let alphabet = b"{}[]\",:0159.eE+-tfn\\u \tabd\x01/";
    let mut dice = Dice(42);
    let s = schema(&[("a", DataType::Utf8), ("b", DataType::Utf8)]);
    let mut text = String::new();
    let mut expected = Vec::new();
    let mut good = 0;
    for n in 0..6000 {
        let mut line = seeds[n % 3].as_bytes().to_vec();
        for _ in 0..dice.roll(3) {
            let at = dice.roll(line.len());
            match dice.roll(3) {
                0 => line[at] = alphabet[dice.roll(alphabet.len())],
                1 => line.insert(at, alphabet[dice.roll(alphabet.len())]),
                _ => drop(line.remove(at)),
            }
        }
        let Ok(line) = String::from_utf8(line) else { continue };
        if line.trim().is_empty() {
            continue;
        }
        let oracle = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&line).ok();
        good += usize::from(oracle.is_some());
        expected.push((line.clone(), oracle));
        text.push_str(&line);
        text.push('\n');
    }
    assert!(good > 2000 && good < 5000, "{good}");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f.json"), text).unwrap();
    let source = open(dir.path(), &[("path", "f.json")], Some(s)).unwrap();
    let (rows, dead) = read(source.as_ref());
    let (mut row, mut letters) = (0, dead.iter());
    for (line, oracle) in expected {
        let Some(oracle) = oracle else {
            assert_eq!(letters.next().unwrap().text, line);
            continue;
        };
        // A key in another case may stand for the column too; keys here have none.
        let a = texts(&rows, 0)[row];
        match oracle.get("a") {
            Some(serde_json::Value::String(s)) => assert_eq!(a, Some(s.as_str()), "{line}"),
            None | Some(serde_json::Value::Null) => assert_eq!(a, None, "{line}"),
            Some(other) => {
                assert_eq!(&serde_json::from_str::<serde_json::Value>(a.unwrap()).unwrap(), other, "{line}");
            }
        }
        row += 1;
    }
    assert_eq!((row, letters.next()), (rows.num_rows(), None));
}

#[test]
fn csv_fields_come_back_as_they_were_written() {
    let parts = ["a", ",", "\"", "\n", "\r\n", " ", "é", "", "x\"y"];
    let mut dice = Dice(7);
    let mut text = String::from("n,v,w\n");
    let mut expected: Vec<(String, String)> = Vec::new();
    for n in 0..500 {
        let mut field = || -> String { (0..dice.roll(5)).map(|_| parts[dice.roll(parts.len())]).collect() };
        let (v, w) = (field(), field());
        let quote = |s: &str| format!("\"{}\"", s.replace('"', "\"\""));
        text.push_str(&format!("{n},{},{}{}", quote(&v), quote(&w), if n % 2 == 0 { "\n" } else { "\r\n" }));
        expected.push((v, w));
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f.csv"), text).unwrap();
    let s = schema(&[("n", DataType::Int64), ("v", DataType::Utf8), ("w", DataType::Utf8)]);
    let source = open(dir.path(), &[("path", "f.csv")], Some(s.clone())).unwrap();
    let (rows, dead) = read(source.as_ref());
    assert_eq!(dead, vec![]);
    let got: Vec<(String, String)> = texts(&rows, 1)
        .into_iter()
        .zip(texts(&rows, 2))
        .map(|(v, w)| (v.unwrap().to_owned(), w.unwrap().to_owned()))
        .collect();
    assert_eq!(got, expected);
    // From every record's offset on, the rest follows.
    let split = source.splits(false, 1).unwrap().remove(0);
    let mut r = source.open(&split, 0, &[0, 1, 2]).unwrap();
    let mut n = 0;
    while let Polled::Batch { rows: part, .. } = r.poll(7, None).unwrap() {
        n += part.num_rows();
        let mut rest = source.open(&split, r.offset(), &[0, 1, 2]).unwrap();
        assert_eq!(drain(rest.as_mut(), &s, 500, None).0, rows.slice(n, 500 - n));
    }
}

/// A watched file's columns come from its complete lines, and from a line that is still too long
/// nothing is delivered until it ends.
#[test]
fn watch_infers_and_waits_for_long_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("g.json");
    fs::write(&path, "{\"a\":1}\n{\"a\":1.5").unwrap();
    let o = [("path", "g.json"), ("mode", "watch"), ("max_record_bytes", "1kB")];
    let source = open(dir.path(), &o, None).unwrap();
    assert_eq!(source.schema().field(0).data_type(), &DataType::Int64);
    let split = source.splits(true, 1).unwrap().remove(0);
    let mut r = source.open(&split, 0, &[0]).unwrap();
    let s = source.schema();
    assert_eq!(drain(r.as_mut(), &s, 10, None).0.num_rows(), 1);
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    for _ in 0..3 {
        file.write_all(&[b'5'; 2000]).unwrap();
        assert!(matches!(r.poll(10, None).unwrap(), Polled::Pending(_)));
        assert_eq!(r.offset(), 8);
    }
    file.write_all(b"}\n{\"a\":2}\n").unwrap();
    let (rows, dead) = drain(r.as_mut(), &s, 10, None);
    assert_eq!((ints(&rows, 0), dead.len(), dead[0].offset), (vec![Some(2)], 1, 8));
    // A restart in between gives the same.
    let mut again = source.open(&split, 8, &[0]).unwrap();
    assert_eq!(drain(again.as_mut(), &s, 10, None), (rows, dead));
    assert_eq!(again.offset(), r.offset());
}

/// What becomes of records around the limit does not depend on where reading began.
#[test]
fn long_csv_records_are_judged_the_same_from_every_offset() {
    let mut dice = Dice(3);
    let mut text = String::from("n,v\n");
    for n in 0..300 {
        let body: String = (0..dice.roll(60)).map(|_| ["x", "\n", "y,", "\"\"", "z"][dice.roll(5)]).collect();
        text.push_str(&match dice.roll(12) {
            0 => format!("{n},\"{}\n", body.replace('\n', " ")),
            1 => format!("{n},{}\r\n", "w".repeat(30 + dice.roll(10))),
            _ => format!("{n},\"{body}\"\n"),
        });
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("l.csv"), text).unwrap();
    let s = schema(&[("n", DataType::Utf8), ("v", DataType::Utf8)]);
    for limit in ["37", "64", "90"] {
        let source = open(dir.path(), &[("path", "l.csv"), ("max_record_bytes", limit)], Some(s.clone())).unwrap();
        let split = source.splits(false, 1).unwrap().remove(0);
        let (rows, dead) = read_split(source.as_ref(), &split);
        assert!(rows.num_rows() > 50 && dead.len() > 10);
        let mut r = source.open(&split, 0, &[0, 1]).unwrap();
        let (mut n, mut d) = (0, 0);
        while let Polled::Batch { rows: part, dead: bad, .. } = r.poll(1, None).unwrap() {
            n += part.num_rows();
            d += bad.len();
            let mut rest = source.open(&split, r.offset(), &[0, 1]).unwrap();
            let (after, letters) = drain(rest.as_mut(), &s, 500, None);
            assert_eq!(after, rows.slice(n, rows.num_rows() - n));
            assert_eq!(letters, dead[d..]);
        }
    }
}
