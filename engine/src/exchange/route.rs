//! Which consumer gets which rows.

use arrow::array::UInt32Array;

use super::channel::Sender;
use crate::plan::Distribution;
use crate::types::vnode::{hash_batch, task_of, vnode_of};
use crate::types::{Barrier, Delta, Result};

/// Spreads a task's output over the tasks of the consuming fragment.
#[derive(Debug)]
pub struct Router {
    to: Distribution,
    senders: Vec<Sender>,
    /// Row indices per consumer; kept to reuse the memory.
    parts: Vec<Vec<u32>>,
    /// The task whose output this is, among those of its fragment.
    index: usize,
}

impl Router {
    /// A router of task `index` to these consumers, in task order. Under `Distribution::Any` each
    /// task sends to its like.
    pub fn new(to: Distribution, senders: Vec<Sender>, index: usize) -> Self {
        let parts = vec![Vec::new(); senders.len()];
        Self { to, senders, parts, index }
    }

    /// Sends a delta on its way.
    pub fn send(&mut self, delta: Delta) -> Result<()> {
        let n = self.senders.len();
        match &self.to {
            _ if n == 1 => self.senders[0].send(delta),
            Distribution::Single => match self.senders.first_mut() {
                Some(s) => s.send(delta),
                None => Ok(()),
            },
            Distribution::Broadcast => {
                for s in &mut self.senders {
                    s.send(delta.clone())?;
                }
                Ok(())
            }
            Distribution::Any => self.senders[self.index % n].send(delta),
            Distribution::Hash(keys) => {
                let hashes = hash_batch(delta.rows(), keys)?;
                for (i, h) in hashes.iter().enumerate() {
                    self.parts[task_of(vnode_of(*h), n)].push(i as u32);
                }
                for (part, sender) in self.parts.iter_mut().zip(&mut self.senders) {
                    if part.len() == delta.num_rows() {
                        sender.send(delta.clone())?;
                    } else if !part.is_empty() {
                        sender.send(delta.take(&UInt32Array::from(part.clone()))?)?;
                    }
                    part.clear();
                }
                Ok(())
            }
        }
    }

    /// Number of consumers.
    pub fn len(&self) -> usize {
        self.senders.len()
    }

    /// Whether there is no consumer.
    pub fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Closes the epoch towards consumer `i`.
    pub fn close(&mut self, i: usize, barrier: &Barrier) -> Result<()> {
        match self.senders.get_mut(i) {
            Some(s) => s.close(barrier),
            None => Ok(()),
        }
    }
}
