//! Ctrl-C: the first cancels the running statement, a second one within [`PATIENCE`] ends the
//! process. It works on a task of its own, so that a statement that never yields is no excuse.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spate_engine::types::Result;
use spate_server::session::CancelHandle;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A second Ctrl-C within this time does not wait any longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches for Ctrl-C.
#[derive(Clone)]
pub struct Interrupts {
    state: Arc<Mutex<State>>,
    cancelled: watch::Sender<bool>,
}

struct State {
    /// The running statement.
    running: Option<CancelHandle>,
    last: Option<Instant>,
    /// At the prompt, Ctrl-C between statements only drops what was typed.
    interactive: bool,
    at_prompt: bool,
}

impl Interrupts {
    /// Starts to watch.
    pub fn watch(runtime: &Runtime, interactive: bool) -> Result<Self> {
        let _context = runtime.enter();
        let mut signals = signal(SignalKind::interrupt())?;
        let interrupts = Self {
            state: Arc::new(Mutex::new(State { running: None, last: None, interactive, at_prompt: false })),
            cancelled: watch::Sender::new(false),
        };
        let watcher = interrupts.clone();
        runtime.spawn(async move {
            while signals.recv().await.is_some() {
                watcher.hit();
            }
        });
        Ok(interrupts)
    }

    fn hit(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let impatient = state.last.replace(now).is_some_and(|last| now.duration_since(last) < PATIENCE);
        match &state.running {
            Some(_) if impatient => exit(),
            Some(statement) => {
                // First the flag: whoever sees the statement fail asks why.
                self.cancelled.send_replace(true);
                statement.cancel();
            }
            None if !state.interactive => exit(),
            // A terminal without line editing sends the signal instead of the key.
            None => {
                state.last = None;
                state.at_prompt = true;
            }
        }
    }

    /// Whether Ctrl-C was hit at the prompt since the last call.
    pub fn take_at_prompt(&self) -> bool {
        std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).at_prompt)
    }

    /// From now until the guard is dropped, Ctrl-C cancels this statement.
    pub fn during(&self, statement: CancelHandle) -> Running {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running = Some(statement);
        state.last = None;
        self.cancelled.send_replace(false);
        Running { interrupts: self.clone(), cancelled: self.cancelled.subscribe() }
    }
}

fn exit() -> ! {
    let _ = std::io::stderr().write_all(b"\n");
    std::process::exit(i32::from(crate::INTERRUPTED));
}

/// A statement that Ctrl-C cancels.
pub struct Running {
    interrupts: Interrupts,
    cancelled: watch::Receiver<bool>,
}

impl Running {
    /// Whether Ctrl-C was hit.
    pub fn cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Resolves some time after Ctrl-C, when the statement's rows had their chance to end.
    pub async fn overdue(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(PATIENCE / 2).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.interrupts.state.lock().unwrap_or_else(PoisonError::into_inner).running = None;
    }
}
