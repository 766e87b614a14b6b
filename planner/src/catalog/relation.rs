//! A relation that a query can name, with what the planner needs to know of it.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use spate_engine::plan::{ObjectId, WatermarkSpec};

/// What kind of relation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RelationKind {
    /// Stored rows, changed by DML (or by a connector).
    Table,
    /// Rows of a connector, not stored.
    Source,
    /// A named query, expanded where it is used.
    View,
    /// A query kept up to date.
    MaterializedView,
}

/// A relation that a query can name.
#[derive(Debug, Clone)]
pub struct Relation {
    /// Identity in the engine.
    pub id: ObjectId,
    /// Schema it lives in, such as `public`.
    pub schema_name: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its kind.
    pub kind: RelationKind,
    /// Its columns.
    pub schema: SchemaRef,
    /// Primary key, as column indices (tables), or the stream key (materialized views).
    pub key: Option<Vec<usize>>,
    /// Whether rows are only ever added.
    pub append_only: bool,
    /// `WATERMARK FOR`.
    pub watermark: Option<WatermarkSpec>,
    /// Whether it ends (tables and views do not; a bounded source does).
    pub bounded: bool,
    /// The defining query's text, for views.
    pub query: Option<Arc<str>>,
}

impl Relation {
    /// A table with other columns and identity, for rows that are only there during a statement.
    pub fn at(&self, id: ObjectId, schema: SchemaRef) -> Self {
        Self { id, schema, kind: RelationKind::Table, key: None, watermark: None, query: None, ..self.clone() }
    }

    /// `schema.name`, with the default schema left out.
    pub fn display_name(&self) -> String {
        if &*self.schema_name == "public" {
            self.name.to_string()
        } else {
            format!("{}.{}", self.schema_name, self.name)
        }
    }
}
