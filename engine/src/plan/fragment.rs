//! A stream plan cut at its exchanges: what runs fused in one set of parallel tasks.

use super::{ExchangeSpec, StreamNode};

/// All fragments of a job; producers stand before their consumers, the last one is the
/// plan's root.
#[derive(Debug, Clone)]
pub struct FragmentGraph {
    /// The fragments; a fragment's id is its index.
    pub fragments: Vec<Fragment>,
}

/// Operators between exchanges.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// Its index in the graph.
    pub id: usize,
    /// Its operators. Where rows come from another fragment stands an Exchange without
    /// inputs.
    pub root: StreamNode,
    /// Number of tasks that run it.
    pub parallelism: usize,
    /// Where its rows go, all of them to each; nowhere for the plan's root.
    pub to: Vec<FragmentOutput>,
    /// The producing fragments, in the order of the Exchange leaves of `root`, left to
    /// right.
    pub inputs: Vec<usize>,
}

/// Where a fragment's rows go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentOutput {
    /// How they are spread over the consumer's tasks.
    pub exchange: ExchangeSpec,
    /// The consuming fragment.
    pub consumer: usize,
    /// Index in the consumer's `inputs`.
    pub input: usize,
}
