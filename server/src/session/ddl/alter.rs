//! ALTER and COMMENT ON.
//!
//! Queries are stored as text. So before anything changes, the query of everything that depends
//! on the object is bound against the catalog as it would be: it must mean the same plan as
//! before, else the statement is refused and names the dependent. Running jobs go on: they know
//! relations by id and columns by identity.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};
use spate_engine::plan::{ObjectId, WatermarkSpec};
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::bind::{BindMode, bind_columns, bind_error, bind_query, relations_of};
use spate_planner::catalog::{Catalog, Object, ObjectKind, Relation, TableColumn, TableDetails, render};
use spate_planner::rules::guard::ErrorCounter;
use spate_planner::rules::optimize_continuous;
use spate_planner::sql::statement::{Alter, AlterAction, ColumnDef, Comment, Input, Statement};
use spate_planner::sql::{did_you_mean, fold, parse_one, parse_query};

use super::table::check_generated;
use crate::session::resolver::Names;
use crate::session::{Session, still_wanted};

/// Other columns for a table.
struct Columns {
    details: TableDetails,
    /// Functions that defaults call.
    called: Vec<ObjectId>,
    /// For each new column, which old one it is.
    from: Vec<Option<usize>>,
    /// Values of a new column: one for all rows.
    value: Option<ArrayRef>,
    what: String,
}

impl Session {
    pub(in crate::session) async fn alter(&mut self, alter: Alter) -> Result<()> {
        let engine = self.engine.clone();
        let _ddl = engine.ddl.lock().await;
        let resolved = {
            let catalog = engine.catalog.lock();
            catalog.resolve_kind(&self.variables.search_path, &alter.name, alter.kind).cloned()
        };
        let object = match resolved {
            Err(e) if alter.if_exists && e.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        match alter.action {
            AlterAction::Rename(name) => self.rename(&object, object.schema.clone(), name.into()).await,
            AlterAction::SetSchema(schema) => self.rename(&object, schema.into(), object.name.clone()).await,
            action => self.alter_columns(&object, action).await,
        }
    }

    async fn rename(&mut self, object: &Arc<Object>, schema: Arc<str>, name: Arc<str>) -> Result<()> {
        if (&schema, &name) == (&object.schema, &object.name) {
            return Ok(());
        }
        let mut new = object.as_ref().clone();
        match &object.index {
            Some(_) if schema != object.schema => {
                return Err(SpateError::invalid(format!("{} is in the schema of its table", object.display()))
                    .with_hint("ALTER TABLE … SET SCHEMA takes its indexes along"));
            }
            Some(_) => {}
            None => new.sql = render::renamed(&object.sql, &schema, &name)?,
        }
        if let Some(r) = &mut new.relation {
            r.schema_name = schema.clone();
            r.name = name.clone();
        }
        (new.schema, new.name) = (schema, name);
        if let (Some(details), Some(r)) = (&new.table, &new.relation)
            && !new.has_connector()
        {
            // They may name their table.
            check_generated(&new.name, details, &r.schema)?;
        }
        let before = self.engine.catalog.lock().clone();
        if let Some(on) = new.index.as_ref().and_then(|i| before.get(i.on)) {
            new.sql = render::create_index(&new, on)?;
        }
        let mut after = before.clone();
        after.replace(new.clone())?;
        self.check_dependents(&before, &after, object, &format!("rename {}", object.display()))?;
        still_wanted().await;
        let new = self.engine.catalog.lock().replace(new)?;
        self.indexes_follow(&new, None)?;
        self.engine.worker.rename_job(new.id, new.display_name());
        Ok(())
    }

    async fn alter_columns(&mut self, object: &Arc<Object>, action: AlterAction) -> Result<()> {
        if object.has_connector() {
            return Err(SpateError::unsupported(format!(
                "the columns of \"{}\" cannot be altered: they are its connector's",
                object.display_name()
            ))
            .with_hint("create it anew"));
        }
        let (Some(relation), Some(details)) = (&object.relation, &object.table) else {
            return Err(SpateError::internal("a table without columns"));
        };
        let columns = match action {
            AlterAction::AddColumn { column, if_not_exists } => {
                if details.columns.iter().any(|c| c.name == column.name) {
                    if if_not_exists {
                        return Ok(());
                    }
                    return Err(SpateError::new(
                        ErrorKind::AlreadyExists,
                        format!("column \"{}\" of \"{}\" already exists", column.name, object.display_name()),
                    ));
                }
                self.added(object, details, *column).await?
            }
            AlterAction::DropColumn { name, if_exists } => {
                if if_exists && !details.columns.iter().any(|c| c.name == name) {
                    return Ok(());
                }
                dropped(object, relation, details, &name)?
            }
            AlterAction::RenameColumn { from, to } => renamed_column(object, details, &from, to)?,
            AlterAction::Rename(_) | AlterAction::SetSchema(_) => {
                return Err(SpateError::internal("a rename changes no columns"));
            }
        };
        let new = with_columns(object, relation, &columns)?;
        if let Some(r) = &new.relation {
            check_generated(&new.name, &columns.details, &r.schema)?;
        }
        let before = self.engine.catalog.lock().clone();
        let mut after = before.clone();
        after.replace(new.clone())?;
        self.check_dependents(&before, &after, object, &columns.what)?;
        still_wanted().await;
        self.switch(new, &columns).await
    }

    /// A column at the end, with its value for the rows that are there.
    async fn added(&self, object: &Object, details: &TableDetails, column: ColumnDef) -> Result<Columns> {
        let n = details.columns.len();
        let mut details = details.clone();
        details.columns.push(TableColumn {
            name: column.name,
            data_type: column.data_type,
            nullable: column.nullable,
            default: column.default,
            generated: column.generated,
        });
        let column = &details.columns[n];
        let value = match (&column.default, &column.generated) {
            (_, Some(_)) => None,
            (None, None) => Some(new_null_array(&column.data_type, 1)),
            (Some(_), None) => self.default_value(column).await?.map(|(value, _)| value),
        };
        let what = format!("add column \"{}\" to {}", column.name, object.display());
        let from = (0..n).map(Some).chain([None]).collect();
        let called = self.check_defaults(&details).await?;
        Ok(Columns { details, called, from, value, what })
    }

    /// Gives the table its new columns while nothing reads or writes it.
    async fn switch(&mut self, new: Object, columns: &Columns) -> Result<()> {
        let engine = self.engine.clone();
        let (Some(relation), id) = (new.relation.clone(), new.id) else {
            return Err(SpateError::internal("a table without a relation"));
        };
        let writer = engine.writer(id);
        let _writer = writer.lock().await;
        self.quiesce_at_checkpoint().await?;
        let resume = super::Resume(Some(engine.clone()));
        let store = engine.worker.store(id).ok_or_else(|| SpateError::internal("a table without a store"))?;
        if let Some(name) = engine.worker.catching_up(id) {
            return Err(SpateError::new(
                ErrorKind::Limit,
                format!("\"{}\" cannot be altered while {name} is catching up with it", new.display_name()),
            )
            .with_hint("try again later"));
        }
        let convert = converter(&new, &relation, columns)?;
        store.alter(relation.schema.clone(), relation.key.clone(), &columns.from, &convert)?;
        let new = engine.catalog.lock().replace(new)?;
        self.indexes_follow(&new, Some(&columns.from))?;
        self.store_altered(id).await?;
        drop(resume);
        Ok(())
    }

    /// Refuses a change under which the query of a dependent would mean something else.
    fn check_dependents(&self, before: &Catalog, after: &Catalog, object: &Object, what: &str) -> Result<()> {
        for d in before.all_dependents(object.id) {
            let Some(query) = query_of(d)? else { continue };
            let continuous = d.kind != ObjectKind::View;
            let own = vec![d.schema.to_string(), spate_planner::catalog::DEFAULT_SCHEMA.to_owned()];
            let meaning = |catalog: &Catalog, path: &[String]| -> Result<(String, Vec<u64>)> {
                let names = Names::over(&self.engine, catalog, path);
                let mode = match continuous {
                    true => BindMode::Continuous { errors: ErrorCounter::ignore() },
                    false => BindMode::AdHoc,
                };
                let plan = bind_query(&names, &query, &mode)?;
                let reads = relations_of(&plan)?.iter().map(|r| r.id).collect();
                // Stars are written out in the plan, and the columns that NATURAL joins by; optimized,
                // it has lost the columns that do not matter.
                let shape: Vec<_> = plan.schema().fields().iter().map(|f| (f.name(), f.data_type())).collect();
                let shape = format!("{shape:?}");
                let plan = optimize_continuous(plan.clone()).unwrap_or(plan);
                Ok((format!("{}\n{shape}", plan.display_indent()), reads))
            };
            let path = match meaning(before, &self.variables.search_path) {
                Ok(_) => &self.variables.search_path,
                Err(_) => &own,
            };
            let same = match (meaning(before, path), meaning(after, path)) {
                (Ok(a), Ok(b)) => a == b,
                _ => false,
            };
            if !same {
                return Err(SpateError::new(
                    ErrorKind::DependencyExists,
                    format!("cannot {what} because {} {} depends on it", d.kind, d.display_name()),
                )
                .with_hint("its query would mean something else or nothing; drop it first and create it again"));
            }
        }
        Ok(())
    }

    pub(in crate::session) async fn comment(&mut self, comment: Comment) -> Result<()> {
        let engine = self.engine.clone();
        let _ddl = engine.ddl.lock().await;
        let mut catalog = engine.catalog.lock();
        let path = &self.variables.search_path;
        let object = match comment.kind {
            Some(kind) => catalog.resolve_kind(path, &comment.object, kind)?,
            None => catalog.resolve(path, &comment.object)?,
        };
        let key = match comment.column {
            None => String::new(),
            Some(column) => {
                let known = object.relation.as_ref().is_some_and(|r| r.schema.index_of(&column).is_ok());
                if !known {
                    return Err(no_column(object, &column));
                }
                column
            }
        };
        let mut new = object.as_ref().clone();
        match comment.text.filter(|t| !t.is_empty()) {
            Some(text) => new.comments.insert(key, text),
            None => new.comments.remove(&key),
        };
        catalog.replace(new)?;
        Ok(())
    }
}

fn no_column(object: &Object, name: &str) -> SpateError {
    let e = SpateError::new(
        ErrorKind::NotFound,
        format!("column \"{name}\" of \"{}\" does not exist", object.display_name()),
    );
    let fields = object.relation.iter().flat_map(|r| r.schema.fields().iter());
    match did_you_mean(name, fields.map(|f| f.name().as_str())) {
        Some(near) => e.with_hint(format!("did you mean \"{near}\"?")),
        None => e,
    }
}

/// The query that an object keeps, writes or stands for.
fn query_of(object: &Object) -> Result<Option<spate_planner::sql::Query>> {
    if let Some(text) = object.relation.as_ref().and_then(|r| r.query.as_deref()) {
        return parse_query(text).map(|q| Some(*q));
    }
    if object.kind != ObjectKind::Sink {
        return Ok(None);
    }
    match parse_one(&object.sql)?.statement {
        Statement::CreateSink(s) => match s.input {
            Input::Query { query, .. } => Ok(Some(*query)),
            Input::Relation(name) => parse_query(&format!("SELECT * FROM {}", super::quoted(&name))).map(|q| Some(*q)),
        },
        _ => Ok(None),
    }
}

fn dropped(object: &Object, relation: &Relation, details: &TableDetails, name: &str) -> Result<Columns> {
    let Some(i) = details.columns.iter().position(|c| c.name == name) else { return Err(no_column(object, name)) };
    let part_of = |what: &str| {
        Err(SpateError::new(
            ErrorKind::DependencyExists,
            format!("cannot drop column \"{name}\" of {}: it is {what}", object.display()),
        ))
    };
    if details.columns.len() == 1 {
        return part_of("the only one");
    }
    if details.primary_key.contains(&i) {
        return part_of("part of the primary key");
    }
    if relation.watermark.is_some_and(|w| w.column == i) {
        return part_of("the watermark's column");
    }
    let mut details = details.clone();
    let gone = details.columns.remove(i);
    if let (None, Some(user)) = (&gone.generated, details.columns.iter().find(|c| uses(c, name))) {
        return part_of(&format!("used by the generated column \"{}\"", user.name));
    }
    for k in &mut details.primary_key {
        *k -= usize::from(*k > i);
    }
    let from = (0..=details.columns.len()).filter(|c| *c != i).map(Some).collect();
    let what = format!("drop column \"{name}\" of {}", object.display());
    Ok(Columns { details, called: object.depends_on.clone(), from, value: None, what })
}

fn renamed_column(object: &Object, details: &TableDetails, from: &str, to: String) -> Result<Columns> {
    let Some(i) = details.columns.iter().position(|c| c.name == from) else { return Err(no_column(object, from)) };
    if details.columns.iter().any(|c| c.name == to) {
        return Err(SpateError::new(
            ErrorKind::AlreadyExists,
            format!("column \"{to}\" of \"{}\" already exists", object.display_name()),
        ));
    }
    let mut details = details.clone();
    for c in &mut details.columns {
        if let Some(e) = &mut c.generated {
            let _ = VisitMut::visit(e, &mut Renamer { from, to: &to, found: false });
        }
    }
    let columns = (0..details.columns.len()).map(Some).collect();
    details.columns[i].name = to;
    let what = format!("rename column \"{from}\" of {}", object.display());
    Ok(Columns { details, called: object.depends_on.clone(), from: columns, value: None, what })
}

fn uses(column: &TableColumn, name: &str) -> bool {
    let Some(mut e) = column.generated.clone() else { return false };
    let mut renamer = Renamer { from: name, to: name, found: false };
    let _ = VisitMut::visit(&mut e, &mut renamer);
    renamer.found
}

/// Gives a column another name in expressions over its table.
struct Renamer<'a> {
    from: &'a str,
    to: &'a str,
    found: bool,
}

impl VisitorMut for Renamer<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, e: &mut ast::Expr) -> std::ops::ControlFlow<()> {
        let ident = match e {
            ast::Expr::Identifier(i) => Some(i),
            ast::Expr::CompoundIdentifier(parts) => parts.last_mut(),
            _ => None,
        };
        if let Some(i) = ident
            && fold(i) == self.from
        {
            self.found = true;
            *i = ast::Ident::with_quote('"', self.to);
        }
        std::ops::ControlFlow::Continue(())
    }
}

/// The object with its new columns.
fn with_columns(object: &Object, relation: &Relation, columns: &Columns) -> Result<Object> {
    let fields = columns.details.columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable));
    let moved = |old: usize| columns.from.iter().position(|f| *f == Some(old));
    let lost = || SpateError::internal("a column of the key or watermark got lost");
    let mut relation = relation.clone();
    relation.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    if let Some(key) = &relation.key {
        relation.key = Some(key.iter().map(|k| moved(*k).ok_or_else(lost)).collect::<Result<_>>()?);
    }
    if let Some(w) = relation.watermark {
        relation.watermark = Some(WatermarkSpec { column: moved(w.column).ok_or_else(lost)?, ..w });
    }
    let old_names: Vec<&str> =
        object.relation.iter().flat_map(|r| r.schema.fields()).map(|f| f.name().as_str()).collect();
    let mut new = object.clone();
    new.comments = object
        .comments
        .iter()
        .filter_map(|(name, text)| {
            if name.is_empty() {
                return Some((name.clone(), text.clone()));
            }
            let old = old_names.iter().position(|n| n == name)?;
            let to = columns.details.columns.get(moved(old)?)?;
            Some((to.name.clone(), text.clone()))
        })
        .collect();
    new.relation = Some(relation);
    new.table = Some(columns.details.clone());
    new.depends_on = columns.called.clone();
    new.sql = render::create_table(&new)?;
    Ok(new)
}

/// Makes rows with the new columns of rows with the old ones.
fn converter(
    new: &Object,
    relation: &Relation,
    columns: &Columns,
) -> Result<impl Fn(&RecordBatch) -> Result<RecordBatch> + use<>> {
    let schema: SchemaRef = relation.schema.clone();
    let (base, generated) = columns.details.split_generated(&schema);
    let computed = generated.iter().find(|(i, _)| columns.from.get(*i) == Some(&None));
    let bound = match computed {
        None => None,
        Some((i, e)) => {
            let base_schema = schema.project(&base)?;
            let fields = base_schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
            let base_schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let exprs = [(*e, schema.field(*i).data_type())];
            let bound = bind_columns(&new.name, &base_schema, &exprs, &BindMode::AdHoc)?;
            bound.into_iter().next().map(|e| (e, base_schema))
        }
    };
    let (from, value, name) = (columns.from.clone(), columns.value.clone(), new.display_name());
    Ok(move |rows: &RecordBatch| {
        let n = rows.num_rows();
        let old: Vec<Option<ArrayRef>> = from.iter().map(|f| f.map(|c| rows.column(c).clone())).collect();
        let mut out: Vec<ArrayRef> = Vec::with_capacity(old.len());
        for (i, column) in old.iter().enumerate() {
            out.push(match (column, &value, &bound) {
                (Some(c), _, _) => c.clone(),
                (None, Some(v), _) => arrow::compute::take(v, &UInt32Array::from(vec![0; n]), None)?,
                (None, None, Some((e, base_schema))) => {
                    let given = base.iter().filter_map(|b| old.get(*b).cloned().flatten()).collect();
                    let options = RecordBatchOptions::new().with_row_count(Some(n));
                    let given = RecordBatch::try_new_with_options(base_schema.clone(), given, &options)?;
                    e.evaluate(&given).and_then(|v| v.into_array_of_size(n)).map_err(bind_error)?
                }
                (None, None, None) => new_null_array(schema.field(i).data_type(), n),
            });
        }
        for (array, field) in out.iter().zip(schema.fields()) {
            if !field.is_nullable() && array.null_count() > 0 {
                return Err(SpateError::new(
                    ErrorKind::Constraint,
                    format!("column \"{}\" of \"{name}\" would contain null values", field.name()),
                )
                .with_hint("give it a DEFAULT"));
            }
        }
        Ok(RecordBatch::try_new(schema.clone(), out)?)
    })
}
