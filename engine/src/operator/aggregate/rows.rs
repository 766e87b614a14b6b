//! Functions that are computed anew from the rows of a group: `array_agg`, `median`, and every
//! other that has no incremental form. The rows are read from an ordered table in order, each
//! as often as its weight says, so that a result depends on nothing but the multiset of rows.

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::row::RowConverter;
use datafusion_common::ScalarValue;
use datafusion_expr::Accumulator;

use super::layout::RowsAcc;
use crate::state::OrderedTable;
use crate::types::{ErrorKind, Result, SpateError, decoded};

/// Rows that are decoded and handed to functions at once.
const PIECE_ROWS: usize = 4096;

/// Evaluates one function for many groups, one after the other; rows of small groups are
/// decoded together.
pub(super) struct Evaluator<'a> {
    rows: &'a RowsAcc,
    codec: &'a RowConverter,
    /// One per group so far.
    accumulators: Vec<Box<dyn Accumulator>>,
    /// Rows that wait, with their weights.
    keys: Vec<&'a [u8]>,
    weights: Vec<i64>,
    /// Group and end of its rows among those that wait.
    pieces: Vec<(usize, usize)>,
}

impl<'a> Evaluator<'a> {
    /// `codec` encodes the rows without their group.
    pub(super) fn new(rows: &'a RowsAcc, codec: &'a RowConverter) -> Self {
        Self { rows, codec, accumulators: vec![], keys: vec![], weights: vec![], pieces: vec![] }
    }

    /// Takes the rows of the next group: those that start with `prefix`.
    pub(super) fn group(&mut self, table: &'a OrderedTable, prefix: &[u8]) -> Result<()> {
        let group = self.accumulators.len();
        self.accumulators.push(self.rows.call.function.start()?);
        // Functions that need only the first rows must not pay for the others.
        let mut wanted = self.rows.call.first.map_or(i64::MAX, |n| i64::try_from(n).unwrap_or(i64::MAX));
        for (key, weight) in table.scan_from(prefix).take_while(|(k, _)| k.starts_with(prefix)) {
            if weight <= 0 {
                continue;
            }
            if wanted == 0 {
                break;
            }
            let weight = if self.rows.distinct { 1 } else { weight.min(wanted) };
            wanted -= weight;
            self.keys.push(&key[prefix.len()..]);
            self.weights.push(weight);
            if self.keys.len() == PIECE_ROWS {
                self.pieces.push((group, self.keys.len()));
                self.flush()?;
            }
        }
        self.pieces.push((group, self.keys.len()));
        Ok(())
    }

    /// Hands the rows that wait to their groups.
    fn flush(&mut self) -> Result<()> {
        let parser = self.codec.parser();
        let columns = decoded::columns(self.codec, self.keys.iter().map(|k| parser.parse(k)))?;
        let mut start = 0;
        for &(group, end) in &self.pieces {
            let acc = self.accumulators.get_mut(group).ok_or_else(|| SpateError::internal("a group is missing"))?;
            if end > start {
                feed(acc.as_mut(), &columns, start, &self.weights[start..end])?;
            }
            start = end;
        }
        self.keys.clear();
        self.weights.clear();
        self.pieces.clear();
        Ok(())
    }

    /// The results of all groups, encoded; nothing for NULL.
    pub(super) fn finish(mut self) -> Result<Vec<Option<Box<[u8]>>>> {
        self.flush()?;
        if self.accumulators.is_empty() {
            return Ok(vec![]);
        }
        let t = &self.rows.result_type;
        let mut values = Vec::with_capacity(self.accumulators.len());
        for mut acc in self.accumulators {
            let v = acc.evaluate()?;
            values.push(if v.data_type() == *t { v } else { v.cast_to(t)? });
        }
        let valid: Vec<bool> = values.iter().map(|v| !v.is_null()).collect();
        let array = ScalarValue::iter_to_array(values)?;
        let encoded = self.rows.codec.rows.convert_columns(&[array])?;
        let one = |(i, valid): (usize, bool)| valid.then(|| encoded.row(i).data().into());
        Ok(valid.into_iter().enumerate().map(one).collect())
    }
}

/// Gives an accumulator the rows from `start` on, each as often as its weight says.
fn feed(acc: &mut dyn Accumulator, columns: &[ArrayRef], start: usize, weights: &[i64]) -> Result<()> {
    if weights.iter().all(|w| *w == 1) {
        let piece: Vec<ArrayRef> = columns.iter().map(|c| c.slice(start, weights.len())).collect();
        return Ok(acc.update_batch(&piece)?);
    }
    let mut which: Vec<u32> = Vec::with_capacity(PIECE_ROWS);
    let mut hand_over = |which: &mut Vec<u32>| -> Result<()> {
        let at = UInt32Array::from(std::mem::take(which));
        let piece = columns.iter().map(|c| take(c, &at, None)).collect::<Result<Vec<_>, _>>()?;
        Ok(acc.update_batch(&piece)?)
    };
    for (i, &w) in weights.iter().enumerate() {
        if w > i64::from(u32::MAX) {
            return Err(SpateError::new(ErrorKind::Limit, "too many equal rows in one group of an aggregate"));
        }
        for _ in 0..w {
            which.push((start + i) as u32);
            if which.len() == PIECE_ROWS {
                hand_over(&mut which)?;
            }
        }
    }
    if which.is_empty() { Ok(()) } else { hand_over(&mut which) }
}
