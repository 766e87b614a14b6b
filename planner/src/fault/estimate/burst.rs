//! Bursts: when load changes its state, and how long and high its states are.
//!
//! Two-sided CUSUM (Page, *Continuous inspection schemes*, Biometrika 1954) on the relative rate:
//! the sum of what the rate exceeds a reference by, less an allowance, never below 0. It passes
//! its threshold a few observations after a lasting change, and hardly ever by noise. Up and down have
//! sums of their own, so that the detector does not swing.

use serde::{Deserialize, Serialize};

use super::super::graph::LoadState;
use super::rate::Ewma;

/// What counts as a burst.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BurstSettings {
    /// Changes below this share of the usual rate are no change.
    pub allowance: f64,
    /// How much must add up [relative rate × s].
    pub threshold_s: f64,
    /// Memory for rates within each state [s].
    pub memory_s: f64,
}

impl Default for BurstSettings {
    fn default() -> Self {
        Self { allowance: 0.25, threshold_s: 2.0, memory_s: 3600.0 }
    }
}

/// A detector with two states, and what it learnt of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BurstDetector {
    settings: BurstSettings,
    normal: Ewma,
    burst: Ewma,
    in_burst: bool,
    sum: f64,
    /// Time spent in normal load and in bursts [s], and completed stays in each.
    time_s: [f64; 2],
    stays: [f64; 2],
}

impl BurstDetector {
    /// In normal load, having learnt nothing.
    pub fn new(settings: BurstSettings) -> Self {
        Self {
            settings,
            normal: Ewma::new(settings.memory_s),
            burst: Ewma::new(settings.memory_s),
            in_burst: false,
            sum: 0.0,
            time_s: [0.0; 2],
            stays: [0.0; 2],
        }
    }

    /// A rate [rows/s] that held for `dt_s`; whether the state changed.
    pub fn observe(&mut self, rows_per_s: f64, dt_s: f64) -> bool {
        if !(rows_per_s.is_finite() && rows_per_s >= 0.0 && dt_s.is_finite() && dt_s > 0.0) {
            return false;
        }
        let i = usize::from(self.in_burst);
        self.time_s[i] += dt_s;
        let Some(normal) = self.normal.mean().filter(|n| *n > 0.0) else {
            self.normal.observe(rows_per_s, dt_s);
            return false;
        };
        let relative = rows_per_s / normal;
        let allowance = self.settings.allowance;
        // Out of a burst half way down to what it was.
        let high = self.burst.mean().map_or(1.0 + 2.0 * allowance, |b| (b / normal).max(1.0 + 2.0 * allowance));
        let drift = if self.in_burst { (1.0 + high) / 2.0 - relative } else { relative - 1.0 - allowance };
        self.sum = (self.sum + drift * dt_s).max(0.0);
        if self.sum > self.settings.threshold_s {
            self.stays[i] += 1.0;
            self.in_burst = !self.in_burst;
            self.sum = 0.0;
            return true;
        }
        // While a change is in the air, neither state learns from it.
        if self.sum <= 0.0 {
            if self.in_burst { &mut self.burst } else { &mut self.normal }.observe(rows_per_s, dt_s);
        }
        false
    }

    /// Whether load is in a burst.
    pub fn in_burst(&self) -> bool {
        self.in_burst
    }

    /// Normal rate [rows/s], if known.
    pub fn normal_rows_per_s(&self) -> Option<f64> {
        self.normal.mean()
    }

    /// Rate in bursts [rows/s], if there was one.
    pub fn burst_rows_per_s(&self) -> Option<f64> {
        self.burst.mean()
    }

    /// The load states as the model wants them, once each was left at least once.
    pub fn states(&self) -> Vec<LoadState> {
        if self.stays.iter().any(|s| *s < 1.0) {
            return Vec::new();
        }
        let total: f64 = self.time_s.iter().sum();
        ["normal", "burst"]
            .iter()
            .enumerate()
            .map(|(i, name)| LoadState {
                name: (*name).to_owned(),
                share: self.time_s[i] / total,
                length_s: self.time_s[i] / self.stays[i],
                level: i as f64,
            })
            .collect()
    }
}
