//! Table providers: rows in memory, and bounded connectors read as they are asked for.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::stream;
use spate_engine::connector::{DeadLetter, Polled, SourceConnector, Split, SplitReader};
use spate_engine::types::SpateError;

/// Rows in memory.
#[derive(Debug)]
pub struct Snapshot {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Snapshot {
    /// These rows.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Arc<Self> {
        Arc::new(Self { schema, batches })
    }
}

#[async_trait]
impl TableProvider for Snapshot {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        memory(state, &self.schema, &self.batches, projection)
    }
}

/// Rows as a plan.
pub(super) fn memory(
    state: &dyn Session,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    projection: Option<&Vec<usize>>,
) -> DfResult<Arc<dyn ExecutionPlan>> {
    // Large batches are shared out so that all threads have work.
    let n = if batches.len() > 1 { state.config().target_partitions().max(1) } else { 1 };
    let mut partitions = vec![Vec::new(); n];
    for (i, b) in batches.iter().enumerate() {
        partitions[i % n].push(b.clone());
    }
    Ok(MemorySourceConfig::try_new_exec(&partitions, schema.clone(), projection.cloned())?)
}

/// Called with the records that could not be decoded.
pub type OnDead = Arc<dyn Fn(Vec<DeadLetter>) -> Result<(), SpateError> + Send + Sync>;

/// A bounded connector, read from its start.
pub struct Bounded {
    connector: Arc<dyn SourceConnector>,
    on_dead: OnDead,
}

impl std::fmt::Debug for Bounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bounded")
    }
}

impl Bounded {
    /// All that `connector` has.
    pub fn new(connector: Arc<dyn SourceConnector>, on_dead: OnDead) -> Arc<Self> {
        Arc::new(Self { connector, on_dead })
    }
}

#[async_trait]
impl TableProvider for Bounded {
    fn schema(&self) -> SchemaRef {
        self.connector.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let all = self.connector.schema();
        let projection: Vec<usize> = projection.cloned().unwrap_or_else(|| (0..all.fields().len()).collect());
        let schema = Arc::new(all.project(&projection)?);
        let parallelism = state.config().target_partitions().max(1);
        let splits = self.connector.splits(false, parallelism)?;
        let mut shares = vec![Vec::new(); parallelism.min(splits.len()).max(1)];
        let n = shares.len();
        for (i, s) in splits.into_iter().enumerate() {
            shares[i % n].push(s);
        }
        let partitions = shares
            .into_iter()
            .map(|splits| {
                Arc::new(Share {
                    connector: self.connector.clone(),
                    on_dead: self.on_dead.clone(),
                    splits,
                    projection: projection.clone(),
                    schema: schema.clone(),
                }) as Arc<dyn PartitionStream>
            })
            .collect();
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, vec![], false, limit)?))
    }
}

struct Share {
    connector: Arc<dyn SourceConnector>,
    on_dead: OnDead,
    splits: Vec<Split>,
    projection: Vec<usize>,
    schema: SchemaRef,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Share")
    }
}

struct Reading {
    splits: std::vec::IntoIter<Split>,
    reader: Option<Box<dyn SplitReader>>,
}

impl PartitionStream for Share {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let connector = self.connector.clone();
        let on_dead = self.on_dead.clone();
        let projection = self.projection.clone();
        let state = Reading { splits: self.splits.clone().into_iter(), reader: None };
        let stream = stream::try_unfold(state, move |mut r| {
            let connector = connector.clone();
            let on_dead = on_dead.clone();
            let projection = projection.clone();
            async move {
                loop {
                    if r.reader.is_none() {
                        let Some(split) = r.splits.next() else { return Ok(None) };
                        r.reader = Some(connector.open(&split, split.start, &projection)?);
                    }
                    let Some(reader) = &mut r.reader else { continue };
                    match reader.poll(8192, None).map_err(DataFusionError::from)? {
                        Polled::Batch { rows, dead, .. } => {
                            if !dead.is_empty() {
                                on_dead(dead).map_err(DataFusionError::from)?;
                            }
                            // Lets other work of this thread go on, and a cancelled query end.
                            tokio::task::yield_now().await;
                            return Ok(Some((rows, r)));
                        }
                        Polled::Pending(d) => tokio::time::sleep(d).await,
                        Polled::End => r.reader = None,
                    }
                }
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream))
    }
}
