//! What a test file runs against: a database that makes connections and can check its views.
//! [`Embedded`] is an engine in this process; tests of other deployments bring their own.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use futures::StreamExt;
use spate_engine::types::{Result, SpateError};
use spate_server::{Engine, EngineConfig, Outcome, Session};
use sqllogictest::DefaultColumnType;

use crate::text::{self, Column};

/// What a statement gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Rows, values in the notation of test files.
    Rows {
        /// One per column.
        types: Vec<DefaultColumnType>,
        /// Row by row.
        rows: Vec<Vec<String>>,
    },
    /// The number of rows that the statement changed.
    Done(u64),
}

/// A fresh database for one file.
#[async_trait]
pub trait Database: Send + Sync {
    /// A new connection.
    async fn connect(&self) -> Result<Box<dyn Connection>>;

    /// Recomputes every materialized view in batch and compares; gives their number.
    async fn verify_views(&self) -> Result<usize>;

    /// Ends it.
    async fn shutdown(&self) {}
}

/// A connection, with its own settings.
#[async_trait]
pub trait Connection: Send {
    /// Byte ranges of the statements in a text.
    fn split(&self, sql: &str) -> Result<Vec<Range<usize>>>;

    /// Runs one statement to its end.
    async fn run(&mut self, sql: &str) -> Result<Answer>;
}

/// An engine in this process.
pub struct Embedded {
    engine: Arc<Engine>,
}

impl Embedded {
    /// Starts one. It records what sources deliver, whatever the configuration says: else
    /// views could not be recomputed.
    pub fn open(config: EngineConfig) -> Result<Self> {
        Ok(Self { engine: Engine::open(EngineConfig { record_sources: true, ..config })? })
    }
}

#[async_trait]
impl Database for Embedded {
    async fn connect(&self) -> Result<Box<dyn Connection>> {
        Ok(Box::new(EmbeddedConnection { session: self.engine.session() }))
    }

    async fn verify_views(&self) -> Result<usize> {
        self.engine.verify_views().await
    }

    async fn shutdown(&self) {
        self.engine.shutdown();
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

struct EmbeddedConnection {
    session: Session,
}

#[async_trait]
impl Connection for EmbeddedConnection {
    fn split(&self, sql: &str) -> Result<Vec<Range<usize>>> {
        Session::split(sql)
    }

    async fn run(&mut self, sql: &str) -> Result<Answer> {
        answer(self.session.execute(sql).await?).await
    }
}

/// What a statement gave, read to its end.
pub(super) async fn answer(outcome: Outcome) -> Result<Answer> {
    let mut result = match outcome {
        Outcome::Done(tag) => return Ok(Answer::Done(count_of(&tag))),
        Outcome::Rows(result) => result,
    };
    if result.endless {
        return Err(SpateError::unsupported("a statement that never ends cannot run in a test file")
            .with_hint("read the view with SELECT after FLUSH"));
    }
    let mut rows = Vec::new();
    while let Some(batch) = result.stream.next().await {
        cells(&batch?, &mut rows)?;
    }
    Ok(Answer::Rows { types: types(&result.schema), rows })
}

/// The number in a command tag: 3 in `INSERT 0 3`, 0 in `CREATE TABLE`.
pub(super) fn count_of(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn types(schema: &SchemaRef) -> Vec<DefaultColumnType> {
    schema
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DefaultColumnType::Text,
            kind if kind.is_integer() => DefaultColumnType::Integer,
            kind if text::is_numeric(kind) => DefaultColumnType::FloatingPoint,
            _ => DefaultColumnType::Any,
        })
        .collect()
}

/// Appends the batch's rows in the notation of test files.
fn cells(batch: &RecordBatch, rows: &mut Vec<Vec<String>>) -> Result<()> {
    let columns = Column::all(batch)?;
    rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| cell(column.text(row))).collect()));
    Ok(())
}

fn cell(value: Option<String>) -> String {
    match value {
        None => "NULL".into(),
        Some(text) if text.is_empty() => "(empty)".into(),
        // A row is a line in the file.
        Some(text) if text.contains(['\n', '\r', '\t']) => {
            text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
        }
        Some(text) => text,
    }
}
