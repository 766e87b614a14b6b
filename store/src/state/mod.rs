//! What a table hands over for a snapshot.

mod snapshot;

pub use snapshot::TableSegment;
