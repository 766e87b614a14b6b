//! UNNEST: one row per element of list columns, which are unfolded side by side.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};

use super::expr::batch_of;
use super::{BarrierInfo, Operator, Output};
use crate::plan::UnnestSpec;
use crate::state::{TableDef, Tables};
use crate::types::{Delta, Result, SpateError};

/// Rows per emitted delta.
const EMIT_ROWS: usize = 16 * 1024;

/// Unfolds lists. Stateless; each element has the weight of its row.
#[derive(Debug)]
pub struct Unnest {
    spec: UnnestSpec,
    schema: SchemaRef,
}

/// A list column: its elements, and where each row's begin and end among them.
struct Lists {
    elements: ArrayRef,
    ranges: Vec<(u64, u64)>,
}

impl Lists {
    fn of(array: &ArrayRef) -> Result<Self> {
        let n = array.len();
        let range = |i: usize, start: u64, end: u64| if array.is_null(i) { (0, 0) } else { (start, end) };
        Ok(match array.data_type() {
            DataType::List(_) => {
                let l = array.as_list::<i32>();
                let o = l.value_offsets();
                let ranges = (0..n).map(|i| range(i, o[i] as u64, o[i + 1] as u64)).collect();
                Self { elements: l.values().clone(), ranges }
            }
            DataType::LargeList(_) => {
                let l = array.as_list::<i64>();
                let o = l.value_offsets();
                let ranges = (0..n).map(|i| range(i, o[i] as u64, o[i + 1] as u64)).collect();
                Self { elements: l.values().clone(), ranges }
            }
            DataType::FixedSizeList(_, size) => {
                let l = array.as_fixed_size_list();
                let size = u64::try_from(*size).unwrap_or(0);
                let ranges = (0..n as u64).map(|i| range(i as usize, i * size, (i + 1) * size)).collect();
                Self { elements: l.values().clone(), ranges }
            }
            other => return Err(SpateError::unsupported(format!("cannot unnest a column of type {other}"))),
        })
    }
}

impl Unnest {
    /// The operator for this spec; in `schema` the list columns are replaced by their elements.
    pub fn new(spec: UnnestSpec, schema: SchemaRef) -> Self {
        Self { spec, schema }
    }
}

impl Operator for Unnest {
    fn tables(&self) -> Vec<TableDef> {
        vec![]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, out: &mut Output) -> Result<()> {
        let rows = delta.rows();
        if self.spec.columns.iter().any(|&c| c >= rows.num_columns()) {
            return Err(SpateError::internal("a column to unnest is not there"));
        }
        let lists = self.spec.columns.iter().map(|&c| Lists::of(rows.column(c))).collect::<Result<Vec<_>>>()?;
        // Where each output row comes from, and which element of the lists it holds.
        let mut origin: Vec<(u32, u64)> = Vec::new();
        for i in 0..rows.num_rows() {
            let longest = lists.iter().map(|l| l.ranges[i].1 - l.ranges[i].0).max().unwrap_or(0);
            let count = if self.spec.preserve_nulls { longest.max(1) } else { longest };
            origin.extend((0..count).map(|k| (i as u32, k)));
        }
        for part in origin.chunks(EMIT_ROWS) {
            let from = UInt32Array::from_iter_values(part.iter().map(|o| o.0));
            let element = |l: &Lists| {
                let at = |&(row, k): &(u32, u64)| {
                    let (start, end) = l.ranges[row as usize];
                    (start + k < end).then_some(start + k)
                };
                take(&l.elements, &part.iter().map(at).collect::<UInt64Array>(), None)
            };
            let mut columns = Vec::with_capacity(rows.num_columns());
            for (i, c) in rows.columns().iter().enumerate() {
                columns.push(match self.spec.columns.iter().position(|&u| u == i) {
                    Some(l) => element(&lists[l])?,
                    None => take(c, &from, None)?,
                });
            }
            let batch = batch_of(&self.schema, columns, part.len())?;
            let weights = delta.weights().map(|w| from.values().iter().map(|&i| w.value(i as usize)).collect());
            out.emit(Delta::new(batch, weights)?);
        }
        Ok(())
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        Ok(())
    }
}
