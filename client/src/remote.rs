//! A server in the place of an embedded engine: its errors and results in the engine's own types.

use arrow::array::RecordBatch;
use futures::StreamExt;
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_server::{CancelHandle, Outcome, RowStream};

use crate::protocol::{Answer, Client, Error, Kind};

/// A server's error as the engine has it.
pub fn error(e: Error) -> SpateError {
    let kind = match e.kind() {
        Kind::Syntax => ErrorKind::Syntax,
        Kind::NotFound => ErrorKind::NotFound,
        Kind::AlreadyExists => ErrorKind::AlreadyExists,
        Kind::Type => ErrorKind::Type,
        Kind::Unsupported => ErrorKind::Unsupported,
        Kind::InvalidArgument => ErrorKind::InvalidArgument,
        Kind::DependencyExists => ErrorKind::DependencyExists,
        Kind::Constraint => ErrorKind::Constraint,
        Kind::Io | Kind::Unavailable => ErrorKind::Io,
        Kind::Evaluation => ErrorKind::Evaluation,
        Kind::Limit => ErrorKind::Limit,
        Kind::Cancelled => ErrorKind::Cancelled,
        Kind::Internal => ErrorKind::Internal,
    };
    let mut out = SpateError::new(kind, e.message());
    if let Some(hint) = e.hint() {
        out = out.with_hint(hint);
    }
    match e.position() {
        Some((line, column)) => out.at(line, column),
        None => out,
    }
}

fn cancelled() -> SpateError {
    SpateError::new(ErrorKind::Cancelled, "cancelled on user's request")
}

/// Runs a statement on a server; cancelled, it ends there too.
///
/// # Errors
/// What the server says of it.
pub async fn execute(client: &Client, cancel: &CancelHandle, sql: &str) -> Result<Outcome> {
    let answer = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(cancelled()),
        answer = client.run(sql) => answer.map_err(error)?,
    };
    Ok(match answer {
        Answer::Done(tag) => Outcome::Done(tag),
        Answer::Rows(rows) => {
            let (schema, endless) = (rows.schema().clone(), rows.endless());
            let batches = rows.map(|b| -> Result<RecordBatch> { b.map_err(error) }).boxed();
            Outcome::Rows(RowStream { schema, stream: cancel.clone().guard(batches), endless, delivered: None })
        }
    })
}
