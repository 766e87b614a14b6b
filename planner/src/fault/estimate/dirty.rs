//! Dirty bytes ΔS(τ) from the sizes of snapshots and from distinct keys.

use serde::{Deserialize, Serialize};

use super::super::graph::Dirty;
use super::super::validate::MAX_LEVEL;
use super::rate::Ewma;

/// Dirty bytes by interval 2^i epochs; bounded by the number of levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirtyEstimator {
    by_level: Vec<Option<Ewma>>,
    first_touch: Ewma,
    prior_first_touch_bytes_per_s: f64,
    /// Snapshots that each mean remembers.
    memory: f64,
}

impl DirtyEstimator {
    /// A prior for the bytes touched per second, and how many snapshots a mean remembers.
    pub fn new(prior_first_touch_bytes_per_s: f64, memory: f64) -> Self {
        Self {
            by_level: vec![None; usize::from(MAX_LEVEL) + 1],
            first_touch: Ewma::new(memory.max(1.0)),
            prior_first_touch_bytes_per_s,
            memory: memory.max(1.0),
        }
    }

    /// A snapshot after 2^`level` epochs had so many dirty bytes.
    pub fn observe(&mut self, level: u8, bytes: f64) {
        if let (Some(slot), true) = (self.by_level.get_mut(usize::from(level)), bytes.is_finite() && bytes >= 0.0) {
            slot.get_or_insert_with(|| Ewma::new(self.memory)).observe(bytes, 1.0);
        }
    }

    /// Within one epoch so many bytes were touched that were not touched before in it.
    pub fn observe_first_touches(&mut self, bytes: f64, epoch_s: f64) {
        if bytes >= 0.0 && epoch_s > 0.0 {
            self.first_touch.observe(bytes / epoch_s, 1.0);
        }
    }

    /// For the model: the measured levels, made to never fall with τ nor grow faster than it (noise
    /// can break both, a set of touched keys cannot).
    pub fn dirty(&self) -> Dirty {
        let mut measured: Vec<Option<f64>> = self.by_level.iter().map(|e| e.and_then(|e| e.mean())).collect();
        let mut last: Option<(usize, f64)> = None;
        for (i, m) in measured.iter_mut().enumerate() {
            if let Some(b) = m {
                if let Some((j, before)) = last {
                    *b = b.clamp(before, before * ((i - j) as f64).exp2());
                }
                last = Some((i, *b));
            }
        }
        measured.truncate(last.map_or(0, |l| l.0 + 1));
        Dirty {
            first_touch_bytes_per_s: self.first_touch.mean().unwrap_or(self.prior_first_touch_bytes_per_s),
            measured_bytes: measured,
        }
    }
}
