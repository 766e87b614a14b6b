//! The `file` sink: a directory with one part per epoch that has rows, and an index of them.
//!
//! A part is written beside its place, synced and renamed; then one line is added to the index
//! and synced. What the index names is in the target; a part that it does not name (the process
//! died between the two) is written again when its epoch comes again. So every epoch is in the
//! directory exactly once. The index has one JSON object per line; a torn last line is cut off.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;

use super::SinkWriter;
use super::format::Encoding;
use super::lines::io_error;
use super::sink::{Flatten, TextFormat};
use crate::env::sync_dir;
use crate::types::{Delta, Epoch, ErrorKind, Result, SpateError};

/// Name of the index.
const INDEX: &str = "_spate_index.json";

/// One line of the index.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Entry {
    epoch: Epoch,
    parts: Vec<String>,
    rows: u64,
}

/// The sink.
pub(super) struct FileSink {
    dir: PathBuf,
    encoding: Encoding,
    text: TextFormat,
    flatten: Flatten,
    index: File,
    last: Option<Epoch>,
}

impl FileSink {
    /// Opens the directory (made if need be) and its index.
    pub(super) fn open(dir: PathBuf, encoding: Encoding, text: TextFormat, flatten: Flatten) -> Result<Self> {
        std::fs::create_dir_all(&dir).map_err(|e| io_error("cannot make directory", &dir, &e))?;
        let path = dir.join(INDEX);
        let fail = |e: &std::io::Error| io_error("cannot open", &path, e);
        let mut index =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(|e| fail(&e))?;
        let mut text_of_index = String::new();
        index.read_to_string(&mut text_of_index).map_err(|e| fail(&e))?;
        let mut last = None;
        let whole = text_of_index.rfind('\n').map_or(0, |n| n + 1);
        for line in text_of_index.get(..whole).unwrap_or_default().lines() {
            let entry: Entry = serde_json::from_str(line)
                .map_err(|e| SpateError::new(ErrorKind::Io, format!("index \"{}\" is damaged: {e}", path.display())))?;
            last = last.max(Some(entry.epoch));
        }
        index.set_len(whole as u64).map_err(|e| fail(&e))?;
        index.seek(SeekFrom::End(0)).map_err(|e| fail(&e))?;
        synced(&dir)?;
        Ok(Self { dir, encoding, text, flatten, index, last })
    }

    fn write_part(&self, name: &str, batches: &[RecordBatch]) -> Result<()> {
        let target = self.dir.join(name);
        let temp = tempfile::Builder::new()
            .prefix(".spate-")
            .suffix(".tmp")
            .tempfile_in(&self.dir)
            .map_err(|e| io_error("cannot write in", &self.dir, &e))?;
        {
            let mut out = BufWriter::with_capacity(1 << 16, temp.as_file());
            if self.encoding == Encoding::Parquet {
                let mut writer = ArrowWriter::try_new(&mut out, self.flatten.schema().clone(), None)
                    .map_err(|e| part_error(&target, &e))?;
                for b in batches {
                    writer.write(b).map_err(|e| part_error(&target, &e))?;
                }
                writer.close().map_err(|e| part_error(&target, &e))?;
            } else {
                for (i, b) in batches.iter().enumerate() {
                    self.text.write(b, i == 0, &mut out)?;
                }
            }
            out.flush().map_err(|e| io_error("cannot write", &target, &e))?;
        }
        publish(temp, &target)
    }
}

fn part_error(path: &Path, e: &dyn std::fmt::Display) -> SpateError {
    SpateError::new(ErrorKind::Io, format!("cannot write \"{}\": {e}", path.display()))
}

/// Syncs a temporary file and gives it its name, over what may be there.
pub(super) fn publish(temp: tempfile::NamedTempFile, target: &Path) -> Result<()> {
    temp.as_file().sync_all().map_err(|e| io_error("cannot sync", target, &e))?;
    #[cfg(unix)]
    {
        // Temporary files are private; what is published is as readable as any new file.
        use std::os::unix::fs::PermissionsExt;
        temp.as_file()
            .set_permissions(std::fs::Permissions::from_mode(0o644))
            .map_err(|e| io_error("cannot write", target, &e))?;
    }
    temp.persist(target).map_err(|e| io_error("cannot rename to", target, &e.error))?;
    synced(target.parent().unwrap_or(Path::new(".")))
}

fn synced(dir: &Path) -> Result<()> {
    sync_dir(dir).map_err(|e| io_error("cannot sync", dir, &e))
}

impl SinkWriter for FileSink {
    fn write_epoch(&mut self, epoch: Epoch, deltas: &[Delta]) -> Result<()> {
        // A replayed epoch that is there already.
        if self.last.is_some_and(|l| epoch <= l) {
            return Ok(());
        }
        let batches = self.flatten.epoch(deltas)?;
        if batches.is_empty() {
            return Ok(());
        }
        let name = format!("part-{epoch:020}.{}", self.encoding.extension());
        self.write_part(&name, &batches)?;
        let rows = batches.iter().map(|b| b.num_rows() as u64).sum();
        let entry = Entry { epoch, parts: vec![name], rows };
        let mut line = serde_json::to_vec(&entry).map_err(|e| SpateError::internal(format!("index entry: {e}")))?;
        line.push(b'\n');
        let path = self.dir.join(INDEX);
        self.index
            .write_all(&line)
            .and_then(|()| self.index.sync_data())
            .map_err(|e| io_error("cannot write", &path, &e))?;
        self.last = Some(epoch);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn last_epoch(&self) -> Result<Option<Epoch>> {
        Ok(self.last)
    }
}
