//! What makes an epoch repeatable: its tick, the ranges of the sources, and what was written to
//! tables. An epoch's output is shown to nobody before its record is durable.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use spate_engine::plan::ObjectId;
use spate_engine::task::TaskId;
use spate_engine::types::{Delta, Result, SpateError, SplitRange, Tick, Watermark};

/// Name of the column that holds weights.
const WEIGHT: &str = "__weight";

/// A leaf that reads a connector.
pub type LeafId = (TaskId, usize);

/// What was written to a table in an epoch.
#[derive(Debug, Clone, Default)]
pub struct TableEpoch {
    /// Its watermark at the end.
    pub watermark: Watermark,
    /// In the order of the statements.
    pub deltas: Vec<Delta>,
}

/// The record of an epoch.
#[derive(Debug, Clone)]
pub struct Record {
    /// The tick that closed it.
    pub tick: Tick,
    /// What sources read, without those that read nothing.
    pub ranges: BTreeMap<LeafId, Arc<[SplitRange]>>,
    /// What was written to tables, without those that were not written to.
    pub tables: BTreeMap<ObjectId, TableEpoch>,
}

#[derive(Serialize, Deserialize)]
struct StoredLeaf {
    task: TaskId,
    leaf: usize,
    ranges: Vec<SplitRange>,
}

#[derive(Serialize, Deserialize)]
struct StoredTable {
    id: u64,
    watermark: Watermark,
    /// Lengths of the deltas that follow the header.
    deltas: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    tick: Tick,
    leaves: Vec<StoredLeaf>,
    tables: Vec<StoredTable>,
}

impl Record {
    /// An epoch in which nothing was read or written.
    pub fn new(tick: Tick) -> Self {
        Self { tick, ranges: BTreeMap::new(), tables: BTreeMap::new() }
    }

    /// Its stored form.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bodies = Vec::new();
        let leaf =
            |(&(task, leaf), ranges): (&LeafId, &Arc<[SplitRange]>)| StoredLeaf { task, leaf, ranges: ranges.to_vec() };
        let leaves = self.ranges.iter().map(leaf).collect();
        let mut tables = Vec::with_capacity(self.tables.len());
        for (&id, table) in &self.tables {
            let mut lengths = Vec::with_capacity(table.deltas.len());
            for delta in &table.deltas {
                let bytes = encode_delta(delta)?;
                lengths.push(bytes.len());
                bodies.push(bytes);
            }
            tables.push(StoredTable { id, watermark: table.watermark, deltas: lengths });
        }
        let header = Header { tick: self.tick, leaves, tables };
        let header = serde_json::to_vec(&header).map_err(|e| SpateError::internal(format!("an epoch record: {e}")))?;
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend(header);
        bodies.into_iter().for_each(|b| out.extend(b));
        Ok(out)
    }

    /// A record from its stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = || SpateError::internal("an epoch record is damaged");
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| damaged())?;
        let (header, mut rest) = rest.split_at_checked(length).ok_or_else(damaged)?;
        let header: Header = serde_json::from_slice(header).map_err(|_| damaged())?;
        let leaf = |l: StoredLeaf| ((l.task, l.leaf), Arc::from(l.ranges));
        let ranges = header.leaves.into_iter().map(leaf).collect();
        let mut tables = BTreeMap::new();
        for t in header.tables {
            let mut deltas = Vec::with_capacity(t.deltas.len());
            for length in t.deltas {
                let (body, after) = rest.split_at_checked(length).ok_or_else(damaged)?;
                deltas.push(decode_delta(body)?);
                rest = after;
            }
            tables.insert(t.id, TableEpoch { watermark: t.watermark, deltas });
        }
        Ok(Self { tick: header.tick, ranges, tables })
    }
}

fn encode_delta(delta: &Delta) -> Result<Vec<u8>> {
    let rows = delta.rows();
    let mut fields: Vec<Arc<Field>> = rows.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(WEIGHT, DataType::Int64, false)));
    let mut columns = rows.columns().to_vec();
    columns.push(Arc::new(delta.weights_or_ones()));
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

fn decode_delta(bytes: &[u8]) -> Result<Delta> {
    let damaged = || SpateError::internal("an epoch record holds a damaged delta");
    let mut reader = StreamReader::try_new(Cursor::new(bytes), None)?;
    let batch = reader.next().ok_or_else(damaged)??;
    let n = batch.num_columns().checked_sub(1).ok_or_else(damaged)?;
    let weights: Int64Array = batch.column(n).as_primitive_opt::<Int64Type>().ok_or_else(damaged)?.clone();
    let rows = batch.project(&(0..n).collect::<Vec<_>>())?;
    let ones = weights.values().iter().all(|w| *w == 1);
    Delta::new(rows, (!ones).then_some(weights))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow::array::{ArrayRef, StringArray};

    use super::*;

    #[test]
    fn records_come_back_as_they_were() {
        let tick = Tick { incarnation: 1, term: 3, epoch: 7, opened_us: -5, now_us: 9 };
        let mut record = Record::new(tick);
        assert_eq!(Record::decode(&record.encode().unwrap()).unwrap().tick, tick);
        let task = TaskId { job: 4, fragment: 1, index: 2 };
        let range = SplitRange { source: "s".into(), split: "a/1".into(), start: 3, end: 9 };
        record.ranges.insert((task, 1), Arc::from([range]));
        let column: ArrayRef = Arc::new(StringArray::from(vec![Some("é"), None]));
        let rows = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let plain = Delta::insert(rows.clone());
        let weighted = Delta::new(rows, Some(Int64Array::from(vec![-2, 3]))).unwrap();
        record.tables.insert(9, TableEpoch { watermark: 12, deltas: vec![plain, weighted] });
        record.tables.insert(11, TableEpoch { watermark: -1, deltas: vec![] });
        let bytes = record.encode().unwrap();
        let back = Record::decode(&bytes).unwrap();
        assert_eq!(back.ranges, record.ranges);
        assert_eq!(back.tables.len(), 2);
        assert_eq!((back.tables[&9].watermark, back.tables[&11].watermark), (12, -1));
        for (a, b) in back.tables[&9].deltas.iter().zip(&record.tables[&9].deltas) {
            assert_eq!((a.rows(), a.weights()), (b.rows(), b.weights()));
        }
        for cut in 0..bytes.len() {
            assert!(Record::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
