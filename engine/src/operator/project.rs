//! SELECT list: computes columns; weights stay.

use arrow::datatypes::SchemaRef;

use super::expr::{batch_of, evaluate};
use super::{BarrierInfo, Operator, Output};
use crate::plan::ProjectSpec;
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Computes columns. Stateless.
#[derive(Debug)]
pub struct Project {
    spec: ProjectSpec,
    schema: SchemaRef,
}

impl Project {
    /// The operator for this spec; `schema` has one field per expression.
    pub fn new(spec: ProjectSpec, schema: SchemaRef) -> Result<Self> {
        if spec.exprs.len() != schema.fields().len() {
            return Err(SpateError::internal("a projection's output has the wrong number of columns"));
        }
        Ok(Self { spec, schema })
    }
}

impl Operator for Project {
    fn tables(&self) -> Vec<TableDef> {
        vec![]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, out: &mut Output) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        let columns = self.spec.exprs.iter().map(|e| evaluate(e, delta.rows())).collect::<Result<Vec<_>>>()?;
        let rows = batch_of(&self.schema, columns, delta.num_rows())?;
        out.emit(delta.with_rows(rows)?);
        Ok(())
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        Ok(())
    }
}
