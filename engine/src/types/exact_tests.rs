//! Tests of exact sums and of what is made of them.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::types::moments::{Moment, Sums};

fn sum(values: &[(f64, i64)]) -> ExactSum {
    let mut s = ExactSum::default();
    values.iter().for_each(|(x, w)| s.add(*x, *w));
    s
}

#[test]
fn nothing_is_lost() {
    let cases: &[(&[(f64, i64)], f64)] = &[
        (&[(1e16, 1), (1.0, 1), (-1e16, 1)], 1.0),
        (&[(1e308, 1), (1e308, 1), (-1e308, 2), (5e-324, 1)], 5e-324),
        (&[(0.1, 10)], 1.0),
        (&[(0.1, 3), (-0.3, 1)], 2.775_557_561_562_891_4e-17),
        (&[(f64::MAX, 1), (f64::MIN, 1)], 0.0),
        (&[(f64::MIN_POSITIVE, -1), (-0.0, 5)], -f64::MIN_POSITIVE),
        (&[(3.0, i64::MAX), (3.0, -i64::MAX), (-2.5, 2)], -5.0),
        (&[(1e300, 1), (-1.0, 1)], 1e300),
        (&[(f64::MAX, 2)], f64::INFINITY),
    ];
    for (values, expect) in cases {
        assert_eq!(sum(values).value().to_f64(), *expect, "{values:?}");
    }
}

#[test]
fn a_sum_depends_on_what_is_in_it_alone() {
    let mut seed = 7u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = f64::from_bits(seed);
        if x.is_finite() { x } else { (seed >> 12) as f64 }
    };
    let values: Vec<f64> = (0..300).map(|_| next()).collect();
    let mut forward = ExactSum::default();
    let mut products = ExactSum::default();
    for (i, x) in values.iter().enumerate() {
        forward.add(*x, i as i64 % 5 - 2);
        products.add_product(*x, values[i / 2], 3);
    }
    let (mut backward, mut halves) = (ExactSum::default(), [ExactSum::default(), ExactSum::default()]);
    for (i, x) in values.iter().enumerate().rev() {
        backward.add(*x, i as i64 % 5 - 2);
        halves[i % 2].add(*x, i as i64 % 5 - 2);
    }
    assert_eq!(forward, backward);
    let [mut a, b] = halves;
    a.merge(&b);
    assert_eq!(a, forward);
    // Through its bytes, and back to nothing.
    let mut cell = None;
    forward.store(&mut cell);
    let mut read = ExactSum::decode(cell.as_deref());
    assert_eq!(read, forward);
    for (i, x) in values.iter().enumerate() {
        read.add(*x, 2 - i as i64 % 5);
        products.add_product(*x, values[i / 2], -3);
    }
    read.store(&mut cell);
    assert_eq!((read, cell, products), (ExactSum::default(), None, ExactSum::default()));
}

#[test]
fn rounded_once_to_even() {
    let two_53 = 9_007_199_254_740_992.0;
    assert_eq!(sum(&[(two_53, 1), (1.0, 1)]).value().to_f64(), two_53);
    assert_eq!(sum(&[(two_53, 1), (1.0, 1), (1e-300, 1)]).value().to_f64(), two_53 + 2.0);
    assert_eq!(sum(&[(two_53, 1), (3.0, 1)]).value().to_f64(), two_53 + 4.0);
    assert_eq!(sum(&[(-two_53, 1), (-1.0, 1), (-1e-300, 1)]).value().to_f64(), -two_53 - 2.0);
}

fn moment(m: Moment, rows: &[(f64, f64)]) -> Option<f64> {
    let mut s = Sums::default();
    rows.iter().for_each(|(a, b)| s.add(*a, m.of_pairs().then_some(*b), 1));
    m.result(&s)
}

#[test]
fn moments() {
    use Moment::*;
    let rows = [(1.0, 2.0), (2.0, 4.0), (4.0, 5.0), (5.0, 9.0)];
    for (m, expect) in [
        (VarPop, 2.5),
        (VarSamp, 10.0 / 3.0),
        (StddevPop, 2.5f64.sqrt()),
        (StddevSamp, (10.0f64 / 3.0).sqrt()),
        (CovarPop, 3.75),
        (CovarSamp, 5.0),
        (Corr, 15.0 / 260.0f64.sqrt()),
        (RegrSlope, 15.0 / 26.0),
        (RegrIntercept, 3.0 - 75.0 / 26.0),
        (RegrR2, 225.0 / 260.0),
        (RegrAvgX, 5.0),
        (RegrAvgY, 3.0),
        (RegrSxx, 26.0),
        (RegrSyy, 10.0),
        (RegrSxy, 15.0),
    ] {
        let found = moment(m, &rows).unwrap();
        assert!((found - expect).abs() <= 4.0 * f64::EPSILON * expect.abs().max(1.0), "{m}: {found} {expect}");
        assert_eq!(Moment::named(m.name()), Some(m));
        assert_eq!(moment(m, &[]), None, "{m}");
    }
    // One row, and rows that are all alike.
    assert_eq!((moment(VarPop, &rows[..1]), moment(VarSamp, &rows[..1])), (Some(0.0), None));
    assert_eq!((moment(Corr, &[(1.0, 1.0), (1.0, 2.0)]), moment(RegrSlope, &[(1.0, 1.0), (2.0, 1.0)])), (None, None));
    // Where a plain sum of squares has no digit left, and where it overflows.
    assert_eq!(moment(VarPop, &[(1e16, 0.0), (1e16 + 2.0, 0.0)]), Some(1.0));
    assert_eq!(moment(StddevPop, &[(1e200, 0.0), (3e200, 0.0)]), Some(1e200));
    assert_eq!(moment(Corr, &[(1e300, 1e-300), (-1e300, -1e-300)]), Some(1.0));
    assert_eq!(moment(VarPop, &[(5e-324, 0.0), (0.0, 0.0)]), Some(0.0));
    assert!(moment(VarPop, &[(f64::NAN, 0.0), (1.0, 0.0)]).unwrap().is_nan());
    assert!(moment(CovarPop, &[(1.0, f64::INFINITY)]).unwrap().is_nan());
}

#[test]
fn what_comes_and_goes_leaves_no_trace() {
    let mut s = Sums::default();
    s.add(1.0, Some(2.0), 1);
    s.add(4.0, Some(3.0), 2);
    let before = Moment::Corr.result(&s);
    for odd in [f64::NAN, f64::INFINITY, 1e308, 5e-324] {
        s.add(odd, Some(odd), 3);
        s.add(odd, Some(odd), -3);
    }
    assert_eq!((s.rows, s.odd, Moment::Corr.result(&s)), (3, 0, before));
}
