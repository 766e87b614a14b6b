//! Temporal filters against evaluating their conditions at every epoch.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{Field, Schema};
use datafusion_physical_expr::expressions::Column;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::operator::testing::{apply, cut, delta, texts};
use crate::plan::TemporalBound;
use crate::types::Tick;

fn pool(rng: &mut SmallRng) -> RecordBatch {
    let mut time = || rng.random_bool(0.9).then(|| rng.random_range(0..60));
    let from: TimestampMicrosecondArray = (0..40).map(|_| time()).collect();
    let to: TimestampMicrosecondArray = (0..40).map(|_| time()).collect();
    let ts = DataType::Timestamp(TimeUnit::Microsecond, None);
    let field = |n: &str, t: &DataType| Field::new(n, t.clone(), true);
    let schema = Schema::new(vec![field("id", &DataType::Int64), field("a", &ts), field("b", &ts)]);
    let id = Int64Array::from_iter_values(0..40);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(id), Arc::new(from), Arc::new(to)]).unwrap()
}

fn epoch(op: &mut Temporal, tables: &mut Tables, deltas: Vec<Delta>, now: i64) -> Vec<(String, i64)> {
    let mut out = Output::default();
    for d in deltas {
        op.push(0, d, tables, &mut out).unwrap();
    }
    let tick = Tick { incarnation: 1, term: 1, epoch: 1, opened_us: now, now_us: now + 1 };
    op.barrier(&BarrierInfo { tick, watermark: 0, input_watermarks: &[0], complete: &[] }, tables, &mut out).unwrap();
    out.take().iter().flat_map(texts).collect()
}

#[test]
fn follows_the_model() {
    for seed in 0..12u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let rows = pool(&mut rng);
        let bound = |name, column, shift_us, leave| TemporalBound {
            expr: Arc::new(Column::new(name, column)),
            shift_us,
            leave,
        };
        // In from a - 2 (or always) up to b + 3 (or for ever).
        let mut bounds = vec![];
        if seed % 3 != 0 {
            bounds.push(bound("a", 1, -2, false));
        }
        if seed % 3 != 1 {
            bounds.push(bound("b", 2, 3, true));
        }
        let spec = TemporalSpec { bounds };
        let make = || Temporal::new(spec.clone(), rows.schema()).unwrap();
        let mut ops = [make(), make()];
        let mut tables = [Tables::new(&ops[0].tables()).unwrap(), Tables::new(&ops[1].tables()).unwrap()];
        let mut chain = vec![];
        let mut weights = vec![0i64; rows.num_rows()];
        let mut result = BTreeMap::new();
        let mut now = -5;
        for e in 0..14 {
            now += rng.random_range(1..9);
            let mut picks = vec![];
            for _ in 0..[12, 0, 5][e % 3] {
                let i = rng.random_range(0..weights.len());
                let w = rng.random_range(-weights[i]..=2);
                weights[i] += w;
                picks.push((i as u32, w));
            }
            let d = delta(&rows, &picks, true);
            let whole = epoch(&mut ops[0], &mut tables[0], vec![d.clone()], now);
            assert_eq!(epoch(&mut ops[1], &mut tables[1], cut(&mut rng, &d), now), whole);
            chain.push(tables[1].snapshot(e == 0).unwrap());
            if e == 6 {
                ops[1] = make();
                tables[1] = Tables::new(&ops[1].tables()).unwrap();
                tables[1].restore(&chain).unwrap();
            }
            apply(&mut result, &whole);
            let time = |c: usize, i: usize| {
                let c = rows.column(c).as_primitive::<TimestampMicrosecondType>();
                c.is_valid(i).then(|| c.value(i))
            };
            let within = |i: usize, at: i64| {
                (seed % 3 == 0 || time(1, i).is_some_and(|a| a - 2 <= at))
                    && (seed % 3 == 1 || time(2, i).is_some_and(|b| at < b + 3))
            };
            let mut want = BTreeMap::new();
            for (i, (text, _)) in texts(&Delta::insert(rows.clone())).into_iter().enumerate() {
                if within(i, now) {
                    apply(&mut want, &[(text, weights[i])]);
                }
            }
            assert_eq!(result, want, "seed {seed}, epoch {e}");
            // The next time at which anything changes is known.
            let live = |i: &usize| weights[*i] > 0;
            let changes = |at: i64| (0..weights.len()).filter(live).any(|i| within(i, at) != within(i, at - 1));
            let next = (now + 1..80).find(|at| changes(*at));
            let due = ops[0].due(&mut tables[0]);
            assert!(due.is_none_or(|d| d > now));
            assert!(next.is_none_or(|n| due.is_some_and(|d| d <= n)), "due {due:?}, next {next:?}");
        }
    }
}

/// A view of the last hour of a file that has been read is not at its end: its rows are to leave.
#[test]
fn an_ended_input_is_no_end_while_rows_wait() {
    let rows = pool(&mut SmallRng::seed_from_u64(1));
    let leave = TemporalBound { expr: Arc::new(Column::new("b", 2)), shift_us: 0, leave: true };
    let mut op = Temporal::new(TemporalSpec { bounds: vec![leave] }, rows.schema()).unwrap();
    let mut tables = Tables::new(&op.tables()).unwrap();
    let watermark = |op: &Temporal| {
        let tick = Tick { incarnation: 1, term: 1, epoch: 1, opened_us: 0, now_us: 0 };
        let end = [WATERMARK_MAX];
        op.watermark(&BarrierInfo { tick, watermark: WATERMARK_MAX, input_watermarks: &end, complete: &[] })
    };
    assert!(!epoch(&mut op, &mut tables, vec![Delta::new(rows, None).unwrap()], 10).is_empty());
    assert_eq!(watermark(&op), WATERMARK_MAX - 1);
    assert!(!epoch(&mut op, &mut tables, vec![], 60).is_empty());
    assert_eq!(watermark(&op), WATERMARK_MAX);
}
