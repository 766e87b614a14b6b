//! The meta store in the data directory: the catalog, the newest manifest and the epoch records,
//! in one file that survives a crash at any time. Whatever a commit holds is there whole or not at all.

use std::path::Path;

use parking_lot::RwLock;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use spate_engine::types::{ErrorKind, Result, SpateError};

const ENTRIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("entries");
/// Where the version of all that is stored here stands.
const FORMAT_KEY: &str = "format";
/// The version that this program writes, and the only one that it reads.
const FORMAT: &[u8] = b"1";

fn failed(e: impl std::fmt::Display) -> SpateError {
    SpateError::new(ErrorKind::Io, format!("the data directory cannot be read or written: {e}"))
}

/// Changes that belong together.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    /// Entries to set.
    pub puts: Vec<(String, Vec<u8>)>,
    /// Entries to remove.
    pub deletes: Vec<String>,
}

impl Batch {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty()
    }

    /// With another's changes too.
    pub fn and(mut self, other: Self) -> Self {
        self.puts.extend(other.puts);
        self.deletes.extend(other.deletes);
        self
    }
}

/// Entries by name. See the module's text.
#[derive(Debug)]
pub struct Meta {
    /// Gone once it is closed.
    db: RwLock<Option<Database>>,
}

fn closed() -> SpateError {
    SpateError::new(ErrorKind::Cancelled, "the data directory is closed")
}

impl Meta {
    /// Opens the store in a file, making it if need be.
    ///
    /// # Errors
    /// If another process has it open, or a newer version wrote it.
    pub fn open(path: &Path) -> Result<Self> {
        let db = Database::create(path).map_err(|e| match e {
            redb::DatabaseError::DatabaseAlreadyOpen => {
                SpateError::new(ErrorKind::Io, "the data directory is in use by another process")
                    .with_hint("one engine at a time can have it")
            }
            e => failed(e),
        })?;
        let meta = Self { db: RwLock::new(Some(db)) };
        match meta.get(FORMAT_KEY)?.as_deref() {
            None => meta.commit(Batch { puts: vec![(FORMAT_KEY.into(), FORMAT.to_vec())], deletes: vec![] })?,
            Some(FORMAT) => {}
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                return Err(SpateError::unsupported(format!("the data directory has format {other}"))
                    .with_hint("a newer version of this program wrote it"));
            }
        }
        Ok(meta)
    }

    /// Lets go of the file. What is asked for afterwards fails.
    pub fn close(&self) {
        *self.db.write() = None;
    }

    /// Whether it has been closed.
    pub fn is_closed(&self) -> bool {
        self.db.read().is_none()
    }

    /// Makes changes, all or none; they are durable when this returns.
    pub fn commit(&self, batch: Batch) -> Result<()> {
        let db = self.db.read();
        let mut write = db.as_ref().ok_or_else(closed)?.begin_write().map_err(failed)?;
        write.set_durability(Durability::Immediate).map_err(failed)?;
        {
            let mut table = write.open_table(ENTRIES).map_err(failed)?;
            for name in &batch.deletes {
                table.remove(name.as_str()).map_err(failed)?;
            }
            for (name, value) in &batch.puts {
                table.insert(name.as_str(), value.as_slice()).map_err(failed)?;
            }
        }
        write.commit().map_err(failed)
    }

    /// An entry.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let db = self.db.read();
        let read = db.as_ref().ok_or_else(closed)?.begin_read().map_err(failed)?;
        let table = match read.open_table(ENTRIES) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            other => other.map_err(failed)?,
        };
        Ok(table.get(name).map_err(failed)?.map(|v| v.value().to_vec()))
    }

    /// All entries whose names begin with `prefix`, by name.
    pub fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        self.each(prefix, |name, value| (name.to_owned(), value.to_vec()))
    }

    /// Names of all entries that begin with `prefix`, in order.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.each(prefix, |name, _| name.to_owned())
    }

    fn each<T>(&self, prefix: &str, take: impl Fn(&str, &[u8]) -> T) -> Result<Vec<T>> {
        let db = self.db.read();
        let read = db.as_ref().ok_or_else(closed)?.begin_read().map_err(failed)?;
        let table = read.open_table(ENTRIES).map_err(failed)?;
        let mut out = Vec::new();
        for entry in table.range(prefix..).map_err(failed)? {
            let (name, value) = entry.map_err(failed)?;
            if !name.value().starts_with(prefix) {
                break;
            }
            out.push(take(name.value(), value.value()));
        }
        Ok(out)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_and_found_by_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.redb");
        let put = |n: &str, v: &str| (n.to_owned(), v.as_bytes().to_vec());
        {
            let meta = Meta::open(&path).unwrap();
            assert!(Meta::open(&path).unwrap_err().to_string().contains("in use"));
            meta.commit(Batch { puts: vec![put("a/1", "x"), put("a/2", "y"), put("b/1", "z")], deletes: vec![] })
                .unwrap();
            meta.commit(Batch { puts: vec![put("a/3", "w")], deletes: vec!["a/1".into(), "never".into()] }).unwrap();
        }
        let meta = Meta::open(&path).unwrap();
        assert_eq!(meta.scan("a/").unwrap(), [put("a/2", "y"), put("a/3", "w")]);
        assert_eq!(meta.names("a/").unwrap(), ["a/2", "a/3"]);
        assert_eq!(meta.get("b/1").unwrap().as_deref(), Some(&b"z"[..]));
        assert_eq!(meta.get("a/1").unwrap(), None);
        meta.commit(Batch { puts: vec![put(FORMAT_KEY, "2")], deletes: vec![] }).unwrap();
        drop(meta);
        assert!(Meta::open(&path).unwrap_err().to_string().contains("format 2"));
    }
}
