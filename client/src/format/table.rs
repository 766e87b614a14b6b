//! Tables for people, as psql draws them. Column widths come from the header and the first
//! [`SAMPLE_ROWS`] rows, which are held back; after that rows stream, and a wider value only
//! disturbs its own line. An endless result takes its widths from the first batch.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use unicode_width::UnicodeWidthStr;

use super::{RowWriter, WriteError};
use crate::text::{self, Column};

/// Rows that decide the widths.
const SAMPLE_ROWS: usize = 1000;

/// One line per row.
pub struct Aligned {
    names: Vec<String>,
    /// Whether the column is aligned to the right.
    right: Vec<bool>,
    widths: Vec<usize>,
    /// Cells of the rows held back, row by row.
    held: Vec<String>,
    held_rows: usize,
    /// The header is out and the widths are fixed.
    started: bool,
    rows: u64,
    endless: bool,
}

impl Aligned {
    /// A writer for rows of this shape.
    pub fn new(schema: &SchemaRef, endless: bool) -> Self {
        let names = names(schema);
        Self {
            widths: names.iter().map(|name| widest_line(name)).collect(),
            right: schema.fields().iter().map(|field| text::is_numeric(field.data_type())).collect(),
            names,
            held: Vec::new(),
            held_rows: 0,
            started: false,
            rows: 0,
            endless,
        }
    }

    /// Writes the header and the rows held back.
    fn start(&mut self, out: &mut dyn Write) -> Result<(), WriteError> {
        if std::mem::replace(&mut self.started, true) {
            return Ok(());
        }
        let mut line = String::new();
        for (i, (name, width)) in self.names.iter().zip(&self.widths).enumerate() {
            line.push_str(if i == 0 { " " } else { " | " });
            let space = width.saturating_sub(widest_line(name));
            pad(space / 2, &mut line);
            line.push_str(name);
            pad(space - space / 2, &mut line);
        }
        line.truncate(line.trim_end_matches(' ').len());
        line.push('\n');
        for (i, width) in self.widths.iter().enumerate() {
            if i > 0 {
                line.push('+');
            }
            line.extend(std::iter::repeat_n('-', width + 2));
        }
        if self.widths.is_empty() {
            line.push_str("--");
        }
        line.push('\n');
        out.write_all(line.as_bytes())?;
        let held = std::mem::take(&mut self.held);
        if self.names.is_empty() {
            return Ok(());
        }
        for row in held.chunks(self.names.len()) {
            self.row(row, &mut line, out)?;
        }
        Ok(())
    }

    /// Writes a row; a cell of several lines marks all but its last with `+`.
    fn row(&self, cells: &[String], line: &mut String, out: &mut dyn Write) -> Result<(), WriteError> {
        line.clear();
        let mut pieces: Vec<_> = cells.iter().map(|cell| cell.split('\n').peekable()).collect();
        loop {
            let mut more = false;
            let from = line.len();
            for (i, piece) in pieces.iter_mut().enumerate() {
                line.push_str(if i == 0 { " " } else { "| " });
                let text = piece.next().unwrap_or("");
                let (width, right) =
                    (self.widths.get(i).copied().unwrap_or(0), self.right.get(i).copied().unwrap_or(false));
                let space = width.saturating_sub(text.width());
                if right {
                    pad(space, line);
                }
                line.push_str(text);
                if !right {
                    pad(space, line);
                }
                let goes_on = piece.peek().is_some();
                line.push(if goes_on { '+' } else { ' ' });
                more |= goes_on;
            }
            line.truncate(from + line[from..].trim_end_matches(' ').len());
            line.push('\n');
            if !more {
                break;
            }
        }
        Ok(out.write_all(line.as_bytes())?)
    }
}

impl RowWriter for Aligned {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
        let columns = Column::all(batch)?;
        let mut cells = vec![String::new(); columns.len()];
        let mut line = String::new();
        for row in 0..batch.num_rows() {
            self.rows += 1;
            for (column, cell) in columns.iter().zip(&mut cells) {
                show(column, row, cell);
            }
            if self.started {
                if !cells.is_empty() {
                    self.row(&cells, &mut line, out)?;
                }
                continue;
            }
            for (cell, width) in cells.iter().zip(&mut self.widths) {
                *width = widest_line(cell).max(*width);
            }
            self.held.extend(cells.iter().cloned());
            self.held_rows += 1;
            if self.held_rows == SAMPLE_ROWS {
                self.start(out)?;
            }
        }
        if self.endless {
            self.start(out)?;
            out.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), WriteError> {
        self.start(out)?;
        if !self.endless {
            writeln!(out, "({} {})\n", self.rows, if self.rows == 1 { "row" } else { "rows" })?;
        }
        Ok(())
    }
}

/// One line per value, for wide rows (`\x`).
pub struct Expanded {
    names: Vec<String>,
    width: usize,
    rows: u64,
    endless: bool,
}

impl Expanded {
    /// A writer for rows of this shape.
    pub fn new(schema: &SchemaRef, endless: bool) -> Self {
        let names = names(schema);
        let width = names.iter().map(|name| widest_line(name)).max().unwrap_or(0);
        Self { names, width, rows: 0, endless }
    }
}

impl RowWriter for Expanded {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
        let columns = Column::all(batch)?;
        let mut cell = String::new();
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            self.rows += 1;
            text.clear();
            text.push_str(&format!("-[ RECORD {} ]", self.rows));
            // The rule reaches to the bar between names and values, and over it.
            let space = (self.width + 2).saturating_sub(text.len());
            text.extend(std::iter::repeat_n('-', space));
            text.push('\n');
            for (name, column) in self.names.iter().zip(&columns) {
                show(column, row, &mut cell);
                for (i, piece) in cell.split('\n').enumerate() {
                    let name = if i == 0 { name.as_str() } else { "" };
                    text.push_str(name);
                    pad(self.width.saturating_sub(name.width()), &mut text);
                    text.push_str(" | ");
                    text.push_str(piece);
                    text.truncate(text.trim_end_matches(' ').len());
                    text.push('\n');
                }
            }
            out.write_all(text.as_bytes())?;
        }
        if self.endless {
            out.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), WriteError> {
        if self.endless {
            return Ok(());
        }
        if self.rows == 0 {
            writeln!(out, "(0 rows)")?;
        }
        Ok(writeln!(out)?)
    }
}

fn names(schema: &SchemaRef) -> Vec<String> {
    schema
        .fields()
        .iter()
        .map(|field| {
            let mut name = field.name().replace('\n', "\\n");
            make_visible(&mut name);
            name
        })
        .collect()
}

fn pad(count: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', count));
}

fn widest_line(text: &str) -> usize {
    text.split('\n').map(UnicodeWidthStr::width).max().unwrap_or(0)
}

/// The cell's text for a terminal; NULL is empty.
fn show(column: &Column<'_>, row: usize, cell: &mut String) {
    cell.clear();
    if !column.is_null(row) {
        column.write(row, cell);
        make_visible(cell);
    }
}

/// Replaces control characters other than line ends: data must not drive the terminal.
fn make_visible(text: &mut String) {
    if !text.contains(|c: char| c.is_control() && c != '\n') {
        return;
    }
    let mut clean = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => clean.push('\n'),
            '\t' => {
                let column = clean.rsplit('\n').next().unwrap_or("").width();
                pad(8 - column % 8, &mut clean);
            }
            '\r' => clean.push_str("\\r"),
            c if c.is_control() && u32::from(c) < 0x100 => clean.push_str(&format!("\\x{:02X}", u32::from(c))),
            c if c.is_control() => clean.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => clean.push(c),
        }
    }
    *text = clean;
}
