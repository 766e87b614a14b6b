//! Temporal filters: rows that are in the result from one time on, up to another.
//!
//! `ts > now() - INTERVAL '1 hour'` holds for a row until an hour after its `ts`; each condition
//! bounds from below or from above the times at which a row is in. `now()` is the time of the
//! tick that opened the epoch, so rows enter and leave at barriers.
//!
//! State: rows that are still to enter, by the time when they do, and rows that are in and
//! will leave, by the time when they do. A row that has left is forgotten; when it is taken
//! back later nothing happens, since its own columns say that it is gone. Rows that never
//! leave are not kept.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType};

use super::consolidate::{Consolidator, pick, weights_or_none};
use super::expr::evaluate;
use super::row_keys::RowKeys;
use super::{BarrierInfo, Operator, Output};
use crate::plan::TemporalSpec;
use crate::state::{OrderedTable, TableDef, Tables};
use crate::types::{Delta, Result, SpateError, WATERMARK_MAX, Watermark};

/// Rows decoded at once.
const BATCH_ROWS: usize = 8 * 1024;
/// Bytes of a time before a row's.
const TIME: usize = 8;

/// Tables.
const TO_ENTER: usize = 0;
const TO_LEAVE: usize = 1;

/// Lets rows in and out as time goes on.
#[derive(Debug)]
pub struct Temporal {
    spec: TemporalSpec,
    keys: RowKeys,
    input: Consolidator,
    net: Consolidator,
    /// As of the last barrier, rows are still to enter or leave.
    waits: bool,
}

/// When rows enter and when they leave; rows that never enter have no such times.
struct Times {
    enter: Vec<i64>,
    leave: Vec<i64>,
}

impl Temporal {
    /// The operator for this spec over rows of `schema`.
    pub fn new(spec: TemporalSpec, schema: SchemaRef) -> Result<Self> {
        let keys = RowKeys::new(schema.clone(), &[], &[], "a temporal filter")?;
        Ok(Self {
            spec,
            keys,
            input: Consolidator::new(schema.clone())?,
            net: Consolidator::new(schema)?,
            waits: false,
        })
    }

    fn times(&self, rows: &RecordBatch) -> Result<Times> {
        let n = rows.num_rows();
        let mut times = Times { enter: vec![i64::MIN; n], leave: vec![i64::MAX; n] };
        for bound in &self.spec.bounds {
            let values = microseconds(evaluate(&bound.expr, rows)?)?;
            let to = if bound.leave { &mut times.leave } else { &mut times.enter };
            for (i, t) in to.iter_mut().enumerate() {
                // A condition on NULL is never true.
                let at = match values.is_valid(i) {
                    true => values.value(i).saturating_add(bound.shift_us),
                    false if bound.leave => i64::MIN,
                    false => i64::MAX,
                };
                *t = if bound.leave { (*t).min(at) } else { (*t).max(at) };
            }
        }
        Ok(times)
    }

    /// Files rows with their weights: those that are in go out, those that will be wait.
    fn file(&mut self, delta: &Delta, now: i64, tables: &mut Tables) -> Result<()> {
        let times = self.times(delta.rows())?;
        let mut inside = Vec::new();
        let (mut to_enter, mut to_leave) = (Vec::new(), Vec::new());
        let mut i = 0;
        self.keys.encode(delta, |row| {
            let (enter, leave) = (times.enter[i], times.leave[i]);
            if enter < leave && leave > now {
                if enter > now {
                    to_enter.push((timed(enter, row.key), row.weight));
                } else {
                    inside.push(i as u32);
                    if leave < i64::MAX {
                        to_leave.push((timed(leave, row.key), row.weight));
                    }
                }
            }
            i += 1;
        })?;
        for (table, rows) in [(TO_ENTER, to_enter), (TO_LEAVE, to_leave)] {
            let table = tables.ordered(table)?;
            for (key, weight) in rows {
                table.add(&key, weight, 0);
            }
        }
        if !inside.is_empty() {
            let weights = inside.iter().map(|&i| delta.weight(i as usize)).collect();
            self.net.push(&pick(delta, inside, weights_or_none(weights))?)?;
        }
        Ok(())
    }

    /// Takes the rows that are due out of a table.
    fn due_rows(&self, table: &mut OrderedTable, now: i64) -> Result<Vec<Delta>> {
        let end = timed(now.saturating_add(1), &[]);
        let end = (now < i64::MAX).then_some(end);
        let mut out = Vec::new();
        {
            let due: Vec<(&[u8], i64)> =
                table.scan_from(&[]).take_while(|(k, _)| end.as_deref().is_none_or(|e| *k < e)).collect();
            for part in due.chunks(BATCH_ROWS) {
                let rows = self.keys.decode(part.iter().map(|(k, _)| k.get(TIME..).unwrap_or_default()))?;
                let weights = part.iter().map(|(_, w)| *w).collect();
                out.push(Delta::new(rows, weights_or_none(weights))?);
            }
        }
        table.delete_range(&[], end.as_deref());
        Ok(out)
    }
}

/// A row's key behind a time, so that rows lie by time.
fn timed(time: i64, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(TIME + key.len());
    out.extend_from_slice(&((time as u64) ^ (1 << 63)).to_be_bytes());
    out.extend_from_slice(key);
    out
}

fn time_of(key: &[u8]) -> Option<i64> {
    key.first_chunk::<TIME>().map(|b| (u64::from_be_bytes(*b) ^ (1 << 63)) as i64)
}

fn microseconds(values: ArrayRef) -> Result<Int64Array> {
    match values.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Ok(values.as_primitive::<TimestampMicrosecondType>().reinterpret_cast::<Int64Type>())
        }
        DataType::Null => Ok(cast(&values, &DataType::Int64)?.as_primitive::<Int64Type>().clone()),
        other => Err(SpateError::internal(format!("a temporal filter over {other}"))),
    }
}

impl Operator for Temporal {
    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::Ordered, TableDef::Ordered]
    }

    fn push(&mut self, _input: usize, delta: Delta, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        self.input.push(&delta)
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let now = info.tick.opened_us;
        for gone in self.due_rows(tables.ordered(TO_LEAVE)?, now)? {
            self.net.push(&gone.negate())?;
        }
        let mut waiting = self.due_rows(tables.ordered(TO_ENTER)?, now)?;
        waiting.extend(self.input.finish()?);
        for delta in waiting {
            self.file(&delta, now, tables)?;
        }
        for delta in self.net.finish()? {
            out.emit(delta);
        }
        self.waits = !tables.ordered(TO_ENTER)?.is_empty() || !tables.ordered(TO_LEAVE)?.is_empty();
        Ok(())
    }

    /// An input that has ended is no end while rows are to enter or leave.
    fn watermark(&self, info: &BarrierInfo<'_>) -> Watermark {
        if self.waits { info.watermark.min(WATERMARK_MAX - 1) } else { info.watermark }
    }

    fn due(&self, tables: &mut Tables) -> Option<i64> {
        let mut first = |table| {
            let table: &OrderedTable = tables.ordered(table).ok()?;
            let first = table.scan_from(&[]).next();
            first.and_then(|(k, _)| time_of(k))
        };
        let (enter, leave) = (first(TO_ENTER), first(TO_LEAVE));
        enter.into_iter().chain(leave).min()
    }
}

#[cfg(test)]
#[path = "temporal_tests.rs"]
mod tests;
