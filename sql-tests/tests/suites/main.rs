//! Every suite of the workspace in one binary, since linking takes longer than most of them run:
//! `cargo test --workspace --test suites NAME::` runs one.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs)]

mod differential;
mod durable;
mod fault;
mod idle;
mod memory;
mod nexmark;
mod properties;
mod random;
mod sim;
mod slt;
mod state;
mod temporal;
mod tidy;
mod tour;
mod tpch;
mod wall;
