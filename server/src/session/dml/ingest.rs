//! Bulk ingest: rows that are there already into a table, which may have to be made.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::sql::types::{display, storable};
use spate_planner::sql::{Name, quote};

use super::{Returning, target_columns};
use crate::session::Session;

/// What to do if the table is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Nothing: it is an error.
    Fail,
    /// Make it, with the columns of the rows.
    Create,
}

/// What to do if the table is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exists {
    /// Nothing: it is an error.
    Fail,
    /// Add the rows.
    Append,
    /// Make it anew.
    Replace,
}

/// Where rows go.
#[derive(Debug, Clone)]
pub struct Ingest {
    /// The table's schema; `None` to go by the search path.
    pub schema: Option<String>,
    /// The table, its name as it is.
    pub table: String,
    /// If it is not there.
    pub missing: Missing,
    /// If it is there.
    pub exists: Exists,
}

impl Session {
    /// Adds rows to a table, all of them or none; columns go by their names. Gives the number of rows
    /// that were added.
    ///
    /// # Errors
    /// As `INSERT` and `CREATE TABLE` have them.
    pub async fn ingest(&mut self, ingest: Ingest, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<usize> {
        let name = Name { schema: ingest.schema, name: ingest.table, position: None };
        let written = match &name.schema {
            Some(schema) => format!("{}.{}", quote(schema), quote(&name.name)),
            None => quote(&name.name),
        };
        let there = match self.engine.catalog.lock().resolve(&self.variables.search_path, &name) {
            Ok(_) => true,
            Err(e) if e.kind() == ErrorKind::NotFound && ingest.missing == Missing::Create => false,
            Err(e) => return Err(e),
        };
        let made = match (there, ingest.exists) {
            (true, Exists::Fail) => {
                return Err(SpateError::new(ErrorKind::AlreadyExists, format!("table {written} already exists"))
                    .with_hint("append to it, or replace it"));
            }
            (true, Exists::Append) => false,
            (there, _) => {
                let how = if there { "CREATE OR REPLACE TABLE" } else { "CREATE TABLE" };
                self.execute(&format!("{how} {written} ({})", columns(&schema))).await?;
                true
            }
        };
        let done = self.add(&name, schema, batches).await;
        if done.is_err() && made {
            // Nobody asked for an empty table.
            self.execute(&format!("DROP TABLE IF EXISTS {written}")).await?;
        }
        done
    }

    async fn add(&mut self, name: &Name, given: SchemaRef, batches: Vec<RecordBatch>) -> Result<usize> {
        let (table, _writer) = self.lock_table(name, "insert into").await?;
        let names: Vec<String> = given.fields().iter().map(|f| f.name().clone()).collect();
        let columns = target_columns(&table, &names)?;
        for c in columns.iter().take(names.len()) {
            if table.details()?.columns.get(*c).is_some_and(|c| c.generated.is_some()) {
                let name = table.relation()?.schema.field(*c).name().clone();
                return Err(SpateError::invalid(format!(
                    "cannot insert a value into column \"{name}\": it is a generated column"
                ))
                .with_hint("leave it out"));
            }
        }
        let rows = self.complete_rows(&table, &columns[..names.len()], &given, batches).await?;
        let on_conflict = table.details()?.on_conflict;
        Ok(self.write(&table, rows, on_conflict, Returning { called: "", list: &[] }).await?.rows)
    }
}

/// Columns of `CREATE TABLE`.
fn columns(schema: &SchemaRef) -> String {
    let column = |f: &arrow::datatypes::FieldRef| {
        // Nothing but NULLs: text takes them, and most of what may come later.
        let kind = if *f.data_type() == DataType::Null { DataType::Utf8 } else { storable(f.data_type()) };
        let null = if f.is_nullable() { "" } else { " NOT NULL" };
        format!("{} {}{null}", quote(f.name()), display(&kind))
    };
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}
