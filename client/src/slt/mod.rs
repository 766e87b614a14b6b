//! sqllogictest files against Spate: every file on a fresh engine, every connection a
//! session, and after every `FLUSH` and at the end a recomputation of all materialized views
//! in batch, which no directive of a file can switch off.
//!
//! Beyond sqllogictest itself, `${SLT_DIR}` in SQL and system commands is the folder of the
//! file and `${TMP}` an empty folder that lives as long as the file runs. Values are in
//! PostgreSQL's text format, NULL is `NULL`, the empty string is `(empty)`, and line ends and
//! tabs in values are `\n`, `\r`, `\t`. The label of `skipif` and `onlyif` is `spate`.

mod driver;
mod files;
mod junit;
mod remote;
mod runner;

pub use driver::{Answer, Connection, Database, Embedded};
pub use files::expand;
pub use junit::junit;
pub use remote::Remote;
pub use runner::{FileReport, Options, Summary, run_paths, run_paths_on};

#[cfg(test)]
mod tests;
