//! Tests of the sources that make their rows, and of generated files.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use nexmark::EventGenerator;
use nexmark::config::NexmarkConfig;
use nexmark::event::{Event, EventType};
use parking_lot::Mutex;

use super::generate::{Format, generate_nexmark};
use super::{Options, Polled, SourceConnector, open_source};
use crate::env::{Clock, SystemClock};
use crate::types::{ErrorKind, Result};

fn open_with(
    pairs: &[(&str, &str)],
    declared: Option<SchemaRef>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn SourceConnector>> {
    let o: Options = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    open_source(&o, None, declared, &[], std::path::Path::new("/"), clock)
}

fn open(pairs: &[(&str, &str)], declared: Option<SchemaRef>) -> Result<Arc<dyn SourceConnector>> {
    open_with(pairs, declared, Arc::new(SystemClock::new()))
}

/// All rows of all splits, sorted by nothing: split after split.
fn read(source: &dyn SourceConnector, columns: &[usize], parallelism: usize) -> RecordBatch {
    let schema = Arc::new(source.schema().project(columns).unwrap());
    let mut batches = Vec::new();
    for s in source.splits(false, parallelism).unwrap() {
        let mut r = source.open(&s, s.start, columns).unwrap();
        while let Polled::Batch { rows, .. } = r.poll(64, None).unwrap() {
            batches.push(rows);
        }
        assert!(matches!(r.poll(64, None).unwrap(), Polled::End));
    }
    concat_batches(&schema, &batches).unwrap()
}

fn ints(a: &ArrayRef) -> Vec<i64> {
    a.as_primitive::<Int64Type>().values().to_vec()
}

fn nexmark(table: &str, events: &str, seed: &str) -> Arc<dyn SourceConnector> {
    open(&[("connector", "nexmark"), ("table", table), ("events", events), ("seed", seed)], None).unwrap()
}

/// The crate's own generator is the oracle for ours.
#[test]
fn generating_can_be_stopped_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let stop = generate_nexmark(dir.path(), 100_000, Format::Json, 5, &mut |_, _| ControlFlow::Break(()));
    assert_eq!(stop.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn nexmark_bids_are_those_of_the_crate() {
    let config = NexmarkConfig { base_time: 1_436_918_400_000, ..NexmarkConfig::default() };
    let bids = nexmark("bid", "5000", "0");
    let rows = read(bids.as_ref(), &[0, 1, 2, 3, 4, 5, 6], 1);
    let times = rows.column(5).as_primitive::<TimestampMicrosecondType>();
    let mut i = 0;
    for event in EventGenerator::new(config).take(5000) {
        let Event::Bid(b) = event else { continue };
        let text = |c: usize| rows.column(c).as_string::<i32>().value(i);
        let int = |c: usize| rows.column(c).as_primitive::<Int64Type>().value(i);
        assert_eq!((int(0), int(1), int(2)), (b.auction as i64, b.bidder as i64, b.price as i64), "bid {i}");
        assert_eq!((text(3), text(4), text(6)), (b.channel.as_str(), b.url.as_str(), b.extra.as_str()), "bid {i}");
        assert_eq!(times.value(i), b.date_time as i64 * 1000);
        i += 1;
    }
    assert_eq!((i, rows.num_rows()), (4600, 4600));
    // Fewer columns are the same columns.
    let few = read(bids.as_ref(), &[5, 2], 1);
    assert_eq!((few.column(0), few.column(1)), (rows.column(5), rows.column(2)));
    assert_eq!(read(bids.as_ref(), &[5], 1).column(0), rows.column(5));
    assert_eq!(read(bids.as_ref(), &[], 1).num_rows(), 4600);
}

#[test]
fn nexmark_people_and_auctions_are_those_of_the_crate() {
    let config = NexmarkConfig { base_time: 1_436_918_400_000, ..NexmarkConfig::default() };
    let people = read(nexmark("person", "10000", "0").as_ref(), &[0, 1, 7], 1);
    let auctions = read(nexmark("auction", "10000", "0").as_ref(), &[0, 7, 6], 1);
    let oracle = EventGenerator::new(config.clone()).with_type_filter(EventType::Person);
    for (i, e) in oracle.take(200).enumerate() {
        let Event::Person(p) = e else { panic!() };
        assert_eq!(ints(people.column(0))[i], p.id as i64);
        assert_eq!(people.column(1).as_string::<i32>().value(i), p.name);
        assert_eq!(people.column(2).as_string::<i32>().value(i), p.extra);
    }
    let oracle = EventGenerator::new(config).with_type_filter(EventType::Auction);
    for (i, e) in oracle.take(600).enumerate() {
        let Event::Auction(a) = e else { panic!() };
        assert_eq!((ints(auctions.column(0))[i], ints(auctions.column(1))[i]), (a.id as i64, a.seller as i64));
        assert_eq!(auctions.column(2).as_primitive::<TimestampMicrosecondType>().value(i), a.expires as i64 * 1000);
    }
    assert_eq!((people.num_rows(), auctions.num_rows()), (200, 600));
}

#[test]
fn nexmark_seeds_differ_and_ids_begin_at_1000() {
    let bids = |seed| read(nexmark("bid", "20000", seed).as_ref(), &[0, 1, 2], 1);
    let (a, b) = (bids("1"), bids("7"));
    assert_ne!(a, b);
    assert_eq!(a, bids("1"));
    let auctions = read(nexmark("auction", "20000", "1").as_ref(), &[0, 7], 1);
    assert_eq!(ints(auctions.column(0)), (1000..2200).collect::<Vec<i64>>());
    for (column, most) in [(0, 2200 + 20), (1, 1400 + 20)] {
        assert!(ints(a.column(column)).iter().all(|v| (1000..most).contains(v)));
    }
    assert!(ints(auctions.column(1)).iter().all(|v| (1000..1420).contains(v)));
    assert!(ints(b.column(0)).iter().any(|v| *v > 2000));
}

#[test]
fn nexmark_splits_are_disjoint_and_replay() {
    let source = nexmark("bid", "12345", "3");
    let sorted = |n| {
        let b = read(source.as_ref(), &[0, 1, 2], n);
        let mut rows: Vec<_> =
            (0..b.num_rows()).map(|i| [0, 1, 2].map(|c| b.column(c).as_primitive::<Int64Type>().value(i))).collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(sorted(1), sorted(3));
    let split = source.splits(false, 3).unwrap().remove(1);
    let (mut parts, mut offsets) = (Vec::new(), vec![0]);
    let mut r = source.open(&split, 0, &[2]).unwrap();
    while let Polled::Batch { rows, .. } = r.poll(333, None).unwrap() {
        parts.push(rows);
        offsets.push(r.offset());
    }
    for (i, w) in offsets.windows(2).enumerate() {
        let mut again = source.open(&split, w[0], &[2]).unwrap();
        let mut got = Vec::new();
        while let Polled::Batch { rows, .. } = again.poll(100, Some(w[1])).unwrap() {
            got.push(rows);
        }
        assert_eq!(again.offset(), w[1]);
        assert_eq!(concat_batches(&parts[i].schema(), &got).unwrap(), parts[i]);
    }
}

struct Hand(Mutex<Duration>);

impl Clock for Hand {
    /// 1,000,000 s after 1970 when monotonic time is 0.
    fn now_us(&self) -> i64 {
        1_000_000_000_000 + self.monotonic().as_micros() as i64
    }
    fn monotonic(&self) -> Duration {
        *self.0.lock()
    }
}

#[test]
fn rates_follow_the_clock() {
    let clock = Arc::new(Hand(Mutex::new(Duration::from_secs(5))));
    let declared = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let nexmark = open_with(&[("connector", "nexmark"), ("table", "bid"), ("rate", "1000")], None, clock.clone());
    let datagen = open_with(&[("connector", "datagen"), ("rate", "1000")], Some(declared), clock.clone());
    for source in [nexmark.unwrap(), datagen.unwrap()] {
        assert!(!source.bounded());
        let split = source.splits(true, 1).unwrap().remove(0);
        let mut r = source.open(&split, 100, &[0]).unwrap();
        assert!(matches!(r.poll(10_000, None).unwrap(), Polled::Pending(d) if d > Duration::ZERO));
        *clock.0.lock() += Duration::from_millis(250);
        assert!(matches!(r.poll(10_000, None).unwrap(), Polled::Batch { .. }));
        assert_eq!(r.offset(), 350);
        // Made before: at once.
        assert!(matches!(r.poll(10_000, Some(400)).unwrap(), Polled::Batch { .. }));
        assert_eq!(r.offset(), 400);
    }
}

#[test]
fn live_events_happen_by_the_clock() {
    let clock = Arc::new(Hand(Mutex::new(Duration::from_secs(5))));
    let options = [("connector", "nexmark"), ("table", "bid"), ("rate", "1000"), ("base_time", "now")];
    let source = open_with(&options, None, clock.clone()).unwrap();
    // They were going on when reading began.
    *clock.0.lock() += Duration::from_millis(100);
    let split = source.splits(false, 1).unwrap().remove(0);
    let place = source.schema().index_of("date_time").unwrap();
    let mut r = source.open(&split, 0, &[place]).unwrap();
    let mut newest = |end: u64| {
        let Polled::Batch { rows, .. } = r.poll(10_000, None).unwrap() else { panic!("no rows") };
        assert_eq!(r.offset(), end);
        rows.column(0).as_primitive::<TimestampMicrosecondType>().values().last().copied().unwrap()
    };
    assert_eq!(newest(100), 1_000_005_099_000);
    *clock.0.lock() += Duration::from_millis(50);
    assert_eq!(newest(150), 1_000_005_149_000);
    // A task that comes back goes on from where time is.
    let mut again = source.open(&split, 120, &[place]).unwrap();
    again.poll(10_000, None).unwrap();
    assert_eq!(again.offset(), 150);
    let e = open(&[("connector", "nexmark"), ("table", "bid"), ("events", "5"), ("base_time", "now")], None);
    assert!(e.err().unwrap().message().contains("with a rate only"));
}

#[test]
fn nexmark_options() {
    let e = open(&[("connector", "nexmark")], None).err().unwrap();
    assert!(e.message().contains("needs the option \"table\""), "{e}");
    let e = open(&[("connector", "nexmark"), ("table", "bids")], None).err().unwrap();
    assert!(e.hint().unwrap().contains("\"bid\""));
    let e = open(&[("connector", "nexmark"), ("type", "bid"), ("events", "-1")], None).err().unwrap();
    assert!(e.message().contains("\"events\"") && e.message().contains("\"-1\""), "{e}");
    let s = Arc::new(Schema::new(vec![Field::new("pric", DataType::Int64, true)]));
    let e = open(&[("connector", "nexmark"), ("type", "bid")], Some(s)).err().unwrap();
    assert_eq!(e.hint(), Some("did you mean \"price\"?"));
    let s = Arc::new(Schema::new(vec![Field::new("PRICE", DataType::Int64, true)]));
    let o = [("connector", "nexmark"), ("type", "bid"), ("events", "100"), ("base_time", "2020-01-01 00:00:00")];
    let source = open(&o, Some(s)).unwrap();
    assert_eq!(read(source.as_ref(), &[0], 1).schema().field(0).name(), "PRICE");
}

fn every_type() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
        Field::new("d", DataType::Decimal128(10, 2), true),
        Field::new("f", DataType::Float64, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("day", DataType::Date32, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        Field::new("small", DataType::Int16, true),
    ]))
}

#[test]
fn datagen() {
    let o = [
        ("connector", "datagen"),
        ("rows", "3000"),
        ("seed", "1"),
        ("fields.id.kind", "sequence"),
        ("fields.id.start", "10"),
        ("fields.s.length", "5"),
        ("fields.s.null_rate", "0.5"),
        ("fields.d.min", "1.5"),
        ("fields.d.max", "2"),
        ("fields.day.min", "2024-01-01"),
        ("fields.day.max", "2024-01-01"),
    ];
    let source = open(&o, Some(every_type())).unwrap();
    let all: Vec<usize> = (0..8).collect();
    let rows = read(source.as_ref(), &all, 1);
    assert_eq!(ints(rows.column(0)), (10..3010).collect::<Vec<i64>>());
    let nulls = rows.column(1).null_count();
    assert!((1200..1800).contains(&nulls), "{nulls}");
    assert!(rows.column(1).as_string::<i32>().iter().flatten().all(|s| s.len() == 5));
    let d = rows.column(2).as_primitive::<arrow::datatypes::Decimal128Type>();
    assert!(d.values().iter().all(|v| (150..=200).contains(v)));
    assert!(d.values().contains(&150) && d.values().contains(&200));
    assert_eq!(arrow::util::display::array_value_to_string(rows.column(5), 7).unwrap(), "2024-01-01");
    assert_eq!(read(source.as_ref(), &[3], 1).column(0), rows.column(3));
    // Another split, from an offset: the same rows.
    let mut ids = ints(read(source.as_ref(), &[0], 3).column(0));
    ids.sort_unstable();
    assert_eq!(ids, ints(rows.column(0)));
    let split = source.splits(true, 1).unwrap().remove(0);
    let mut r = source.open(&split, 1234, &all).unwrap();
    let Polled::Batch { rows: part, .. } = r.poll(10, Some(1240)).unwrap() else { panic!() };
    assert_eq!(part, rows.slice(1234, 6));
    let check = |extra: (&str, &str), message: &str| {
        let mut o = o.to_vec();
        o.push(extra);
        let e = open(&o, Some(every_type())).err().unwrap();
        assert!(e.message().contains(message), "{e}");
        e
    };
    assert!(open(&o, None).err().unwrap().message().contains("declared columns"));
    assert_eq!(check(("fields.dayy.min", "1"), "not declared").hint(), Some("did you mean \"fields.day.min\"?"));
    assert_eq!(check(("fields.s.lenght", "1"), "no option").hint(), Some("did you mean \"fields.s.length\"?"));
    check(("fields.s.min", "1"), "has no use");
    check(("fields.small.max", "40000"), "must be a smallint");
    check(("fields.id.null_rate", "0.1"), "NOT NULL");
    check(("fields.b.kind", "randm"), "must be one of");
}

#[test]
fn generated_files_hold_what_the_source_gives() {
    let dir = tempfile::tempdir().unwrap();
    for format in [Format::Parquet, Format::Json, Format::Csv] {
        let mut last = (0, 0);
        let files = generate_nexmark(dir.path(), 3000, format, 5, &mut |done, of| {
            last = (done, of);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(last, (3000, 3000));
        assert_eq!(files.len(), 3);
        for (file, table) in files.iter().zip(["person", "auction", "bid"]) {
            let path = file.to_string_lossy();
            let o: Options = [("connector", "file"), ("path", path.as_ref())]
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect();
            let made = nexmark(table, "3000", "5");
            let clock = Arc::new(SystemClock::new());
            let source = open_source(&o, None, Some(made.schema()), &[], dir.path(), clock.clone()).unwrap();
            let all: Vec<usize> = (0..made.schema().fields().len()).collect();
            assert_eq!(read(source.as_ref(), &all, 1), read(made.as_ref(), &all, 1), "{path}");
            let inferred = open_source(&o, None, None, &[], dir.path(), clock).unwrap();
            assert_eq!(inferred.schema(), made.schema(), "{path}");
        }
    }
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(names.len(), 9, "{names:?}");
}
