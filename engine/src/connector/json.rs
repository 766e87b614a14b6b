//! JSON, one object per line: a checking scanner that builds only the columns that are asked for.
//!
//! Strict where leniency would make wrong answers: a line that is not exactly one valid object is
//! a dead letter, `1.5` is no bigint, `9223372036854775808` neither. Of a key that comes twice the
//! last value counts, as in PostgreSQL's jsonb (in a map it must not come twice: see
//! [`super::nested`]). An object or array in a text column is its text. `\u0000` is no text.

use std::borrow::Cow;
use std::collections::HashMap;

use arrow::datatypes::Schema;

use super::DeadLetter;
use super::columns::{RowBuilder, Value};
use super::text::Decode;

/// How deep values may be nested.
const MAX_DEPTH: usize = 128;
/// How many keys are remembered.
const MAX_REMEMBERED: usize = 1 << 16;
/// How many keys may be left out in a row while keys are still found by guessing.
const LOOK_AHEAD: usize = 4;

/// What stands at a place of a line, without a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    /// Between the quotes; `true` if there are escapes in it.
    Text(&'a str, bool),
    Nested(&'a str),
}

/// Walks over one line. All positions that text is cut at are those of ASCII characters.
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

type Scanned<T> = std::result::Result<T, String>;

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn wrong(&self, expected: &str) -> String {
        match self.text.get(self.at..).and_then(|t| t.chars().next()) {
            Some(c) => format!("invalid JSON at byte {}: expected {expected}, found {c:?}", self.at),
            None => format!("invalid JSON: the record ends where {expected} is expected"),
        }
    }

    fn expect(&mut self, b: u8, what: &str) -> Scanned<()> {
        if self.peek() != Some(b) {
            return Err(self.wrong(what));
        }
        self.at += 1;
        Ok(())
    }

    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// A string, at its opening quote: what stands between the quotes, and whether it has escapes.
    fn string(&mut self) -> Scanned<(&'a str, bool)> {
        self.expect(b'"', "a string")?;
        let start = self.at;
        let mut escaped = false;
        loop {
            // On to the next byte that means something.
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            self.at += plain_len(rest);
            match self.peek() {
                Some(b'"') => {
                    let s = self.since(start);
                    self.at += 1;
                    return Ok((s, escaped));
                }
                Some(b'\\') => {
                    escaped = true;
                    self.at += 1;
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                                    return Err(self.wrong("a hexadecimal digit"));
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(self.wrong("an escape")),
                    }
                }
                Some(_) => return Err(self.wrong("no control character in a string")),
                None => return Err(self.wrong("the end of a string")),
            }
        }
    }

    fn digits(&mut self) -> Scanned<()> {
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.wrong("a digit"));
        }
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Scanned<&'a str> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(self.since(start))
    }

    fn word(&mut self, word: &str, token: Token<'a>) -> Scanned<Token<'a>> {
        let end = self.at + word.len();
        if self.text.as_bytes().get(self.at..end) != Some(word.as_bytes()) {
            return Err(self.wrong("a value"));
        }
        self.at = end;
        Ok(token)
    }

    /// Any value.
    fn value(&mut self, depth: usize) -> Scanned<Token<'a>> {
        if depth > MAX_DEPTH {
            return Err(format!("invalid JSON: values are nested deeper than {MAX_DEPTH}"));
        }
        let start = self.at;
        match self.peek() {
            Some(b'"') => self.string().map(|(s, e)| Token::Text(s, e)),
            Some(b'-' | b'0'..=b'9') => self.number().map(Token::Number),
            Some(b't') => self.word("true", Token::Bool(true)),
            Some(b'f') => self.word("false", Token::Bool(false)),
            Some(b'n') => self.word("null", Token::Null),
            Some(b'{') => {
                self.members(depth, &mut |_, _, _| {})?;
                Ok(Token::Nested(self.since(start)))
            }
            Some(b'[') => {
                self.elements(depth, &mut |_| {})?;
                Ok(Token::Nested(self.since(start)))
            }
            _ => Err(self.wrong("a value")),
        }
    }

    /// An array, at its bracket.
    pub(super) fn elements(&mut self, depth: usize, element: &mut dyn FnMut(Token<'a>)) -> Scanned<()> {
        self.expect(b'[', "an array")?;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            element(self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.wrong("\",\" or \"]\"")),
            }
        }
    }

    /// An object, at its brace; `member(key, key has escapes, value)` for each member.
    fn members(&mut self, depth: usize, member: &mut dyn FnMut(&'a str, bool, Token<'a>)) -> Scanned<()> {
        self.expect(b'{', "an object")?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            let (key, escaped) = self.string()?;
            self.space();
            self.expect(b':', "\":\"")?;
            self.space();
            let value = self.value(depth + 1)?;
            member(key, escaped, value);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.wrong("\",\" or \"}\"")),
            }
        }
    }

    /// The whole line as one object.
    pub(super) fn record(&mut self, member: &mut dyn FnMut(&'a str, bool, Token<'a>)) -> Scanned<()> {
        self.space();
        self.members(0, member)?;
        self.space();
        if self.at < self.text.len() { Err(self.wrong("the end of the record")) } else { Ok(()) }
    }
}

/// How far a string goes on without a quote, a backslash or a control character: eight bytes at a time.
fn plain_len(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    // The high bit of every byte below `n` (at most 128). Borrows make mistakes behind the first only.
    let below = |v: u64, n: u64| v.wrapping_sub(ONES * n) & !v & HIGH;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (i, chunk) in chunks.iter().enumerate() {
        let v = u64::from_le_bytes(*chunk);
        let special = below(v, 0x20) | below(v ^ (ONES * u64::from(b'"')), 1) | below(v ^ (ONES * u64::from(b'\\')), 1);
        if special != 0 {
            return i * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let special = |b: &u8| matches!(b, b'"' | b'\\') || *b < 0x20;
    bytes.len() - rest.len() + rest.iter().position(special).unwrap_or(rest.len())
}

/// The string that stands between quotes, without its escapes.
pub(super) fn unescape(raw: &str, escaped: bool) -> Scanned<Cow<'_, str>> {
    if !escaped {
        return Ok(Cow::Borrowed(raw));
    }
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(i) = rest.find('\\') {
        out.push_str(rest.get(..i).unwrap_or_default());
        let kind = rest.as_bytes().get(i + 1).copied();
        let mut used = i + 2;
        match kind {
            Some(b'b') => out.push('\u{8}'),
            Some(b'f') => out.push('\u{c}'),
            Some(b'n') => out.push('\n'),
            Some(b'r') => out.push('\r'),
            Some(b't') => out.push('\t'),
            Some(b'u') => {
                let unit = |from: usize| rest.get(from..from + 4).and_then(|h| u32::from_str_radix(h, 16).ok());
                let high = unit(i + 2).ok_or("invalid \\u escape")?;
                used = i + 6;
                let code = if (0xd800..0xdc00).contains(&high) {
                    let low = (rest.get(used..used + 2) == Some("\\u")).then(|| unit(used + 2)).flatten();
                    match low {
                        Some(low) if (0xdc00..0xe000).contains(&low) => {
                            used += 6;
                            0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                        }
                        _ => return Err("a lone surrogate in a \\u escape".into()),
                    }
                } else {
                    high
                };
                if code == 0 {
                    return Err("\\u0000 cannot be text".into());
                }
                out.push(char::from_u32(code).ok_or("a lone surrogate in a \\u escape")?);
            }
            Some(b) => out.push(char::from(b)),
            None => return Err("a lone backslash".into()),
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// Where a key's value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// No column has this name.
    None,
    /// The column with exactly this name.
    Exact(usize),
    /// The column whose name differs in case only; counts if no exact key is there.
    Folded(usize),
}

/// A slot's value as found in the current record, by byte range.
#[derive(Debug, Clone, Copy)]
struct Found {
    kind: Kind,
    start: usize,
    end: usize,
    exact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Absent,
    Null,
    True,
    False,
    Number,
    Text,
    /// A string with escapes; the range is one in the buffer of unescaped strings.
    Unescaped,
    Nested,
}

const ABSENT: Found = Found { kind: Kind::Absent, start: 0, end: 0, exact: false };

/// What an object changes.
pub(super) struct Change<'a> {
    /// `1`: it is its key's row from now on; `-1`: there is none any more.
    pub(super) sign: &'static str,
    /// Columns that must have a value, and the error if they do not.
    pub(super) required: &'a [(usize, String)],
}

/// Decodes lines into the projected columns.
pub(super) struct JsonDecoder {
    exact: HashMap<String, usize>,
    folded: HashMap<String, usize>,
    /// Keys of the first record in order: the others most likely have the same.
    remembered: Vec<(String, Slot)>,
    /// Whether the first record is still to come.
    learning: bool,
    /// Slots of all keys seen.
    known: HashMap<String, Slot>,
    found: Vec<Found>,
    unescaped: String,
}

impl JsonDecoder {
    /// For the columns of `schema`, by name.
    pub(super) fn new(schema: &Schema) -> Self {
        let mut exact = HashMap::new();
        let mut folded = HashMap::new();
        for (i, f) in schema.fields().iter().enumerate() {
            exact.entry(f.name().clone()).or_insert(i);
            folded.entry(f.name().to_lowercase()).or_insert(i);
        }
        Self {
            exact,
            folded,
            remembered: Vec::new(),
            learning: true,
            known: HashMap::new(),
            found: vec![ABSENT; schema.fields().len()],
            unescaped: String::new(),
        }
    }

    fn slot(exact: &HashMap<String, usize>, folded: &HashMap<String, usize>, key: &str) -> Slot {
        if let Some(&i) = exact.get(key) {
            return Slot::Exact(i);
        }
        match folded.get(&key.to_lowercase()) {
            Some(&i) => Slot::Folded(i),
            None => Slot::None,
        }
    }
}

impl Decode for JsonDecoder {
    fn decode(&mut self, _: u64, text: &str, out: &mut RowBuilder, letter: &dyn Fn(String) -> DeadLetter) {
        if !is_blank(text) {
            self.object(text, None, out, letter);
        }
    }
}

/// Whether a line holds nothing.
pub(super) fn is_blank(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b' ' | b'\t' | b'\r'))
}

impl JsonDecoder {
    /// Adds one object as a row; `change`, if given, goes behind the columns, whatever the object
    /// holds. Gives whether the row is good.
    pub(super) fn object(
        &mut self,
        text: &str,
        change: Option<&Change<'_>>,
        out: &mut RowBuilder,
        letter: &dyn Fn(String) -> DeadLetter,
    ) -> bool {
        let Self { exact, folded, remembered, learning, known, found, unescaped } = self;
        found.fill(ABSENT);
        unescaped.clear();
        let base = text.as_ptr() as usize;
        // Byte range of a part of `text`.
        let range = |part: &str| {
            let start = part.as_ptr() as usize - base;
            (start, start + part.len())
        };
        let mut position = 0usize;
        let mut error: Option<String> = None;
        let scanned = Cursor::new(text).record(&mut |key, key_escaped, token| {
            let ahead = remembered.get(position..).unwrap_or_default().iter().take(LOOK_AHEAD);
            let guessed = if key_escaped { None } else { ahead.enumerate().find(|(_, (k, _))| k == key) };
            let slot = match guessed {
                Some((skipped, (_, slot))) => {
                    position += skipped + 1;
                    *slot
                }
                None => {
                    let name = match unescape(key, key_escaped) {
                        Ok(n) => n,
                        Err(e) => {
                            error.get_or_insert(e);
                            return;
                        }
                    };
                    let slot = match known.get(name.as_ref()) {
                        Some(s) => *s,
                        None => {
                            let s = Self::slot(exact, folded, &name);
                            if known.len() < MAX_REMEMBERED {
                                known.insert(name.into_owned(), s);
                            }
                            s
                        }
                    };
                    if *learning && !key_escaped && remembered.len() < MAX_REMEMBERED {
                        remembered.push((key.to_owned(), slot));
                        position = remembered.len();
                    }
                    slot
                }
            };
            let (i, is_exact) = match slot {
                Slot::None => return,
                Slot::Exact(i) => (i, true),
                Slot::Folded(i) => (i, false),
            };
            let Some(place) = found.get_mut(i) else { return };
            if place.exact && !is_exact {
                return;
            }
            let (kind, (start, end)) = match token {
                Token::Null => (Kind::Null, (0, 0)),
                Token::Bool(true) => (Kind::True, (0, 0)),
                Token::Bool(false) => (Kind::False, (0, 0)),
                Token::Number(t) => (Kind::Number, range(t)),
                Token::Nested(t) => (Kind::Nested, range(t)),
                Token::Text(t, false) => (Kind::Text, range(t)),
                Token::Text(t, true) => match unescape(t, true) {
                    Ok(s) => {
                        let start = unescaped.len();
                        unescaped.push_str(&s);
                        (Kind::Unescaped, (start, unescaped.len()))
                    }
                    Err(e) => {
                        error.get_or_insert(e);
                        return;
                    }
                },
            };
            *place = Found { kind, start, end, exact: is_exact };
        });
        *learning &= remembered.is_empty();
        if let Some(e) = scanned.err().or(error) {
            out.dead(letter(e));
            return false;
        }
        let width = found.len();
        if let Some(change) = change {
            let null = |i: &usize| found.get(*i).is_none_or(|f| matches!(f.kind, Kind::Absent | Kind::Null));
            if let Some((_, e)) = change.required.iter().find(|(i, _)| null(i)) {
                out.dead(letter(e.clone()));
                return false;
            }
        }
        let value = |i: usize| {
            if i >= width {
                return change.map_or(Value::Null, |c| Value::Number(c.sign));
            }
            let f = found.get(i).copied().unwrap_or(ABSENT);
            let part = |of| str::get(of, f.start..f.end).unwrap_or_default();
            match f.kind {
                Kind::Absent | Kind::Null => Value::Null,
                Kind::True => Value::Bool(true),
                Kind::False => Value::Bool(false),
                Kind::Number => Value::Number(part(text)),
                Kind::Text => Value::Text(part(text)),
                Kind::Unescaped => Value::Text(part(unescaped.as_str())),
                Kind::Nested => Value::Nested(part(text)),
            }
        };
        out.push(value, letter)
    }
}

#[cfg(test)]
mod tests {
    use super::plain_len;

    #[test]
    fn strings_end_at_the_first_byte_that_means_something() {
        let slow = |b: &[u8]| b.iter().position(|b| matches!(b, b'"' | b'\\') || *b < 0x20).unwrap_or(b.len());
        // Every byte at every place of two words, before every neighbour.
        for len in 0..20 {
            for place in 0..len {
                for byte in 0..=255u8 {
                    for next in [b'a', b'"', 0x1f, 0x20, 0x21, 0x80, 0xff] {
                        let mut text = vec![b'x'; len];
                        text[place] = byte;
                        if place + 1 < len {
                            text[place + 1] = next;
                        }
                        assert_eq!(plain_len(&text), slow(&text), "{text:?}");
                    }
                }
            }
        }
    }
}
