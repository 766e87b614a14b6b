//! Which files a list of files, folders and globs means.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use spate_engine::types::{ErrorKind, Result, SpateError};

/// All files that the paths name: a file is itself, a folder is every `*.slt` below it, and
/// everything else is a glob. In the order given, each once, sorted within a folder or glob.
/// A path that names nothing is an error.
pub fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    for path in paths {
        let mut found = Vec::new();
        if path.is_file() {
            found.push(path.clone());
        } else if path.is_dir() {
            below(path, &mut found)?;
        } else {
            let pattern = path.to_string_lossy();
            let matches = glob::glob(&pattern)
                .map_err(|e| SpateError::invalid(format!("bad pattern \"{pattern}\": {}", e.msg)))?;
            for entry in matches {
                let entry = entry.map_err(|e| unreadable(e.path(), e.error()))?;
                if entry.is_dir() {
                    below(&entry, &mut found)?;
                } else {
                    found.push(entry);
                }
            }
        }
        if found.is_empty() {
            let message = if path.is_dir() {
                format!("no *.slt files below \"{}\"", path.display())
            } else {
                format!("no such file or folder: \"{}\"", path.display())
            };
            return Err(SpateError::new(ErrorKind::NotFound, message));
        }
        files.extend(found.into_iter().filter(|file| seen.insert(file.clone())));
    }
    Ok(files)
}

/// Collects the `*.slt` files below a folder, by name.
fn below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>())
        .map_err(|e| unreadable(folder, &e))?;
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            below(&entry, found)?;
        } else if entry.extension().is_some_and(|e| e == "slt") {
            found.push(entry);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> SpateError {
    SpateError::new(ErrorKind::Io, format!("cannot read \"{}\": {error}", path.display()))
}
