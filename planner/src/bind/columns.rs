//! Expressions over the columns of one relation: generated columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::tree_node::TreeNode;
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{Expr, LogicalPlan};
use datafusion_physical_expr::create_physical_expr;
use datafusion_sql::sqlparser::ast;
use spate_engine::plan::{ExprRef, ObjectId};
use spate_engine::types::error::{Result, SpateError};

use super::{BindMode, Resolver, bind_query};
use crate::catalog::{Relation, RelationKind};
use crate::sql::{parse_query, quote, types};

/// The one relation that the expressions see.
struct One(Arc<Relation>);

impl Resolver for One {
    fn relation(&self, _: Option<&str>, name: &str) -> Result<Arc<Relation>> {
        if *name == *self.0.name {
            return Ok(Arc::clone(&self.0));
        }
        Err(not_by_row())
    }

    fn parse_view(&self, view: &Relation) -> Result<ast::Query> {
        Err(SpateError::internal(format!("\"{}\" is no view", view.name)))
    }
}

/// Binds expressions over rows of `schema`, which belong to the relation `name`; each is cast to
/// its type. They may hold neither subqueries nor aggregates; bound as continuous, nothing that
/// varies from call to call either.
pub fn bind_columns(
    name: &str,
    schema: &SchemaRef,
    exprs: &[(&ast::Expr, &DataType)],
    mode: &BindMode,
) -> Result<Vec<ExprRef>> {
    const NO_ID: ObjectId = 0;
    let relation = Relation {
        id: NO_ID,
        schema_name: "public".into(),
        name: name.into(),
        kind: RelationKind::Table,
        schema: Arc::clone(schema),
        key: None,
        append_only: false,
        watermark: None,
        bounded: true,
        query: None,
    };
    let items: Vec<String> = exprs
        .iter()
        .enumerate()
        .map(|(i, (_, to))| format!("CAST(NULL AS {}) AS __g{i}", types::display(to)))
        .collect();
    let mut query = parse_query(&format!("SELECT {} FROM {}", items.join(", "), quote(name)))?;
    if let ast::SetExpr::Select(select) = query.body.as_mut() {
        for (item, (e, _)) in select.projection.iter_mut().zip(exprs) {
            if let ast::SelectItem::ExprWithAlias { expr: ast::Expr::Cast { expr, .. }, .. } = item {
                **expr = (*e).clone();
            }
        }
    }
    let plan = bind_query(&One(Arc::new(relation)), &query, mode)?;
    let LogicalPlan::Projection(p) = plan else { return Err(not_by_row()) };
    let mut below = p.input.as_ref();
    while let LogicalPlan::SubqueryAlias(a) = below {
        below = a.input.as_ref();
    }
    if !matches!(below, LogicalPlan::TableScan(_)) {
        return Err(not_by_row());
    }
    p.expr
        .iter()
        .map(|e| {
            let subquery = e
                .exists(|e| {
                    Ok(matches!(
                        e,
                        Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)
                    ))
                })
                .map_err(super::bind_error)?;
            if subquery {
                return Err(not_by_row());
            }
            create_physical_expr(e, p.input.schema(), &ExecutionProps::new(), &PhysicalPlanningContext::default())
                .map_err(super::bind_error)
        })
        .collect()
}

fn not_by_row() -> SpateError {
    SpateError::unsupported("only the row's own columns can be used here")
        .with_hint("leave out subqueries, aggregates, window functions and unnest")
}
