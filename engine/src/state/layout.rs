//! The columns of a store, which may be altered while others read them.

use arrow::datatypes::SchemaRef;

use crate::types::{ErrorKind, Result, SpateError};

/// Columns, each with an identity that no other column of the store has had.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) schema: SchemaRef,
    ids: Vec<u32>,
    next: u32,
}

impl Layout {
    pub(super) fn new(schema: SchemaRef) -> Self {
        let n = u32::try_from(schema.fields().len()).unwrap_or(u32::MAX);
        Self { schema, ids: (0..n).collect(), next: n }
    }

    /// Other columns: `from` says for each which old one it is.
    pub(super) fn alter(&mut self, schema: SchemaRef, from: &[Option<usize>]) {
        let mut ids = Vec::with_capacity(from.len());
        for f in from {
            ids.push(match f.and_then(|c| self.ids.get(c)) {
                Some(id) => *id,
                None => {
                    self.next += 1;
                    self.next - 1
                }
            });
        }
        self.schema = schema;
        self.ids = ids;
    }

    pub(super) fn ids(&self, columns: &[usize]) -> Result<Vec<u32>> {
        let id = |c: &usize| self.ids.get(*c).copied();
        columns.iter().map(|c| id(c).ok_or_else(|| SpateError::internal("no such column of a store"))).collect()
    }

    pub(super) fn places(&self, ids: &[u32]) -> Result<Vec<usize>> {
        let place = |id: &u32| self.ids.iter().position(|i| i == id);
        let gone = || SpateError::new(ErrorKind::NotFound, "a column was dropped");
        ids.iter().map(|id| place(id).ok_or_else(gone)).collect()
    }
}
