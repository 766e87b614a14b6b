//! What a commit means, written once for all stores of our own.

use bytes::Bytes;

use super::VALUE_MAX;
use super::{COMMIT_MAX, Change, Condition, Entry, KEY_MAX, LeaseId, MetaError, MetaResult, OPS_MAX, Op, Revision};

/// Where a store keeps things: in memory, or in a transaction that sees its own writes.
pub(super) trait Tables {
    /// Version and lease of a key.
    fn find(&self, key: &str) -> MetaResult<Option<(Revision, Option<LeaseId>)>>;

    /// Writes a key.
    fn write(&mut self, entry: &Entry) -> MetaResult<()>;

    /// Removes a key.
    fn remove(&mut self, key: &str) -> MetaResult<()>;

    /// Keys in a range, in order.
    fn keys(&self, from: &str, to: &str) -> MetaResult<Vec<String>>;

    /// Notes that a key goes with a lease.
    fn attach(&mut self, lease: LeaseId, key: &str) -> MetaResult<()>;

    /// Notes that it no longer does.
    fn detach(&mut self, lease: LeaseId, key: &str) -> MetaResult<()>;

    /// Keys that go with a lease.
    fn attached(&self, lease: LeaseId) -> MetaResult<Vec<String>>;
}

fn invalid(text: impl Into<String>) -> MetaError {
    MetaError::Invalid(text.into())
}

fn check_key(key: &str) -> MetaResult<()> {
    if key.is_empty() || key.len() > KEY_MAX || key.contains('\0') {
        return Err(invalid(format!("a key has 1 to {KEY_MAX} bytes, none of them zero")));
    }
    Ok(())
}

/// Whether every store can take a commit.
pub(super) fn check(conditions: &[Condition], ops: &[Op]) -> MetaResult<()> {
    if conditions.len() > OPS_MAX || ops.len() > OPS_MAX {
        return Err(invalid(format!("a commit has at most {OPS_MAX} conditions and {OPS_MAX} operations")));
    }
    let mut bytes = 0;
    for c in conditions {
        check_key(c.key())?;
        bytes += c.key().len();
    }
    let mut touched: Vec<(&str, Option<&str>)> = Vec::new();
    for op in ops {
        match op {
            Op::Put { key, value, .. } => {
                check_key(key)?;
                if value.len() > VALUE_MAX {
                    return Err(invalid(format!(
                        "the value of \"{key}\" has {} bytes; {VALUE_MAX} is the most",
                        value.len()
                    )));
                }
                bytes += key.len() + value.len();
                touched.push((key, None));
            }
            Op::Delete { key } => {
                check_key(key)?;
                bytes += key.len();
                touched.push((key, None));
            }
            Op::DeleteRange { from, to } => {
                check_key(from)?;
                check_key(to)?;
                bytes += from.len() + to.len();
                touched.push((from, Some(to)));
            }
        }
    }
    if bytes > COMMIT_MAX {
        return Err(invalid(format!("a commit has {bytes} bytes; {COMMIT_MAX} is the most")));
    }
    let within = |key: &str, r: &(&str, Option<&str>)| match r.1 {
        Some(to) => r.0 <= key && key < to,
        None => r.0 == key,
    };
    for (i, a) in touched.iter().enumerate() {
        if touched[..i].iter().any(|b| within(a.0, b) || within(b.0, a)) {
            return Err(invalid(format!("a commit touches \"{}\" twice", a.0)));
        }
    }
    Ok(())
}

/// Does a commit that has been [checked](check): what changed. `revision` is the one that it gets
/// if anything does. Nothing has been done if there is an error other than the tables' own.
pub(super) fn apply(
    tables: &mut impl Tables,
    conditions: &[Condition],
    ops: &[Op],
    revision: Revision,
    is_alive: impl Fn(LeaseId) -> bool,
) -> MetaResult<Vec<Change>> {
    for c in conditions {
        let version = tables.find(c.key())?.map(|f| f.0);
        let holds = match c {
            Condition::Absent(_) => version.is_none(),
            Condition::Version(_, v) => version == Some(*v),
        };
        if !holds {
            return Err(MetaError::Conflict(c.key().to_owned()));
        }
    }
    for op in ops {
        if let Op::Put { lease: Some(lease), .. } = op
            && !is_alive(*lease)
        {
            return Err(MetaError::LeaseLost);
        }
    }
    let mut changes = Vec::new();
    for op in ops {
        match op {
            Op::Put { key, value, lease } => changes.push(put(tables, key, value, *lease, revision)?),
            Op::Delete { key } => changes.extend(delete(tables, key, revision)?),
            Op::DeleteRange { from, to } => {
                for key in tables.keys(from, to)? {
                    changes.extend(delete(tables, &key, revision)?);
                }
            }
        }
    }
    Ok(changes)
}

fn put(
    tables: &mut impl Tables,
    key: &str,
    value: &Bytes,
    lease: Option<LeaseId>,
    revision: Revision,
) -> MetaResult<Change> {
    let before = tables.find(key)?.and_then(|f| f.1);
    if before != lease {
        if let Some(before) = before {
            tables.detach(before, key)?;
        }
        if let Some(lease) = lease {
            tables.attach(lease, key)?;
        }
    }
    let entry = Entry { key: key.to_owned(), value: value.clone(), version: revision, lease };
    tables.write(&entry)?;
    Ok(Change { revision, key: key.to_owned(), entry: Some(entry) })
}

fn delete(tables: &mut impl Tables, key: &str, revision: Revision) -> MetaResult<Option<Change>> {
    let Some((_, lease)) = tables.find(key)? else { return Ok(None) };
    if let Some(lease) = lease {
        tables.detach(lease, key)?;
    }
    tables.remove(key)?;
    Ok(Some(Change { revision, key: key.to_owned(), entry: None }))
}

/// Removes what goes with a lease.
pub(super) fn end_lease(tables: &mut impl Tables, lease: LeaseId, revision: Revision) -> MetaResult<Vec<Change>> {
    let mut changes = Vec::new();
    for key in tables.attached(lease)? {
        changes.extend(delete(tables, &key, revision)?);
    }
    Ok(changes)
}
