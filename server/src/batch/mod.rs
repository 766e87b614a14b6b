//! The batch side: runs bound logical plans with DataFusion, over snapshots of our stores and
//! over bounded connectors read once. Answers SELECT, feeds DML, and is the oracle of views.

mod nested;
pub mod provider;
pub mod stored;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::{SessionConfig, SessionContext, SessionState};
use datafusion::execution::memory_pool::{GreedyMemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use spate_engine::types::{Result, SpateError};
use spate_planner::bind::{bind_error, in_batch, rewrite_scans, rewrite_work_tables};
use spate_planner::catalog::Relation;
use tokio::runtime::Runtime;
use tokio::task::{AbortHandle, JoinHandle};

/// Runs plans.
pub struct Batch {
    context: SessionContext,
    threads: usize,
    pool: Arc<Mutex<Pool>>,
}

/// Threads of their own for plans: operators that compute for long without a pause must not hold up
/// the sessions (nor the handling of Ctrl-C).
struct Pool {
    /// `None` only while it is dropped.
    runtime: Option<Arc<Runtime>>,
    /// Plans that nobody wants any more. One that computes without a pause cannot be stopped and
    /// keeps its threads; then new plans get others.
    stopping: Vec<AbortHandle>,
}

/// How often a plan that should stop is looked at, and for how long.
const STOP_LOOKS: usize = 10;
const STOP_PAUSE: Duration = Duration::from_millis(10);

fn runtime(threads: usize) -> Result<Arc<Runtime>> {
    Ok(Arc::new(crate::threads::builder().worker_threads(threads).thread_name("spate-batch").build()?))
}

/// DataFusion 55.2 leaves out a sort where a condition makes the column constant, loses sight of the condition
/// on the way up through joins, and then refuses its own plan. Conditions that stay where they were
/// written are seen.
fn with_filters_left(state: SessionState) -> SessionState {
    let mut rules = state.optimizers().to_vec();
    rules.retain(|r| r.name() != "push_down_filter");
    SessionStateBuilder::new_from_existing(state).with_optimizer_rules(rules).build()
}

/// The last to let go of threads does not wait for what they do.
fn let_go(runtime: Option<Arc<Runtime>>) {
    if let Some(last) = runtime.and_then(Arc::into_inner) {
        last.shutdown_background();
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Batch")
    }
}

/// DISTINCT as a GROUP BY of all columns. DataFusion leaves a DISTINCT out where it takes rows for
/// unique, and takes the rows of a GROUP BY for that also after an unnest has repeated them.
fn distinct_as_groups(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect::<Vec<_>>();
            let groups =
                LogicalPlanBuilder::from(Arc::unwrap_or_clone(input)).aggregate(columns, Vec::<Expr>::new())?;
            Ok(Transformed::yes(groups.build()?))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(done.map_err(bind_error)?.data)
}

impl Batch {
    /// A batch engine that uses up to `threads` threads per query, and `memory` bytes for all.
    ///
    /// # Errors
    /// When its threads cannot be started.
    pub fn new(threads: usize, memory: usize) -> Result<Self> {
        let mut config = SessionConfig::new().with_target_partitions(threads.max(1)).with_information_schema(false);
        config.options_mut().sql_parser.map_string_types_to_utf8view = false;
        config.options_mut().optimizer.enable_physical_uncorrelated_scalar_subquery = false;
        // Filters on the range of a join's keys fail on nested ones, and our scans make no use of them.
        config.options_mut().optimizer.enable_join_dynamic_filter_pushdown = false;
        // DataFusion itself loses track of which columns of nested UNIONs may be NULL, and then refuses.
        config.options_mut().execution.skip_physical_aggregate_schema_check = true;
        // Names those who hold most when it is used up.
        let limit = TrackConsumersPool::new(GreedyMemoryPool::new(memory), NonZeroUsize::MIN.saturating_add(2));
        let env = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(limit)).build_arc().map_err(bind_error)?;
        let threads = threads.max(1);
        let pool = Pool { runtime: Some(runtime(threads)?), stopping: Vec::new() };
        Ok(Self { context: SessionContext::new_with_config_rt(config, env), threads, pool: Arc::new(Mutex::new(pool)) })
    }

    /// Gives new plans other threads if those there are held by plans that do not stop.
    async fn free_threads(&self) -> Result<()> {
        let held = || {
            let mut pool = self.pool.lock();
            pool.stopping.retain(|task| !task.is_finished());
            !pool.stopping.is_empty()
        };
        for _ in 0..STOP_LOOKS {
            if !held() {
                return Ok(());
            }
            tokio::time::sleep(STOP_PAUSE).await;
        }
        if held() {
            let new = runtime(self.threads)?;
            let mut pool = self.pool.lock();
            pool.stopping.clear();
            let_go(pool.runtime.replace(new));
        }
        Ok(())
    }

    /// A physical plan for a bound plan whose scans are served by `provide`.
    pub async fn plan(
        &self,
        plan: LogicalPlan,
        mut provide: impl FnMut(&Arc<Relation>) -> Result<Arc<dyn TableProvider>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.free_threads().await?;
        let plan = in_batch(rewrite_scans(plan, |r| Ok(provider_as_source(provide(r)?)))?)?;
        let plan = rewrite_work_tables(plan, |name, schema| {
            provider_as_source(Arc::new(CteWorkTable::new(name, schema.clone())))
        })?;
        let plan = nested::sort_by_bytes(distinct_as_groups(plan)?).map_err(bind_error)?;
        let planned = async |state: &SessionState| {
            let optimized = state.optimize(&plan)?;
            state.query_planner().create_physical_plan(&optimized, state).await
        };
        let state = self.context.state();
        match planned(&state).await {
            Err(e) if e.to_string().contains("does not satisfy order requirements") => {
                planned(&with_filters_left(state)).await.map_err(bind_error)
            }
            done => done.map_err(bind_error),
        }
    }

    /// Runs a physical plan, on the batch side's own threads. Whoever drops the stream does not wait:
    /// the plan ends with its next batch.
    pub fn stream(&self, plan: Arc<dyn ExecutionPlan>) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let runtime = self.pool.lock().runtime.clone();
        let runtime = runtime.ok_or_else(|| SpateError::internal("the batch side has stopped"))?;
        let (sender, mut receiver) = tokio::sync::mpsc::channel(2);
        let context = self.context.task_ctx();
        let task = runtime.spawn(async move {
            let mut stream = match execute_stream(plan, context) {
                Ok(stream) => stream,
                Err(e) => {
                    // Nobody may be listening any more.
                    let _ = sender.send(Err(bind_error(e))).await;
                    return;
                }
            };
            while let Some(batch) = stream.next().await {
                if sender.send(batch.map_err(bind_error)).await.is_err() {
                    break;
                }
            }
        });
        let guard = AbortOnDrop { task, runtime: Some(runtime), pool: self.pool.clone() };
        let batches = futures::stream::poll_fn(move |context| {
            let _ = &guard;
            receiver.poll_recv(context)
        });
        Ok(batches.boxed())
    }

    /// Runs a physical plan to its end.
    pub async fn collect(&self, plan: Arc<dyn ExecutionPlan>) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let schema = plan.schema();
        let mut stream = self.stream(plan)?;
        let mut out = Vec::new();
        while let Some(b) = stream.next().await {
            let b = b?;
            if b.num_rows() > 0 {
                out.push(b);
            }
        }
        Ok((schema, out))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let_go(self.pool.lock().runtime.take());
    }
}

/// Ends a task when nobody wants its result any more.
struct AbortOnDrop {
    task: JoinHandle<()>,
    runtime: Option<Arc<Runtime>>,
    pool: Arc<Mutex<Pool>>,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.task.abort();
        if !self.task.is_finished() {
            self.pool.lock().stopping.push(self.task.abort_handle());
        }
        let_go(self.runtime.take());
    }
}
