//! Rows as memcomparable bytes: first the partition's columns, then the order's, then all
//! others. So the rows of a partition stand together in an ordered table, in order, and hold
//! all that is needed to give them back. Where a watermark closes partitions, the column that it
//! speaks of is the first, so that closed partitions stand together too.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, PrimitiveArray, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};

use super::expr::batch_of;
use crate::plan::{OrderBy, WatermarkColumn};
use crate::types::vnode::{VNode, hash_batch, vnode_of};
use crate::types::{Delta, Result, SpateError, WATERMARK_MAX, WATERMARK_MIN, Watermark, decoded};

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
    /// The column that closes partitions.
    window: Option<(RowConverter, WatermarkColumn)>,
}

/// Keys of partitions that are closed: `[from, to)`, without an upper end if `None`.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Option<Vec<u8>>,
}

impl Closed {
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        key >= self.from.as_slice() && self.to.as_deref().is_none_or(|to| key < to)
    }
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
        Self::closing(schema, partition, order, None, what)
    }

    /// The same, for partitions that the watermark of one of their columns closes.
    pub(crate) fn closing(
        schema: SchemaRef,
        partition: &[usize],
        order: &[OrderBy],
        window: Option<WatermarkColumn>,
        what: &str,
    ) -> Result<Self> {
        let width = schema.fields().len();
        let options = |o: &OrderBy| (o.column, SortOptions { descending: o.descending, nulls_first: o.nulls_first });
        let first = window.map(|w| w.column);
        if first.is_some_and(|c| !partition.contains(&c)) {
            return Err(SpateError::internal(format!("the window of {what} is no column of its partitions")));
        }
        let all = first
            .iter()
            .chain(partition)
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
        let window = match window {
            Some(w) => Some((RowConverter::new(fields.iter().take(1).cloned().collect())?, w)),
            None => None,
        };
        Ok(Self {
            rows: RowConverter::new(fields.clone())?,
            schema,
            partition: partition.to_vec(),
            encoded,
            partitions,
            peers: None,
            window,
        })
    }

    /// The partitions that are closed under a watermark, if there can be any. Those whose window is
    /// NULL end with the input.
    pub(crate) fn closed(&self, watermark: Watermark) -> Result<Option<Closed>> {
        let Some((converter, window)) = &self.window else { return Ok(None) };
        match watermark {
            WATERMARK_MIN => Ok(None),
            WATERMARK_MAX => Ok(Some(Closed { from: Vec::new(), to: None })),
            w => {
                let t = self.schema.field(window.column).data_type();
                if !matches!(t, DataType::Timestamp(TimeUnit::Microsecond, _)) {
                    return Err(SpateError::internal(format!("a window that ends by a column of type {t}")));
                }
                // NULLs stand before all times.
                let bounds: PrimitiveArray<TimestampMicrosecondType> =
                    vec![i64::MIN, window.kind.final_below(w)].into();
                let rows = converter.convert_columns(&[Arc::new(bounds.with_data_type(t.clone()))])?;
                Ok(Some(Closed { from: rows.row(0).data().to_vec(), to: Some(rows.row(1).data().to_vec()) }))
            }
        }
    }

    /// How much of each key is its partition.
    pub(crate) fn partition_lengths<'a>(&self, keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<Vec<usize>> {
        let count = keys.len();
        let Some((converter, n)) = &self.partitions else { return Ok(vec![0; count]) };
        let columns = self.encoded.iter().take(*n);
        let fixed = columns.clone().all(|&c| self.schema.field(c).data_type().primitive_width().is_some());
        // One tells for all where values are all of one width.
        let rows = self.decode(keys.take(if fixed { 1 } else { count }))?;
        let columns: Vec<ArrayRef> = columns.map(|&c| rows.column(c).clone()).collect();
        let prefixes = converter.convert_columns(&columns)?;
        let mut lengths: Vec<usize> = prefixes.iter().map(|r| r.data().len()).collect();
        if let (true, Some(&one)) = (fixed, lengths.first()) {
            lengths.resize(count, one);
        }
        Ok(lengths)
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
        let decoded = decoded::columns(&self.rows, keys.map(|k| parser.parse(k)))?;
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.encoded.len()];
        for (&at, array) in self.encoded.iter().zip(decoded) {
            columns[at] = Some(array);
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
