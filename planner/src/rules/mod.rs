//! Rewrites of the bound plan: those that define results (`aggregate`, `canonical`, `guard`,
//! `lateral`, `limit`, `nested`, `numbers`, `set_ops`, `subquery`, `temporal`, `windows`; run while binding)
//! and the optimizer of continuous plans, which must not change any.

pub mod aggregate;
pub(crate) mod canonical;
pub(crate) mod constant_groups;
pub mod guard;
pub(crate) mod lateral;
pub(crate) mod limit;
pub(crate) mod nested;
pub(crate) mod numbers;
pub(crate) mod set_ops;
pub(crate) mod subquery;
pub(crate) mod temporal;
pub(crate) mod windows;

use std::sync::Arc;

use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::{Expr, LogicalPlan};
use datafusion_optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion_optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion_optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion_optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion_optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion_optimizer::eliminate_filter::EliminateFilter;
use datafusion_optimizer::eliminate_group_by_constant::EliminateGroupByConstant;
use datafusion_optimizer::eliminate_limit::EliminateLimit;
use datafusion_optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion_optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::optimize_unions::OptimizeUnions;
use datafusion_optimizer::propagate_empty_relation::PropagateEmptyRelation;
use datafusion_optimizer::push_down_filter::PushDownFilter;
use datafusion_optimizer::rewrite_set_comparison::RewriteSetComparison;
use datafusion_optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion_optimizer::simplify_expressions::SimplifyExpressions;
use datafusion_optimizer::{Optimizer, OptimizerContext, OptimizerRule};
use spate_engine::types::error::Result;

/// Rewrites the expressions of a node, whose columns keep their names.
pub(crate) fn map_named(
    node: LogicalPlan,
    mut rewrite: impl FnMut(Expr) -> datafusion_common::Result<Transformed<Expr>>,
) -> datafusion_common::Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&node);
    let mut one = |e: Expr| {
        let name = names.save(&e);
        let done = rewrite(e)?;
        Ok(if done.transformed { done.update_data(|e| name.restore(e)) } else { done })
    };
    node.map_expressions(|e| match e {
        // The columns are the expressions of the sets.
        Expr::GroupingSet(_) => e.map_children(&mut one),
        e => one(e),
    })
}

/// DataFusion's rules that hold for changing input too. Left out: those that move limits
/// (deltas make that wrong), that turn DISTINCT into other operators, and that trust
/// functional dependencies to drop joins.
fn stream_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(OptimizeUnions::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(DecorrelateLateralJoin::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(EliminateLimit::new()),
        Arc::new(PropagateEmptyRelation::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(EliminateGroupByConstant::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ]
}

/// Optimizes a plan bound with [`crate::bind::BindMode::Continuous`].
pub fn optimize_continuous(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut options = ConfigOptions::default();
    options.optimizer.skip_failed_rules = false;
    // Uncorrelated scalar subqueries become joins, which can be kept up to date.
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    // Without a start time no rule can fold the clock into the plan.
    let context = OptimizerContext::new_with_config_options(Arc::new(options)).without_query_execution_start_time();
    Optimizer::with_rules(stream_rules()).optimize(plan, &context, |_, _| {}).map_err(crate::bind::bind_error)
}
