//! RETURNING: what a statement says of the rows that it adds, changes or takes away.

use arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::bind::{BindMode, bind_query};
use spate_planner::sql::{parse_query, quote};

use super::{Returning, TARGET, TARGET_NAME, Table};
use crate::session::Session;
use crate::session::resolver::Names;

impl Session {
    /// The values of a RETURNING list for these rows; `None` without one. The list sees the table
    /// as it was before the statement.
    pub(super) async fn returning(
        &self,
        table: &Table,
        returning: Returning<'_>,
        rows: &RecordBatch,
    ) -> Result<Option<Vec<RecordBatch>>> {
        let Returning { called, list } = returning;
        if list.is_empty() {
            return Ok(None);
        }
        let mut query = parse_query(&format!("SELECT 1 FROM {TARGET_NAME} AS {}", quote(called)))?;
        if let ast::SetExpr::Select(select) = query.body.as_mut() {
            select.projection = list.to_vec();
        }
        let target = table.relation()?.at(TARGET, rows.schema());
        {
            let names = Names::new(&self.engine, &self.variables.search_path).with(&target);
            let plan = bind_query(&names, &query, &BindMode::AdHoc).map_err(|e| match e.kind() {
                ErrorKind::NotFound if e.hint().is_none() => {
                    e.with_hint(format!("RETURNING can use the columns of \"{}\" only", table.name()))
                }
                _ => e,
            })?;
            if !by_row(&plan) {
                return Err(SpateError::unsupported(
                    "aggregates, window functions and unnest are not supported in RETURNING",
                ));
            }
        }
        let (schema, mut batches) = self.rows_with(&query, Some(table), Some((target, vec![rows.clone()]))).await?;
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(schema));
        }
        Ok(Some(batches))
    }
}

/// Whether a plan gives one row for each that it reads.
fn by_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(p) => by_row(&p.input),
        LogicalPlan::SubqueryAlias(a) => by_row(&a.input),
        LogicalPlan::TableScan(_) => true,
        _ => false,
    }
}
