//! JSON text as a value. Strict: what RFC 8259 does not allow is an error, and so is what text
//! cannot hold (`\u0000`, halves of surrogate pairs).

use super::{Json, number};

/// How deep values may be nested.
const MAX_DEPTH: usize = 128;

type Parsed<T> = Result<T, String>;

/// Reads one value, with nothing but space around it.
///
/// # Errors
/// What is wrong and at which byte.
pub fn parse(text: &str) -> Parsed<Json> {
    let mut p = Parser { text, at: 0 };
    let value = p.value(0)?;
    p.space();
    if p.at < text.len() {
        return Err(p.wrong("the end"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    /// At the start of a character, always.
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, b: u8) -> bool {
        let there = self.peek() == Some(b);
        self.at += usize::from(there);
        there
    }

    fn wrong(&self, expected: &str) -> String {
        match self.text.get(self.at..).and_then(|t| t.chars().next()) {
            Some(c) => format!("expected {expected} at byte {}, found {c:?}", self.at),
            None => format!("expected {expected}, but the text ends"),
        }
    }

    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn value(&mut self, depth: usize) -> Parsed<Json> {
        if depth > MAX_DEPTH {
            return Err(format!("values are nested more than {MAX_DEPTH} deep"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Parsed<Json> {
        let words = [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))];
        for (word, value) in words {
            if self.text.get(self.at..).is_some_and(|t| t.starts_with(word)) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong("a value"))
    }

    fn digits(&mut self) -> Parsed<()> {
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.wrong("a digit"));
        }
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Parsed<Json> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        let text = self.since(start);
        number::canonical(text).map(Json::Number).ok_or_else(|| "a number is out of range".to_owned())
    }

    fn array(&mut self, depth: usize) -> Parsed<Json> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.eat(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.eat(b']') {
                return Ok(Json::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.wrong("a comma or ]"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Parsed<Json> {
        self.at += 1;
        let mut members = Vec::new();
        self.space();
        if self.eat(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a key in quotes"));
            }
            let key = self.string()?;
            self.space();
            if !self.eat(b':') {
                return Err(self.wrong("a colon"));
            }
            members.push((key, self.value(depth + 1)?));
            self.space();
            if self.eat(b'}') {
                return Ok(Json::object(members));
            }
            if !self.eat(b',') {
                return Err(self.wrong("a comma or }"));
            }
        }
    }

    /// A string, at its opening quote.
    fn string(&mut self) -> Parsed<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            let rest = self.text.as_bytes().get(start..).unwrap_or_default();
            self.at += rest.iter().position(|b| matches!(b, b'"' | b'\\') || *b < 0x20).unwrap_or(rest.len());
            out.push_str(self.since(start));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(_) => return Err(self.wrong("no control character in a string")),
                None => return Err(self.wrong("the end of a string")),
            }
        }
    }

    /// What stands after a backslash.
    fn escape(&mut self) -> Parsed<char> {
        let b = self.peek();
        let c = match b {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.code_point();
            }
            _ => return Err(self.wrong("an escape")),
        };
        self.at += 1;
        Ok(c)
    }

    fn code_point(&mut self) -> Parsed<char> {
        let first = self.hex()?;
        let code = match first {
            0xd800..0xdc00 => {
                if !(self.eat(b'\\') && self.eat(b'u')) {
                    return Err("half of a surrogate pair stands alone".to_owned());
                }
                match self.hex()? {
                    second @ 0xdc00..0xe000 => 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                    _ => return Err("half of a surrogate pair stands alone".to_owned()),
                }
            }
            0 => return Err("\\u0000 cannot be text".to_owned()),
            other => other,
        };
        char::from_u32(code).ok_or_else(|| "half of a surrogate pair stands alone".to_owned())
    }

    fn hex(&mut self) -> Parsed<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            code = code << 4 | digit.ok_or_else(|| self.wrong("a hexadecimal digit"))?;
            self.at += 1;
        }
        Ok(code)
    }
}
