//! DataFusion in batch over the same files: the limit that a streaming run is measured against.

use std::path::Path;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::StreamExt;
use tokio::runtime::Runtime;

/// A context with `threads` partitions over these Parquet files, by name.
///
/// # Errors
/// When a file cannot be read.
pub fn context(runtime: &Runtime, threads: usize, files: &[(&str, &Path)]) -> Result<SessionContext> {
    let mut config = SessionConfig::new().with_target_partitions(threads);
    config.options_mut().execution.parquet.schema_force_view_types = false;
    let context = SessionContext::new_with_config(config);
    for (name, path) in files {
        let path = path.to_string_lossy().into_owned();
        runtime.block_on(context.register_parquet(*name, path, ParquetReadOptions::default()))?;
    }
    Ok(context)
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
