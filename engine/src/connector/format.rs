//! How rows are written down: from `FORMAT … ENCODE …`, the option `format`, or a file's name.

use std::path::Path;

use crate::types::{Result, SpateError};

/// The `FORMAT f ENCODE e` clause as written; both in any case.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FormatSpec {
    /// `PLAIN`, `UPSERT`, `DEBEZIUM`, …
    pub format: String,
    /// `JSON`, `CSV`, …
    pub encode: String,
}

/// How one row is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// One JSON object per line.
    Json,
    /// Comma-separated values.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow IPC file.
    Arrow,
}

impl Encoding {
    /// The words of the option `format`.
    pub(super) const WORDS: &'static [&'static str] = &["json", "csv", "parquet", "arrow", "ndjson", "jsonl"];

    /// Extension of files in this encoding.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }

    /// The encoding that a word names, in any case.
    pub fn from_word(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "json" | "ndjson" | "jsonl" => Some(Self::Json),
            "csv" => Some(Self::Csv),
            "parquet" => Some(Self::Parquet),
            "arrow" => Some(Self::Arrow),
            _ => None,
        }
    }

    /// The encoding that a file's extension names. Compressed files are refused by name.
    pub fn from_path(path: &Path) -> Result<Option<Self>> {
        let Some(ext) = path.extension().and_then(|e| e.to_str()) else { return Ok(None) };
        match ext.to_ascii_lowercase().as_str() {
            e @ ("gz" | "gzip" | "zst" | "bz2" | "xz" | "lz4" | "zip" | "snappy") => {
                Err(SpateError::unsupported(format!("cannot read compressed file \"{}\" (.{e})", path.display()))
                    .with_hint("decompress it first, or write Parquet, which is compressed inside"))
            }
            e => Ok(Self::from_word(e)),
        }
    }
}

/// How records speak of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Envelope {
    /// Every record is a row.
    Plain,
    /// Every record is the row of its key from now on; with `"__deleted": true` there is none.
    Upsert,
    /// Change events with `before`, `after` and `op`, as Debezium writes them.
    Debezium,
}

impl FormatSpec {
    /// The encoding, where it is one that connectors here know.
    pub fn encoding(&self) -> Result<Encoding> {
        let encode = self.encode.to_ascii_uppercase();
        Encoding::from_word(&encode).ok_or_else(|| {
            SpateError::unsupported(format!("ENCODE {encode} is not supported"))
                .with_hint("use ENCODE JSON, CSV, PARQUET or ARROW")
        })
    }

    /// How records speak of changes. Anything but rows is for JSON.
    pub fn envelope(&self) -> Result<Envelope> {
        let envelope = match self.format.to_ascii_lowercase().as_str() {
            "plain" => return Ok(Envelope::Plain),
            "upsert" => Envelope::Upsert,
            "debezium" => Envelope::Debezium,
            other => return Err(SpateError::unsupported(format!("FORMAT {} is not supported", other.to_uppercase()))),
        };
        if self.encoding()? == Encoding::Json {
            return Ok(envelope);
        }
        let (format, encode) = (self.format.to_uppercase(), self.encode.to_uppercase());
        let hint = match envelope {
            Envelope::Upsert => "for rows that take each other's place, FORMAT PLAIN and a PRIMARY KEY are enough",
            _ => "use ENCODE JSON",
        };
        Err(SpateError::unsupported(format!("FORMAT {format} ENCODE {encode} is not supported")).with_hint(hint))
    }
}
