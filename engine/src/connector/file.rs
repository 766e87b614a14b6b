//! The `file` source: a file, the files of a directory, or the files that a glob names, read once
//! or watched for new files and new lines.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion_physical_expr::PhysicalExpr;
use parking_lot::Mutex;

use super::change::{ChangeDecoder, with_change};
use super::columns::{RowBuilder, can_spoil};
use super::csv::{CsvDecoder, CsvOptions, Fields, header_of};
use super::format::{Encoding, Envelope, FormatSpec};
use super::json::JsonDecoder;
use super::lines::{FileId, Lines, Style, io_error};
use super::options::{Opts, suggest};
use super::text::TextReader;
use super::types::{missing_column, position_of, project};
use super::{Options, SourceConnector, Split, SplitReader, arrow_file, infer, parquet};
use crate::env::Clock;
use crate::types::{ErrorKind, Result, SpateError};

const OPTIONS: &[&str] = &["path", "mode", "header", "delimiter", "null", "max_record_bytes", "split_bytes"];
/// A JSON file is cut into ranges of this size.
const SPLIT_BYTES: u64 = 32 << 20;
/// How often a watched place is looked at for new files.
const DISCOVER: Duration = Duration::from_secs(1);
/// Longer records become dead letters.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// A source over files.
pub(super) struct FileSource {
    place: Place,
    encoding: Encoding,
    /// Changes by key, and the columns of the rows that they are about.
    changes: Option<(Envelope, SchemaRef)>,
    schema: SchemaRef,
    csv: CsvOptions,
    watch: bool,
    max_record: usize,
    split_bytes: u64,
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
}

/// What a watched source has found: its splits stay, whatever happens to the files.
#[derive(Default)]
struct Seen {
    /// In the order in which they were found.
    splits: Vec<Split>,
    files: BTreeSet<PathBuf>,
    /// When the place was last looked at, by monotonic time.
    looked: Option<Duration>,
}

/// Where the files are.
struct Place {
    path: PathBuf,
    /// The pattern, if it is one.
    glob: Option<String>,
    /// The format was named, so a directory's files need no extension that names it.
    named: bool,
}

impl FileSource {
    /// From options; infers the columns unless they are declared.
    pub(super) fn open(
        options: &Options,
        format: Option<&FormatSpec>,
        declared: Option<SchemaRef>,
        key: &[usize],
        base_dir: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let opts = Opts::new("file", options, OPTIONS, &[])?;
        let envelope = format.map_or(Ok(Envelope::Plain), FormatSpec::envelope)?;
        let given = opts.required("path")?;
        let given = given.strip_prefix("file://").unwrap_or(given);
        if let Some((scheme, _)) = given.split_once("://") {
            return Err(SpateError::unsupported(format!("connector \"file\" cannot read from {scheme}://"))
                .with_hint("give a path of this machine"));
        }
        let path = base_dir.join(given);
        let watch = opts.one_of("mode", &["once", "watch"])? == Some("watch");
        let named = named_encoding(&opts, format)?;
        let glob = !path.exists() && given.contains(['*', '?', '[']);
        // Only what the user wrote is a pattern, not the directory that it starts from.
        let pattern = if Path::new(given).is_absolute() {
            given.to_owned()
        } else {
            let base = glob::Pattern::escape(&base_dir.to_string_lossy());
            Path::new(&base).join(given).to_string_lossy().into_owned()
        };
        let place = Place { path, glob: glob.then_some(pattern), named: named.is_some() };
        let encoding = match named {
            Some(e) => e,
            None => place.guess_encoding()?,
        };
        let csv = csv_options(&opts, encoding)?;
        let max_record = opts.bytes("max_record_bytes", 1, 1 << 30)?.unwrap_or(MAX_RECORD_BYTES);
        let split_bytes = opts.bytes("split_bytes", 1024, 1 << 40)?.unwrap_or(SPLIT_BYTES);
        let mut source = Self {
            place,
            encoding,
            changes: None,
            schema: Arc::new(arrow::datatypes::Schema::empty()),
            csv,
            watch,
            max_record: usize::try_from(max_record).unwrap_or(usize::MAX),
            split_bytes,
            clock,
            seen: Mutex::default(),
        };
        let files = source.ready_files()?;
        source.schema = match declared {
            Some(s) if envelope != Envelope::Plain => {
                source.changes = Some((envelope, s.clone()));
                with_change(&s, key)
            }
            Some(s) => s,
            None if envelope != Envelope::Plain => {
                return Err(SpateError::invalid("columns are not inferred from records that change rows")
                    .with_hint("declare the columns"));
            }
            None => source.infer(&files)?,
        };
        if matches!(encoding, Encoding::Json | Encoding::Csv) {
            // Says now if a column's type cannot be read from text.
            RowBuilder::new(source.schema.clone())?;
        }
        if let Some(first) = files.first() {
            source.check_columns(first)?;
        }
        Ok(source)
    }

    fn infer(&self, files: &[PathBuf]) -> Result<SchemaRef> {
        let Some(first) = files.first() else {
            return Err(SpateError::invalid(format!(
                "cannot infer the columns: no file matches \"{}\" yet",
                self.place.path.display()
            ))
            .with_hint("declare the columns"));
        };
        match self.encoding {
            Encoding::Json => infer::json(files, self.max_record, self.watch),
            Encoding::Csv => infer::csv(files, &self.csv, self.max_record, self.watch),
            Encoding::Parquet => parquet::schema_of(first),
            Encoding::Arrow => arrow_file::schema_of(first),
        }
    }

    /// Errors if a file's header or footer does not have the columns.
    fn check_columns(&self, path: &Path) -> Result<()> {
        match self.encoding {
            Encoding::Json => Ok(()),
            Encoding::Csv => self.csv_places(path, &self.schema).map(|_| ()),
            Encoding::Parquet => parquet::row_groups(path, &self.schema).map(|_| ()),
            Encoding::Arrow => arrow_file::check(path, &self.schema),
        }
    }

    /// For each column of `wanted` its field in the records of a CSV file, and their width.
    fn csv_places(&self, path: &Path, wanted: &SchemaRef) -> Result<(Vec<usize>, usize)> {
        if !self.csv.header {
            let all: Vec<String> = self.schema.fields().iter().map(|f| f.name().clone()).collect();
            let places = wanted.fields().iter().filter_map(|f| position_of(&all, f.name())).collect();
            return Ok((places, all.len()));
        }
        // An empty file has no header and no records.
        let Some(names) = header_of(path, &self.csv, self.max_record)? else { return Ok((Vec::new(), 0)) };
        let places = wanted
            .fields()
            .iter()
            .map(|f| {
                position_of(&names, f.name())
                    .ok_or_else(|| missing_column(&path.display().to_string(), f.name(), &names))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((places, names.len()))
    }

    /// The files there are now, sorted. Errors when there must be one and is none.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = self.place.files()?;
        if self.place.path.is_dir() {
            files.retain(|f| match Encoding::from_path(f) {
                Ok(Some(e)) => e == self.encoding,
                Ok(None) => self.place.named,
                Err(_) => false,
            });
        } else {
            for f in &files {
                Encoding::from_path(f)?;
            }
        }
        if files.is_empty() && !(self.watch && (self.place.glob.is_some() || self.place.path.exists())) {
            return Err(self.place.nothing());
        }
        Ok(files)
    }

    /// The files there are now that can be begun with.
    fn ready_files(&self) -> Result<Vec<PathBuf>> {
        let mut files = self.files()?;
        if self.watch {
            files.retain(|f| self.ready(f));
        }
        Ok(files)
    }

    /// Adds the watched files that have come and can be begun with.
    fn look(&self, seen: &mut Seen) -> Result<()> {
        let mut splits = Vec::new();
        for f in self.files()? {
            // A file may be gone again by now.
            if !seen.files.contains(&f) && self.ready(&f) && f.exists() {
                self.splits_of(&f, true, &mut splits)?;
                // One without rows may still be replaced by one that has some.
                if !splits.is_empty() {
                    seen.splits.append(&mut splits);
                    seen.files.insert(f);
                }
            }
        }
        seen.looked = Some(self.clock.monotonic());
        Ok(())
    }

    /// Whether a watched file is whole enough to begin with: a writer may still be at it.
    fn ready(&self, path: &Path) -> bool {
        let tail: &[u8] = match self.encoding {
            Encoding::Parquet => b"PAR1",
            Encoding::Arrow => b"ARROW1",
            Encoding::Json => return true,
            Encoding::Csv if !self.csv.header => return true,
            Encoding::Csv => {
                return std::fs::File::open(path).is_ok_and(|f| {
                    let mut start = Vec::new();
                    f.take(self.max_record as u64).read_to_end(&mut start).is_ok() && start.contains(&b'\n')
                });
            }
        };
        let read = || -> std::io::Result<bool> {
            let mut file = std::fs::File::open(path)?;
            let back = i64::try_from(tail.len()).unwrap_or(0);
            if file.metadata()?.len() < 2 * tail.len() as u64 {
                return Ok(false);
            }
            file.seek(SeekFrom::End(-back))?;
            let mut end = vec![0; tail.len()];
            file.read_exact(&mut end)?;
            Ok(end == tail)
        };
        read().unwrap_or(false)
    }

    fn splits_of(&self, path: &Path, in_order: bool, out: &mut Vec<Split>) -> Result<()> {
        let name = path.to_string_lossy();
        let lane: Arc<str> = Arc::from(name.as_ref());
        let grows = self.watch && matches!(self.encoding, Encoding::Json | Encoding::Csv);
        let id = FileId::of(path, grows)?;
        let detail = id.detail()?;
        let split = |start: u64, end: Option<u64>, whole: bool| Split {
            id: if whole { lane.clone() } else { Arc::from(format!("{name}#{start}")) },
            lane: lane.clone(),
            start,
            end,
            detail: detail.clone(),
        };
        match self.encoding {
            Encoding::Json | Encoding::Csv if grows => out.push(split(0, None, true)),
            Encoding::Json if !in_order => {
                let mut start = 0;
                while start < id.len {
                    let end = (start + self.split_bytes).min(id.len);
                    out.push(split(start, Some(end), false));
                    start = end;
                }
            }
            Encoding::Json | Encoding::Csv => {
                if id.len > 0 {
                    out.push(split(0, Some(id.len), true));
                }
            }
            Encoding::Parquet => {
                let starts = parquet::row_groups(path, &self.schema)?;
                if in_order || self.watch {
                    let rows = starts.last().copied().unwrap_or(0);
                    if rows > 0 {
                        out.push(split(0, Some(rows), true));
                    }
                } else {
                    for w in starts.windows(2) {
                        if let [from, to] = w
                            && from < to
                        {
                            out.push(split(*from, Some(*to), false));
                        }
                    }
                }
            }
            Encoding::Arrow => {
                let rows = arrow_file::rows_of(path, &self.schema)?;
                if rows > 0 {
                    out.push(split(0, Some(rows), true));
                }
            }
        }
        Ok(())
    }
}

impl SourceConnector for FileSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        !self.watch
    }

    fn changes(&self) -> bool {
        self.changes.is_some()
    }

    fn splits(&self, in_order: bool, _: usize) -> Result<Vec<Split>> {
        if self.watch {
            let mut seen = self.seen.lock();
            self.look(&mut seen)?;
            return Ok(seen.splits.clone());
        }
        let mut out = Vec::new();
        for f in self.files()? {
            self.splits_of(&f, in_order, &mut out)?;
        }
        Ok(out)
    }

    fn more_splits(&self, known: usize, _: bool, _: usize) -> Result<Vec<Split>> {
        let mut seen = self.seen.lock();
        // Tasks that ask at about the same time share one look.
        if seen.looked.is_none_or(|t| self.clock.monotonic().saturating_sub(t) >= DISCOVER / 2) {
            self.look(&mut seen)?;
        }
        Ok(seen.splits.get(known..).unwrap_or_default().to_vec())
    }

    fn discover_every(&self) -> Option<Duration> {
        self.watch.then_some(DISCOVER)
    }

    fn open(&self, split: &Split, offset: u64, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        // Which records are bad must not depend on the columns that a query reads.
        let checked = || {
            let fields = self.schema.fields().iter().enumerate();
            let more = fields.filter(|(i, f)| !projection.contains(i) && can_spoil(f)).map(|(i, _)| i);
            project(&self.schema, &projection.iter().copied().chain(more).collect::<Vec<_>>())
        };
        match self.encoding {
            Encoding::Parquet => Ok(Box::new(parquet::open(split, offset, &self.schema, projection, None)?)),
            Encoding::Arrow => Ok(Box::new(arrow_file::open(split, offset, &self.schema, projection)?)),
            Encoding::Json => {
                let id = FileId::from_detail(&split.detail)?;
                let lines = Lines::open(id, offset, split.end, Style::Lines, self.max_record)?;
                if let Some((envelope, columns)) = &self.changes {
                    if projection.len() != self.schema.fields().len() {
                        return Err(SpateError::internal("changes by key are read with all columns"));
                    }
                    let rows = RowBuilder::new(self.schema.clone())?;
                    return Ok(Box::new(TextReader::new(lines, ChangeDecoder::new(columns, *envelope), rows, split)));
                }
                let read = checked()?;
                let decode = JsonDecoder::new(&read);
                let rows = RowBuilder::new(read)?.in_json().delivering(projection.len())?;
                Ok(Box::new(TextReader::new(lines, decode, rows, split)))
            }
            Encoding::Csv => {
                let id = FileId::from_detail(&split.detail)?;
                let read = checked()?;
                let (places, width) = self.csv_places(&id.path, &read)?;
                let lines = Lines::open(id, offset, split.end, Style::Csv(self.csv.delimiter), self.max_record)?;
                let decode = CsvDecoder { places, width, options: self.csv.clone(), fields: Fields::default() };
                let rows = RowBuilder::new(read)?.delivering(projection.len())?;
                Ok(Box::new(TextReader::new(lines, decode, rows, split)))
            }
        }
    }

    fn open_for(
        &self,
        split: &Split,
        offset: u64,
        projection: &[usize],
        wanted: &Arc<dyn PhysicalExpr>,
    ) -> Result<Box<dyn SplitReader>> {
        match self.encoding {
            Encoding::Parquet => Ok(Box::new(parquet::open(split, offset, &self.schema, projection, Some(wanted))?)),
            _ => self.open(split, offset, projection),
        }
    }
}

impl Place {
    /// All files of the place, sorted; in a directory those not hidden by `.` or `_`.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        if let Some(pattern) = &self.glob {
            let paths = glob::glob(pattern).map_err(|e| SpateError::invalid(format!("bad glob \"{pattern}\": {e}")))?;
            for p in paths {
                let p = p.map_err(|e| io_error("cannot read", e.path(), e.error()))?;
                if p.is_file() {
                    files.push(p);
                }
            }
        } else if self.path.is_dir() {
            let entries = std::fs::read_dir(&self.path).map_err(|e| io_error("cannot read", &self.path, &e))?;
            for entry in entries {
                let entry = entry.map_err(|e| io_error("cannot read", &self.path, &e))?;
                let name = entry.file_name();
                if name.to_string_lossy().starts_with(['.', '_']) {
                    continue;
                }
                // Only what is behind a link must be looked up.
                let path = entry.path();
                if entry.file_type().is_ok_and(|t| t.is_file() || t.is_symlink() && path.is_file()) {
                    files.push(path);
                }
            }
        } else if self.path.is_file() {
            files.push(self.path.clone());
        } else if self.path.exists() {
            return Err(SpateError::unsupported(format!(
                "\"{}\" is a pipe or device: only regular files can be read",
                self.path.display()
            ))
            .with_hint("write the data to a file first"));
        }
        files.sort();
        Ok(files)
    }

    /// The encoding that the names of the files tell.
    fn guess_encoding(&self) -> Result<Encoding> {
        if !self.path.is_dir()
            && let Some(e) = Encoding::from_path(&self.path)?
        {
            return Ok(e);
        }
        let files = self.files()?;
        for f in &files {
            match Encoding::from_path(f) {
                Ok(Some(e)) => return Ok(e),
                Err(e) if files.len() == 1 => return Err(e),
                _ => {}
            }
        }
        if files.is_empty() && self.glob.is_none() && !self.path.is_dir() {
            return Err(self.nothing());
        }
        Err(SpateError::invalid(format!("the format of \"{}\" is not known from its name", self.path.display()))
            .with_hint("add FORMAT PLAIN ENCODE JSON, CSV, PARQUET or ARROW, or the option format"))
    }

    /// The error when there is no file.
    fn nothing(&self) -> SpateError {
        if self.glob.is_some() || self.path.is_dir() {
            return SpateError::new(ErrorKind::Io, format!("no file matches \"{}\"", self.path.display()))
                .with_hint("with mode = 'watch' files may come later");
        }
        let error = SpateError::new(ErrorKind::Io, format!("file \"{}\" does not exist", self.path.display()));
        let name = self.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let others: Vec<String> = self
            .path
            .parent()
            .and_then(|p| std::fs::read_dir(p).ok())
            .map(|d| d.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        match suggest(&name, others.iter().map(String::as_str)) {
            Some(s) => error.with_hint(format!("did you mean \"{s}\"?")),
            None => error,
        }
    }
}

/// The encoding that the clause or the option `format` names; they must not differ.
pub(super) fn named_encoding(opts: &Opts<'_>, format: Option<&FormatSpec>) -> Result<Option<Encoding>> {
    let word = opts.one_of("format", Encoding::WORDS)?.and_then(Encoding::from_word);
    let clause = format.map(FormatSpec::encoding).transpose()?;
    match (word, clause) {
        (Some(w), Some(c)) if w != c => Err(opts.wrong("format", "must agree with the FORMAT clause")),
        (w, c) => Ok(c.or(w)),
    }
}

/// The CSV options; errors if there are any and the files are not CSV.
pub(super) fn csv_options(opts: &Opts<'_>, encoding: Encoding) -> Result<CsvOptions> {
    if encoding != Encoding::Csv {
        for name in ["header", "delimiter", "null"] {
            if opts.get(name).is_some() {
                return Err(opts.wrong(name, &format!("is for CSV and the format is {}", encoding.extension())));
            }
        }
    }
    let delimiter = match opts.get("delimiter") {
        None => b',',
        Some("\\t" | "tab") => b'\t',
        Some(d) => match d.as_bytes() {
            [b] if b.is_ascii() && !matches!(b, b'"' | b'\n' | b'\r') => *b,
            _ => return Err(opts.wrong("delimiter", "must be one ASCII character other than a quote or a line end")),
        },
    };
    Ok(CsvOptions {
        header: opts.boolean("header", true)?,
        delimiter,
        null: opts.get("null").unwrap_or_default().to_owned(),
    })
}
