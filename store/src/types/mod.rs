//! The vocabulary: epochs, errors.

pub mod error;

pub use error::{ErrorKind, Result, SpateError};

/// Number of an epoch. The first is 1; 0 means "before anything".
pub type Epoch = u64;
