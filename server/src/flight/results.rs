//! Rows that wait under a ticket, and those that are on their way: each can be cancelled. A ticket
//! is good for one fetch, and not for ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_flight::CancelStatus;
use parking_lot::Mutex;
use spate_engine::env::{Clock, random_id};
use spate_engine::types::{ErrorKind, Result, SpateError};
use tokio::sync::watch;

use super::Limits;
use super::expiring::Expiring;
use crate::RowStream;

/// All results.
pub struct Results {
    clock: Arc<dyn Clock>,
    limits: Limits,
    waiting: Mutex<Expiring<RowStream>>,
    running: Mutex<BTreeMap<String, watch::Sender<bool>>>,
}

/// A result that is on its way; when this is dropped it is no more.
pub struct Running {
    handle: String,
    results: Arc<Results>,
    cancelled: watch::Receiver<bool>,
}

impl Running {
    /// Comes back when the result was cancelled.
    pub async fn cancelled(&mut self) {
        if self.cancelled.wait_for(|c| *c).await.is_err() {
            // Nobody can cancel it any more.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.results.running.lock().remove(&self.handle);
    }
}

impl Results {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>, limits: Limits) -> Arc<Self> {
        let waiting = Mutex::new(Expiring::new(limits.waiting_results));
        Arc::new(Self { clock, limits, waiting, running: Mutex::default() })
    }

    /// Lets rows wait; gives their ticket.
    pub fn park(&self, rows: RowStream) -> Result<String> {
        let handle = random_id()?;
        let put = self.waiting.lock().insert(handle.clone(), self.clock.monotonic(), rows);
        put.map(|()| handle).map_err(|_| {
            SpateError::new(
                ErrorKind::Limit,
                format!("{} results wait to be fetched, which is the most", self.limits.waiting_results),
            )
            .with_hint("fetch or cancel some, then try again")
        })
    }

    /// The rows of a ticket, once.
    pub fn take(self: &Arc<Self>, handle: &str) -> Result<(RowStream, Running)> {
        let rows = self.waiting.lock().remove(handle);
        let rows = rows.ok_or_else(|| {
            let seconds = self.limits.result_timeout.as_secs();
            SpateError::new(ErrorKind::NotFound, "there is no result under this ticket")
                .with_hint(format!("a ticket is good for one fetch, within {seconds} s; run the statement again"))
        })?;
        let (sender, cancelled) = watch::channel(false);
        self.running.lock().insert(handle.to_owned(), sender);
        Ok((rows, Running { handle: handle.to_owned(), results: self.clone(), cancelled }))
    }

    /// Cancels a result, whether it waits or is on its way.
    pub fn cancel(&self, handle: &str) -> CancelStatus {
        // Rows are dropped after the lock is: that may take a moment.
        let waited = self.waiting.lock().remove(handle);
        let running = self.running.lock().get(handle).is_some_and(|s| s.send(true).is_ok());
        if waited.is_some() || running { CancelStatus::Cancelled } else { CancelStatus::NotCancellable }
    }

    /// Lets go of what nobody fetched in time.
    pub fn sweep(&self) {
        let Some(since) = self.clock.monotonic().checked_sub(self.limits.result_timeout) else { return };
        let gone = self.waiting.lock().expire(since, |_| true);
        drop(gone);
    }

    /// How many wait, and how many are on their way.
    pub fn counts(&self) -> (usize, usize) {
        (self.waiting.lock().len(), self.running.lock().len())
    }
}
