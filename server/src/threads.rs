//! Threads that plan and run statements.

use spate_engine::types::Result;
use tokio::runtime::{Builder, Runtime};

/// Plans are trees that are walked recursively, and users write deep ones: views on views, long
/// unions. Memory is taken only as far as a stack is used.
pub const STACK_BYTES: usize = 1 << 30;

/// A runtime for sessions: as many threads as there are cores, with stacks for deep plans.
///
/// # Errors
/// The system has no threads left.
pub fn runtime() -> Result<Runtime> {
    Ok(builder().build()?)
}

/// The same, to be completed.
pub(crate) fn builder() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.thread_stack_size(STACK_BYTES).enable_all();
    builder
}
