//! The storage beneath durable state: snapshots as objects, manifests, epoch records, the meta
//! store.

pub mod checkpoint;
pub mod env;
pub mod meta;
