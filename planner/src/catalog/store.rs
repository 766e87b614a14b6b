//! The catalog: plain data, cheap to clone, without locks. Every change checks that names
//! stay unique and that nothing loses what it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spate_engine::plan::ObjectId;
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::depend;
use super::info;
use super::object::{Object, ObjectKind, function_key};
use super::relation::Relation;
use crate::sql::statement::{Drop, DropKind};
use crate::sql::{Name, did_you_mean};

/// Where names without a schema are made.
pub const DEFAULT_SCHEMA: &str = "public";

/// Schemas that users cannot write to.
pub const RESERVED_SCHEMAS: &[&str] = &["information_schema", "spate"];

/// Everything that exists. Cloning shares the objects.
#[derive(Debug, Clone)]
pub struct Catalog {
    schemas: BTreeSet<String>,
    objects: BTreeMap<ObjectId, Arc<Object>>,
    /// Ids by schema, then name.
    names: BTreeMap<String, BTreeMap<String, ObjectId>>,
    next_id: ObjectId,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new()
    }
}

impl Catalog {
    /// An empty catalog: the default schema and the reserved ones.
    pub fn new() -> Self {
        let schemas = RESERVED_SCHEMAS.iter().chain(&[DEFAULT_SCHEMA]).map(|s| s.to_string()).collect();
        Self { schemas, objects: BTreeMap::new(), names: BTreeMap::new(), next_id: 1 }
    }

    // --- schemas ---

    /// Names of all schemas, sorted.
    pub fn schemas(&self) -> impl Iterator<Item = &str> {
        self.schemas.iter().map(String::as_str)
    }

    /// Makes a schema. True if it is new, false if it was there and that is all right.
    pub fn create_schema(&mut self, name: &str, if_not_exists: bool) -> Result<bool> {
        if self.schemas.contains(name) {
            return if if_not_exists {
                Ok(false)
            } else {
                Err(SpateError::new(ErrorKind::AlreadyExists, format!("schema \"{name}\" already exists")))
            };
        }
        self.schemas.insert(name.to_string());
        Ok(true)
    }

    /// Drops a schema and returns what went with it, dependents first. Without `cascade`
    /// it must be empty; with it, objects of other schemas that read this one's go too.
    pub fn drop_schema(&mut self, name: &str, cascade: bool) -> Result<Vec<Arc<Object>>> {
        self.check_schema(name, None)?;
        if RESERVED_SCHEMAS.contains(&name) || name == DEFAULT_SCHEMA {
            return Err(SpateError::unsupported(format!("schema \"{name}\" cannot be dropped")));
        }
        let inside: Vec<ObjectId> = self.names.get(name).map(|n| n.values().copied().collect()).unwrap_or_default();
        if !inside.is_empty() && !cascade {
            let mut names: Vec<String> = inside
                .iter()
                .filter_map(|id| self.objects.get(id))
                .map(|o| format!("{} {}", o.kind, o.display_name()))
                .collect();
            names.sort();
            return Err(SpateError::new(
                ErrorKind::DependencyExists,
                format!("cannot drop schema \"{name}\" because it is not empty: it has {}", names.join(", ")),
            )
            .with_hint("use DROP SCHEMA … CASCADE to drop what is in it too"));
        }
        let order = depend::cascade(&self.objects, &inside);
        let removed = self.take(&order);
        self.schemas.remove(name);
        self.names.remove(name);
        Ok(removed)
    }

    fn check_schema(&self, name: &str, position: Option<(u64, u64)>) -> Result<()> {
        if self.schemas.contains(name) {
            return Ok(());
        }
        let error = SpateError::new(ErrorKind::NotFound, format!("schema \"{name}\" does not exist"));
        let error = match did_you_mean(name, self.schemas()) {
            Some(near) => error.with_hint(format!("did you mean \"{near}\"?")),
            None => error,
        };
        Err(place(error, position))
    }

    // --- objects ---

    /// An id that no object has had.
    pub fn allocate_id(&mut self) -> ObjectId {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// An id that an object has had before and is to have again.
    pub fn reserve_id(&mut self, id: ObjectId) {
        self.next_id = self.next_id.max(id + 1);
    }

    /// The schema and name that a `CREATE` of `name` makes: the first schema of the path
    /// unless the name says another. Fails if the schema is missing or reserved, or if the
    /// name is taken.
    pub fn new_name(&self, search_path: &[String], name: &Name) -> Result<(Arc<str>, Arc<str>)> {
        let (schema, new) = self.place_of(search_path, name)?;
        self.check_free(&schema, &new).map_err(|e| place(e, name.position))?;
        Ok((schema, new))
    }

    /// As [`Self::new_name`], but the name may be taken.
    pub fn place_of(&self, search_path: &[String], name: &Name) -> Result<(Arc<str>, Arc<str>)> {
        let schema = match &name.schema {
            Some(schema) => schema.as_str(),
            None => {
                search_path.iter().map(String::as_str).find(|s| self.schemas.contains(*s)).unwrap_or(DEFAULT_SCHEMA)
            }
        };
        self.check_writable(schema).map_err(|e| place(e, name.position))?;
        Ok((schema.into(), name.name.as_str().into()))
    }

    fn check_writable(&self, schema: &str) -> Result<()> {
        self.check_schema(schema, None)?;
        if RESERVED_SCHEMAS.contains(&schema) {
            return Err(SpateError::unsupported(format!("schema \"{schema}\" is read-only")));
        }
        Ok(())
    }

    fn check_free(&self, schema: &str, name: &str) -> Result<()> {
        self.check_writable(schema)?;
        match self.lookup(schema, name) {
            Some(taken) => Err(SpateError::new(
                ErrorKind::AlreadyExists,
                format!(
                    "{} \"{}\" already exists",
                    match taken.kind {
                        ObjectKind::Sink => "sink",
                        ObjectKind::Function => "function",
                        _ => "relation",
                    },
                    name
                ),
            )),
            None => Ok(()),
        }
    }

    /// Adds an object. All it depends on must exist, with lower ids.
    pub fn add(&mut self, object: Object) -> Result<Arc<Object>> {
        self.check_free(&object.schema, &object.key())?;
        if self.objects.contains_key(&object.id) {
            return Err(SpateError::internal(format!("object id {} is taken", object.id)));
        }
        if let Some(missing) = object.depends_on.iter().find(|d| **d >= object.id || !self.objects.contains_key(d)) {
            return Err(SpateError::internal(format!(
                "{} depends on object {missing}, which is not there",
                object.name
            )));
        }
        if object.kind.relation_kind() != object.relation.as_ref().map(|r| r.kind) {
            return Err(SpateError::internal(format!("{} {} has the wrong relation", object.kind, object.name)));
        }
        let object = Arc::new(object);
        self.next_id = self.next_id.max(object.id.saturating_add(1));
        self.names.entry(object.schema.to_string()).or_default().insert(object.key(), object.id);
        self.objects.insert(object.id, Arc::clone(&object));
        Ok(object)
    }

    /// Puts another form of an object in its place: other columns, another name or comment.
    pub fn replace(&mut self, object: Object) -> Result<Arc<Object>> {
        let Some(old) = self.objects.get(&object.id).cloned() else {
            return Err(SpateError::new(ErrorKind::NotFound, format!("object {} does not exist", object.id)));
        };
        if (&old.schema, &old.name) != (&object.schema, &object.name) {
            self.check_free(&object.schema, &object.key())?;
            if let Some(names) = self.names.get_mut(&*old.schema) {
                names.remove(&old.key());
            }
            self.names.entry(object.schema.to_string()).or_default().insert(object.key(), object.id);
        }
        let object = Arc::new(object);
        self.objects.insert(object.id, Arc::clone(&object));
        Ok(object)
    }

    /// All objects that depend on `id`, directly or not, by rising id.
    pub fn all_dependents(&self, id: ObjectId) -> Vec<&Arc<Object>> {
        let mut ids = depend::cascade(&self.objects, &[id]);
        ids.reverse();
        ids.iter().filter(|i| **i != id).filter_map(|i| self.objects.get(i)).collect()
    }

    /// Removes objects and, with `cascade`, all that depends on them; returns what went,
    /// dependents first. Without it, fails with `DependencyExists` if there is more.
    pub fn remove(&mut self, ids: &[ObjectId], cascade: bool) -> Result<Vec<Arc<Object>>> {
        if let Some(missing) = ids.iter().find(|id| !self.objects.contains_key(id)) {
            return Err(SpateError::new(ErrorKind::NotFound, format!("object {missing} does not exist")));
        }
        let what: Vec<String> = ids
            .iter()
            .filter_map(|id| self.objects.get(id))
            .map(|o| format!("{} {}", o.kind, o.display_name()))
            .collect();
        let order = depend::drop_order(&self.objects, ids, cascade, &what.join(", "))?;
        Ok(self.take(&order))
    }

    fn take(&mut self, ids: &[ObjectId]) -> Vec<Arc<Object>> {
        let mut out = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(object) = self.objects.remove(id) else { continue };
            if let Some(names) = self.names.get_mut(&*object.schema) {
                names.remove(&object.key());
            }
            out.push(object);
        }
        out
    }

    /// Does what `DROP` says, wholly or not at all; returns what went, dependents first.
    pub fn apply_drop(&mut self, search_path: &[String], drop: &Drop) -> Result<Vec<Arc<Object>>> {
        let missing = |e: &SpateError| drop.if_exists && e.kind() == ErrorKind::NotFound;
        if drop.kind == DropKind::Schema {
            let mut next = self.clone();
            let mut removed = Vec::new();
            for name in &drop.names {
                match next.drop_schema(&name.name, drop.cascade) {
                    Ok(gone) => removed.extend(gone),
                    Err(e) if missing(&e) => {}
                    Err(e) => return Err(place(e, name.position)),
                }
            }
            *self = next;
            return Ok(removed);
        }
        let mut ids = Vec::with_capacity(drop.names.len());
        for name in &drop.names {
            match self.resolve_kind(search_path, name, drop.kind) {
                Ok(object) if ids.contains(&object.id) => {}
                Ok(object) => ids.push(object.id),
                Err(e) if missing(&e) => {}
                Err(e) => return Err(e),
            }
        }
        self.remove(&ids, drop.cascade)
    }

    // --- looking up ---

    /// An object by id.
    pub fn get(&self, id: ObjectId) -> Option<&Arc<Object>> {
        self.objects.get(&id)
    }

    /// An object by its exact schema and name.
    pub fn lookup(&self, schema: &str, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(self.names.get(schema)?.get(name)?)
    }

    /// The object that `name` means: in its schema if it says one, else in the first schema
    /// of the path that has it. Fails with `NotFound`, and a hint if a name is near.
    pub fn resolve(&self, search_path: &[String], name: &Name) -> Result<&Arc<Object>> {
        self.resolve_what(search_path, name, "relation")
    }

    fn resolve_what(&self, search_path: &[String], name: &Name, what: &str) -> Result<&Arc<Object>> {
        if let Some(schema) = &name.schema {
            self.check_schema(schema, name.position)?;
            if let Some(object) = self.lookup(schema, &name.name) {
                return Ok(object);
            }
        } else if let Some(object) = search_path.iter().find_map(|s| self.lookup(s, &name.name)) {
            return Ok(object);
        }
        let error = SpateError::new(ErrorKind::NotFound, format!("{what} \"{name}\" does not exist"));
        let error = match self.nearest(search_path, name) {
            Some(near) => error.with_hint(format!("did you mean {near}?")),
            None => error,
        };
        Err(place(error, name.position))
    }

    /// What may have been meant by a name that does not exist.
    fn nearest(&self, search_path: &[String], name: &Name) -> Option<String> {
        // The right name in another schema comes first.
        if let Some(elsewhere) = self.objects.values().find(|o| *o.name == *name.name) {
            return Some(elsewhere.display_name());
        }
        let searched: Vec<&str> = match &name.schema {
            Some(schema) => vec![schema],
            None => search_path.iter().map(String::as_str).collect(),
        };
        let candidates = || self.objects.values().filter(|o| searched.contains(&&*o.schema));
        let near = did_you_mean(&name.name, candidates().map(|o| &*o.name))?;
        candidates().find(|o| *o.name == *near).map(|o| o.display_name())
    }

    /// The object that `name` means, which must be of this kind.
    pub fn resolve_kind(&self, search_path: &[String], name: &Name, kind: DropKind) -> Result<&Arc<Object>> {
        if kind == DropKind::Function {
            let key = Name { name: function_key(&name.name), ..name.clone() };
            return self.resolve_what(search_path, &key, "function");
        }
        let object = self.resolve_what(search_path, name, &kind.to_string())?;
        if object.kind.drop_kind() == kind {
            return Ok(object);
        }
        let article = if kind == DropKind::Schema { "the" } else { "a" };
        Err(place(
            SpateError::new(ErrorKind::InvalidArgument, format!("\"{name}\" is not {article} {kind}"))
                .with_hint(format!("it is a {}", object.kind)),
            name.position,
        ))
    }

    /// The function called `name`, in `schema` or along the path.
    pub fn function(&self, search_path: &[String], schema: Option<&str>, name: &str) -> Option<&Arc<Object>> {
        let key = function_key(name);
        match schema {
            Some(schema) => self.lookup(schema, &key),
            None => search_path.iter().find_map(|s| self.lookup(s, &key)),
        }
    }

    /// What a query reads when it says `name`. Fails on sinks, which cannot be read.
    pub fn relation(&self, search_path: &[String], name: &Name) -> Result<&Relation> {
        let object = self.resolve(search_path, name)?;
        object.relation.as_ref().ok_or_else(|| {
            place(SpateError::invalid(format!("\"{name}\" is a {}, which cannot be read", object.kind)), name.position)
        })
    }

    /// Objects of a kind (or all) in a schema (or all), by schema and name.
    pub fn list(&self, kind: Option<ObjectKind>, schema: Option<&str>) -> Vec<&Arc<Object>> {
        self.names
            .iter()
            .filter(|(s, _)| schema.is_none_or(|wanted| wanted == s.as_str()))
            .flat_map(|(_, names)| names.values())
            .filter_map(|id| self.objects.get(id))
            .filter(|o| kind.is_none_or(|wanted| wanted == o.kind))
            .collect()
    }

    /// All objects by rising id: whatever an object reads comes before it.
    pub fn in_creation_order(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    /// Objects that read `id` directly, by rising id.
    pub fn dependents(&self, id: ObjectId) -> Vec<ObjectId> {
        depend::dependents(&self.objects, id)
    }

    /// The rows of `information_schema.name`, if that is what `name` says.
    pub fn system_table(&self, name: &Name) -> Option<Result<arrow::array::RecordBatch>> {
        let schema = name.schema.as_deref()?;
        info::system_table(self, schema, &name.name)
    }
}

fn place(error: SpateError, position: Option<(u64, u64)>) -> SpateError {
    match (error.position(), position) {
        (None, Some((line, column))) => error.at(line, column),
        _ => error,
    }
}
