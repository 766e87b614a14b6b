//! Executors step runnable things on threads of their own. The engine has one on a pool of
//! threads; the simulator has another on one thread with virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::env::Clock;
use crate::types::{ErrorKind, Result, SpateError};

/// What a step left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to do at once.
    Again,
    /// Nothing to do until woken.
    Wait,
    /// Nothing to do until woken, or this time has passed.
    WaitFor(Duration),
    /// Never again.
    Done,
}

impl Step {
    /// What lets both go on in time: the sooner of the two.
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Again, _) | (_, Self::Again) => Self::Again,
            (Self::WaitFor(a), Self::WaitFor(b)) => Self::WaitFor(a.min(b)),
            (Self::WaitFor(d), _) | (_, Self::WaitFor(d)) => Self::WaitFor(d),
            (Self::Wait, _) | (_, Self::Wait) => Self::Wait,
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

/// Something that runs in steps of at most a few milliseconds.
pub trait Runnable: Send {
    /// Does a bit of work.
    fn step(&mut self) -> Step;

    /// A step panicked with this message; it will not be stepped again.
    fn panicked(&mut self, message: &str);
}

/// Wakes one runnable; cheap to clone, safe to call at any time from anywhere.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls `f`.
    pub fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    /// A waker that does nothing.
    pub fn noop() -> Self {
        Self::new(|| ())
    }

    /// Wakes it.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

/// Runs runnables.
pub trait Executor: Send + Sync {
    /// A waker for what will be spawned in this slot, before it exists.
    fn reserve(&self) -> (u64, Waker);

    /// Starts a runnable in a reserved slot.
    fn spawn(&self, slot: u64, runnable: Box<dyn Runnable>);

    /// Removes a runnable: it is not stepped again after this returns, and is dropped.
    fn remove(&self, slot: u64);
}

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const NOTIFIED: u8 = 3;
const DONE: u8 = 4;

struct Cell {
    slot: u64,
    state: AtomicU8,
    runnable: Mutex<Option<Box<dyn Runnable>>>,
}

struct Shared {
    queue: Mutex<Queue>,
    condvar: Condvar,
    cells: Mutex<std::collections::BTreeMap<u64, Arc<Cell>>>,
    next_slot: AtomicU64,
    stop: AtomicBool,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Cell>>,
    timers: BinaryHeap<Reverse<(Duration, u64)>>,
}

/// A pool of threads.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

impl Pool {
    /// Starts `threads` threads.
    pub fn new(threads: usize, clock: Arc<dyn Clock>) -> Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            condvar: Condvar::new(),
            cells: Mutex::default(),
            next_slot: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            clock,
        });
        let threads = (0..threads.max(1))
            .map(|i| {
                let shared = shared.clone();
                std::thread::Builder::new()
                    .name(format!("spate-task-{i}"))
                    .spawn(move || shared.run())
                    .map_err(|e| SpateError::new(ErrorKind::Limit, format!("cannot start a thread: {e}")))
            })
            .collect::<Result<_>>()?;
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// Stops the threads after their current steps, and drops all runnables.
    pub fn shutdown(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _queue = self.shared.queue.lock();
            self.shared.condvar.notify_all();
        }
        for t in self.threads.lock().drain(..) {
            // A pool dropped on one of its own threads must not wait for itself.
            if t.thread().id() != std::thread::current().id() {
                let _ = t.join();
            }
        }
        self.shared.queue.lock().ready.clear();
        let cells: Vec<_> = std::mem::take(&mut *self.shared.cells.lock()).into_values().collect();
        for c in cells {
            c.runnable.lock().take();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Executor for Pool {
    fn reserve(&self) -> (u64, Waker) {
        let slot = self.shared.next_slot.fetch_add(1, Ordering::Relaxed);
        let cell = Arc::new(Cell { slot, state: AtomicU8::new(IDLE), runnable: Mutex::new(None) });
        self.shared.cells.lock().insert(slot, cell.clone());
        let shared = Arc::downgrade(&self.shared);
        let cell = Arc::downgrade(&cell);
        let waker = Waker::new(move || {
            if let (Some(s), Some(c)) = (shared.upgrade(), cell.upgrade()) {
                s.wake(&c);
            }
        });
        (slot, waker)
    }

    fn spawn(&self, slot: u64, runnable: Box<dyn Runnable>) {
        let cell = self.shared.cells.lock().get(&slot).cloned();
        if let Some(cell) = cell {
            *cell.runnable.lock() = Some(runnable);
            self.shared.wake(&cell);
        }
    }

    fn remove(&self, slot: u64) {
        let cell = self.shared.cells.lock().remove(&slot);
        if let Some(cell) = cell {
            cell.state.store(DONE, Ordering::SeqCst);
            // Waits for a running step to end.
            let gone = cell.runnable.lock().take();
            drop(gone);
        }
    }
}

impl Shared {
    fn wake(&self, cell: &Arc<Cell>) {
        loop {
            let (from, to) = match cell.state.load(Ordering::SeqCst) {
                IDLE => (IDLE, QUEUED),
                RUNNING => (RUNNING, NOTIFIED),
                _ => return,
            };
            if cell.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                if to == QUEUED {
                    self.queue.lock().ready.push_back(cell.clone());
                    self.condvar.notify_one();
                }
                return;
            }
        }
    }

    fn next(&self) -> Option<Arc<Cell>> {
        let mut queue = self.queue.lock();
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            let now = self.clock.monotonic();
            while let Some(Reverse((at, slot))) = queue.timers.peek().copied() {
                if at > now {
                    break;
                }
                queue.timers.pop();
                let cell = self.cells.lock().get(&slot).cloned();
                if let Some(cell) = cell
                    && cell.state.compare_exchange(IDLE, QUEUED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
                {
                    queue.ready.push_back(cell);
                }
            }
            if let Some(cell) = queue.ready.pop_front() {
                return Some(cell);
            }
            match queue.timers.peek() {
                Some(Reverse((at, _))) => {
                    let wait = at.saturating_sub(now);
                    self.condvar.wait_for(&mut queue, wait);
                }
                None => self.condvar.wait(&mut queue),
            }
        }
    }

    fn run(&self) {
        while let Some(cell) = self.next() {
            if cell.state.compare_exchange(QUEUED, RUNNING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            let mut guard = cell.runnable.lock();
            let step = match guard.as_mut() {
                None => Step::Wait,
                Some(r) => match catch_unwind(AssertUnwindSafe(|| r.step())) {
                    Ok(step) => step,
                    Err(panic) => {
                        let message = panic_message(panic.as_ref());
                        // Whatever the report does must not take the thread down either.
                        let _ = catch_unwind(AssertUnwindSafe(|| r.panicked(&message)));
                        Step::Done
                    }
                },
            };
            if step == Step::Done {
                let gone = guard.take();
                drop(guard);
                drop(gone);
                cell.state.store(DONE, Ordering::SeqCst);
                self.cells.lock().remove(&cell.slot);
                continue;
            }
            drop(guard);
            let idle = step != Step::Again
                && cell.state.compare_exchange(RUNNING, IDLE, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if idle {
                if let Step::WaitFor(d) = step {
                    let mut queue = self.queue.lock();
                    queue.timers.push(Reverse((self.clock.monotonic() + d, cell.slot)));
                    self.condvar.notify_one();
                }
            } else {
                // More to do, or woken while it ran. `remove` may have marked it done meanwhile.
                let s = cell.state.load(Ordering::SeqCst);
                if (s == RUNNING || s == NOTIFIED)
                    && cell.state.compare_exchange(s, QUEUED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
                {
                    self.queue.lock().ready.push_back(cell);
                    self.condvar.notify_one();
                } else if s != DONE {
                    cell.state.store(QUEUED, Ordering::SeqCst);
                    self.queue.lock().ready.push_back(cell);
                }
            }
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(s) = panic.downcast_ref::<&str>() {
        (*s).to_owned()
    } else if let Some(s) = panic.downcast_ref::<String>() {
        s.clone()
    } else {
        "panic".to_owned()
    }
}
