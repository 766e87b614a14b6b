//! Variances, covariances and the like: per group a count, a count of what is not finite, and exact
//! sums as bytes. A row costs the same however many rows its group has.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Float64Type;

use super::accumulate::{bytes, i64s};
use super::layout::Acc;
use crate::state::chunked::Chunked;
use crate::state::group::Column;
use crate::types::moments::{Moment, OF_ONE, OF_PAIRS, Sums};
use crate::types::{Result, SpateError};

/// Columns of a group: rows, rows that are not finite, and the sums at these places.
fn places(pairs: bool) -> &'static [usize] {
    if pairs { OF_PAIRS } else { OF_ONE }
}

/// How many sums there are.
pub(super) fn sums(pairs: bool) -> usize {
    places(pairs).len()
}

/// Adds rows. Weights are 0 where the first argument is NULL; where the second is, the row does not
/// count.
pub(super) fn update(
    acc: &Acc,
    columns: &mut [Column],
    first: &ArrayRef,
    second: Option<&ArrayRef>,
    slots: &[u32],
    weights: &[i64],
) -> Result<()> {
    let floats = |a: &ArrayRef| {
        let floats = a.as_primitive_opt::<Float64Type>().cloned();
        floats.ok_or_else(|| SpateError::internal("moments of something else than floats"))
    };
    let a = floats(first)?;
    let b = second.map(floats).transpose()?;
    // The sums of one group at a time are held ready: rows of a group often follow each other.
    let mut held: Option<u32> = None;
    let mut sums = Sums::default();
    for (row, (&slot, &w)) in slots.iter().zip(weights).enumerate() {
        if w == 0 || b.as_ref().is_some_and(|b| b.is_null(row)) {
            continue;
        }
        if held != Some(slot) {
            if let Some(before) = held {
                write(acc, columns, before, second.is_some(), &sums)?;
            }
            read(acc, columns, slot, second.is_some(), &mut sums)?;
            held = Some(slot);
        }
        sums.add(a.value(row), b.as_ref().map(|b| b.value(row)), w);
    }
    match held {
        Some(slot) => write(acc, columns, slot, second.is_some(), &sums),
        None => Ok(()),
    }
}

fn read(acc: &Acc, columns: &[Column], slot: u32, pairs: bool, out: &mut Sums) -> Result<()> {
    let cell = |at: usize| columns.get(acc.column + at);
    let (Some(Column::I64(rows)), Some(Column::I64(odd))) = (cell(0), cell(1)) else { return Err(wrong()) };
    (out.rows, out.odd) = (*rows.get(slot), *odd.get(slot));
    for (i, &place) in places(pairs).iter().enumerate() {
        let Some(Column::Bytes(c)) = cell(2 + i) else { return Err(wrong()) };
        out.sums[place].load(c.get(slot).as_deref());
    }
    Ok(())
}

fn write(acc: &Acc, columns: &mut [Column], slot: u32, pairs: bool, sums: &Sums) -> Result<()> {
    *i64s(&mut columns[acc.column])?.get_mut(slot) = sums.rows;
    *i64s(&mut columns[acc.column + 1])?.get_mut(slot) = sums.odd;
    for (i, &place) in places(pairs).iter().enumerate() {
        let cells: &mut Chunked<Option<Box<[u8]>>> = bytes(&mut columns[acc.column + 2 + i])?;
        sums.sums[place].store(cells.get_mut(slot));
    }
    Ok(())
}

/// The results of a function at these slots.
pub(super) fn results(
    acc: &Acc,
    moment: Moment,
    pairs: bool,
    columns: &[Column],
    slots: &[u32],
) -> Result<Vec<Option<f64>>> {
    let mut sums = Sums::default();
    slots
        .iter()
        .map(|&slot| {
            read(acc, columns, slot, pairs, &mut sums)?;
            Ok(moment.result(&sums))
        })
        .collect()
}

fn wrong() -> SpateError {
    SpateError::internal("the sums of a variance have the wrong kind")
}
