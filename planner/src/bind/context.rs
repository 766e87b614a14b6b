//! What DataFusion's SQL planner asks for while it binds: relations, functions, types.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, TableReference};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion_expr::{AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF};
use spate_engine::plan::ObjectId;
use spate_engine::types::error::{ErrorKind, SpateError};

use super::joins::SpecialJoins;
use super::types::SqlTypes;
use super::windows::WindowTables;
use super::{RelationSource, Resolver, WorkTable};
use crate::catalog::RelationKind;

/// Every function there is, by name and alias.
struct Functions {
    scalar: BTreeMap<String, Arc<ScalarUDF>>,
    higher_order: BTreeMap<String, Arc<HigherOrderUDF>>,
    aggregate: BTreeMap<String, Arc<AggregateUDF>>,
    window: BTreeMap<String, Arc<WindowUDF>>,
    planners: Vec<Arc<dyn ExprPlanner>>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
}

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let mut f = Functions {
        scalar: BTreeMap::new(),
        higher_order: BTreeMap::new(),
        aggregate: BTreeMap::new(),
        window: BTreeMap::new(),
        planners: vec![
            Arc::new(super::json::JsonOperators),
            Arc::new(super::textual::TypedLiterals),
            Arc::new(super::datetime::DateArithmetic),
            Arc::new(super::intervals::IntervalArithmetic),
            Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
            Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
            Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
            Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
            Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
            Arc::new(datafusion_functions_aggregate::planner::AggregateFunctionPlanner),
            Arc::new(datafusion_functions_window::planner::WindowFunctionPlanner),
        ],
        relation_planners: vec![Arc::new(SpecialJoins), Arc::new(WindowTables)],
    };
    let scalars = datafusion_functions::all_default_functions()
        .into_iter()
        .chain(datafusion_functions_nested::all_default_nested_functions())
        .chain(super::math::all().into_iter().map(Arc::new));
    for udf in scalars {
        for name in std::iter::once(udf.name()).chain(udf.aliases().iter().map(String::as_str)) {
            f.scalar.insert(name.to_string(), Arc::clone(&udf));
        }
    }
    for (name, udf) in super::datetime::functions().chain(super::json::functions()).chain(super::any::functions()) {
        f.scalar.insert(name.to_owned(), udf);
    }
    for udf in datafusion_functions_nested::all_default_higher_order_functions() {
        for name in std::iter::once(udf.name()).chain(udf.aliases().iter().map(String::as_str)) {
            f.higher_order.insert(name.to_string(), Arc::clone(&udf));
        }
    }
    let aggregates = datafusion_functions_aggregate::all_default_aggregate_functions();
    for udf in aggregates.into_iter().chain(super::minmax::all().map(Arc::new)) {
        for name in std::iter::once(udf.name()).chain(udf.aliases().iter().map(String::as_str)) {
            f.aggregate.insert(name.to_string(), Arc::clone(&udf));
        }
    }
    for udf in datafusion_functions_window::all_default_window_functions() {
        let udf = super::bigint::counting(udf);
        for name in std::iter::once(udf.name()).chain(udf.aliases().iter().map(String::as_str)) {
            f.window.insert(name.to_string(), Arc::clone(&udf));
        }
    }
    f
});

/// One query's (or one view's) view of the catalog.
pub(super) struct Context<'a> {
    resolver: &'a dyn Resolver,
    continuous: bool,
    views: &'a [ObjectId],
    options: ConfigOptions,
}

impl<'a> Context<'a> {
    /// `views` are the views around this query, outermost first.
    pub(super) fn new(resolver: &'a dyn Resolver, continuous: bool, views: &'a [ObjectId]) -> Self {
        let mut options = ConfigOptions::default();
        // Sorts in subqueries matter to a LIMIT around them; ours drop them later if not.
        options.sql_parser.enable_subquery_sort_elimination = false;
        Self { resolver, continuous, views, options }
    }
}

/// A view, as its plan.
struct ViewSource {
    schema: SchemaRef,
    plan: LogicalPlan,
}

impl TableSource for ViewSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn get_logical_plan(&'_ self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }
}

impl ContextProvider for Context<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        if let Some(catalog) = name.catalog() {
            return Err(SpateError::unsupported(format!(
                "cross-database references are not supported: \"{catalog}.{}\"",
                name.table()
            ))
            .into());
        }
        let relation = self.resolver.relation(name.schema(), name.table())?;
        if relation.kind != RelationKind::View {
            return Ok(Arc::new(RelationSource::new(relation)));
        }
        if self.views.contains(&relation.id) {
            return Err(
                SpateError::invalid(format!("view \"{}\" is defined by itself", relation.display_name())).into()
            );
        }
        let query = self.resolver.parse_view(&relation)?;
        let views: Vec<ObjectId> = self.views.iter().copied().chain([relation.id]).collect();
        let plan = super::plan_query(self.resolver, &query, self.continuous, &views).map_err(|e| {
            // Positions inside the view's text would mislead: leave them out.
            let e = super::bind_error(e).without_position();
            let full = format!("view \"{}\"", relation.display_name());
            if e.message().starts_with("view \"") { e } else { e.context(full) }
        })?;
        let schema = Arc::new(plan.schema().as_arrow().clone());
        Ok(Arc::new(ViewSource { schema, plan }))
    }

    fn get_table_function_source(&self, name: &str, _args: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let lower = name.to_ascii_lowercase();
        Err(SpateError::new(ErrorKind::NotFound, format!("table function \"{lower}\" does not exist")).into())
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(Arc::new(WorkTable::new(name, schema)))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &FUNCTIONS.planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &FUNCTIONS.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(SqlTypes))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if self.continuous && matches!(name, "now" | "current_timestamp") {
            return Some(super::now::now());
        }
        FUNCTIONS.scalar.get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        FUNCTIONS.higher_order.get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        FUNCTIONS.aggregate.get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        FUNCTIONS.window.get(name).cloned()
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        FUNCTIONS.scalar.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        FUNCTIONS.higher_order.keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        FUNCTIONS.aggregate.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        FUNCTIONS.window.keys().cloned().collect()
    }
}

/// Whether there is a function of this name.
pub(super) fn is_function(name: &str) -> bool {
    let f = &*FUNCTIONS;
    f.scalar.contains_key(name)
        || f.higher_order.contains_key(name)
        || f.aggregate.contains_key(name)
        || f.window.contains_key(name)
}

/// Names of all functions, sorted, for suggestions.
pub(super) fn function_names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = FUNCTIONS
        .scalar
        .keys()
        .chain(FUNCTIONS.higher_order.keys())
        .chain(FUNCTIONS.aggregate.keys())
        .chain(FUNCTIONS.window.keys())
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
