//! Two phases against one.
#![allow(clippy::unwrap_used)]

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::tests::{all_calls, batch, operator, pool, schema};
use super::*;
use crate::operator::testing::{Run, cut, delta, texts};
use crate::plan::{AggCall, AggFunc};
use crate::types::Tick;
use arrow::datatypes::Field;

fn phase(calls: Vec<AggCall>, append_only: bool, phase: Phase) -> Run {
    Run::new(move || {
        let (input, output): (SchemaRef, Vec<Field>) = match phase {
            Phase::Final(_) => {
                let fields = calls.iter().enumerate();
                let sums = Schema::new(vec![Field::new("sums", DataType::Binary, true)]);
                (
                    Arc::new(sums),
                    fields.map(|(i, c)| Field::new(format!("c{i}"), c.result_type.clone(), true)).collect(),
                )
            }
            _ => (schema(), vec![Field::new("sums", DataType::Binary, true)]),
        };
        let spec = AggregateSpec {
            group: vec![],
            calls: calls.clone(),
            append_only_input: append_only,
            window: None,
            emit_on_close: false,
            always: vec![],
            phase: phase.clone(),
        };
        Box::new(HashAggregate::new(spec, &input, Arc::new(Schema::new(output))).unwrap())
    })
}

fn epoch(run: &mut Run, n: i64, deltas: Vec<Delta>) -> Vec<Delta> {
    let mut out = Output::default();
    for d in deltas {
        run.op.push(0, d, &mut run.tables, &mut out).unwrap();
    }
    let tick = Tick { incarnation: 1, term: 1, epoch: n as u64, opened_us: n - 1, now_us: n };
    let info = BarrierInfo { tick, watermark: 0, input_watermarks: &[0], complete: &[true] };
    run.op.barrier(&info, &mut run.tables, &mut out).unwrap();
    out.take()
}

#[test]
fn two_phases_are_one() {
    for (seed, append_only) in [(1, false), (2, true), (3, false), (4, true)] {
        let mut rng = SmallRng::seed_from_u64(seed);
        let extreme = |c: &AggCall| matches!(c.func, AggFunc::Min | AggFunc::Max);
        let mut calls = all_calls();
        calls.retain(|c| c.rows.is_none() && !c.distinct && (append_only || !extreme(c)));
        assert!(calls.len() > 20);
        let mut whole = operator(vec![], calls.clone(), append_only, None, false);
        let mut tasks: Vec<Run> = (0..3).map(|_| phase(calls.clone(), append_only, Phase::Partial)).collect();
        let mut last = phase(calls, append_only, Phase::Final(schema()));
        let rows = batch(&pool(&mut rng, 60, 0.2));
        let mut there = vec![0i64; 60];
        for n in 1..20 {
            let mut picks = vec![];
            for _ in 0..rng.random_range(0..12) {
                let i = rng.random_range(0..60);
                // Now and then a row goes before it comes.
                let w = if append_only { 1 } else { rng.random_range(-there[i]..=2) };
                there[i] += w;
                picks.push((i as u32, w));
            }
            let one: Vec<_> = epoch(&mut whole, n, cut(&mut rng, &delta(&rows, &picks, true)));
            let mut sums = vec![];
            for (t, task) in tasks.iter_mut().enumerate() {
                let own: Vec<_> = picks.iter().copied().filter(|p| p.0 as usize % 3 == t).collect();
                let made = epoch(task, n, cut(&mut rng, &delta(&rows, &own, true)));
                assert_eq!(made.len(), usize::from(!own.is_empty()), "one row per task and epoch");
                sums.extend(made);
                task.reincarnate(true);
            }
            let two = epoch(&mut last, n, sums);
            let text = |d: &[Delta]| d.iter().flat_map(texts).collect::<Vec<_>>();
            assert_eq!(text(&two), text(&one), "seed {seed}, epoch {n}");
            if n % 4 == 0 {
                last.reincarnate(n % 8 == 0);
            }
        }
    }
}

#[test]
fn damaged_sums_are_an_error() {
    let calls = vec![AggCall { ..all_calls()[0].clone() }];
    let mut run = phase(calls, false, Phase::Final(schema()));
    let short = arrow::array::BinaryArray::from(vec![&b"abc"[..]]);
    let rows = RecordBatch::try_new(
        Arc::new(Schema::new(vec![Field::new("sums", DataType::Binary, true)])),
        vec![Arc::new(short)],
    );
    let pushed = run.op.push(0, Delta::insert(rows.unwrap()), &mut run.tables, &mut Output::default());
    assert!(pushed.unwrap_err().to_string().contains("damaged"));
}
