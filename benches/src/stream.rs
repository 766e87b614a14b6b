//! The same queries kept up to date by Spate, from the first row to the last.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use spate_engine::types::{Result, SpateError};
use spate_server::{Engine, EngineConfig, Outcome, Session};
use tokio::runtime::Runtime;

use crate::checksum::{self, Checksum};

/// An engine with sources over these files, by name.
///
/// # Errors
/// When a file cannot be read.
pub fn engine(runtime: &Runtime, config: EngineConfig, files: &[(&str, &Path)]) -> Result<(Arc<Engine>, Session)> {
    let engine = Engine::open(config)?;
    let mut session = engine.session();
    for (name, path) in files {
        let sql = format!("CREATE SOURCE {name} WITH (connector = 'file', path = '{}')", path.display());
        done(runtime, &mut session, &sql)?;
    }
    Ok((engine, session))
}

/// A new data directory for an engine whose checkpoints are measured too; it goes when this is dropped.
///
/// # Errors
/// It cannot be made.
pub fn data_dir(parent: &Path) -> Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("checkpoints-").tempdir_in(parent);
    made.map_err(|e| SpateError::from(e).context(format!("cannot make a directory in \"{}\"", parent.display())))
}

/// Runs a statement that gives no rows.
///
/// # Errors
/// When it fails.
pub fn done(runtime: &Runtime, session: &mut Session, sql: &str) -> Result<()> {
    match runtime.block_on(session.execute(sql))? {
        Outcome::Done(_) => Ok(()),
        Outcome::Rows(_) => Err(SpateError::internal("rows where none were expected")),
    }
}

/// The single number that a query gives.
///
/// # Errors
/// When it fails or gives something else.
pub fn number(runtime: &Runtime, session: &mut Session, sql: &str) -> Result<i64> {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    match runtime.block_on(session.execute(sql))? {
        Outcome::Rows(rows) => {
            let batches: Vec<_> = runtime.block_on(rows.stream.try_collect())?;
            let first = batches.iter().find(|b| b.num_rows() > 0);
            first
                .and_then(|b| b.column(0).as_primitive_opt::<Int64Type>().map(|a| a.value(0)))
                .ok_or_else(|| SpateError::internal("no number"))
        }
        Outcome::Done(_) => Err(SpateError::internal("no rows")),
    }
}

/// A query's schema and the checksum of its rows.
///
/// # Errors
/// When it fails or gives no rows.
pub fn checksum(runtime: &Runtime, session: &mut Session, sql: &str) -> Result<(SchemaRef, Checksum)> {
    match runtime.block_on(session.execute(sql))? {
        Outcome::Rows(rows) => {
            let sum = runtime.block_on(checksum::of(&rows.schema, rows.stream))?;
            Ok((rows.schema, sum))
        }
        Outcome::Done(_) => Err(SpateError::internal("no rows")),
    }
}
