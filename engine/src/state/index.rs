//! An index of a store: its rows in the order of some columns. It holds whole rows, so that it
//! needs no way back to where they are kept, and a range of it is the answer.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};

use super::OrderedTable;
use crate::operator::row_keys::RowKeys;
use crate::plan::OrderBy;
use crate::types::{Delta, Result, SpateError};

/// Rows that a query asks an index for: those whose leading columns equal one of some tuples, and
/// whose next column lies in a range. May give more than asked for (bounds count as inclusive).
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Values of the leading columns, one array per column; none: all rows.
    pub equal: Vec<ArrayRef>,
    /// Least value of the next column, as an array of one.
    pub lower: Option<ArrayRef>,
    /// Greatest value of the next column, as an array of one.
    pub upper: Option<ArrayRef>,
}

/// Keys that start at `from` and are at most `to` or begin with it.
#[derive(Debug)]
struct Range {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Range {
    fn ends_before(&self, key: &[u8]) -> bool {
        key > self.to.as_slice() && !key.starts_with(&self.to)
    }
}

/// Ranges that do not overlap, rising.
#[derive(Debug)]
pub(super) struct Ranges(Vec<Range>);

impl Ranges {
    fn contains(&self, key: &[u8]) -> bool {
        let at = self.0.partition_point(|r| r.from.as_slice() <= key);
        at.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|r| !r.ends_before(key))
    }
}

/// The rows in order.
#[derive(Debug)]
pub(super) struct RowIndex {
    pub(super) id: u64,
    pub(super) columns: Vec<usize>,
    keys: RowKeys,
    /// One per indexed column.
    columns_alone: Vec<RowConverter>,
    table: OrderedTable,
}

impl RowIndex {
    /// An empty index. Errors when a column of the rows has a type without an order.
    pub(super) fn new(id: u64, schema: &SchemaRef, columns: &[usize]) -> Result<Self> {
        let order = |c: &usize| OrderBy { column: *c, descending: false, nulls_first: true };
        let order: Vec<OrderBy> = columns.iter().map(order).collect();
        let keys = RowKeys::new(schema.clone(), &[], &order, "an index")?;
        let alone = |c: &usize| Ok(RowConverter::new(vec![SortField::new(schema.field(*c).data_type().clone())])?);
        let columns_alone = columns.iter().map(alone).collect::<Result<_>>()?;
        Ok(Self { id, columns: columns.to_vec(), keys, columns_alone, table: OrderedTable::new() })
    }

    pub(super) fn merge(&mut self, delta: &Delta) -> Result<()> {
        let table = &mut self.table;
        self.keys.encode(delta, |row| {
            table.add(row.key, row.weight, 0);
        })
    }

    pub(super) fn memory_size(&self) -> usize {
        self.table.memory_size()
    }

    /// The ranges of keys that `wanted` means.
    pub(super) fn ranges(&self, wanted: &Wanted) -> Result<Ranges> {
        let encode = |column: usize, values: &ArrayRef| -> Result<Vec<Vec<u8>>> {
            let alone = self.columns_alone.get(column);
            let alone = alone.ok_or_else(|| SpateError::internal("an index has fewer columns than asked for"))?;
            let rows = alone.convert_columns(std::slice::from_ref(values))?;
            Ok(rows.iter().map(|r| r.data().to_vec()).collect())
        };
        let mut prefixes = vec![Vec::new(); wanted.equal.first().map_or(1, |c| c.len())];
        for (i, column) in wanted.equal.iter().enumerate() {
            for (prefix, value) in prefixes.iter_mut().zip(encode(i, column)?) {
                prefix.extend(value);
            }
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        let next = wanted.equal.len();
        let bound = |b: &Option<ArrayRef>| -> Result<Vec<u8>> {
            match b {
                Some(b) => Ok(encode(next, b)?.pop().unwrap_or_default()),
                None => Ok(Vec::new()),
            }
        };
        let (lower, upper) = (bound(&wanted.lower)?, bound(&wanted.upper)?);
        let range = |prefix: Vec<u8>| Range {
            from: [prefix.as_slice(), &lower].concat(),
            to: [prefix.as_slice(), &upper].concat(),
        };
        Ok(Ranges(prefixes.into_iter().map(range).collect()))
    }

    /// The rows in these ranges, without what `undo` brought: rows and weights.
    pub(super) fn rows(&self, ranges: &Ranges, undo: &[Delta]) -> Result<(RecordBatch, Vec<i64>)> {
        let mut net: BTreeMap<Box<[u8]>, i64> = BTreeMap::new();
        for range in &ranges.0 {
            let found = self.table.scan_from(&range.from).take_while(|(key, _)| !range.ends_before(key));
            net.extend(found.map(|(key, weight)| (Box::from(key), weight)));
        }
        for delta in undo {
            self.keys.encode(delta, |row| {
                if ranges.contains(row.key) {
                    *net.entry(row.key.into()).or_default() -= row.weight;
                }
            })?;
        }
        net.retain(|_, weight| *weight != 0);
        let weights = net.values().copied().collect();
        let keys: Vec<&[u8]> = net.keys().map(|k| &**k).collect();
        Ok((self.keys.decode(keys.into_iter())?, weights))
    }
}
