//! GROUP BY against a model that recomputes everything from the multiset of rows.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use arrow::array::{Decimal128Array, Float64Array, Int32Array, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow::datatypes::{Field, TimeUnit};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::rows_tests::{expected_list, listed};
use super::*;
use crate::operator::testing::{Run, apply, cut, delta};
use crate::plan::{AggCall, AggFunc, Phase, WatermarkColumn, WatermarkKind};
use crate::types::moments::Sums;

const TS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// One row of the pool.
#[derive(Debug, Clone)]
pub(super) struct R {
    g: Option<i32>,
    s: Option<String>,
    x: Option<i64>,
    f: Option<f64>,
    d: Option<i128>,
    b: Option<bool>,
    t: Option<i64>,
    u: Option<u64>,
}

pub(super) fn schema() -> SchemaRef {
    let f = |n: &str, t: DataType| Field::new(n, t, true);
    Arc::new(Schema::new(vec![
        f("g", DataType::Int32),
        f("s", DataType::Utf8),
        f("x", DataType::Int64),
        f("f", DataType::Float64),
        f("d", DataType::Decimal128(12, 2)),
        f("b", DataType::Boolean),
        f("t", TS),
        f("u", DataType::UInt64),
    ]))
}

pub(super) fn pool(rng: &mut SmallRng, n: usize, nulls: f64) -> Vec<R> {
    let mut rows = vec![];
    for _ in 0..n {
        let mut some = || rng.random_bool(1.0 - nulls);
        let on: Vec<bool> = (0..8).map(|_| some()).collect();
        let f = match rng.random_range(0..12) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => 1e16,
            4 => -1e16,
            _ => f64::from(rng.random_range(-9..9)) / 4.0,
        };
        let wide = rng.random_bool(0.2);
        rows.push(R {
            g: on[0].then(|| rng.random_range(0..5)),
            s: on[1].then(|| ["", "a", "b", "bb", "zoë"][rng.random_range(0..5)].to_string()),
            x: on[2].then(|| if wide { i64::MAX - 3 } else { rng.random_range(-5..6) }),
            f: on[3].then_some(f),
            d: on[4].then(|| rng.random_range(-99999..99999)),
            b: on[5].then(|| rng.random_bool(0.5)),
            t: on[6].then(|| rng.random_range(0..8) * 10),
            u: on[7].then(|| if wide { u64::MAX - 1 } else { rng.random_range(0..5) }),
        });
    }
    rows
}

pub(super) fn batch(rows: &[R]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|r| r.g).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|r| r.s.clone()).collect::<StringArray>()),
        Arc::new(rows.iter().map(|r| r.x).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.f).collect::<Float64Array>()),
        Arc::new(rows.iter().map(|r| r.d).collect::<Decimal128Array>().with_precision_and_scale(12, 2).unwrap()),
        Arc::new(rows.iter().map(|r| r.b).collect::<BooleanArray>()),
        Arc::new(rows.iter().map(|r| r.t).collect::<TimestampMicrosecondArray>()),
        Arc::new(rows.iter().map(|r| r.u).collect::<UInt64Array>()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn call(func: AggFunc, arg: Option<usize>, distinct: bool, filter: Option<usize>) -> AggCall {
    use AggFunc::*;
    let arg_type = arg.map_or(DataType::Null, |a| schema().field(a).data_type().clone());
    let result_type = match (func, &arg_type) {
        (Count, _) => DataType::Int64,
        (Min | Max, t) => t.clone(),
        (Sum, DataType::Decimal128(p, s)) => DataType::Decimal128(p + 10, *s),
        (Avg, DataType::Decimal128(p, s)) => DataType::Decimal128(p + 4, s + 4),
        (Sum, DataType::Int64 | DataType::Int32) => DataType::Int64,
        (Sum, DataType::UInt64) => DataType::UInt64,
        (BoolAnd | BoolOr | BitAnd | BitOr | BitXor, t) => t.clone(),
        _ => DataType::Float64,
    };
    AggCall { func, arg, other: None, distinct, filter, outward: false, arg_type, result_type, rows: None }
}

pub(super) fn all_calls() -> Vec<AggCall> {
    use crate::types::moments::Moment::{CovarSamp, StddevSamp, VarPop};
    use AggFunc::*;
    let mut calls = vec![call(Count, None, false, None), call(Count, None, false, Some(5))];
    for (distinct, filter) in [(false, None), (true, None), (false, Some(5)), (true, Some(5))] {
        for func in [Count, Sum, Avg, Min, Max] {
            for arg in [2, 3, 4, 7] {
                calls.push(call(func, Some(arg), distinct, filter));
            }
        }
        for func in [Count, Min, Max] {
            for arg in [0, 1, 5, 6] {
                calls.push(call(func, Some(arg), distinct, filter));
            }
        }
        for func in [BitAnd, BitOr, BitXor] {
            for arg in [0, 2, 7] {
                calls.push(call(func, Some(arg), distinct, filter));
            }
        }
        if !distinct {
            calls.push(call(Moment(VarPop), Some(3), false, filter));
            calls.push(call(Moment(StddevSamp), Some(3), false, filter));
            calls.push(AggCall { other: Some(3), ..call(Moment(CovarSamp), Some(3), false, filter) });
        }
        calls.push(call(BoolAnd, Some(5), distinct, filter));
        calls.push(call(BoolOr, Some(5), distinct, filter));
        calls.push(listed(&[(1, false, false)], distinct, filter, None, None));
        calls.push(listed(&[(3, true, true), (0, false, false), (1, true, false)], distinct, filter, Some(1), None));
        calls.push(listed(&[(6, false, true), (4, true, false)], distinct, filter, None, Some(2)));
    }
    calls
}

pub(super) fn operator(
    group: Vec<usize>,
    calls: Vec<AggCall>,
    append_only: bool,
    window: Option<WatermarkColumn>,
    on_close: bool,
) -> Run {
    Run::new(move || {
        let input = schema();
        let mut fields: Vec<Field> = group.iter().map(|&g| input.field(g).clone()).collect();
        fields.extend(calls.iter().enumerate().map(|(i, c)| Field::new(format!("c{i}"), c.result_type.clone(), true)));
        let spec = AggregateSpec {
            group: group.clone(),
            calls: calls.clone(),
            append_only_input: append_only,
            window,
            emit_on_close: on_close,
            always: vec![],
            phase: Phase::Whole,
        };
        check(&spec, &input).unwrap();
        Box::new(HashAggregate::new(spec, &input, Arc::new(Schema::new(fields))).unwrap())
    })
}

pub(super) fn text(array: ArrayRef) -> String {
    if array.is_null(0) {
        return "NULL".into();
    }
    arrow::util::display::array_value_to_string(&array, 0).unwrap()
}

/// The result of one call over rows with weights, as text.
fn expected(c: &AggCall, rows: &[(&R, i64)]) -> String {
    let mut rows: Vec<(&R, i64)> =
        rows.iter().copied().filter(|(r, _)| c.filter.is_none() || r.b == Some(true)).collect();
    if let Some(r) = &c.rows {
        return expected_list(r, c.distinct, &rows);
    }
    if let AggFunc::Moment(m) = c.func {
        let mut sums = Sums::default();
        for (r, w) in rows {
            r.f.into_iter().for_each(|f| sums.add(f, c.other.map(|_| f), w));
        }
        return text(Arc::new(Float64Array::from(vec![m.result(&sums)])));
    }
    let Some(arg) = c.arg else { return rows.iter().map(|r| r.1).sum::<i64>().to_string() };
    let one = |r: &R| batch(std::slice::from_ref(r)).column(arg).clone();
    rows.retain(|(r, _)| one(r).is_valid(0));
    // In order of value; bits decide what is distinct.
    let codec = arrow::row::RowConverter::new(vec![SortField::new(c.arg_type.clone())]).unwrap();
    let key = |r: &R| codec.convert_columns(&[one(r)]).unwrap().row(0).data().to_vec();
    let mut values: BTreeMap<Vec<u8>, (&R, i64)> = BTreeMap::new();
    for (r, w) in rows {
        values.entry(key(r)).or_insert((r, 0)).1 += w;
    }
    let weighted: Vec<(&R, i64)> = values.values().map(|(r, w)| (*r, if c.distinct { 1 } else { *w })).collect();
    let n: i64 = weighted.iter().map(|v| v.1).sum();
    if c.func == AggFunc::Count {
        return n.to_string();
    }
    let (Some(first), Some(last)) = (weighted.first(), weighted.last()) else { return "NULL".into() };
    match (c.func, arg) {
        (AggFunc::Min, _) => text(one(first.0)),
        (AggFunc::Max, _) => text(one(last.0)),
        (AggFunc::BoolAnd, _) => weighted.iter().all(|(r, _)| r.b == Some(true)).to_string(),
        (AggFunc::BoolOr, _) => weighted.iter().any(|(r, _)| r.b == Some(true)).to_string(),
        (AggFunc::BitAnd | AggFunc::BitOr | AggFunc::BitXor, a) => {
            let bits = |r: &R| match a {
                0 => r.g.map_or(0, |g| g as i64),
                2 => r.x.unwrap_or(0),
                _ => r.u.unwrap_or(0) as i64,
            };
            let fold = |v: i64, (r, w): &(&R, i64)| match c.func {
                AggFunc::BitAnd => v & bits(r),
                AggFunc::BitOr => v | bits(r),
                _ => v ^ if w & 1 == 1 { bits(r) } else { 0 },
            };
            let v = weighted.iter().fold(if c.func == AggFunc::BitAnd { -1 } else { 0 }, fold);
            if a == 7 { (v as u64).to_string() } else { v.to_string() }
        }
        (AggFunc::Sum, 2) => {
            weighted.iter().fold(0i64, |s, (r, w)| s.wrapping_add(r.x.unwrap().wrapping_mul(*w))).to_string()
        }
        (AggFunc::Sum, 7) => {
            weighted.iter().fold(0u64, |s, (r, w)| s.wrapping_add(r.u.unwrap().wrapping_mul(*w as u64))).to_string()
        }
        (AggFunc::Sum, 4) => {
            let s: i128 = weighted.iter().map(|(r, w)| r.d.unwrap() * i128::from(*w)).sum();
            text(Arc::new(Decimal128Array::from(vec![s]).with_precision_and_scale(22, 2).unwrap()))
        }
        (AggFunc::Avg, 4) => {
            let s: i128 = weighted.iter().map(|(r, w)| r.d.unwrap() * i128::from(*w)).sum();
            let v = s * 10_000 / i128::from(n);
            text(Arc::new(Decimal128Array::from(vec![v]).with_precision_and_scale(16, 6).unwrap()))
        }
        (_, a) => {
            let value = |r: &R| match a {
                2 => r.x.unwrap() as f64,
                7 => r.u.unwrap() as f64,
                _ => r.f.unwrap(),
            };
            let special: f64 = weighted.iter().map(|(r, _)| value(r)).filter(|v| !v.is_finite()).sum();
            let has_special = weighted.iter().any(|(r, _)| !value(r).is_finite());
            // All finite values are multiples of 1/4: the exact sum.
            let quarters: i128 = weighted
                .iter()
                .map(|(r, w)| (value(r), w))
                .filter(|(v, _)| v.is_finite())
                .map(|(v, w)| (v * 4.0) as i128 * i128::from(*w))
                .sum();
            let sum = if has_special { special } else { quarters as f64 / 4.0 };
            let v = if c.func == AggFunc::Avg { sum / n as f64 } else { sum };
            text(Arc::new(Float64Array::from(vec![v])))
        }
    }
}

fn model(group: &[usize], calls: &[AggCall], pool: &[R], weights: &[i64]) -> BTreeMap<String, i64> {
    let all = batch(pool);
    let mut groups: BTreeMap<Vec<String>, Vec<(&R, i64)>> = BTreeMap::new();
    if group.is_empty() {
        groups.insert(vec![], vec![]);
    }
    for (i, r) in pool.iter().enumerate().filter(|(i, _)| weights[*i] != 0) {
        let key = group.iter().map(|&g| text(all.column(g).slice(i, 1))).collect();
        groups.entry(key).or_default().push((r, weights[i]));
    }
    let row = |(mut k, rows): (Vec<String>, Vec<(&R, i64)>)| {
        k.extend(calls.iter().map(|c| expected(c, &rows)));
        (k.join("|"), 1)
    };
    groups.into_iter().map(row).collect()
}

/// At most one −1 and one +1 per group and epoch, and never of one row.
fn check_net(emitted: &[(String, i64)], keys: usize) {
    let mut seen: BTreeMap<(Vec<&str>, i64), &str> = BTreeMap::new();
    for (row, w) in emitted {
        assert!(*w == 1 || *w == -1);
        let key: Vec<&str> = row.split('|').take(keys).collect();
        assert!(seen.insert((key.clone(), *w), row).is_none(), "two changes of one group: {row}");
        assert_ne!(seen.get(&(key, -w)), Some(&row.as_str()), "no change at all: {row}");
    }
}

#[test]
fn follows_the_model_under_any_cut_and_restore() {
    let groups: [&[usize]; 6] = [&[], &[0], &[1], &[0, 1], &[3], &[6, 4]];
    for (seed, group) in groups.iter().enumerate().flat_map(|(i, g)| [(i, g), (i + 10, g)]) {
        let append_only = seed >= 10;
        let mut rng = SmallRng::seed_from_u64(seed as u64);
        let rows = pool(&mut rng, 30, if seed % 2 == 0 { 0.1 } else { 0.6 });
        let rows_batch = batch(&rows);
        let make = || operator(group.to_vec(), all_calls(), append_only, None, false);
        let mut runs = [make(), make(), make()];
        let mut weights = vec![0i64; rows.len()];
        let mut result = BTreeMap::new();
        for epoch in 0..8 {
            let mut picks: Vec<(u32, i64)> = vec![];
            // Epochs that bring much, that bring nothing, and one that takes all away.
            let n = [12, 0, 20, 6, 0, 25, 3, 8][epoch];
            for _ in 0..n {
                let i = rng.random_range(0..rows.len());
                let w = if append_only { 1 } else { rng.random_range(-weights[i]..=2) };
                picks.push((i as u32, w));
                weights[i] += w;
                if !append_only && rng.random_bool(0.3) {
                    // A pair that nets to nothing, perhaps the retraction first.
                    picks.extend([(i as u32, 3), (i as u32, -3)]);
                }
            }
            if epoch == 4 && !append_only {
                picks = weights.iter().enumerate().map(|(i, w)| (i as u32, -w)).collect();
                weights.fill(0);
            }
            picks.retain(|p| p.1 != 0);
            picks.shuffle(&mut rng);
            let d = delta(&rows_batch, &picks, !append_only);
            let whole = runs[0].epoch(vec![d.clone()], 0);
            check_net(&whole, group.len());
            let parts = cut(&mut rng, &d);
            assert_eq!(runs[1].epoch(parts.clone(), 0), whole);
            assert_eq!(runs[2].epoch(parts, 0), whole);
            if epoch % 2 == 0 {
                runs[2].reincarnate(epoch == 4);
            }
            apply(&mut result, &whole);
            let want = model(group, &all_calls(), &rows, &weights);
            assert_eq!(result, want, "seed {seed}, epoch {epoch}");
        }
    }
}

#[test]
fn windows_close_once() {
    let calls: Vec<AggCall> = all_calls().into_iter().step_by(3).collect();
    for (seed, on_close, append_only) in [(1, true, true), (2, true, false), (3, false, true)] {
        let mut rng = SmallRng::seed_from_u64(seed);
        let rows = pool(&mut rng, 40, 0.15);
        let rows_batch = batch(&rows);
        let window = Some(WatermarkColumn { column: 1, kind: WatermarkKind::WindowStart { size_us: 10 } });
        let group = vec![0, 6];
        let make = || operator(group.clone(), calls.clone(), append_only, window, on_close);
        let mut runs = [make(), make()];
        let mut weights = vec![0i64; rows.len()];
        let mut result = BTreeMap::new();
        let mut watermark = i64::MIN;
        for epoch in 0..12 {
            let open: Vec<usize> = (0..rows.len())
                .filter(|&i| rows[i].t.is_none_or(|t| watermark == i64::MIN || t + 10 > watermark))
                .collect();
            let mut picks = vec![];
            for _ in 0..if epoch == 11 { 0 } else { 9 } {
                let i = open[rng.random_range(0..open.len())];
                let w = if append_only { 1 } else { rng.random_range(-weights[i]..=2) };
                weights[i] += w;
                picks.push((i as u32, w));
            }
            picks.retain(|p| p.1 != 0);
            watermark = if epoch == 11 { i64::MAX } else { epoch * 7 };
            let d = delta(&rows_batch, &picks, !append_only);
            let whole = runs[0].epoch(vec![d.clone()], watermark);
            assert_eq!(runs[1].epoch(cut(&mut rng, &d), watermark), whole);
            runs[1].reincarnate(epoch % 5 == 0);
            if on_close {
                assert!(whole.iter().all(|(_, w)| *w == 1));
            }
            apply(&mut result, &whole);
            let shown: Vec<i64> =
                rows.iter()
                    .zip(&weights)
                    .map(|(r, &w)| {
                        if !on_close || watermark == i64::MAX || r.t.is_some_and(|t| t + 10 <= watermark) {
                            w
                        } else {
                            0
                        }
                    })
                    .collect();
            assert_eq!(result, model(&group, &calls, &rows, &shown), "seed {seed}, epoch {epoch}");
            let kept = runs[0].tables.group(0).unwrap().len();
            let open_groups = model(&group, &[], &rows, &weights)
                .keys()
                .filter(|k| {
                    let t = k.split('|').nth(1).unwrap();
                    !rows.iter().any(|r| {
                        r.t.is_some_and(|v| {
                            v + 10 <= watermark && text(Arc::new(TimestampMicrosecondArray::from(vec![v]))) == t
                        })
                    })
                })
                .count();
            assert_eq!(kept, if on_close && watermark == i64::MAX { 0 } else { open_groups });
            if kept == 0 {
                assert!((1..runs[0].op.tables().len()).all(|i| match &runs[0].tables.all()[i] {
                    Table::Group(t) => t.is_empty(),
                    Table::Ordered(t) => t.is_empty(),
                    Table::Bag(_) => false,
                }));
            }
        }
    }
}

#[test]
fn a_global_group_has_a_row_from_the_first_barrier_on() {
    let calls = vec![call(AggFunc::Count, None, false, None), call(AggFunc::Sum, Some(2), false, None)];
    let mut run = operator(vec![], calls, true, None, false);
    assert_eq!(run.epoch(vec![], 0), vec![("0|NULL".to_string(), 1)]);
    run.reincarnate(true);
    assert_eq!(run.epoch(vec![], 0), vec![]);
    let mut r = pool(&mut SmallRng::seed_from_u64(1), 1, 0.0);
    r[0].x = Some(7);
    let d = delta(&batch(&r), &[(0, 1)], false);
    assert_eq!(run.epoch(vec![d], 0), vec![("0|NULL".to_string(), -1), ("1|7".to_string(), 1)]);
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let ts = AggCall { arg_type: TS, result_type: TS, ..call(AggFunc::Avg, Some(6), false, None) };
    let interval = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
    let sum = AggCall { arg_type: interval.clone(), result_type: interval, ..call(AggFunc::Sum, Some(6), false, None) };
    for c in [ts, sum] {
        let spec = AggregateSpec {
            group: vec![],
            calls: vec![c.clone()],
            append_only_input: true,
            window: None,
            emit_on_close: false,
            always: vec![],
            phase: Phase::Whole,
        };
        let e = check(&spec, &schema()).unwrap_err();
        assert!(e.message().contains("is not supported") && e.message().starts_with(&c.func.to_string()), "{e}");
    }
}

#[test]
fn float_sums_lose_nothing() {
    let calls = vec![call(AggFunc::Sum, Some(3), false, None), call(AggFunc::Avg, Some(3), false, None)];
    let values = [1e16, 1.0, -1e16, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1, 1e300];
    let base = pool(&mut SmallRng::seed_from_u64(1), values.len(), 0.0);
    let rows: Vec<R> = base.into_iter().zip(values).map(|(r, f)| R { f: Some(f), g: Some(1), ..r }).collect();
    let rows = batch(&rows);
    let mut run = operator(vec![0], calls, false, None, false);
    let mut step = |picks: &[(u32, i64)], want: &str| {
        let last = run.epoch(vec![delta(&rows, picks, true)], 0).pop();
        // NaN that stays NaN is no change.
        assert_eq!(last, (!want.is_empty()).then(|| (format!("1|{want}"), 1)));
    };
    step(&[(0, 1), (1, 1), (2, 1)], "1.0|0.3333333333333333");
    step(&[(4, 2)], "inf|inf");
    step(&[(5, 1)], "NaN|NaN");
    step(&[(4, -2), (5, -1), (3, 1)], "");
    step(&[(3, -1)], "1.0|0.3333333333333333");
    step(&[(6, 10), (0, -1), (2, -1), (1, -1)], "1.0|0.1");
    step(&[(6, -9)], "0.1|0.1");
    step(&[(7, 1)], "1e300|5e299");
    step(&[(7, -1)], "0.1|0.1");
}

/// A change to a big group read and computed all of its rows.
#[test]
fn variances_keep_no_rows() {
    use crate::types::moments::Moment::{Corr, VarPop};
    let calls = vec![
        call(AggFunc::Moment(VarPop), Some(3), false, None),
        AggCall { other: Some(3), ..call(AggFunc::Moment(Corr), Some(3), false, None) },
    ];
    let mut run = operator(vec![0], calls, false, None, false);
    assert_eq!(run.op.tables().len(), 1, "there is a table of rows");
    let template = pool(&mut SmallRng::seed_from_u64(1), 1, 0.0).pop().unwrap();
    let rows: Vec<R> =
        (0..2000).map(|i| R { g: Some(1), f: Some(f64::from(i % 10) / 3.0), ..template.clone() }).collect();
    let rows = batch(&rows);
    let picks = |n: u32, w: i64| (0..n).map(|i| (i, w)).collect::<Vec<_>>();
    let first = run.epoch(vec![delta(&rows, &picks(10, 1), true)], 0);
    let size = run.tables.memory_size();
    run.epoch(vec![delta(&rows, &picks(2000, 1), true)], 0);
    assert_eq!(run.tables.memory_size(), size, "the state grows with the rows of a group");
    run.reincarnate(true);
    assert_eq!(run.epoch(vec![delta(&rows, &[(0, 1)], true)], 0).len(), 2);
    let back = run.epoch(vec![delta(&rows, &picks(2000, -1), true), delta(&rows, &[(0, -1)], true)], 0);
    assert_eq!(back.last(), first.last());
}

#[test]
fn wide_decimals() {
    let t = DataType::Decimal128(38, 2);
    let input: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("d", t.clone(), true),
        Field::new("e", DataType::Decimal256(50, 3), true),
    ]));
    let c = |func, arg, arg_type: &DataType, result_type| AggCall {
        func,
        arg: Some(arg),
        other: None,
        distinct: false,
        filter: None,
        outward: false,
        arg_type: arg_type.clone(),
        result_type,
        rows: None,
    };
    let e = DataType::Decimal256(50, 3);
    let calls = vec![
        c(AggFunc::Sum, 0, &t, DataType::Decimal128(38, 2)),
        c(AggFunc::Avg, 0, &t, DataType::Decimal128(38, 6)),
        c(AggFunc::Sum, 1, &e, DataType::Decimal256(60, 3)),
        c(AggFunc::Avg, 1, &e, DataType::Decimal256(54, 7)),
        c(AggFunc::Max, 1, &e, e.clone()),
    ];
    let fields: Vec<Field> =
        calls.iter().enumerate().map(|(i, c)| Field::new(format!("c{i}"), c.result_type.clone(), true)).collect();
    let spec = AggregateSpec {
        group: vec![],
        calls,
        append_only_input: false,
        window: None,
        emit_on_close: false,
        always: vec![],
        phase: Phase::Whole,
    };
    let schema = input.clone();
    let mut run = Run::new(move || {
        Box::new(HashAggregate::new(spec.clone(), &schema, Arc::new(Schema::new(fields.clone()))).unwrap())
    });
    let d = Decimal128Array::from(vec![10i128.pow(33), -2]).with_precision_and_scale(38, 2).unwrap();
    let wide = |v: i128| arrow::datatypes::i256::from_i128(v);
    let e = arrow::array::Decimal256Array::from(vec![wide(-7), wide(-20)]).with_precision_and_scale(50, 3).unwrap();
    let rows = RecordBatch::try_new(input, vec![Arc::new(d), Arc::new(e)]).unwrap();
    // A mean that does not fit 38 digits is NULL; truncation goes towards zero.
    let all = run.epoch(vec![delta(&rows, &[(0, 1)], true)], 0);
    assert_eq!(
        all[0].0,
        "10000000000000000000000000000000.00|10000000000000000000000000000000.000000|-0.007|-0.0070000|-0.007"
    );
    let all = run.epoch(vec![delta(&rows, &[(0, -1), (1, 3)], true)], 0);
    assert_eq!(all[1].0, "-0.06|-0.020000|-0.060|-0.0200000|-0.020");
    run.reincarnate(true);
    let all = run.epoch(vec![delta(&rows, &[(1, -1), (0, 1)], true)], 0);
    assert_eq!(all[1].0.split('|').nth(3), Some("-0.0156666"));
}

/// `cargo test --release -p spate-engine -- --ignored --nocapture throughput`
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods)]
fn throughput() {
    let n = 8192;
    let calls = vec![call(AggFunc::Count, None, false, None), call(AggFunc::Sum, Some(2), false, None)];
    let mut run = operator(vec![2], calls, true, None, false);
    let mut rng = SmallRng::seed_from_u64(1);
    let rows = pool(&mut rng, n, 0.0);
    let template = batch(&rows);
    let deltas: Vec<Delta> = (0..300)
        .map(|_| {
            let keys = Int64Array::from_iter_values((0..n).map(|_| rng.random_range(0..1_000_000)));
            let mut c = template.columns().to_vec();
            c[2] = Arc::new(keys);
            Delta::insert(RecordBatch::try_new(schema(), c).unwrap())
        })
        .collect();
    let start = std::time::Instant::now();
    let total = deltas.len() * n;
    let mut out = Output::default();
    for d in deltas {
        run.op.push(0, d, &mut run.tables, &mut out).unwrap();
    }
    let pushed = start.elapsed();
    run.epoch(vec![], 0);
    let groups = run.tables.group(0).unwrap().len();
    eprintln!(
        "{:.2} M rows/s, barrier {:?} for {groups} groups, {} bytes per group",
        total as f64 / pushed.as_secs_f64() / 1e6,
        start.elapsed() - pushed,
        run.tables.memory_size() / groups
    );
}
