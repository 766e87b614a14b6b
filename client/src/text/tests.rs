//! Tests of the text format, type by type.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int32Type, IntervalMonthDayNano};

use super::*;

#[track_caller]
fn check(array: impl Array + 'static, expect: &[&str]) {
    let array: ArrayRef = Arc::new(array);
    let column = Column::new(array.as_ref()).unwrap();
    let got: Vec<String> = (0..array.len()).map(|row| column.text(row).unwrap_or("<null>".into())).collect();
    assert_eq!(got, expect);
}

#[test]
fn scalars() {
    check(BooleanArray::from(vec![Some(true), Some(false), None]), &["t", "f", "<null>"]);
    check(Int64Array::from(vec![i64::MIN, 0]), &["-9223372036854775808", "0"]);
    check(Float64Array::from(vec![0.1, 1e20]), &["0.1", "1e+20"]);
    check(StringViewArray::from(vec!["a b", ""]), &["a b", ""]);
    check(BinaryArray::from(vec![&b"\x00a"[..]]), &["\\x0061"]);
    check(Date32Array::from(vec![0, 20_484]), &["1970-01-01", "2026-01-31"]);
    check(TimestampMicrosecondArray::from(vec![1_500_000]), &["1970-01-01 00:00:01.5"]);
    check(TimestampMicrosecondArray::from(vec![1_000_000]).with_timezone("Europe/Berlin"), &["1970-01-01 00:00:01+00"]);
    check(Time64MicrosecondArray::from(vec![3_600_000_000]), &["01:00:00"]);
    check(
        IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 2, 3_000_000_000)]),
        &["1 mon 2 days 00:00:03"],
    );
    check(DurationMillisecondArray::from(vec![1_500]), &["00:00:01.5"]);
    check(NullArray::new(1), &["<null>"]);
}

#[test]
fn decimals_keep_their_scale() {
    check(
        Decimal128Array::from(vec![12_300, -5, 0]).with_precision_and_scale(10, 2).unwrap(),
        &["123.00", "-0.05", "0.00"],
    );
    check(Decimal128Array::from(vec![42]).with_precision_and_scale(10, 0).unwrap(), &["42"]);
}

#[test]
fn dictionaries_are_their_values() {
    let array: DictionaryArray<Int32Type> = vec![Some("x"), None, Some("y")].into_iter().collect();
    check(array, &["x", "<null>", "y"]);
}

#[test]
fn arrays_quote_what_needs_it() {
    let mut list = ListBuilder::new(StringBuilder::new());
    for item in ["1", "a b", "", "null", "a\"b\\", "{}", ","] {
        list.values().append_value(item);
    }
    list.values().append_null();
    list.append(true);
    list.append(true);
    list.append(false);
    check(list.finish(), &[r#"{1,"a b","","null","a\"b\\","{}",",",NULL}"#, "{}", "<null>"]);
}

#[test]
fn arrays_nest_without_quotes_and_heed_slices() {
    let mut lists = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
    for values in [vec![1, 2], vec![3]] {
        for v in values {
            lists.values().values().append_value(v);
        }
        lists.values().append(true);
    }
    lists.append(true);
    lists.values().values().append_value(4);
    lists.values().append(true);
    lists.append(true);
    let array = lists.finish();
    check(array.clone(), &["{{1,2},{3}}", "{{4}}"]);
    check(array.slice(1, 1), &["{{4}}"]);
}

#[test]
fn structs_print_as_rows() {
    let fields: Fields = vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)].into();
    let rows = StructArray::new(
        fields,
        vec![
            Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])),
            Arc::new(StringArray::from(vec![Some("x"), Some("a,\"b"), None])),
        ],
        None,
    );
    check(rows.clone(), &["(1,x)", r#"(,"a,""b")"#, "(3,)"]);
    let item = Arc::new(Field::new_list_field(rows.data_type().clone(), true));
    let list = ListArray::new(item, OffsetBuffer::from_lengths([2, 1]), Arc::new(rows), None);
    check(list, &[r#"{"(1,x)","(,\"a,\"\"b\")"}"#, r#"{"(3,)"}"#]);
}

#[test]
fn maps_print_as_hstore() {
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    map.keys().append_value("k");
    map.values().append_value(1);
    map.keys().append_value("q\"");
    map.values().append_null();
    map.append(true).unwrap();
    check(map.finish(), &[r#""k"=>"1", "q\""=>NULL"#]);
}

#[test]
fn sixteen_bytes_are_a_uuid() {
    check(
        FixedSizeBinaryArray::try_from_iter(std::iter::once([1u8; 16])).unwrap(),
        &["01010101-0101-0101-0101-010101010101"],
    );
}
