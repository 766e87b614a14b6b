//! EMIT ON WINDOW CLOSE over an operator that cannot wait itself (a join): its rows are held back
//! until the watermark has passed their time, and go out once, when nothing changes them any more.
//!
//! State: the rows that wait. What is taken back while it waits is never seen. Rows without a time
//! wait for the end of the input.

use arrow::datatypes::SchemaRef;

use super::consolidate::weights_or_none;
use super::{BarrierInfo, Operator, Output};
use crate::plan::CloseSpec;
use crate::state::frozen::record_batch;
use crate::state::{BagTable, Slot, TableDef, Tables};
use crate::types::{Delta, Result, WATERMARK_MAX, WATERMARK_MIN};

/// Rows per emitted delta.
const EMIT_ROWS: usize = 8 * 1024;

/// Holds rows back. See the module's text.
#[derive(Debug)]
pub struct Close {
    spec: CloseSpec,
    /// Columns that give a row its vnode; none stands for all.
    spread: Vec<usize>,
    schema: SchemaRef,
}

impl Close {
    /// The operator for this spec. Its rows are spread by the columns `spread`.
    pub fn new(spec: CloseSpec, spread: Vec<usize>, schema: SchemaRef) -> Result<Self> {
        Ok(Self { spec, spread, schema })
    }

    fn emit(&self, rows: &BagTable, slots: &[Slot], out: &mut Output) -> Result<()> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        for part in slots.chunks(EMIT_ROWS) {
            let batch = record_batch(&self.schema, rows.gather(part, &all)?, part.len())?;
            out.emit(Delta::new(batch, weights_or_none(rows.weights(part)))?);
        }
        Ok(())
    }
}

impl Operator for Close {
    fn tables(&self) -> Vec<TableDef> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let dist = if self.spread.is_empty() { all.clone() } else { self.spread.clone() };
        vec![TableDef::Bag { schema: self.schema.clone(), key: all, dist }]
    }

    fn push(&mut self, _input: usize, delta: Delta, tables: &mut Tables, _out: &mut Output) -> Result<()> {
        let rows = tables.bag(0)?;
        if self.spec.append_only_input {
            return rows.append(&delta, None, None);
        }
        rows.merge(&delta, None, None).map(drop)
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let rows = tables.bag(0)?;
        let closed: Vec<Slot> = match info.watermark {
            WATERMARK_MIN => Vec::new(),
            WATERMARK_MAX => rows.live_slots().collect(),
            w => rows.below(self.spec.time.column, self.spec.time.kind.final_below(w))?,
        };
        self.emit(rows, &closed, out)?;
        rows.remove(&closed);
        rows.maintain()
    }
}

#[cfg(test)]
#[path = "close_tests.rs"]
mod tests;
