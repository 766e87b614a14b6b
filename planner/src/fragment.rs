//! Cuts a stream plan at its exchanges into fragments.

use spate_engine::plan::fragment::{Fragment, FragmentGraph, FragmentOutput};
use spate_engine::plan::{Distribution, ExchangeSpec, OpSpec, StreamNode};

/// Cuts `root` into fragments of `parallelism` tasks each; those whose rows all lie in one
/// task get one.
pub fn cut(root: StreamNode, parallelism: usize) -> FragmentGraph {
    let mut graph = FragmentGraph { fragments: Vec::new() };
    fragment(root, parallelism, &mut graph);
    graph
}

/// Adds the fragment under `root`, and those that feed it, and gives its id. A fragment that is
/// there already is not added again: it has one more consumer.
fn fragment(root: StreamNode, parallelism: usize, graph: &mut FragmentGraph) -> usize {
    let mut feeds: Vec<(usize, ExchangeSpec)> = Vec::new();
    let root = detach(root, parallelism, graph, &mut feeds);
    let parallelism = if all_single(&root) { 1 } else { parallelism };
    let inputs: Vec<usize> = feeds.iter().map(|(producer, _)| *producer).collect();
    let same = |f: &&Fragment| {
        // How rows reach it is part of what it is: its leaves say it.
        f.inputs == inputs && f.parallelism == parallelism && f.root == root
    };
    if let Some(f) = graph.fragments.iter().find(same) {
        return f.id;
    }
    let id = graph.fragments.len();
    for (input, (producer, exchange)) in feeds.into_iter().enumerate() {
        if let Some(f) = graph.fragments.get_mut(producer) {
            f.to.push(FragmentOutput { exchange, consumer: id, input });
        }
    }
    graph.fragments.push(Fragment { id, root, parallelism, to: Vec::new(), inputs });
    id
}

/// `node` with its exchanges turned into leaves; what was below becomes fragments.
fn detach(
    node: StreamNode,
    parallelism: usize,
    graph: &mut FragmentGraph,
    feeds: &mut Vec<(usize, ExchangeSpec)>,
) -> StreamNode {
    let StreamNode { op, inputs, schema, props } = node;
    if let OpSpec::Exchange(spec) = op {
        for input in inputs {
            let producer = fragment(input, parallelism, graph);
            feeds.push((producer, spec.clone()));
        }
        return StreamNode { op: OpSpec::Exchange(spec), inputs: Vec::new(), schema, props };
    }
    let inputs = inputs.into_iter().map(|n| detach(n, parallelism, graph, feeds)).collect();
    StreamNode { op, inputs, schema, props }
}

fn all_single(node: &StreamNode) -> bool {
    node.props.distribution == Distribution::Single && node.inputs.iter().all(all_single)
}
