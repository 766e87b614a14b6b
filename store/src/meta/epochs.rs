//! The log of epoch records, in the meta store: a record is durable before anyone may act on it.
//!
//! One commit of redb costs one `fsync`, as an append to a file of our own would, and up to 4 KiB
//! takes about as long (measured in turn: 0.5 to 0.8 against 0.3 ms on a quiet disk, both 4 ms on
//! a busy one). So there is no second format, and the same log works on etcd. Every append holds
//! only while its writer is the leader.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::Xxh3;

use super::{Condition, MetaError, MetaResult, MetaStore, Op};
use spate_engine::types::Epoch;

/// Longest record in bytes; a longer one becomes an object, and its name and checksum the record.
pub const RECORD_MAX: usize = 64 << 10;
/// The format that is written; older ones are read too.
const VERSION: u16 = 1;
const HEADER: usize = 18;
/// Most records that are read at a time.
const STEP: u64 = 256;

/// The epoch records of a group of jobs.
#[derive(Debug)]
pub struct EpochLog {
    store: Arc<dyn MetaStore>,
    prefix: String,
    /// What must hold for every write: that its writer leads.
    leads: Vec<Condition>,
}

/// An error that is the caller's to handle: what it says of the log.
fn corrupt(key: &str, why: &str) -> MetaError {
    MetaError::Corrupt(format!("\"{key}\": {why}"))
}

impl EpochLog {
    /// The log whose keys begin with `prefix`, written to while `leads` hold.
    pub fn new(store: Arc<dyn MetaStore>, prefix: impl Into<String>, leads: Vec<Condition>) -> Self {
        Self { store, prefix: prefix.into(), leads }
    }

    fn key(&self, epoch: Epoch) -> String {
        format!("{}{epoch:020}", self.prefix)
    }

    /// Appends a record; durable on return. Appending the same again is no error: an answer may
    /// have been lost.
    ///
    /// # Errors
    /// `Conflict` if the writer no longer leads, or the epoch has another record.
    pub async fn append(&self, epoch: Epoch, record: &[u8]) -> MetaResult<()> {
        if record.len() > RECORD_MAX || epoch == 0 {
            return Err(MetaError::Invalid(format!("no record of epoch {epoch} with {} bytes", record.len())));
        }
        let (key, value) = (self.key(epoch), seal(epoch, record));
        let mut conditions = self.leads.clone();
        conditions.push(Condition::Absent(key.clone()));
        match self.store.commit(&conditions, &[Op::put(key.clone(), value.clone())]).await {
            Ok(_) => Ok(()),
            Err(MetaError::Conflict(at)) if at == key => {
                let there = self.store.get(&key).await?;
                if there.is_some_and(|e| e.value == value) { Ok(()) } else { Err(MetaError::Conflict(key)) }
            }
            // Whether it was done shows; if not, the caller may append it again.
            Err(MetaError::Unknown(why)) => match self.store.get(&key).await {
                Ok(Some(e)) if e.value == value => Ok(()),
                Ok(Some(_)) => Err(MetaError::Conflict(key)),
                _ => Err(MetaError::Unknown(why)),
            },
            Err(e) => Err(e),
        }
    }

    /// Up to 256 records from epoch `from` on, in order; none once there are no more.
    pub async fn read(&self, from: Epoch) -> MetaResult<Vec<(Epoch, Bytes)>> {
        // Epochs without input have no record, so a range of epochs may be empty while there are
        // more: what is left is asked for as a whole then.
        let near = self.store.range(&self.key(from), &self.key(from.saturating_add(STEP))).await?;
        let found = match near.entries.is_empty() {
            true => self.store.range(&self.key(from), &super::after_prefix(&self.prefix)).await?,
            false => near,
        };
        let mut out = Vec::new();
        for e in found.entries.iter().take(STEP as usize) {
            let epoch = e.key.strip_prefix(&self.prefix).and_then(|k| k.parse().ok());
            let epoch = epoch.ok_or_else(|| corrupt(&e.key, "it is no epoch"))?;
            out.push((epoch, unseal(&e.key, epoch, &e.value)?));
        }
        Ok(out)
    }

    /// Removes the records before epoch `below`: a global checkpoint covers them.
    pub async fn truncate(&self, below: Epoch) -> MetaResult<()> {
        let op = Op::DeleteRange { from: self.key(0), to: self.key(below) };
        // Doing it twice is doing it once.
        match self.store.commit(&self.leads, std::slice::from_ref(&op)).await {
            Err(MetaError::Unknown(_)) => self.store.commit(&self.leads, &[op]).await.map(|_| ()),
            done => done.map(|_| ()),
        }
    }
}

/// Covers the version too: a damaged number must not look like a newer format.
fn sum(version: u16, epoch: Epoch, record: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&version.to_le_bytes());
    hash.update(&epoch.to_le_bytes());
    hash.update(record);
    hash.digest()
}

fn seal(epoch: Epoch, record: &[u8]) -> Bytes {
    seal_as(VERSION, epoch, record)
}

fn seal_as(version: u16, epoch: Epoch, record: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER + record.len());
    out.put_u16_le(version);
    out.put_u64_le(epoch);
    out.put_u64_le(sum(version, epoch, record));
    out.put_slice(record);
    out.freeze()
}

fn unseal(key: &str, epoch: Epoch, value: &Bytes) -> MetaResult<Bytes> {
    let header: &[u8; HEADER] = value.first_chunk().ok_or_else(|| corrupt(key, "it is too short"))?;
    let record = value.slice(HEADER..);
    let version = u16::from_le_bytes([header[0], header[1]]);
    let fits = header[2..10] == epoch.to_le_bytes() && header[10..] == sum(version, epoch, &record).to_le_bytes();
    match version {
        VERSION if fits => Ok(record),
        VERSION.. if fits => Err(MetaError::Newer { found: version.into(), known: VERSION.into() }),
        _ => Err(corrupt(key, "its checksum does not fit")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "epochs_tests.rs"]
mod tests;
