//! Operators: synchronous state machines over deltas. They hold no clock, no network, no
//! randomness, and no state of their own: whatever must outlive a barrier is in [`Tables`].
//! Fields may cache what the spec says and scratch space that is empty after `barrier`.
//!
//! Rules that every operator keeps:
//! - The sequence of rows that an epoch emits is a function of the spec, the tables at the
//!   epoch's start and the sequence of input rows; how input is cut into deltas does not
//!   change it. No hash-map iteration order reaches the output.
//! - A stateful operator emits at most one net change per output row and epoch (identical
//!   rows of an append-only output may come as several +1s).
//! - A retraction may come before its insertion within an epoch; at the barrier all is net.

pub mod aggregate;
pub mod asof;
pub mod close;
pub mod consolidate;
pub mod distinct;
mod encoded;
pub mod expand;
pub mod expr;
pub mod filter;
pub mod group_topn;
pub mod join;
pub mod lookup;
pub mod materialize;
pub mod net;
pub mod over;
pub mod project;
pub mod recursive;
pub mod repeat;
pub(crate) mod row_keys;
pub mod semi_join;
pub mod session;
pub mod sink;
pub mod temporal;
#[cfg(test)]
pub(crate) mod testing;
pub mod topn;
pub mod union;
pub mod unnest;
pub mod upsert;
pub mod values;

use std::sync::Arc;

use crate::state::view::ViewStore;
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result, Tick, Watermark};

/// What a barrier tells an operator.
#[derive(Debug, Clone)]
pub struct BarrierInfo<'a> {
    /// The tick that closed the epoch.
    pub tick: Tick,
    /// Least watermark of the inputs.
    pub watermark: Watermark,
    /// Watermark per input port.
    pub input_watermarks: &'a [Watermark],
    /// Per input port: whether all that was there when the job was created has come (of a bounded
    /// source, all there is). A port that is not told of is complete.
    pub complete: &'a [bool],
}

/// Where an operator puts what it emits.
#[derive(Debug, Default)]
pub struct Output {
    deltas: Vec<Delta>,
}

impl Output {
    /// Emits a delta (empty ones vanish).
    pub fn emit(&mut self, delta: Delta) {
        if !delta.is_empty() {
            self.deltas.push(delta);
        }
    }

    /// Takes what was emitted, in order.
    pub fn take(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    /// Whether nothing was emitted.
    pub fn is_empty(&self) -> bool {
        self.deltas.is_empty()
    }
}

/// A streaming operator.
pub trait Operator: Send {
    /// The tables it needs, in the order of their indices in [`Tables`].
    fn tables(&self) -> Vec<TableDef>;

    /// Takes one delta of input port `input`.
    fn push(&mut self, input: usize, delta: Delta, tables: &mut Tables, out: &mut Output) -> Result<()>;

    /// Rows of a delta that it takes at once. Fewer where each may meet all rows of a table, so that
    /// what one call emits stays bounded and a task can stop in between.
    fn max_input_rows(&self) -> usize {
        usize::MAX
    }

    /// Ends the epoch: emits what is still due. Called once per epoch, after all `push`es.
    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()>;

    /// Bytes of what it holds besides, until the epoch ends.
    fn held(&self) -> usize {
        0
    }

    /// The view, and the part of it, that it keeps: state outside of its tables, which has snapshots of its own.
    fn keeps(&self) -> Option<(&Arc<ViewStore>, usize)> {
        None
    }

    /// When, by the clock, rows that it keeps change its output though no input comes: the time
    /// from which an epoch that is opened would show it. Asked after the barrier.
    fn due(&self, _tables: &mut Tables) -> Option<i64> {
        None
    }

    /// The watermark of the output, given that of the inputs (the least one, unless said otherwise).
    fn watermark(&self, info: &BarrierInfo<'_>) -> Watermark {
        info.watermark
    }
}
