//! Drives an engine: statements in, answers as text out, and what a subscription delivers per
//! epoch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, UInt64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use spate_engine::types::{Result, SpateError};
use spate_server::{Engine, EngineConfig, Outcome, Session};

/// Longest time for one statement; only a defect takes longer.
const DEADLINE: Duration = Duration::from_secs(600);

/// What a statement answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A command tag.
    Done(String),
    /// Rows, each with its cells joined by `|`.
    Rows(Vec<String>),
    /// An error's message.
    Failed(String),
}

/// An engine and one session on it.
pub struct Driver {
    /// The engine.
    pub engine: Arc<Engine>,
    session: Session,
    history: Vec<String>,
    /// Whether the engine goes with it.
    owns: bool,
}

impl Driver {
    /// A fresh engine whose queries run with `parallelism` tasks per fragment.
    pub async fn open(parallelism: usize) -> Result<Self> {
        Self::with_threads(2, parallelism).await
    }

    /// As [`Driver::open`], on `threads` threads. On one thread a statement reads and so writes
    /// its rows in the same order every time.
    pub async fn with_threads(threads: usize, parallelism: usize) -> Result<Self> {
        let config = EngineConfig {
            threads,
            epoch_interval: Duration::from_millis(20),
            record_sources: true,
            ..EngineConfig::default()
        };
        Self::over(config, parallelism).await
    }

    /// An engine over a data directory, which goes on with what is in it. `checkpoint`: time between checkpoints.
    pub async fn durable(dir: &std::path::Path, parallelism: usize, checkpoint: Duration) -> Result<Self> {
        let config = EngineConfig {
            threads: 2,
            epoch_interval: Duration::from_millis(20),
            data_dir: Some(dir.to_owned()),
            checkpoint_interval: checkpoint,
            ..EngineConfig::default()
        };
        Self::over(config, parallelism).await
    }

    async fn over(config: EngineConfig, parallelism: usize) -> Result<Self> {
        let engine = Engine::open(config)?;
        let session = engine.session();
        let mut driver = Self { engine, session, history: Vec::new(), owns: true };
        driver.run(&format!("SET parallelism = {parallelism}")).await?;
        Ok(driver)
    }

    /// Another session on the same engine, with a history of its own.
    pub fn another(&self) -> Self {
        Self { engine: self.engine.clone(), session: self.engine.session(), history: Vec::new(), owns: false }
    }

    /// Every statement so far, as a script.
    pub fn history(&self) -> String {
        let mut text = self.history.join(";\n");
        text.push(';');
        text
    }

    /// Runs a statement; its error is the answer `Failed`.
    pub async fn answer(&mut self, sql: &str) -> Answer {
        self.history.push(sql.to_owned());
        let outcome = match tokio::time::timeout(DEADLINE, self.session.execute(sql)).await {
            Ok(outcome) => outcome,
            Err(_) => return Answer::Failed(format!("no answer after {DEADLINE:?}")),
        };
        match outcome {
            Ok(Outcome::Done(tag)) => Answer::Done(tag),
            Ok(Outcome::Rows(mut rows)) => {
                let mut texts = Vec::new();
                while let Some(batch) = rows.stream.next().await {
                    match batch.and_then(|b| row_texts(&b)) {
                        Ok(more) => texts.extend(more),
                        Err(e) => return Answer::Failed(e.to_string()),
                    }
                }
                Answer::Rows(texts)
            }
            Err(e) => Answer::Failed(e.to_string()),
        }
    }

    /// Runs a statement that must not fail; gives its tag, or its rows as lines.
    pub async fn run(&mut self, sql: &str) -> Result<String> {
        match self.answer(sql).await {
            Answer::Done(tag) => Ok(tag),
            Answer::Rows(rows) => Ok(rows.join("\n")),
            Answer::Failed(e) => Err(SpateError::internal(format!("{sql}\n{e}"))),
        }
    }

    /// All rows of a relation, sorted.
    pub async fn rows(&mut self, relation: &str) -> Result<Vec<String>> {
        match self.answer(&format!("SELECT * FROM {relation}")).await {
            Answer::Rows(mut rows) => {
                rows.sort();
                Ok(rows)
            }
            Answer::Done(tag) => Err(SpateError::internal(format!("rows expected, not {tag}"))),
            Answer::Failed(e) => Err(SpateError::internal(e)),
        }
    }

    /// Waits until all input is in all views and compares each with its query in batch. Gives
    /// the number of views compared.
    pub async fn verify(&self) -> Result<usize> {
        match tokio::time::timeout(DEADLINE, self.engine.verify_views()).await {
            Ok(checked) => checked,
            Err(_) => Err(SpateError::internal(format!("views not verified after {DEADLINE:?}"))),
        }
    }

    /// Follows a relation from its rows on.
    pub async fn subscribe(&mut self, relation: &str) -> Result<Changelog> {
        let sql = format!("SUBSCRIBE TO {relation}");
        self.history.push(sql.clone());
        match self.session.execute(&sql).await? {
            Outcome::Rows(rows) => {
                Ok(Changelog { stream: rows.stream, epochs: BTreeMap::new(), deltas: BTreeMap::new(), ended: false })
            }
            Outcome::Done(tag) => Err(SpateError::internal(format!("rows expected, not {tag}"))),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.owns {
            self.engine.shutdown();
        }
    }
}

/// A row and its weight.
pub type Change = (String, i64);

/// A row with its types, as a batch of one, and its weight.
#[derive(Debug, Clone)]
pub struct Weighted {
    /// The row.
    pub row: RecordBatch,
    /// How often it comes; less than 0 if it goes.
    pub weight: i64,
}

/// What a subscription has delivered, by epoch, in the order of delivery.
pub struct Changelog {
    stream: BoxStream<'static, Result<RecordBatch>>,
    epochs: BTreeMap<u64, Vec<Change>>,
    /// The same with their types.
    deltas: BTreeMap<u64, Vec<Weighted>>,
    /// The view changes no more.
    ended: bool,
}

impl Changelog {
    /// Takes all that is there without waiting. After a `FLUSH` that is all that was written.
    pub async fn take(&mut self) -> Result<()> {
        // A task's cooperation budget would make a stream that has more look empty.
        tokio::task::unconstrained(async {
            while !self.ended
                && let Some(next) = self.stream.next().now_or_never()
            {
                let Some(batch) = next else {
                    self.ended = true;
                    break;
                };
                let batch = batch?;
                let n = batch.num_columns();
                let weights = batch.column(n - 2).as_primitive::<Int64Type>().clone();
                let epochs = batch.column(n - 1).as_primitive::<UInt64Type>().clone();
                let rows = batch.project(&(0..n - 2).collect::<Vec<_>>())?;
                for i in 0..rows.num_rows() {
                    let one = Weighted { row: rows.slice(i, 1), weight: weights.value(i) };
                    self.deltas.entry(epochs.value(i)).or_default().push(one);
                }
                for (i, row) in row_texts(&rows)?.into_iter().enumerate() {
                    self.epochs.entry(epochs.value(i)).or_default().push((row, weights.value(i)));
                }
            }
            Ok(())
        })
        .await
    }

    /// The changes of each epoch that has any, oldest first. Numbers of epochs depend on
    /// timing and are left out.
    pub fn epochs(&self) -> Vec<Vec<Change>> {
        self.epochs.values().cloned().collect()
    }

    /// The same with their types, without those taken before.
    pub fn take_deltas(&mut self) -> BTreeMap<u64, Vec<Weighted>> {
        std::mem::take(&mut self.deltas)
    }

    /// The rows that all changes together leave, sorted. A negative count is an error.
    pub fn sum(&self) -> Result<Vec<String>> {
        let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
        for (epoch, changes) in &self.epochs {
            for (row, weight) in changes {
                *counts.entry(row).or_default() += weight;
            }
            if let Some((row, n)) = counts.iter().find(|(_, n)| **n < 0) {
                return Err(SpateError::internal(format!("row ({row}) stands {n} times after epoch {epoch}")));
            }
        }
        let mut rows = Vec::new();
        for (row, n) in counts {
            rows.extend((0..n).map(|_| row.to_owned()));
        }
        Ok(rows)
    }

    /// Fails if an epoch names the same row twice, or with weight 0.
    pub fn check_net(&self) -> Result<()> {
        for (epoch, changes) in &self.epochs {
            let mut seen = BTreeMap::new();
            for (row, weight) in changes {
                if *weight == 0 {
                    return Err(SpateError::internal(format!("row ({row}) with weight 0 in epoch {epoch}")));
                }
                if let Some(before) = seen.insert(row, weight) {
                    return Err(SpateError::internal(format!(
                        "row ({row}) twice in epoch {epoch}: {before} and {weight}"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// The rows of a batch as text, cells joined by `|`. Distinct values have distinct texts.
pub fn row_texts(batch: &RecordBatch) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let cell = |i: usize, c: &Arc<dyn Array>, f: &ArrayFormatter<'_>| {
        // An empty text and a NULL, a text "NULL" and a NULL must not look alike.
        if c.is_null(i) {
            "NULL".to_owned()
        } else if c.data_type().is_string() {
            format!("'{}'", f.value(i))
        } else {
            f.value(i).to_string()
        }
    };
    let columns: Vec<(Arc<dyn Array>, ArrayFormatter<'_>)> = batch
        .columns()
        .iter()
        .map(|c| Ok((c.clone(), ArrayFormatter::try_new(c.as_ref(), &options)?)))
        .collect::<Result<_>>()?;
    Ok((0..batch.num_rows())
        .map(|i| columns.iter().map(|(c, f)| cell(i, c, f)).collect::<Vec<_>>().join("|"))
        .collect())
}
