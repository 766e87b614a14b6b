//! The suites of this crate in one binary.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs)]

mod cli;
mod flight;
mod kill;
mod server;
mod sql;
mod subscription;
