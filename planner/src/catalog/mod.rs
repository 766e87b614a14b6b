//! What exists: schemas, tables, sources, views, sinks, and who depends on whom.

pub mod depend;
pub mod info;
pub mod object;
pub mod relation;
pub mod render;
pub mod store;

#[cfg(test)]
mod tests;

pub use object::{IndexDetails, Object, ObjectKind, SqlFunction, TableColumn, TableDetails, function_key};
pub use relation::{Relation, RelationKind};
pub use store::{Catalog, DEFAULT_SCHEMA, RESERVED_SCHEMAS};
