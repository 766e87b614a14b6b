//! The catalog as rows: `information_schema`, and what `SHOW` and `DESCRIBE` print.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use spate_engine::types::error::{Result, SpateError};

use super::object::{Object, ObjectKind};
use super::store::Catalog;
use crate::sql::statement::ShowKind;
use crate::sql::types;

/// The one database, as `table_catalog` and clients know it.
pub const DATABASE: &str = "spate";

/// Tables of `information_schema`.
pub const INFORMATION_SCHEMA: &[&str] = &["columns", "schemata", "tables", "views"];

/// Rows under construction, column by column.
struct Rows {
    fields: Vec<Field>,
    texts: Vec<Vec<Option<String>>>,
}

impl Rows {
    fn new(columns: &[&str]) -> Self {
        Self {
            fields: columns.iter().map(|c| Field::new(*c, DataType::Utf8, true)).collect(),
            texts: vec![Vec::new(); columns.len()],
        }
    }

    fn push<const N: usize>(&mut self, row: [Option<&str>; N]) {
        debug_assert_eq!(N, self.texts.len());
        for (column, value) in self.texts.iter_mut().zip(row) {
            column.push(value.map(str::to_string));
        }
    }

    fn finish(self) -> Result<RecordBatch> {
        let arrays = self.texts.into_iter().map(|c| Arc::new(StringArray::from(c)) as ArrayRef).collect();
        Ok(RecordBatch::try_new(Arc::new(Schema::new(self.fields)), arrays)?)
    }
}

/// The rows of a system table; `None` if there is no such table here.
pub fn system_table(catalog: &Catalog, schema: &str, name: &str) -> Option<Result<RecordBatch>> {
    if schema != "information_schema" {
        return None;
    }
    match name {
        "schemata" => Some(schemata(catalog)),
        "tables" => Some(tables(catalog)),
        "columns" => Some(columns(catalog)),
        "views" => Some(views(catalog)),
        _ => None,
    }
}

/// `information_schema.schemata`.
pub fn schemata(catalog: &Catalog) -> Result<RecordBatch> {
    let mut rows = Rows::new(&["catalog_name", "schema_name"]);
    for schema in catalog.schemas() {
        rows.push([Some(DATABASE), Some(schema)]);
    }
    rows.finish()
}

/// `information_schema.tables`: all that can be read, and sinks.
pub fn tables(catalog: &Catalog) -> Result<RecordBatch> {
    let mut rows = Rows::new(&["table_catalog", "table_schema", "table_name", "table_type", "is_insertable_into"]);
    for o in catalog.list(None, None) {
        let kind = match o.kind {
            ObjectKind::Table => "BASE TABLE",
            ObjectKind::Source => "SOURCE",
            ObjectKind::View => "VIEW",
            ObjectKind::MaterializedView => "MATERIALIZED VIEW",
            ObjectKind::Sink => "SINK",
            ObjectKind::Function | ObjectKind::Index => continue,
        };
        let insertable = yes_no(o.kind == ObjectKind::Table);
        rows.push([Some(DATABASE), Some(&o.schema), Some(&o.name), Some(kind), Some(insertable)]);
    }
    rows.finish()
}

/// `information_schema.columns`.
pub fn columns(catalog: &Catalog) -> Result<RecordBatch> {
    let mut rows = Rows::new(&[
        "table_catalog",
        "table_schema",
        "table_name",
        "column_name",
        "column_default",
        "is_nullable",
        "data_type",
    ]);
    let mut ordinals = Vec::new();
    for o in catalog.list(None, None) {
        for (ordinal, c) in (1..).zip(describe_columns(o)) {
            ordinals.push(ordinal);
            rows.push([
                Some(DATABASE),
                Some(&o.schema),
                Some(&o.name),
                Some(&c.name),
                c.default.as_deref(),
                Some(yes_no(c.nullable)),
                Some(&c.data_type),
            ]);
        }
    }
    // PostgreSQL has it as the fifth column.
    const AT: usize = 4;
    let batch = rows.finish()?;
    let mut fields: Vec<Field> = batch.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    fields.insert(AT, Field::new("ordinal_position", DataType::Int32, true));
    let mut arrays = batch.columns().to_vec();
    arrays.insert(AT, Arc::new(Int32Array::from(ordinals)));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

/// `information_schema.views`: views and materialized views with their queries.
pub fn views(catalog: &Catalog) -> Result<RecordBatch> {
    let mut rows = Rows::new(&["table_catalog", "table_schema", "table_name", "view_definition"]);
    for o in catalog.list(None, None) {
        if let Some(query) = o.relation.as_ref().and_then(|r| r.query.as_deref()) {
            rows.push([Some(DATABASE), Some(&o.schema), Some(&o.name), Some(query)]);
        }
    }
    rows.finish()
}

/// What `SHOW TABLES` and its like print: `schema`, `name`; for schemas only `name`.
/// Jobs and workers are not the catalog's: `Internal`.
pub fn show_objects(catalog: &Catalog, kind: ShowKind, schema: Option<&str>) -> Result<RecordBatch> {
    let kind = match kind {
        ShowKind::Schemas => {
            let mut rows = Rows::new(&["name"]);
            for name in catalog.schemas() {
                rows.push([Some(name)]);
            }
            return rows.finish();
        }
        ShowKind::Tables => ObjectKind::Table,
        ShowKind::Sources => ObjectKind::Source,
        ShowKind::Views => ObjectKind::View,
        ShowKind::MaterializedViews => ObjectKind::MaterializedView,
        ShowKind::Sinks => ObjectKind::Sink,
        ShowKind::Functions => ObjectKind::Function,
        ShowKind::Indexes => ObjectKind::Index,
        ShowKind::Jobs | ShowKind::Workers => {
            return Err(SpateError::internal("jobs and workers are not in the catalog"));
        }
    };
    if let Some(schema) = schema
        && !catalog.schemas().any(|s| s == schema)
    {
        return Err(SpateError::new(
            spate_engine::types::ErrorKind::NotFound,
            format!("schema \"{schema}\" does not exist"),
        ));
    }
    let mut rows = Rows::new(&["schema", "name"]);
    for o in catalog.list(Some(kind), schema) {
        rows.push([Some(&o.schema), Some(&o.name)]);
    }
    rows.finish()
}

/// What `DESCRIBE` prints: `name`, `type`, `nullable` (YES or NO), `key` (PRI for columns of
/// the primary key), `default`. Fails for sinks, which have no columns.
pub fn describe(object: &Object) -> Result<RecordBatch> {
    if object.relation.is_none() {
        return Err(SpateError::invalid(format!("\"{}\" is a {}, which has no columns", object.name, object.kind)));
    }
    let mut rows = Rows::new(&["name", "type", "nullable", "key", "default"]);
    for c in describe_columns(object) {
        rows.push([
            Some(&c.name),
            Some(&c.data_type),
            Some(yes_no(c.nullable)),
            c.key.then_some("PRI"),
            c.default.as_deref(),
        ]);
    }
    rows.finish()
}

/// What `SHOW CREATE` prints: `name`, `create_sql`.
pub fn show_create(object: &Object) -> Result<RecordBatch> {
    let mut rows = Rows::new(&["name", "create_sql"]);
    rows.push([Some(&object.display_name()), Some(&object.sql)]);
    rows.finish()
}

/// `spate.comments`: what COMMENT ON says; `column` is NULL for the object itself.
pub fn comments(catalog: &Catalog) -> Result<RecordBatch> {
    let mut rows = Rows::new(&["schema", "name", "kind", "column", "comment"]);
    for o in catalog.list(None, None) {
        for (column, text) in &o.comments {
            let column = (!column.is_empty()).then_some(column.as_str());
            rows.push([Some(&o.schema), Some(&o.name), Some(&o.kind.to_string()), column, Some(text)]);
        }
    }
    rows.finish()
}

struct Described {
    name: String,
    data_type: String,
    nullable: bool,
    key: bool,
    default: Option<String>,
}

fn describe_columns(object: &Object) -> Vec<Described> {
    let Some(relation) = &object.relation else { return Vec::new() };
    // A materialized view's stream key is the planner's affair, not the user's.
    let key = match relation.kind {
        super::RelationKind::Table | super::RelationKind::Source => relation.key.as_deref().unwrap_or_default(),
        _ => &[],
    };
    let fields = relation.schema.fields().iter().enumerate();
    fields
        .map(|(i, f)| {
            let declared = object.table.as_ref().and_then(|t| t.columns.get(i));
            Described {
                name: f.name().clone(),
                data_type: types::display(f.data_type()),
                nullable: declared.map_or(f.is_nullable(), |c| c.nullable),
                key: key.contains(&i),
                default: declared.and_then(|c| match (&c.default, &c.generated) {
                    (Some(d), _) => Some(d.to_string()),
                    (None, Some(g)) => Some(format!("generated always as ({g}) stored")),
                    (None, None) => None,
                }),
            }
        })
        .collect()
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "YES" } else { "NO" }
}
