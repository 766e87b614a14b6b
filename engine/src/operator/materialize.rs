//! Materialize: hands each epoch's changes to the view's store, whole. State is the store.

use std::sync::Arc;

use super::{BarrierInfo, Operator, Output};
use crate::state::view::ViewStore;
use crate::state::{TableDef, Tables};
use crate::types::{Barrier, Delta, Result};

/// Writes one partition of a view.
#[derive(Debug)]
pub struct Materialize {
    store: Arc<ViewStore>,
    partition: usize,
    /// The open epoch's changes, and their bytes.
    epoch: Vec<Delta>,
    bytes: usize,
}

impl Materialize {
    /// Writes partition `partition` of `store`.
    pub fn new(store: Arc<ViewStore>, partition: usize) -> Self {
        Self { store, partition, epoch: Vec::new(), bytes: 0 }
    }
}

impl Operator for Materialize {
    fn tables(&self) -> Vec<TableDef> {
        Vec::new()
    }

    fn keeps(&self) -> Option<(&Arc<ViewStore>, usize)> {
        Some((&self.store, self.partition))
    }

    fn held(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, _: usize, delta: Delta, _: &mut Tables, _: &mut Output) -> Result<()> {
        self.bytes += delta.shown_size();
        self.epoch.push(delta);
        Ok(())
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, _: &mut Tables, _: &mut Output) -> Result<()> {
        self.bytes = 0;
        let barrier = Barrier { tick: info.tick, ranges: Arc::new([]), watermark: info.watermark, complete: true };
        self.store.apply(self.partition, &barrier, std::mem::take(&mut self.epoch))
    }
}
