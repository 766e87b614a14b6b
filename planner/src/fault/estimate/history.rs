//! How long recoveries take: detection, launch, switch, bandwidths, from past ones.

use serde::{Deserialize, Serialize};

use super::rate::Ewma;

/// A duration or a bandwidth: its mean and spread, on a logarithmic scale, since one that took ten
/// times as long must not count as a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DurationEstimator {
    log: Ewma,
    log_square: Ewma,
    prior: f64,
}

impl DurationEstimator {
    /// A prior, and how many observations are remembered.
    pub fn new(prior: f64, memory: f64) -> Self {
        Self { log: Ewma::new(memory.max(1.0)), log_square: Ewma::new(memory.max(1.0)), prior }
    }

    /// One observation above 0.
    pub fn observe(&mut self, x: f64) {
        if x.is_finite() && x > 0.0 {
            self.log.observe(x.ln(), 1.0);
            self.log_square.observe(x.ln().powi(2), 1.0);
        }
    }

    /// The mean: of a log-normal, e^(m + s²/2).
    pub fn mean(&self) -> f64 {
        match (self.log.mean(), self.log_square.mean()) {
            (Some(m), Some(q)) => (m + (q - m * m).max(0.0) / 2.0).exp(),
            _ => self.prior,
        }
    }

    /// Whether anything was measured.
    pub fn measured(&self) -> bool {
        self.log.certainty() > 0.0
    }
}

/// One recovery as it was; parts that did not occur are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RecoverySample {
    /// Failure to notice [s].
    pub detection_s: Option<f64>,
    /// Notice to a started task [s].
    pub launch_s: Option<f64>,
    /// Notice to a promoted replica [s].
    pub switch_s: Option<f64>,
    /// Snapshot restored: bytes and seconds.
    pub restore: Option<(f64, f64)>,
    /// Replay: speed over live speed.
    pub replay_speedup: Option<f64>,
    /// Outage, predicted and measured [s].
    pub outage_s: Option<(f64, f64)>,
}

/// What all recoveries taught.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RecoveryHistory {
    /// T_d [s].
    pub detection_s: DurationEstimator,
    /// T_l [s].
    pub launch_s: DurationEstimator,
    /// T_s [s].
    pub switch_s: DurationEstimator,
    /// Restore bandwidth [bytes/s].
    pub restore_bytes_per_s: DurationEstimator,
    /// Replay speed over live speed.
    pub replay_speedup: DurationEstimator,
    /// Measured over predicted outage: 1 if the model is right.
    pub bias: DurationEstimator,
}

impl RecoveryHistory {
    /// Priors for detection, launch, switch [s] and bandwidth [bytes/s].
    pub fn new(detection_s: f64, launch_s: f64, switch_s: f64, restore_bytes_per_s: f64) -> Self {
        const MEMORY: f64 = 20.0;
        Self {
            detection_s: DurationEstimator::new(detection_s, MEMORY),
            launch_s: DurationEstimator::new(launch_s, MEMORY),
            switch_s: DurationEstimator::new(switch_s, MEMORY),
            restore_bytes_per_s: DurationEstimator::new(restore_bytes_per_s, MEMORY),
            replay_speedup: DurationEstimator::new(1.0, MEMORY),
            bias: DurationEstimator::new(1.0, MEMORY),
        }
    }

    /// A recovery is over.
    pub fn observe(&mut self, r: &RecoverySample) {
        for (e, x) in [
            (&mut self.detection_s, r.detection_s),
            (&mut self.launch_s, r.launch_s),
            (&mut self.switch_s, r.switch_s),
            (&mut self.replay_speedup, r.replay_speedup),
        ] {
            x.into_iter().for_each(|x| e.observe(x));
        }
        if let Some((bytes, s)) = r.restore.filter(|r| r.1 > 0.0) {
            self.restore_bytes_per_s.observe(bytes / s);
        }
        if let Some((predicted, measured)) = r.outage_s.filter(|o| o.0 > 0.0) {
            self.bias.observe(measured / predicted);
        }
    }
}
