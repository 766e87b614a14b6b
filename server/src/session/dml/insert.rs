//! INSERT and COPY: rows of the whole table from what was given.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use spate_engine::connector::{OnError, Polled, open_source};
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::bind::is_random;
use spate_planner::sql::parse_query;
use spate_planner::sql::statement::{Copy, Insert};

use super::values::{fill_defaults, only_defaults, type_literals};
use super::{Changed, Returning, Table, cast_column, check_not_null, target_columns};
use crate::session::Session;

impl Session {
    pub(in crate::session) async fn insert(&mut self, insert: Insert) -> Result<Changed> {
        let (table, _writer) = self.lock_table(&insert.table, "insert into").await?;
        let columns = target_columns(&table, &insert.columns)?;
        let schema = &table.relation()?.schema;
        let rows = match insert.source {
            None => {
                let given = Arc::new(Schema::empty());
                let options = RecordBatchOptions::new().with_row_count(Some(1));
                let one = RecordBatch::try_new_with_options(given.clone(), vec![], &options)?;
                self.complete_rows(&table, &[], &given, vec![one]).await?
            }
            Some(mut source) => {
                let defaults = only_defaults(&source);
                fill_defaults(&mut source, &columns, table.details()?);
                type_literals(&mut source, &columns, schema)?;
                let (given_schema, batches) = self.rows_with(&source, Some(&table), None).await?;
                let given = given_schema.fields().len();
                if given > columns.len() || (!insert.columns.is_empty() && given < columns.len()) {
                    let (more, less) = if given > columns.len() {
                        ("expressions", "target columns")
                    } else {
                        ("target columns", "expressions")
                    };
                    return Err(SpateError::new(ErrorKind::Syntax, format!("INSERT has more {more} than {less}"))
                        .with_hint(format!(
                            "\"{}\" takes {} columns, {given} were given",
                            table.name(),
                            columns.len()
                        )));
                }
                for (k, c) in columns.iter().take(given).enumerate() {
                    let generated = table.details()?.columns.get(*c).is_some_and(|c| c.generated.is_some());
                    if generated && !defaults.get(k).copied().unwrap_or(false) {
                        let name = schema.field(*c).name();
                        return Err(SpateError::invalid(format!(
                            "cannot insert a value into column \"{name}\": it is a generated column"
                        ))
                        .with_hint("leave it out, or write DEFAULT"));
                    }
                }
                self.complete_rows(&table, &columns[..given], &given_schema, batches).await?
            }
        };
        let called = insert.alias.as_deref().unwrap_or(&insert.table.name);
        let returning = Returning { called, list: &insert.returning };
        self.write(&table, rows, table.details()?.on_conflict, returning).await
    }

    /// Rows of the whole table from rows of some columns: defaults filled in, types cast.
    pub(super) async fn complete_rows(
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
                        // What differs from call to call is computed for each row.
                        let each = n > 1 && is_random(d);
                        let rows = if each { n } else { 1 };
                        let from = if each { format!(" FROM generate_series(1, {n})") } else { String::new() };
                        let query = parse_query(&format!("SELECT {d}{from}"))?;
                        let (given, b) = self.rows_with(&query, None, None).await?;
                        let values = concat_batches(&given, &b)?;
                        if values.num_rows() != rows {
                            return Err(SpateError::internal("a default without a value"));
                        }
                        let values = cast_column(values.column(0), field.data_type(), field.name())?;
                        match each {
                            true => values,
                            false => arrow::compute::take(&values, &UInt32Array::from(vec![0; n]), None)?,
                        }
                    }
                    None => new_null_array(field.data_type(), n),
                },
            };
            out.push(array);
        }
        Self::generate(table, &mut out, n)?;
        for (array, field) in out.iter().zip(schema.fields()) {
            check_not_null(array, field, table)?;
        }
        Ok(RecordBatch::try_new(schema.clone(), out)?)
    }

    pub(in crate::session) async fn copy(&mut self, copy: Copy) -> Result<Changed> {
        let engine = self.engine.clone();
        let (table, _writer) = self.lock_table(&copy.table, "copy into").await?;
        let mut columns = target_columns(&table, &copy.columns)?;
        let details = table.details()?;
        let generated = |c: &usize| details.columns.get(*c).is_some_and(|c| c.generated.is_some());
        if copy.columns.is_empty() {
            columns.retain(|c| !generated(c));
        } else if let Some(c) = columns.iter().find(|c| generated(c)) {
            let name = details.columns.get(*c).map_or("", |c| c.name.as_str());
            return Err(SpateError::invalid(format!("column \"{name}\" is a generated column"))
                .with_hint("generated columns cannot be used in COPY"));
        }
        let schema = table.relation()?.schema.clone();
        // A missing default or NOT NULL is judged on the whole row, not while decoding.
        let fields: Vec<_> = columns.iter().map(|c| schema.field(*c).clone().with_nullable(true)).collect();
        let wanted: SchemaRef = Arc::new(Schema::new(fields));
        let mut options = copy.options.clone();
        options.insert("connector".into(), "file".into());
        options.insert("path".into(), copy.path.clone());
        let connector = open_source(&options, None, Some(wanted.clone()), &[], &engine.base_dir, engine.clock.clone())?;
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
            let mut before = 0;
            loop {
                match reader.poll(8192, None)? {
                    Polled::Batch { rows, dead, .. } => {
                        if !dead.is_empty() {
                            let failed = on_error.check(&name, &dead);
                            engine.worker.file_dead_letters(&name, dead);
                            failed?;
                        }
                        for (array, column) in rows.columns().iter().zip(&columns) {
                            check_not_null(array, schema.field(*column), &table).map_err(|e| {
                                let null = (0..array.len()).find(|i| array.is_null(*i)).unwrap_or_default();
                                e.context(format!("row {} of {}", before + null + 1, split.id))
                            })?;
                        }
                        before += rows.num_rows();
                        batches.push(rows);
                        tokio::task::yield_now().await;
                    }
                    Polled::Pending(d) => tokio::time::sleep(d).await,
                    Polled::End => break,
                }
            }
        }
        let rows = self.complete_rows(&table, &columns, &wanted, batches).await?;
        self.write(&table, rows, details.on_conflict, Returning { called: "", list: &[] }).await
    }
}
