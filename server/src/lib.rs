//! The engine as a whole: sessions that run statements, the coordinator that closes
//! epochs, the worker that runs tasks, and the batch side that answers SELECT; and the server
//! that clients reach over Flight SQL and HTTP.

pub mod batch;
pub mod config;
pub mod coordinator;
pub mod durable;
pub mod fault;
pub mod flight;
pub mod http;
pub mod oracle;
pub mod serve;
pub mod session;
pub mod threads;
pub mod worker;

pub use serve::{Server, ServerConfig};
pub use session::{
    CancelHandle, Delivered, Description, Engine, EngineConfig, Outcome, Progress, RowStream, Session, SinkObserver,
};
