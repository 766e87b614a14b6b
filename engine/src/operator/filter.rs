//! WHERE: keeps the rows for which the predicate is true, with their weights.

use super::expr::evaluate_predicate;
use super::{BarrierInfo, Operator, Output};
use crate::plan::FilterSpec;
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result};

/// Keeps rows. Stateless.
#[derive(Debug)]
pub struct Filter {
    spec: FilterSpec,
}

impl Filter {
    /// The operator for this spec.
    pub fn new(spec: FilterSpec) -> Self {
        Self { spec }
    }
}

impl Operator for Filter {
    fn tables(&self) -> Vec<TableDef> {
        vec![]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, out: &mut Output) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        let mask = evaluate_predicate(&self.spec.predicate, delta.rows())?;
        match mask.true_count() {
            0 => {}
            n if n == delta.num_rows() => out.emit(delta),
            _ => out.emit(delta.filter(&mask)?),
        }
        Ok(())
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        Ok(())
    }
}
