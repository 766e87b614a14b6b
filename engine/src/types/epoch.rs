//! Epochs cut time; ticks announce them, barriers carry them along every edge.

use std::sync::Arc;

/// Number of an epoch. The first is 1; 0 means "before anything".
pub type Epoch = u64;

/// Event-time watermark in microseconds since 1970-01-01 UTC: no row with an event
/// time below it is still to come. [`WATERMARK_MIN`] promises nothing,
/// [`WATERMARK_MAX`] means that the input has ended.
pub type Watermark = i64;

/// The watermark of an input that has promised nothing yet.
pub const WATERMARK_MIN: Watermark = i64::MIN;
/// The watermark of an input that has ended.
pub const WATERMARK_MAX: Watermark = i64::MAX;

/// What the coordinator says to close an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Tick {
    /// Rises with every restore from a backup.
    pub incarnation: u32,
    /// Rises with every new leader.
    pub term: u32,
    /// The epoch that this tick closes.
    pub epoch: Epoch,
    /// Time of the tick that opened the epoch, the one before this; what `now()` is in it.
    pub opened_us: i64,
    /// Time of the tick in microseconds since 1970-01-01 UTC; strictly rises.
    pub now_us: i64,
}

/// The part of one split that one epoch covers: `[start, end)` in the split's own offsets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct SplitRange {
    /// Name of the source.
    pub source: Arc<str>,
    /// Name of the split within the source.
    pub split: Arc<str>,
    /// First offset covered.
    pub start: u64,
    /// First offset not covered.
    pub end: u64,
}

/// All ranges of several barriers, each once, in order of first appearance.
pub fn union_ranges<'a>(parts: impl IntoIterator<Item = &'a [SplitRange]>) -> Arc<[SplitRange]> {
    let mut all: Vec<SplitRange> = Vec::new();
    for r in parts.into_iter().flatten() {
        if !all.contains(r) {
            all.push(r.clone());
        }
    }
    all.into()
}

/// Closes an epoch on one edge.
#[derive(Debug, Clone, PartialEq)]
pub struct Barrier {
    /// The tick that closed the epoch.
    pub tick: Tick,
    /// Ranges that the sources upstream cover in this epoch (those that changed).
    pub ranges: Arc<[SplitRange]>,
    /// Watermark of the edge from this epoch's end on.
    pub watermark: Watermark,
    /// All that was there when the job was created has come through (of bounded sources, all there
    /// is).
    pub complete: bool,
}
