//! The recursive relation of a WITH RECURSIVE within its own recursive term.

use std::any::Any;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::{LogicalPlan, TableSource};
use spate_engine::types::error::Result;

use super::bind_error;

/// The rows that the last round found.
#[derive(Debug)]
pub struct WorkTable {
    name: String,
    schema: SchemaRef,
}

impl WorkTable {
    /// The relation called `name` in its WITH.
    pub(super) fn new(name: &str, schema: SchemaRef) -> Self {
        Self { name: name.to_owned(), schema }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The recursive relation behind a table source, when it is one.
    pub fn of(source: &dyn TableSource) -> Option<&Self> {
        let any: &dyn Any = source;
        any.downcast_ref::<Self>()
    }
}

impl TableSource for WorkTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Puts another table source under each scan of a recursive relation, given its name and
/// schema (the server gives DataFusion's).
pub fn rewrite_work_tables(
    plan: LogicalPlan,
    mut source: impl FnMut(&str, &SchemaRef) -> Arc<dyn TableSource>,
) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            let new = WorkTable::of(scan.source.as_ref()).map(|w| source(&w.name, &w.schema));
            let Some(new) = new else { return Ok(Transformed::no(LogicalPlan::TableScan(scan))) };
            scan.source = new;
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(rewritten.map_err(bind_error)?.data)
}
