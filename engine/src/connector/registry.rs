//! Connectors by name: from the options of `CREATE SOURCE` and `CREATE SINK` to the connector.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::csv::CsvOptions;
use super::datagen::DatagenSource;
use super::file::{FileSource, csv_options, named_encoding};
use super::format::{Encoding, Envelope, FormatSpec};
use super::nexmark::NexmarkSource;
use super::options::{IDLE_TIMEOUT, Opts, suggest, unknown_connector};
use super::sink::{Blackhole, Flatten, StreamSink, TextFormat, null_row};
use super::sink_changes::Changes;
use super::sink_file::FileSink;
use super::{Options, SinkWriter, SourceConnector};
use crate::env::Clock;
use crate::types::{ErrorKind, Result, SpateError};

const SOURCES: &[&str] = &["file", "nexmark", "datagen"];
const SINKS: &[&str] = &["file", "stdout", "blackhole"];

fn connector<'a>(options: &'a Options, what: &str, known: &[&str]) -> Result<&'a str> {
    options.get("connector").map(String::as_str).filter(|c| !c.is_empty()).ok_or_else(|| {
        let error = SpateError::invalid(format!("a {what} needs the option \"connector\""));
        // A slip in the word itself is told from a word left out.
        match options.keys().find(|k| suggest(k, ["connector"]).is_some()) {
            Some(near) => error.with_hint(format!("did you mean \"connector\" by \"{near}\"?")),
            None => error.with_hint(format!("WITH (connector = '…'), one of {}", known.join(", "))),
        }
    })
}

/// A connector that makes its own rows has no use for a format.
fn no_format(name: &str, options: &Options, format: Option<&FormatSpec>) -> Result<()> {
    if format.is_some() || options.contains_key("format") {
        return Err(SpateError::invalid(format!("connector \"{name}\" has no format"))
            .with_hint("leave out the FORMAT clause and the option format"));
    }
    Ok(())
}

/// Opens the source that `options` name. `declared` are the columns of the statement, if it has
/// any; without them the source says what its columns are. `key` are the columns by which records
/// that change rows are told apart. Relative paths start at `base_dir`.
///
/// # Errors
/// An unknown connector or option, a bad or missing value, a file that is not there or does not
/// have the declared columns; each named, with what would be right.
pub fn open_source(
    options: &Options,
    format: Option<&FormatSpec>,
    declared: Option<SchemaRef>,
    key: &[usize],
    base_dir: &Path,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn SourceConnector>> {
    let name = connector(options, "source", SOURCES)?;
    match name {
        "file" => Ok(Arc::new(FileSource::open(options, format, declared, key, base_dir, clock)?)),
        "nexmark" => {
            no_format(name, options, format)?;
            Ok(Arc::new(NexmarkSource::open(options, declared, clock)?))
        }
        "datagen" => {
            no_format(name, options, format)?;
            Ok(Arc::new(DatagenSource::open(options, declared, clock)?))
        }
        other => Err(unknown_connector(other, "source", SOURCES)),
    }
}

/// Opens the sink that `options` name, for deltas of `schema`. `append_only` says that no row is
/// ever taken away; `key` are the columns by which rows are told apart, if there are such.
///
/// # Errors
/// As for [`open_source`], and a sink that cannot take rows away when some are.
pub fn open_sink(
    options: &Options,
    format: Option<&FormatSpec>,
    schema: SchemaRef,
    append_only: bool,
    key: Option<&[usize]>,
    base_dir: &Path,
) -> Result<Box<dyn SinkWriter>> {
    let name = connector(options, "sink", SINKS)?;
    let envelope = format.map_or(Ok(Envelope::Plain), FormatSpec::envelope)?;
    let keyed = envelope != Envelope::Plain;
    let flatten = |changelog: bool, encoding: Encoding| match envelope {
        Envelope::Plain => Flatten::new(&schema, changelog, encoding == Encoding::Json),
        keyed => Changes::new(keyed, &schema, key).map(Flatten::Changes),
    };
    if options.contains_key(IDLE_TIMEOUT) {
        return Err(SpateError::invalid(format!("option \"{IDLE_TIMEOUT}\" is one of sources, not of sinks")));
    }
    match name {
        "blackhole" => {
            Opts::new(name, options, &[], &[])?;
            Ok(Box::new(Blackhole::default()))
        }
        "stdout" => {
            let opts = Opts::new(name, options, &["header", "delimiter", "null"], &[])?;
            let encoding = named_encoding(&opts, format)?.unwrap_or(Encoding::Json);
            let csv = csv_options(&opts, encoding)?;
            let format = text_format(name, encoding, csv)?;
            let flatten = flatten(!append_only, encoding)?;
            format.check(flatten.schema())?;
            Ok(Box::new(StreamSink { out: std::io::stdout(), flatten, format, first: true }))
        }
        "file" => {
            let opts = Opts::new(name, options, &["path", "changelog", "header", "delimiter", "null"], &[])?;
            let dir = base_dir.join(opts.required("path")?);
            let encoding = named_encoding(&opts, format)?.ok_or_else(|| {
                SpateError::invalid("connector \"file\" needs the option \"format\"")
                    .with_hint("format = 'json', 'csv' or 'parquet'")
            })?;
            let csv = csv_options(&opts, encoding)?;
            let changelog = opts.boolean("changelog", false)?;
            if keyed && changelog {
                return Err(opts.wrong("changelog", "is for FORMAT PLAIN"));
            }
            if !append_only && !changelog && !keyed {
                return Err(SpateError::new(
                    ErrorKind::Unsupported,
                    "sink connector \"file\" cannot take rows away, and this query updates or deletes rows",
                )
                .with_hint(
                    "add changelog = true to write every change with a column __op, + or -, or FORMAT UPSERT ENCODE JSON",
                ));
            }
            let text = match encoding {
                // Unused for Parquet.
                Encoding::Parquet => TextFormat::Json,
                other => text_format(name, other, csv)?,
            };
            let flatten = flatten(changelog, encoding)?;
            match encoding {
                Encoding::Parquet => check_parquet(flatten.schema())?,
                _ => text.check(flatten.schema())?,
            }
            Ok(Box::new(FileSink::open(dir, encoding, text, flatten)?))
        }
        other => Err(unknown_connector(other, "sink", SINKS)),
    }
}

/// Refuses columns that Parquet files cannot hold, before there is anything to write.
fn check_parquet(schema: &SchemaRef) -> Result<()> {
    let rows = null_row(schema)?;
    let cannot = |e: ::parquet::errors::ParquetError| {
        SpateError::unsupported(format!("a Parquet file cannot hold these columns: {e}"))
            .with_hint("cast the column to another type, such as text")
    };
    let mut writer = ::parquet::arrow::ArrowWriter::try_new(Vec::new(), rows.schema(), None).map_err(cannot)?;
    writer.write(&rows).map_err(cannot)?;
    writer.close().map_err(cannot).map(|_| ())
}

fn text_format(name: &str, encoding: Encoding, csv: CsvOptions) -> Result<TextFormat> {
    match encoding {
        Encoding::Json => Ok(TextFormat::Json),
        Encoding::Csv => Ok(TextFormat::Csv(csv)),
        other => Err(SpateError::unsupported(format!("sink connector \"{name}\" cannot write {}", other.extension()))),
    }
}
