//! Two phases: each task sums up an epoch's rows before the exchange, as one row of accumulators per
//! group, and the task behind it adds these up.
//!
//! The row has the key and one column of bytes: the cells of all accumulators, one after the other.
//! Sums are linear, so it does not matter how often a group is summed up, nor whether rows come or go.
//! Between epochs the first phase keeps nothing.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryBuilder};
use arrow::datatypes::i256;

use super::accumulate;
use super::layout::{Acc, AccKind, Layout, ROWS};
use crate::plan::AggregateSpec;
use crate::state::group::Column;
use crate::types::exact::ExactSum;
use crate::types::{ErrorKind, Result, SpateError};

/// Refuses calls that are not sums: those over sorted or distinct rows.
pub(super) fn check(spec: &AggregateSpec, layout: &Layout) -> Result<()> {
    if spec.emit_on_close || spec.window.is_some() || !layout.sets.is_empty() || !layout.distincts.is_empty() {
        return Err(SpateError::internal("an aggregate that cannot be computed in two phases"));
    }
    Ok(())
}

/// The accumulators of these slots as bytes.
pub(super) fn encode(columns: &[Column], slots: &[u32]) -> Result<ArrayRef> {
    let mut out = BinaryBuilder::with_capacity(slots.len(), slots.len() * columns.len() * 8);
    let mut row = Vec::new();
    for &slot in slots {
        row.clear();
        for column in columns {
            match column {
                Column::I64(c) => row.extend_from_slice(&c.get(slot).to_le_bytes()),
                Column::I128(c) => row.extend_from_slice(&c.get(slot).to_le_bytes()),
                Column::I256(c) => row.extend_from_slice(&c.get(slot).to_le_bytes()),
                Column::F64(c) => row.extend_from_slice(&c.get(slot).to_le_bytes()),
                Column::Bytes(c) => match c.get(slot) {
                    Some(b) => {
                        let len = u32::try_from(b.len())
                            .map_err(|_| SpateError::new(ErrorKind::Limit, "a value of an aggregate is too long"))?;
                        row.extend_from_slice(&len.to_le_bytes());
                        row.extend_from_slice(b);
                    }
                    None => row.extend_from_slice(&u32::MAX.to_le_bytes()),
                },
            }
        }
        out.append_value(&row);
    }
    Ok(Arc::new(out.finish()))
}

/// Cells read back, in the order of the columns.
enum Cell<'a> {
    I64(i64),
    I128(i128),
    I256(i256),
    F64(f64),
    Bytes(Option<&'a [u8]>),
}

/// Adds rows of accumulators to those at `slots`.
pub(super) fn merge(layout: &Layout, columns: &mut [Column], rows: &ArrayRef, slots: &[u32]) -> Result<()> {
    let rows = rows.as_binary_opt::<i32>().ok_or_else(damaged)?;
    let accs: Vec<&Acc> = layout.feeds.iter().flat_map(|f| &f.accs).collect();
    let mut cells = Vec::with_capacity(columns.len());
    for (bytes, &slot) in rows.iter().zip(slots) {
        decode(columns, bytes.ok_or_else(damaged)?, &mut cells)?;
        add(columns, &cells, ROWS, slot)?;
        for acc in &accs {
            merge_one(acc, columns, &cells, slot)?;
        }
    }
    Ok(())
}

fn decode<'a>(columns: &[Column], mut bytes: &'a [u8], cells: &mut Vec<Cell<'a>>) -> Result<()> {
    fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N]> {
        let (head, tail) = bytes.split_first_chunk::<N>().ok_or_else(damaged)?;
        *bytes = tail;
        Ok(*head)
    }
    cells.clear();
    for column in columns {
        cells.push(match column {
            Column::I64(_) => Cell::I64(i64::from_le_bytes(take(&mut bytes)?)),
            Column::I128(_) => Cell::I128(i128::from_le_bytes(take(&mut bytes)?)),
            Column::I256(_) => Cell::I256(i256::from_le_bytes(take(&mut bytes)?)),
            Column::F64(_) => Cell::F64(f64::from_le_bytes(take(&mut bytes)?)),
            Column::Bytes(_) => match u32::from_le_bytes(take(&mut bytes)?) {
                u32::MAX => Cell::Bytes(None),
                len => {
                    let (value, tail) = bytes.split_at_checked(len as usize).ok_or_else(damaged)?;
                    bytes = tail;
                    Cell::Bytes(Some(value))
                }
            },
        });
    }
    if bytes.is_empty() { Ok(()) } else { Err(damaged()) }
}

/// Adds a number to the cell of a column, wrapping around as sums do.
fn add(columns: &mut [Column], cells: &[Cell<'_>], at: usize, slot: u32) -> Result<()> {
    match (columns.get_mut(at), cells.get(at)) {
        (Some(Column::I64(c)), Some(Cell::I64(v))) => {
            let x = c.get_mut(slot);
            *x = x.wrapping_add(*v);
        }
        (Some(Column::I128(c)), Some(Cell::I128(v))) => {
            let x = c.get_mut(slot);
            *x = x.wrapping_add(*v);
        }
        (Some(Column::I256(c)), Some(Cell::I256(v))) => {
            let x = c.get_mut(slot);
            *x = x.wrapping_add(*v);
        }
        _ => return Err(damaged()),
    }
    Ok(())
}

fn merge_one(acc: &Acc, columns: &mut [Column], cells: &[Cell<'_>], slot: u32) -> Result<()> {
    let at = acc.column;
    match &acc.kind {
        AccKind::Count | AccKind::SumI64 | AccKind::SumI128 | AccKind::SumI256 | AccKind::Trues => {
            add(columns, cells, at, slot)
        }
        AccKind::BitCounts { bits } => (at..at + bits).try_for_each(|c| add(columns, cells, c, slot)),
        AccKind::SumF64 => {
            (at + 2..at + 5).try_for_each(|c| add(columns, cells, c, slot))?;
            for hi in [at, at + 5] {
                let (Some(Cell::F64(h)), Some(Cell::F64(l))) = (cells.get(hi), cells.get(hi + 1)) else {
                    return Err(damaged());
                };
                accumulate::add_sum(columns, hi, slot, *h, *l)?;
            }
            Ok(())
        }
        AccKind::ExtremeI64 { max } => match (columns.get_mut(at), cells.get(at)) {
            (Some(Column::I64(c)), Some(Cell::I64(v))) => {
                let x = c.get_mut(slot);
                *x = if *max { (*x).max(*v) } else { (*x).min(*v) };
                Ok(())
            }
            _ => Err(damaged()),
        },
        AccKind::ExtremeI128 { max } => match (columns.get_mut(at), cells.get(at)) {
            (Some(Column::I128(c)), Some(Cell::I128(v))) => {
                let x = c.get_mut(slot);
                *x = if *max { (*x).max(*v) } else { (*x).min(*v) };
                Ok(())
            }
            _ => Err(damaged()),
        },
        AccKind::ExtremeBytes { max, .. } => match (columns.get_mut(at), cells.get(at)) {
            (Some(Column::Bytes(c)), Some(Cell::Bytes(v))) => {
                let Some(v) = v else { return Ok(()) };
                let better = match c.get(slot) {
                    Some(old) if *max => *v > &**old,
                    Some(old) => *v < &**old,
                    None => true,
                };
                if better {
                    *c.get_mut(slot) = Some((*v).into());
                }
                Ok(())
            }
            _ => Err(damaged()),
        },
        AccKind::BitXor | AccKind::BitFold { .. } => match (columns.get_mut(at), cells.get(at)) {
            (Some(Column::I64(c)), Some(Cell::I64(v))) => {
                let x = c.get_mut(slot);
                *x = match acc.kind {
                    AccKind::BitXor => *x ^ v,
                    AccKind::BitFold { all: true } => *x & v,
                    _ => *x | v,
                };
                Ok(())
            }
            _ => Err(damaged()),
        },
        AccKind::Moments { other } => {
            (at..at + 2).try_for_each(|c| add(columns, cells, c, slot))?;
            for c in at + 2..at + 2 + super::moments::sums(other.is_some()) {
                match (columns.get_mut(c), cells.get(c)) {
                    (Some(Column::Bytes(to)), Some(Cell::Bytes(v))) => {
                        let cell = to.get_mut(slot);
                        let mut sum = ExactSum::decode(cell.as_deref());
                        sum.merge(&ExactSum::decode(*v));
                        sum.store(cell);
                    }
                    _ => return Err(damaged()),
                }
            }
            Ok(())
        }
        AccKind::ExtremeSet { .. } | AccKind::Rows(_) => Err(damaged()),
    }
}

fn damaged() -> SpateError {
    SpateError::internal("a row of accumulators is damaged")
}
