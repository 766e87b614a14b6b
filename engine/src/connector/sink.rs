//! How deltas are written down, and the sinks `blackhole` and `stdout`.
//!
//! An append-only sink writes plain rows. Any other writes a changelog: each row with a column
//! `__op` in front that is `+` for a row that came and `-` for one that went; a weight of 3 is
//! three rows. With `FORMAT UPSERT` and `FORMAT DEBEZIUM` it writes what became of each key.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, RecordBatch, StringArray, UInt32Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, WriterBuilder};

use super::csv::CsvOptions;
use super::sink_changes::Changes;
use super::types::batch;
use super::{SinkWriter, sink_csv};
use crate::types::textual::{contains_textual, convert, written};
use crate::types::{Delta, Epoch, ErrorKind, Result, SpateError, jsonb};

/// Name of the column that says whether a row came or went.
pub(super) const OP: &str = "__op";
/// How timestamps are written.
const STAMP: &str = "%Y-%m-%d %H:%M:%S%.f";

/// Writes deltas as rows.
pub(super) enum Flatten {
    /// Rows as they are, with a column of operations if anything can be taken away.
    Rows {
        /// The schema of what is written.
        schema: SchemaRef,
        /// Whether there is a column of operations.
        changelog: bool,
        /// Whether the format can hold JSON values as what they are.
        json: bool,
    },
    /// Records by key.
    Changes(Changes),
}

impl Flatten {
    /// For deltas of `schema`. `json` if the format can hold JSON values as what they are.
    pub(super) fn new(schema: &SchemaRef, changelog: bool, json: bool) -> Result<Self> {
        let schema = schema_as_written(schema, json);
        if !changelog {
            return Ok(Self::Rows { schema, changelog, json });
        }
        if schema.fields().iter().any(|f| f.name() == OP) {
            return Err(SpateError::invalid(format!("column \"{OP}\" is taken by the changelog"))
                .with_hint("rename the column"));
        }
        let op = Arc::new(Field::new(OP, DataType::Utf8, false));
        let fields: Vec<_> = std::iter::once(op).chain(schema.fields().iter().cloned()).collect();
        Ok(Self::Rows { schema: Arc::new(Schema::new(fields)), changelog, json })
    }

    /// The schema of the rows.
    pub(super) fn schema(&self) -> &SchemaRef {
        match self {
            Self::Rows { schema, .. } => schema,
            Self::Changes(c) => c.schema(),
        }
    }

    /// What an epoch's deltas give to write; nothing empty.
    pub(super) fn epoch(&self, deltas: &[Delta]) -> Result<Vec<RecordBatch>> {
        let (schema, changelog, json) = match self {
            Self::Rows { schema, changelog, json } => (schema, *changelog, *json),
            Self::Changes(c) => return Ok(c.records(deltas)?.into_iter().collect()),
        };
        let mut batches = Vec::new();
        for d in deltas.iter().filter(|d| !d.is_empty()) {
            let rows = rows(schema, changelog, json, d)?;
            if rows.num_rows() > 0 {
                batches.push(rows);
            }
        }
        Ok(batches)
    }
}

/// Columns with the types in which they are written.
pub(super) fn schema_as_written(schema: &SchemaRef, json: bool) -> SchemaRef {
    let as_written = |f: &Arc<Field>| match contains_textual(f.data_type()) {
        true => Arc::new(f.as_ref().clone().with_data_type(written(f.data_type(), json))),
        false => Arc::clone(f),
    };
    Arc::new(Schema::new(schema.fields().iter().map(as_written).collect::<Vec<_>>()))
}

/// Columns in the types of [`schema_as_written`].
pub(super) fn columns_as_written(columns: Vec<ArrayRef>, json: bool) -> Result<Vec<ArrayRef>> {
    let as_written = |c: ArrayRef| match contains_textual(c.data_type()) {
        true => convert(&c, &written(c.data_type(), json), false),
        false => Ok(c),
    };
    columns.into_iter().map(as_written).collect()
}

/// The rows of a delta, each as often as its weight says.
fn rows(schema: &SchemaRef, changelog: bool, json: bool, delta: &Delta) -> Result<RecordBatch> {
    let plain = delta.weights().is_none_or(|w| w.values().iter().all(|w| *w == 1));
    let (columns, ops): (Vec<ArrayRef>, Vec<&str>) = if plain {
        (delta.rows().columns().to_vec(), vec!["+"; delta.num_rows()])
    } else {
        let mut indices: Vec<u32> = Vec::new();
        let mut ops = Vec::new();
        for i in 0..delta.num_rows() {
            let weight = delta.weight(i);
            if weight < 0 && !changelog {
                return Err(SpateError::internal("a row was taken away from an append-only sink"));
            }
            let row = u32::try_from(i).map_err(|_| SpateError::internal("a delta has too many rows"))?;
            for _ in 0..weight.unsigned_abs() {
                indices.push(row);
                ops.push(if weight < 0 { "-" } else { "+" });
            }
        }
        let taken = arrow::compute::take_record_batch(delta.rows(), &UInt32Array::from(indices))?;
        (taken.columns().to_vec(), ops)
    };
    let n = ops.len();
    let columns = columns_as_written(columns, json)?;
    let columns = if changelog {
        std::iter::once(Arc::new(StringArray::from(ops)) as ArrayRef).chain(columns).collect()
    } else {
        columns
    };
    batch(schema, columns, n)
}

/// Writes rows as text: JSON lines or CSV.
#[derive(Debug, Clone)]
pub(super) enum TextFormat {
    /// One object per line, NULLs included.
    Json,
    /// With these options.
    Csv(CsvOptions),
}

impl TextFormat {
    /// Refuses columns that cannot be written, before there is anything to write.
    pub(super) fn check(&self, schema: &SchemaRef) -> Result<()> {
        self.write(&null_row(schema)?, true, &mut std::io::sink()).map_err(|e| {
            SpateError::unsupported(format!("these columns cannot be written: {e}"))
                .with_hint("cast the column to another type, such as text")
        })
    }

    /// Writes `rows`; `first` if nothing stands before them (a CSV header is written then).
    pub(super) fn write(&self, rows: &RecordBatch, first: bool, out: &mut dyn Write) -> Result<()> {
        self.write_with(rows, first, STAMP, out)
    }

    /// As [`Self::write`], with another format for timestamps.
    pub(super) fn write_with(&self, rows: &RecordBatch, first: bool, stamp: &str, out: &mut dyn Write) -> Result<()> {
        match self {
            Self::Json => {
                let mut writer = WriterBuilder::new()
                    .with_explicit_nulls(true)
                    .with_timestamp_format(stamp.to_owned())
                    .with_encoder_factory(Arc::new(JsonValues))
                    .build::<_, LineDelimited>(out);
                writer.write(rows)?;
                writer.finish()?;
            }
            Self::Csv(options) => sink_csv::write(rows, options, first, stamp, out)?,
        }
        Ok(())
    }
}

/// Writes `jsonb` as the value that it is.
#[derive(Debug)]
struct JsonValues;

impl EncoderFactory for JsonValues {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> std::result::Result<Option<NullableEncoder<'a>>, ArrowError> {
        let float = matches!(array.data_type(), DataType::Float32 | DataType::Float64);
        if float && (0..array.len()).any(|i| array.is_valid(i) && sink_csv::special(array, i).is_some()) {
            return Ok(Some(NullableEncoder::new(Box::new(Floats(array)), array.nulls().cloned())));
        }
        if *array.data_type() != jsonb::TYPE {
            return Ok(None);
        }
        let encoder = Box::new(JsonValue(array.as_binary::<i64>()));
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

/// Floats of which some are no JSON numbers: those are texts, as the source reads them.
struct Floats<'a>(&'a dyn Array);

impl Encoder for Floats<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let text = match (sink_csv::special(self.0, row), self.0.data_type()) {
            (Some(name), _) => format!("\"{name}\""),
            (None, DataType::Float32) => format!("{:?}", self.0.as_primitive::<Float32Type>().value(row)),
            (None, _) => format!("{:?}", self.0.as_primitive::<Float64Type>().value(row)),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

struct JsonValue<'a>(&'a LargeBinaryArray);

impl Encoder for JsonValue<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.value(row));
    }
}

/// Counts rows and forgets them.
#[derive(Debug, Default)]
pub(super) struct Blackhole {
    rows: u64,
    epochs: u64,
}

impl SinkWriter for Blackhole {
    fn write_epoch(&mut self, _: Epoch, deltas: &[Delta]) -> Result<()> {
        self.rows += deltas.iter().map(|d| d.num_rows() as u64).sum::<u64>();
        self.epochs += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        tracing::debug!(rows = self.rows, epochs = self.epochs, "blackhole sink finished");
        Ok(())
    }
}

/// Writes rows to a stream, an epoch at a time.
pub(super) struct StreamSink<W> {
    pub(super) out: W,
    pub(super) flatten: Flatten,
    pub(super) format: TextFormat,
    /// Nothing was written yet.
    pub(super) first: bool,
}

impl<W: Write + Send> SinkWriter for StreamSink<W> {
    fn write_epoch(&mut self, _: Epoch, deltas: &[Delta]) -> Result<()> {
        // An epoch is written as one piece, so that a failure to encode it leaves nothing behind.
        let mut text = Vec::new();
        let mut first = self.first;
        for rows in self.flatten.epoch(deltas)? {
            self.format.write(&rows, first, &mut text)?;
            first = false;
        }
        self.out.write_all(&text).and_then(|()| self.out.flush()).map_err(|e| write_error(&e))?;
        self.first = first;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.out.flush().map_err(|e| write_error(&e))
    }
}

/// One row of NULLs.
pub(super) fn null_row(schema: &SchemaRef) -> Result<RecordBatch> {
    let fields: Vec<_> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    let columns = schema.fields().iter().map(|f| arrow::array::new_null_array(f.data_type(), 1)).collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn write_error(e: &std::io::Error) -> SpateError {
    SpateError::new(ErrorKind::Io, format!("cannot write to standard output: {e}"))
}
