//! Snapshots as immutable objects in an object store, each put once and checked when read.
//!
//! What the caller is to do about an error is in its type. In particular a store that cannot be
//! reached is never "not found": who is told that nothing is there may start from nothing.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use super::codec::checksum;
use super::names::ObjectName;
use super::{StoreError, StoreResult};
use crate::env::Sleep;

/// An object and what must be in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct ObjectRef {
    /// Its name.
    pub name: ObjectName,
    /// Its length in bytes.
    pub size: u64,
    /// XXH3-128 of its bytes.
    #[serde(with = "hex")]
    pub checksum: u128,
}

/// Numbers of 128 bits as text: JSON's own reach less far in many readers.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(n: &u128, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{n:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u128, D::Error> {
        u128::from_str_radix(&String::deserialize(d)?, 16).map_err(D::Error::custom)
    }
}

/// How often and how soon something that may work later is tried again.
#[derive(Debug, Clone, Copy)]
pub struct Retries {
    /// Attempts, the first included.
    pub attempts: u32,
    /// Time before the second; doubles from there.
    pub first: Duration,
    /// Longest time between two.
    pub longest: Duration,
}

impl Default for Retries {
    /// About ten seconds in all.
    fn default() -> Self {
        Self { attempts: 8, first: Duration::from_millis(100), longest: Duration::from_secs(4) }
    }
}

/// The snapshots of all jobs, below one path of an object store.
#[derive(Clone)]
pub struct SnapshotObjects {
    store: Arc<dyn ObjectStore>,
    root: Path,
    retries: Retries,
    sleep: Arc<dyn Sleep>,
}

impl fmt::Debug for SnapshotObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotObjects({}, {})", self.store, self.root)
    }
}

impl SnapshotObjects {
    /// Snapshots below `root`.
    pub fn new(store: Arc<dyn ObjectStore>, root: Path, retries: Retries, sleep: Arc<dyn Sleep>) -> Self {
        Self { store, root, retries, sleep }
    }

    fn path(&self, name: &ObjectName) -> Path {
        Path::from(format!("{}/{name}", self.root))
    }

    /// Does something until it works, fails for good, or has been tried often enough.
    async fn persist<T, F: Future<Output = StoreResult<T>>>(&self, mut act: impl FnMut() -> F) -> StoreResult<T> {
        let mut pause = self.retries.first;
        let mut attempt = 1;
        loop {
            match act().await {
                Err(StoreError::Unavailable { .. }) if attempt < self.retries.attempts => {
                    self.sleep.sleep(pause).await;
                    pause = (pause * 2).min(self.retries.longest);
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    /// Puts an object and returns once it is durable. Putting the same bytes again is no error:
    /// an answer may have been lost.
    ///
    /// # Errors
    /// `Conflict` if something else is there.
    pub async fn put(&self, name: ObjectName, chunks: &[Bytes]) -> StoreResult<ObjectRef> {
        let size = chunks.iter().map(|c| c.len() as u64).sum();
        let object = ObjectRef { name, size, checksum: checksum(chunks) };
        let (what, path) = (name.to_string(), self.path(&name));
        let put = || async {
            let payload: PutPayload = chunks.iter().cloned().collect();
            self.store.put_opts(&path, payload, PutMode::Create.into()).await.map_err(|e| told(&what, &e))
        };
        match self.persist(put).await {
            Ok(_) => Ok(object),
            Err(StoreError::Conflict { .. }) => match self.get(&object).await {
                Ok(_) => Ok(object),
                Err(StoreError::Corrupt { .. }) => Err(StoreError::Conflict { what }),
                Err(e) => Err(e),
            },
            Err(e) => Err(e),
        }
    }

    /// What is in an object, once it has been found to be what was put.
    pub async fn get(&self, object: &ObjectRef) -> StoreResult<Bytes> {
        let path = self.path(&object.name);
        let mut again = true;
        loop {
            match self.persist(|| self.get_once(object, &path)).await {
                // The bytes may have been damaged on the way.
                Err(StoreError::Corrupt { .. }) if again => again = false,
                done => return done,
            }
        }
    }

    async fn get_once(&self, object: &ObjectRef, path: &Path) -> StoreResult<Bytes> {
        let what = object.name.to_string();
        let found = self.store.get(path).await.map_err(|e| told(&what, &e))?;
        // Nothing is read, nor memory taken for it, that cannot be right.
        if found.meta.size != object.size {
            let why = format!("it has {} bytes instead of {}", found.meta.size, object.size);
            return Err(StoreError::corrupt(what, why));
        }
        let bytes = found.bytes().await.map_err(|e| told(&what, &e))?;
        if bytes.len() as u64 != object.size || checksum(std::slice::from_ref(&bytes)) != object.checksum {
            return Err(StoreError::corrupt(what, "its checksum does not fit"));
        }
        Ok(bytes)
    }

    /// All objects, or those of one incarnation and job, in order of their names. What has no name
    /// of an object is passed over: it is not ours.
    pub async fn list(&self, of: Option<(u32, u64)>) -> StoreResult<Vec<(ObjectName, u64)>> {
        let prefix = match of {
            Some((incarnation, job)) => Path::from(format!("{}/i{incarnation}/job{job}", self.root)),
            None => self.root.clone(),
        };
        let what = format!("the list of {prefix}");
        let list = || async {
            let mut found = Vec::new();
            let mut all = self.store.list(Some(&prefix));
            while let Some(meta) = all.try_next().await.map_err(|e| told(&what, &e))? {
                let mut name = String::new();
                for piece in meta.location.prefix_match(&self.root).into_iter().flatten() {
                    name.push_str(if name.is_empty() { "" } else { "/" });
                    name.push_str(piece.as_ref());
                }
                found.extend(name.parse().ok().map(|n: ObjectName| (n, meta.size)));
            }
            found.sort_unstable();
            Ok(found)
        };
        match self.persist(list).await {
            Err(StoreError::NotFound { .. }) => Ok(Vec::new()),
            done => done,
        }
    }

    /// Deletes objects. One that is gone already is no error. Stops at the first that cannot be
    /// deleted.
    pub async fn delete(&self, names: impl IntoIterator<Item = ObjectName>) -> StoreResult<()> {
        for name in names {
            let (what, path) = (name.to_string(), self.path(&name));
            let one = || async {
                let at = futures::stream::once(std::future::ready(Ok(path.clone()))).boxed();
                self.store
                    .delete_stream(at)
                    .try_for_each(|_| std::future::ready(Ok(())))
                    .await
                    .map_err(|e| told(&what, &e))
            };
            match self.persist(one).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// An error of the object store by what to do about it.
fn told(what: &str, e: &object_store::Error) -> StoreError {
    use object_store::Error as E;
    let what = what.to_owned();
    match e {
        E::NotFound { .. } => return StoreError::NotFound { what },
        E::AlreadyExists { .. } | E::Precondition { .. } => return StoreError::Conflict { what },
        E::InvalidPath { .. } | E::NotSupported { .. } | E::NotImplemented { .. } => {
            return StoreError::Invalid(format!("{what}: {e}"));
        }
        _ => {}
    }
    let mut cause = e.source();
    while let Some(c) = cause {
        if let Some(io) = c.downcast_ref::<std::io::Error>()
            && let full @ StoreError::Full { .. } = StoreError::io(what.clone(), io)
        {
            return full;
        }
        cause = c.source();
    }
    StoreError::Unavailable { what, why: e.to_string() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "objects_tests.rs"]
pub(super) mod tests;
