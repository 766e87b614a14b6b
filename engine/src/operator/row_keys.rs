//! Rows as memcomparable bytes: first the partition's columns, then the order's, then all
//! others. So the rows of a partition stand together in an ordered table, in order, and hold
//! all that is needed to give them back.

use std::collections::BTreeSet;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};

use super::expr::{batch_of, plain_nulls};
use crate::plan::OrderBy;
use crate::types::vnode::{VNode, hash_batch, vnode_of};
use crate::types::{Delta, Result, SpateError};

/// Encodes and decodes rows.
#[derive(Debug)]
pub(crate) struct RowKeys {
    schema: SchemaRef,
    partition: Vec<usize>,
    rows: RowConverter,
    /// Input column of each encoded column.
    encoded: Vec<usize>,
    /// The partition's columns alone, and how many different ones there are.
    partitions: Option<(RowConverter, usize)>,
    /// The partition's and the order's columns, if the end of theirs is to be found.
    peers: Option<(RowConverter, usize)>,
}

/// One row of a delta.
pub(crate) struct KeyedRow<'a> {
    /// How its key begins: its partition.
    pub(crate) partition: &'a [u8],
    /// Its key.
    pub(crate) key: &'a [u8],
    /// Length of what it has in common with its peers; 0 unless asked for.
    pub(crate) peers: usize,
    /// Its weight.
    pub(crate) weight: i64,
    /// Its vnode, by the partition.
    pub(crate) vnode: VNode,
}

impl RowKeys {
    /// For rows of `schema`. `what` names the construct in errors.
    pub(crate) fn new(schema: SchemaRef, partition: &[usize], order: &[OrderBy], what: &str) -> Result<Self> {
        let width = schema.fields().len();
        let options = |o: &OrderBy| (o.column, SortOptions { descending: o.descending, nulls_first: o.nulls_first });
        let all = partition
            .iter()
            .map(|&c| (c, SortOptions::default()))
            .chain(order.iter().map(options))
            .chain((0..width).map(|c| (c, SortOptions::default())));
        let (mut encoded, mut fields) = (Vec::with_capacity(width), Vec::with_capacity(width));
        for (column, options) in all {
            if column >= width {
                return Err(SpateError::internal(format!("a key column of {what} is not there")));
            }
            if !encoded.contains(&column) {
                let t = schema.field(column).data_type();
                let field = SortField::new_with_options(t.clone(), options);
                if !RowConverter::supports_fields(std::slice::from_ref(&field)) {
                    return Err(SpateError::unsupported(format!("{what} over rows with a column of type {t}")));
                }
                encoded.push(column);
                fields.push(field);
            }
        }
        let leading = |columns: BTreeSet<usize>| -> Result<Option<(RowConverter, usize)>> {
            let n = columns.len();
            if n == 0 {
                return Ok(None);
            }
            Ok(Some((RowConverter::new(fields.iter().take(n).cloned().collect())?, n)))
        };
        let partitions = leading(partition.iter().copied().collect())?;
        Ok(Self {
            rows: RowConverter::new(fields.clone())?,
            schema,
            partition: partition.to_vec(),
            encoded,
            partitions,
            peers: None,
        })
    }

    /// Also tells how much of a key peers have in common.
    pub(crate) fn with_peers(mut self, order: &[OrderBy]) -> Result<Self> {
        let columns: BTreeSet<usize> = self.partition.iter().copied().chain(order.iter().map(|o| o.column)).collect();
        let n = columns.len();
        let options = |c: &usize| {
            let by = order.iter().find(|o| o.column == *c && !self.partition.contains(c));
            by.map_or(SortOptions::default(), |o| SortOptions { descending: o.descending, nulls_first: o.nulls_first })
        };
        let fields: Vec<SortField> = self
            .encoded
            .iter()
            .take(n)
            .map(|c| SortField::new_with_options(self.schema.field(*c).data_type().clone(), options(c)))
            .collect();
        if n > 0 {
            self.peers = Some((RowConverter::new(fields)?, n));
        }
        Ok(self)
    }

    /// Calls `each` for every row of a delta.
    pub(crate) fn encode(&self, delta: &Delta, mut each: impl FnMut(KeyedRow<'_>)) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        let columns: Vec<ArrayRef> = self.encoded.iter().map(|&c| delta.column(c).clone()).collect();
        let rows = self.rows.convert_columns(&columns)?;
        let partitions = match &self.partitions {
            Some((converter, n)) => {
                Some((converter.convert_columns(&columns[..*n])?, hash_batch(delta.rows(), &self.partition)?))
            }
            None => None,
        };
        let peers = match &self.peers {
            Some((converter, n)) => Some(converter.convert_columns(&columns[..*n])?),
            None => None,
        };
        for i in 0..delta.num_rows() {
            let row = rows.row(i);
            let key = row.data();
            let (len, vnode) = match &partitions {
                Some((p, hashes)) => (p.row(i).data().len(), hashes.get(i).copied().map_or(0, vnode_of)),
                None => (0, 0),
            };
            each(KeyedRow {
                partition: &key[..len],
                key,
                peers: peers.as_ref().map_or(0, |p| p.row(i).data().len()),
                weight: delta.weight(i),
                vnode,
            });
        }
        Ok(())
    }

    /// The rows of keys.
    pub(crate) fn decode<'a>(&self, keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<RecordBatch> {
        let count = keys.len();
        let parser = self.rows.parser();
        let decoded = self.rows.convert_rows(keys.map(|k| parser.parse(k)))?;
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.encoded.len()];
        for (&at, array) in self.encoded.iter().zip(decoded) {
            columns[at] = Some(plain_nulls(array));
        }
        batch_of(&self.schema, columns.into_iter().flatten().collect(), count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use std::sync::Arc;

    /// What stood behind a decoded NULL was the least integer; kernels that compute all values,
    /// NULL or not, overflowed on it.
    #[test]
    fn nothing_is_behind_a_null() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(7)]));
        let rows = RecordBatch::try_from_iter([("a", a)]).unwrap();
        let keys = RowKeys::new(rows.schema(), &[], &[], "a test").unwrap();
        let mut all = Vec::new();
        keys.encode(&Delta::insert(rows.clone()), |r| all.push(r.key.to_vec())).unwrap();
        let back = keys.decode(all.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(back, rows);
        assert_eq!(back.column(0).as_primitive::<Int64Type>().values().to_vec(), [i64::MIN, 0, 7]);
    }
}
