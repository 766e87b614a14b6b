//! Rows from one task to others: cut by hash, closed at a barrier, taken by the consumers.

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use spate_engine::env::SystemStorage;
use spate_engine::exchange::{Channel, HandOver, Receiver, Router, Sender, Spill};
use spate_engine::plan::Distribution;
use spate_engine::types::{Barrier, Delta, Tick, WATERMARK_MIN};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: i64 = 8192;

fn delta() -> Delta {
    let schema = Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("s", DataType::Utf8, true)]);
    let k: Vec<i64> = (0..BATCH).map(|i| i * 7919 % 50_000).collect();
    let s: Vec<String> = k.iter().map(|k| format!("row of key {k}")).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(k)), Arc::new(StringArray::from(s))];
    Delta::insert(RecordBatch::try_new(Arc::new(schema), columns).expect("columns fit"))
}

fn barrier(epoch: u64) -> Barrier {
    let at = epoch as i64;
    let tick = Tick { incarnation: 1, term: 1, epoch, opened_us: at - 1, now_us: at };
    Barrier { tick, ranges: Arc::from([]), watermark: WATERMARK_MIN, complete: false }
}

fn exchange(c: &mut Criterion) {
    let d = delta();
    let schema = d.schema();
    for (name, to, consumers) in [
        ("hash to 2", Distribution::Hash(vec![0]), 2),
        ("hash to 8", Distribution::Hash(vec![0]), 8),
        ("to one", Distribution::Single, 1),
    ] {
        let spill = Spill::new(1 << 30, Arc::new(SystemStorage));
        let channels: Vec<Arc<Channel>> =
            (0..consumers).map(|_| Channel::new(schema.clone(), spill.clone(), HandOver::WholeEpoch, false)).collect();
        let senders = channels.iter().map(|c| Sender::new(c.clone(), 1)).collect();
        let receivers: Vec<Receiver> = channels.iter().map(|c| Receiver::new(c.clone())).collect();
        let mut router = Router::new(to, senders, 0);
        let mut epoch = 0;
        let mut group = c.benchmark_group("exchange");
        group.throughput(Throughput::Elements(BATCH as u64 * 8));
        group.bench_function(name, |b| {
            b.iter(|| {
                epoch += 1;
                (0..8).for_each(|_| router.send(d.clone()).expect("send"));
                for i in 0..router.len() {
                    router.close(i, &barrier(epoch)).expect("close");
                }
                for r in &receivers {
                    let data = r.epoch(epoch).expect("closed");
                    for i in 0..data.len() {
                        black_box(data.get(i, &schema).expect("delta"));
                    }
                    r.channel().trim(epoch + 1);
                }
            });
        });
        group.finish();
    }
}

criterion_group!(benches, exchange);
criterion_main!(benches);
