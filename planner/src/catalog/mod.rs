//! What exists: schemas, tables, sources, views, sinks, and who depends on whom.

pub mod relation;

pub use relation::{Relation, RelationKind};
