//! Results as text or bytes: one streaming writer per `--format`. A writer sees the schema
//! first, then every batch, then the end; it holds no more rows than it needs for layout.

mod arrow_ipc;
mod csv;
mod json;
mod table;

use std::io;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use spate_engine::types::SpateError;

/// How results are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns with a header and a row count, as psql prints them
    #[default]
    Table,
    /// RFC 4180 with a header; NULL is empty, the empty string is ""
    Csv,
    /// One array of objects per result
    Json,
    /// One JSON object per line
    Ndjson,
    /// Arrow IPC stream (binary)
    Arrow,
}

/// How to lay a result out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// Rows come until someone stops it: no waiting for more rows, no row count.
    pub endless: bool,
    /// Table only: one line per value instead of one per row.
    pub expanded: bool,
}

/// Why a result could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The reader has gone (`| head`): not the user's problem.
    #[error("the output was closed")]
    Closed,
    /// The output failed.
    #[error("cannot write the output: {0}")]
    Io(io::Error),
    /// A value cannot be shown in this format.
    #[error("{0}")]
    Value(SpateError),
}

impl From<io::Error> for WriteError {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Io(e) }
    }
}

impl From<SpateError> for WriteError {
    fn from(e: SpateError) -> Self {
        Self::Value(e)
    }
}

impl From<WriteError> for SpateError {
    fn from(e: WriteError) -> Self {
        match e {
            WriteError::Value(e) => e,
            WriteError::Io(io) => SpateError::from(io).context("cannot write the output"),
            WriteError::Closed => SpateError::from(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    }
}

/// Writes one result.
pub trait RowWriter: Send {
    /// Writes a batch. An endless result is flushed with every batch.
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn io::Write) -> Result<(), WriteError>;

    /// Writes what comes after the last row; called once, also after an endless result was
    /// stopped, so that the output is whole.
    fn finish(&mut self, out: &mut dyn io::Write) -> Result<(), WriteError>;
}

/// The writer of a format for results of this shape.
pub fn row_writer(format: Format, schema: &SchemaRef, layout: Layout) -> Result<Box<dyn RowWriter>, WriteError> {
    Ok(match format {
        Format::Table if layout.expanded => Box::new(table::Expanded::new(schema, layout.endless)),
        Format::Table => Box::new(table::Aligned::new(schema, layout.endless)),
        Format::Csv => Box::new(csv::Csv::new(schema, layout.endless)),
        Format::Json => Box::new(json::Json::array(layout.endless)),
        Format::Ndjson => Box::new(json::Json::lines(layout.endless)),
        Format::Arrow => Box::new(arrow_ipc::Ipc::new(schema, layout.endless)?),
    })
}

#[cfg(test)]
mod tests;
