//! Arrow IPC files: one split per file, an offset is the number of a row in the file.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::FileReader;

use super::Split;
use super::lines::{FileId, io_error};
use super::parquet::{RowFeed, places, roots, to_read};
use super::types::normal_schema;
use crate::types::{ErrorKind, Result, SpateError};

fn failed(path: &Path, e: &dyn std::fmt::Display) -> SpateError {
    SpateError::new(ErrorKind::Io, format!("cannot read Arrow file \"{}\": {e}", path.display()))
        .with_hint("the IPC file format (Feather version 2), uncompressed, is read")
}

fn reader(path: &Path, projection: Option<Vec<usize>>) -> Result<FileReader<BufReader<File>>> {
    let file = File::open(path).map_err(|e| io_error("cannot open", path, &e))?;
    FileReader::try_new(BufReader::new(file), projection).map_err(|e| failed(path, &e))
}

/// The columns of a file, as Spate delivers them.
pub(super) fn schema_of(path: &Path) -> Result<SchemaRef> {
    Ok(normal_schema(&reader(path, None)?.schema()))
}

/// Errors if a file cannot give the columns of `schema`.
pub(super) fn check(path: &Path, schema: &Schema) -> Result<()> {
    places(path, &reader(path, None)?.schema(), schema).map(|_| ())
}

/// Number of rows of a file. Errors if it cannot give the columns of `schema`.
pub(super) fn rows_of(path: &Path, schema: &Schema) -> Result<u64> {
    check(path, schema)?;
    // Without columns only the lengths are decoded.
    let mut rows = 0u64;
    for batch in reader(path, Some(Vec::new()))? {
        rows += batch.map_err(|e| failed(path, &e))?.num_rows() as u64;
    }
    Ok(rows)
}

/// Batches of an Arrow file from a row on.
pub(super) struct ArrowBatches {
    reader: FileReader<BufReader<File>>,
    path: PathBuf,
    skip: u64,
}

impl Iterator for ArrowBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let batch = match self.reader.next()? {
                Ok(b) => b,
                Err(e) => return Some(Err(failed(&self.path, &e))),
            };
            let rows = batch.num_rows() as u64;
            if self.skip >= rows {
                self.skip -= rows;
                continue;
            }
            let n = usize::try_from(std::mem::take(&mut self.skip)).unwrap_or(0);
            return Some(Ok(batch.slice(n, batch.num_rows() - n)));
        }
    }
}

/// Opens the rows `[offset, split.end)`.
pub(super) fn open(
    split: &Split,
    offset: u64,
    declared: &Schema,
    projection: &[usize],
) -> Result<RowFeed<ArrowBatches>> {
    let id = FileId::from_detail(&split.detail)?;
    id.check(0)?;
    let file = reader(&id.path, None)?.schema();
    let schema = to_read(&id.path, &file, declared, projection)?;
    let places = places(&id.path, &file, &schema)?;
    let roots = roots(&places);
    let end = match split.end {
        Some(e) => e,
        None => rows_of(&id.path, &schema)?,
    };
    let path = id.path.clone();
    let batches = ArrowBatches { reader: reader(&path, Some(roots.clone()))?, path, skip: offset };
    let deliver = projection.len();
    Ok(RowFeed {
        batches,
        pending: None,
        schema,
        deliver,
        places,
        roots,
        id,
        split: split.clone(),
        offset,
        end,
        gaps: Vec::new(),
    })
}
