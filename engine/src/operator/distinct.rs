//! SELECT DISTINCT over whole rows. Keeps a bag of all rows with their weights; a row is in
//! the output while its weight is above 0. A retraction that takes the last copy away
//! retracts the row; over an epoch each row changes at most once. Append-only input is
//! answered at once. Watermarks pass and free nothing.

use arrow::datatypes::SchemaRef;

use super::consolidate::{Consolidator, pick, weights_or_none};
use super::{BarrierInfo, Operator, Output};
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result};

/// SELECT DISTINCT.
#[derive(Debug)]
pub struct Distinct {
    schema: SchemaRef,
    /// Nothing is taken back: first copies can go out before the barrier.
    append_only: bool,
    scratch: Consolidator,
}

impl Distinct {
    /// `schema` is that of input and output; `append_only` that of the input.
    pub fn new(schema: SchemaRef, append_only: bool) -> Result<Self> {
        Ok(Self { scratch: Consolidator::new(schema.clone())?, schema, append_only })
    }
}

impl Operator for Distinct {
    fn tables(&self) -> Vec<TableDef> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        vec![TableDef::Bag { schema: self.schema.clone(), key: all.clone(), dist: all }]
    }

    fn push(&mut self, _input: usize, delta: Delta, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let changes = tables.bag(0)?.merge(&delta, None, None)?;
        let (mut rows, mut weights) = (Vec::new(), Vec::new());
        for (i, c) in changes.iter().enumerate() {
            let change = i64::from(c.new > 0) - i64::from(c.old > 0);
            if change != 0 {
                rows.push(i as u32);
                weights.push(change);
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let changed = pick(&delta, rows, weights_or_none(weights))?;
        if self.append_only {
            out.emit(changed);
            return Ok(());
        }
        self.scratch.push(&changed)
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        for delta in self.scratch.finish()? {
            out.emit(delta);
        }
        tables.bag(0)?.maintain()
    }
}

#[cfg(test)]
mod tests;
