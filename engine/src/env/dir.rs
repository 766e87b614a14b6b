//! Files that are whole or not there, whatever happens: the local disk as a store of objects.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What files are called until they are whole.
const PARTIAL: &str = ".partial";

/// Makes the names of the files in a directory survive: that of a new file, or a removal.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

/// A directory of files that are written once.
#[derive(Debug)]
pub struct DurableDir {
    path: PathBuf,
}

impl DurableDir {
    /// Opens a directory, making it if need be, and removes what a crash left half written.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let dir = Self { path: path.into() };
        fs::create_dir_all(&dir.path)?;
        for entry in fs::read_dir(&dir.path)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(PARTIAL) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(dir)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file; it is on the disk when this returns. One of the same name is replaced.
    pub fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let partial = self.path.join(format!("{name}{PARTIAL}"));
        let written = (|| {
            let mut file = File::create(&partial)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&partial, self.path.join(name))?;
            sync_dir(&self.path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written
    }

    /// Reads `bytes` bytes of a file, from byte `at` on. That there are fewer is an error.
    pub fn get(&self, name: &str, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.path.join(name))?;
        let there = file.metadata()?.len().saturating_sub(at);
        if (bytes as u64) > there {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.seek(SeekFrom::Start(at))?;
        let mut out = vec![0; bytes];
        file.read_exact(&mut out)?;
        Ok(out)
    }

    /// Names of all files.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let name = |e: io::Result<fs::DirEntry>| Ok(e?.file_name().to_string_lossy().into_owned());
        fs::read_dir(&self.path)?.map(name).collect()
    }

    /// Removes a file; that it was not there is no error.
    pub fn delete(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_are_whole_or_not_there() {
        let root = tempfile::tempdir().unwrap();
        let dir = DurableDir::open(root.path().join("a/b")).unwrap();
        dir.put("x", b"1").unwrap();
        dir.put("x", b"22").unwrap();
        fs::write(dir.path().join(format!("y{PARTIAL}")), b"half").unwrap();
        let dir = DurableDir::open(root.path().join("a/b")).unwrap();
        assert_eq!(dir.list().unwrap(), ["x"]);
        assert_eq!(dir.get("x", 0, 2).unwrap(), b"22");
        assert_eq!(dir.get("x", 1, 1).unwrap(), b"2");
        for (at, bytes) in [(0, 3), (3, 1), (u64::MAX, 1), (0, usize::MAX)] {
            assert_eq!(dir.get("x", at, bytes).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        assert_eq!(dir.get("y", 0, 0).unwrap_err().kind(), io::ErrorKind::NotFound);
        dir.delete("x").unwrap();
        dir.delete("x").unwrap();
        assert!(dir.list().unwrap().is_empty());
    }
}
