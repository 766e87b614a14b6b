//! Parquet files: a split is a row group, an offset is the number of a row in the file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_physical_expr::PhysicalExpr;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::lines::{FileId, io_error};
use super::prune::may_hold;
use super::types::{conform, missing_column, normal_schema, normal_type, position_of, project, sql_name};
use super::{DeadLetter, Polled, Split, SplitReader};
use crate::types::textual::casts;
use crate::types::{ErrorKind, Result, SpateError};

/// Rows decoded at once.
const BATCH_ROWS: usize = 8192;

fn failed(path: &Path, e: &dyn std::fmt::Display) -> SpateError {
    SpateError::new(ErrorKind::Io, format!("cannot read Parquet file \"{}\": {e}", path.display()))
}

fn builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let file = File::open(path).map_err(|e| io_error("cannot open", path, &e))?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| failed(path, &e))
}

/// The columns of a file, as Spate delivers them.
pub(super) fn schema_of(path: &Path) -> Result<SchemaRef> {
    Ok(normal_schema(builder(path)?.schema()))
}

/// First rows of the row groups of a file, and behind them its number of rows. Errors if the file
/// cannot give the columns of `schema`.
pub(super) fn row_groups(path: &Path, schema: &Schema) -> Result<Vec<u64>> {
    let builder = builder(path)?;
    places(path, builder.schema(), schema)?;
    Ok(starts(&builder))
}

fn starts<T>(builder: &parquet::arrow::arrow_reader::ArrowReaderBuilder<T>) -> Vec<u64> {
    let mut at = 0u64;
    let mut out = vec![0];
    for group in builder.metadata().row_groups() {
        at += u64::try_from(group.num_rows()).unwrap_or(0);
        out.push(at);
    }
    out
}

/// For each column of `wanted` its place in the file.
pub(super) fn places(path: &Path, file: &Schema, wanted: &Schema) -> Result<Vec<usize>> {
    let names: Vec<String> = file.fields().iter().map(|f| f.name().clone()).collect();
    let mut out = Vec::with_capacity(wanted.fields().len());
    for field in wanted.fields() {
        let i = position_of(&names, field.name())
            .ok_or_else(|| missing_column(&path.display().to_string(), field.name(), &names))?;
        let found = file.field(i).data_type();
        // Long bytes in a file are bytes; here they would be `jsonb`.
        if !becomes(&normal_type(found), field.data_type()) {
            return Err(SpateError::new(
                ErrorKind::Type,
                format!(
                    "column \"{}\" of \"{}\" has type {}, which does not become {}",
                    field.name(),
                    path.display(),
                    sql_name(found),
                    sql_name(field.data_type())
                ),
            ));
        }
        out.push(i);
    }
    Ok(out)
}

/// Whether values of one type are read as another without loss of digits; a value that is out of
/// range is a dead letter.
fn becomes(found: &DataType, declared: &DataType) -> bool {
    if let (DataType::List(a), DataType::List(b)) = (found, declared) {
        return becomes(a.data_type(), b.data_type());
    }
    let lossy = declared.is_integer()
        && (found.is_floating() || found.is_temporal() || matches!(found, DataType::Decimal128(_, s) if *s > 0));
    found == declared || (!lossy && casts(found, declared))
}

/// Picks `places` out of a batch that has the columns of the sorted, distinct `roots`.
pub(super) fn pick(batch: &RecordBatch, roots: &[usize], places: &[usize]) -> Result<Vec<ArrayRef>> {
    places
        .iter()
        .map(|p| {
            let i = roots.binary_search(p).unwrap_or(usize::MAX);
            batch.columns().get(i).cloned().ok_or_else(|| SpateError::internal("a file's batch lacks a column"))
        })
        .collect()
}

/// Sorted and distinct.
pub(super) fn roots(places: &[usize]) -> Vec<usize> {
    let mut roots = places.to_vec();
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// Rows that come from batches of a file's own, cut to what is asked for. Shared by Parquet and
/// Arrow files.
pub(super) struct RowFeed<I> {
    /// The rows from the offset on.
    pub(super) batches: I,
    /// The rest of the last batch.
    pub(super) pending: Option<RecordBatch>,
    /// The columns to read: those to deliver, then those whose values may not fit.
    pub(super) schema: SchemaRef,
    /// How many columns to deliver.
    pub(super) deliver: usize,
    /// Places of the columns in the file.
    pub(super) places: Vec<usize>,
    /// The places, sorted and distinct: the columns of the batches.
    pub(super) roots: Vec<usize>,
    /// The file as it was.
    pub(super) id: FileId,
    /// The split.
    pub(super) split: Split,
    /// Number of the next row.
    pub(super) offset: u64,
    /// Number behind the last row.
    pub(super) end: u64,
    /// Rows that are passed over, from and up to, the next ones last.
    pub(super) gaps: Vec<(u64, u64)>,
}

impl<I: Iterator<Item = Result<RecordBatch>> + Send> SplitReader for RowFeed<I> {
    fn poll(&mut self, max_rows: usize, until: Option<u64>) -> Result<Polled> {
        let stop = until.map_or(self.end, |u| u.min(self.end));
        if self.offset >= stop {
            return Ok(if self.offset >= self.end { Polled::End } else { Polled::Pending(std::time::Duration::ZERO) });
        }
        let total = self.end.saturating_sub(self.split.start);
        let done = |offset: u64| Some((offset.saturating_sub(self.split.start).min(total), total));
        let mut limit = stop;
        if let Some((from, to)) = self.gaps.last().copied() {
            if self.offset >= from {
                self.offset = to.min(stop);
                if self.offset == to {
                    self.gaps.pop();
                }
                let delivered = self.schema.project(&(0..self.deliver).collect::<Vec<_>>())?;
                let rows = RecordBatch::new_empty(delivered.into());
                return Ok(Polled::Batch { rows, dead: Vec::new(), progress: done(self.offset) });
            }
            limit = limit.min(from);
        }
        let whole = match self.pending.take().filter(|b| b.num_rows() > 0) {
            Some(b) => b,
            None => loop {
                self.id.check(0)?;
                match self.batches.next() {
                    Some(b) => {
                        let b = b?;
                        if b.num_rows() > 0 {
                            break b;
                        }
                    }
                    None => return Err(failed(&self.id.path, &"it has fewer rows than its footer says")),
                }
            },
        };
        let wanted = usize::try_from(limit - self.offset).unwrap_or(usize::MAX).min(max_rows.max(1));
        let n = whole.num_rows().min(wanted);
        let part = whole.slice(0, n);
        if n < whole.num_rows() {
            self.pending = Some(whole.slice(n, whole.num_rows() - n));
        }
        let first = self.offset;
        self.offset += n as u64;
        let (rows, bad) = conform(&self.schema, pick(&part, &self.roots, &self.places)?, n)?;
        let dead = bad
            .into_iter()
            .map(|b| DeadLetter {
                split: self.split.id.clone(),
                offset: first + b.row as u64,
                text: row_text(&part, b.row),
                error: b.error,
            })
            .collect();
        let rows = rows.project(&(0..self.deliver).collect::<Vec<_>>())?;
        Ok(Polled::Batch { rows, dead, progress: done(self.offset) })
    }

    fn offset(&self) -> u64 {
        self.offset
    }
}

/// A row as text: `name: value, …` of the columns that were read.
fn row_text(batch: &RecordBatch, row: usize) -> String {
    let mut out = String::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if out.len() > super::lines::HEAD {
            break;
        }
        if !out.is_empty() {
            out.push_str(", ");
        }
        let value = if column.is_null(row) {
            "NULL".to_owned()
        } else {
            arrow::util::display::array_value_to_string(column, row).unwrap_or_default()
        };
        out.push_str(field.name());
        out.push_str(": ");
        out.push_str(&value);
    }
    super::text::head_text(out.as_bytes())
}

/// Batches of a Parquet file.
pub(super) struct ParquetBatches {
    reader: ParquetRecordBatchReader,
    path: std::path::PathBuf,
}

impl Iterator for ParquetBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.reader.next().map(|r| r.map_err(|e| failed(&self.path, &e)))
    }
}

/// The columns of `declared` to read so that those of `projection` can be delivered: also those
/// that may spoil a row, since which rows are bad must not depend on the columns that a query reads.
pub(super) fn to_read(path: &Path, file: &Schema, declared: &Schema, projection: &[usize]) -> Result<SchemaRef> {
    let places = places(path, file, declared)?;
    let spoils = |i: &usize| {
        let (Some(column), Some(place)) = (declared.fields().get(*i), places.get(*i)) else { return false };
        spoils(file.field(*place), column)
    };
    let more = (0..declared.fields().len()).filter(|i| !projection.contains(i) && spoils(i));
    project(declared, &projection.iter().copied().chain(more).collect::<Vec<_>>())
}

/// Whether values of a file's column may not fit into the declared one.
fn spoils(found: &Field, column: &Field) -> bool {
    found.data_type() != column.data_type() && normal_type(found.data_type()) != *column.data_type()
        || (!column.is_nullable() && found.is_nullable())
}

fn may_spoil(file: &Schema, wanted: &Schema, places: &[usize]) -> bool {
    wanted.fields().iter().zip(places).any(|(column, place)| spoils(file.field(*place), column))
}

/// Opens the rows `[offset, split.end)` of a file with the columns `declared`. Row groups without any row for which
/// `wanted`, over the delivered columns, is true are passed over.
pub(super) fn open(
    split: &Split,
    offset: u64,
    declared: &Schema,
    projection: &[usize],
    wanted: Option<&Arc<dyn PhysicalExpr>>,
) -> Result<RowFeed<ParquetBatches>> {
    let id = FileId::from_detail(&split.detail)?;
    id.check(0)?;
    let builder = builder(&id.path)?;
    let schema = to_read(&id.path, builder.schema(), declared, projection)?;
    let places = places(&id.path, builder.schema(), &schema)?;
    let roots = roots(&places);
    let starts = starts(&builder);
    let end = split.end.unwrap_or_else(|| starts.last().copied().unwrap_or(0));
    // What is passed over is not looked at, so no row in it may be bad.
    let checked = schema.fields().len() > projection.len() || may_spoil(builder.schema(), &schema, &places);
    let may_hold = match wanted {
        Some(wanted) if !checked => may_hold(&builder, &schema, &places, wanted),
        _ => None,
    };
    let (mut groups, mut gaps, mut rows, mut skip) = (Vec::new(), Vec::new(), 0, 0);
    for (i, w) in starts.windows(2).enumerate() {
        let [first, behind] = *w else { continue };
        let (from, to) = (first.max(offset), behind.min(end));
        if from >= to {
            continue;
        }
        if may_hold.as_ref().is_some_and(|m| !m.value(i)) {
            gaps.push((from, to));
        } else {
            skip += if groups.is_empty() { from - first } else { 0 };
            groups.push(i);
            rows += to - from;
        }
    }
    gaps.reverse();
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots.iter().copied());
    let path = id.path.clone();
    let reader = builder
        .with_row_groups(groups)
        .with_projection(mask)
        .with_offset(skip)
        .with_limit(rows)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|e| failed(&path, &e))?;
    let batches = ParquetBatches { reader, path };
    let deliver = projection.len();
    Ok(RowFeed { batches, pending: None, schema, deliver, places, roots, id, split: split.clone(), offset, end, gaps })
}
