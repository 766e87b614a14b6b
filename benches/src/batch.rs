//! DataFusion in batch over the same files: the limit that a streaming run is measured against.

use std::path::Path;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{Int64Type, Schema};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{JsonReadOptions, ParquetReadOptions, SessionConfig, SessionContext};
use futures::{StreamExt, TryStreamExt};
use spate_engine::types::SpateError;
use tokio::runtime::Runtime;

use crate::checksum::{self, Checksum};

/// A context with `threads` partitions over these Parquet files, by name.
///
/// # Errors
/// When a file cannot be read.
pub fn context(runtime: &Runtime, threads: usize, files: &[(&str, &Path)]) -> Result<SessionContext> {
    let mut config = SessionConfig::new().with_target_partitions(threads);
    config.options_mut().execution.parquet.schema_force_view_types = false;
    let context = SessionContext::new_with_config(config);
    for (name, path) in files {
        read_parquet(runtime, &context, name, path)?;
    }
    Ok(context)
}

/// A Parquet file as a table.
///
/// # Errors
/// When it cannot be read.
pub fn read_parquet(runtime: &Runtime, context: &SessionContext, table: &str, path: &Path) -> Result<()> {
    let path = path.to_string_lossy().into_owned();
    runtime.block_on(context.register_parquet(table, path, ParquetReadOptions::default()))
}

/// A context over the files `TABLE.parquet` of a folder, as DataFusion reads them by default, or
/// with schemas over `TABLE.json`, which do not say what text means a time.
///
/// # Errors
/// When a file cannot be read.
pub fn context_over(
    runtime: &Runtime,
    threads: usize,
    dir: &Path,
    tables: &[&str],
    json: Option<&dyn Fn(&str) -> Schema>,
) -> spate_engine::types::Result<SessionContext> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(threads));
    for name in tables {
        match json {
            Some(schema) => {
                let schema = schema(name);
                let path = dir.join(format!("{name}.json")).to_string_lossy().into_owned();
                runtime.block_on(context.register_json(*name, path, JsonReadOptions::default().schema(&schema)))
            }
            None => read_parquet(runtime, &context, name, &dir.join(format!("{name}.parquet"))),
        }
        .map_err(failed)?;
    }
    Ok(context)
}

/// The single number that a query gives.
///
/// # Errors
/// When it fails or gives something else.
pub fn number(runtime: &Runtime, context: &SessionContext, sql: &str) -> Result<u64> {
    let batches = runtime.block_on(async { context.sql(sql).await?.collect().await })?;
    let first = batches.first().filter(|b| b.num_rows() == 1 && b.num_columns() == 1);
    let number = first.and_then(|b| b.column(0).as_primitive_opt::<Int64Type>()).map(|a| a.value(0));
    number.and_then(|n| u64::try_from(n).ok()).ok_or_else(|| DataFusionError::Internal("no number".into()))
}

/// The checksum of a query's rows, cast to the types of `schema`.
///
/// # Errors
/// When the query fails or gives other columns.
pub fn checksum(
    runtime: &Runtime,
    context: &SessionContext,
    sql: &str,
    schema: &Schema,
) -> spate_engine::types::Result<Checksum> {
    runtime.block_on(async {
        let rows = context.sql(sql).await.map_err(failed)?.execute_stream().await.map_err(failed)?;
        checksum::of(schema, rows.map_err(failed)).await
    })
}

/// An error of the batch side as one of ours.
pub fn failed(e: DataFusionError) -> SpateError {
    SpateError::internal(e.to_string()).context("DataFusion in batch")
}

/// Runs a query and drops its rows; gives their number.
///
/// # Errors
/// When the query fails.
pub fn count_rows(runtime: &Runtime, context: &SessionContext, sql: &str) -> Result<u64> {
    runtime.block_on(async {
        let plan = context.sql(sql).await?.create_physical_plan().await?;
        let mut stream = execute_stream(Arc::clone(&plan), context.task_ctx())?;
        let mut rows = 0;
        while let Some(b) = stream.next().await {
            rows += b?.num_rows() as u64;
        }
        Ok(rows)
    })
}
