//! Snapshots as bytes: what a task, or a table that DML writes, needs to go on after an epoch.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, UInt8Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt8Type, UInt64Type};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use spate_engine::state::TableSegment;
use spate_engine::task::driver::TaskSnapshot;
use spate_engine::task::leaf::LeafState;
use spate_engine::types::{Result, SpateError, Watermark};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"SPATESN1";
/// Columns beside those of the rows: ids, vnodes, weights.
const BESIDE: usize = 3;

#[derive(Serialize, Deserialize)]
struct Header {
    epoch: u64,
    full: bool,
    caught_up: bool,
    watermark: Watermark,
    leaves: Vec<LeafState>,
    /// Per operator and table: whether the segment holds everything, and its length.
    tables: Vec<Vec<(bool, usize)>>,
}

fn damaged(what: &str) -> SpateError {
    SpateError::internal(format!("the snapshot \"{what}\" is damaged"))
}

/// A snapshot's stored form.
pub fn encode(snapshot: &TaskSnapshot) -> Result<Vec<u8>> {
    let mut bodies = Vec::new();
    let mut tables = Vec::with_capacity(snapshot.tables.len());
    for of_op in &snapshot.tables {
        let mut lengths = Vec::with_capacity(of_op.len());
        for segment in of_op {
            let before = bodies.len();
            encode_segment(segment, &mut bodies)?;
            lengths.push((segment.full, bodies.len() - before));
        }
        tables.push(lengths);
    }
    let TaskSnapshot { epoch, full, caught_up, watermark, .. } = *snapshot;
    let header = Header { epoch, full, caught_up, watermark, leaves: snapshot.leaves.clone(), tables };
    let header = serde_json::to_vec(&header).map_err(|e| SpateError::internal(format!("a snapshot: {e}")))?;
    let mut out = Vec::with_capacity(32 + header.len() + bodies.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(header.len() as u64).to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(&bodies);
    let sum = xxh3_64(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    Ok(out)
}

/// A snapshot from its stored form, which is called `what` in errors.
pub fn decode(what: &str, bytes: &[u8]) -> Result<TaskSnapshot> {
    let (body, sum) = bytes.split_last_chunk::<8>().ok_or_else(|| damaged(what))?;
    if xxh3_64(body) != u64::from_le_bytes(*sum) {
        return Err(damaged(what));
    }
    let (magic, rest) = body.split_first_chunk::<8>().ok_or_else(|| damaged(what))?;
    if magic != MAGIC {
        return Err(SpateError::unsupported(format!("the snapshot \"{what}\" has another format")));
    }
    let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(|| damaged(what))?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| damaged(what))?;
    let (header, mut rest) = rest.split_at_checked(length).ok_or_else(|| damaged(what))?;
    let header: Header = serde_json::from_slice(header).map_err(|_| damaged(what))?;
    let mut tables = Vec::with_capacity(header.tables.len());
    for of_op in header.tables {
        let mut segments = Vec::with_capacity(of_op.len());
        for (full, length) in of_op {
            let (body, after) = rest.split_at_checked(length).ok_or_else(|| damaged(what))?;
            segments.push(decode_segment(full, body)?.ok_or_else(|| damaged(what))?);
            rest = after;
        }
        tables.push(segments);
    }
    let Header { epoch, full, caught_up, watermark, leaves, .. } = header;
    Ok(TaskSnapshot { epoch, full, tables, leaves, caught_up, watermark })
}

fn encode_segment(segment: &TableSegment, out: &mut Vec<u8>) -> Result<()> {
    let rows = &segment.rows;
    let mut fields: Vec<Arc<Field>> = vec![
        Arc::new(Field::new("__id", DataType::UInt64, false)),
        Arc::new(Field::new("__vnode", DataType::UInt8, false)),
        Arc::new(Field::new("__weight", DataType::Int64, false)),
    ];
    fields.extend(rows.schema().fields().iter().cloned());
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(segment.ids.clone())),
        Arc::new(UInt8Array::from(segment.vnodes.clone())),
        Arc::new(Int64Array::from(segment.weights.clone())),
    ];
    columns.extend(rows.columns().iter().cloned());
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    let mut writer = StreamWriter::try_new(out, &schema)?;
    writer.write(&batch)?;
    writer.finish()?;
    Ok(())
}

fn decode_segment(full: bool, bytes: &[u8]) -> Result<Option<TableSegment>> {
    let mut reader = StreamReader::try_new(Cursor::new(bytes), None)?;
    let Some(batch) = reader.next().transpose()? else { return Ok(None) };
    let n = batch.num_columns();
    if n < BESIDE {
        return Ok(None);
    }
    let (Some(ids), Some(vnodes), Some(weights)) = (
        batch.column(0).as_primitive_opt::<UInt64Type>(),
        batch.column(1).as_primitive_opt::<UInt8Type>(),
        batch.column(2).as_primitive_opt::<Int64Type>(),
    ) else {
        return Ok(None);
    };
    let schema = Arc::new(batch.schema().project(&(BESIDE..n).collect::<Vec<_>>())?);
    let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
    let rows = RecordBatch::try_new_with_options(schema, batch.columns()[BESIDE..].to_vec(), &options)?;
    Ok(Some(TableSegment {
        full,
        ids: ids.values().to_vec(),
        vnodes: vnodes.values().to_vec(),
        weights: weights.values().to_vec(),
        rows,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    #[test]
    fn snapshots_come_back_and_damage_is_seen() {
        let column: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let some = TableSegment {
            full: false,
            ids: vec![3, 9],
            vnodes: vec![1, 255],
            weights: vec![0, -4],
            rows: RecordBatch::try_from_iter([("a", column)]).unwrap(),
        };
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let bare = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
        let unit = TableSegment { full: true, ids: vec![1], vnodes: vec![0], weights: vec![1], rows: bare };
        let snapshot = TaskSnapshot {
            epoch: 5,
            full: true,
            tables: vec![vec![some, unit], vec![]],
            leaves: vec![LeafState::None],
            caught_up: true,
            watermark: -3,
        };
        let bytes = encode(&snapshot).unwrap();
        let back = decode("x", &bytes).unwrap();
        assert_eq!((back.epoch, back.full, back.caught_up, back.watermark), (5, true, true, -3));
        assert_eq!((back.tables, back.leaves), (snapshot.tables, snapshot.leaves));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(decode("x", &bad).is_err(), "{at}");
            assert!(decode("x", &bytes[..at]).is_err(), "{at}");
        }
    }
}
