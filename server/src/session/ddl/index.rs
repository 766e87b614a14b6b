//! CREATE INDEX, and indexes when what they are of changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::catalog::{Catalog, IndexDetails, Object, ObjectKind, render};
use spate_planner::sql::did_you_mean;
use spate_planner::sql::statement::CreateIndex;

use crate::session::{Engine, Session};

impl Session {
    pub(in crate::session) async fn create_index(&mut self, create: CreateIndex) -> Result<()> {
        let engine = self.engine.clone();
        let _ddl = engine.ddl.lock().await;
        let mut catalog = engine.catalog.lock();
        let on = catalog.resolve(&self.variables.search_path, &create.on)?.clone();
        let relation = match (on.kind, &on.relation) {
            (ObjectKind::Table | ObjectKind::MaterializedView, Some(r)) => r,
            (kind, _) => {
                return Err(SpateError::invalid(format!("\"{}\" is a {kind}, which keeps no rows", create.on))
                    .with_hint("an index is of a table or a materialized view"));
            }
        };
        let mut columns = Vec::with_capacity(create.columns.len());
        for name in &create.columns {
            columns.push(relation.schema.index_of(name).map_err(|_| {
                let e = SpateError::new(
                    ErrorKind::NotFound,
                    format!("column \"{name}\" of \"{}\" does not exist", on.display_name()),
                );
                match did_you_mean(name, relation.schema.fields().iter().map(|f| f.name().as_str())) {
                    Some(near) => e.with_hint(format!("did you mean \"{near}\"?")),
                    None => e,
                }
            })?);
        }
        let name = match create.name {
            None => free_name(&catalog, &on, &create.columns),
            Some(name) => match catalog.lookup(&on.schema, &name) {
                None => name,
                Some(_) if create.if_not_exists => return Ok(()),
                Some(taken) => {
                    return Err(SpateError::new(
                        ErrorKind::AlreadyExists,
                        format!("{} \"{name}\" already exists", taken.kind),
                    ));
                }
            },
        };
        let store = engine.worker.store(on.id).ok_or_else(|| SpateError::internal("a table without a store"))?;
        let id = catalog.allocate_id();
        let mut index = Object {
            id,
            schema: on.schema.clone(),
            name: name.into(),
            kind: ObjectKind::Index,
            relation: None,
            sql: String::new(),
            depends_on: vec![on.id],
            options: BTreeMap::new(),
            format: None,
            table: None,
            function: None,
            index: Some(IndexDetails { on: on.id, columns: columns.clone() }),
            comments: BTreeMap::new(),
        };
        index.sql = render::create_index(&index, &on)?;
        // The rows are put in order while readers and other statements go on.
        drop(catalog);
        store.add_index(id, &columns)?;
        let added = engine.catalog.lock().add(index);
        if added.is_err() {
            store.remove_index(id);
        }
        added.map(|_| ())
    }

    /// Tells the indexes of a table that its name or columns are others: `from` says for each new
    /// column which old one it is. Those of a column that is gone go.
    pub(super) fn indexes_follow(&self, on: &Arc<Object>, from: Option<&[Option<usize>]>) -> Result<()> {
        let mut catalog = self.engine.catalog.lock();
        let indexes: Vec<Arc<Object>> = of(&catalog, on.id).cloned().collect();
        for index in indexes {
            let mut new = index.as_ref().clone();
            let Some(details) = &mut new.index else { continue };
            if let Some(from) = from {
                let place = |c: &usize| from.iter().position(|f| *f == Some(*c));
                match details.columns.iter().map(place).collect::<Option<Vec<usize>>>() {
                    Some(columns) => details.columns = columns,
                    None => {
                        catalog.remove(&[index.id], false)?;
                        continue;
                    }
                }
            }
            new.schema = on.schema.clone();
            new.sql = render::create_index(&new, on)?;
            catalog.replace(new)?;
        }
        Ok(())
    }
}

/// The indexes of an object.
pub(in crate::session) fn of(catalog: &Catalog, on: u64) -> impl Iterator<Item = &Arc<Object>> {
    catalog.in_creation_order().filter(move |o| o.index.as_ref().is_some_and(|i| i.on == on))
}

/// Lets go of the rows of an index that was dropped.
pub(super) fn let_go(engine: &Engine, object: &Object) {
    if let Some(index) = &object.index
        && let Some(store) = engine.worker.store(index.on)
    {
        store.remove_index(object.id);
    }
}

fn free_name(catalog: &Catalog, on: &Object, columns: &[String]) -> String {
    let base = format!("{}_{}_idx", on.name, columns.join("_"));
    let mut name = base.clone();
    let mut n = 0;
    while catalog.lookup(&on.schema, &name).is_some() {
        n += 1;
        name = format!("{base}{n}");
    }
    name
}
