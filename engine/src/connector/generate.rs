//! Data sets as files.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::csv::CsvOptions;
use super::format::Encoding;
use super::lines::io_error;
use super::nexmark::{Maker, NexmarkTable};
use super::sink::TextFormat;
use super::sink_file::publish;
use crate::types::{ErrorKind, Result, SpateError};

/// Rows in memory at once per table.
const BATCH_ROWS: usize = 8192;
/// Events between two reports of progress.
const STEP: u64 = 10_000;
/// Rows of a Parquet row group: small enough that several readers have work.
const ROW_GROUP: usize = 128 << 10;
/// How JSON and CSV files show times.
const STAMP: &str = "%Y-%m-%d %H:%M:%S%.3f";
/// Time of event 0 in ms (2015-07-15 00:00:00 UTC) and events per second of event time.
const BASE_TIME_MS: u64 = 1_436_918_400_000;
const EVENT_RATE: u64 = 10_000;

/// The format of generated files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Parquet, zstd.
    Parquet,
    /// One JSON object per line.
    Json,
    /// CSV with a header.
    Csv,
}

impl Format {
    fn encoding(self) -> Encoding {
        match self {
            Self::Parquet => Encoding::Parquet,
            Self::Json => Encoding::Json,
            Self::Csv => Encoding::Csv,
        }
    }
}

enum Output {
    Parquet(Box<ArrowWriter<BufWriter<std::fs::File>>>),
    Text { out: BufWriter<std::fs::File>, csv: bool, first: bool },
}

struct TableFile {
    maker: Maker,
    output: Output,
    temp: tempfile::NamedTempFile,
    target: PathBuf,
}

impl TableFile {
    fn create(dir: &Path, table: NexmarkTable, format: Format, seed: u64) -> Result<Self> {
        let target = dir.join(format!("{}.{}", table.name(), format.encoding().extension()));
        let fail = |e: &std::io::Error| io_error("cannot write", &target, e);
        let temp = tempfile::Builder::new().prefix(".spate-").suffix(".tmp").tempfile_in(dir).map_err(|e| fail(&e))?;
        let out = BufWriter::with_capacity(1 << 20, temp.reopen().map_err(|e| fail(&e))?);
        let output = match format {
            Format::Parquet => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(Default::default()))
                    .set_max_row_group_row_count(Some(ROW_GROUP))
                    .build();
                let writer = ArrowWriter::try_new(out, table.schema(), Some(properties));
                Output::Parquet(Box::new(writer.map_err(|e| failed(&target, &e))?))
            }
            Format::Json => Output::Text { out, csv: false, first: true },
            Format::Csv => Output::Text { out, csv: true, first: true },
        };
        let columns: Vec<usize> = (0..table.schema().fields().len()).collect();
        let maker = Maker::new(table, &columns, seed, BASE_TIME_MS, EVENT_RATE)?;
        Ok(Self { maker, output, temp, target })
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match &mut self.output {
            Output::Parquet(w) => w.write(rows).map_err(|e| failed(&self.target, &e)),
            Output::Text { out, csv, first } => {
                let format = if *csv {
                    TextFormat::Csv(CsvOptions { header: true, delimiter: b',', null: String::new() })
                } else {
                    TextFormat::Json
                };
                format.write_with(rows, std::mem::take(first), STAMP, out)
            }
        }
    }

    fn finish(mut self) -> Result<PathBuf> {
        // Also without rows, for the CSV header.
        let rows = self.maker.finish()?;
        self.write(&rows)?;
        match self.output {
            Output::Parquet(w) => {
                let mut out = w.into_inner().map_err(|e| failed(&self.target, &e))?;
                out.flush().map_err(|e| io_error("cannot write", &self.target, &e))?;
            }
            Output::Text { mut out, .. } => out.flush().map_err(|e| io_error("cannot write", &self.target, &e))?,
        }
        publish(self.temp, &self.target)?;
        Ok(self.target)
    }
}

fn failed(path: &Path, e: &dyn std::fmt::Display) -> SpateError {
    SpateError::new(ErrorKind::Io, format!("cannot write \"{}\": {e}", path.display()))
}

/// Writes the first `events` Nexmark events of a seed to `person`, `auction` and `bid` files in
/// `out_dir`, which is made if need be. The rows are those of `connector = 'nexmark'` with the
/// same seed. Each file appears under its name only when it is whole; memory does not grow with
/// `events`. `progress` gets events done and in all, and may ask to stop; then nothing is left behind.
///
/// # Errors
/// A seed beyond 1,000,000,000, files that cannot be written, `Cancelled` if asked to stop.
pub fn generate_nexmark(
    out_dir: &Path,
    events: u64,
    format: Format,
    seed: u64,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Vec<PathBuf>> {
    if seed > super::nexmark::MAX_SEED {
        return Err(SpateError::invalid(format!("seed must be at most {}, not {seed}", super::nexmark::MAX_SEED)));
    }
    std::fs::create_dir_all(out_dir).map_err(|e| io_error("cannot make directory", out_dir, &e))?;
    let mut tables = NexmarkTable::ALL
        .into_iter()
        .map(|t| TableFile::create(out_dir, t, format, seed))
        .collect::<Result<Vec<_>>>()?;
    let mut done = 0;
    while done < events {
        let stop = (done + STEP).min(events);
        for table in &mut tables {
            for n in done..stop {
                table.maker.push(n);
                if table.maker.rows() >= BATCH_ROWS {
                    let rows = table.maker.finish()?;
                    table.write(&rows)?;
                }
            }
        }
        done = stop;
        if progress(done, events).is_break() {
            return Err(SpateError::new(ErrorKind::Cancelled, "cancelled"));
        }
    }
    tables.into_iter().map(TableFile::finish).collect()
}
