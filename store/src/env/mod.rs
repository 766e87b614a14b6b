//! What the storage layer takes from the world outside beside what the engine does: durable files, and
//! time to wait. A simulation puts its own in.
#![allow(clippy::disallowed_methods)]

mod object_dir;

use std::io;
use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use spate_engine::env::sync_dir;

pub use object_dir::ObjectDir;

/// Lets time pass between attempts.
pub trait Sleep: Send + Sync {
    /// Done once `time` has passed.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// Blocks the thread: for threads that do nothing but move snapshots.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockingSleep;

impl Sleep for BlockingSleep {
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move { std::thread::sleep(time) })
    }
}

/// Makes a directory and those above it, durably.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_dir(parent)?;
    match std::fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    sync_dir(parent)
}
