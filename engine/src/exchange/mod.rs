//! Exchanges between tasks of one process: whole epochs, in a fixed order, in memory up to a
//! budget and then on disk.
//!
//! What a producer sent of epoch e is invisible to its consumer until the producer closes e.
//! A receiver never refuses, so barriers cannot deadlock; the sources bound what is in flight.

pub mod channel;
pub mod route;
pub mod spill;

pub use channel::{Channel, EpochData, Receiver, Sender};
pub use route::Router;
pub use spill::Spill;

/// How a consumer may see what its producers send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandOver {
    /// Whole epochs in channel order: deterministic. The only mode of the engine.
    #[default]
    WholeEpoch,
    /// As it comes, in arrival order, epochs still aligned. Not deterministic: it exists so that
    /// the benchmark can say what determinism costs.
    Eager,
}
