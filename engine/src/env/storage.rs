//! Where the engine puts what it does not keep in memory.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// A file without a name, gone once the last holder drops it. Offsets and lengths in bytes.
pub trait Scratch: Send + Sync + std::fmt::Debug {
    /// Writes all of `bytes` at an offset, behind the end too.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `bytes` from an offset; an error if there are fewer.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

/// A place for files.
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// A new empty scratch file.
    fn scratch(&self) -> io::Result<Arc<dyn Scratch>>;
}

/// The operating system's directory for temporary files.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemStorage;

#[derive(Debug)]
struct Unlinked(File);

impl Storage for SystemStorage {
    fn scratch(&self) -> io::Result<Arc<dyn Scratch>> {
        Ok(Arc::new(Unlinked(tempfile::tempfile()?)))
    }
}

impl Scratch for Unlinked {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.0, bytes, offset)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, bytes, offset)
    }
}

/// Files in memory, for simulations.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryStorage;

#[derive(Debug, Default)]
struct InMemory(Mutex<Vec<u8>>);

impl Storage for MemoryStorage {
    fn scratch(&self) -> io::Result<Arc<dyn Scratch>> {
        Ok(Arc::new(InMemory::default()))
    }
}

fn place(offset: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).map_err(io::Error::other)?;
    let end = start.checked_add(len).ok_or_else(|| io::Error::other("offset out of range"))?;
    Ok(start..end)
}

impl Scratch for InMemory {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let at = place(offset, bytes.len())?;
        let mut all = self.0.lock();
        if all.len() < at.end {
            all.resize(at.end, 0);
        }
        all[at].copy_from_slice(bytes);
        Ok(())
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let all = self.0.lock();
        let part = all.get(place(offset, bytes.len())?).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(part);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn scratch_files_give_back_what_was_written_and_nothing_else() {
        for storage in [&SystemStorage as &dyn Storage, &MemoryStorage] {
            let (a, b) = (storage.scratch().unwrap(), storage.scratch().unwrap());
            a.write_all_at(b"there", 6).unwrap();
            a.write_all_at(b"hello ", 0).unwrap();
            b.write_all_at(b"other", 0).unwrap();
            let mut bytes = [0; 8];
            a.read_exact_at(&mut bytes, 3).unwrap();
            assert_eq!(&bytes, b"lo there");
            assert_eq!(a.read_exact_at(&mut bytes, 4).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert!(a.read_exact_at(&mut bytes, u64::MAX).is_err());
        }
    }
}
