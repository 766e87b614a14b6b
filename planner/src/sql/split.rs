//! A text cut into statements: tokens with their byte ranges, semicolons outside quotes
//! and comments, and whether a REPL may send what was typed so far.

use std::ops::Range;

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, TokenizerError};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::dialect::DIALECT;
use super::error;

/// Most operators that may follow each other in one expression without parentheses or
/// commas. They make a tree as deep as the chain is long, trees are walked by recursion,
/// and a thread has 2 MiB of stack.
const MAX_CHAIN: usize = 1000;

/// The tokens of one statement, without its semicolon; whitespace within is kept.
#[derive(Debug)]
pub(super) struct Slice<'a> {
    /// Tokens; the first and last are not whitespace.
    pub tokens: &'a [TokenWithSpan],
    /// Byte range of each token in the text.
    pub bytes: &'a [Range<usize>],
    /// Where the statement ends: line and column from 1.
    pub end: (u64, u64),
}

/// A text's tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    tokens: Vec<TokenWithSpan>,
    bytes: Vec<Range<usize>>,
}

pub(super) fn tokenize(text: &str) -> std::result::Result<Vec<TokenWithSpan>, TokenizerError> {
    Tokenizer::new(&DIALECT, text).tokenize_with_location()
}

impl Tokens {
    /// Reads `text`.
    pub fn new(text: &str) -> Result<Self> {
        let tokens = tokenize(text).map_err(error::from_tokenizer)?;
        let mut walk = Walk { text, byte: 0, at: Location { line: 1, column: 1 } };
        let bytes = tokens.iter().map(|t| walk.to(t.span.start)..walk.to(t.span.end)).collect();
        Ok(Self { tokens, bytes })
    }

    /// Its statements, without empty ones.
    pub fn statements(&self) -> Vec<Slice<'_>> {
        let mut out = Vec::new();
        let mut start = 0;
        for end in (0..=self.tokens.len()).filter(|&i| self.tokens.get(i).is_none_or(|t| t.token == Token::SemiColon)) {
            let is_word = |t: &TokenWithSpan| !matches!(t.token, Token::Whitespace(_) | Token::EOF);
            let part = &self.tokens[start..end];
            if let (Some(first), Some(last)) = (part.iter().position(is_word), part.iter().rposition(is_word)) {
                let range = start + first..start + last + 1;
                let stop = part[last].span.end;
                out.push(Slice {
                    tokens: &self.tokens[range.clone()],
                    bytes: &self.bytes[range],
                    end: (stop.line, stop.column),
                });
            }
            start = end + 1;
        }
        out
    }
}

/// Turns rising locations (lines and characters) into byte offsets.
struct Walk<'a> {
    text: &'a str,
    byte: usize,
    at: Location,
}

impl Walk<'_> {
    fn to(&mut self, location: Location) -> usize {
        for c in self.text[self.byte..].chars() {
            if (self.at.line, self.at.column) >= (location.line, location.column) {
                break;
            }
            self.byte += c.len_utf8();
            if c == '\n' {
                self.at = Location { line: self.at.line + 1, column: 1 };
            } else {
                self.at.column += 1;
            }
        }
        self.byte
    }
}

/// Byte ranges of the statements in `text`, without semicolons, surrounding whitespace
/// and comments. Fails with `Syntax` on an unterminated quote or comment.
pub fn split(text: &str) -> Result<Vec<Range<usize>>> {
    let tokens = Tokens::new(text)?;
    Ok(tokens.statements().iter().filter_map(|s| Some(s.bytes.first()?.start..s.bytes.last()?.end)).collect())
}

/// Whether a REPL may send `text`: every statement in it has its semicolon, and no quote
/// or comment is open. A text with any other fault counts as complete, so that sending it
/// tells the user. An empty text is complete.
pub fn is_complete(text: &str) -> bool {
    match tokenize(text) {
        Ok(tokens) => tokens
            .iter()
            .rev()
            .find(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF))
            .is_none_or(|t| t.token == Token::SemiColon),
        Err(e) => !error::wants_more(&e),
    }
}

/// Most levels of `struct<…>`, `array<…>` and `map<…>` in a type.
const MAX_TYPE_DEPTH: usize = 16;

/// Most CASEs within each other; the parser takes one level more for a syntax error.
const MAX_CASE_DEPTH: usize = 45;

/// Refuses chains of operators and nested types whose trees would be too deep to walk.
pub(super) fn check_chains(slice: &Slice<'_>) -> Result<()> {
    let mut chains = vec![0usize];
    let mut angles = 0usize;
    let mut cases = 0usize;
    let mut before = &Token::EOF;
    for t in slice.tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))) {
        let opens_type = t.token == Token::Lt
            && matches!(before, Token::Word(w) if matches!(w.keyword, Keyword::STRUCT | Keyword::ARRAY | Keyword::MAP));
        before = &t.token;
        if opens_type {
            angles += 1;
            if angles > MAX_TYPE_DEPTH {
                return Err(error::too_deep((t.span.start.line, t.span.start.column)));
            }
            continue;
        }
        match &t.token {
            Token::Word(w) if w.keyword == Keyword::END => cases = cases.saturating_sub(1),
            Token::Word(w) if w.keyword == Keyword::CASE => {
                bump(&mut chains, t)?;
                cases += 1;
                if cases > MAX_CASE_DEPTH {
                    return Err(error::too_deep((t.span.start.line, t.span.start.column)));
                }
            }
            Token::Gt | Token::ShiftRight if angles > 0 => {
                angles = angles.saturating_sub(if t.token == Token::Gt { 1 } else { 2 });
            }
            Token::LBracket => {
                // `int[][]…` nests a type, `a[1][2]…` an expression.
                bump(&mut chains, t)?;
                chains.push(0);
            }
            Token::LParen | Token::LBrace => chains.push(0),
            Token::RParen | Token::RBracket | Token::RBrace if chains.len() > 1 => {
                chains.pop();
            }
            Token::Comma => {
                if let Some(top) = chains.last_mut() {
                    *top = 0;
                }
            }
            Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
            | Token::Pipe
            | Token::Ampersand
            | Token::Caret
            | Token::Sharp
            | Token::DoubleColon
            | Token::Arrow
            | Token::LongArrow
            | Token::Eq
            | Token::Lt
            | Token::Gt
            | Token::LtEq
            | Token::GtEq
            | Token::Neq => bump(&mut chains, t)?,
            Token::Word(w)
                if matches!(
                    w.keyword,
                    Keyword::AND
                        | Keyword::OR
                        | Keyword::NOT
                        | Keyword::UNION
                        | Keyword::EXCEPT
                        | Keyword::INTERSECT
                        | Keyword::JOIN
                        | Keyword::IS
                ) =>
            {
                bump(&mut chains, t)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn bump(chains: &mut [usize], at: &TokenWithSpan) -> Result<()> {
    let Some(top) = chains.last_mut() else { return Ok(()) };
    *top += 1;
    if *top > MAX_CHAIN {
        let (line, column) = (at.span.start.line, at.span.start.column);
        return Err(SpateError::new(
            ErrorKind::Limit,
            format!("an expression chains more than {} operators", MAX_CHAIN),
        )
        .with_hint("use IN (…), VALUES or parentheses")
        .at(line, column));
    }
    Ok(())
}
