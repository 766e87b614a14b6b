//! Capacity from busy time.

use serde::{Deserialize, Serialize};

use super::rate::Ewma;

/// What a task can take: rows over the time that it was busy with them.
///
/// At low load this is uncertain, since fixed costs per epoch weigh more then and the caches are
/// cold: below [`LEAST_RHO`] observations count less, in proportion to the utilisation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CapacityEstimator {
    rows: Ewma,
    busy: Ewma,
    prior_rows_per_s: f64,
}

/// Utilisation from which on an observation counts in full.
pub const LEAST_RHO: f64 = 0.2;

impl CapacityEstimator {
    /// A prior and a memory [s].
    pub fn new(prior_rows_per_s: f64, memory_s: f64) -> Self {
        Self { rows: Ewma::new(memory_s), busy: Ewma::new(memory_s), prior_rows_per_s }
    }

    /// `rows` kept the task busy for `busy_s` of `dt_s`; the time of snapshots is not in it.
    pub fn observe(&mut self, rows: f64, busy_s: f64, dt_s: f64) {
        if !(rows >= 0.0 && rows.is_finite() && busy_s >= 0.0 && dt_s > 0.0 && dt_s.is_finite()) || busy_s > dt_s * 1.01
        {
            return;
        }
        let weight = (busy_s / dt_s / LEAST_RHO).min(1.0);
        self.rows.observe(rows / dt_s, dt_s * weight);
        self.busy.observe(busy_s / dt_s, dt_s * weight);
    }

    /// Most rows per second.
    pub fn rows_per_s(&self) -> f64 {
        match (self.rows.mean(), self.busy.mean()) {
            (Some(r), Some(b)) if r > 0.0 && b > 0.0 => r / b,
            _ => self.prior_rows_per_s,
        }
    }

    /// How much of it is measured, 0 to 1.
    pub fn certainty(&self) -> f64 {
        self.busy.certainty()
    }
}
