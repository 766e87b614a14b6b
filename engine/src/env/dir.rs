//! Files that are whole or not there, whatever happens: the local disk as a store of objects.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What files are called until they are whole.
const PARTIAL: &str = ".partial";

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
            // The name must survive too.
            File::open(&self.path)?.sync_all()
        })();
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written
    }

    /// Reads a file.
    pub fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
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
        assert_eq!(dir.get("x").unwrap(), b"22");
        assert_eq!(dir.get("y").unwrap_err().kind(), io::ErrorKind::NotFound);
        dir.delete("x").unwrap();
        dir.delete("x").unwrap();
        assert!(dir.list().unwrap().is_empty());
    }
}
