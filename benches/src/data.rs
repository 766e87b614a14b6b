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
    let mut rng = SmallRng::seed_from_u64(42);
    made(dir, &format!("keyed-{rows}-{keys}"), rows, &mut |_| (rng.random_range(0..keys), rng.random_range(0..1000)))
}

/// The same with `rows` different keys, in no order.
///
/// # Errors
/// When the file cannot be written.
pub fn distinct(dir: &Path, rows: u32) -> Result<PathBuf> {
    // An odd factor gives each number of 32 bits another one.
    let mut row = |i: u64| (i64::from((i as u32).wrapping_mul(0x9e37_79b1)), i64::from(i as u32 % 1000));
    made(dir, &format!("distinct-{rows}"), rows.into(), &mut row)
}

fn made(dir: &Path, name: &str, rows: u64, row: &mut dyn FnMut(u64) -> (i64, i64)) -> Result<PathBuf> {
    let path = dir.join(format!("{name}.parquet"));
    if path.exists() {
        return Ok(path);
    }
    std::fs::create_dir_all(dir)?;
    let schema =
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("v", DataType::Int64, false)]));
    let partial = path.with_extension("tmp");
    let mut next = 0;
    let batches = std::iter::from_fn(|| {
        let end = rows.min(next + (1 << 16));
        let (k, v): (Vec<i64>, Vec<i64>) = (next..end).map(&mut *row).unzip();
        next = end;
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(k)), Arc::new(Int64Array::from(v))];
        (!columns[0].is_empty()).then(|| RecordBatch::try_new(schema.clone(), columns))
    });
    write(&partial, schema.clone(), batches)?;
    std::fs::rename(&partial, &path)?;
    Ok(path)
}
