//! Names of tasks.

pub mod events;
