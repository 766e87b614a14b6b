//! CREATE FUNCTION.

use std::collections::BTreeMap;
use std::sync::Arc;

use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::bind::{check_function, is_builtin};
use spate_planner::catalog::{Object, ObjectKind, SqlFunction, function_key};
use spate_planner::sql::statement::{CreateFunction, DropKind, Name};

use crate::session::Session;
use crate::session::resolver::Names;

impl Session {
    pub(in crate::session) async fn create_function(&mut self, create: CreateFunction, text: &str) -> Result<()> {
        let engine = self.engine.clone();
        let _ddl = engine.ddl.lock().await;
        if is_builtin(&create.name.name) {
            return Err(SpateError::new(
                ErrorKind::AlreadyExists,
                format!("function \"{}\" is built in", create.name.name),
            )
            .with_hint("choose another name"));
        }
        let key = Name { name: function_key(&create.name.name), ..create.name.clone() };
        let room = self.make_room(DropKind::Function, &key, create.or_replace, false)?;
        let function = SqlFunction {
            name: create.name.name.clone(),
            args: create.args,
            returns: create.returns,
            strict: create.strict,
            body: create.body,
        };
        let named = {
            let names = Names::new(&engine, &self.variables.search_path);
            check_function(&function, &names).map_err(|e| e.context(format!("function {}", create.name)))?;
            names.named()
        };
        self.vacate(&room, &named)?;
        let (id, schema, _) = room.object(&engine);
        engine.catalog.lock().add(Object {
            id,
            schema,
            name: create.name.name.into(),
            kind: ObjectKind::Function,
            relation: None,
            sql: text.to_owned(),
            depends_on: named,
            options: BTreeMap::new(),
            format: None,
            table: None,
            function: Some(Arc::new(function)),
            index: None,
            comments: BTreeMap::new(),
        })?;
        Ok(())
    }
}
