//! The model's inputs from what is measured while running.
//!
//! Every estimator is fed one observation at a time, keeps a few numbers, and gives the same result
//! for the same observations; it can be written out and read back. Observations that make no sense (not
//! finite, negative) are left out and counted. Before the first observation each one gives its prior,
//! and says so.

mod burst;
mod capacity;
mod dirty;
mod failures;
mod history;
mod rate;

pub use burst::{BurstDetector, BurstSettings};
pub use capacity::CapacityEstimator;
pub use dirty::DirtyEstimator;
pub use failures::FailureEstimator;
pub use history::{DurationEstimator, RecoveryHistory, RecoverySample};
pub use rate::{Ewma, RateEstimator};

#[cfg(test)]
mod tests;
