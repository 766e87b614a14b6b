//! Finds what a query names: catalog objects along the search path, and system tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parking_lot::Mutex;
use spate_engine::plan::ObjectId;
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::bind::Resolver;
use spate_planner::catalog::{Catalog, Relation, RelationKind, SqlFunction, info};
use spate_planner::sql::{Name, did_you_mean, parse_query};

use super::Engine;

/// Ids of system tables start here.
const SYSTEM: ObjectId = 1 << 60;

const INFORMATION: &[&str] = &["schemata", "tables", "columns", "views"];
const SPATE: &[&str] = &["dead_letters", "late_rows", "query_errors", "jobs", "comments"];

/// Id of the rows that a DML statement is about.
pub const TARGET: ObjectId = SYSTEM - 1;

/// Their name, in a reserved schema so that it hides nothing.
pub const TARGET_NAME: &str = "spate.__target";

/// Whether an id is that of a system table.
pub fn is_system(id: ObjectId) -> bool {
    id >= SYSTEM
}

/// Resolves names against a snapshot of the catalog, and notes what was named.
pub struct Names<'a> {
    engine: &'a Engine,
    catalog: Catalog,
    path: Vec<String>,
    named: Mutex<BTreeSet<ObjectId>>,
    /// What [`TARGET_NAME`] stands for.
    target: Option<Arc<Relation>>,
}

impl<'a> Names<'a> {
    /// Names as of now.
    pub fn new(engine: &'a Engine, path: &[String]) -> Self {
        Self {
            engine,
            catalog: engine.catalog.lock().clone(),
            path: path.to_vec(),
            named: Mutex::default(),
            target: None,
        }
    }

    /// Names in a catalog that may yet be.
    pub fn over(engine: &'a Engine, catalog: &Catalog, path: &[String]) -> Self {
        Self { engine, catalog: catalog.clone(), path: path.to_vec(), named: Mutex::default(), target: None }
    }

    /// The same, and the rows of a DML statement.
    pub fn with(mut self, target: &Relation) -> Self {
        self.target = Some(Arc::new(target.clone()));
        self
    }

    /// The catalog objects that were named, also within views.
    pub fn named(&self) -> Vec<ObjectId> {
        self.named.lock().iter().copied().filter(|id| !is_system(*id)).collect()
    }

    fn system(&self, schema: &str, name: &str) -> Result<Relation> {
        let (names, base): (&[&str], u64) =
            if schema == "spate" { (SPATE, SYSTEM + 100) } else { (INFORMATION, SYSTEM) };
        let Some(i) = names.iter().position(|n| *n == name) else {
            let e = SpateError::new(ErrorKind::NotFound, format!("relation \"{schema}.{name}\" does not exist"));
            return Err(match did_you_mean(name, names.iter().copied()) {
                Some(n) => e.with_hint(format!("did you mean \"{schema}.{n}\"?")),
                None => e.with_hint(format!("schema {schema} has {}", names.join(", "))),
            });
        };
        let id = base + i as u64;
        Ok(Relation {
            id,
            schema_name: schema.into(),
            name: name.into(),
            kind: RelationKind::Table,
            schema: system_rows(self.engine, &self.catalog, id)?.schema(),
            key: None,
            append_only: false,
            watermark: None,
            bounded: true,
            query: None,
        })
    }
}

impl Resolver for Names<'_> {
    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Arc<Relation>> {
        if let Some(target) = &self.target
            && schema.is_some_and(|s| TARGET_NAME.strip_prefix(s).and_then(|n| n.strip_prefix('.')) == Some(name))
        {
            return Ok(target.clone());
        }
        if let Some(s @ ("information_schema" | "spate")) = schema {
            return self.system(s, name).map(Arc::new);
        }
        let name = Name { schema: schema.map(str::to_owned), name: name.to_owned(), position: None };
        let relation = self.catalog.relation(&self.path, &name)?;
        self.named.lock().insert(relation.id);
        Ok(Arc::new(relation.clone()))
    }

    fn function(&self, schema: Option<&str>, name: &str) -> Result<Option<Arc<SqlFunction>>> {
        let Some(object) = self.catalog.function(&self.path, schema, name) else { return Ok(None) };
        self.named.lock().insert(object.id);
        Ok(object.function.clone())
    }

    fn parse_view(&self, view: &Relation) -> Result<spate_planner::sql::Query> {
        let text = view
            .query
            .as_deref()
            .ok_or_else(|| SpateError::internal(format!("view {} has no query", view.display_name())))?;
        parse_query(text).map(|q| *q)
    }
}

/// The rows of a system table now.
pub fn system_rows(engine: &Engine, catalog: &Catalog, id: ObjectId) -> Result<RecordBatch> {
    let n = id - SYSTEM;
    if let Some(name) = usize::try_from(n).ok().and_then(|n| INFORMATION.get(n)) {
        return info::system_table(catalog, "information_schema", name)
            .unwrap_or_else(|| Err(SpateError::internal("no such system table")));
    }
    match SPATE.get(usize::try_from(n.saturating_sub(100)).unwrap_or(usize::MAX)) {
        Some(&"dead_letters") => engine.worker.logs.dead_letters_batch(),
        Some(&"late_rows") => engine.worker.logs.late_rows_batch(),
        Some(&"query_errors") => engine.worker.logs.query_errors_batch(),
        Some(&"jobs") => jobs(engine),
        Some(&"comments") => info::comments(catalog),
        _ => Err(SpateError::internal("no such system table")),
    }
}

/// Schema, name and columns of all system tables.
pub fn system_tables(engine: &Engine, catalog: &Catalog) -> Result<Vec<(&'static str, &'static str, SchemaRef)>> {
    let all = [("information_schema", INFORMATION, SYSTEM), ("spate", SPATE, SYSTEM + 100)];
    let names = all.iter().flat_map(|(schema, names, base)| (*base..).zip(*names).map(|(id, n)| (*schema, *n, id)));
    names.map(|(schema, name, id)| Ok((schema, name, system_rows(engine, catalog, id)?.schema()))).collect()
}

/// `spate.jobs`.
pub fn jobs(engine: &Engine) -> Result<RecordBatch> {
    let jobs = engine.worker.jobs();
    let field = |n: &str, t: DataType| Field::new(n, t, true);
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        field("id", DataType::Int64),
        field("name", DataType::Utf8),
        field("state", DataType::Utf8),
        field("rows_read", DataType::Int64),
        field("ready_since_epoch", DataType::UInt64),
        field("ended", DataType::Boolean),
        field("error", DataType::Utf8),
    ]));
    let state = |s: &crate::worker::JobStatus| match (&s.error, s.ready, s.ended) {
        (Some(_), _, _) => "failed",
        (None, None, _) => "catching up",
        (None, Some(_), true) => "finished",
        (None, Some(_), false) => "running",
    };
    let rows = |m: &Vec<Arc<spate_engine::task::metrics::LeafMetrics>>| {
        m.iter().map(|m| m.rows.load(std::sync::atomic::Ordering::Relaxed) as i64).sum::<i64>()
    };
    Ok(RecordBatch::try_new(
        schema,
        vec![
            Arc::new(jobs.iter().map(|(s, _)| Some(s.id as i64)).collect::<Int64Array>()),
            Arc::new(jobs.iter().map(|(s, _)| Some(s.name.as_str())).collect::<StringArray>()),
            Arc::new(jobs.iter().map(|(s, _)| Some(state(s))).collect::<StringArray>()),
            Arc::new(jobs.iter().map(|(_, m)| Some(rows(m))).collect::<Int64Array>()),
            Arc::new(jobs.iter().map(|(s, _)| s.ready).collect::<UInt64Array>()),
            Arc::new(jobs.iter().map(|(s, _)| Some(s.ended)).collect::<BooleanArray>()),
            Arc::new(jobs.iter().map(|(s, _)| s.error.as_ref().map(ToString::to_string)).collect::<StringArray>()),
        ],
    )?)
}
