//! Files to read: Nexmark events and a table with many keys, as Parquet.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use spate_engine::connector::generate::{Format, generate_nexmark};
use spate_engine::types::{Result, SpateError};

/// Nexmark files under `dir`, made if they are not there.
///
/// # Errors
/// When the files cannot be written.
pub fn nexmark(dir: &Path, events: u64) -> Result<PathBuf> {
    let out = dir.join(format!("nexmark-{events}"));
    if !out.join("bid.parquet").exists() {
        generate_nexmark(&out, events, Format::Parquet, 0, &mut |_, _| std::ops::ControlFlow::Continue(()))?;
    }
    Ok(out)
}

/// A file of `rows` rows `(key bigint, value text)`.
///
/// # Errors
/// When the file cannot be written.
pub fn side_input(path: &Path, rows: i64) -> Result<()> {
    let broken = |e: parquet::errors::ParquetError| SpateError::internal(e.to_string());
    let keys: Int64Array = (0..rows).map(Some).collect();
    let values: StringArray = (0..rows).map(|k| Some(format!("v{k}"))).collect();
    let batch =
        RecordBatch::try_from_iter([("key", Arc::new(keys) as ArrayRef), ("value", Arc::new(values) as ArrayRef)])?;
    let mut writer = ArrowWriter::try_new(File::create(path)?, batch.schema(), None).map_err(broken)?;
    writer.write(&batch).map_err(broken)?;
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
    let broken = |e: parquet::errors::ParquetError| SpateError::internal(e.to_string());
    let partial = path.with_extension("tmp");
    let mut writer = ArrowWriter::try_new(File::create(&partial)?, schema.clone(), None).map_err(broken)?;
    let mut rng = SmallRng::seed_from_u64(42);
    let mut left = rows;
    while left > 0 {
        let n = left.min(1 << 16) as usize;
        let k: Int64Array = (0..n).map(|_| Some(rng.random_range(0..keys))).collect();
        let v: Int64Array = (0..n).map(|_| Some(rng.random_range(0..1000))).collect();
        writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(k), Arc::new(v)])?).map_err(broken)?;
        left -= n as u64;
    }
    writer.close().map_err(broken)?;
    std::fs::rename(&partial, &path)?;
    Ok(path)
}
