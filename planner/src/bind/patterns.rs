//! PostgreSQL's patterns for dates and times, such as `YYYY-MM-DD HH24:MI:SS`.

use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};
use datafusion_common::{Result, exec_err};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// To this width names are padded.
const NAME_WIDTH: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Year(usize),
    IsoYear,
    Month,
    MonthName { short: bool },
    Day,
    DayOfYear,
    DayOfWeek,
    DayName { short: bool },
    Week,
    IsoWeek,
    Quarter,
    Century,
    Hour24,
    Hour12,
    Minute,
    Second,
    Millis,
    Micros,
    SecondOfDay,
    HalfDay { dots: bool },
    Zone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Upper,
    Title,
    Lower,
}

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Field { field: Field, case: Case, fill: bool, ordinal: Option<Case> },
}

/// A pattern that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pattern(Vec<Piece>);

/// Keywords, those that begin with others first.
const KEYWORDS: &[(&str, Field)] = &[
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
    ("IYYY", Field::IsoYear),
    ("IW", Field::IsoWeek),
    ("MONTH", Field::MonthName { short: false }),
    ("MON", Field::MonthName { short: true }),
    ("MM", Field::Month),
    ("MI", Field::Minute),
    ("MS", Field::Millis),
    ("DAY", Field::DayName { short: false }),
    ("DY", Field::DayName { short: true }),
    ("DDD", Field::DayOfYear),
    ("DD", Field::Day),
    ("D", Field::DayOfWeek),
    ("WW", Field::Week),
    ("Q", Field::Quarter),
    ("CC", Field::Century),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("US", Field::Micros),
    ("AM", Field::HalfDay { dots: false }),
    ("PM", Field::HalfDay { dots: false }),
    ("A.M.", Field::HalfDay { dots: true }),
    ("P.M.", Field::HalfDay { dots: true }),
    ("TZ", Field::Zone),
];

/// Keywords of PostgreSQL that are not known here: refused, since they would come out as text.
const UNKNOWN: &[&str] = &[
    "TZH", "TZM", "OF", "RM", "J", "BC", "AD", "B.C.", "A.D.", "IYY", "IY", "IDDD", "ID", "I", "FF", "Y,YYY", "SP", "W",
];

fn starts(rest: &str, word: &str) -> bool {
    rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
}

fn case_of(written: &str) -> Case {
    let mut letters = written.chars().filter(char::is_ascii_alphabetic);
    match (
        letters.next().is_some_and(|c| c.is_ascii_uppercase()),
        letters.next().is_some_and(|c| c.is_ascii_uppercase()),
    ) {
        (true, true) => Case::Upper,
        (true, false) => Case::Title,
        _ => Case::Lower,
    }
}

/// Reads a pattern.
pub(super) fn parse(text: &str) -> Result<Pattern> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut rest = text;
    let mut fill = true;
    while let Some(c) = rest.chars().next() {
        if starts(rest, "FM") {
            fill = false;
            rest = &rest[2..];
            continue;
        }
        if starts(rest, "TM") || starts(rest, "FX") {
            return exec_err!("pattern \"{text}\": {} is not supported", &rest[..2]);
        }
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').unwrap_or(quoted.len());
            push_text(&mut pieces, &quoted[..end]);
            rest = quoted.get(end + 1..).unwrap_or("");
            continue;
        }
        let known = KEYWORDS.iter().filter(|(word, _)| starts(rest, word)).max_by_key(|(word, _)| word.len());
        let unknown = UNKNOWN.iter().filter(|word| starts(rest, word)).max_by_key(|word| word.len());
        match (known, unknown) {
            (k, Some(u)) if k.is_none_or(|(word, _)| word.len() < u.len()) => {
                return exec_err!("pattern \"{text}\": {u} is not supported");
            }
            (Some((word, field)), _) => {
                let case = case_of(&rest[..word.len()]);
                rest = &rest[word.len()..];
                let ordinal = match rest.get(..2) {
                    Some("TH") => Some(Case::Upper),
                    Some("th") => Some(Case::Lower),
                    _ => None,
                };
                if ordinal.is_some() {
                    rest = &rest[2..];
                }
                pieces.push(Piece::Field { field: *field, case, fill, ordinal });
                fill = true;
            }
            (None, _) => {
                push_text(&mut pieces, &rest[..c.len_utf8()]);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    Ok(Pattern(pieces))
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    match pieces.last_mut() {
        Some(Piece::Text(t)) => t.push_str(text),
        _ => pieces.push(Piece::Text(text.to_owned())),
    }
}

fn cased(name: &str, case: Case) -> String {
    match case {
        Case::Upper => name.to_uppercase(),
        Case::Title => name.to_owned(),
        Case::Lower => name.to_lowercase(),
    }
}

/// A time as a pattern shows it; `with_zone`: it has the zone UTC.
pub(super) fn format(pattern: &Pattern, t: NaiveDateTime, with_zone: bool) -> String {
    let mut out = String::new();
    for piece in &pattern.0 {
        let (field, case, fill, ordinal) = match piece {
            Piece::Text(text) => {
                out.push_str(text);
                continue;
            }
            Piece::Field { field, case, fill, ordinal } => (*field, *case, *fill, *ordinal),
        };
        let number = |n: i64, width: usize| if fill { format!("{n:0width$}") } else { n.to_string() };
        let name = |full: &str, short: bool| match short {
            true => cased(&full[..3], case),
            false if fill => format!("{:NAME_WIDTH$}", cased(full, case)),
            false => cased(full, case),
        };
        let year = i64::from(t.year());
        let hour12 = i64::from(t.hour() % 12 + if t.hour().is_multiple_of(12) { 12 } else { 0 });
        let micros = i64::from(t.nanosecond() / 1000);
        let shown = match field {
            Field::Year(4) => number(year, 4),
            Field::Year(digits) => number(year.rem_euclid(10i64.pow(digits as u32)), digits),
            Field::IsoYear => number(i64::from(t.iso_week().year()), 4),
            Field::Month => number(i64::from(t.month()), 2),
            Field::MonthName { short } => name(MONTHS[t.month0() as usize % 12], short),
            Field::Day => number(i64::from(t.day()), 2),
            Field::DayOfYear => number(i64::from(t.ordinal()), 3),
            Field::DayOfWeek => number(i64::from(t.weekday().num_days_from_sunday()) + 1, 1),
            Field::DayName { short } => name(DAYS[t.weekday().num_days_from_sunday() as usize % 7], short),
            Field::Week => number(i64::from(t.ordinal0() / 7) + 1, 2),
            Field::IsoWeek => number(i64::from(t.iso_week().week()), 2),
            Field::Quarter => number(i64::from(t.month0() / 3) + 1, 1),
            Field::Century => number((year - 1).div_euclid(100) + 1, 2),
            Field::Hour24 => number(i64::from(t.hour()), 2),
            Field::Hour12 => number(hour12, 2),
            Field::Minute => number(i64::from(t.minute()), 2),
            Field::Second => number(i64::from(t.second()), 2),
            Field::Millis => number(micros / 1000, 3),
            Field::Micros => number(micros, 6),
            Field::SecondOfDay => number(i64::from(t.num_seconds_from_midnight()), 1),
            Field::HalfDay { dots } => {
                let half = match (t.hour() < 12, dots) {
                    (true, false) => "AM",
                    (false, false) => "PM",
                    (true, true) => "A.M.",
                    (false, true) => "P.M.",
                };
                if case == Case::Lower { half.to_lowercase() } else { half.to_owned() }
            }
            Field::Zone if with_zone => cased("UTC", if case == Case::Lower { case } else { Case::Upper }),
            Field::Zone => String::new(),
        };
        out.push_str(&shown);
        if let Some(case) = ordinal {
            let digits: String = shown.chars().rev().take(2).collect();
            let ending = match (digits.chars().next(), digits.chars().nth(1)) {
                (_, Some('1')) => "th",
                (Some('1'), _) => "st",
                (Some('2'), _) => "nd",
                (Some('3'), _) => "rd",
                _ => "th",
            };
            out.push_str(&cased(ending, case));
        }
    }
    out
}

/// What a text says by a pattern. What the pattern leaves out is the first of the year, midnight.
pub(super) fn read(pattern: &Pattern, text: &str) -> Result<NaiveDateTime> {
    let bad = || exec_err!("invalid value \"{text}\" for the pattern");
    let (mut year, mut month, mut day, mut day_of_year) = (None, 1u32, 1u32, None);
    let (mut hour, mut hour12, mut pm, mut minute, mut second, mut micros) = (0u32, None, false, 0u32, 0u32, 0u32);
    let mut rest = text.trim_start();
    for (i, piece) in pattern.0.iter().enumerate() {
        let field = match piece {
            Piece::Text(t) => {
                // Any separator stands for any other; letters must be there.
                for c in t.chars() {
                    let next = rest.chars().next();
                    match next {
                        Some(n) if n == c || (!c.is_alphanumeric() && !n.is_alphanumeric()) => {
                            rest = &rest[n.len_utf8()..];
                        }
                        _ if !c.is_alphanumeric() => {}
                        _ => return bad(),
                    }
                }
                continue;
            }
            Piece::Field { field, .. } => *field,
        };
        rest = rest.trim_start();
        let next_is_digits = matches!(pattern.0.get(i + 1), Some(Piece::Field { .. }));
        let mut digits = |width: usize| -> Option<u32> {
            let most = if next_is_digits { width } else { width.max(if width == 4 { 9 } else { width }) };
            let n = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
            let value = rest.get(..n)?.parse().ok()?;
            rest = &rest[n..];
            Some(value)
        };
        match field {
            Field::Year(4) => match digits(4) {
                Some(y) => year = Some(y as i32),
                None => return bad(),
            },
            Field::Year(width) => match digits(width) {
                // The year nearest to 2020, as PostgreSQL has it.
                Some(y) => {
                    year = Some(if y < 70 {
                        2000 + y as i32
                    } else if y < 100 {
                        1900 + y as i32
                    } else {
                        2000 + y as i32
                    })
                }
                None => return bad(),
            },
            Field::Month => match digits(2) {
                Some(m) => month = m,
                None => return bad(),
            },
            Field::MonthName { short } => {
                let full = MONTHS.iter().position(|m| starts(rest, m));
                let found = if short { None } else { full };
                let found = found.map(|m| (m, MONTHS[m].len())).or_else(|| {
                    let m = MONTHS.iter().position(|m| starts(rest, &m[..3]))?;
                    short.then_some((m, 3))
                });
                match found {
                    Some((m, len)) => {
                        month = m as u32 + 1;
                        rest = &rest[len..];
                    }
                    None => return bad(),
                }
            }
            Field::Day => match digits(2) {
                Some(d) => day = d,
                None => return bad(),
            },
            Field::DayOfYear => match digits(3) {
                Some(d) => day_of_year = Some(d),
                None => return bad(),
            },
            Field::DayName { short } => {
                let found = DAYS.iter().find(|d| starts(rest, if short { &d[..3] } else { d }));
                match found {
                    Some(d) => rest = &rest[if short { 3 } else { d.len() }..],
                    None => return bad(),
                }
            }
            Field::Hour24 => match digits(2) {
                Some(h) => hour = h,
                None => return bad(),
            },
            Field::Hour12 => match digits(2) {
                Some(h @ 1..=12) => hour12 = Some(h),
                _ => return bad(),
            },
            Field::Minute => match digits(2) {
                Some(m) => minute = m,
                None => return bad(),
            },
            Field::Second => match digits(2) {
                Some(s) => second = s,
                None => return bad(),
            },
            Field::Millis | Field::Micros => {
                let width = if field == Field::Millis { 3 } else { 6 };
                let n = rest.bytes().take(width).take_while(u8::is_ascii_digit).count();
                // Digits of a fraction: `5` is half a second.
                match format!("{:0<6}", &rest[..n]).parse() {
                    Ok(us) if n > 0 => micros = us,
                    _ => return bad(),
                }
                rest = &rest[n..];
            }
            Field::HalfDay { dots } => {
                let (am, at) = if dots { ("A.M.", "P.M.") } else { ("AM", "PM") };
                pm = starts(rest, at);
                if !pm && !starts(rest, am) {
                    return bad();
                }
                rest = &rest[am.len()..];
            }
            Field::IsoYear
            | Field::DayOfWeek
            | Field::Week
            | Field::IsoWeek
            | Field::Quarter
            | Field::Century
            | Field::SecondOfDay
            | Field::Zone => return exec_err!("this pattern is for to_char only"),
        }
    }
    if let Some(h) = hour12 {
        hour = h % 12 + if pm { 12 } else { 0 };
    }
    let Some(year) = year else { return exec_err!("a pattern without a year is not supported") };
    let date = match day_of_year {
        Some(d) => NaiveDate::from_yo_opt(year, d),
        None => NaiveDate::from_ymd_opt(year, month, day),
    };
    match date.and_then(|d| d.and_hms_micro_opt(hour, minute, second, micros)) {
        Some(t) => Ok(t),
        None => exec_err!("date/time field value out of range: \"{text}\""),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shown(pattern: &str) -> String {
        let t = NaiveDate::from_ymd_opt(2024, 3, 5).unwrap().and_hms_micro_opt(14, 7, 9, 12_345).unwrap();
        format(&parse(pattern).unwrap(), t, true)
    }

    #[test]
    fn shows() {
        for (pattern, expect) in [
            ("YYYY-MM-DD HH24:MI:SS.US", "2024-03-05 14:07:09.012345"),
            ("yyyy/mm/dd hh:mi am", "2024/03/05 02:07 pm"),
            ("Day, DD Month YYYY", "Tuesday  , 05 March     2024"),
            ("FMDay, FMDD FMMonth YYYY", "Tuesday, 5 March 2024"),
            ("DY Dy dy MON Mon mon", "TUE Tue tue MAR Mar mar"),
            ("FMDDth \"of\" Month", "5th of March    "),
            ("Q WW IW IYYY DDD D CC", "1 10 10 2024 065 3 21"),
            ("YY Y MS SSSS TZ", "24 4 012 50829 UTC"),
            ("HH24:MI", "14:07"),
            ("", ""),
        ] {
            assert_eq!(shown(pattern), expect, "{pattern}");
        }
        assert!(parse("YYYY TZH").is_err());
        assert!(parse("J").is_err());
    }

    #[test]
    fn reads() {
        let read = |text: &str, pattern: &str| {
            read(&parse(pattern).unwrap(), text).map(|t| t.to_string()).unwrap_or_else(|e| e.strip_backtrace())
        };
        assert_eq!(read("2024-02-29", "YYYY-MM-DD"), "2024-02-29 00:00:00");
        assert_eq!(read("20240229", "YYYYMMDD"), "2024-02-29 00:00:00");
        assert_eq!(read("05 Dec 2000", "DD Mon YYYY"), "2000-12-05 00:00:00");
        assert_eq!(read("5 december 99", "DD Month YY"), "1999-12-05 00:00:00");
        assert_eq!(read("2024-01-02 03:04:05.5 PM", "YYYY-MM-DD HH:MI:SS.MS AM"), "2024-01-02 15:04:05.500");
        assert_eq!(read("2024/060", "YYYY-DDD"), "2024-02-29 00:00:00");
        assert!(read("2024-02-30", "YYYY-MM-DD").contains("out of range"));
        assert!(read("x", "YYYY").contains("invalid value"));
    }
}
