//! INSERT, UPDATE, DELETE, COPY. Statements on one table run one after another, against its rows
//! with the open epoch included; each becomes one delta of that epoch.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, SchemaRef, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use spate_engine::connector::{OnError, Polled, open_source};
use spate_engine::state::view::ViewStore;
use spate_engine::types::{Delta, Epoch, ErrorKind, Result, SpateError, WATERMARK_MIN, Watermark};
use spate_planner::bind::{BindMode, bind_query};
use spate_planner::catalog::{Object, ObjectKind, Relation, TableDetails};
use spate_planner::sql::statement::{Copy, Delete, Insert, Name, OnConflict, Update};
use spate_planner::sql::{Query, did_you_mean, parse_query, quote};

use super::Session;
use super::resolver::Names;

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

impl Session {
    fn table(&self, name: &Name, verb: &str) -> Result<Table> {
        let catalog = self.engine.catalog.lock();
        let object = catalog.resolve(&self.variables.search_path, name)?.clone();
        drop(catalog);
        if object.kind != ObjectKind::Table {
            return Err(SpateError::invalid(format!("cannot {verb} \"{name}\": it is a {}", object.kind))
                .with_hint("only tables can be written to"));
        }
        if !object.options.is_empty() || object.format.is_some() {
            return Err(SpateError::invalid(format!("cannot {verb} \"{name}\": its rows come from its connector")));
        }
        let store = self.engine.worker.store(object.id);
        let store = store.ok_or_else(|| SpateError::internal(format!("table {name} has no store")))?;
        Ok(Table { object, store })
    }

    /// Runs a query with a table's rows as they are now, open epoch included.
    async fn rows_of(&self, query: &Query, table: Option<&Table>) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let plan = {
            let names = Names::new(&self.engine, &self.variables.search_path);
            bind_query(&names, query, &BindMode::AdHoc)?
        };
        let mut instead = BTreeMap::new();
        if let Some(t) = table {
            instead.insert(t.object.id, t.store.head()?);
        }
        let rows = self.select_plan(plan, &instead).await?;
        let batches: Vec<RecordBatch> = rows.stream.try_collect().await?;
        Ok((rows.schema, batches))
    }

    pub(super) async fn insert(&mut self, insert: Insert) -> Result<usize> {
        let table = self.table(&insert.table, "insert into")?;
        let engine = self.engine.clone();
        let lock = engine.writer(table.object.id);
        let _writer = lock.lock().await;
        let columns = target_columns(&table, &insert.columns)?;
        let mut source = insert.source;
        fill_defaults(&mut source, &columns, table.details()?);
        type_literals(&mut source, &columns, &table.relation()?.schema)?;
        let (schema, batches) = self.rows_of(&source, Some(&table)).await?;
        let given = schema.fields().len();
        if given > columns.len() || (!insert.columns.is_empty() && given < columns.len()) {
            let (more, less) = if given > columns.len() {
                ("expressions", "target columns")
            } else {
                ("target columns", "expressions")
            };
            return Err(SpateError::new(ErrorKind::Syntax, format!("INSERT has more {more} than {less}"))
                .with_hint(format!("\"{}\" takes {} columns, {given} were given", table.name(), columns.len())));
        }
        let rows = self.complete_rows(&table, &columns[..given], &schema, batches).await?;
        self.write(&table, rows, table.details()?.on_conflict)
    }

    /// Rows of the whole table from rows of some columns: defaults filled in, types cast.
    async fn complete_rows(
        &self,
        table: &Table,
        columns: &[usize],
        given: &SchemaRef,
        batches: Vec<RecordBatch>,
    ) -> Result<RecordBatch> {
        let schema = &table.relation()?.schema;
        let rows = concat_batches(given, &batches)?;
        let n = rows.num_rows();
        let mut out: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for (i, field) in schema.fields().iter().enumerate() {
            let array = match columns.iter().position(|c| *c == i) {
                Some(k) => cast_column(rows.column(k), field.data_type(), field.name())?,
                None => match table.details()?.columns.get(i).and_then(|c| c.default.as_ref()) {
                    Some(d) => {
                        let query = parse_query(&format!("SELECT {d}"))?;
                        let (_, b) = self.rows_of(&query, None).await?;
                        let one = b.iter().find(|b| b.num_rows() > 0).map(|b| b.column(0).clone());
                        let one = one.ok_or_else(|| SpateError::internal("a default without a value"))?;
                        let one = cast_column(&one, field.data_type(), field.name())?;
                        arrow::compute::take(&one, &UInt32Array::from(vec![0; n]), None)?
                    }
                    None => new_null_array(field.data_type(), n),
                },
            };
            check_not_null(&array, field, table)?;
            out.push(array);
        }
        Ok(RecordBatch::try_new(schema.clone(), out)?)
    }

    /// Adds new rows to the open epoch; gives how many were added.
    fn write(&mut self, table: &Table, rows: RecordBatch, on_conflict: OnConflict) -> Result<usize> {
        let close = self.engine.worker.table_close(table.object.id);
        // Asked for first: whoever closes an epoch holds it while it waits for the watermark.
        let epoch = self.engine.worker.last() + 1;
        // Held until the rows are written: the epoch that closes with a watermark must hold them.
        let mut marks = close.as_ref().map(|c| c.watermark.lock());
        let rows = match &marks {
            Some(marks) => self.drop_late(table, rows, marks.0, epoch)?,
            None => rows,
        };
        let latest = match table.relation()?.watermark {
            Some(w) => latest_time(&rows, w.column).map(|t| t.saturating_sub(w.delay_us)),
            None => None,
        };
        if rows.num_rows() == 0 {
            return Ok(0);
        }
        let n;
        let delta = match table.relation()?.key.clone() {
            None => {
                n = rows.num_rows();
                Delta::insert(rows)
            }
            Some(key) => {
                let (rows, old) = resolve_conflicts(table, &key, rows, on_conflict)?;
                n = rows.num_rows();
                replace(&old, &rows)?
            }
        };
        if !delta.is_empty() {
            table.store.write(delta)?;
        }
        if let (Some(marks), Some(latest)) = (&mut marks, latest) {
            marks.1 = marks.1.max(latest);
        }
        drop(marks);
        self.wrote();
        Ok(n)
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

    /// Files rows behind the watermark of the closed epochs, and gives the others.
    fn drop_late(&self, table: &Table, rows: RecordBatch, closed: Watermark, epoch: Epoch) -> Result<RecordBatch> {
        let Some(spec) = table.relation()?.watermark else { return Ok(rows) };
        if closed == WATERMARK_MIN {
            return Ok(rows);
        }
        let times = rows.column(spec.column).as_primitive::<TimestampMicrosecondType>().clone();
        let late: BooleanArray = (0..times.len()).map(|i| Some(times.is_valid(i) && times.value(i) < closed)).collect();
        if late.true_count() == 0 {
            return Ok(rows);
        }
        let name: Arc<str> = table.name().into();
        self.engine.worker.logs.late(&name, epoch, &filter_record_batch(&rows, &late)?);
        Ok(filter_record_batch(&rows, &arrow::compute::not(&late)?)?)
    }

    fn refuse_append_only(table: &Table, verb: &str) -> Result<()> {
        if table.relation()?.append_only {
            return Err(SpateError::invalid(format!("cannot {verb} \"{}\": it is APPEND ONLY", table.name())));
        }
        Ok(())
    }

    pub(super) async fn delete(&mut self, delete: Delete) -> Result<usize> {
        let table = self.table(&delete.table, "delete from")?;
        Self::refuse_append_only(&table, "delete from")?;
        let engine = self.engine.clone();
        let lock = engine.writer(table.object.id);
        let _writer = lock.lock().await;
        let query = dml_query(&table, &delete.table, delete.alias.as_deref(), &[], delete.selection.as_ref())?;
        let (schema, batches) = self.rows_of(&query, Some(&table)).await?;
        let old = as_table(&table, &concat_batches(&schema, &batches)?)?;
        let n = old.num_rows();
        let none = RecordBatch::new_empty(old.schema());
        self.commit(&table, replace(&old, &none)?)?;
        Ok(n)
    }

    pub(super) async fn update(&mut self, update: Update) -> Result<usize> {
        let table = self.table(&update.table, "update")?;
        Self::refuse_append_only(&table, "update")?;
        let engine = self.engine.clone();
        let lock = engine.writer(table.object.id);
        let _writer = lock.lock().await;
        let names: Vec<String> = update.assignments.iter().map(|(c, _)| c.clone()).collect();
        let columns = target_columns(&table, &names)?;
        let exprs: Vec<String> = update.assignments.iter().map(|(_, e)| e.to_string()).collect();
        let query = dml_query(&table, &update.table, update.alias.as_deref(), &exprs, update.selection.as_ref())?;
        let (schema, batches) = self.rows_of(&query, Some(&table)).await?;
        let all = concat_batches(&schema, &batches)?;
        let table_schema = table.relation()?.schema.clone();
        let width = table_schema.fields().len();
        let old = as_table(&table, &all.project(&(0..width).collect::<Vec<_>>())?)?;
        let mut new = old.columns().to_vec();
        for (k, c) in columns.iter().enumerate() {
            let field = table_schema.field(*c);
            let array = cast_column(all.column(width + k), field.data_type(), field.name())?;
            check_not_null(&array, field, &table)?;
            new[*c] = array;
        }
        let new = RecordBatch::try_new(table_schema, new)?;
        if let Some(key) = table.relation()?.key.clone()
            && columns.iter().any(|c| key.contains(c))
        {
            check_new_keys(&table, &key, &old, &new)?;
        }
        let n = new.num_rows();
        self.commit(&table, replace(&old, &new)?)?;
        Ok(n)
    }

    pub(super) async fn copy(&mut self, copy: Copy) -> Result<usize> {
        let table = self.table(&copy.table, "copy into")?;
        let engine = self.engine.clone();
        let lock = engine.writer(table.object.id);
        let _writer = lock.lock().await;
        let columns = target_columns(&table, &copy.columns)?;
        let schema = table.relation()?.schema.clone();
        // A missing default or NOT NULL is judged on the whole row, not while decoding.
        let fields: Vec<_> = columns.iter().map(|c| schema.field(*c).clone().with_nullable(true)).collect();
        let wanted: SchemaRef = Arc::new(arrow::datatypes::Schema::new(fields));
        let mut options = copy.options.clone();
        options.insert("connector".into(), "file".into());
        options.insert("path".into(), copy.path.clone());
        let connector = open_source(&options, None, Some(wanted.clone()), &engine.base_dir, engine.clock.clone())?;
        if !connector.bounded() {
            return Err(SpateError::invalid("COPY reads a file to its end; mode 'watch' has none"));
        }
        let on_error = OnError::of(&options)?;
        let name: Arc<str> = format!("COPY {}", table.name()).into();
        // All or nothing: rows are read first and written as one delta.
        let mut batches = Vec::new();
        let projection: Vec<usize> = (0..columns.len()).collect();
        for split in connector.splits(true, 1)? {
            let mut reader = connector.open(&split, split.start, &projection)?;
            loop {
                match reader.poll(8192, None)? {
                    Polled::Batch { rows, dead, .. } => {
                        if !dead.is_empty() {
                            let failed = on_error.check(&name, &dead);
                            engine.worker.file_dead_letters(&name, dead);
                            failed?;
                        }
                        batches.push(rows);
                        tokio::task::yield_now().await;
                    }
                    Polled::Pending(d) => tokio::time::sleep(d).await,
                    Polled::End => break,
                }
            }
        }
        let rows = self.complete_rows(&table, &columns, &wanted, batches).await?;
        self.write(&table, rows, table.details()?.on_conflict)
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

fn latest_time(rows: &RecordBatch, column: usize) -> Option<i64> {
    arrow::compute::max(rows.column(column).as_primitive_opt::<TimestampMicrosecondType>()?)
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

/// Puts the columns' defaults where VALUES says `DEFAULT`.
fn fill_defaults(query: &mut Query, columns: &[usize], details: &TableDetails) {
    let ast::SetExpr::Values(values) = query.body.as_mut() else { return };
    for row in &mut values.rows {
        for (cell, c) in row.content.iter_mut().zip(columns) {
            let said = matches!(cell, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"));
            if said {
                let default = details.columns.get(*c).and_then(|d| d.default.clone());
                *cell = default.unwrap_or_else(|| ast::Expr::Value(ast::Value::Null.into()));
            }
        }
    }
}

/// A plain decimal number as written, with its sign.
fn number_text(e: &ast::Expr) -> Option<String> {
    match e {
        ast::Expr::Value(v) => match &v.value {
            ast::Value::Number(n, _) if !n.contains(['e', 'E']) => Some(n.replace('_', "")),
            _ => None,
        },
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => {
            number_text(expr).filter(|n| !n.starts_with('-')).map(|n| format!("-{n}"))
        }
        _ => None,
    }
}

/// Gives literals among the VALUES of an INSERT the type of their column: numbers for a numeric
/// column, which would lose digits as floats, and all values where quoted ones stand among
/// others: `VALUES (1), ('NaN')` into a float column is not about integers.
fn type_literals(query: &mut Query, columns: &[usize], schema: &SchemaRef) -> Result<()> {
    let ast::SetExpr::Values(values) = query.body.as_mut() else { return Ok(()) };
    let literal = |e: &ast::Expr, null: bool| match e {
        ast::Expr::Value(v) => match &v.value {
            ast::Value::SingleQuotedString(_) => !null,
            ast::Value::Null => null,
            _ => false,
        },
        _ => false,
    };
    for (k, c) in columns.iter().enumerate() {
        let decimal = schema.field(*c).data_type().is_decimal();
        if decimal {
            for cell in values.rows.iter_mut().filter_map(|r| r.content.get_mut(k)) {
                if let Some(n) = number_text(cell) {
                    *cell = ast::Expr::Value(ast::Value::SingleQuotedString(n).into());
                }
            }
        }
        let cells = || values.rows.iter().filter_map(|r| r.content.get(k));
        let quoted = cells().any(|e| literal(e, false));
        // A column of nothing but quoted literals is cast as a whole.
        if !quoted || cells().all(|e| literal(e, false) || literal(e, true)) {
            continue;
        }
        let to = spate_planner::sql::types::display(schema.field(*c).data_type());
        let sample = parse_query(&format!("SELECT CAST(NULL AS {to})"))?;
        let ast::SetExpr::Select(select) = *sample.body else { continue };
        let Some(ast::SelectItem::UnnamedExpr(cast)) = select.projection.into_iter().next() else { continue };
        for cell in values.rows.iter_mut().filter_map(|r| r.content.get_mut(k)) {
            let text = cell.clone();
            *cell = cast.clone();
            if let ast::Expr::Cast { expr, .. } = cell {
                **expr = text;
            }
        }
    }
    Ok(())
}

fn cast_column(array: &ArrayRef, to: &DataType, column: &str) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    cast_with_options(array, to, &options).map_err(|e| {
        let from = spate_planner::sql::types::display(array.data_type());
        let to = spate_planner::sql::types::display(to);
        SpateError::new(ErrorKind::Type, format!("column \"{column}\" is of type {to}, the value is {from}: {e}"))
    })
}

/// `SELECT columns…, exprs… FROM table WHERE …`.
fn dml_query(
    table: &Table,
    name: &Name,
    alias: Option<&str>,
    exprs: &[String],
    selection: Option<&spate_planner::sql::Expr>,
) -> Result<Query> {
    let object = &table.object;
    let full = format!("{}.{}", quote(&object.schema), quote(&object.name));
    let called = quote(alias.unwrap_or(&name.name));
    let mut items: Vec<String> = table
        .relation()?
        .schema
        .fields()
        .iter()
        .enumerate()
        .map(|(i, f)| format!("{called}.{} AS __c{i}", quote(f.name())))
        .collect();
    items.extend(exprs.iter().enumerate().map(|(i, e)| format!("({e}) AS __n{i}")));
    let mut text = format!("SELECT {} FROM {full} AS {called}", items.join(", "));
    if let Some(s) = selection {
        text.push_str(&format!(" WHERE {s}"));
    }
    parse_query(&text).map(|q| *q)
}

fn as_table(table: &Table, rows: &RecordBatch) -> Result<RecordBatch> {
    Ok(RecordBatch::try_new(table.relation()?.schema.clone(), rows.columns().to_vec())?)
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

fn key_columns(rows: &RecordBatch, key: &[usize]) -> Vec<ArrayRef> {
    key.iter().map(|k| rows.column(*k).clone()).collect()
}

fn key_rows(rows: &RecordBatch, key: &[usize]) -> Result<arrow::row::Rows> {
    let columns = key_columns(rows, key);
    let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    Ok(RowConverter::new(fields)?.convert_columns(&columns)?)
}

fn duplicate(table: &Table, key: &[usize], rows: &RecordBatch, row: usize, why: &str) -> SpateError {
    let options = FormatOptions::default().with_null("NULL");
    let text = |c: usize| {
        ArrayFormatter::try_new(rows.column(c), &options).map_or_else(|_| "?".to_owned(), |f| f.value(row).to_string())
    };
    let schema = rows.schema();
    let names: Vec<&str> = key.iter().map(|k| schema.field(*k).name().as_str()).collect();
    let values: Vec<String> = key.iter().map(|k| text(*k)).collect();
    SpateError::new(
        ErrorKind::Constraint,
        format!("duplicate key value violates the primary key of \"{}\"", table.name()),
    )
    .with_hint(format!("key ({})=({}) {why}", names.join(", "), values.join(", ")))
}

/// Rows to add and rows to take away so that the primary key holds.
fn resolve_conflicts(
    table: &Table,
    key: &[usize],
    rows: RecordBatch,
    on_conflict: OnConflict,
) -> Result<(RecordBatch, RecordBatch)> {
    let encoded = key_rows(&rows, key)?;
    // Which of several new rows with one key counts: the last that overwrites, else the first.
    let mut chosen: HashMap<&[u8], usize> = HashMap::with_capacity(rows.num_rows());
    let mut keep = vec![true; rows.num_rows()];
    for i in 0..rows.num_rows() {
        if let Some(before) = chosen.get(encoded.row(i).data()).copied() {
            match on_conflict {
                OnConflict::Error => {
                    return Err(duplicate(table, key, &rows, i, "is given twice"));
                }
                OnConflict::Nothing => {
                    keep[i] = false;
                    continue;
                }
                OnConflict::Overwrite => keep[before] = false,
            }
        }
        chosen.insert(encoded.row(i).data(), i);
    }
    drop(chosen);
    let rows = if keep.contains(&false) { filter_record_batch(&rows, &BooleanArray::from(keep))? } else { rows };
    let (hits, old) = table.store.find(&key_columns(&rows, key))?;
    match (on_conflict, hits.first()) {
        (_, None) => Ok((rows, old)),
        (OnConflict::Error, Some(i)) => Err(duplicate(table, key, &rows, *i as usize, "already exists")),
        (OnConflict::Overwrite, _) => Ok((rows, old)),
        (OnConflict::Nothing, _) => {
            let mut keep = vec![true; rows.num_rows()];
            hits.iter().for_each(|i| keep[*i as usize] = false);
            let none = RecordBatch::new_empty(old.schema());
            Ok((filter_record_batch(&rows, &BooleanArray::from(keep))?, none))
        }
    }
}

/// An UPDATE of key columns must not make two rows alike.
fn check_new_keys(table: &Table, key: &[usize], old: &RecordBatch, new: &RecordBatch) -> Result<()> {
    let encoded = key_rows(new, key)?;
    let mut seen = std::collections::HashSet::with_capacity(new.num_rows());
    for i in 0..new.num_rows() {
        if !seen.insert(encoded.row(i).data().to_vec()) {
            return Err(duplicate(table, key, new, i, "would be there twice"));
        }
    }
    let (hits, found) = table.store.find(&key_columns(new, key))?;
    let old_keys = key_rows(old, key)?;
    let gone: std::collections::HashSet<Vec<u8>> =
        (0..old.num_rows()).map(|i| old_keys.row(i).data().to_vec()).collect();
    let there = key_rows(&found, key)?;
    for (k, i) in hits.iter().enumerate() {
        if !gone.contains(there.row(k).data()) {
            return Err(duplicate(table, key, new, *i as usize, "already exists"));
        }
    }
    Ok(())
}
