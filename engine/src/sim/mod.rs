//! The simulator: an executor on one thread with seeded choices and virtual time. It steps the
//! real tasks in a random order; one seed gives one run, always.

pub mod cluster;
pub mod record;
pub mod source;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::env::Clock;
use crate::task::executor::{Executor, Runnable, Step, Waker};

/// Virtual time. It moves only when the simulator moves it.
#[derive(Debug)]
pub struct SimClock {
    now: Mutex<Duration>,
    /// How much time a look at the clock takes.
    look: Mutex<Duration>,
}

impl Default for SimClock {
    fn default() -> Self {
        Self { now: Mutex::default(), look: Mutex::new(Duration::from_micros(400)) }
    }
}

/// Wall-clock time at the start of a simulation: 2000-01-01 00:00:00 UTC, in microseconds.
const START_US: i64 = 946_684_800_000_000;

impl SimClock {
    /// Moves time on.
    pub fn advance(&self, by: Duration) {
        *self.now.lock() += by;
    }

    /// Sets how much time a look takes: the more, the less a task does in one step.
    pub fn set_look(&self, by: Duration) {
        *self.look.lock() = by;
    }
}

impl Clock for SimClock {
    fn now_us(&self) -> i64 {
        START_US + i64::try_from(self.now.lock().as_micros()).unwrap_or(i64::MAX - START_US)
    }

    fn monotonic(&self) -> Duration {
        // Every look takes a little time, so that tasks use up their step budgets and yield in the
        // middle of an epoch.
        let mut now = self.now.lock();
        *now += *self.look.lock();
        *now
    }
}

#[derive(Default)]
struct Cell {
    runnable: Option<Box<dyn Runnable>>,
    ready: bool,
    timer: Option<Duration>,
}

struct Inner {
    cells: BTreeMap<u64, Cell>,
    next: u64,
    rng: SmallRng,
    steps: u64,
}

/// The seeded executor.
#[derive(Clone)]
pub struct SimExecutor {
    inner: Arc<Mutex<Inner>>,
    clock: Arc<SimClock>,
}

impl std::fmt::Debug for SimExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimExecutor")
    }
}

impl SimExecutor {
    /// An executor for one seed.
    pub fn new(seed: u64) -> Self {
        let inner = Inner { cells: BTreeMap::new(), next: 1, rng: SmallRng::seed_from_u64(seed), steps: 0 };
        Self { inner: Arc::new(Mutex::new(inner)), clock: Arc::default() }
    }

    /// The clock that everything in the simulation reads.
    pub fn clock(&self) -> Arc<SimClock> {
        self.clock.clone()
    }

    /// A random number below `n`, from the seed.
    pub fn random(&self, n: u64) -> u64 {
        self.inner.lock().rng.random_range(0..n.max(1))
    }

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.inner.lock().steps
    }

    /// Steps one runnable picked at random; without one that is ready, moves time to the next
    /// timer. Says whether anything was done.
    pub fn step(&self) -> bool {
        let (slot, mut runnable) = {
            let mut inner = self.inner.lock();
            let now = self.clock.monotonic();
            for c in inner.cells.values_mut() {
                if c.timer.is_some_and(|t| t <= now) {
                    c.timer = None;
                    c.ready = true;
                }
            }
            let ready: Vec<u64> =
                inner.cells.iter().filter(|(_, c)| c.ready && c.runnable.is_some()).map(|(s, _)| *s).collect();
            if ready.is_empty() {
                let next = inner.cells.values().filter_map(|c| c.timer).min();
                if let Some(at) = next {
                    drop(inner);
                    self.clock.advance(at.saturating_sub(now));
                    return true;
                }
                return false;
            }
            let i = inner.rng.random_range(0..ready.len());
            let slot = ready[i];
            inner.steps += 1;
            let Some(cell) = inner.cells.get_mut(&slot) else { return false };
            cell.ready = false;
            let Some(r) = cell.runnable.take() else { return false };
            (slot, r)
        };
        let step = runnable.step();
        let mut inner = self.inner.lock();
        let now = self.clock.monotonic();
        if let Some(cell) = inner.cells.get_mut(&slot) {
            match step {
                Step::Done => {
                    inner.cells.remove(&slot);
                    return true;
                }
                Step::Again => cell.ready = true,
                Step::Wait => {}
                Step::WaitFor(d) => cell.timer = Some(now + d),
            }
            cell.runnable = Some(runnable);
        }
        true
    }
}

impl Executor for SimExecutor {
    fn reserve(&self) -> (u64, Waker) {
        let mut inner = self.inner.lock();
        let slot = inner.next;
        inner.next += 1;
        inner.cells.insert(slot, Cell::default());
        let shared = Arc::downgrade(&self.inner);
        let waker = Waker::new(move || {
            if let Some(inner) = shared.upgrade()
                && let Some(c) = inner.lock().cells.get_mut(&slot)
            {
                c.ready = true;
            }
        });
        (slot, waker)
    }

    fn spawn(&self, slot: u64, runnable: Box<dyn Runnable>) {
        let mut inner = self.inner.lock();
        let cell = inner.cells.entry(slot).or_default();
        cell.runnable = Some(runnable);
        cell.ready = true;
    }

    fn remove(&self, slot: u64) {
        let gone = self.inner.lock().cells.get_mut(&slot).and_then(|c| {
            c.timer = None;
            c.runnable.take()
        });
        drop(gone);
    }
}
