//! The streaming core of Spate: deltas and epochs, plain-data plans, synchronous
//! operators over state tables, exchanges that hand over whole epochs, connectors,
//! and the drivers that run them. Knows nothing of SQL, sessions or networks.

pub mod checkpoint;
pub mod connector;
pub mod env;
pub mod exchange;
pub mod operator;
pub mod plan;
pub mod sim;
pub mod state;
pub mod task;
pub mod types;
