//! One object of the catalog: what it is, the text that made it, what it depends on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_sql::sqlparser::ast::Expr;
use spate_engine::plan::ObjectId;

use super::relation::{Relation, RelationKind};
use crate::sql::Options;
use crate::sql::statement::{CreateTable, DropKind, FormatClause, OnConflict};

/// The kinds of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Stored rows.
    Table,
    /// A connector's rows, not stored.
    Source,
    /// A named query.
    View,
    /// A query kept up to date.
    MaterializedView,
    /// Where rows go out.
    Sink,
    /// An expression with arguments, by name.
    Function,
    /// Rows of a table or materialized view in the order of some columns.
    Index,
}

impl ObjectKind {
    /// The kind of relation it is; `None` for sinks, which cannot be read.
    pub fn relation_kind(self) -> Option<RelationKind> {
        match self {
            Self::Table => Some(RelationKind::Table),
            Self::Source => Some(RelationKind::Source),
            Self::View => Some(RelationKind::View),
            Self::MaterializedView => Some(RelationKind::MaterializedView),
            Self::Sink | Self::Function | Self::Index => None,
        }
    }

    /// The word `DROP` and `SHOW CREATE` have for it.
    pub fn drop_kind(self) -> DropKind {
        match self {
            Self::Table => DropKind::Table,
            Self::Source => DropKind::Source,
            Self::View => DropKind::View,
            Self::MaterializedView => DropKind::MaterializedView,
            Self::Sink => DropKind::Sink,
            Self::Function => DropKind::Function,
            Self::Index => DropKind::Index,
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.drop_kind().fmt(f)
    }
}

/// What an index is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDetails {
    /// The table or materialized view.
    pub on: ObjectId,
    /// Its columns, in the index's order.
    pub columns: Vec<usize>,
}

/// A function that is defined in SQL.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlFunction {
    /// Its name.
    pub name: String,
    /// Names (empty for those without) and types of its arguments.
    pub args: Vec<(String, DataType)>,
    /// Type of its result.
    pub returns: DataType,
    /// Whether it is NULL when an argument is.
    pub strict: bool,
    /// Its value.
    pub body: Expr,
}

/// A column of a table or source, with what only writers need.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// Whether NULL is allowed.
    pub nullable: bool,
    /// `DEFAULT e`.
    pub default: Option<Expr>,
    /// `GENERATED ALWAYS AS (e)`.
    pub generated: Option<Expr>,
}

/// What only tables and sources have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TableDetails {
    /// Columns, in the order of the relation's schema.
    pub columns: Vec<TableColumn>,
    /// Primary key as column indices, in the order of the key.
    pub primary_key: Vec<usize>,
    /// What an insert does when the key exists.
    pub on_conflict: OnConflict,
}

impl TableDetails {
    /// The details as a statement declares them (without inferred columns).
    pub fn from_statement(create: &CreateTable) -> Self {
        let columns = create.columns.iter().map(|c| TableColumn {
            name: c.name.clone(),
            data_type: c.data_type.clone(),
            nullable: c.nullable,
            default: c.default.clone(),
            generated: c.generated.clone(),
        });
        Self { columns: columns.collect(), primary_key: create.primary_key.clone(), on_conflict: create.on_conflict }
    }
}

impl TableDetails {
    /// Columns that are given, as indices, and those that are computed from them, with how.
    pub fn split_generated(&self, schema: &arrow::datatypes::Schema) -> (Vec<usize>, Vec<(usize, &Expr)>) {
        let generated = |i: usize| self.columns.get(i).and_then(|c| c.generated.as_ref());
        let all = 0..schema.fields().len();
        let base = all.clone().filter(|i| generated(*i).is_none()).collect();
        (base, all.filter_map(|i| generated(i).map(|e| (i, e))).collect())
    }
}

/// An object of the catalog.
#[derive(Debug, Clone)]
pub struct Object {
    /// Identity; ids rise in the order of creation.
    pub id: ObjectId,
    /// Schema it lives in.
    pub schema: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its kind.
    pub kind: ObjectKind,
    /// What queries see of it; `None` for sinks.
    pub relation: Option<Relation>,
    /// The statement that made it, as written.
    pub sql: String,
    /// Objects that it reads, without repeats.
    pub depends_on: Vec<ObjectId>,
    /// `WITH (…)`.
    pub options: Options,
    /// `FORMAT … ENCODE …`.
    pub format: Option<FormatClause>,
    /// What only tables and sources have.
    pub table: Option<TableDetails>,
    /// What only functions have.
    pub function: Option<Arc<SqlFunction>>,
    /// What only indexes have.
    pub index: Option<IndexDetails>,
    /// `COMMENT ON` it (under the empty name) and on its columns.
    pub comments: BTreeMap<String, String>,
}

impl Object {
    /// Whether its rows come from (or go to) a connector.
    pub fn has_connector(&self) -> bool {
        !self.options.is_empty() || self.format.is_some()
    }

    /// The key of its name: functions and relations of one name do not meet.
    pub(super) fn key(&self) -> String {
        if self.kind == ObjectKind::Function { function_key(&self.name) } else { self.name.to_string() }
    }

    /// Its kind and name, for messages.
    pub fn display(&self) -> String {
        format!("{} {}", self.kind, self.display_name())
    }

    /// `schema.name`, quoted where needed, with the default schema left out.
    pub fn display_name(&self) -> String {
        let name = crate::sql::quote(&self.name);
        if &*self.schema == super::DEFAULT_SCHEMA {
            name
        } else {
            format!("{}.{name}", crate::sql::quote(&self.schema))
        }
    }
}

/// The key of a function's name.
pub fn function_key(name: &str) -> String {
    format!("{name}()")
}
