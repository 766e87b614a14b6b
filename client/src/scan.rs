//! Where statements end, without parsing them: enough of PostgreSQL's lexical rules to know
//! that a `;` is not inside a string, a quoted name, a comment or a dollar quote.

/// What a look over a text found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// Byte behind the last `;` that ends a statement.
    pub last_end: Option<usize>,
    /// Whether only white space and whole comments follow `last_end` (or the start).
    pub rest_is_blank: bool,
    /// Whether the text ends inside a quote or a block comment.
    pub open: bool,
}

/// Looks over a text.
pub fn scan(text: &str) -> Scan {
    let bytes = text.as_bytes();
    let mut found = Scan { last_end: None, rest_is_blank: true, open: false };
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied();
        let end = match byte {
            b'-' if next == Some(b'-') => {
                at = find(bytes, at, b'\n').map_or(bytes.len(), |newline| newline + 1);
                continue;
            }
            b'/' if next == Some(b'*') => match block_comment(bytes, at) {
                Some(end) => {
                    at = end;
                    continue;
                }
                None => None,
            },
            b';' => {
                at += 1;
                found.last_end = Some(at);
                found.rest_is_blank = true;
                continue;
            }
            b if b.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'\'' => quoted(bytes, at + 1, b'\'', is_escape_string(bytes, at)),
            b'"' => quoted(bytes, at + 1, b'"', false),
            b'$' => match dollar_tag(bytes, at) {
                Some(tag) => text
                    .get(at + tag.len()..)
                    .and_then(|rest| rest.find(tag))
                    .map(|offset| at + tag.len() + offset + tag.len()),
                None => Some(at + 1),
            },
            b if is_word(b) => Some(word(bytes, at)),
            _ => Some(at + 1),
        };
        found.rest_is_blank = false;
        match end {
            Some(end) => at = end,
            None => {
                found.open = true;
                break;
            }
        }
    }
    found
}

/// First byte that is neither white space nor in a comment, or the end of the text.
pub fn skip_blank(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        match bytes.get(at..) {
            Some([b, ..]) if b.is_ascii_whitespace() => at += 1,
            Some([b'-', b'-', ..]) => at = find(bytes, at, b'\n').map_or(bytes.len(), |newline| newline + 1),
            Some([b'/', b'*', ..]) => match block_comment(bytes, at) {
                Some(end) => at = end,
                None => return at,
            },
            _ => return at,
        }
    }
}

fn find(bytes: &[u8], from: usize, byte: u8) -> Option<usize> {
    bytes.get(from..)?.iter().position(|b| *b == byte).map(|offset| from + offset)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// End of a name or number; a `$` inside belongs to it and opens no quote.
fn word(bytes: &[u8], from: usize) -> usize {
    let length = bytes.get(from..).map_or(0, |rest| rest.iter().take_while(|b| is_word(**b) || **b == b'$').count());
    // `E'…'`: the word is left before the quote, which looks back at it.
    from + length.max(1)
}

/// Whether the quote at `at` is that of `E'…'`.
fn is_escape_string(bytes: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|i| bytes.get(i)).copied();
    matches!(before(1), Some(b'e' | b'E')) && !before(2).is_some_and(|b| is_word(b) || b == b'$')
}

/// Byte behind the closing quote; a doubled quote, and with `escapes` a backslash, hides it.
fn quoted(bytes: &[u8], from: usize, quote: u8, escapes: bool) -> Option<usize> {
    let mut at = from;
    loop {
        match *bytes.get(at)? {
            b'\\' if escapes => at += 2,
            b if b == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            b if b == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Byte behind a block comment, which may nest.
fn block_comment(bytes: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0;
    let mut at = from;
    loop {
        match (*bytes.get(at)?, bytes.get(at + 1)) {
            (b'/', Some(b'*')) => {
                depth += 1;
                at += 2;
            }
            (b'*', Some(b'/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
}

/// `$$` or `$tag$` at this place.
fn dollar_tag(bytes: &[u8], at: usize) -> Option<&str> {
    let end = find(bytes, at + 1, b'$')?;
    let tag = bytes.get(at + 1..end)?;
    let first_ok = tag.first().is_none_or(|b| !b.is_ascii_digit());
    if first_ok && tag.iter().all(|b| is_word(*b)) { std::str::from_utf8(bytes.get(at..=end)?).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `|` marks where the last statement must be seen to end.
    #[track_caller]
    fn check(marked: &str, rest_is_blank: bool, open: bool) {
        let last_end = marked.find('|');
        let found = scan(&marked.replacen('|', "", 1));
        assert_eq!(found, Scan { last_end, rest_is_blank, open }, "{marked}");
    }

    #[test]
    fn statements_end_at_semicolons() {
        check("", true, false);
        check("  \n", true, false);
        check("select 1", false, false);
        check("select 1;|", true, false);
        check("select 1;| \n-- done", true, false);
        check("select 1;| /* a /* b */ */", true, false);
        check("select 1; select 2;| select", false, false);
        check(";|", true, false);
    }

    #[test]
    fn quotes_and_comments_hide_them() {
        check("select ';", false, true);
        check("select ';'", false, false);
        check("select 'it''s;';|", true, false);
        check("select 'a\\';|", true, false);
        check("select e'a\\';'", false, false);
        check("select te'a\\';|", true, false);
        check("select \"a;\"\";\" from t;|", true, false);
        check("-- ;\nselect", false, false);
        check("select 1 /* ; ", false, true);
        check("select 1 - -1;|", true, false);
    }

    #[test]
    fn dollar_quotes_hide_them() {
        check("select $$;'$$;|", true, false);
        check("select $f$ ; $$ ; $f$;|", true, false);
        check("select $f$ ;", false, true);
        check("select a$b$ ;|", true, false);
        check("select $1;|", true, false);
        check("select $1, $2;|", true, false);
    }

    #[test]
    fn blanks_are_skipped() {
        assert_eq!(skip_blank(" -- a\n /* b */x"), 14);
        assert_eq!(skip_blank("x"), 0);
        assert_eq!(skip_blank("  "), 2);
        assert_eq!(skip_blank("/* open"), 0);
    }
}
