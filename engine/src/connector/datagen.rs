//! The `datagen` source: made-up rows. Row n is a function of the seed, n and the column's name;
//! an offset is a row number.
//!
//! `fields.<column>.kind` is `sequence` (start, start + 1, … up to end, then again) or `random`
//! (between min and max, or of `length` characters), `.null_rate` the share of NULLs.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::nexmark::{MOST_ROWS, Pace, reach};
use super::options::{Opts, suggest};
use super::types::{batch, project, sql_name};
use super::{Options, Polled, SourceConnector, Split, SplitReader, scalar};
use crate::env::Clock;
use crate::types::{Result, SpateError};

const OPTIONS: &[&str] = &["rows", "rate", "seed"];
const FIELD_OPTIONS: &[&str] = &["kind", "start", "end", "min", "max", "length", "null_rate"];
const RATE: u64 = 10_000;
const MAX_ROWS: u64 = 1 << 50;
/// Consecutive rows of one split when there are several.
const BLOCK: u64 = 1024;
/// 2020-01-01 in days since 1970, from where dates and timestamps are drawn by default.
const DAY: i64 = 18_262;
const DAY_US: i64 = 86_400_000_000;

/// What a column holds. Numbers are in the column's own unit: days, µs, units of the last digit.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Sequence { start: i128, span: u128 },
    Random { min: i128, span: u128 },
    RandomFloat { min: f64, max: f64 },
    Text { length: usize },
}

#[derive(Debug, Clone, Copy)]
struct Column {
    rule: Rule,
    /// NULL if the row's hash is below this share of 2^32.
    nulls: u64,
    hash: u64,
}

/// The source.
pub(super) struct DatagenSource {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: Option<u64>,
    rate: Option<u64>,
    clock: Arc<dyn Clock>,
}

impl DatagenSource {
    /// From options; the columns must be declared.
    pub(super) fn open(options: &Options, declared: Option<SchemaRef>, clock: Arc<dyn Clock>) -> Result<Self> {
        let opts = Opts::new("datagen", options, OPTIONS, &["fields."])?;
        let Some(schema) = declared.filter(|s| !s.fields().is_empty()) else {
            return Err(SpateError::invalid("connector \"datagen\" needs declared columns")
                .with_hint("CREATE SOURCE s (id bigint, name text) WITH (connector = 'datagen')"));
        };
        let rows = opts.integer("rows", 0, MAX_ROWS)?;
        let rate = opts.integer("rate", 1, 1_000_000_000)?;
        let seed = opts.integer("seed", 0, u64::MAX)?.unwrap_or(0);
        check_field_options(options, &schema)?;
        let columns = schema.fields().iter().map(|f| column(&opts, f, seed)).collect::<Result<Vec<_>>>()?;
        let rate = rate.or(if rows.is_some() { None } else { Some(RATE) });
        Ok(Self { schema, columns, rows, rate, clock })
    }
}

fn check_field_options(options: &Options, schema: &SchemaRef) -> Result<()> {
    for key in options.keys() {
        let Some(rest) = key.strip_prefix("fields.") else { continue };
        let (name, what) = rest.rsplit_once('.').unwrap_or((rest, ""));
        if !schema.fields().iter().any(|f| f.name().to_lowercase() == name.to_lowercase()) {
            let error =
                SpateError::invalid(format!("option \"{key}\" is for a column \"{name}\" that is not declared"));
            return Err(match suggest(name, schema.fields().iter().map(|f| f.name().as_str())) {
                Some(s) => error.with_hint(format!("did you mean \"fields.{s}.{what}\"?")),
                None => error,
            });
        }
        if !FIELD_OPTIONS.contains(&what) {
            let error = SpateError::invalid(format!("connector \"datagen\" has no option \"{key}\""));
            return Err(match suggest(what, FIELD_OPTIONS.iter().copied()) {
                Some(s) => error.with_hint(format!("did you mean \"fields.{name}.{s}\"?")),
                None => error.with_hint(format!("options of a column are {}", FIELD_OPTIONS.join(", "))),
            });
        }
    }
    Ok(())
}

fn power_of_ten(scale: i8) -> i128 {
    10i128.checked_pow(u32::try_from(scale).unwrap_or(0)).unwrap_or(i128::MAX)
}

/// Least and most of a type, and the default range of random values.
fn range(t: &DataType) -> Option<(i128, i128, i128, i128)> {
    let all = |lo: i64, hi: i64| (i128::from(lo), i128::from(hi));
    let ((least, most), (lo, hi)) = match t {
        DataType::Boolean => (all(0, 1), all(0, 1)),
        DataType::Int16 => (all(i16::MIN.into(), i16::MAX.into()), all(0, 1000)),
        DataType::Int32 => (all(i32::MIN.into(), i32::MAX.into()), all(0, 1_000_000)),
        DataType::Int64 => (all(i64::MIN, i64::MAX), all(0, 1_000_000)),
        DataType::Date32 => (all(i32::MIN.into(), i32::MAX.into()), all(DAY, DAY + 365)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            (all(i64::MIN, i64::MAX), all(DAY * DAY_US, (DAY + 366) * DAY_US - 1))
        }
        DataType::Decimal128(p, s) => {
            let most = 10i128.checked_pow(u32::from(*p)).unwrap_or(i128::MAX) - 1;
            ((-most, most), (0, most.min(1000i128.saturating_mul(power_of_ten(*s)))))
        }
        _ => return None,
    };
    Some((least, most, lo, hi))
}

/// The text of an option as a number in the column's unit.
fn number(t: &DataType, text: &str) -> Option<i128> {
    match t {
        DataType::Boolean => scalar::boolean(text).map(i128::from),
        DataType::Date32 => scalar::date_days(text).map(i128::from),
        DataType::Timestamp(..) => scalar::timestamp_us(text).map(i128::from),
        DataType::Decimal128(_, s) => {
            // Exactly: the digits behind the point are filled up to the scale.
            let (sign, digits) = text.strip_prefix('-').map_or((1, text), |d| (-1, d));
            let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
            let scale = usize::try_from(*s).unwrap_or(0);
            let plain = !digits.is_empty() && (whole.bytes().chain(part.bytes())).all(|b| b.is_ascii_digit());
            if !plain || part.len() > scale {
                return None;
            }
            format!("{whole}{part:0<scale$}").parse::<i128>().ok().map(|v| sign * v)
        }
        _ => scalar::integer(text).map(i128::from),
    }
}

fn column(opts: &Opts<'_>, field: &Field, seed: u64) -> Result<Column> {
    let key = |what: &str| {
        let exact = format!("fields.{}.{what}", field.name());
        if opts.get(&exact).is_some() { exact } else { exact.to_lowercase() }
    };
    let hash = xxh3_64_with_seed(field.name().as_bytes(), seed);
    let (k_null, k_kind, k_len) = (key("null_rate"), key("kind"), key("length"));
    let rate = match opts.get(&k_null) {
        None => 0.0,
        Some(v) => match v.parse::<f64>() {
            Ok(r) if (0.0..=1.0).contains(&r) => r,
            _ => return Err(opts.wrong(&k_null, "must be a number from 0 to 1")),
        },
    };
    if rate > 0.0 && !field.is_nullable() {
        return Err(opts.wrong(&k_null, "must be 0 for a column that is NOT NULL"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let nulls = (rate * 4_294_967_296.0) as u64;
    let kind = opts.one_of(&k_kind, &["sequence", "random"])?.unwrap_or("random");
    let t = field.data_type();
    let unused = |names: &[&str]| -> Result<()> {
        for n in names {
            let k = key(n);
            if opts.get(&k).is_some() {
                return Err(opts.wrong(&k, &format!("has no use for a {} column of kind {kind}", sql_name(t))));
            }
        }
        Ok(())
    };
    let rule = match t {
        DataType::Utf8 => {
            if kind == "sequence" {
                unused(&["min", "max", "length"])?;
                sequence(opts, &DataType::Int64, &key("start"), &key("end"))?
            } else {
                unused(&["min", "max", "start", "end"])?;
                let length = opts.integer(&k_len, 0, 1 << 20)?.unwrap_or(16);
                Rule::Text { length: usize::try_from(length).unwrap_or(16) }
            }
        }
        DataType::Float32 | DataType::Float64 if kind == "random" => {
            unused(&["start", "end", "length"])?;
            let read = |what: &str, default: f64| match opts.get(&key(what)) {
                None => Ok(default),
                Some(v) => v
                    .parse::<f64>()
                    .ok()
                    .filter(|f| f.is_finite())
                    .ok_or_else(|| opts.wrong(&key(what), "must be a number")),
            };
            let (min, max) = (read("min", 0.0)?, read("max", 1.0)?);
            if min > max {
                return Err(opts.wrong(&key("min"), "must not be greater than max"));
            }
            Rule::RandomFloat { min, max }
        }
        DataType::Float32 | DataType::Float64 => {
            unused(&["min", "max", "length"])?;
            sequence(opts, &DataType::Int64, &key("start"), &key("end"))?
        }
        _ if range(t).is_some() && kind == "sequence" => {
            unused(&["min", "max", "length"])?;
            sequence(opts, t, &key("start"), &key("end"))?
        }
        _ => {
            let Some((least, most, lo, hi)) = range(t) else {
                return Err(SpateError::unsupported(format!(
                    "connector \"datagen\" cannot make column \"{}\" of type {}",
                    field.name(),
                    sql_name(t)
                )));
            };
            unused(&["start", "end", "length"])?;
            let min = bound(opts, t, &key("min"), (least, most))?;
            let max = bound(opts, t, &key("max"), (least, most))?;
            // Of two bounds where one is given, the default yields to it.
            let (min, max) = match (min, max) {
                (Some(a), Some(b)) => (a, b),
                (Some(a), None) => (a, hi.max(a)),
                (None, Some(b)) => (lo.min(b), b),
                (None, None) => (lo, hi),
            };
            if min > max {
                return Err(opts.wrong(&key("min"), "must not be greater than max"));
            }
            Rule::Random { min, span: max.abs_diff(min) + 1 }
        }
    };
    Ok(Column { rule, nulls, hash })
}

fn bound(opts: &Opts<'_>, t: &DataType, key: &str, (least, most): (i128, i128)) -> Result<Option<i128>> {
    let Some(text) = opts.get(key) else { return Ok(None) };
    match number(t, text) {
        Some(v) if (least..=most).contains(&v) => Ok(Some(v)),
        _ => Err(opts.wrong(key, &format!("must be a {}", sql_name(t)))),
    }
}

fn sequence(opts: &Opts<'_>, t: &DataType, start: &str, end: &str) -> Result<Rule> {
    let (least, most, lo, _) = range(t).unwrap_or((0, i128::from(i64::MAX), 0, 0));
    let first = bound(opts, t, start, (least, most))?.unwrap_or(lo);
    let last = bound(opts, t, end, (least, most))?.unwrap_or(most);
    if first > last {
        return Err(opts.wrong(start, "must not be greater than end"));
    }
    Ok(Rule::Sequence { start: first, span: last.abs_diff(first) + 1 })
}

/// The 64 random bits of a row's column, or of its `i`-th word.
fn bits(hash: u64, row: u64, i: u64) -> u64 {
    // SplitMix64's finaliser over a sum that differs for every row and word.
    let mut z =
        hash.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(i.wrapping_mul(0xd1b5_4a32_d192_ed03));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Column {
    fn is_null(&self, row: u64) -> bool {
        self.nulls > 0 && bits(self.hash, row, 1) >> 32 < self.nulls
    }

    fn whole(&self, row: u64) -> i128 {
        let (base, by) = match self.rule {
            Rule::Sequence { start, span } => (start, u128::from(row) % span),
            Rule::Random { min, span } if span <= u128::from(u64::MAX) => {
                (min, (u128::from(bits(self.hash, row, 2)) * span) >> 64)
            }
            Rule::Random { min, span } => {
                let wide = u128::from(bits(self.hash, row, 2)) << 64 | u128::from(bits(self.hash, row, 3));
                (min, wide % span)
            }
            Rule::RandomFloat { .. } | Rule::Text { .. } => (0, 0),
        };
        base.wrapping_add(by.cast_signed())
    }

    #[allow(clippy::cast_precision_loss)]
    fn float(&self, row: u64) -> f64 {
        match self.rule {
            Rule::RandomFloat { min, max } => {
                let unit = (bits(self.hash, row, 2) >> 11) as f64 / 9_007_199_254_740_992.0;
                (min * (1.0 - unit) + max * unit).clamp(min, max)
            }
            _ => self.whole(row) as f64,
        }
    }

    fn make(&self, t: &DataType, rows: &[u64]) -> Result<ArrayRef> {
        let wholes = || rows.iter().map(|&r| (!self.is_null(r)).then(|| self.whole(r)));
        // Ranges were checked against the type, so nothing is cut here.
        macro_rules! ints {
            ($array:ty, $native:ty) => {
                wholes().map(|v| v.and_then(|v| <$native>::try_from(v).ok())).collect::<$array>()
            };
        }
        let floats = || rows.iter().map(|&r| (!self.is_null(r)).then(|| self.float(r)));
        Ok(match t {
            DataType::Boolean => Arc::new(wholes().map(|v| v.map(|v| v != 0)).collect::<BooleanArray>()),
            DataType::Int16 => Arc::new(ints!(Int16Array, i16)),
            DataType::Int32 => Arc::new(ints!(Int32Array, i32)),
            DataType::Int64 => Arc::new(ints!(Int64Array, i64)),
            DataType::Date32 => Arc::new(ints!(Date32Array, i32)),
            DataType::Timestamp(_, zone) => {
                Arc::new(ints!(TimestampMicrosecondArray, i64).with_timezone_opt(zone.clone()))
            }
            DataType::Decimal128(p, s) => {
                Arc::new(wholes().collect::<Decimal128Array>().with_precision_and_scale(*p, *s)?)
            }
            #[allow(clippy::cast_possible_truncation)]
            DataType::Float32 => Arc::new(floats().map(|v| v.map(|v| v as f32)).collect::<Float32Array>()),
            DataType::Float64 => Arc::new(floats().collect::<Float64Array>()),
            _ => {
                let mut out = StringBuilder::new();
                let mut text = String::new();
                for &row in rows {
                    if self.is_null(row) {
                        out.append_null();
                        continue;
                    }
                    text.clear();
                    match self.rule {
                        Rule::Text { length } => text.extend((0..length as u64).map(|i| {
                            let letter = ((bits(self.hash, row, 4 + i) >> 32) * 26) >> 32;
                            char::from(b'a' + u8::try_from(letter).unwrap_or(0))
                        })),
                        _ => text.push_str(&self.whole(row).to_string()),
                    }
                    out.append_value(&text);
                }
                Arc::new(out.finish())
            }
        })
    }
}

impl SourceConnector for DatagenSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        self.rows.is_some()
    }

    fn splits(&self, in_order: bool, parallelism: usize) -> Result<Vec<Split>> {
        let n = if in_order { 1 } else { parallelism.clamp(1, 256) };
        Ok((0..n).map(|i| Split::made("rows", i, n, self.rows)).collect())
    }

    fn open(&self, split: &Split, offset: u64, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        let part = split.detail.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        let Some((part, parts)) = part.filter(|(i, n): &(u64, u64)| i < n) else {
            return Err(SpateError::internal(format!("bad datagen split \"{}\"", split.detail)));
        };
        let schema = project(&self.schema, projection)?;
        let columns = projection.iter().filter_map(|p| self.columns.get(*p).copied()).collect();
        let pace = self.rate.map(|r| Pace::new(r, offset, self.clock.clone()));
        Ok(Box::new(DatagenReader {
            schema,
            columns,
            part,
            parts,
            next: offset,
            end: self.rows,
            pace,
            rows: Vec::new(),
        }))
    }
}

struct DatagenReader {
    schema: SchemaRef,
    columns: Vec<Column>,
    part: u64,
    parts: u64,
    next: u64,
    end: Option<u64>,
    pace: Option<Pace>,
    /// Scratch: numbers of the rows to make.
    rows: Vec<u64>,
}

impl SplitReader for DatagenReader {
    fn poll(&mut self, max_rows: usize, until: Option<u64>) -> Result<Polled> {
        let end = self.end.unwrap_or(MAX_ROWS);
        let stop = match reach(self.pace.as_ref(), self.next, end, until) {
            Ok(stop) => stop,
            Err(nothing) => return Ok(nothing),
        };
        self.rows.clear();
        let most = max_rows.clamp(1, MOST_ROWS);
        while self.next < stop && self.rows.len() < most {
            let block = self.next / BLOCK;
            if block % self.parts == self.part {
                self.rows.push(self.next);
                self.next += 1;
            } else {
                self.next = ((block + 1) * BLOCK).min(stop);
            }
        }
        let columns = self
            .columns
            .iter()
            .zip(self.schema.fields())
            .map(|(c, f)| c.make(f.data_type(), &self.rows))
            .collect::<Result<Vec<_>>>()?;
        let rows = batch(&self.schema, columns, self.rows.len())?;
        Ok(Polled::Batch { rows, dead: Vec::new(), progress: self.end.map(|e| (self.next, e)) })
    }

    fn offset(&self) -> u64 {
        self.next
    }
}
