//! What the engine takes from the world outside: time and storage. Everything else in the engine
//! gets them through these traits, so that a simulation can put its own in. (Connectors are such a
//! seam of their own: a simulation brings its own connectors. Randomness comes from seeds alone, but for
//! names that must not be guessed.)
#![allow(clippy::disallowed_methods)]

mod dir;
mod machine;
mod storage;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::TryRngCore;
use rand::rngs::OsRng;

pub use dir::{DurableDir, sync_dir};
pub use machine::memory_bytes;
pub use storage::{MemoryStorage, Scratch, Storage, SystemStorage};

/// The text of a file that a user names (settings, not data: data comes through connectors).
///
/// # Errors
/// When it cannot be read, or is no UTF-8.
pub fn read_text(path: &std::path::Path) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

/// A name that nobody can guess, of 32 hexadecimal digits: for sessions and tickets, never for results.
///
/// # Errors
/// When the operating system has no randomness to give.
pub fn random_id() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    OsRng.try_fill_bytes(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// Wall-clock time in microseconds since 1970-01-01 UTC. May jump.
    fn now_us(&self) -> i64;

    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_us(&self) -> i64 {
        // A clock before 1970 counts backwards from it.
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(d) => i64::try_from(d.as_micros()).unwrap_or(i64::MAX),
            Err(e) => i64::try_from(e.duration().as_micros()).map_or(i64::MIN, |v| -v),
        }
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}
