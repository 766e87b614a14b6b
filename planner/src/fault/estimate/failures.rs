//! Failure rates: Gamma posteriors.

use serde::{Deserialize, Serialize};

use super::super::graph::FailureRate;

/// Failures of one kind of thing: all workers of a kind share one, and so learn from each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FailureEstimator {
    rate: FailureRate,
    /// Exposure is forgotten with this time constant [s of exposure]; infinite memory if `None`.
    memory_s: Option<f64>,
    seen: u64,
}

impl FailureEstimator {
    /// A prior from `fault.mtbf` [s], worth `failures` seen.
    pub fn new(mtbf_s: f64, failures: f64, memory_s: Option<f64>) -> Self {
        let failures = failures.max(1e-3);
        Self { rate: FailureRate { alpha: failures, beta_s: failures * mtbf_s.max(1e-3) }, memory_s, seen: 0 }
    }

    /// `n` failures in so much exposure (things × seconds).
    pub fn observe(&mut self, failures: u64, exposure_s: f64) {
        if !(exposure_s.is_finite() && exposure_s >= 0.0) {
            return;
        }
        if let Some(memory) = self.memory_s.filter(|m| *m > 0.0) {
            // What is forgotten makes the posterior wider, not different.
            let keep = (-exposure_s / memory).exp();
            self.rate.alpha *= keep;
            self.rate.beta_s *= keep;
        }
        self.rate.alpha += failures as f64;
        self.rate.beta_s += exposure_s;
        // Never narrower than can be, never improper.
        self.rate.alpha = self.rate.alpha.max(1e-3);
        self.rate.beta_s = self.rate.beta_s.max(1e-3);
        self.seen = self.seen.saturating_add(failures);
    }

    /// The posterior.
    pub fn rate(&self) -> FailureRate {
        self.rate
    }

    /// Failures seen: 0 means that the rate is the prior less what no failure says against it.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// An interval that holds the rate with about 95% [1/s], by Wilson and Hilferty's cube-root
    /// approximation of the Gamma distribution.
    pub fn interval_per_s(&self) -> (f64, f64) {
        let a = self.rate.alpha;
        let at = |z: f64| {
            let root = 1.0 - 1.0 / (9.0 * a) + z / (3.0 * a.sqrt());
            (a * root.max(0.0).powi(3)) / self.rate.beta_s
        };
        (at(-1.96), at(1.96))
    }
}
