//! The engine as a whole: sessions that run statements, the coordinator that closes
//! epochs, the worker that runs tasks, and the batch side that answers SELECT.

pub mod session;

pub use session::{Engine, EngineConfig, Outcome, RowStream, Session};
