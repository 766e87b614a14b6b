//! The engine as a whole: sessions that run statements, the coordinator that closes
//! epochs, the worker that runs tasks, and the batch side that answers SELECT.

pub mod batch;
pub mod coordinator;
pub mod durable;
pub mod fault;
pub mod oracle;
pub mod session;
pub mod threads;
pub mod worker;

pub use session::{CancelHandle, Engine, EngineConfig, Outcome, Progress, RowStream, Session, SinkObserver};
