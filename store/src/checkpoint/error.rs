//! What can go wrong with durable state, told apart by what to do about it.

use std::io;

use spate_engine::types::{ErrorKind, SpateError};

/// An error of durable state. Messages name the object or file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It is certain that there is no such thing.
    #[error("{what} does not exist")]
    NotFound {
        /// The object or file.
        what: String,
    },
    /// What is there is not what was written.
    #[error("{what} is corrupt: {why}")]
    Corrupt {
        /// The object or file.
        what: String,
        /// How that shows.
        why: String,
    },
    /// Written by a newer version of Spate.
    #[error("{what} has format version {found}; this version of spate reads up to {known}")]
    Newer {
        /// The object or file.
        what: String,
        /// Its version.
        found: u16,
        /// The newest version known here.
        known: u16,
    },
    /// It may work later. Says nothing about what is there.
    #[error("{what} cannot be reached: {why}")]
    Unavailable {
        /// The object, file or store.
        what: String,
        /// The cause.
        why: String,
    },
    /// No space is left.
    #[error("no space is left for {what}")]
    Full {
        /// The object or file.
        what: String,
    },
    /// Something else is there already, or has changed in between.
    #[error("{what} was written by another")]
    Conflict {
        /// The object or key.
        what: String,
    },
    /// A caller's mistake.
    #[error("{0}")]
    Invalid(String),
}

/// Result with [`StoreError`].
pub type StoreResult<T> = Result<T, StoreError>;

impl StoreError {
    pub(super) fn corrupt(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), why: why.into() }
    }

    /// An error of the operating system on a file.
    pub fn io(what: impl Into<String>, e: &io::Error) -> Self {
        let what = what.into();
        match e.kind() {
            io::ErrorKind::NotFound => Self::NotFound { what },
            io::ErrorKind::AlreadyExists => Self::Conflict { what },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { what },
            _ => Self::Unavailable { what, why: e.to_string() },
        }
    }
}

impl From<StoreError> for SpateError {
    fn from(e: StoreError) -> Self {
        let message = e.to_string();
        match e {
            StoreError::NotFound { .. } | StoreError::Unavailable { .. } => Self::new(ErrorKind::Io, message),
            StoreError::Corrupt { .. } => Self::new(ErrorKind::Io, message).with_hint("restore from a backup"),
            StoreError::Newer { .. } => {
                Self::new(ErrorKind::Unsupported, message).with_hint("start the version of spate that wrote it")
            }
            StoreError::Full { .. } => {
                Self::new(ErrorKind::Limit, message).with_hint("free space; the engine goes on by itself")
            }
            StoreError::Conflict { .. } => Self::new(ErrorKind::AlreadyExists, message),
            StoreError::Invalid(_) => Self::new(ErrorKind::Internal, message),
        }
    }
}
