//! INSERT, UPDATE, DELETE, COPY. Statements on one table run one after another, against its rows
//! with the open epoch included; each becomes one delta of that epoch.

mod change;
pub(super) mod ingest;
mod insert;
mod keys;
mod returning;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimestampMicrosecondType};
use arrow::util::display::FormatOptions;
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use spate_engine::state::view::ViewStore;
use spate_engine::types::float::canonical;
use spate_engine::types::textual::{Way, convert, way};
use spate_engine::types::{Delta, ErrorKind, Result, SpateError, WATERMARK_MIN, Watermark};
use spate_planner::bind::{BindMode, bind_columns, bind_error, bind_query, readable};
use spate_planner::catalog::{Object, ObjectKind, Relation, TableDetails};
use spate_planner::sql::statement::{Name, OnConflict};
use spate_planner::sql::types::{bytea_in, display};
use spate_planner::sql::{Query, did_you_mean};
use tokio::sync::OwnedMutexGuard;

use super::resolver::{Names, TARGET, TARGET_NAME};
use super::{Outcome, RowStream, Session, still_wanted};
use keys::resolve_conflicts;

struct Table {
    object: Arc<Object>,
    store: Arc<ViewStore>,
}

impl Table {
    fn relation(&self) -> Result<&Relation> {
        self.object.relation.as_ref().ok_or_else(|| SpateError::internal("a table without a relation"))
    }

    fn details(&self) -> Result<&TableDetails> {
        self.object.table.as_ref().ok_or_else(|| SpateError::internal("a table without details"))
    }

    fn name(&self) -> String {
        self.object.display_name()
    }
}

/// What a DML statement has done.
pub(super) struct Changed {
    rows: usize,
    /// What RETURNING says, if it was asked.
    returned: Option<Vec<RecordBatch>>,
}

impl Changed {
    /// The outcome, with a command tag that ends in the number of rows.
    pub(super) fn outcome(self, tag: &str) -> Outcome {
        match self.returned {
            None => Outcome::Done(format!("{tag} {}", self.rows)),
            Some(batches) => Outcome::Rows(RowStream::of_all(batches)),
        }
    }
}

/// A RETURNING list, with the name that the table goes by.
#[derive(Clone, Copy)]
struct Returning<'a> {
    called: &'a str,
    list: &'a [ast::SelectItem],
}

impl Session {
    /// A table that can be written to, as it is now.
    fn table(&self, name: &Name, verb: &str) -> Result<Table> {
        let catalog = self.engine.catalog.lock();
        let object = catalog.resolve(&self.variables.search_path, name)?.clone();
        drop(catalog);
        if object.kind != ObjectKind::Table {
            return Err(SpateError::invalid(format!("cannot {verb} \"{name}\": it is a {}", object.kind))
                .with_hint("only tables can be written to"));
        }
        if object.has_connector() {
            return Err(SpateError::invalid(format!("cannot {verb} \"{name}\": its rows come from its connector")));
        }
        let store = self.engine.worker.store(object.id);
        let store = store.ok_or_else(|| SpateError::internal(format!("table {name} has no store")))?;
        Ok(Table { object, store })
    }

    /// A table, for this statement alone: it is as it is told here until the guard is dropped.
    async fn lock_table(&self, name: &Name, verb: &str) -> Result<(Table, OwnedMutexGuard<()>)> {
        loop {
            let id = self.table(name, verb)?.object.id;
            let guard = self.engine.writer(id).lock_owned().await;
            // It may have been altered, or dropped and made anew, before it was this one's turn.
            let table = self.table(name, verb)?;
            if table.object.id == id {
                return Ok((table, guard));
            }
        }
    }

    /// Runs a query with a table's rows as they are now, open epoch included, and perhaps rows
    /// that [`TARGET_NAME`] names.
    async fn rows_with(
        &self,
        query: &Query,
        table: Option<&Table>,
        target: Option<(Relation, Vec<RecordBatch>)>,
    ) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let plan = {
            let names = Names::new(&self.engine, &self.variables.search_path);
            let names = match &target {
                Some((relation, _)) => names.with(relation),
                None => names,
            };
            bind_query(&names, query, &BindMode::AdHoc)?
        };
        let mut instead = BTreeMap::new();
        if let Some(t) = table {
            instead.insert(t.object.id, t.store.head()?);
        }
        if let Some((relation, rows)) = target {
            instead.insert(relation.id, rows);
        }
        let rows = self.select_plan(plan, &instead).await?;
        let batches: Vec<RecordBatch> = rows.stream.try_collect().await?;
        Ok((rows.schema, batches))
    }

    /// Computes the generated columns of rows whose other columns are there.
    fn generate(table: &Table, columns: &mut [ArrayRef], rows: usize) -> Result<()> {
        let details = table.details()?;
        let schema = &table.relation()?.schema;
        let (base, generated) = details.split_generated(schema);
        if generated.is_empty() {
            return Ok(());
        }
        let base_schema = Arc::new(schema.project(&base)?);
        let fields: Vec<Field> = base_schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
        let base_schema = Arc::new(Schema::new(fields));
        let exprs: Vec<_> = generated.iter().map(|(i, e)| (*e, schema.field(*i).data_type())).collect();
        let bound = bind_columns(&table.object.name, &base_schema, &exprs, &BindMode::AdHoc)?;
        let given: Vec<ArrayRef> = base.iter().filter_map(|i| columns.get(*i).cloned()).collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
        let given = RecordBatch::try_new_with_options(base_schema, given, &options)?;
        for ((i, _), e) in generated.iter().zip(&bound) {
            let values = e.evaluate(&given).and_then(|v| v.into_array_of_size(rows)).map_err(|e| {
                let e = bind_error(e);
                e.context(format!("generated column \"{}\" of \"{}\"", schema.field(*i).name(), table.name()))
            })?;
            if let Some(slot) = columns.get_mut(*i) {
                *slot = values;
            }
        }
        Ok(())
    }

    /// Adds new rows to the open epoch.
    async fn write(
        &mut self,
        table: &Table,
        all: RecordBatch,
        on_conflict: OnConflict,
        returning: Returning<'_>,
    ) -> Result<Changed> {
        still_wanted().await;
        let close = self.engine.worker.table_close(table.object.id);
        loop {
            let closed = close.as_ref().map_or(WATERMARK_MIN, |c| c.watermark.lock().0);
            let (rows, late) = split_late(table, &all, closed)?;
            let latest = match table.relation()?.watermark {
                Some(w) => latest_time(&rows, w.column).map(|t| t.saturating_sub(w.delay_us)),
                None => None,
            };
            let (rows, old) = match table.relation()?.key.clone() {
                None => {
                    let none = RecordBatch::new_empty(rows.schema());
                    (rows, none)
                }
                Some(key) => resolve_conflicts(table, &key, rows, on_conflict)?,
            };
            let returned = self.returning(table, returning, &rows).await?;
            // Asked for first: whoever closes an epoch holds it while it waits for the watermark.
            let epoch = self.engine.worker.last() + 1;
            // Held until the rows are written: the epoch that closes with a watermark must hold them.
            let mut marks = close.as_ref().map(|c| c.watermark.lock());
            if marks.as_ref().is_some_and(|m| m.0 != closed) {
                // An epoch closed meanwhile, and more rows may be late now.
                continue;
            }
            if let Some(late) = late {
                let name: Arc<str> = table.name().into();
                self.engine.worker.logs.late(&name, epoch, &late);
            }
            let n = rows.num_rows();
            let delta = replace(&old, &rows)?;
            if !delta.is_empty() {
                table.store.write(delta)?;
            }
            if let (Some(marks), Some(latest)) = (&mut marks, latest) {
                marks.1 = marks.1.max(latest);
            }
            drop(marks);
            if latest.is_some() || n > 0 {
                self.wrote();
            }
            return Ok(Changed { rows: n, returned });
        }
    }

    fn commit(&mut self, table: &Table, delta: Delta) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        table.store.write(delta)?;
        self.wrote();
        Ok(())
    }

    /// Asks for the open epoch to be closed, and remembers to read at least that far.
    fn wrote(&mut self) {
        self.written = self.written.max(self.engine.worker.request_tick());
    }

    fn refuse_append_only(table: &Table, verb: &str) -> Result<()> {
        if table.relation()?.append_only {
            return Err(SpateError::invalid(format!("cannot {verb} \"{}\": it is APPEND ONLY", table.name())));
        }
        Ok(())
    }
}

fn check_not_null(array: &ArrayRef, field: &Field, table: &Table) -> Result<()> {
    if field.is_nullable() || array.null_count() == 0 {
        return Ok(());
    }
    Err(SpateError::new(
        ErrorKind::Constraint,
        format!("null value in column \"{}\" of \"{}\" violates its not-null constraint", field.name(), table.name()),
    ))
}

/// Rows that are not behind the watermark of the closed epochs, and those that are.
fn split_late(table: &Table, rows: &RecordBatch, closed: Watermark) -> Result<(RecordBatch, Option<RecordBatch>)> {
    let Some(spec) = table.relation()?.watermark else { return Ok((rows.clone(), None)) };
    if closed == WATERMARK_MIN {
        return Ok((rows.clone(), None));
    }
    let times = rows.column(spec.column).as_primitive::<TimestampMicrosecondType>();
    let late: BooleanArray = (0..times.len()).map(|i| Some(times.is_valid(i) && times.value(i) < closed)).collect();
    if late.true_count() == 0 {
        return Ok((rows.clone(), None));
    }
    let on_time = filter_record_batch(rows, &arrow::compute::not(&late)?)?;
    Ok((on_time, Some(filter_record_batch(rows, &late)?)))
}

fn latest_time(rows: &RecordBatch, column: usize) -> Option<i64> {
    arrow::compute::max(rows.column(column).as_primitive_opt::<TimestampMicrosecondType>()?)
}

pub(super) fn cast_column(array: &ArrayRef, to: &DataType, column: &str) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(canonical(array));
    }
    if let (DataType::Utf8, DataType::Binary) = (array.data_type(), to) {
        let bytes = array.as_string::<i32>().iter().map(|t| t.map(bytea_in).transpose());
        let bytes = bytes.collect::<Result<Vec<_>>>().map_err(|e| e.context(format!("column \"{column}\"")))?;
        return Ok(Arc::new(bytes.iter().map(|b| b.as_deref()).collect::<BinaryArray>()));
    }
    if way(array.data_type(), to) == Way::Convert {
        return convert(array, to, false).map_err(|e| e.context(format!("column \"{column}\"")));
    }
    if !assignable(array.data_type(), to) {
        let (from, to) = (display(array.data_type()), display(to));
        return Err(SpateError::new(
            ErrorKind::Type,
            format!("column \"{column}\" is of type {to}, the value is {from}"),
        )
        .with_hint("write the value in the column's form, or CAST it"));
    }
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    cast_with_options(&readable(array, to), to, &options).map(|a| canonical(&a)).map_err(|e| {
        let (from, to) = (display(array.data_type()), display(to));
        let why = bind_error(e.into());
        SpateError::new(ErrorKind::Type, format!("column \"{column}\" is of type {to}, the value is {from}: {why}"))
    })
}

/// Whether a value may become one of another type without a word: numbers are no dates, times or
/// truth values, nor are those numbers.
fn assignable(from: &DataType, to: &DataType) -> bool {
    let number = |t: &DataType| t.is_numeric();
    let other = |t: &DataType| t.is_temporal() || *t == DataType::Boolean;
    !((number(from) && other(to)) || (other(from) && number(to)))
}

/// A delta that takes `old` away and adds `new`.
fn replace(old: &RecordBatch, new: &RecordBatch) -> Result<Delta> {
    if old.num_rows() == 0 {
        return Ok(Delta::insert(new.clone()));
    }
    let rows = concat_batches(&old.schema(), [old, new])?;
    let mut weights = vec![-1i64; old.num_rows()];
    weights.resize(rows.num_rows(), 1);
    Delta::new(rows, Some(Int64Array::from(weights)))
}

fn target_columns(table: &Table, names: &[String]) -> Result<Vec<usize>> {
    let schema = &table.relation()?.schema;
    if names.is_empty() {
        return Ok((0..schema.fields().len()).collect());
    }
    let mut out = Vec::new();
    for n in names {
        let i = schema.index_of(n).map_err(|_| {
            let e =
                SpateError::new(ErrorKind::NotFound, format!("column \"{n}\" of \"{}\" does not exist", table.name()));
            match did_you_mean(n, schema.fields().iter().map(|f| f.name().as_str())) {
                Some(m) => e.with_hint(format!("did you mean \"{m}\"?")),
                None => e,
            }
        })?;
        if out.contains(&i) {
            return Err(SpateError::invalid(format!("column \"{n}\" is given twice")));
        }
        out.push(i);
    }
    Ok(out)
}
