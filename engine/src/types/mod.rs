//! The vocabulary of the engine: deltas, epochs, vnodes, watermarks, errors.

mod arrays;
pub(crate) mod decoded;
pub mod delta;
pub mod epoch;
pub mod error;
pub mod exact;
pub mod float;
pub mod jsonb;
pub mod moments;
pub mod textual;
pub mod uuid;
pub mod vnode;

pub use delta::Delta;
pub use epoch::{Barrier, Epoch, SplitRange, Tick, WATERMARK_MAX, WATERMARK_MIN, Watermark};
pub use error::{ErrorKind, Result, SpateError};
