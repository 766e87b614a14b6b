//! Recent changes, and who waits for more. A watcher is a place in the one history, so what is
//! kept is bounded however many watch and however slow they are.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::{Stream, StreamExt};
use parking_lot::Mutex;

use super::{Change, MetaError, MetaResult, Revision, Watch};

/// The history of one store.
#[derive(Debug)]
pub(super) struct Hub(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    history: VecDeque<Change>,
    /// All changes after this revision are in the history.
    complete_after: Revision,
    latest: Revision,
    bytes: usize,
    bytes_max: usize,
    wakers: BTreeMap<u64, Waker>,
    next_watch: u64,
    closed: bool,
}

fn size(change: &Change) -> usize {
    128 + 2 * change.key.len() + change.entry.as_ref().map_or(0, |e| e.value.len())
}

impl Hub {
    /// A history of a store at `latest`, which keeps changes of about so many bytes.
    pub fn new(latest: Revision, bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            history: VecDeque::new(),
            complete_after: latest,
            latest,
            bytes: 0,
            bytes_max,
            wakers: BTreeMap::new(),
            next_watch: 0,
            closed: false,
        })))
    }

    /// Adds the changes of commits, in order.
    pub fn publish(&self, changes: Vec<Change>) {
        let wakers = {
            let mut inner = self.0.lock();
            for change in changes {
                inner.latest = change.revision;
                inner.bytes += size(&change);
                inner.history.push_back(change);
            }
            while inner.bytes > inner.bytes_max {
                let Some(old) = inner.history.pop_front() else { break };
                inner.bytes -= size(&old);
                // A commit is there as a whole or not at all.
                inner.complete_after = old.revision;
                while inner.history.front().is_some_and(|c| c.revision == old.revision) {
                    if let Some(c) = inner.history.pop_front() {
                        inner.bytes -= size(&c);
                    }
                }
            }
            std::mem::take(&mut inner.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// Changes of keys with this prefix after a revision.
    pub fn watch(&self, prefix: &str, after: Revision) -> MetaResult<Watch> {
        let mut inner = self.0.lock();
        if after < inner.complete_after {
            return Err(MetaError::Compacted { oldest: inner.complete_after });
        }
        inner.next_watch += 1;
        let id = inner.next_watch;
        Ok(Watcher { hub: self.0.clone(), id, prefix: prefix.to_owned(), after, within: 0, done: false }.boxed())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let wakers = {
            let mut inner = self.0.lock();
            inner.closed = true;
            std::mem::take(&mut inner.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }
}

/// A place in the history.
struct Watcher {
    hub: Arc<Mutex<Inner>>,
    id: u64,
    prefix: String,
    /// Revision up to which all has been given, and the number of changes given of the next.
    after: Revision,
    within: usize,
    done: bool,
}

impl Stream for Watcher {
    type Item = MetaResult<Change>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut inner = this.hub.lock();
        if this.done {
            return Poll::Ready(None);
        }
        if this.after < inner.complete_after {
            this.done = true;
            return Poll::Ready(Some(Err(MetaError::Compacted { oldest: inner.complete_after })));
        }
        let start = inner.history.partition_point(|c| c.revision <= this.after) + this.within;
        let found = inner.history.range(start..).position(|c| c.key.starts_with(&this.prefix));
        if let Some(change) = found.and_then(|n| inner.history.get(start + n)) {
            let first = inner.history.partition_point(|c| c.revision < change.revision);
            this.within = start + found.unwrap_or(0) + 1 - first;
            this.after = change.revision - 1;
            return Poll::Ready(Some(Ok(change.clone())));
        }
        // A reader may know of a commit whose changes are yet to come here.
        if this.after < inner.latest {
            this.after = inner.latest;
            this.within = 0;
        }
        if inner.closed {
            this.done = true;
            return Poll::Ready(None);
        }
        inner.wakers.insert(this.id, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.hub.lock().wakers.remove(&self.id);
    }
}
