//! From an optimized logical plan to a stream plan: one file per operator, named as in
//! `engine::plan`. Chooses operators, puts exchanges where an operator needs its rows
//! together, and derives what is known of every output (`Properties`).

mod aggregate;
mod close;
mod distinct;
mod expand;
pub(crate) mod expr;
mod filter;
mod group_topn;
mod interval;
mod join;
mod lookup;
mod motion;
mod order;
mod over;
pub(crate) mod project;
mod recursive;
mod scan;
mod session;
mod temporal;
mod topn;
mod union;
mod unnest;
mod values;

use std::rc::Rc;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use spate_engine::plan::{
    Distribution, ExchangeSpec, MaterializeSpec, ObjectId, OpSpec, Properties, SinkSpec, StreamNode, WatermarkKind,
};
use spate_engine::types::error::{Result, SpateError};

pub use self::order::note_order;
use crate::bind::lookup::{LookupJoin, LookupKind};
use crate::bind::session::SessionWindow;

/// Where the rows of a continuous query go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Kept readable as a view or table; as spread as the query computes them.
    Materialize {
        /// The catalog object.
        id: ObjectId,
        /// Its qualified name.
        name: Arc<str>,
    },
    /// Written to a connector, by one task.
    Sink {
        /// The catalog object.
        id: ObjectId,
        /// Its qualified name.
        name: Arc<str>,
    },
    /// Handed to a session: the plan's root is the query itself, in one task.
    Subscribe,
}

/// How to lower.
#[derive(Debug, Clone)]
pub struct LowerOptions {
    /// Tasks per fragment; 1 needs no exchanges.
    pub parallelism: usize,
    /// `EMIT ON WINDOW CLOSE`.
    pub emit_on_window_close: bool,
    /// Where the rows go.
    pub target: Target,
}

/// Lowers a plan that was bound for a continuous query and optimized with
/// [`crate::rules::optimize_continuous`].
pub fn lower(plan: &LogicalPlan, options: &LowerOptions) -> Result<StreamNode> {
    if options.parallelism == 0 {
        return Err(SpateError::invalid("parallelism must be at least 1"));
    }
    let plan = fill_empty(plan.clone())?;
    let lowerer = Lowerer { parallelism: options.parallelism, on_close: options.emit_on_window_close, step: None };
    let top = lowerer.node(&plan, options.emit_on_window_close)?.node;
    let mut root = match &options.target {
        Target::Materialize { id, name } => {
            over(OpSpec::Materialize(MaterializeSpec { id: *id, name: Arc::clone(name) }), top)
        }
        Target::Sink { id, name } => {
            let top = lowerer.require(top, Distribution::Single);
            over(OpSpec::Sink(SinkSpec { id: *id, name: Arc::clone(name) }), top)
        }
        Target::Subscribe => lowerer.require(top, Distribution::Single),
    };
    note_order(&mut root);
    crate::share::share(root)
}

/// A lowered plan, with what only lowering needs to know of its columns.
pub(crate) struct Lowered {
    pub(crate) node: StreamNode,
    /// List columns that hold bounds of the windows around a watermarked time, with what an
    /// element of them is.
    pub(crate) window_lists: Vec<(usize, WatermarkKind)>,
}

impl From<StreamNode> for Lowered {
    fn from(node: StreamNode) -> Self {
        Self { node, window_lists: Vec::new() }
    }
}

pub(crate) struct Lowerer {
    parallelism: usize,
    /// `EMIT ON WINDOW CLOSE` of the whole query.
    on_close: bool,
    /// Within the recursive term of WITH RECURSIVE.
    step: Option<Rc<recursive::StepScope>>,
}

impl Lowerer {
    /// Lowers a node. `on_close` asks for results only when windows close; it goes down to the topmost
    /// stateful operator, which must know when its windows do, and from there to those that it reads.
    pub(crate) fn node(&self, plan: &LogicalPlan, on_close: bool) -> Result<Lowered> {
        if let Some(scope) = &self.step
            && let Some(done) = self.step(scope, plan)?
        {
            return Ok(done);
        }
        match plan {
            LogicalPlan::Projection(p) => self.project(p, on_close),
            LogicalPlan::Filter(f) => self.filter(f, on_close),
            LogicalPlan::SubqueryAlias(a) => {
                let mut input = self.node(&a.input, on_close)?;
                input.node.schema = stream_schema(plan);
                Ok(input)
            }
            LogicalPlan::Aggregate(a) => self.aggregate(a, on_close),
            LogicalPlan::Extension(e) => {
                if let Some(s) = e.node.as_any().downcast_ref::<SessionWindow>() {
                    return self.session(s, stream_schema(plan), on_close);
                }
                match e.node.as_any().downcast_ref::<LookupJoin>() {
                    Some(l) if on_close && l.kind == LookupKind::Current => Err(close::refuse(&construct(plan))),
                    Some(l) => self.lookup(l, stream_schema(plan), on_close),
                    None => Err(SpateError::internal(format!("an unknown plan node: {}", e.node.name()))),
                }
            }
            LogicalPlan::Join(j) => match self.timed_join(j, on_close)? {
                Some(timed) => Ok(timed),
                None => self.join(j, on_close),
            },
            LogicalPlan::Window(w) => self.over(w, on_close),
            LogicalPlan::Union(u) => self.union(u, on_close),
            LogicalPlan::Distinct(d) => self.distinct(d, on_close),
            _ if on_close => Err(close::refuse(&construct(plan))),
            LogicalPlan::TableScan(t) => self.scan(t),
            LogicalPlan::Limit(l) => self.topn(l),
            // Rows have no order in a stream, unless a LIMIT reads it.
            LogicalPlan::Sort(s) => self.node(&s.input, on_close),
            LogicalPlan::RecursiveQuery(r) => self.recursive(r),
            LogicalPlan::Unnest(u) => self.unnest(u),
            LogicalPlan::Values(v) => self.values(v),
            LogicalPlan::EmptyRelation(e) => self.empty(e),
            other => {
                Err(SpateError::unsupported(format!("{} is not supported in a continuous query yet", construct(other))))
            }
        }
    }

    /// How rows lie that may lie anyhow.
    pub(crate) fn anyhow(&self) -> Distribution {
        if self.parallelism == 1 { Distribution::Single } else { Distribution::Any }
    }

    /// Puts an exchange over `node` unless its rows lie as needed. One task has all rows
    /// of any key, so `Single` serves a need for `Hash`.
    pub(crate) fn require(&self, node: StreamNode, needed: Distribution) -> StreamNode {
        let has = &node.props.distribution;
        if *has == needed || *has == Distribution::Single {
            return node;
        }
        exchange(node, needed)
    }
}

/// An exchange over `node`.
pub fn exchange(node: StreamNode, to: Distribution) -> StreamNode {
    let scattered = motion::scattered(&node.props, &to);
    let props = Properties { distribution: to.clone(), scattered, ..node.props.clone() };
    StreamNode {
        op: OpSpec::Exchange(ExchangeSpec { to }),
        schema: Arc::clone(&node.schema),
        props,
        inputs: vec![node],
    }
}

/// An operator that passes its input's schema and properties on.
fn over(op: OpSpec, input: StreamNode) -> StreamNode {
    StreamNode { op, schema: Arc::clone(&input.schema), props: input.props.clone(), inputs: vec![input] }
}

/// The schema of a plan's rows on a stream. Every column may be NULL there: a plan's NOT
/// NULL is DataFusion's inference, and nothing gains from enforcing it per batch.
pub(crate) fn stream_schema(plan: &LogicalPlan) -> SchemaRef {
    Arc::new(Schema::new(
        plan.schema().fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect::<Vec<Field>>(),
    ))
}

/// What a plan node is called in SQL.
pub(crate) fn construct(plan: &LogicalPlan) -> String {
    match plan {
        LogicalPlan::Window(_) => "a window function (OVER)".into(),
        LogicalPlan::RecursiveQuery(_) => "WITH RECURSIVE".into(),
        LogicalPlan::Subquery(_) => "a LATERAL subquery".into(),
        LogicalPlan::Join(_) => "a join".into(),
        LogicalPlan::Aggregate(_) => "GROUP BY or an aggregate".into(),
        LogicalPlan::Filter(_) => "WHERE or HAVING".into(),
        LogicalPlan::Projection(_) => "a SELECT list".into(),
        LogicalPlan::SubqueryAlias(_) => "a subquery in FROM".into(),
        LogicalPlan::TableScan(t) => format!("a scan of \"{}\"", t.table_name),
        LogicalPlan::Union(_) => "UNION".into(),
        LogicalPlan::Distinct(_) => "SELECT DISTINCT".into(),
        LogicalPlan::Limit(_) => "LIMIT".into(),
        LogicalPlan::Sort(_) => "ORDER BY".into(),
        LogicalPlan::Unnest(_) => "unnest".into(),
        LogicalPlan::Values(_) => "VALUES".into(),
        LogicalPlan::EmptyRelation(_) => "a query without FROM".into(),
        LogicalPlan::Extension(e) => match e.node.as_any().downcast_ref::<LookupJoin>().map(|l| l.kind) {
            Some(LookupKind::AsOf) => "ASOF JOIN".into(),
            Some(LookupKind::Current) => "FOR SYSTEM_TIME AS OF PROCTIME()".into(),
            None => e.node.name().to_owned(),
        },
        _ => "this kind of statement".into(),
    }
}

/// Gives every node at least one column: a batch without columns has no good form (DataFusion
/// reads none for `count(*)`).
fn fill_empty(plan: LogicalPlan) -> Result<LogicalPlan> {
    // Both sides of a join may need one.
    let made = std::cell::Cell::new(0usize);
    let one = || {
        made.set(made.get() + 1);
        lit(1i64).alias_qualified(Some(format!("__one{}", made.get())), "__one")
    };
    let filled = plan.transform_up(|node| {
        let bare = node.schema().fields().is_empty();
        let columns = node.schema().columns();
        let node = match node {
            LogicalPlan::TableScan(mut scan) if bare => {
                scan.projection = Some(vec![0]);
                let full = datafusion_common::DFSchema::try_from_qualified_schema(
                    scan.table_name.clone(),
                    &scan.source.schema().project(&[0])?,
                )?;
                scan.projected_schema = Arc::new(full);
                LogicalPlan::TableScan(scan)
            }
            LogicalPlan::Projection(p) if bare => {
                LogicalPlanBuilder::from(Arc::unwrap_or_clone(p.input)).project(vec![one()])?.build()?
            }
            LogicalPlan::EmptyRelation(e) if bare => {
                LogicalPlanBuilder::from(LogicalPlan::EmptyRelation(e)).project(vec![one()])?.build()?
            }
            LogicalPlan::Union(mut u) if bare => {
                for input in &mut u.inputs {
                    *input = Arc::new(
                        LogicalPlanBuilder::from(Arc::clone(input).as_ref().clone()).project(vec![one()])?.build()?,
                    );
                }
                LogicalPlan::Union(u).recompute_schema()?
            }
            LogicalPlan::Projection(p) if matches!(p.input.as_ref(), LogicalPlan::EmptyRelation(_)) => {
                LogicalPlan::Projection(p)
            }
            other => {
                let node = other.recompute_schema()?;
                if bare || node.schema().fields().len() == columns.len() {
                    return Ok(Transformed::yes(node));
                }
                // A join of something with nothing but the new column: that is not part of its rows.
                let kept = columns.into_iter().map(Expr::Column);
                LogicalPlanBuilder::from(node).project(kept)?.build()?
            }
        };
        Ok(Transformed::yes(node))
    });
    Ok(filled.map_err(crate::bind::bind_error)?.data)
}

/// `e` without its aliases.
pub(crate) fn unaliased(e: &Expr) -> &Expr {
    match e {
        Expr::Alias(a) => unaliased(&a.expr),
        other => other,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
