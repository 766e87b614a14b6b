//! Cuts a file into records: lines, or CSV records whose quoted fields may hold line ends. Holds
//! one buffer; a record longer than the limit is passed over without being held.

use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::types::{ErrorKind, Result, SpateError};

/// Bytes asked of the file at once.
#[cfg(not(test))]
const CHUNK: usize = 256 << 10;
/// So few that tests meet the chunk's end at every place of a record.
#[cfg(test)]
const CHUNK: usize = 61;
/// How much of a bad record is kept.
pub(super) const HEAD: usize = 4 << 10;

/// What a split remembers of its file, to notice that it was rewritten.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct FileId {
    /// Absolute path or path relative to the process.
    pub(super) path: PathBuf,
    /// Length in bytes; 0 for a file that may grow.
    pub(super) len: u64,
    /// Time of the last change in ns since 1970; 0 for a file that may grow.
    pub(super) mtime_ns: i128,
    /// Inode, or 0 where there are none.
    pub(super) inode: u64,
    /// Whether the file may grow.
    pub(super) grows: bool,
}

impl FileId {
    /// Of a file as it is now.
    pub(super) fn of(path: &Path, grows: bool) -> Result<Self> {
        let meta = std::fs::metadata(path).map_err(|e| io_error("cannot read", path, &e))?;
        let mut id = Self { path: path.to_path_buf(), len: 0, mtime_ns: 0, inode: inode(&meta), grows };
        if !grows {
            id.len = meta.len();
            id.mtime_ns = mtime_ns(&meta);
        }
        Ok(id)
    }

    /// Errors if the file is not what it was, or is shorter than what was read of it.
    pub(super) fn check(&self, read: u64) -> Result<()> {
        let meta = match std::fs::metadata(&self.path) {
            Ok(m) => m,
            // A growing file that was removed has nothing more to give; what is open stays readable.
            Err(e) if self.grows && e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(io_error("cannot read", &self.path, &e)),
        };
        let same = inode(&meta) == self.inode
            && if self.grows { meta.len() >= read } else { meta.len() == self.len && mtime_ns(&meta) == self.mtime_ns };
        if same {
            return Ok(());
        }
        let what = if self.grows { "truncated or replaced" } else { "changed" };
        Err(SpateError::new(ErrorKind::Io, format!("file \"{}\" was {what} while being read", self.path.display()))
            .with_hint(if self.grows {
                "a watched file may only grow; write a new file instead"
            } else {
                "read it again from the start, or use mode = 'watch' for files that grow"
            }))
    }

    /// Whether a file that may grow is still this one, and ends where reading stands.
    fn ends_at(&self, read: u64) -> bool {
        self.grows && std::fs::metadata(&self.path).is_ok_and(|m| m.len() == read && inode(&m) == self.inode)
    }

    /// As the text of `Split::detail`.
    pub(super) fn detail(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| SpateError::internal(format!("split detail: {e}")))
    }

    /// From the text of `Split::detail`.
    pub(super) fn from_detail(detail: &str) -> Result<Self> {
        serde_json::from_str(detail).map_err(|e| SpateError::internal(format!("split detail: {e}")))
    }
}

fn mtime_ns(meta: &Metadata) -> i128 {
    let Ok(t) = meta.modified() else { return 0 };
    match t.duration_since(std::time::UNIX_EPOCH) {
        Ok(d) => i128::try_from(d.as_nanos()).unwrap_or(i128::MAX),
        Err(e) => i128::try_from(e.duration().as_nanos()).map_or(i128::MIN, |v| -v),
    }
}

#[cfg(unix)]
fn inode(meta: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

/// `cannot read "path": why`.
pub(super) fn io_error(what: &str, path: &Path, e: &std::io::Error) -> SpateError {
    SpateError::new(ErrorKind::Io, format!("{what} \"{}\": {e}", path.display()))
}

/// How records end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// At every line end.
    Lines,
    /// At line ends outside of quotes, with this delimiter.
    Csv(u8),
}

/// What comes next.
pub(super) enum Scan<'a> {
    /// A record without its line end.
    Record {
        /// Where it starts.
        offset: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A record that is no record: too long, or with quotes that do not close.
    Bad {
        /// Where it starts.
        offset: u64,
        /// Its first bytes.
        head: Vec<u8>,
        /// What is wrong.
        error: String,
    },
    /// No complete record now, but the file may grow.
    Wait,
    /// No record any more, or none that starts before the bound.
    End,
}

/// Where in a CSV record the scan stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote within a quoted field: its end, or the first half of an escaped quote.
    QuoteSeen,
    /// The quotes are wrong: the record ends at its first line end.
    Broken,
}

/// The records of a file from an offset on.
pub(super) struct Lines {
    file: File,
    id: FileId,
    style: Style,
    max_record: usize,
    /// Records that start here or behind are not ours.
    end: Option<u64>,
    buf: Vec<u8>,
    /// File offset of `buf[0]`.
    base: u64,
    /// Start of the next record in `buf`.
    start: usize,
    /// How far `buf` was searched for the record's end.
    scanned: usize,
    at: At,
    /// First line end within quotes, from which to go on if they do not close.
    first_newline: Option<usize>,
    /// Passing over a line: from a cut split's start, or over a record that is too long.
    skip: Option<Skip>,
}

struct Skip {
    offset: u64,
    /// The head of a too long record; `None` at a split's start.
    head: Option<Vec<u8>>,
}

impl Lines {
    /// Opens the file of `id` at `offset`. Behind the file's start, a line that begins before
    /// `offset` is passed over: it belongs to the split before.
    pub(super) fn open(id: FileId, offset: u64, end: Option<u64>, style: Style, max_record: usize) -> Result<Self> {
        let path = id.path.clone();
        let mut file = File::open(&path).map_err(|e| io_error("cannot open", &path, &e))?;
        id.check(offset)?;
        let from = offset.saturating_sub(1);
        file.seek(SeekFrom::Start(from)).map_err(|e| io_error("cannot read", &path, &e))?;
        Ok(Self {
            file,
            id,
            style,
            max_record,
            end,
            buf: Vec::new(),
            base: from,
            start: 0,
            scanned: 0,
            at: At::FieldStart,
            first_newline: None,
            // The byte before the offset is a line end if the offset is a record's start.
            skip: (offset > 0).then_some(Skip { offset, head: None }),
        })
    }

    /// Where the next record starts.
    pub(super) fn offset(&self) -> u64 {
        match &self.skip {
            Some(s) => s.offset,
            None => self.base + self.start as u64,
        }
    }

    /// Length of the file where it is fixed.
    pub(super) fn file_len(&self) -> Option<u64> {
        (!self.id.grows).then_some(self.id.len)
    }

    /// The next record, if it starts before `until`.
    pub(super) fn next(&mut self, until: Option<u64>) -> Result<Scan<'_>> {
        let bound = match (self.end, until) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(u64::MAX),
        };
        loop {
            if let Some(skip) = &mut self.skip {
                if skip.head.is_some() && skip.offset >= bound {
                    return Ok(Scan::End);
                }
                let tail = self.buf.get(self.start..).unwrap_or_default();
                let newline = memchr::memchr(b'\n', tail);
                if let Some(head) = &mut skip.head {
                    let more = newline.unwrap_or(tail.len()).min(HEAD - head.len().min(HEAD));
                    head.extend_from_slice(tail.get(..more).unwrap_or_default());
                }
                if let Some(n) = newline {
                    self.start += n + 1;
                    self.scanned = self.start;
                    self.at = At::FieldStart;
                    let skip = self.skip.take();
                    if let Some(Skip { offset, head: Some(head) }) = skip {
                        return Ok(self.too_long(offset, head));
                    }
                    continue;
                }
                self.start = self.buf.len();
                self.scanned = self.start;
                if self.fill()? {
                    continue;
                }
                if self.id.grows {
                    return Ok(Scan::Wait);
                }
                return Ok(match self.skip.take() {
                    Some(Skip { offset, head: Some(head) }) => self.too_long(offset, head),
                    _ => Scan::End,
                });
            }
            let offset = self.base + self.start as u64;
            if offset >= bound {
                return Ok(Scan::End);
            }
            if let Some(stop) = self.find_end() {
                let (from, broken) = (self.start, self.at == At::Broken);
                self.advance(stop + 1);
                return Ok(self.record(offset, from, stop, broken));
            }
            if self.scanned >= self.limit() {
                // A record that is too long ends at its first line end, wherever that is: one
                // stray quote must not swallow the lines behind.
                if let Some(n) = self.first_newline {
                    let from = self.start;
                    self.advance(n + 1);
                    return Ok(self.record(offset, from, n, true));
                }
                self.skip = Some(Skip { offset, head: Some(Vec::new()) });
                continue;
            }
            if self.fill()? {
                continue;
            }
            if self.id.grows {
                return Ok(Scan::Wait);
            }
            let (from, stop) = (self.start, self.buf.len());
            if from >= stop {
                return Ok(Scan::End);
            }
            // The last record, without a line end; quotes that are open here never close.
            if let (At::Quoted, Some(n)) = (self.at, self.first_newline) {
                self.advance(n + 1);
                return Ok(self.record(offset, from, n, true));
            }
            let broken = matches!(self.at, At::Broken | At::Quoted);
            self.advance(stop);
            return Ok(self.record(offset, from, stop, broken));
        }
    }

    fn too_long(&self, offset: u64, head: Vec<u8>) -> Scan<'static> {
        let mut head = head;
        if head.len() < HEAD && head.last() == Some(&b'\r') {
            head.pop();
        }
        let error = format!("record is longer than max_record_bytes ({} bytes)", self.max_record);
        Scan::Bad { offset, head, error }
    }

    /// How far a record is searched for its end: exactly this far, so that what becomes of a long
    /// one does not depend on how much of the file is in the buffer.
    fn limit(&self) -> usize {
        self.start.saturating_add(self.max_record).saturating_add(2)
    }

    fn advance(&mut self, to: usize) {
        self.start = to;
        self.scanned = to;
        self.at = At::FieldStart;
        self.first_newline = None;
    }

    fn record(&self, offset: u64, from: usize, stop: usize, broken: bool) -> Scan<'_> {
        let bytes = self.buf.get(from..stop).unwrap_or_default();
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let head = || bytes.get(..HEAD.min(bytes.len())).unwrap_or_default().to_vec();
        if bytes.len() > self.max_record {
            return self.too_long(offset, head());
        }
        if broken {
            return Scan::Bad {
                offset,
                head: head(),
                error: "a quoted field does not end, or not at a delimiter".into(),
            };
        }
        let bytes = if offset == 0 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
        Scan::Record { offset, bytes }
    }

    /// The line end that ends the record, searching on from where the last search stopped.
    fn find_end(&mut self) -> Option<usize> {
        let stop = self.limit().min(self.buf.len());
        let tail = self.buf.get(self.scanned..stop).unwrap_or_default();
        let delimiter = match self.style {
            Style::Lines => {
                let found = memchr::memchr(b'\n', tail).map(|n| self.scanned + n);
                self.scanned = found.unwrap_or(stop);
                return found;
            }
            Style::Csv(d) => d,
        };
        for (n, &b) in tail.iter().enumerate() {
            let newline = b == b'\n';
            self.at = match self.at {
                At::FieldStart | At::Plain | At::QuoteSeen | At::Broken if newline => {
                    self.scanned += n;
                    return Some(self.scanned);
                }
                At::FieldStart if b == b'"' => At::Quoted,
                At::FieldStart | At::Plain => {
                    if b == delimiter {
                        At::FieldStart
                    } else {
                        At::Plain
                    }
                }
                At::Quoted if b == b'"' => At::QuoteSeen,
                At::Quoted => {
                    if newline && self.first_newline.is_none() {
                        self.first_newline = Some(self.scanned + n);
                    }
                    At::Quoted
                }
                At::QuoteSeen if b == b'"' => At::Quoted,
                At::QuoteSeen if b == delimiter => At::FieldStart,
                At::QuoteSeen if b == b'\r' => At::QuoteSeen,
                // Text behind a closing quote: one stray quote must not swallow the lines behind.
                At::QuoteSeen | At::Broken => match self.first_newline {
                    Some(stop) => {
                        self.at = At::Broken;
                        return Some(stop);
                    }
                    None => At::Broken,
                },
            };
        }
        self.scanned = stop;
        None
    }

    /// Reads on; `false` at the file's end. Notices a file that is not what it was.
    fn fill(&mut self) -> Result<bool> {
        // A watched file in which nothing happens is asked for often, and must cost little.
        if self.id.ends_at(self.base + self.buf.len() as u64) {
            return Ok(false);
        }
        if self.start > 0 {
            self.buf.drain(..self.start);
            self.base += self.start as u64;
            self.scanned -= self.start;
            self.first_newline = self.first_newline.map(|n| n.saturating_sub(self.start));
            self.start = 0;
            if self.buf.capacity() > 4 * CHUNK && self.buf.len() < CHUNK {
                self.buf.shrink_to(CHUNK);
            }
        }
        let have = self.buf.len();
        self.buf.resize(have + CHUNK, 0);
        let room = self.buf.get_mut(have..).unwrap_or_default();
        let read = loop {
            match self.file.read(room) {
                Ok(n) => break n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(io_error("cannot read", &self.id.path, &e)),
            }
        };
        self.buf.truncate(have + read);
        if read == 0 && self.buf.is_empty() {
            self.buf.shrink_to(CHUNK);
        }
        let seen = self.base + self.buf.len() as u64;
        self.id.check(seen)?;
        if read == 0 && !self.id.grows && seen < self.id.len {
            return Err(SpateError::new(
                ErrorKind::Io,
                format!("file \"{}\" was changed while being read", self.id.path.display()),
            ));
        }
        Ok(read > 0)
    }
}
