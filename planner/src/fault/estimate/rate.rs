//! Rates by exponentially weighted means, one fast and one slow.

use serde::{Deserialize, Serialize};

/// An exponentially weighted mean over irregular observations.
///
/// An observation that spans `dt` counts with 1 − e^(−dt/T): after T seconds what was before still
/// counts with 1/e, however many observations that took. The weights seen so far are kept, so that the
/// first ones are not drawn to an arbitrary start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ewma {
    time_s: f64,
    sum: f64,
    weight: f64,
}

impl Ewma {
    /// With a time constant T [s].
    pub fn new(time_s: f64) -> Self {
        Self { time_s: time_s.max(1e-9), sum: 0.0, weight: 0.0 }
    }

    /// A value that held for `dt_s`.
    pub fn observe(&mut self, value: f64, dt_s: f64) {
        if !value.is_finite() || dt_s.is_nan() || dt_s <= 0.0 {
            return;
        }
        let keep = (-dt_s / self.time_s).exp();
        self.sum = self.sum * keep + value * (1.0 - keep);
        self.weight = self.weight * keep + (1.0 - keep);
    }

    /// The mean; `None` before the first observation.
    pub fn mean(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }

    /// How much of it is observed, 0 to 1.
    pub fn certainty(&self) -> f64 {
        self.weight
    }
}

/// The input rate of a task: fast, slow, and the greatest that lasted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateEstimator {
    fast: Ewma,
    slow: Ewma,
    /// Greatest fast mean, forgotten with the slow time constant.
    peak: f64,
    peak_time_s: f64,
    prior_rows_per_s: f64,
    refused: u64,
}

impl RateEstimator {
    /// A prior, and the two time constants [s].
    pub fn new(prior_rows_per_s: f64, fast_s: f64, slow_s: f64) -> Self {
        Self {
            fast: Ewma::new(fast_s),
            slow: Ewma::new(slow_s),
            peak: 0.0,
            peak_time_s: slow_s.max(1e-9) * 10.0,
            prior_rows_per_s: prior_rows_per_s.max(0.0),
            refused: 0,
        }
    }

    /// `rows` came within `dt_s`, usually an epoch.
    pub fn observe(&mut self, rows: f64, dt_s: f64) {
        if !(rows.is_finite() && rows >= 0.0 && dt_s.is_finite() && dt_s > 0.0) {
            self.refused += 1;
            return;
        }
        self.fast.observe(rows / dt_s, dt_s);
        self.slow.observe(rows / dt_s, dt_s);
        let fast = self.fast.mean().unwrap_or(0.0);
        self.peak = (self.peak * (-dt_s / self.peak_time_s).exp()).max(fast);
    }

    /// The present rate [rows/s].
    pub fn fast_rows_per_s(&self) -> f64 {
        self.fast.mean().unwrap_or(self.prior_rows_per_s)
    }

    /// The usual rate [rows/s].
    pub fn slow_rows_per_s(&self) -> f64 {
        self.slow.mean().unwrap_or(self.prior_rows_per_s)
    }

    /// The peak rate [rows/s], never below the usual one.
    pub fn peak_rows_per_s(&self) -> f64 {
        self.peak.max(self.slow_rows_per_s())
    }

    /// Whether anything was measured.
    pub fn measured(&self) -> bool {
        self.slow.certainty() > 0.0
    }

    /// Observations that made no sense.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
