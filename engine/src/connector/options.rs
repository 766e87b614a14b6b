//! Reading the options of a `WITH (…)` clause: every option is known to its connector, and a
//! wrong name or value is answered with what would have been right.

use super::{DeadLetter, Options};
use crate::types::{ErrorKind, Result, SpateError};

/// How long a split may give nothing before it does not hold the watermark back any more.
pub(super) const IDLE_TIMEOUT: &str = "idle_timeout";
/// Options that every connector has; they pass through here unread.
const COMMON: &[&str] = &["connector", "format", "on_error", IDLE_TIMEOUT];
/// Options that will mean something one day: refused by name, never ignored.
const NOT_YET: &[&str] = &["delivery", "parallelism"];

/// The value of the option `idle_timeout` in microseconds, if it is given.
///
/// # Errors
/// A value that is no positive length of time, or one without a watermark that it could speak of.
pub fn idle_timeout(options: &Options, has_watermark: bool) -> Result<Option<i64>> {
    let Some(text) = options.get(IDLE_TIMEOUT) else { return Ok(None) };
    if !has_watermark {
        return Err(SpateError::invalid("option \"idle_timeout\" needs a watermark")
            .with_hint("declare WATERMARK FOR column AS column - INTERVAL '…', or leave the option out"));
    }
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: Option<i64> = match unit.trim() {
        "ms" | "millisecond" | "milliseconds" => Some(1_000),
        "s" | "sec" | "second" | "seconds" => Some(1_000_000),
        "m" | "min" | "minute" | "minutes" => Some(60_000_000),
        "h" | "hour" | "hours" => Some(3_600_000_000),
        _ => None,
    };
    let us = number.parse::<i64>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit)).filter(|us| *us > 0);
    us.map(Some).ok_or_else(|| {
        SpateError::invalid(format!("option \"idle_timeout\" must be a length of time like '10s', not '{text}'"))
            .with_hint("the units are ms, s, min and h")
    })
}

/// What an error in one record or row does to the queries that meet it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The record becomes a dead letter, the value NULL; both are counted, and queries go on.
    #[default]
    Continue,
    /// The query stops with the error; what it has made so far stays as it is.
    Fail,
}

impl OnError {
    /// The value of the option `on_error`.
    ///
    /// # Errors
    /// A value that is neither `continue` nor `fail`.
    pub fn of(options: &Options) -> Result<Self> {
        match options.get("on_error").map(|v| v.trim().to_ascii_lowercase()).as_deref() {
            None | Some("continue") => Ok(Self::Continue),
            Some("fail") => Ok(Self::Fail),
            Some(other) => {
                Err(SpateError::invalid(format!("option \"on_error\" must be 'continue' or 'fail', not '{other}'")))
            }
        }
    }

    /// The error for records that could not be decoded, where they are to stop who reads `source`.
    pub fn check(self, source: &str, dead: &[DeadLetter]) -> Result<()> {
        match (self, dead.first()) {
            (Self::Fail, Some(d)) => Err(SpateError::new(
                ErrorKind::Io,
                format!("{source}: {} at offset {} of {}", d.error, d.offset, d.split),
            )
            .with_hint("the record is in spate.dead_letters; with on_error = 'continue' it is left out")),
            _ => Ok(()),
        }
    }
}

/// The options of one connector, checked for names.
pub(super) struct Opts<'a> {
    connector: &'a str,
    map: &'a Options,
}

impl<'a> Opts<'a> {
    /// Checks that every option is one of `allowed` or, with `prefixes`, starts with one of them.
    pub(super) fn new(connector: &'a str, map: &'a Options, allowed: &[&str], prefixes: &[&str]) -> Result<Self> {
        for key in map.keys() {
            if allowed.contains(&key.as_str())
                || COMMON.contains(&key.as_str())
                || prefixes.iter().any(|p| key.starts_with(p))
            {
                continue;
            }
            if NOT_YET.contains(&key.as_str()) {
                return Err(SpateError::unsupported(format!("option \"{key}\" is not supported here yet")));
            }
            let error = SpateError::invalid(format!("connector \"{connector}\" has no option \"{key}\""));
            return Err(match suggest(key, allowed.iter().chain(COMMON).copied()) {
                Some(s) => error.with_hint(format!("did you mean \"{s}\"?")),
                None => error.with_hint(format!("its options are {}, format, on_error", allowed.join(", "))),
            });
        }
        Ok(Self { connector, map })
    }

    /// The value, where the option is given.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.map.get(name).map(String::as_str)
    }

    /// The value of an option that must be there and not be empty.
    pub(super) fn required(&self, name: &str) -> Result<&'a str> {
        match self.get(name) {
            Some(v) if !v.is_empty() => Ok(v),
            Some(_) => Err(self.wrong(name, "must not be empty")),
            None => Err(SpateError::invalid(format!("connector \"{}\" needs the option \"{name}\"", self.connector))),
        }
    }

    /// A whole number within `[min, max]`.
    pub(super) fn integer(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>> {
        let Some(v) = self.get(name) else { return Ok(None) };
        match v.trim().replace('_', "").parse::<u64>() {
            Ok(n) if (min..=max).contains(&n) => Ok(Some(n)),
            _ => Err(self.wrong(name, &format!("must be a whole number from {min} to {max}"))),
        }
    }

    /// A number of bytes: `1048576`, `1MiB`, `64 kB`.
    pub(super) fn bytes(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>> {
        let Some(v) = self.get(name) else { return Ok(None) };
        let v = v.trim();
        let digits = v.find(|c: char| !c.is_ascii_digit()).unwrap_or(v.len());
        let (number, unit) = v.split_at(digits);
        let unit = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => Some(1),
            "kb" => Some(1000),
            "kib" | "k" => Some(1 << 10),
            "mb" => Some(1_000_000),
            "mib" | "m" => Some(1 << 20),
            "gb" => Some(1_000_000_000),
            "gib" | "g" => Some(1 << 30),
            _ => None,
        };
        match (number.parse::<u64>().ok(), unit) {
            (Some(n), Some(u)) if n.checked_mul(u).is_some_and(|b| (min..=max).contains(&b)) => Ok(Some(n * u)),
            _ => Err(self.wrong(name, &format!("must be a size from {min} to {max} bytes, such as 1MiB"))),
        }
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(default),
            Some("true" | "on" | "yes" | "1") => Ok(true),
            Some("false" | "off" | "no" | "0") => Ok(false),
            Some(_) => Err(self.wrong(name, "must be true or false")),
        }
    }

    /// One of the words of `allowed`, in any case.
    pub(super) fn one_of(&self, name: &str, allowed: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(v) = self.get(name) else { return Ok(None) };
        let lower = v.trim().to_ascii_lowercase();
        if let Some(a) = allowed.iter().find(|a| **a == lower) {
            return Ok(Some(a));
        }
        let error = self.wrong(name, &format!("must be one of {}", allowed.join(", ")));
        Err(match suggest(&lower, allowed.iter().copied()) {
            Some(s) => error.with_hint(format!("did you mean \"{s}\"?")),
            None => error,
        })
    }

    /// The error for a bad value: `option "mode" must be one of …, not "x"`.
    pub(super) fn wrong(&self, name: &str, must: &str) -> SpateError {
        let v = self.get(name).unwrap_or_default();
        SpateError::invalid(format!("option \"{name}\" of connector \"{}\" {must}, not \"{v}\"", self.connector))
    }
}

/// The error for a connector that does not exist.
pub(super) fn unknown_connector(name: &str, what: &str, known: &[&str]) -> SpateError {
    let error = SpateError::new(ErrorKind::NotFound, format!("there is no {what} connector \"{name}\""));
    match suggest(name, known.iter().copied()) {
        Some(s) => error.with_hint(format!("did you mean \"{s}\"? there are {}", known.join(", "))),
        None => error.with_hint(format!("there are {}", known.join(", "))),
    }
}

/// The candidate nearest to what was written, if it is near enough to be a slip.
pub(super) fn suggest<'b>(written: &str, candidates: impl IntoIterator<Item = &'b str>) -> Option<&'b str> {
    let lower = written.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (strsim::damerau_levenshtein(&lower, &c.to_lowercase()), c))
        .filter(|(d, c)| *d <= 1 + c.chars().count().max(lower.chars().count()) / 4)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}
