//! The catalog as it is stored: of each object the statement that makes it, and what a statement does not say.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use spate_engine::plan::ObjectId;
use spate_engine::types::{Epoch, Result, SpateError};
use spate_planner::catalog::{Catalog, Object, ObjectKind, RESERVED_SCHEMAS};

use super::meta::{Batch, Meta};

const OBJECTS: &str = "object/";
const SCHEMAS: &str = "schema/";

/// An object, as it is made again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredObject {
    /// Its identity.
    pub id: ObjectId,
    /// The statement that makes it.
    pub sql: String,
    /// Schemas in which the names in it are looked for.
    pub search_path: Vec<String>,
    /// Tasks per fragment.
    pub parallelism: usize,
    /// First epoch of its job.
    pub start: Epoch,
    /// Objects that it needs.
    pub depends_on: Vec<ObjectId>,
    /// Columns that were inferred, as an Arrow schema.
    columns: Option<Vec<u8>>,
    /// Comments on it and its columns.
    pub comments: BTreeMap<String, String>,
}

impl StoredObject {
    /// Columns that are not to be inferred again.
    pub fn columns(&self) -> Result<Option<SchemaRef>> {
        let Some(bytes) = &self.columns else { return Ok(None) };
        Ok(Some(StreamReader::try_new(Cursor::new(bytes), None)?.schema()))
    }
}

/// What is there beside an object: where its statement ran, and when its job began.
#[derive(Debug, Clone, Default)]
pub struct MadeWith {
    /// Schemas in which the names in it are looked for.
    pub search_path: Vec<String>,
    /// Tasks per fragment.
    pub parallelism: usize,
    /// First epoch of its job.
    pub start: Epoch,
}

/// All that is stored.
#[derive(Debug, Default)]
pub struct StoredCatalog {
    /// Schemas that were made.
    pub schemas: Vec<String>,
    /// Objects, each after those that it needs.
    pub objects: Vec<StoredObject>,
}

fn object_key(id: ObjectId) -> String {
    format!("{OBJECTS}{id:020}")
}

fn schemas(meta: &Meta) -> Result<Vec<String>> {
    let names = meta.names(SCHEMAS)?;
    Ok(names.into_iter().filter_map(|n| n.strip_prefix(SCHEMAS).map(str::to_owned)).collect())
}

/// All objects, by their ids.
fn objects(meta: &Meta) -> Result<Vec<StoredObject>> {
    let parsed = |(name, bytes): (String, Vec<u8>)| {
        serde_json::from_slice(&bytes)
            .map_err(|e| SpateError::internal(format!("the catalog entry {name} is damaged: {e}")))
    };
    meta.scan(OBJECTS)?.into_iter().map(parsed).collect()
}

/// Reads the catalog.
pub fn load(meta: &Meta) -> Result<StoredCatalog> {
    let mut objects = objects(meta)?;
    let known: BTreeSet<ObjectId> = objects.iter().map(|o| o.id).collect();
    // An object may have come to need one that was made later.
    let mut ordered = Vec::with_capacity(objects.len());
    let mut made: BTreeSet<ObjectId> = BTreeSet::new();
    while !objects.is_empty() {
        let ready = |o: &StoredObject| o.depends_on.iter().all(|d| made.contains(d) || !known.contains(d));
        let at = objects.iter().position(ready).ok_or_else(|| SpateError::internal("the catalog goes in a circle"))?;
        let next = objects.remove(at);
        made.insert(next.id);
        ordered.push(next);
    }
    Ok(StoredCatalog { schemas: schemas(meta)?, objects: ordered })
}

fn stored(object: &Object, made: MadeWith) -> Result<StoredObject> {
    let mut columns = None;
    if matches!(object.kind, ObjectKind::Source | ObjectKind::Table)
        && object.has_connector()
        && let Some(relation) = &object.relation
    {
        let schema = Schema::new(relation.schema.fields().clone());
        columns = Some(StreamWriter::try_new(Vec::new(), &schema)?.into_inner()?);
    }
    Ok(StoredObject {
        id: object.id,
        sql: object.sql.clone(),
        search_path: made.search_path,
        parallelism: made.parallelism,
        start: made.start,
        depends_on: object.depends_on.clone(),
        columns,
        comments: object.comments.clone(),
    })
}

/// What makes what is stored what the catalog is. `made` tells of objects that are new.
pub fn changes(meta: &Meta, catalog: &Catalog, made: &dyn Fn(ObjectId) -> MadeWith) -> Result<Batch> {
    let known: BTreeMap<ObjectId, StoredObject> = objects(meta)?.into_iter().map(|o| (o.id, o)).collect();
    let mut batch = Batch::default();
    let mut there = BTreeSet::new();
    for object in catalog.in_creation_order() {
        there.insert(object.id);
        let made = match known.get(&object.id) {
            Some(o) => MadeWith { search_path: o.search_path.clone(), parallelism: o.parallelism, start: o.start },
            None => made(object.id),
        };
        let entry = stored(object, made)?;
        if known.get(&object.id) != Some(&entry) {
            let bytes = serde_json::to_vec(&entry).map_err(|e| SpateError::internal(format!("an object: {e}")))?;
            batch.puts.push((object_key(object.id), bytes));
        }
    }
    batch.deletes.extend(known.keys().filter(|id| !there.contains(id)).map(|id| object_key(*id)));
    let schemas: BTreeSet<&str> = catalog.schemas().filter(|s| !RESERVED_SCHEMAS.contains(s)).collect();
    let before = self::schemas(meta)?;
    let old: BTreeSet<&str> = before.iter().map(String::as_str).collect();
    batch.puts.extend(schemas.difference(&old).map(|s| (format!("{SCHEMAS}{s}"), Vec::new())));
    batch.deletes.extend(old.difference(&schemas).map(|s| format!("{SCHEMAS}{s}")));
    Ok(batch)
}
