//! Files to read: Nexmark events and a table with many keys, as Parquet.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use spate_engine::connector::generate::{Format, generate_nexmark};
use spate_engine::types::{Result, SpateError};

/// The side input of q13, in the folder of [`nexmark`]: `(key bigint, value text)`.
pub const SIDE_INPUT: &str = "side_input.parquet";
const SIDE_ROWS: i64 = 10_000;

/// Nexmark files under `dir`, made if they are not there, and [`SIDE_INPUT`].
///
/// # Errors
/// When the files cannot be written.
pub fn nexmark(dir: &Path, events: u64, format: Format) -> Result<PathBuf> {
    let out = dir.join(format!("nexmark-{events}-{}", format!("{format:?}").to_lowercase()));
    // Written last.
    let whole = out.join(".complete");
    if !whole.exists() {
        generate_nexmark(&out, events, format, 0, &mut |_, _| std::ops::ControlFlow::Continue(()))?;
        let keys: Int64Array = (0..SIDE_ROWS).map(Some).collect();
        let values: StringArray = (0..SIDE_ROWS).map(|k| Some(format!("v{k}"))).collect();
        let columns = [("key", Arc::new(keys) as ArrayRef), ("value", Arc::new(values) as ArrayRef)];
        let rows = RecordBatch::try_from_iter(columns)?;
        write(&out.join(SIDE_INPUT), rows.schema(), [Ok(rows)])?;
        std::fs::write(whole, [])?;
    }
    Ok(out)
}

type Made = std::result::Result<RecordBatch, ArrowError>;

fn write(path: &Path, schema: SchemaRef, rows: impl IntoIterator<Item = Made>) -> Result<()> {
    let broken = |e: parquet::errors::ParquetError| SpateError::internal(e.to_string());
    let mut writer = ArrowWriter::try_new(File::create(path)?, schema, None).map_err(broken)?;
    for batch in rows {
        writer.write(&batch?).map_err(broken)?;
    }
    writer.close().map_err(broken)?;
    Ok(())
}

/// A file of `rows` rows `(k, v)`, both bigint, `k` drawn from `keys` values.
///
/// # Errors
/// When the file cannot be written.
pub fn keyed(dir: &Path, rows: u64, keys: i64) -> Result<PathBuf> {
    let path = dir.join(format!("keyed-{rows}-{keys}.parquet"));
    if path.exists() {
        return Ok(path);
    }
    std::fs::create_dir_all(dir)?;
    let schema =
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("v", DataType::Int64, false)]));
    let partial = path.with_extension("tmp");
    let mut rng = SmallRng::seed_from_u64(42);
    let mut left = rows;
    let batches = std::iter::from_fn(|| {
        let n = left.min(1 << 16) as usize;
        left -= n as u64;
        let k: Int64Array = (0..n).map(|_| Some(rng.random_range(0..keys))).collect();
        let v: Int64Array = (0..n).map(|_| Some(rng.random_range(0..1000))).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(k), Arc::new(v)];
        (n > 0).then(|| RecordBatch::try_new(schema.clone(), columns))
    });
    write(&partial, schema.clone(), batches)?;
    std::fs::rename(&partial, &path)?;
    Ok(path)
}
