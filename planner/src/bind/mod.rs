//! From a parsed query to DataFusion's logical plan: names resolved, views expanded,
//! types coerced; for a continuous query also guarded (a failing expression gives NULL
//! and is counted) and made deterministic (ties of LIMIT broken by the whole row).
//!
//! The bound plan is the definition of the query: the stream plan is lowered from it, and
//! the batch oracle runs it. So whatever changes results happens here, not later.

pub(crate) mod any;
pub(crate) mod bigint;
mod check;
mod clock;
mod columns;
mod context;
mod datetime;
mod errors;
mod families;
pub mod functions;
mod grouping;
mod intervals;
mod joins;
pub(crate) mod json;
pub(crate) mod lookup;
mod math;
mod minmax;
mod names;
pub(crate) mod now;
mod patterns;
mod qualifiers;
mod rewrite;
mod rows;
mod series;
pub(crate) mod session;
mod sql_functions;
pub(crate) mod textual;
mod types;
mod using;
mod windows;
mod wording;
mod work_table;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion_common::Column;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableSource, cast};
use datafusion_optimizer::Analyzer;
use datafusion_sql::planner::{ParserOptions, SqlToRel};
use datafusion_sql::sqlparser::ast;
use spate_engine::plan::ObjectId;
use spate_engine::types::error::{Result, SpateError};

use crate::catalog::{Relation, SqlFunction};
use crate::rules::guard::ErrorCounter;

pub(crate) use clock::READABLE;
pub use clock::readable;
pub use columns::bind_columns;
pub use errors::bind_error;
pub(crate) use families::unmatched;
pub use names::without_marks;
pub use now::with_now;
pub(crate) use rows::ROWS;
pub use session::in_batch;
pub use sql_functions::{check_function, is_builtin, is_random};
pub(crate) use textual::typed_comparison;
pub use work_table::{WorkTable, rewrite_work_tables};

/// Views may stand on views this deep.
const MAX_VIEW_DEPTH: usize = 32;

/// Finds what a query names.
pub trait Resolver {
    /// The relation called `name`, in `schema` or along the search path. The error for a
    /// name that does not exist comes from here, with suggestions.
    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Arc<Relation>>;

    /// The SQL function called `name`, if there is one.
    fn function(&self, _schema: Option<&str>, _name: &str) -> Result<Option<Arc<SqlFunction>>> {
        Ok(None)
    }

    /// The query of a view.
    fn parse_view(&self, view: &Relation) -> Result<ast::Query>;
}

/// What a query is bound for.
#[derive(Clone)]
pub enum BindMode {
    /// A SELECT answered once: expression errors are errors.
    AdHoc,
    /// A query kept up to date (or its batch oracle): expression errors give NULL and are
    /// told to the counter; constructs without an incremental form are refused.
    Continuous {
        /// Where expression errors are counted.
        errors: ErrorCounter,
    },
}

impl BindMode {
    /// Whether the query is to be kept up to date.
    pub fn is_continuous(&self) -> bool {
        matches!(self, Self::Continuous { .. })
    }
}

/// A relation as DataFusion's planner sees it. It takes no filters, so that they stay in
/// the plan as filters.
#[derive(Clone)]
pub struct RelationSource {
    relation: Arc<Relation>,
}

impl RelationSource {
    /// A source over `relation`.
    pub fn new(relation: Arc<Relation>) -> Self {
        Self { relation }
    }

    /// The relation.
    pub fn relation(&self) -> &Arc<Relation> {
        &self.relation
    }

    /// The relation behind a table source, when it is one of ours.
    pub fn of(source: &dyn TableSource) -> Option<&Arc<Relation>> {
        let any: &dyn Any = source;
        any.downcast_ref::<Self>().map(|s| &s.relation)
    }
}

impl fmt::Debug for RelationSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelationSource({})", self.relation.display_name())
    }
}

impl TableSource for RelationSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.relation.schema)
    }
}

/// Binds a query. The plan is analyzed (types coerced) but not optimized. Where two columns of a
/// SELECT answered once have one name, the plan tells them apart: see [`without_marks`].
pub fn bind_query(resolver: &dyn Resolver, query: &ast::Query, mode: &BindMode) -> Result<LogicalPlan> {
    let continuous = mode.is_continuous();
    let plan = match plan_query(resolver, query, continuous, &[]) {
        Err(e) if !continuous && errors::is_repeated_name(&e) => match names::tell_apart(query) {
            Some(query) => plan_query(resolver, &query, continuous, &[]),
            None => Err(e),
        },
        planned => planned,
    };
    let plan = plan.map_err(bind_error)?;
    let plan = grouping::without_repetition(plan).map_err(bind_error)?;
    let plan = crate::rules::subquery::rows::compared(plan).map_err(bind_error)?;
    families::check(&plan)?;
    let plan = crate::rules::subquery::single::make_single(plan, mode).map_err(bind_error)?;
    let plan = crate::rules::numbers::decimals_meet_floats(plan).map_err(bind_error)?;
    let plan = textual::typed_literals(plan).map_err(bind_error)?;
    let plan = Analyzer::new().execute_and_check(plan, &ConfigOptions::default(), |_, _| {}).map_err(bind_error)?;
    let plan = clock::read_as_postgresql(plan).map_err(bind_error)?;
    check::plan(&plan)?;
    let plan = textual::casts(plan).map_err(bind_error)?;
    let plan = crate::rules::nested::compared(plan).map_err(bind_error)?;
    let plan = crate::rules::subquery::to_joins(plan).map_err(bind_error)?;
    let plan = in_microseconds(plan).map_err(bind_error)?;
    let plan = crate::rules::lateral::inline(plan).map_err(bind_error)?;
    let plan = crate::rules::windows::distinct_on(plan).map_err(bind_error)?;
    match mode {
        BindMode::AdHoc => {
            let plan = crate::rules::constant_groups::hide(plan).map_err(bind_error)?;
            let plan = crate::rules::aggregate::canonical(plan, None).map_err(bind_error)?;
            let plan = crate::rules::windows::define(plan, None).map_err(bind_error)?;
            crate::rules::canonical::canonicalise(plan).map_err(bind_error)
        }
        BindMode::Continuous { errors } => {
            let plan = crate::rules::temporal::define(plan).map_err(bind_error)?;
            check::continuous_plan(&plan)?;
            let plan = crate::rules::constant_groups::hide(plan).map_err(bind_error)?;
            let plan = crate::rules::limit::order_limits(plan).map_err(bind_error)?;
            let plan = crate::rules::aggregate::canonical(plan, Some(errors)).map_err(bind_error)?;
            let plan = crate::rules::guard::guard(plan, errors).map_err(bind_error)?;
            let plan = crate::rules::windows::define(plan, Some(errors)).map_err(bind_error)?;
            crate::rules::canonical::canonicalise(plan).map_err(bind_error)
        }
    }
}

/// Types of a query's parameters (`$1` is 1), of those that follow from what they stand next to.
pub fn parameter_types(resolver: &dyn Resolver, query: &ast::Query) -> Result<BTreeMap<usize, DataType>> {
    let plan = plan_query(resolver, query, false, &[]).map_err(bind_error)?;
    let types = plan.get_parameter_types().map_err(bind_error)?;
    let number = |name: &str| name.strip_prefix('$').and_then(|n| n.parse().ok());
    Ok(types.into_iter().filter_map(|(name, t)| Some((number(&name)?, t?))).collect())
}

/// Puts another table source under each scan of one of our relations (the server gives
/// its batch table providers). Scans of anything else are left alone.
pub fn rewrite_scans(
    plan: LogicalPlan,
    mut source: impl FnMut(&Arc<Relation>) -> Result<Arc<dyn TableSource>>,
) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => match RelationSource::of(scan.source.as_ref()) {
            Some(relation) => {
                let new = source(relation)?;
                scan.source = new;
                Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
            }
            None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        },
        other => Ok(Transformed::no(other)),
    });
    Ok(rewritten.map_err(bind_error)?.data)
}

/// The relations that a plan reads, each once, in a stable order.
pub fn relations_of(plan: &LogicalPlan) -> Result<Vec<Arc<Relation>>> {
    let mut found: Vec<Arc<Relation>> = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(relation) = RelationSource::of(scan.source.as_ref())
            && !found.iter().any(|r| r.id == relation.id)
        {
            found.push(Arc::clone(relation));
        }
        Ok(datafusion_common::tree_node::TreeNodeRecursion::Continue)
    })
    .map_err(bind_error)?;
    Ok(found)
}

/// The plan with its timestamps in microseconds, whatever the functions that made them
/// count in.
fn in_microseconds(plan: LogicalPlan) -> datafusion_common::Result<LogicalPlan> {
    let mut changed = false;
    let mut columns = Vec::with_capacity(plan.schema().fields().len());
    for (qualifier, field) in plan.schema().iter() {
        let column = Expr::Column(Column::from((qualifier, field)));
        columns.push(match field.data_type() {
            DataType::Timestamp(unit, tz) if *unit != TimeUnit::Microsecond => {
                changed = true;
                let to = DataType::Timestamp(TimeUnit::Microsecond, tz.clone());
                cast(column, to).alias_qualified(qualifier.cloned(), field.name())
            }
            _ => column,
        });
    }
    if !changed {
        return Ok(plan);
    }
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

fn plan_query(
    resolver: &dyn Resolver,
    query: &ast::Query,
    continuous: bool,
    views: &[ObjectId],
) -> datafusion_common::Result<LogicalPlan> {
    if views.len() > MAX_VIEW_DEPTH {
        return Err(SpateError::unsupported(format!("views are nested more than {MAX_VIEW_DEPTH} deep")).into());
    }
    check::query(query, continuous)?;
    let mut query = query.clone();
    names::name_columns(&mut query);
    using::qualify(resolver, &mut query);
    joins::fold(&mut query);
    series::rewrite(&mut query);
    sql_functions::inline(resolver, &mut query)?;
    rewrite::rewrite(&mut query, continuous)?;
    qualifiers::mark(resolver, &mut query);
    grouping::spell_out(&mut query)?;
    let context = context::Context::new(resolver, continuous, views);
    let options = ParserOptions::new().with_map_string_types_to_utf8view(false).with_collect_spans(true);
    let statement = ast::Statement::Query(Box::new(query));
    let plan = SqlToRel::new_with_options(&context, options).sql_statement_to_plan(statement)?;
    crate::rules::set_ops::as_bags(plan)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
