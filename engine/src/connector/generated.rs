//! Generated columns of a connector's rows: computed as the rows are read, so that watermarks,
//! late rows and every reader see them like any other column.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::utils::collect_columns;

use super::{Polled, SourceConnector, Split, SplitReader};
use crate::types::{Result, SpateError};

/// Where a column comes from.
#[derive(Debug, Clone)]
pub enum ColumnSource {
    /// A column of the connector.
    Read(usize),
    /// An expression over all columns of the connector.
    Computed(Arc<dyn PhysicalExpr>),
}

/// A connector with columns of its own beside those that it reads.
pub struct Generated {
    inner: Arc<dyn SourceConnector>,
    schema: SchemaRef,
    columns: Vec<ColumnSource>,
}

impl Generated {
    /// `inner` with these columns, one per field of `schema`.
    pub fn new(inner: Arc<dyn SourceConnector>, schema: SchemaRef, columns: Vec<ColumnSource>) -> Self {
        Self { inner, schema, columns }
    }
}

impl SourceConnector for Generated {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        self.inner.bounded()
    }

    fn changes(&self) -> bool {
        self.inner.changes()
    }

    fn splits(&self, in_order: bool, parallelism: usize) -> Result<Vec<Split>> {
        self.inner.splits(in_order, parallelism)
    }

    fn more_splits(&self, known: usize, in_order: bool, parallelism: usize) -> Result<Vec<Split>> {
        self.inner.more_splits(known, in_order, parallelism)
    }

    fn discover_every(&self) -> Option<Duration> {
        self.inner.discover_every()
    }

    fn open(&self, split: &Split, offset: u64, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        let wanted: Vec<&ColumnSource> = projection
            .iter()
            .map(|c| self.columns.get(*c).ok_or_else(|| SpateError::internal("no such column of a connector")))
            .collect::<Result<_>>()?;
        let mut read: Vec<usize> = wanted
            .iter()
            .flat_map(|c| match c {
                ColumnSource::Read(i) => vec![*i],
                ColumnSource::Computed(e) => collect_columns(e).iter().map(Column::index).collect(),
            })
            .collect();
        if read.is_empty() {
            // Constants only: something must say how many rows there are.
            read.push(0);
        }
        read.sort_unstable();
        read.dedup();
        let place = |c: usize| read.binary_search(&c).unwrap_or(0);
        let columns = wanted
            .iter()
            .map(|c| match c {
                ColumnSource::Read(i) => Ok(ColumnSource::Read(place(*i))),
                ColumnSource::Computed(e) => moved(e, place).map(ColumnSource::Computed),
            })
            .collect::<Result<_>>()?;
        Ok(Box::new(Reader {
            inner: self.inner.open(split, offset, &read)?,
            schema: Arc::new(self.schema.project(projection)?),
            columns,
        }))
    }
}

/// `e` with its columns at other places.
fn moved(e: &Arc<dyn PhysicalExpr>, place: impl Fn(usize) -> usize) -> Result<Arc<dyn PhysicalExpr>> {
    let done = e.clone().transform_up(|e| {
        let any: &dyn std::any::Any = e.as_ref();
        Ok(match any.downcast_ref::<Column>() {
            Some(c) => Transformed::yes(Arc::new(Column::new(c.name(), place(c.index()))) as Arc<dyn PhysicalExpr>),
            None => Transformed::no(e),
        })
    });
    Ok(done.data()?)
}

struct Reader {
    inner: Box<dyn SplitReader>,
    schema: SchemaRef,
    columns: Vec<ColumnSource>,
}

impl SplitReader for Reader {
    fn poll(&mut self, max_rows: usize, until: Option<u64>) -> Result<Polled> {
        Ok(match self.inner.poll(max_rows, until)? {
            Polled::Batch { rows, dead, progress } => {
                let n = rows.num_rows();
                let columns = self
                    .columns
                    .iter()
                    .map(|c| match c {
                        ColumnSource::Read(i) => Ok(rows.column(*i).clone()),
                        ColumnSource::Computed(e) => Ok(e.evaluate(&rows)?.into_array(n)?),
                    })
                    .collect::<Result<Vec<ArrayRef>>>()?;
                let options = RecordBatchOptions::new().with_row_count(Some(n));
                let rows = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
                Polled::Batch { rows, dead, progress }
            }
            other => other,
        })
    }

    fn offset(&self) -> u64 {
        self.inner.offset()
    }
}
