//! Tasks: what runs operators. A task is one parallel instance of a fragment; an executor
//! steps it, and it goes on where it left off.

pub mod build;
pub mod driver;
pub mod events;
pub mod executor;
mod idle;
pub mod leaf;
pub mod metrics;
pub mod scan;
pub mod source;
#[cfg(test)]
mod source_tests;
pub mod ticks;

pub use build::{JobContext, JobTasks, Limits, SnapshotEvery, build_job};
pub use driver::{Task, TaskSnapshot};
pub use events::{Events, TaskId};
pub use executor::{Executor, Pool, Runnable, Step, Waker};
pub use ticks::TickBoard;
