//! Primary keys, and foreign keys, of which there are none.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::CommandGetPrimaryKeys;
use spate_engine::types::Result;
use spate_planner::catalog::info::DATABASE;
use spate_planner::sql::Name;

use crate::Engine;

fn schema(fields: &[(&str, DataType, bool)]) -> SchemaRef {
    Arc::new(Schema::new(fields.iter().map(|(n, t, null)| Field::new(*n, t.clone(), *null)).collect::<Vec<_>>()))
}

/// Columns of `GetPrimaryKeys`.
pub fn primary_keys_schema() -> SchemaRef {
    schema(&[
        ("catalog_name", DataType::Utf8, true),
        ("db_schema_name", DataType::Utf8, true),
        ("table_name", DataType::Utf8, false),
        ("column_name", DataType::Utf8, false),
        ("key_name", DataType::Utf8, true),
        ("key_sequence", DataType::Int32, false),
    ])
}

/// Columns of `GetExportedKeys`, `GetImportedKeys` and `GetCrossReference`.
pub fn foreign_keys_schema() -> SchemaRef {
    schema(&[
        ("pk_catalog_name", DataType::Utf8, true),
        ("pk_db_schema_name", DataType::Utf8, true),
        ("pk_table_name", DataType::Utf8, false),
        ("pk_column_name", DataType::Utf8, false),
        ("fk_catalog_name", DataType::Utf8, true),
        ("fk_db_schema_name", DataType::Utf8, true),
        ("fk_table_name", DataType::Utf8, false),
        ("fk_column_name", DataType::Utf8, false),
        ("key_sequence", DataType::Int32, false),
        ("fk_key_name", DataType::Utf8, true),
        ("pk_key_name", DataType::Utf8, true),
        ("update_rule", DataType::UInt8, false),
        ("delete_rule", DataType::UInt8, false),
    ])
}

/// The primary key of a table, column by column; no rows for what has none.
pub fn primary_keys(engine: &Engine, command: &CommandGetPrimaryKeys) -> Result<RecordBatch> {
    let name = Name { schema: command.db_schema.clone(), name: command.table.clone(), position: None };
    let catalog = engine.catalog.lock();
    let object = catalog.resolve(&["public".to_owned()], &name)?;
    let mut columns = Vec::new();
    if let (Some(table), Some(relation)) = (&object.table, &object.relation)
        && command.catalog.as_deref().is_none_or(|c| c.is_empty() || c == DATABASE)
    {
        columns.extend(table.primary_key.iter().map(|i| relation.schema.field(*i).name().clone()));
    }
    let n = columns.len();
    let same = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text; n])) };
    Ok(RecordBatch::try_new(
        primary_keys_schema(),
        vec![
            same(DATABASE),
            same(&object.schema),
            same(&object.name),
            Arc::new(StringArray::from(columns)),
            Arc::new(StringArray::from(vec![None::<&str>; n])),
            Arc::new((1..).take(n).collect::<Int32Array>()),
        ],
    )?)
}
