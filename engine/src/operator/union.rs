//! UNION ALL: passes every input through, under the output's column names.

use arrow::datatypes::SchemaRef;

use super::expr::batch_of;
use super::{BarrierInfo, Operator, Output};
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result};

/// Passes all inputs through. Stateless.
#[derive(Debug)]
pub struct Union {
    schema: SchemaRef,
}

impl Union {
    /// The operator with this output.
    pub fn new(schema: SchemaRef) -> Self {
        Self { schema }
    }
}

impl Operator for Union {
    fn tables(&self) -> Vec<TableDef> {
        vec![]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, out: &mut Output) -> Result<()> {
        if delta.schema() == self.schema {
            out.emit(delta);
        } else {
            let rows = batch_of(&self.schema, delta.rows().columns().to_vec(), delta.num_rows())?;
            out.emit(delta.with_rows(rows)?);
        }
        Ok(())
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        Ok(())
    }
}
