//! The one form of a JSON number: digits without zeros that mean nothing, with a point where it
//! stands; numbers of more than [`PLAIN`] digits with an exponent.

/// Most digits, zeros for the exponent included, of a number that is written without exponent.
const PLAIN: i64 = 400;
/// Greatest exponent, as for PostgreSQL's `numeric`.
const MOST: i64 = 131_072;

/// The form of a number that is valid JSON; `None` if it is out of range.
pub(super) fn canonical(text: &str) -> Option<String> {
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |r| (true, r));
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(i) => (rest.get(..i)?, rest.get(i + 1..)?.parse::<i64>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let digits = significant.trim_end_matches('0');
    let zeros = i64::try_from(significant.len() - digits.len()).ok()?;
    // The value is `digits` × 10^`power`.
    let power = exponent.checked_add(zeros)?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let n = i64::try_from(digits.len()).ok()?;
    if power.checked_add(n)? > MOST || power < -MOST {
        return None;
    }
    let mut out = String::with_capacity(digits.len() + 8);
    if negative {
        out.push('-');
    }
    let zeros = |n: i64| "0".repeat(usize::try_from(n).unwrap_or(0));
    if power >= 0 && n + power <= PLAIN {
        out.push_str(digits);
        out.push_str(&zeros(power));
    } else if power < 0 && n.max(-power) <= PLAIN {
        // How many digits stand before the point.
        let before = n + power;
        match usize::try_from(before) {
            Ok(b) if b > 0 => {
                let (whole, fraction) = digits.split_at(b);
                out.push_str(whole);
                out.push('.');
                out.push_str(fraction);
            }
            _ => {
                out.push_str("0.");
                out.push_str(&zeros(-before));
                out.push_str(digits);
            }
        }
    } else {
        out.push_str(digits);
        out.push_str(&format!("e{power}"));
    }
    Some(out)
}
