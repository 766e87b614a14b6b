//! `WITH (key = value, …)`: keys folded to lower case, perhaps dotted, values as text; and
//! readers for the values' types.

use std::time::Duration;

use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use datafusion_sql::sqlparser::tokenizer::Token;
use spate_engine::types::error::{Result, SpateError};

use super::parser::Cursor;
use super::statement::Options;

/// How the entries of a list are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `key = value`.
    With,
    /// `key value`, `key = value`, or `key` alone for true, as `COPY` has it.
    Loose,
}

/// Reads `(key = value, …)`; the opening parenthesis is next. An empty list is refused.
pub(super) fn parse_list(c: &mut Cursor<'_>, style: Style) -> Result<Options> {
    c.expect_token(&Token::LParen)?;
    let mut out = Options::new();
    loop {
        let at = c.found();
        let key = parse_key(c)?;
        let bare = style == Style::Loose && matches!(c.peek(0), Token::Comma | Token::RParen);
        let value = if bare {
            "true".to_string()
        } else {
            if !c.eat_token(&Token::Eq) && style == Style::With {
                return Err(c.unexpected("="));
            }
            parse_value(c)?
        };
        if out.insert(key.clone(), value).is_some() {
            return Err(SpateError::invalid(format!("option \"{key}\" specified more than once"))
                .at(at.position.0, at.position.1));
        }
        if c.eat_token(&Token::RParen) {
            return Ok(out);
        }
        if !c.eat_token(&Token::Comma) {
            return Err(c.unexpected("\",\" or \")\""));
        }
    }
}

/// `a.b.c`, each part a word or a quoted name; or the whole as a string.
fn parse_key(c: &mut Cursor<'_>) -> Result<String> {
    if let Token::SingleQuotedString(s) = c.peek(0) {
        let key = s.to_lowercase();
        c.advance();
        return Ok(key);
    }
    let mut key = String::new();
    loop {
        let Token::Word(w) = c.peek(0) else { return Err(c.unexpected("an option's name")) };
        key.push_str(&w.value.to_lowercase());
        c.advance();
        if !c.eat_token(&Token::Period) {
            return Ok(key);
        }
        key.push('.');
    }
}

fn parse_value(c: &mut Cursor<'_>) -> Result<String> {
    let negative = c.eat_token(&Token::Minus);
    if !negative {
        c.eat_token(&Token::Plus);
    }
    let value = match c.peek(0) {
        Token::Number(n, _) if negative => format!("-{n}"),
        Token::Number(n, _) => n.clone(),
        _ if negative => return Err(c.unexpected("a number")),
        Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => s.clone(),
        Token::DollarQuotedString(s) => s.value.clone(),
        // true, false, and enumerations such as `mode = watch`.
        Token::Word(w) if w.quote_style.is_none() => w.value.to_lowercase(),
        Token::Word(w) => w.value.clone(),
        _ => return Err(c.unexpected("a string, number, true or false")),
    };
    c.advance();
    Ok(value)
}

/// `value` of option `key` as a truth value, in any of PostgreSQL's spellings.
pub fn to_bool(key: &str, value: &str) -> Result<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "on" | "yes" | "y" | "1" => Ok(true),
        "false" | "f" | "off" | "no" | "n" | "0" => Ok(false),
        _ => Err(SpateError::invalid(format!("option \"{key}\" requires a Boolean value, not \"{value}\""))),
    }
}

/// `value` of option `key` as a whole number that is not negative.
pub fn to_u64(key: &str, value: &str) -> Result<u64> {
    value.trim().replace('_', "").parse().map_err(|_| {
        SpateError::invalid(format!("option \"{key}\" requires a whole number that is not negative, not \"{value}\""))
    })
}

/// `value` of option `key` as a length of time, such as `5 seconds`, `100ms`, `1 hour`.
pub fn to_duration(key: &str, value: &str) -> Result<Duration> {
    let bad = || {
        SpateError::invalid(format!("option \"{key}\" requires a length of time, not \"{value}\""))
            .with_hint("write a number and a unit, such as '5 seconds' or '100ms'")
    };
    let trimmed = value.trim();
    // A bare number would be read as something else than its writer may think.
    if trimmed.is_empty() || trimmed.parse::<f64>().is_ok() {
        return Err(bad());
    }
    let split = trimmed.find(|ch: char| !(ch.is_ascii_digit() || ch == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let spelled = match unit.trim() {
        "us" => "microseconds",
        "ms" => "milliseconds",
        "s" | "sec" => "seconds",
        "m" | "min" => "minutes",
        "h" => "hours",
        "d" => "days",
        other => other,
    };
    let parsed = parse_interval_month_day_nano(&format!("{number} {spelled}")).map_err(|_| bad())?;
    if parsed.months != 0 {
        return Err(bad());
    }
    let nanos = i128::from(parsed.days) * 86_400_000_000_000 + i128::from(parsed.nanoseconds);
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| bad())
}
