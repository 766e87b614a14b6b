//! UPDATE, DELETE, TRUNCATE.
//!
//! Which rows change is asked of DataFusion over the table's rows with one more column, each row's
//! place; so rows that are alike are told apart, and joined tables cannot hit a row twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, interleave_record_batch, take_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::row::{RowConverter, SortField};
use datafusion::sql::sqlparser::ast;
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::sql::statement::{Delete, Name, Update};
use spate_planner::sql::{Query, parse_query, quote};

use super::keys::check_new_keys;
use super::values::{exact_decimals, is_default};
use super::{Changed, Returning, TARGET, Table, cast_column, check_not_null, replace, target_columns};
use crate::session::{Session, still_wanted};

/// Column of a row's place in the table.
const PLACE: &str = "__place";

/// The rows that a statement hits.
struct Hit {
    /// As they are.
    old: RecordBatch,
    /// What the statement computes for each.
    values: Vec<ArrayRef>,
}

impl Session {
    pub(in crate::session) async fn delete(&mut self, delete: Delete) -> Result<Changed> {
        let (table, _writer) = self.lock_table(&delete.table, "delete from").await?;
        Self::refuse_append_only(&table, "delete from")?;
        let called = delete.alias.as_deref().unwrap_or(&delete.table.name);
        let hit = self.hit(&table, called, vec![], delete.using, delete.selection).await?;
        let returned = self.returning(&table, Returning { called, list: &delete.returning }, &hit.old).await?;
        let n = hit.old.num_rows();
        let none = RecordBatch::new_empty(hit.old.schema());
        still_wanted().await;
        self.commit(&table, replace(&hit.old, &none)?)?;
        Ok(Changed { rows: n, returned })
    }

    pub(in crate::session) async fn update(&mut self, update: Update) -> Result<Changed> {
        let (table, _writer) = self.lock_table(&update.table, "update").await?;
        Self::refuse_append_only(&table, "update")?;
        let called = update.alias.as_deref().unwrap_or(&update.table.name);
        let names: Vec<String> = update.assignments.iter().map(|(c, _)| c.clone()).collect();
        let columns = target_columns(&table, &names)?;
        let schema = table.relation()?.schema.clone();
        let mut exprs = Vec::with_capacity(columns.len());
        for (c, (name, e)) in columns.iter().zip(update.assignments) {
            let column = table.details()?.columns.get(*c);
            if column.is_some_and(|c| c.generated.is_some()) && !is_default(&e) {
                return Err(SpateError::invalid(format!("column \"{name}\" can only be updated to DEFAULT"))
                    .with_hint(format!("column \"{name}\" is a generated column")));
            }
            let mut e = match is_default(&e) {
                true => column.and_then(|c| c.default.clone()).unwrap_or(ast::Expr::Value(ast::Value::Null.into())),
                false => e,
            };
            if schema.field(*c).data_type().is_decimal() {
                exact_decimals(&mut e)?;
            }
            exprs.push(e);
        }
        let hit = self.hit(&table, called, exprs, update.from, update.selection).await?;
        let old = hit.old;
        let mut new = old.columns().to_vec();
        for (c, values) in columns.iter().zip(&hit.values) {
            let field = schema.field(*c);
            if let Some(slot) = new.get_mut(*c) {
                *slot = cast_column(values, field.data_type(), field.name())?;
            }
        }
        Self::generate(&table, &mut new, old.num_rows())?;
        for (array, field) in new.iter().zip(schema.fields()) {
            check_not_null(array, field, &table)?;
        }
        let new = RecordBatch::try_new(schema, new)?;
        if let Some(key) = table.relation()?.key.clone()
            && key.iter().any(|k| old.column(*k) != new.column(*k))
        {
            check_new_keys(&table, &key, &old, &new)?;
        }
        let returned = self.returning(&table, Returning { called, list: &update.returning }, &new).await?;
        let n = new.num_rows();
        still_wanted().await;
        self.commit(&table, replace(&old, &new)?)?;
        Ok(Changed { rows: n, returned })
    }

    pub(in crate::session) async fn truncate(&mut self, names: &[Name]) -> Result<()> {
        let mut ids = Vec::new();
        for name in names {
            ids.push((self.table(name, "truncate")?.object.id, name));
        }
        // One order for all, so that two statements cannot wait for each other.
        ids.sort_by_key(|(id, _)| *id);
        ids.dedup_by_key(|(id, _)| *id);
        let mut tables = Vec::with_capacity(ids.len());
        let mut held = Vec::with_capacity(ids.len());
        for (_, name) in ids {
            let (table, guard) = self.lock_table(name, "truncate").await?;
            Self::refuse_append_only(&table, "truncate")?;
            tables.push(table);
            held.push(guard);
        }
        for table in &tables {
            let rows = concat_batches(&table.store.schema(), &table.store.head()?)?;
            let none = RecordBatch::new_empty(rows.schema());
            self.commit(table, replace(&rows, &none)?)?;
        }
        Ok(())
    }

    /// The rows of `table` for which `selection` is true, each once, with the values of `exprs`.
    /// Of several joined rows that hit one row, the one with the least values counts.
    async fn hit(
        &self,
        table: &Table,
        called: &str,
        exprs: Vec<ast::Expr>,
        from: Vec<ast::TableWithJoins>,
        selection: Option<ast::Expr>,
    ) -> Result<Hit> {
        let head = table.store.head()?;
        let schema = table.store.schema();
        let mut fields = schema.fields().to_vec();
        fields.push(Arc::new(Field::new(PLACE, DataType::Int64, false)));
        let placed_schema = Arc::new(Schema::new(fields));
        let mut placed = Vec::with_capacity(head.len());
        for (b, rows) in head.iter().enumerate() {
            let first = (b as i64) << 32;
            let mut columns = rows.columns().to_vec();
            columns.push(Arc::new(Int64Array::from_iter_values(first..first + rows.num_rows() as i64)));
            placed.push(RecordBatch::try_new(placed_schema.clone(), columns)?);
        }
        let joined = !from.is_empty();
        let width = exprs.len();
        let query = hits_query(called, exprs, from, selection)?;
        let target = table.relation()?.at(TARGET, placed_schema);
        let (found_schema, found) = self.rows_with(&query, Some(table), Some((target, placed))).await?;
        let found = concat_batches(&found_schema, &found)?;
        let found = if joined { first_of_each(&found)? } else { found };
        let places = found.column(0).as_primitive::<Int64Type>();
        let places: Vec<(usize, usize)> =
            places.values().iter().map(|p| ((p >> 32) as usize, (p & 0xffff_ffff) as usize)).collect();
        let old = if places.is_empty() {
            RecordBatch::new_empty(schema)
        } else {
            interleave_record_batch(&head.iter().collect::<Vec<_>>(), &places)?
        };
        Ok(Hit { old, values: (0..width).map(|i| found.column(i + 1).clone()).collect() })
    }
}

/// One row per place, the first by all columns.
fn first_of_each(found: &RecordBatch) -> Result<RecordBatch> {
    let fields = found.columns().iter().map(|c| SortField::new(c.data_type().clone())).collect();
    let rows = RowConverter::new(fields)
        .and_then(|c| c.convert_columns(found.columns()))
        .map_err(|e| SpateError::new(ErrorKind::Unsupported, format!("values of this type cannot be ordered: {e}")))?;
    let mut order: Vec<u32> = (0..found.num_rows() as u32).collect();
    order.sort_unstable_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)));
    let places = found.column(0).as_primitive::<Int64Type>();
    let mut seen = BTreeSet::new();
    order.retain(|i| seen.insert(places.value(*i as usize)));
    Ok(take_record_batch(found, &UInt32Array::from(order))?)
}

/// `SELECT place, exprs… FROM target AS called, from… WHERE selection`.
fn hits_query(
    called: &str,
    exprs: Vec<ast::Expr>,
    from: Vec<ast::TableWithJoins>,
    selection: Option<ast::Expr>,
) -> Result<Query> {
    let called = quote(called);
    let text = format!("SELECT {called}.{PLACE} AS {PLACE} FROM {} AS {called}", super::TARGET_NAME);
    let mut query = *parse_query(&text)?;
    if let ast::SetExpr::Select(select) = query.body.as_mut() {
        for (i, e) in exprs.into_iter().enumerate() {
            let alias = ast::Ident::new(format!("__new{i}"));
            select.projection.push(ast::SelectItem::ExprWithAlias { expr: e, alias });
        }
        select.from.extend(from);
        select.selection = selection;
    }
    Ok(query)
}
