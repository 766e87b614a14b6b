//! ORDER BY … LIMIT … OFFSET: the rows of a window over the sorted multiset.
//!
//! State: all rows, as memcomparable bytes that hold the whole row, and what was emitted. A
//! retraction may pull rows from beyond the window, so none can be forgotten. At the barrier
//! the window is cut anew (copies of a row count each) and the difference is emitted in
//! sort order; without LIMIT and OFFSET only the keys that changed are looked at.

use std::collections::BTreeSet;

use arrow::array::{ArrayRef, Int64Array};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};

use super::expr::batch_of;
use super::{BarrierInfo, Operator, Output};
use crate::plan::TopNSpec;
use crate::state::{OrderedTable, Table, TableDef, Tables};
use crate::types::{Delta, Result, SpateError, decoded};

/// Rows per emitted delta.
const EMIT_ROWS: usize = 8 * 1024;

/// Keeps a window of the sorted rows.
#[derive(Debug)]
pub struct TopN {
    spec: TopNSpec,
    schema: SchemaRef,
    converter: RowConverter,
    /// Input column of each encoded column.
    encoded: Vec<usize>,
    /// Whether rows came in this epoch.
    touched: bool,
    /// Keys that came in this epoch, kept only if the window is everything.
    changed: BTreeSet<Box<[u8]>>,
}

impl TopN {
    /// The operator for this spec over rows of `schema`. Errors if a column cannot be ordered.
    pub fn new(spec: TopNSpec, schema: SchemaRef) -> Result<Self> {
        let width = schema.fields().len();
        let mut encoded = Vec::with_capacity(width);
        let mut fields = Vec::with_capacity(width);
        let rest = (0..width).map(|c| (c, SortOptions::default()));
        let order = spec.order.iter().map(|o| {
            let options = SortOptions { descending: o.descending, nulls_first: o.nulls_first };
            (o.column, options)
        });
        for (column, options) in order.chain(rest) {
            if column >= width {
                return Err(SpateError::internal("a sort column is not there"));
            }
            // Sorting by a column again decides nothing more.
            if !encoded.contains(&column) {
                let t = schema.field(column).data_type();
                let f = SortField::new_with_options(t.clone(), options);
                if !RowConverter::supports_fields(std::slice::from_ref(&f)) {
                    return Err(SpateError::unsupported(format!("ORDER BY over rows with a column of type {t}")));
                }
                encoded.push(column);
                fields.push(f);
            }
        }
        let converter = RowConverter::new(fields)?;
        Ok(Self { spec, schema, converter, encoded, touched: false, changed: BTreeSet::new() })
    }

    fn keeps_all(&self) -> bool {
        self.spec.limit.is_none() && self.spec.offset == 0
    }

    /// Net changes of the window, in sort order.
    fn difference<'a>(&self, rows: &'a OrderedTable, emitted: &'a OrderedTable) -> Vec<(Box<[u8]>, i64)> {
        if self.keeps_all() {
            let net = self.changed.iter().map(|k| (k.clone(), rows.weight(k).max(0) - emitted.weight(k)));
            return net.filter(|(_, w)| *w != 0).collect();
        }
        let offset = i64::try_from(self.spec.offset).unwrap_or(i64::MAX);
        let end = self.spec.limit.map_or(i64::MAX, |l| offset.saturating_add_unsigned(l as u64));
        let mut passed = 0i64;
        let mut window = rows
            .scan_from(&[])
            .filter(|(_, w)| *w > 0)
            .map(|(k, w)| {
                let start = passed;
                passed = passed.saturating_add(w);
                (k, start, passed)
            })
            .take_while(|(_, start, _)| *start < end)
            .map(|(k, start, stop)| (k, stop.min(end) - start.max(offset)))
            .filter(|(_, w)| *w > 0)
            .peekable();
        let mut before = emitted.scan_from(&[]).peekable();
        let mut net = Vec::new();
        loop {
            let order = match (window.peek(), before.peek()) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let new = if order.is_le() { window.next() } else { None };
            let old = if order.is_ge() { before.next() } else { None };
            let w = new.map_or(0, |n| n.1) - old.map_or(0, |o| o.1);
            if let (Some((k, _)), true) = (new.or(old), w != 0) {
                net.push((k.into(), w));
            }
        }
        net
    }

    fn decode(&self, changes: &[(Box<[u8]>, i64)]) -> Result<Delta> {
        let parser = self.converter.parser();
        let decoded = decoded::columns(&self.converter, changes.iter().map(|(k, _)| parser.parse(k)))?;
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.encoded.len()];
        for (&at, array) in self.encoded.iter().zip(decoded) {
            columns[at] = Some(array);
        }
        let columns = columns.into_iter().flatten().collect();
        let rows = batch_of(&self.schema, columns, changes.len())?;
        let weights = changes.iter().any(|(_, w)| *w != 1);
        Delta::new(rows, weights.then(|| changes.iter().map(|(_, w)| *w).collect::<Int64Array>()))
    }
}

impl Operator for TopN {
    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::Ordered, TableDef::Ordered]
    }

    fn push(&mut self, _input: usize, delta: Delta, tables: &mut Tables, _out: &mut Output) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        self.touched = true;
        let columns: Vec<ArrayRef> = self.encoded.iter().map(|&c| delta.column(c).clone()).collect();
        let keep_keys = self.keeps_all();
        let rows = tables.ordered(0)?;
        if columns.is_empty() {
            // Rows without columns are all alike.
            for i in 0..delta.num_rows() {
                rows.add(b"", delta.weight(i), 0);
            }
            self.changed.insert(Box::default());
            return Ok(());
        }
        let encoded = self.converter.convert_columns(&columns)?;
        for i in 0..delta.num_rows() {
            let key = encoded.row(i).data();
            rows.add(key, delta.weight(i), 0);
            if keep_keys && !self.changed.contains(key) {
                self.changed.insert(key.into());
            }
        }
        Ok(())
    }

    fn barrier(&mut self, _info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        if !std::mem::take(&mut self.touched) {
            return Ok(());
        }
        let [Table::Ordered(rows), Table::Ordered(emitted)] = tables.all() else {
            return Err(SpateError::internal("the tables of a top-n are missing"));
        };
        let changes = self.difference(rows, emitted);
        self.changed.clear();
        for (k, w) in &changes {
            emitted.add(k, *w, 0);
        }
        for part in changes.chunks(EMIT_ROWS) {
            out.emit(self.decode(part)?);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "topn_tests.rs"]
mod tests;
