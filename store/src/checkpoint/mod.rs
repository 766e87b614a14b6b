//! Checkpoints that outlive the process: snapshots as objects, manifests that say which of them
//! count, and what may be deleted.
//!
//! A task's table segments become objects ([`codec`], [`objects`]). [`chains`] keeps the books of
//! which snapshots are current; a [`manifest`] makes that durable and is the one thing that makes
//! an object count. [`compact`] shortens chains, [`collect`] deletes what no manifest can
//! reach.

pub mod chains;
pub mod codec;
pub mod collect;
pub mod compact;
mod error;
pub mod manifest;
pub mod names;
pub mod objects;

pub use error::{StoreError, StoreResult};
