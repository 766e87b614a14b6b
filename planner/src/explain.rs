//! EXPLAIN's texts. All are stable: the same statement and catalog give the same text.

use datafusion_expr::LogicalPlan;
use spate_engine::plan::StreamNode;
use spate_engine::plan::fragment::FragmentGraph;

/// A logical plan, one line per node, indented below what reads it.
pub fn logical(plan: &LogicalPlan) -> String {
    format!("{}\n", plan.display_indent())
}

/// A stream plan: operators, details, and what is known of their rows.
pub fn stream(plan: &StreamNode) -> String {
    plan.explain()
}

/// Fragments, producers first.
pub fn fragments(graph: &FragmentGraph) -> String {
    graph.explain()
}
