//! An object store in a directory, durable on return: `object_store`'s own local store calls
//! neither `fsync` on files nor on directories (as of 0.13).
//!
//! A put writes a file aside, makes it durable, gives it its name (a hard link, which fails if
//! the name is taken) and makes the directory durable. Several processes may share a directory;
//! so directories are never removed: one that another makes again might not be durable yet.
//! Calls block; they belong on threads that may wait for a disk.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use super::{make_dir, sync_dir};

/// Files that are being written, one directory per process, locked while the process lives.
const ASIDE: &str = ".tmp";
const LOCK: &str = "lock";

/// Objects as files below a directory.
#[derive(Debug, Clone)]
pub struct ObjectDir(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    aside: PathBuf,
    /// Of this process, while it lives: nobody removes what is in `aside`.
    _lock: File,
    next: AtomicU64,
    /// Directories whose names are known to be durable.
    known: Mutex<BTreeSet<PathBuf>>,
}

impl ObjectDir {
    /// Opens a directory, making it if need be, and removes what dead processes left half written.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        make_dir(&root.join(ASIDE))?;
        let mut own = None;
        for entry in std::fs::read_dir(root.join(ASIDE))? {
            let dir = entry?.path();
            if let Some(lock) = try_lock(&dir)? {
                for left in std::fs::read_dir(&dir)? {
                    let left = left?.path();
                    if left.file_name().is_some_and(|n| n != LOCK) {
                        std::fs::remove_file(left)?;
                    }
                }
                own.get_or_insert((dir, lock));
            }
        }
        let mut n = 0u32;
        let (aside, lock) = loop {
            if let Some(own) = own {
                break own;
            }
            let dir = root.join(ASIDE).join(n.to_string());
            n += 1;
            own = match std::fs::create_dir(&dir) {
                Ok(()) => try_lock(&dir)?.map(|lock| (dir, lock)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => None,
                Err(e) => return Err(e),
            };
        };
        let known = Mutex::new(BTreeSet::from([root.clone()]));
        Ok(Self(Arc::new(Inner { root, aside, _lock: lock, next: AtomicU64::new(0), known })))
    }
}

/// Locks a directory of files being written; `None` if another process has it.
fn try_lock(dir: &FilePath) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(e)) => Err(e),
    }
}

impl Inner {
    fn file(&self, at: &Path) -> Result<PathBuf> {
        let hidden = at.parts().next().is_none_or(|p| p.as_ref() == ASIDE);
        if hidden {
            return Err(generic(io::Error::new(io::ErrorKind::InvalidInput, format!("no name of an object: {at}"))));
        }
        Ok(self.root.join(at.as_ref()))
    }

    /// Makes a directory and its name durable, once per process.
    fn ensure(&self, dir: &FilePath, known: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        if known.contains(dir) {
            return Ok(());
        }
        let parent = dir.parent().ok_or(io::ErrorKind::NotFound)?;
        self.ensure(parent, known)?;
        match std::fs::create_dir(dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            // Whoever made it may not have made its name durable yet.
            _ => sync_dir(parent)?,
        }
        known.insert(dir.to_owned());
        Ok(())
    }

    fn put(&self, at: &Path, payload: &PutPayload, replace: bool) -> Result<()> {
        let file = self.file(at)?;
        let dir = file.parent().unwrap_or(&self.root);
        let aside = self.aside.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        let result = self.write(&aside, payload).and_then(|()| self.publish(&aside, &file, dir, replace));
        // After a rename there is nothing left; what cannot be removed now is at the next start.
        let _ = std::fs::remove_file(&aside);
        result.map_err(|e| error(at, e))
    }

    fn write(&self, aside: &FilePath, payload: &PutPayload) -> io::Result<()> {
        let mut out = OpenOptions::new().write(true).create_new(true).open(aside)?;
        for chunk in payload {
            out.write_all(chunk)?;
        }
        out.sync_all()
    }

    fn publish(&self, aside: &FilePath, file: &FilePath, dir: &FilePath, replace: bool) -> io::Result<()> {
        self.ensure(dir, &mut self.known.lock())?;
        let done = if replace { std::fs::rename(aside, file) } else { std::fs::hard_link(aside, file) };
        match &done {
            // Whoever put it first may not have come to making it durable.
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => done,
            _ => sync_dir(dir).and(done),
        }
    }

    fn get(&self, at: &Path, options: &GetOptions) -> Result<GetResult> {
        let mut file = File::open(self.file(at)?).map_err(|e| error(at, e))?;
        let meta = meta(at.clone(), &file.metadata().map_err(|e| error(at, e))?)?;
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(r) => r.as_range(meta.size).map_err(|e| generic(io::Error::other(e)))?,
            None => 0..meta.size,
        };
        let mut bytes = Vec::new();
        if !options.head {
            let len = usize::try_from(range.end - range.start).map_err(|e| generic(io::Error::other(e)))?;
            bytes.resize(len, 0);
            file.seek(SeekFrom::Start(range.start))
                .and_then(|_| file.read_exact(&mut bytes))
                .map_err(|e| error(at, e))?;
        }
        let payload = GetResultPayload::Stream(stream::once(async move { Ok(Bytes::from(bytes)) }).boxed());
        Ok(GetResult { payload, meta, range, attributes: Attributes::new() })
    }

    fn delete(&self, at: &Path) -> Result<()> {
        let file = self.file(at)?;
        std::fs::remove_file(&file).map_err(|e| error(at, e))
    }

    /// Files below a directory, in order of their names.
    fn walk(&self, dir: &FilePath, out: &mut Vec<ObjectMeta>) -> Result<()> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            // Nothing was ever put there.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(generic(e)),
        };
        let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>().map_err(generic)?;
        paths.sort();
        for path in paths {
            let Ok(name) = path.strip_prefix(&self.root) else { continue };
            if name == FilePath::new(ASIDE) {
                continue;
            }
            match std::fs::metadata(&path) {
                Ok(m) if m.is_dir() => self.walk(&path, out)?,
                Ok(m) => out.push(meta(Path::parse(name.to_string_lossy())?, &m)?),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(generic(e)),
            }
        }
        Ok(())
    }

    fn list(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let mut out = Vec::new();
        match prefix {
            Some(p) if !p.as_ref().is_empty() => self.walk(&self.file(p)?, &mut out)?,
            _ => self.walk(&self.root, &mut out)?,
        }
        Ok(out)
    }
}

fn meta(location: Path, m: &std::fs::Metadata) -> Result<ObjectMeta> {
    let last_modified = m.modified().map_err(generic)?.into();
    Ok(ObjectMeta { location, last_modified, size: m.len(), e_tag: None, version: None })
}

fn generic(e: io::Error) -> Error {
    Error::Generic { store: "directory", source: Box::new(e) }
}

fn error(at: &Path, e: io::Error) -> Error {
    let path = at.to_string();
    match e.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path, source: Box::new(e) },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: Box::new(e) },
        io::ErrorKind::PermissionDenied => Error::PermissionDenied { path, source: Box::new(e) },
        _ => generic(e),
    }
}

impl fmt::Display for ObjectDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "directory \"{}\"", self.0.root.display())
    }
}

#[async_trait]
impl ObjectStore for ObjectDir {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let replace = match options.mode {
            PutMode::Create => false,
            PutMode::Overwrite => true,
            PutMode::Update(_) => return Err(missing("put of an expected version")),
        };
        self.0.put(at, &payload, replace)?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(missing("put in parts"))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get(at, &options)
    }

    fn delete_stream(&self, at: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let inner = self.0.clone();
        at.map(move |p| p.and_then(|p| inner.delete(&p).map(|()| p))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.0.list(prefix) {
            Ok(all) => stream::iter(all.into_iter().map(Ok)).boxed(),
            Err(e) => stream::once(async move { Err(e) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (mut below, mut objects) = (BTreeSet::new(), Vec::new());
        let at = prefix.cloned().unwrap_or_default();
        for m in self.0.list(prefix)? {
            let mut rest = m.location.prefix_match(&at).into_iter().flatten();
            match (rest.next(), rest.next()) {
                (Some(dir), Some(_)) => {
                    below.insert(at.clone().join(dir));
                }
                _ => objects.push(m.clone()),
            }
        }
        Ok(ListResult { common_prefixes: below.into_iter().collect(), objects })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let bytes = self.0.get(from, &GetOptions::default())?.bytes().await?;
        self.0.put(to, &bytes.into(), options.mode == CopyMode::Overwrite)
    }
}

fn missing(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "a directory".to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "object_dir_tests.rs"]
mod tests;
