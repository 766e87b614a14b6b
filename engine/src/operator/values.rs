//! VALUES: emits its rows at its first barrier, and remembers in a table that it did.

use super::{BarrierInfo, Operator, Output};
use crate::plan::ValuesSpec;
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Emits constant rows once.
#[derive(Debug)]
pub struct Values {
    spec: ValuesSpec,
}

impl Values {
    /// The operator for this spec.
    pub fn new(spec: ValuesSpec) -> Self {
        Self { spec }
    }
}

impl Operator for Values {
    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::Ordered]
    }

    fn push(&mut self, _input: usize, _delta: Delta, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        Err(SpateError::internal("constant rows have no input"))
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let done = tables.ordered(0)?;
        if done.is_empty() {
            done.add(b"", 1, 0);
            out.emit(Delta::insert(self.spec.rows.clone()));
        }
        Ok(())
    }
}
