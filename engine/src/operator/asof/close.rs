//! What an ASOF JOIN can let go. Both sides are append-only, and the watermark speaks of their times;
//! below the bound that it gives no row comes to either side. Then
//!
//! - backward, a left row below the bound has its match for good, and of the right rows below it only
//!   the last of each key, of its time the greatest, can still be met;
//! - forward, a left row has its match for good once that is below the bound, and no right row below it
//!   can still be met.
//!
//! An ordered table of (side, time, key) finds them: of both sides backward, of the right one forward.

use arrow::array::PrimitiveArray;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{AsOf, Item, Output, Parts, parts};
use crate::plan::{AsOfSpec, WatermarkKind};
use crate::state::OrderedTable;
use crate::state::ordered::successor;
use crate::types::{Result, SpateError, WATERMARK_MAX, WATERMARK_MIN, Watermark};

/// Finds what is below a bound.
#[derive(Debug)]
pub(super) struct Closer {
    kinds: [WatermarkKind; 2],
    backward: bool,
    time: DataType,
    times: RowConverter,
    /// Bytes of a time.
    width: usize,
}

/// How far both sides are closed.
enum Closed {
    Nothing,
    /// Times whose bytes are before these (after them forward).
    Below(Vec<u8>),
    Everything,
}

impl Closer {
    /// For a spec with times that the watermark closes.
    pub(super) fn new(spec: &AsOfSpec, left: &SchemaRef) -> Result<Option<Self>> {
        let Some(kinds) = spec.times else { return Ok(None) };
        let time = left.field(spec.left_time).data_type().clone();
        if !matches!(time, DataType::Timestamp(TimeUnit::Microsecond, _)) {
            return Err(SpateError::internal(format!(
                "an ASOF JOIN that a watermark closes by a column of type {time}"
            )));
        }
        let options = SortOptions { descending: !spec.backward, nulls_first: !spec.backward };
        let times = RowConverter::new(vec![SortField::new_with_options(time.clone(), options)])?;
        let mut out = Self { kinds, backward: spec.backward, time, times, width: 0 };
        out.width = out.encoded(0)?.len();
        Ok(Some(out))
    }

    fn encoded(&self, time: i64) -> Result<Vec<u8>> {
        let one: PrimitiveArray<TimestampMicrosecondType> = vec![time].into();
        let rows = self.times.convert_columns(&[Arc::new(one.with_data_type(self.time.clone()))])?;
        Ok(rows.row(0).data().to_vec())
    }

    fn bound(&self, watermarks: &[Watermark]) -> Result<Closed> {
        let of = |side: usize| watermarks.get(side).copied().unwrap_or(WATERMARK_MIN);
        let bounds = [0, 1].map(|side| match of(side) {
            w @ (WATERMARK_MIN | WATERMARK_MAX) => w,
            w => self.kinds[side].final_below(w),
        });
        Ok(match bounds[0].min(bounds[1]) {
            WATERMARK_MIN => Closed::Nothing,
            WATERMARK_MAX => Closed::Everything,
            b => Closed::Below(self.encoded(b)?),
        })
    }

    /// Notes a change of a row.
    pub(super) fn note(&self, side: u8, key: Parts<'_>, weight: i64, index: &mut OrderedTable) {
        if side == 0 && !self.backward {
            return;
        }
        let time = &key.timed[key.partition.len()..];
        let entry = [&[side], time, key.timed].concat();
        index.add(&entry, weight, key.vnode);
    }

    /// Takes the entries of a side that are below the bound, by rising time: each the partition with the
    /// time, and the length of the partition.
    fn take(&self, side: u8, bound: &[u8], index: &mut OrderedTable) -> Vec<(Vec<u8>, usize)> {
        let at = [&[side], bound].concat();
        let (from, to) =
            if self.backward { (vec![side], Some(at)) } else { (successor(&at).unwrap_or(at), successor(&[side])) };
        let below = index.scan_from(&from).take_while(|(k, _)| to.as_deref().is_none_or(|to| *k < to));
        let timed = below.filter_map(|(k, _)| k.get(1 + self.width..)).map(<[u8]>::to_vec);
        let mut found: Vec<(Vec<u8>, usize)> =
            timed.map(|t| (t.len().saturating_sub(self.width), t)).map(|(n, t)| (t, n)).collect();
        index.delete_range(&from, to.as_deref());
        if !self.backward {
            found.reverse();
        }
        found
    }
}

/// Left rows from one key to another (or to the end of the partition), and the partition's length.
struct Range {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl AsOf {
    /// Frees what is below the watermarks; left rows go out first, if they wait for that.
    pub(super) fn close(
        &self,
        watermarks: &[Watermark],
        left: &mut OrderedTable,
        right: &mut OrderedTable,
        index: &mut OrderedTable,
        out: &mut Output,
    ) -> Result<()> {
        let Some(closer) = &self.closer else { return Ok(()) };
        let bound = match closer.bound(watermarks)? {
            Closed::Nothing => return Ok(()),
            Closed::Everything => {
                self.emit_final(&[Range { from: Vec::new(), to: None }], left, right, out)?;
                for table in [left, right, index] {
                    table.delete_range(&[], None);
                }
                return Ok(());
            }
            Closed::Below(bound) => bound,
        };
        let passed = closer.take(1, &bound, index);
        let mut ranges: Vec<Range> = Vec::new();
        if self.spec.backward {
            let closed = closer.take(0, &bound, index);
            ranges.extend(closed.into_iter().map(|(timed, _)| Range { to: successor(&timed), from: timed }));
        } else {
            // Up to each right time the left rows that an earlier one has not met.
            let mut met: BTreeMap<&[u8], Vec<u8>> = BTreeMap::new();
            for (timed, n) in &passed {
                let partition = &timed[..*n];
                let from = self.first_left(timed);
                let to = met.insert(partition, from.clone()).or_else(|| successor(partition));
                ranges.push(Range { from, to });
            }
        }
        self.emit_final(&ranges, left, right, out)?;
        for r in &ranges {
            left.delete_range(&r.from, r.to.as_deref());
        }
        for (timed, n) in &passed {
            if !self.spec.backward {
                right.delete_prefix(timed);
            } else if let Some(last) = right.last(timed).map(<[u8]>::to_vec) {
                right.delete_range(&timed[..*n], Some(&last));
            }
        }
        Ok(())
    }

    /// Puts out the left rows of these ranges with what they match, if they have waited for that.
    fn emit_final(&self, ranges: &[Range], left: &OrderedTable, right: &OrderedTable, out: &mut Output) -> Result<()> {
        if !self.spec.emit_on_close {
            return Ok(());
        }
        let mut items: Vec<Item<'_>> = Vec::new();
        for r in ranges {
            for (key, weight) in left.scan_from(&r.from).take_while(|(k, _)| r.to.as_deref().is_none_or(|to| *k < to)) {
                let matched = self.nearest(parts(key)?, right);
                if self.spec.outer || matched.is_some() {
                    items.push((key, matched, weight));
                }
            }
        }
        self.emit(&items, out)
    }
}
