//! RFC 4180: a header, then one line per row in PostgreSQL's text format. NULL is an empty
//! field and the empty string is `""`, so that the two can be told apart.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::{RowWriter, WriteError};
use crate::text::Column;

/// Writes CSV.
pub struct Csv {
    schema: SchemaRef,
    endless: bool,
    header_written: bool,
}

impl Csv {
    /// A writer for rows of this shape.
    pub fn new(schema: &SchemaRef, endless: bool) -> Self {
        Self { schema: schema.clone(), endless, header_written: false }
    }

    fn header(&mut self, out: &mut dyn Write) -> Result<(), WriteError> {
        if std::mem::replace(&mut self.header_written, true) {
            return Ok(());
        }
        let mut line = String::new();
        for (i, field) in self.schema.fields().iter().enumerate() {
            if i > 0 {
                line.push(',');
            }
            let from = line.len();
            line.push_str(field.name());
            quote(&mut line, from);
        }
        line.push('\n');
        Ok(out.write_all(line.as_bytes())?)
    }
}

impl RowWriter for Csv {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
        self.header(out)?;
        let columns = Column::all(batch)?;
        let mut line = String::new();
        for row in 0..batch.num_rows() {
            line.clear();
            for (i, column) in columns.iter().enumerate() {
                if i > 0 {
                    line.push(',');
                }
                if !column.is_null(row) {
                    let from = line.len();
                    column.write(row, &mut line);
                    quote(&mut line, from);
                }
            }
            line.push('\n');
            out.write_all(line.as_bytes())?;
        }
        if self.endless {
            out.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), WriteError> {
        self.header(out)
    }
}

/// Quotes `line[from..]` if a reader needs it.
fn quote(line: &mut String, from: usize) {
    let field = &line[from..];
    if field.is_empty() {
        line.push_str("\"\"");
    } else if field.contains([',', '"', '\n', '\r']) {
        let field = line.split_off(from);
        line.push('"');
        for c in field.chars() {
            if c == '"' {
                line.push('"');
            }
            line.push(c);
        }
        line.push('"');
    }
}
