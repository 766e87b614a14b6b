//! When leases end.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LeaseId, MetaError, MetaResult};

/// Leases with their times, by a clock that never goes back.
#[derive(Debug, Default)]
pub(super) struct Leases {
    all: BTreeMap<LeaseId, Lease>,
}

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    until: Duration,
}

impl Leases {
    /// Starts a lease.
    pub fn start(&mut self, lease: LeaseId, ttl: Duration, now: Duration) {
        self.all.insert(lease, Lease { ttl, until: now.saturating_add(ttl) });
    }

    /// Starts its time again.
    pub fn keep_alive(&mut self, lease: LeaseId, now: Duration) -> MetaResult<()> {
        match self.all.get_mut(&lease) {
            // One whose time is over does not come back: others may act on its end already.
            Some(l) if l.until > now => {
                l.until = now.saturating_add(l.ttl);
                Ok(())
            }
            _ => Err(MetaError::LeaseLost),
        }
    }

    /// Whether it has not ended.
    pub fn is_alive(&self, lease: LeaseId, now: Duration) -> bool {
        self.all.get(&lease).is_some_and(|l| l.until > now)
    }

    /// Those whose time is over.
    pub fn due(&self, now: Duration) -> Vec<LeaseId> {
        self.all.iter().filter(|(_, l)| l.until <= now).map(|(id, _)| *id).collect()
    }

    /// Forgets one.
    pub fn end(&mut self, lease: LeaseId) {
        self.all.remove(&lease);
    }
}
