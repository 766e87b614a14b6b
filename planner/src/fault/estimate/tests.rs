//! What estimators learn, forget and survive.

use rand::Rng;

use super::*;
use crate::fault::testing::rng;

#[test]
fn rates_follow_and_forget() {
    let mut r = RateEstimator::new(42.0, 1.0, 100.0);
    assert_eq!((r.fast_rows_per_s(), r.measured()), (42.0, false));
    for _ in 0..3000 {
        r.observe(100.0, 0.1);
    }
    assert!((r.fast_rows_per_s() - 1000.0).abs() < 1e-6 && (r.slow_rows_per_s() - 1000.0).abs() < 1e-6);
    for _ in 0..50 {
        r.observe(300.0, 0.1);
    }
    assert!(r.fast_rows_per_s() > 2950.0 && r.slow_rows_per_s() < 1150.0);
    for _ in 0..50 {
        r.observe(100.0, 0.1);
    }
    assert!(r.peak_rows_per_s() > 2900.0 && r.fast_rows_per_s() < 1050.0);
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        r.observe(bad, 0.1);
        r.observe(1.0, bad);
    }
    assert_eq!(r.refused(), 6);
    assert!(r.fast_rows_per_s().is_finite());
}

#[test]
fn bursts_are_found_with_their_share_and_length() {
    let mut d = BurstDetector::new(BurstSettings::default());
    let mut rng = rng(9);
    let mut t = 0.0;
    let (mut late, mut changes) = (0.0f64, 0);
    // 300 s normal, 60 s at double rate, with 10% noise.
    while t < 36_000.0 {
        let phase = t % 360.0;
        let base = if phase < 300.0 { 1000.0 } else { 2000.0 };
        if d.observe(base * rng.random_range(0.9..1.1), 0.1) {
            changes += 1;
            late = late.max(if d.in_burst() { phase - 300.0 } else { phase });
        }
        t += 0.1;
    }
    assert_eq!(changes, 199, "false alarms or missed bursts");
    assert!(late < 6.0, "noticed after {late} s");
    let s = d.states();
    assert!((s[1].share - 1.0 / 6.0).abs() < 0.02 && (s[1].length_s - 60.0).abs() < 5.0, "{s:?}");
    assert!((s[0].length_s - 300.0).abs() < 10.0);
    assert!((d.normal_rows_per_s().unwrap() - 1000.0).abs() < 20.0);
    assert!((d.burst_rows_per_s().unwrap() - 2000.0).abs() < 60.0);
}

#[test]
fn noise_is_no_burst() {
    let mut d = BurstDetector::new(BurstSettings::default());
    let mut rng = rng(2);
    for _ in 0..500_000 {
        assert!(!d.observe(1000.0 * rng.random_range(0.7..1.3), 0.1));
    }
    assert!(d.states().is_empty());
}

#[test]
fn capacity_is_rows_per_busy_second() {
    let mut c = CapacityEstimator::new(5.0, 60.0);
    assert_eq!(c.rows_per_s(), 5.0);
    for _ in 0..1000 {
        c.observe(100.0, 0.05, 0.1);
    }
    assert!((c.rows_per_s() - 2000.0).abs() < 1e-6);
    let sure = c.certainty();
    let mut idle = CapacityEstimator::new(5.0, 60.0);
    for _ in 0..1000 {
        idle.observe(2.0, 0.001, 0.1);
    }
    assert!(idle.certainty() < sure);
    c.observe(1.0, 5.0, 0.1);
    assert!((c.rows_per_s() - 2000.0).abs() < 1e-6);
}

#[test]
fn dirty_bytes_stay_concave_under_noise() {
    let mut e = DirtyEstimator::new(1e6, 10.0);
    let mut rng = rng(4);
    for _ in 0..200 {
        for level in [0u8, 2, 5] {
            let true_bytes = 1e8 * -(-1e7 * 0.1 * f64::from(level).exp2() / 1e8f64).exp_m1();
            e.observe(level, true_bytes * rng.random_range(0.8..1.2));
        }
    }
    e.observe(200, 1.0);
    e.observe(1, f64::NAN);
    let d = e.dirty();
    assert_eq!(d.measured_bytes.len(), 6);
    let m: Vec<(usize, f64)> = d.measured_bytes.iter().enumerate().filter_map(|(i, b)| Some((i, (*b)?))).collect();
    assert_eq!(m.len(), 3);
    for w in m.windows(2) {
        assert!(w[1].1 >= w[0].1 && w[1].1 <= w[0].1 * ((w[1].0 - w[0].0) as f64).exp2() * (1.0 + 1e-9));
    }
    assert!((m[0].1 / 995_000.0 - 1.0).abs() < 0.1);
}

#[test]
fn posteriors_move_from_the_prior_to_what_is_seen() {
    let mut f = FailureEstimator::new(1e6, 1.0, None);
    assert!((f.rate().mean_per_s() - 1e-6).abs() < 1e-18);
    // A thousand machine-days with true MTBF of 1e5 s.
    let mut rng = rng(8);
    for _ in 0..1000 {
        let n = u64::from(rng.random_bool(0.2)) + u64::from(rng.random_bool(0.2)) + u64::from(rng.random_bool(0.464));
        f.observe(n, 86_400.0);
    }
    assert!((f.rate().mean_per_s() / 1e-5 - 1.0).abs() < 0.1, "{}", f.rate().mean_per_s());
    let (low, high) = f.interval_per_s();
    assert!(low < 1e-5 && 1e-5 < high && high / low < 1.3);
    assert!(f.seen() > 700);
    f.observe(1, f64::NAN);
    assert!(f.rate().mean_per_s().is_finite());
    // Forgetting widens and follows.
    let mut g = FailureEstimator::new(1e5, 1.0, Some(1e6));
    (0..100).for_each(|_| g.observe(1, 1e5));
    (0..100).for_each(|_| g.observe(0, 1e5));
    assert!(g.rate().mean_per_s() < 1e-7);
}

#[test]
fn histories_learn_times_and_the_models_bias() {
    let mut h = RecoveryHistory::new(1.0, 0.5, 0.1, 1e8);
    assert_eq!((h.detection_s.mean(), h.detection_s.measured()), (1.0, false));
    for _ in 0..100 {
        h.observe(&RecoverySample {
            detection_s: Some(0.3),
            restore: Some((1e9, 5.0)),
            outage_s: Some((4.0, 5.0)),
            ..RecoverySample::default()
        });
    }
    h.observe(&RecoverySample { detection_s: Some(-1.0), restore: Some((1.0, 0.0)), ..RecoverySample::default() });
    assert!((h.detection_s.mean() - 0.3).abs() < 1e-9);
    assert!((h.restore_bytes_per_s.mean() - 2e8).abs() < 1.0);
    assert!((h.bias.mean() - 1.25).abs() < 1e-9);
    assert_eq!(h.switch_s.mean(), 0.1);
}

#[test]
fn estimators_survive_being_written_out() {
    let mut r = RateEstimator::new(1.0, 1.0, 10.0);
    let mut d = BurstDetector::new(BurstSettings::default());
    for i in 0..100 {
        r.observe(f64::from(i), 0.1);
        d.observe(f64::from(i % 7), 0.1);
    }
    let r2: RateEstimator = serde_json::from_str(&serde_json::to_string(&r).unwrap()).unwrap();
    let d2: BurstDetector = serde_json::from_str(&serde_json::to_string(&d).unwrap()).unwrap();
    let (mut r3, mut r4) = (r, r2);
    r3.observe(5.0, 0.1);
    r4.observe(5.0, 0.1);
    assert!((r3.fast_rows_per_s() - r4.fast_rows_per_s()).abs() < 1e-9);
    assert_eq!(d.in_burst(), d2.in_burst());
}
