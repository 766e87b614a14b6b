//! Bounded logs of what went wrong with input: dead letters, late rows, expression errors. At the
//! limit the oldest entries go; the counts stay.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parking_lot::Mutex;
use spate_engine::connector::DeadLetter;
use spate_engine::task::TaskId;
use spate_engine::types::{Epoch, Result};

/// Entries of each log that are kept.
pub const KEPT: usize = 10_000;

#[derive(Debug)]
struct Dead {
    source: Arc<str>,
    letter: DeadLetter,
    at_us: i64,
}

#[derive(Debug)]
struct Late {
    source: Arc<str>,
    epoch: Epoch,
    row: String,
}

#[derive(Debug)]
struct Counted<T> {
    entries: VecDeque<T>,
    total: u64,
}

impl<T> Default for Counted<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), total: 0 }
    }
}

impl<T> Counted<T> {
    fn push(&mut self, entry: T) {
        self.total += 1;
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }
}

#[derive(Debug)]
struct QueryError {
    count: u64,
    sample: String,
}

/// Rows that sources delivered, for recomputation: job, fragment, leaf, then epoch and rows.
pub type RecordedRows = BTreeMap<(u64, u32, usize), Vec<(Epoch, RecordBatch)>>;

/// The logs.
#[derive(Debug)]
pub struct Logs {
    dead: Mutex<Counted<Dead>>,
    late: Mutex<Counted<Late>>,
    errors: Mutex<BTreeMap<(String, String), QueryError>>,
    recorded: Option<Mutex<RecordedRows>>,
}

impl Logs {
    /// Empty logs; with `record_sources`, accepted rows are kept too (without limit).
    pub fn new(record_sources: bool) -> Self {
        Self {
            dead: Mutex::default(),
            late: Mutex::default(),
            errors: Mutex::default(),
            recorded: record_sources.then(Mutex::default),
        }
    }

    pub(super) fn dead_letters(&self, source: &Arc<str>, letters: Vec<DeadLetter>, at_us: i64) {
        let mut log = self.dead.lock();
        for letter in letters {
            log.push(Dead { source: source.clone(), letter, at_us });
        }
    }

    /// Files late rows.
    pub fn late(&self, source: &Arc<str>, epoch: Epoch, rows: &RecordBatch) {
        let texts = row_texts(rows);
        let mut log = self.late.lock();
        for row in texts {
            log.push(Late { source: source.clone(), epoch, row });
        }
    }

    pub(super) fn accepted(&self, task: TaskId, leaf: usize, epoch: Epoch, rows: &RecordBatch) {
        if let Some(r) = &self.recorded {
            r.lock().entry((task.job, task.fragment, leaf)).or_default().push((epoch, rows.clone()));
        }
    }

    pub(super) fn forget_job(&self, job: u64) {
        if let Some(r) = &self.recorded {
            r.lock().retain(|(j, _, _), _| *j != job);
        }
    }

    /// Rows that one leaf's tasks accepted up to `epoch`, if they are recorded.
    pub fn recorded(&self, job: u64, fragment: u32, leaf: usize, epoch: Epoch) -> Option<Vec<RecordBatch>> {
        let recorded = self.recorded.as_ref()?.lock();
        let rows = recorded.get(&(job, fragment, leaf));
        Some(rows.into_iter().flatten().filter(|(e, _)| *e <= epoch).map(|(_, r)| r.clone()).collect())
    }

    /// Counts an expression error of a query.
    pub fn query_error(&self, query: &str, expression: &str, rows: u64, error: &str) {
        let mut errors = self.errors.lock();
        let key = (query.to_owned(), expression.to_owned());
        if let Some(e) = errors.get_mut(&key) {
            e.count += rows;
        } else if errors.len() < KEPT {
            errors.insert(key, QueryError { count: rows, sample: error.to_owned() });
        }
    }

    /// `spate.dead_letters`.
    pub fn dead_letters_batch(&self) -> Result<RecordBatch> {
        let log = self.dead.lock();
        let e = &log.entries;
        Ok(RecordBatch::try_new(
            dead_letters_schema(),
            vec![
                Arc::new(e.iter().map(|d| Some(&*d.source)).collect::<StringArray>()),
                Arc::new(e.iter().map(|d| Some(&*d.letter.split)).collect::<StringArray>()),
                Arc::new(e.iter().map(|d| i64::try_from(d.letter.offset).ok()).collect::<Int64Array>()),
                Arc::new(e.iter().map(|d| Some(d.letter.text.as_str())).collect::<StringArray>()),
                Arc::new(e.iter().map(|d| Some(d.letter.error.as_str())).collect::<StringArray>()),
                Arc::new(e.iter().map(|d| Some(d.at_us)).collect::<TimestampMicrosecondArray>()),
            ],
        )?)
    }

    /// `spate.late_rows`.
    pub fn late_rows_batch(&self) -> Result<RecordBatch> {
        let log = self.late.lock();
        let e = &log.entries;
        Ok(RecordBatch::try_new(
            late_rows_schema(),
            vec![
                Arc::new(e.iter().map(|d| Some(&*d.source)).collect::<StringArray>()),
                Arc::new(e.iter().map(|d| Some(d.epoch)).collect::<UInt64Array>()),
                Arc::new(e.iter().map(|d| Some(d.row.as_str())).collect::<StringArray>()),
            ],
        )?)
    }

    /// `spate.query_errors`.
    pub fn query_errors_batch(&self) -> Result<RecordBatch> {
        let log = self.errors.lock();
        Ok(RecordBatch::try_new(
            query_errors_schema(),
            vec![
                Arc::new(log.keys().map(|k| Some(k.0.as_str())).collect::<StringArray>()),
                Arc::new(log.keys().map(|k| Some(k.1.as_str())).collect::<StringArray>()),
                Arc::new(log.values().map(|e| i64::try_from(e.count).ok()).collect::<Int64Array>()),
                Arc::new(log.values().map(|e| Some(e.sample.as_str())).collect::<StringArray>()),
            ],
        )?)
    }

    /// Dead letters and late rows ever seen.
    pub fn totals(&self) -> (u64, u64) {
        (self.dead.lock().total, self.late.lock().total)
    }
}

fn row_texts(rows: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let schema = rows.schema();
    let formatters: Vec<_> = rows
        .columns()
        .iter()
        .zip(schema.fields())
        .filter_map(|(c, f)| ArrayFormatter::try_new(c, &options).ok().map(|x| (f.name().clone(), x)))
        .collect();
    (0..rows.num_rows())
        .map(|i| {
            let cells: Vec<String> = formatters.iter().map(|(n, f)| format!("{n}={}", f.value(i))).collect();
            cells.join(", ")
        })
        .collect()
}

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(fields.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
}

/// Columns of `spate.dead_letters`.
pub fn dead_letters_schema() -> SchemaRef {
    schema(&[
        ("source", DataType::Utf8),
        ("split", DataType::Utf8),
        ("offset", DataType::Int64),
        ("text", DataType::Utf8),
        ("error", DataType::Utf8),
        ("seen_at", DataType::Timestamp(TimeUnit::Microsecond, None)),
    ])
}

/// Columns of `spate.late_rows`.
pub fn late_rows_schema() -> SchemaRef {
    schema(&[("source", DataType::Utf8), ("epoch", DataType::UInt64), ("row", DataType::Utf8)])
}

/// Columns of `spate.query_errors`.
pub fn query_errors_schema() -> SchemaRef {
    schema(&[
        ("query", DataType::Utf8),
        ("expression", DataType::Utf8),
        ("count", DataType::Int64),
        ("sample", DataType::Utf8),
    ])
}
