//! A meta store in memory, the same on every run: for simulations, which can make it fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::apply::{Tables, apply, check, end_lease};
use super::hub::Hub;
use super::lease::Leases;
use super::{Condition, Entry, LeaseId, Listing, MetaError, MetaResult, MetaStore, Op, Revision, Watch};
use spate_engine::env::Clock;

use crate::env::Sleep;

/// Bytes of changes that are kept for watchers.
const HISTORY: usize = 4 << 20;

/// What is being asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `get`, `range` or `watch`.
    Read,
    /// `commit`.
    Commit,
    /// `grant`, `keep_alive` or `revoke`.
    Lease,
}

/// What is to go wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It is not done.
    Fail,
    /// It is done, but the answer does not come.
    LoseAnswer,
    /// It is done after some time.
    Delay(Duration),
}

type Faults = Box<dyn FnMut(Call) -> Fault + Send>;

/// A meta store in memory.
pub struct Memory {
    state: Mutex<State>,
    hub: Hub,
    clock: Arc<dyn Clock>,
    faults: Option<(Mutex<Faults>, Arc<dyn Sleep>)>,
}

#[derive(Default)]
struct State {
    data: Data,
    revision: Revision,
    next_lease: u64,
    leases: Leases,
}

#[derive(Default)]
struct Data {
    entries: BTreeMap<String, Entry>,
    attached: BTreeSet<(LeaseId, String)>,
}

impl Memory {
    /// An empty store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), hub: Hub::new(0, HISTORY), clock, faults: None }
    }

    /// An empty store that asks `faults` before each call what is to go wrong with it.
    pub fn with_faults(
        clock: Arc<dyn Clock>,
        sleep: Arc<dyn Sleep>,
        faults: impl FnMut(Call) -> Fault + Send + 'static,
    ) -> Self {
        Self { faults: Some((Mutex::new(Box::new(faults)), sleep)), ..Self::new(clock) }
    }

    async fn call<T>(&self, call: Call, act: impl FnOnce(&Self) -> MetaResult<T>) -> MetaResult<T> {
        let fault = self.faults.as_ref().map_or(Fault::None, |f| f.0.lock()(call));
        match (fault, &self.faults) {
            (Fault::Fail, _) => return Err(MetaError::Unavailable("injected".into())),
            (Fault::Delay(time), Some((_, sleep))) => sleep.sleep(time).await,
            _ => {}
        }
        let done = act(self);
        match fault {
            Fault::LoseAnswer if call == Call::Read => Err(MetaError::Unavailable("injected".into())),
            Fault::LoseAnswer => Err(MetaError::Unknown("injected".into())),
            _ => done,
        }
    }

    /// The state, without leases that are over.
    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        for lease in state.leases.due(self.clock.monotonic()) {
            self.end(&mut state, lease);
        }
        state
    }

    fn end(&self, state: &mut State, lease: LeaseId) {
        state.leases.end(lease);
        // Tables in memory have no errors of their own.
        let changes = end_lease(&mut state.data, lease, state.revision + 1).unwrap_or_default();
        if !changes.is_empty() {
            state.revision += 1;
            self.hub.publish(changes);
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory(revision {})", self.state.lock().revision)
    }
}

impl Tables for Data {
    fn find(&self, key: &str) -> MetaResult<Option<(Revision, Option<LeaseId>)>> {
        Ok(self.entries.get(key).map(|e| (e.version, e.lease)))
    }

    fn write(&mut self, entry: &Entry) -> MetaResult<()> {
        self.entries.insert(entry.key.clone(), entry.clone());
        Ok(())
    }

    fn remove(&mut self, key: &str) -> MetaResult<()> {
        self.entries.remove(key);
        Ok(())
    }

    fn keys(&self, from: &str, to: &str) -> MetaResult<Vec<String>> {
        let range = self.entries.range(from.to_owned()..);
        Ok(range.map(|(k, _)| k).take_while(|k| to.is_empty() || k.as_str() < to).cloned().collect())
    }

    fn attach(&mut self, lease: LeaseId, key: &str) -> MetaResult<()> {
        self.attached.insert((lease, key.to_owned()));
        Ok(())
    }

    fn detach(&mut self, lease: LeaseId, key: &str) -> MetaResult<()> {
        self.attached.remove(&(lease, key.to_owned()));
        Ok(())
    }

    fn attached(&self, lease: LeaseId) -> MetaResult<Vec<String>> {
        let range = self.attached.range((lease, String::new())..);
        Ok(range.take_while(|a| a.0 == lease).map(|a| a.1.clone()).collect())
    }
}

#[async_trait]
impl MetaStore for Memory {
    async fn get(&self, key: &str) -> MetaResult<Option<Entry>> {
        self.call(Call::Read, |s| Ok(s.state().data.entries.get(key).cloned())).await
    }

    async fn range(&self, from: &str, to: &str) -> MetaResult<Listing> {
        self.call(Call::Read, |s| {
            let state = s.state();
            let keys = state.data.keys(from, to)?;
            let entries = keys.iter().filter_map(|k| state.data.entries.get(k).cloned()).collect();
            Ok(Listing { revision: state.revision, entries })
        })
        .await
    }

    async fn commit(&self, conditions: &[Condition], ops: &[Op]) -> MetaResult<Revision> {
        check(conditions, ops)?;
        self.call(Call::Commit, |s| {
            let mut state = s.state();
            let State { data, revision, leases, .. } = &mut *state;
            let now = s.clock.monotonic();
            let changes = apply(data, conditions, ops, *revision + 1, |l| leases.is_alive(l, now))?;
            if !changes.is_empty() {
                *revision += 1;
                s.hub.publish(changes);
            }
            Ok(*revision)
        })
        .await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> MetaResult<Watch> {
        self.call(Call::Read, |s| s.hub.watch(prefix, after)).await
    }

    async fn grant(&self, ttl: Duration) -> MetaResult<LeaseId> {
        self.call(Call::Lease, |s| {
            let mut state = s.state();
            state.next_lease += 1;
            let lease = LeaseId(state.next_lease);
            state.leases.start(lease, ttl, s.clock.monotonic());
            Ok(lease)
        })
        .await
    }

    async fn keep_alive(&self, lease: LeaseId) -> MetaResult<()> {
        self.call(Call::Lease, |s| s.state().leases.keep_alive(lease, s.clock.monotonic())).await
    }

    async fn revoke(&self, lease: LeaseId) -> MetaResult<()> {
        self.call(Call::Lease, |s| {
            s.end(&mut s.state(), lease);
            Ok(())
        })
        .await
    }

    async fn expire(&self) -> MetaResult<()> {
        drop(self.state());
        Ok(())
    }
}
