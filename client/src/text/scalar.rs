//! Single values as PostgreSQL's output functions print them: floats, dates, times,
//! timestamps, intervals, bytes. Every function appends to `out`.

use std::fmt::Write;

/// Microseconds and their like: how many units make a second, and how many digits that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Units per second.
    pub per_second: i64,
    /// Decimal digits of a fraction of a second.
    pub digits: usize,
}

impl Unit {
    /// Whole seconds.
    pub const SECOND: Self = Self { per_second: 1, digits: 0 };
    /// Milliseconds.
    pub const MILLI: Self = Self { per_second: 1_000, digits: 3 };
    /// Microseconds.
    pub const MICRO: Self = Self { per_second: 1_000_000, digits: 6 };
    /// Nanoseconds.
    pub const NANO: Self = Self { per_second: 1_000_000_000, digits: 9 };
}

impl From<arrow::datatypes::TimeUnit> for Unit {
    fn from(unit: arrow::datatypes::TimeUnit) -> Self {
        use arrow::datatypes::TimeUnit as T;
        match unit {
            T::Second => Self::SECOND,
            T::Millisecond => Self::MILLI,
            T::Microsecond => Self::MICRO,
            T::Nanosecond => Self::NANO,
        }
    }
}

/// A double: shortest digits that read back the same, an exponent outside 1e-4 … 1e15.
pub fn float8(value: f64, out: &mut String) {
    if value.is_finite() {
        shortest(&format!("{value:e}"), 15, out);
    } else {
        special(value, out);
    }
}

/// A single-precision float: as [`float8`], with an exponent from 1e6.
pub fn float4(value: f32, out: &mut String) {
    if value.is_finite() {
        shortest(&format!("{value:e}"), 6, out);
    } else {
        special(f64::from(value), out);
    }
}

fn special(value: f64, out: &mut String) {
    out.push_str(match value {
        v if v.is_nan() => "NaN",
        v if v > 0.0 => "Infinity",
        _ => "-Infinity",
    });
}

/// Lays out `[-]d[.ddd]e[-]x` without an exponent where -4 <= x < `limit`.
fn shortest(scientific: &str, limit: i32, out: &mut String) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    if unsigned.len() < mantissa.len() {
        out.push('-');
    }
    if !(-4..limit).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{unsigned}e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let digits = unsigned.chars().filter(|c| *c != '.');
    if exponent < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', exponent.unsigned_abs() as usize - 1));
        out.extend(digits);
        return;
    }
    let whole = exponent as usize + 1;
    let mut count = 0;
    for digit in digits {
        if count == whole {
            out.push('.');
        }
        out.push(digit);
        count += 1;
    }
    out.extend(std::iter::repeat_n('0', whole.saturating_sub(count)));
}

/// Year (astronomical: 0 is 1 BC), month and day of a day number since 1970-01-01, in the
/// proleptic Gregorian calendar.
pub fn civil(days: i64) -> (i64, u32, u32) {
    // Count from 0000-03-01, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

/// Writes the date; returns whether ` BC` has to follow.
fn ymd(days: i64, out: &mut String) -> bool {
    let (year, month, day) = civil(days);
    let before_christ = year <= 0;
    let shown = if before_christ { 1 - year } else { year };
    let _ = write!(out, "{shown:04}-{month:02}-{day:02}");
    before_christ
}

/// A date, from days since 1970-01-01: `2026-01-31`, `0044-03-15 BC`.
pub fn date(days: i64, out: &mut String) {
    if ymd(days, out) {
        out.push_str(" BC");
    }
}

/// A time of day: `04:05:06.789`.
pub fn time(value: i64, unit: Unit, out: &mut String) {
    let seconds = value.div_euclid(unit.per_second);
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    fraction(value.rem_euclid(unit.per_second), unit, out);
}

fn fraction(value: i64, unit: Unit, out: &mut String) {
    if value != 0 {
        let _ = write!(out, ".{value:0width$}", width = unit.digits);
        out.truncate(out.trim_end_matches('0').len());
    }
}

/// A timestamp since 1970-01-01 00:00:00 UTC: `2026-01-31 04:05:06.789`, with `zone`
/// (such as `+00`) behind it, and `separator` (a space in PostgreSQL, `T` in JSON) in it.
pub fn timestamp(value: i64, unit: Unit, separator: char, zone: &str, out: &mut String) {
    let seconds = value.div_euclid(unit.per_second);
    let before_christ = ymd(seconds.div_euclid(86_400), out);
    out.push(separator);
    let of_day = seconds.rem_euclid(86_400);
    let _ = write!(out, "{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60);
    fraction(value.rem_euclid(unit.per_second), unit, out);
    out.push_str(zone);
    if before_christ {
        out.push_str(" BC");
    }
}

/// An interval in PostgreSQL's default style: `1 year 2 mons -3 days +04:05:06`.
pub fn interval(months: i64, days: i64, nanos: i64, out: &mut String) {
    let mut first = true;
    // PostgreSQL writes a plus sign where a positive part follows a negative one.
    let mut after_negative = false;
    for (value, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if value == 0 {
            continue;
        }
        let space = if first { "" } else { " " };
        let plus = if after_negative && value > 0 { "+" } else { "" };
        let plural = if value == 1 { "" } else { "s" };
        let _ = write!(out, "{space}{plus}{value} {unit}{plural}");
        first = false;
        after_negative = value < 0;
    }
    if first || nanos != 0 {
        if !first {
            out.push(' ');
        }
        if nanos < 0 {
            out.push('-');
        } else if after_negative {
            out.push('+');
        }
        let nanos = nanos.unsigned_abs();
        let seconds = nanos / 1_000_000_000;
        let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        fraction((nanos % 1_000_000_000) as i64, Unit::NANO, out);
    }
}

/// Bytes in hex format: `\x6869`.
pub fn bytea(bytes: &[u8], out: &mut String) {
    out.push_str("\\x");
    hex(bytes, out);
}

fn hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(f: impl FnOnce(&mut String)) -> String {
        let mut out = String::new();
        f(&mut out);
        out
    }

    #[test]
    fn floats_are_shortest_and_in_postgres_layout() {
        for (value, expect) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (123456.789, "123456.789"),
            (0.0001, "0.0001"),
            (0.000012, "1.2e-05"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1e20, "1e+20"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(|o| float8(value, o)), expect);
        }
        assert_eq!(text(|o| float4(0.1, o)), "0.1");
        assert_eq!(text(|o| float4(100_000.0, o)), "100000");
        assert_eq!(text(|o| float4(1_000_000.0, o)), "1e+06");
        assert_eq!(text(|o| float4(1_234_567.0, o)), "1.234567e+06");
    }

    #[test]
    fn dates_in_and_before_our_era() {
        for (days, expect) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (20_484, "2026-01-31"),
            (2_932_897, "10000-01-01"),
            (-719_162, "0001-01-01"),
            (-719_163, "0001-12-31 BC"),
        ] {
            assert_eq!(text(|o| date(days, o)), expect);
        }
    }

    #[test]
    fn timestamps_trim_their_fraction() {
        let at = |v, unit, zone| text(|o| timestamp(v, unit, ' ', zone, o));
        assert_eq!(at(0, Unit::MICRO, ""), "1970-01-01 00:00:00");
        assert_eq!(at(1_500_000, Unit::MICRO, "+00"), "1970-01-01 00:00:01.5+00");
        assert_eq!(at(-1, Unit::MICRO, ""), "1969-12-31 23:59:59.999999");
        assert_eq!(at(1_000, Unit::NANO, ""), "1970-01-01 00:00:00.000001");
        assert_eq!(at(1, Unit::NANO, ""), "1970-01-01 00:00:00.000000001");
        assert_eq!(at(60_010, Unit::MILLI, ""), "1970-01-01 00:01:00.01");
        assert_eq!(at(-719_163 * 86_400, Unit::SECOND, "+00"), "0001-12-31 00:00:00+00 BC");
        assert_eq!(text(|o| time(86_399_999_000, Unit::MICRO, o)), "23:59:59.999");
    }

    #[test]
    fn intervals_in_postgres_style() {
        const S: i64 = 1_000_000_000;
        for (months, days, nanos, expect) in [
            (0, 0, 0, "00:00:00"),
            (14, 3, 4 * 3600 * S + 5 * 60 * S + 6 * S, "1 year 2 mons 3 days 04:05:06"),
            (-1, 1, 0, "-1 mons +1 day"),
            (0, -1, S, "-1 days +00:00:01"),
            (0, 1, -S / 2, "1 day -00:00:00.5"),
            (0, 0, 100 * 3600 * S, "100:00:00"),
            (24, 0, 0, "2 years"),
        ] {
            assert_eq!(text(|o| interval(months, days, nanos, o)), expect);
        }
    }

    #[test]
    fn bytes() {
        assert_eq!(text(|o| bytea(b"hi\xff", o)), "\\x6869ff");
    }
}
