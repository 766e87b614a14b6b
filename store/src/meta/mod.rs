//! The meta store: the few small things that everything else hangs on (catalog, leader, manifests,
//! epoch records), behind one trait that etcd can serve too.
//!
//! Keys are text in one order. Every commit that changes something has a *revision*, one above the
//! last; a key's *version* is the revision that wrote it. What has been answered is durable, and
//! reads see what is durable alone.

mod apply;
mod embedded;
pub mod epochs;
mod hub;
mod lease;
mod memory;

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

pub use embedded::Embedded;
pub use memory::{Call, Fault, Memory};

/// Number of a commit. The first is 1; 0 means "before anything".
pub type Revision = u64;

/// Names a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// Longest value in bytes.
pub const VALUE_MAX: usize = 1 << 20;
/// Most bytes of keys and values in one commit: etcd takes requests up to 1.5 MiB.
pub const COMMIT_MAX: usize = (1 << 20) + (1 << 18);
/// Most conditions, and most operations, of one commit, as in etcd.
pub const OPS_MAX: usize = 128;
/// Longest key in bytes.
pub const KEY_MAX: usize = 1024;

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// The revision that wrote it.
    pub version: Revision,
    /// The lease with which it goes.
    pub lease: Option<LeaseId>,
}

/// What must hold for a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The key is not there.
    Absent(String),
    /// The key is there as this revision wrote it.
    Version(String, Revision),
}

impl Condition {
    /// The key.
    pub fn key(&self) -> &str {
        match self {
            Self::Absent(key) | Self::Version(key, _) => key,
        }
    }
}

/// What a commit does. No key may be touched twice in one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a key. It goes when the lease does, if there is one.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Bytes,
        /// The lease.
        lease: Option<LeaseId>,
    },
    /// Removes a key, if it is there.
    Delete {
        /// The key.
        key: String,
    },
    /// Removes the keys from `from` on and before `to`.
    DeleteRange {
        /// First key.
        from: String,
        /// First key that stays.
        to: String,
    },
}

impl Op {
    /// Writes a key without a lease.
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self::Put { key: key.into(), value: value.into(), lease: None }
    }

    /// Removes a key.
    pub fn delete(key: impl Into<String>) -> Self {
        Self::Delete { key: key.into() }
    }
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The commit's revision.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// What is there now; `None`: nothing.
    pub entry: Option<Entry>,
}

/// A stream of changes. It ends when the store is closed, or with `Compacted`.
pub type Watch = BoxStream<'static, MetaResult<Change>>;

/// Keys and values as of one revision: watching goes on from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The revision.
    pub revision: Revision,
    /// Entries in order of their keys.
    pub entries: Vec<Entry>,
}

/// What can go wrong with the meta store, told apart by what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// A condition on this key does not hold. Nothing was done.
    #[error("\"{0}\" was changed by another")]
    Conflict(String),
    /// The lease is over; what was attached to it is gone or about to go. Nothing was done.
    #[error("the lease is over")]
    LeaseLost,
    /// Changes since that revision are no longer kept: read all again.
    #[error("changes before revision {oldest} are no longer kept")]
    Compacted {
        /// The oldest revision from which on there is everything.
        oldest: Revision,
    },
    /// It may work later. Nothing was done.
    #[error("the meta store cannot be reached: {0}")]
    Unavailable(String),
    /// No answer: it may have been done. Read, then decide.
    #[error("the meta store did not answer: {0}")]
    Unknown(String),
    /// No space is left. Nothing was done.
    #[error("no space is left for the meta store")]
    Full,
    /// Another live process has the store.
    #[error("\"{0}\" is in use by another process")]
    Locked(String),
    /// What is there is not what was written.
    #[error("the meta store is corrupt: {0}")]
    Corrupt(String),
    /// Written by a newer version of Spate.
    #[error("the meta store has format version {found}; this version of spate reads up to {known}")]
    Newer {
        /// Its version.
        found: u64,
        /// The newest version known here.
        known: u64,
    },
    /// A caller's mistake.
    #[error("{0}")]
    Invalid(String),
}

/// Result with [`MetaError`].
pub type MetaResult<T> = Result<T, MetaError>;

/// A meta store.
#[async_trait]
pub trait MetaStore: Send + Sync + Debug {
    /// What is at a key.
    async fn get(&self, key: &str) -> MetaResult<Option<Entry>>;

    /// The keys from `from` on and before `to`; an empty `to` has no end.
    async fn range(&self, from: &str, to: &str) -> MetaResult<Listing>;

    /// Does all of `ops`, if all of `conditions` hold, or nothing. Durable on return, as one
    /// revision. If the future is dropped before it is ready, it may have been done or not. Without
    /// `ops` it tells whether the conditions hold, and the newest revision.
    ///
    /// # Errors
    /// `Conflict` with the first key whose condition does not hold; `Unknown` if it may have been
    /// done; all other errors mean that nothing was done.
    async fn commit(&self, conditions: &[Condition], ops: &[Op]) -> MetaResult<Revision>;

    /// Changes of keys that begin with `prefix`, of revisions after `after`, in order. Ends with
    /// `Compacted` if they are no longer kept: bounded memory, however slow a watcher is.
    async fn watch(&self, prefix: &str, after: Revision) -> MetaResult<Watch>;

    /// A lease: what is attached to it goes if it is not kept alive for `ttl`.
    async fn grant(&self, ttl: Duration) -> MetaResult<LeaseId>;

    /// The lease lasts for its time again, from now.
    async fn keep_alive(&self, lease: LeaseId) -> MetaResult<()>;

    /// Ends a lease now, with all that is attached to it.
    async fn revoke(&self, lease: LeaseId) -> MetaResult<()>;

    /// Ends the leases whose time is over. To be called now and then; a store that looks after its
    /// leases itself does nothing.
    async fn expire(&self) -> MetaResult<()>;

    /// The keys that begin with a prefix.
    async fn list(&self, prefix: &str) -> MetaResult<Listing> {
        self.range(prefix, &after_prefix(prefix)).await
    }

    /// Writes a key if it is as `expected` (a version; `None`: not there) has it.
    async fn put_if(&self, key: &str, value: Bytes, expected: Option<Revision>) -> MetaResult<Revision> {
        self.commit(&[expecting(key, expected)], &[Op::put(key, value)]).await
    }

    /// Removes a key if it is at this version.
    async fn delete_if(&self, key: &str, expected: Revision) -> MetaResult<Revision> {
        self.commit(&[expecting(key, Some(expected))], &[Op::delete(key)]).await
    }
}

fn expecting(key: &str, version: Option<Revision>) -> Condition {
    match version {
        Some(v) => Condition::Version(key.to_owned(), v),
        None => Condition::Absent(key.to_owned()),
    }
}

/// The first text after all that begin with `prefix`; empty if there is none.
fn after_prefix(prefix: &str) -> String {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The next character, past the gap that text has no characters in.
        let next = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    String::new()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod conformance_tests;
