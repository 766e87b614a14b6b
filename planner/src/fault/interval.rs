//! Checkpoint intervals and waits in closed form: what theory says about one task, against which
//! the general model is tested, and where searches start.

/// The interval that minimises overhead plus expected rework with utilisation:
/// c/τ + λρτ/2 has its minimum at √(2c/(λρ)) [s].
///
/// `pause_s` is the cost c of a snapshot, `failures_per_s` λ. ρ = 1 gives Young's interval
/// (*A first order approximation to the optimum checkpoint interval*, CACM 1974).
pub fn best_interval_s(pause_s: f64, failures_per_s: f64, rho: f64) -> f64 {
    (2.0 * pause_s / (failures_per_s * rho)).sqrt()
}

/// The interval that maximises useful work under failures, exactly:
/// τ* = (1 + λc + W₀(−e^(−1−λc)))/λ [s], c included.
///
/// From Jayasekara et al., *A utilization model for optimization of checkpoint intervals in
/// distributed stream processing systems* (2019): the share of useful work is
/// λ(τ−c)/(e^(λτ)−1); its derivative vanishes where (1−λ(τ−c))e^(λτ) = 1, which Lambert's W solves.
pub fn most_useful_interval_s(pause_s: f64, failures_per_s: f64) -> f64 {
    let lc = failures_per_s * pause_s;
    (1.0 + lc + lambert_w0(-(-1.0 - lc).exp())) / failures_per_s
}

/// The principal branch of Lambert's W, for x ≥ −1/e: the w ≥ −1 with w·e^w = x.
///
/// Halley's iteration from the series around the branch point or log1p.
pub fn lambert_w0(x: f64) -> f64 {
    let near = (2.0 * (1.0 + x * std::f64::consts::E)).max(0.0).sqrt();
    let mut w = if x < 0.0 { -1.0 + near - near * near / 3.0 } else { x.ln_1p() };
    for _ in 0..50 {
        let e = w.exp();
        let f = w * e - x;
        let step = f / (e * (w + 1.0) - (w + 2.0) * f / (2.0 * w + 2.0));
        if !step.is_finite() || step.abs() < 1e-15 {
            break;
        }
        w -= step;
    }
    w
}

/// Mean time that a row waits for its turn without failures: M/D/1, ρ/(2μ(1−ρ)) [s]
/// (Pollaczek-Khinchine with deterministic service). `None` at ρ ≥ 1.
pub fn queueing_wait_s(rows_per_s: f64, capacity_rows_per_s: f64) -> Option<f64> {
    let rho = rows_per_s / capacity_rows_per_s;
    (rho < 1.0).then(|| rho / (2.0 * capacity_rows_per_s * (1.0 - rho)))
}

/// Mean latency that pauses of `pause_s` every `interval_s` add: c²/(2τ(1−ρ)) [s].
///
/// A pause builds a triangle of delay of height c that drains in c/(1−ρ) seconds: c²/(2(1−ρ)) per
/// interval.
pub fn pause_latency_s(pause_s: f64, interval_s: f64, rho: f64) -> Option<f64> {
    (rho < 1.0).then(|| pause_s * pause_s / (2.0 * interval_s * (1.0 - rho)))
}

/// The longest interval with which a deadline holds whatever the age of the snapshot:
/// T0 + ρ(κ+τ) ≤ D gives τ ≤ (D−T0)/ρ − κ [s]. `None` if T0 alone is too much: then only a replica
/// can.
pub fn hard_deadline_interval_s(deadline_s: f64, first_row_s: f64, rho: f64, completion_s: f64) -> Option<f64> {
    let tau = (deadline_s - first_row_s) / rho - completion_s;
    (first_row_s <= deadline_s && tau > 0.0).then_some(tau)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-6 * b.abs().max(1e-3), "{a} is not {b}");
    }

    #[test]
    fn best_interval_is_a_minimum_and_becomes_young() {
        let (c, l, rho) = (0.3, 1e-4, 0.4);
        let cost = |tau: f64| c / tau + l * rho * tau / 2.0;
        let t = best_interval_s(c, l, rho);
        // The derivative vanishes to 1e-6 of the slope of either term.
        let h = t * 1e-4;
        assert!(((cost(t + h) - cost(t - h)) / (2.0 * h) / (c / (t * t))).abs() < 1e-6);
        assert!(cost(t) < cost(t * 1.01) && cost(t) < cost(t * 0.99));
        close(best_interval_s(10.0, 1e-3, 1.0), (2.0f64 * 10.0 / 1e-3).sqrt());
        assert!((best_interval_s(10.0, 1e-3, 1.0) - 141.42).abs() < 5e-3);
    }

    #[test]
    fn most_useful_interval_is_the_published_one_and_a_maximum() {
        let t = most_useful_interval_s(10.0, 1e-3);
        assert!((t - 144.835).abs() < 5e-4, "{t}");
        let work = |tau: f64| 1e-3 * (tau - 10.0) / (1e-3 * tau).exp_m1();
        let h = 1e-2;
        assert!(((work(t + h) - work(t - h)) / (2.0 * h)).abs() < 1e-6 * work(t));
        assert!(work(t) > work(t + 1.0) && work(t) > work(t - 1.0));
    }

    #[test]
    fn lambert_inverts() {
        for w in [-0.999_9, -0.9, -0.5, -0.1, 0.0, 0.3, 2.0] {
            let x = w * f64::exp(w);
            close(lambert_w0(x) * lambert_w0(x).exp(), x);
        }
    }

    #[test]
    fn hard_deadlines() {
        close(hard_deadline_interval_s(10.0, 4.0, 0.5, 1.0).unwrap(), 11.0);
        assert_eq!(hard_deadline_interval_s(3.0, 4.0, 0.5, 1.0), None);
        close(pause_latency_s(0.2, 10.0, 0.5).unwrap(), 0.004);
        close(queueing_wait_s(50.0, 100.0).unwrap(), 0.005);
        assert_eq!(queueing_wait_s(100.0, 100.0), None);
    }
}
