//! Text to scalar values, strictly: what does not fit is refused, never bent.

/// Days from 1970-01-01 to a day of the proleptic Gregorian calendar; `None` if there is no such
/// day. Method: count in 400-year eras of 146,097 days with years that begin in March.
fn days_from_civil(year: i64, month: u32, day: u32) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if day == 0 || day > last {
        return None;
    }
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Reads exactly `n` digits from the front.
fn digits(s: &mut &[u8], n: usize) -> Option<u32> {
    let (head, tail) = s.split_at_checked(n)?;
    let mut v = 0u32;
    for b in head {
        if !b.is_ascii_digit() {
            return None;
        }
        v = v * 10 + u32::from(b - b'0');
    }
    *s = tail;
    Some(v)
}

/// Takes `b` from the front, if it is there.
fn eat(s: &mut &[u8], b: u8) -> bool {
    match s.split_first() {
        Some((first, rest)) if *first == b => {
            *s = rest;
            true
        }
        _ => false,
    }
}

/// `YYYY-MM-DD` from the front, in days since 1970-01-01.
fn date_part(s: &mut &[u8]) -> Option<i64> {
    let year = digits(s, 4)?;
    eat(s, b'-').then_some(())?;
    let month = digits(s, 2)?;
    eat(s, b'-').then_some(())?;
    let day = digits(s, 2)?;
    days_from_civil(i64::from(year), month, day)
}

/// `HH:MM[:SS[.fraction]]` from the front, in µs; digits beyond µs are cut.
fn time_part(s: &mut &[u8]) -> Option<i64> {
    let hour = digits(s, 2)?;
    eat(s, b':').then_some(())?;
    let minute = digits(s, 2)?;
    let mut second = 0;
    let mut us = 0i64;
    if eat(s, b':') {
        second = digits(s, 2)?;
        if eat(s, b'.') {
            let mut n = 0;
            while let Some((b, rest)) = s.split_first()
                && b.is_ascii_digit()
            {
                if n < 6 {
                    us = us * 10 + i64::from(b - b'0');
                }
                n += 1;
                *s = rest;
            }
            if n == 0 {
                return None;
            }
            for _ in n..6 {
                us *= 10;
            }
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some((i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second)) * 1_000_000 + us)
}

/// A zone: nothing, `Z`, `UTC`, `±HH`, `±HHMM` or `±HH:MM`, in seconds east.
fn zone_part(s: &mut &[u8]) -> Option<i64> {
    if s.is_empty() {
        return Some(0);
    }
    if s.eq_ignore_ascii_case(b"z") || s.eq_ignore_ascii_case(b" utc") || s.eq_ignore_ascii_case(b"utc") {
        *s = &[];
        return Some(0);
    }
    let sign = if eat(s, b'+') {
        1
    } else if eat(s, b'-') {
        -1
    } else {
        return None;
    };
    let hours = digits(s, 2)?;
    let minutes = if s.is_empty() {
        0
    } else {
        eat(s, b':');
        digits(s, 2)?
    };
    (hours <= 18 && minutes < 60).then(|| sign * i64::from(hours * 3600 + minutes * 60))
}

/// A timestamp in µs since 1970-01-01 UTC: `YYYY-MM-DD`, then after a space or `T` a time, then a
/// zone. Without a zone the time is taken as UTC.
pub(super) fn timestamp_us(text: &str) -> Option<i64> {
    let mut s = text.as_bytes();
    let days = date_part(&mut s)?;
    let midnight = days * 86_400_000_000;
    if s.is_empty() {
        return Some(midnight);
    }
    if !(eat(&mut s, b' ') || eat(&mut s, b'T') || eat(&mut s, b't')) {
        return None;
    }
    let time = time_part(&mut s)?;
    let zone = zone_part(&mut s)?;
    s.is_empty().then_some(midnight + time - zone * 1_000_000)
}

/// A date in days since 1970-01-01: `YYYY-MM-DD`.
pub(super) fn date_days(text: &str) -> Option<i32> {
    let mut s = text.as_bytes();
    let days = date_part(&mut s)?;
    if s.is_empty() { i32::try_from(days).ok() } else { None }
}

/// A time of day in µs: `HH:MM[:SS[.fraction]]`.
pub(super) fn time_us(text: &str) -> Option<i64> {
    let mut s = text.as_bytes();
    let us = time_part(&mut s)?;
    s.is_empty().then_some(us)
}

/// A whole number; a fraction of zeros and an exponent are fine (`1.0`, `1e3`), others are not.
pub(super) fn integer(text: &str) -> Option<i64> {
    if let Ok(v) = text.parse::<i64>() {
        return Some(v);
    }
    if !text.contains(['.', 'e', 'E']) {
        return None;
    }
    let v = decimal(text, 0)?;
    i64::try_from(v).ok()
}

/// A decimal number as an integer of `scale` digits after the point. `None` if it is not a number,
/// does not fit, or has more digits after the point than that (zeros aside).
fn decimal(text: &str, scale: i32) -> Option<i128> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(i) => (text.get(..i)?, text.get(i + 1..)?.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(m) => (true, m),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let mut v: i128 = 0;
    for b in whole.bytes().chain(fraction.bytes()) {
        if !b.is_ascii_digit() {
            return None;
        }
        v = v.checked_mul(10)?.checked_add(i128::from(b - b'0'))?;
    }
    if v == 0 {
        return Some(0);
    }
    let mut shift = exponent.checked_add(scale)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    if shift.abs() > 80 {
        return None;
    }
    while shift > 0 {
        v = v.checked_mul(10)?;
        shift -= 1;
    }
    while shift < 0 {
        if v % 10 != 0 {
            return None;
        }
        v /= 10;
        shift += 1;
    }
    Some(if negative { -v } else { v })
}

/// `true`/`false` and PostgreSQL's other spellings.
pub(super) fn boolean(text: &str) -> Option<bool> {
    const TRUE: [&str; 5] = ["true", "t", "yes", "on", "1"];
    const FALSE: [&str; 5] = ["false", "f", "no", "off", "0"];
    if TRUE.iter().any(|w| text.eq_ignore_ascii_case(w)) {
        Some(true)
    } else if FALSE.iter().any(|w| text.eq_ignore_ascii_case(w)) {
        Some(false)
    } else {
        None
    }
}

/// Bytes: `\x` and hexadecimal digits, or the text itself.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(hex) => hex_bytes(hex.bytes()),
        None => Some(text.as_bytes().to_vec()),
    }
}

fn hex_bytes(digits: impl Iterator<Item = u8>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut high: Option<u8> = None;
    for b in digits {
        let v = u8::try_from(char::from(b).to_digit(16)?).ok()?;
        match high.take() {
            None => high = Some(v),
            Some(h) => out.push(h << 4 | v),
        }
    }
    high.is_none().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps() {
        assert_eq!(timestamp_us("1970-01-01 00:00:00"), Some(0));
        assert_eq!(timestamp_us("1969-12-31T23:59:59.999Z"), Some(-1000));
        assert_eq!(timestamp_us("2015-07-15 00:00:00.123456789"), Some(1_436_918_400_123_456));
        assert_eq!(timestamp_us("2024-02-29T12:00:00+02:00"), timestamp_us("2024-02-29 10:00"));
        assert_eq!(timestamp_us("2000-01-01"), Some(946_684_800_000_000));
        for bad in ["2023-02-29", "2024-13-01", "2024-01-01 24:00:00", "2024-01-01 00:00:00.", "x", "", "2024-01-01x"] {
            assert_eq!(timestamp_us(bad), None, "{bad}");
        }
    }

    #[test]
    fn whole_numbers_are_never_bent() {
        assert_eq!(integer("9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer("9223372036854775808"), None);
        assert_eq!(integer("1.0"), Some(1));
        assert_eq!(integer("-12e2"), Some(-1200));
        for bad in ["1.5", "", "-", ".", "e", "1e-1", "1e99", "0x1", "1_0"] {
            assert_eq!(integer(bad), None, "{bad}");
        }
        assert_eq!(bytes("\\x0aff"), Some(vec![10, 255]));
    }
}
