//! From bytes to rows: bids as JSON lines, CSV and Parquet, all columns and three of seven.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use spate_benches::data;
use spate_engine::connector::generate::Format;
use spate_engine::connector::{Polled, open_source};
use spate_engine::env::SystemClock;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EVENTS: u64 = 100_000;

/// Reads a file from its start to its end.
fn read(path: &Path, projection: &[usize]) -> usize {
    let options =
        BTreeMap::from([("connector".to_owned(), "file".to_owned()), ("path".to_owned(), path.display().to_string())]);
    let source = open_source(&options, None, None, &[], Path::new("/"), Arc::new(SystemClock::new())).expect("source");
    let mut rows = 0;
    for split in source.splits(false, 1).expect("splits") {
        let mut reader = source.open(&split, split.start, projection).expect("reader");
        loop {
            match reader.poll(8192, None).expect("rows") {
                Polled::Batch { rows: batch, dead, .. } => {
                    assert!(dead.is_empty());
                    rows += black_box(batch).num_rows();
                }
                Polled::Pending(_) => {}
                Polled::End => break,
            }
        }
    }
    rows
}

fn decode(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("directory");
    for (ending, format) in [("json", Format::Json), ("csv", Format::Csv), ("parquet", Format::Parquet)] {
        let folder = data::nexmark(dir.path(), EVENTS, format).expect("files");
        let file = folder.join(format!("bid.{ending}"));
        for (columns, projection) in [("all", &[0, 1, 2, 3, 4, 5, 6][..]), ("3 of 7", &[0, 2, 5][..])] {
            let rows = read(&file, projection);
            let mut group = c.benchmark_group("decode");
            group.throughput(Throughput::Elements(rows as u64)).sample_size(20);
            group.bench_function(format!("{ending}, {columns} columns"), |b| b.iter(|| read(&file, projection)));
            group.finish();
        }
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
