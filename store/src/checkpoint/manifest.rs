//! A manifest: which snapshots of a job's tasks count. What no manifest names does not exist.
//!
//! It is one line with magic, format version and checksum, and JSON after it: small beside what
//! it describes, and can be read by whoever has to find out what happened. Up to 64 KiB it stands
//! in the meta store; a larger one becomes an object, and the meta store holds its name and checksum.

use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::names::{ManifestName, ObjectName};
use super::objects::{ObjectRef, SnapshotObjects};
use super::{StoreError, StoreResult};
use spate_engine::task::TaskId;
use spate_engine::types::Epoch;

/// The format that is written; older ones are read too.
pub const VERSION: u16 = 1;
/// Longest manifest that stands in the meta store itself, in bytes.
pub const INLINE_MAX: usize = 64 << 10;

const MAGIC: &str = "spate-manifest";
const POINTER: &str = "spate-manifest-at";

/// Which snapshots of a job's tasks count.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Manifest {
    /// Rises with every restore from a backup.
    pub incarnation: u32,
    /// The job.
    pub job: u64,
    /// Of the leader that wrote it.
    pub term: u32,
    /// Rises with every manifest of the job.
    pub sequence: u64,
    /// The oldest epoch of a current snapshot: epoch records after it are needed.
    pub epoch: Epoch,
    /// The job's tasks, in order.
    pub tasks: Vec<TaskEntry>,
}

/// What a manifest says of a task.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TaskEntry {
    /// The task.
    pub task: TaskId,
    /// Of the task that runs.
    pub generation: u64,
    /// Epochs between its snapshots.
    pub every: u64,
    /// Tasks of the job that take its output.
    pub consumers: Vec<TaskId>,
    /// Epoch of its current snapshot; 0 if it has none.
    pub current: Epoch,
    /// Its snapshots, oldest first. Those after the current one wait for the consumers' snapshots.
    pub chain: Vec<Arc<SnapshotEntry>>,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SnapshotEntry {
    /// Its epoch.
    pub epoch: Epoch,
    /// It holds what changed since the snapshot of this epoch; `None`: all rows.
    pub since: Option<Epoch>,
    /// Of the task that took it.
    pub generation: u64,
    /// Of every operator and table, the segment's parts in order.
    pub tables: Vec<Vec<Vec<ObjectRef>>>,
    /// States of the leaves; the task knows what they mean.
    #[serde(with = "bytes_as_hex")]
    pub leaves: Vec<Bytes>,
}

impl SnapshotEntry {
    /// Whether a chain can begin with it.
    pub fn is_full(&self) -> bool {
        self.since.is_none()
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.tables.iter().flatten().flatten()
    }
}

mod bytes_as_hex {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(all: &[Bytes], s: S) -> Result<S::Ok, S::Error> {
        let text = |b: &Bytes| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
        all.iter().map(text).collect::<Vec<_>>().serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Bytes>, D::Error> {
        let one = |text: String| {
            let digit = |d: u8| (d as char).to_digit(16);
            let byte = |p: &[u8]| match p {
                [a, b] => Some((digit(*a)? << 4 | digit(*b)?) as u8),
                _ => None,
            };
            let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
            bytes.map(Bytes::from).ok_or_else(|| D::Error::custom("odd or foreign digits"))
        };
        Vec::<String>::deserialize(d)?.into_iter().map(one).collect()
    }
}

/// What goes into the meta store, after the object if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The value in the meta store.
    pub value: Bytes,
    /// An object that must be put first.
    pub object: Option<(ObjectName, Bytes)>,
}

/// Covers the version too: a damaged number must not look like a newer format.
fn sum(magic: &str, version: &str, body: &str) -> String {
    let mut hash = Xxh3::new();
    [magic, " ", version, "\n", body].iter().for_each(|t| hash.update(t.as_bytes()));
    format!("{:032x}", hash.digest128())
}

fn seal(magic: &str, version: u16, body: &str) -> Bytes {
    let version = version.to_string();
    format!("{magic} {version} {}\n{body}", sum(magic, &version, body)).into()
}

/// The body of what [`seal`] wrote; `None` if it has another magic.
fn unseal<'a>(what: &str, magic: &str, bytes: &'a [u8]) -> StoreResult<Option<&'a str>> {
    let corrupt = |why: &str| StoreError::corrupt(what, why);
    let text = std::str::from_utf8(bytes).map_err(|_| corrupt("it is no text"))?;
    let (head, body) = text.split_once('\n').ok_or_else(|| corrupt("it has no first line"))?;
    let mut words = head.split(' ');
    if words.next() != Some(magic) {
        return Ok(None);
    }
    let (version, told, rest) = (words.next().unwrap_or_default(), words.next(), words.next());
    let fits = told == Some(sum(magic, version, body).as_str()) && rest.is_none();
    let version = version.parse::<u16>().ok();
    match version {
        Some(found) if found > VERSION && fits => {
            Err(StoreError::Newer { what: what.to_owned(), found, known: VERSION })
        }
        Some(VERSION) if fits => Ok(Some(body)),
        _ => Err(corrupt("its checksum does not fit")),
    }
}

impl Manifest {
    /// The bytes to be stored.
    pub fn to_stored(&self) -> StoreResult<Stored> {
        self.stored(INLINE_MAX)
    }

    fn stored(&self, inline_max: usize) -> StoreResult<Stored> {
        let invalid = |e: serde_json::Error| StoreError::Invalid(format!("cannot write a manifest: {e}"));
        let value = seal(MAGIC, VERSION, &serde_json::to_string(self).map_err(invalid)?);
        if value.len() <= inline_max {
            return Ok(Stored { value, object: None });
        }
        let Self { incarnation, job, term, sequence, .. } = *self;
        let name = ObjectName::Manifest(ManifestName { incarnation, job, term, sequence });
        let object = ObjectRef { name, size: value.len() as u64, checksum: xxh3_128(&value) };
        let pointer = seal(POINTER, VERSION, &serde_json::to_string(&object).map_err(invalid)?);
        Ok(Stored { value: pointer, object: Some((name, value)) })
    }

    /// Puts the object, if there is one, and gives the value for the meta store.
    pub async fn put(&self, objects: &SnapshotObjects) -> StoreResult<Bytes> {
        let stored = self.to_stored()?;
        if let Some((name, bytes)) = stored.object {
            objects.put(name, &[bytes]).await?;
        }
        Ok(stored.value)
    }

    /// The object that a value in the meta store points to, if it does.
    pub fn pointer(what: &str, value: &[u8]) -> StoreResult<Option<ObjectRef>> {
        let Some(body) = unseal(what, POINTER, value)? else { return Ok(None) };
        serde_json::from_str(body).map(Some).map_err(|e| StoreError::corrupt(what, e.to_string()))
    }

    /// The manifest that a value in the meta store (of the key `what`) holds or points to.
    pub async fn get(what: &str, value: &[u8], objects: &SnapshotObjects) -> StoreResult<Self> {
        match Self::pointer(what, value)? {
            Some(object) => Self::decode(&object.name.to_string(), &objects.get(&object).await?),
            None => Self::decode(what, value),
        }
    }

    /// A manifest from its own bytes.
    pub fn decode(what: &str, bytes: &[u8]) -> StoreResult<Self> {
        let body = unseal(what, MAGIC, bytes)?.ok_or_else(|| StoreError::corrupt(what, "it is no manifest"))?;
        let manifest: Self = serde_json::from_str(body).map_err(|e| StoreError::corrupt(what, e.to_string()))?;
        manifest.check().map_err(|why| StoreError::corrupt(what, why))?;
        Ok(manifest)
    }

    /// All objects that it needs.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.tasks.iter().flat_map(|t| t.chain.iter()).flat_map(|s| s.objects())
    }

    /// Whether it hangs together: chains without gaps, and current snapshots that fit.
    fn check(&self) -> Result<(), String> {
        for (i, t) in self.tasks.iter().enumerate() {
            if t.task.job != self.job || i > 0 && self.tasks[i - 1].task >= t.task {
                return Err(format!("{} is out of place", t.task));
            }
            let mut before = None;
            for s in &t.chain {
                let follows = before < Some(s.epoch) && (s.is_full() || s.since == before);
                if !follows || s.generation > t.generation {
                    return Err(format!("the chain of {} has a gap before epoch {}", t.task, s.epoch));
                }
                before = Some(s.epoch);
            }
            let has = t.chain.iter().any(|s| s.epoch == t.current);
            if has != (t.current > 0) || self.epoch > t.current {
                return Err(format!("{} has no snapshot of epoch {}", t.task, t.current));
            }
            for c in &t.consumers {
                let fits = self.tasks.iter().any(|o| o.task == *c && o.current >= t.current);
                if !fits {
                    return Err(format!("the snapshots of {} and {c} do not fit", t.task));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "manifest_tests.rs"]
pub(super) mod tests;
