//! The Arrow IPC stream format, for programs.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;
use spate_engine::types::SpateError;

use super::{RowWriter, WriteError};

/// Writes one IPC stream per result.
pub struct Ipc {
    /// Encodes into memory; the bytes are moved on after every call.
    encoder: StreamWriter<Vec<u8>>,
    endless: bool,
}

impl Ipc {
    /// A writer for rows of this shape.
    pub fn new(schema: &SchemaRef, endless: bool) -> Result<Self, WriteError> {
        let encoder = StreamWriter::try_new(Vec::new(), schema).map_err(SpateError::from)?;
        Ok(Self { encoder, endless })
    }

    fn move_on(&mut self, out: &mut dyn Write) -> Result<(), WriteError> {
        let bytes = self.encoder.get_mut();
        out.write_all(bytes)?;
        bytes.clear();
        Ok(())
    }
}

impl RowWriter for Ipc {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
        self.encoder.write(batch).map_err(SpateError::from)?;
        self.move_on(out)?;
        if self.endless {
            out.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), WriteError> {
        self.encoder.finish().map_err(SpateError::from)?;
        self.move_on(out)
    }
}
