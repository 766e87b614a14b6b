//! One operator at a time: an epoch of changes over state that is there already.

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use spate_engine::operator::aggregate::HashAggregate;
use spate_engine::operator::distinct::Distinct;
use spate_engine::operator::group_topn::GroupTopN;
use spate_engine::operator::join::HashJoin;
use spate_engine::operator::{BarrierInfo, Operator, Output};
use spate_engine::plan::{
    AggCall, AggFunc, AggregateSpec, GroupTopNSpec, JoinKind, JoinSpec, OrderBy, Phase, RankKind,
};
use spate_engine::state::Tables;
use spate_engine::types::{Delta, Tick, WATERMARK_MIN};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: usize = 8192;
const BATCHES: usize = 16;
const KEYS: i64 = 50_000;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, None), true),
    ]))
}

fn schemas(parts: &[&SchemaRef]) -> SchemaRef {
    let fields = parts.iter().flat_map(|p| p.fields().iter());
    Arc::new(Schema::new(fields.map(|f| f.as_ref().clone()).collect::<Vec<_>>()))
}

/// Rows with random keys.
fn deltas(seed: u64, keys: i64) -> Vec<Delta> {
    let mut rng = SmallRng::seed_from_u64(seed);
    (0..BATCHES)
        .map(|_| {
            let k: Vec<i64> = (0..BATCH).map(|_| rng.random_range(0..keys)).collect();
            let v: Vec<i64> = (0..BATCH).map(|_| rng.random_range(0..1_000_000)).collect();
            let s: Vec<String> = k.iter().map(|k| format!("key number {k}")).collect();
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from(k)),
                Arc::new(Int64Array::from(v.clone())),
                Arc::new(StringArray::from(s)),
                Arc::new(TimestampMicrosecondArray::from(v)),
            ];
            Delta::insert(RecordBatch::try_new(schema(), columns).expect("columns fit"))
        })
        .collect()
}

/// The same rows, taken away.
fn taken(deltas: &[Delta]) -> Vec<Delta> {
    let minus = |d: &Delta| Delta::new(d.rows().clone(), Some(Int64Array::from(vec![-1; d.num_rows()])));
    deltas.iter().map(|d| minus(d).expect("as many weights as rows")).collect()
}

struct Run {
    op: Box<dyn Operator>,
    tables: Tables,
    epoch: u64,
}

impl Run {
    fn new(op: Box<dyn Operator>) -> Self {
        let tables = Tables::new(&op.tables()).expect("tables");
        Self { op, tables, epoch: 0 }
    }

    fn epoch(&mut self, inputs: &[(usize, &[Delta])]) -> usize {
        self.epoch += 1;
        let mut out = Output::default();
        for (port, deltas) in inputs {
            for d in *deltas {
                self.op.push(*port, d.clone(), &mut self.tables, &mut out).expect("push");
            }
        }
        let at = self.epoch as i64;
        let tick = Tick { incarnation: 1, term: 1, epoch: self.epoch, opened_us: at - 1, now_us: at };
        let info = BarrierInfo {
            tick,
            watermark: WATERMARK_MIN,
            input_watermarks: &[WATERMARK_MIN, WATERMARK_MIN],
            complete: &[],
        };
        self.op.barrier(&info, &mut self.tables, &mut out).expect("barrier");
        out.take().iter().map(Delta::num_rows).sum()
    }
}

fn call(func: AggFunc, arg: Option<usize>, arg_type: DataType) -> AggCall {
    AggCall {
        func,
        arg,
        other: None,
        distinct: false,
        filter: None,
        outward: false,
        arg_type: arg_type.clone(),
        result_type: DataType::Int64,
        rows: None,
    }
}

fn aggregate(group: Vec<usize>, append_only: bool) -> Run {
    let input = schema();
    let mut fields: Vec<Field> = group.iter().map(|g| input.field(*g).clone()).collect();
    fields.extend(["c", "s", "m"].map(|n| Field::new(n, DataType::Int64, true)));
    let spec = AggregateSpec {
        group,
        calls: vec![
            call(AggFunc::Count, None, DataType::Int64),
            call(AggFunc::Sum, Some(1), DataType::Int64),
            call(AggFunc::Max, Some(1), DataType::Int64),
        ],
        append_only_input: append_only,
        window: None,
        emit_on_close: false,
        always: vec![],
        phase: Phase::Whole,
    };
    Run::new(Box::new(HashAggregate::new(spec, &input, Arc::new(Schema::new(fields))).expect("aggregate")))
}

fn join(key: usize) -> Run {
    let side = schema();
    let spec = JoinSpec {
        kind: JoinKind::Inner,
        left_keys: vec![key],
        right_keys: vec![key],
        null_equal: false,
        filter: None,
        append_only_inputs: true,
        expire: [None, None],
        apart: None,
    };
    let output = schemas(&[&side, &side]);
    Run::new(Box::new(HashJoin::new(&spec, side.clone(), side, output).expect("join")))
}

fn top(n: usize) -> Run {
    let by = |column, descending| OrderBy { column, descending, nulls_first: false };
    let spec = GroupTopNSpec {
        partition: vec![0],
        order: vec![by(1, true), by(3, false), by(2, false)],
        kind: RankKind::RowNumber,
        limit: n,
        with_rank: false,
        append_only_input: true,
        window: None,
        emit_on_close: false,
    };
    Run::new(Box::new(GroupTopN::new(spec, schema(), schema()).expect("top-n")))
}

/// Times one epoch after another one that made the state.
fn bench(
    c: &mut Criterion,
    name: &str,
    make: &dyn Fn() -> Run,
    first: &[(usize, &[Delta])],
    then: &[(usize, &[Delta])],
) {
    let rows: usize = then.iter().flat_map(|(_, d)| d.iter()).map(Delta::num_rows).sum();
    let mut group = c.benchmark_group("operator");
    group.throughput(Throughput::Elements(rows as u64)).sample_size(10);
    let ready = || {
        let mut run = make();
        run.epoch(first);
        run
    };
    group.bench_function(name, |b| {
        b.iter_batched(
            ready,
            |mut run| {
                black_box(run.epoch(then));
                // What is dropped is not timed.
                run
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn operators(c: &mut Criterion) {
    let a = deltas(1, KEYS);
    let b = deltas(2, KEYS);
    let gone = taken(&a);
    let few = deltas(3, 100);
    bench(c, "aggregate by bigint", &|| aggregate(vec![0], true), &[(0, &a)], &[(0, &b)]);
    bench(c, "aggregate by text", &|| aggregate(vec![2], true), &[(0, &a)], &[(0, &b)]);
    bench(c, "aggregate by two columns", &|| aggregate(vec![0, 2], true), &[(0, &a)], &[(0, &b)]);
    bench(c, "aggregate of 100 groups", &|| aggregate(vec![0], true), &[(0, &few)], &[(0, &few)]);
    bench(c, "aggregate, new groups", &|| aggregate(vec![0], true), &[], &[(0, &a)]);
    bench(c, "aggregate under retraction", &|| aggregate(vec![0], false), &[(0, &a), (0, &b)], &[(0, &gone)]);
    bench(c, "join by bigint, insert and probe", &|| join(0), &[(0, &a)], &[(1, &b)]);
    bench(c, "join by text, insert and probe", &|| join(2), &[(0, &a)], &[(1, &b)]);
    bench(
        c,
        "distinct rows",
        &|| Run::new(Box::new(Distinct::new(schema(), true).expect("distinct"))),
        &[(0, &a)],
        &[(0, &b)],
    );
    bench(c, "first row per key", &|| top(1), &[(0, &a)], &[(0, &b)]);
    bench(c, "top 10 per key", &|| top(10), &[(0, &a)], &[(0, &b)]);
}

criterion_group!(benches, operators);
criterion_main!(benches);
