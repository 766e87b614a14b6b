//! What there is: catalogs, schemas, tables, kinds of tables.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow_flight::sql::{CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables};
use spate_engine::types::{Result, SpateError};
use spate_planner::catalog::ObjectKind;
use spate_planner::catalog::info::DATABASE;
use spate_planner::sql::types::display;

use crate::Engine;
use crate::session::resolver::system_tables;

/// Kind of the tables that tell of the engine itself.
const SYSTEM: &str = "SYSTEM TABLE";

/// Key under which a column's metadata has the name of its type.
const TYPE_NAME: &str = "ARROW:FLIGHT:SQL:TYPE_NAME";

fn kind(kind: ObjectKind) -> Option<&'static str> {
    Some(match kind {
        ObjectKind::Table => "TABLE",
        ObjectKind::Source => "SOURCE",
        ObjectKind::View => "VIEW",
        ObjectKind::MaterializedView => "MATERIALIZED VIEW",
        ObjectKind::Sink | ObjectKind::Function | ObjectKind::Index => return None,
    })
}

fn made(e: arrow_flight::error::FlightError) -> SpateError {
    SpateError::internal(e.to_string())
}

/// The only catalog.
pub fn catalogs() -> Result<RecordBatch> {
    let mut builder = CommandGetCatalogs {}.into_builder();
    builder.append(DATABASE);
    builder.build().map_err(made)
}

/// All schemas that a pattern names.
pub fn schemas(engine: &Engine, command: CommandGetDbSchemas) -> Result<RecordBatch> {
    let mut builder = command.into_builder();
    for schema in engine.catalog.lock().schemas() {
        builder.append(DATABASE, schema);
    }
    builder.build().map_err(made)
}

/// Columns with the names of their types.
fn told(schema: &SchemaRef) -> Schema {
    let fields = schema.fields().iter().map(|f| {
        let mut metadata: HashMap<String, String> = f.metadata().clone();
        metadata.insert(TYPE_NAME.into(), display(f.data_type()));
        Arc::new(f.as_ref().clone().with_metadata(metadata))
    });
    Schema::new(fields.collect::<Vec<Arc<Field>>>())
}

/// All that can be read, with columns if they are asked for.
pub fn tables(engine: &Engine, command: CommandGetTables) -> Result<RecordBatch> {
    let mut builder = command.into_builder();
    let catalog = engine.catalog.lock().clone();
    for object in catalog.list(None, None) {
        if let (Some(kind), Some(relation)) = (kind(object.kind), &object.relation) {
            builder.append(DATABASE, &*object.schema, &*object.name, kind, &told(&relation.schema)).map_err(made)?;
        }
    }
    for (schema, name, columns) in system_tables(engine, &catalog)? {
        builder.append(DATABASE, schema, name, SYSTEM, &told(&columns)).map_err(made)?;
    }
    builder.build().map_err(made)
}

/// All kinds of tables.
pub fn table_types() -> Result<RecordBatch> {
    let mut builder = CommandGetTableTypes {}.into_builder();
    for kind in ["MATERIALIZED VIEW", "SOURCE", SYSTEM, "TABLE", "VIEW"] {
        builder.append(kind);
    }
    builder.build().map_err(made)
}
