//! SQL type names for DataFusion's planner: the same mapping as in DDL, so that a cast and a
//! column of one name have one type.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use datafusion_common::Result;
use datafusion_expr::planner::TypePlanner;
use datafusion_sql::sqlparser::ast;

/// Maps type names for DataFusion's planner.
#[derive(Debug)]
pub(super) struct SqlTypes;

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        let mapped = crate::sql::types::to_arrow(sql_type)?;
        Ok(Some(Arc::new(Field::new("", mapped, true))))
    }
}
