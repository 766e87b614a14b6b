//! From a stream plan, cut into fragments, to the dataflow that the fault model is told of.
//!
//! What only running could tell (how many rows a condition keeps, how many groups there are) is a prior
//! here; a cluster file overrides it fragment by fragment, by the names that are given here.

use std::sync::Arc;

use spate_engine::plan::fragment::FragmentGraph;
use spate_engine::plan::{Distribution, OpSpec, StreamNode};

use crate::fault::flow::{Flow, Fragment, Outlet, Route, Stream};
use crate::fault::graph::{Delivery, Merge};
use crate::share::is_work;

/// Rows that a condition keeps of those it sees.
const KEPT_BY_CONDITION: f64 = 0.3;
/// Changes of groups per row of a GROUP BY: rows of one epoch share groups.
const CHANGES_PER_GROUPED_ROW: f64 = 0.5;
/// Rows that a ranking lets through.
const KEPT_BY_RANK: f64 = 0.1;

/// The dataflow of one query whose result is called `name`.
pub fn flow(graph: &FragmentGraph, name: &str) -> Flow {
    let fragments = graph
        .fragments
        .iter()
        .map(|f| {
            let mut seen = Seen { selectivity: 1.0, ..Seen::default() };
            seen.look(&f.root);
            Fragment {
                reads_rows_per_s: (seen.leaf.is_none() && seen.constants).then_some(0.0),
                name: format!("{}-{}", seen.title.or(seen.leaf).or(seen.end).unwrap_or_else(|| "pass".into()), f.id),
                job: 0,
                parallelism: f.parallelism,
                stateful: seen.stateful,
                selectivity: seen.selectivity,
                merge: if seen.joins { Merge::Join } else { Merge::Union },
            }
        })
        .collect();
    let mut flow = Flow { fragments, ..Flow::default() };
    for f in &graph.fragments {
        for out in &f.to {
            // From each task to each, but for what stays where it is.
            let all = matches!(out.exchange.to, Distribution::Hash(_) | Distribution::Broadcast | Distribution::Single);
            flow.streams.push(Stream {
                from: f.id,
                to: out.consumer,
                input: u8::try_from(out.input).unwrap_or(u8::MAX),
                route: if all { Route::Shuffle } else { Route::Forward },
                logged: false,
            });
        }
        if f.to.is_empty() {
            flow.outlets.push(Outlet {
                name: name.to_owned(),
                fragment: f.id,
                delivery: Delivery::ExactlyOnce,
                deadline_s: None,
                weight: None,
            });
        }
    }
    flow
}

/// What the operators of a fragment come to.
#[derive(Default)]
struct Seen {
    selectivity: f64,
    stateful: bool,
    joins: bool,
    /// It has rows that are written in the query.
    constants: bool,
    /// The operator that tells most about the fragment, what it reads, and where it ends.
    title: Option<Arc<str>>,
    leaf: Option<Arc<str>>,
    end: Option<Arc<str>>,
}

impl Seen {
    fn look(&mut self, node: &StreamNode) {
        // What neither reads nor writes the outside and is work keeps state.
        let stateful =
            is_work(&node.op) && !matches!(node.op, OpSpec::Source(_) | OpSpec::Sink(_) | OpSpec::StepInput(_));
        let selectivity = match &node.op {
            OpSpec::Filter(_) => KEPT_BY_CONDITION,
            OpSpec::Aggregate(_) => CHANGES_PER_GROUPED_ROW,
            OpSpec::TopN(_) | OpSpec::GroupTopN(_) => KEPT_BY_RANK,
            _ => 1.0,
        };
        match &node.op {
            OpSpec::Source(s) => {
                self.leaf.get_or_insert(format!("source-{}", s.name).into());
            }
            OpSpec::Values(_) => self.constants = true,
            OpSpec::Scan(s) => {
                self.leaf.get_or_insert(format!("scan-{}", s.name).into());
            }
            OpSpec::Materialize(_) | OpSpec::Sink(_) => {
                self.end.get_or_insert(node.op.name().to_lowercase().into());
            }
            op if stateful => {
                self.title.get_or_insert(op.name().to_lowercase().into());
            }
            _ => {}
        }
        self.stateful |= stateful;
        self.selectivity *= selectivity;
        self.joins |= matches!(node.op, OpSpec::Join(_) | OpSpec::AsOf(_) | OpSpec::Lookup(_));
        node.inputs.iter().for_each(|i| self.look(i));
    }
}
