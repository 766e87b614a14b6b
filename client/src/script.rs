//! Scripts: positions in a whole text, and errors shown with the line they are about.

use spate_engine::types::SpateError;
use unicode_width::UnicodeWidthChar;

/// Longest piece of a source line that is shown around an error, in characters.
const MAX_SHOWN: usize = 160;

/// A text with statements, and what to call it.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// File name, `-c`, `<stdin>`; `None` at the prompt.
    pub name: Option<&'a str>,
    /// All of it.
    pub text: &'a str,
}

/// Line and column, both from 1 and in characters, of a byte of the text.
pub fn position(text: &str, offset: usize) -> (u64, u64) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = before[line_start..].chars().count() + 1;
    (line as u64, column as u64)
}

/// Turns an error's position within the statement that starts at byte `start` into one within
/// the whole text. An error without a position gets that of its statement.
pub fn locate(error: SpateError, text: &str, start: usize) -> SpateError {
    let statement = text.get(start..).unwrap_or("");
    match error.position() {
        Some((line, column)) => {
            let (first_line, first_column) = position(text, start);
            let column = if line <= 1 { first_column + column.saturating_sub(1) } else { column };
            error.at(first_line + line.saturating_sub(1), column)
        }
        None => {
            let (line, column) = position(text, start + crate::scan::skip_blank(statement));
            error.at(line, column)
        }
    }
}

/// The error for a person: message, place, source line with a caret, hint. Ends with a newline.
/// The error's position counts within the whole of `source`.
pub fn render(error: &SpateError, source: &Source<'_>) -> String {
    let mut out = format!("error: {}\n", error.message());
    if let Some((line, column)) = error.position() {
        match source.name {
            Some(name) => out.push_str(&format!(" --> {name}:{line}:{column}\n")),
            None => out.push_str(&format!(" --> {line}:{column}\n")),
        }
        let index = usize::try_from(line).unwrap_or(usize::MAX).saturating_sub(1);
        if let Some(text) = source.text.split('\n').nth(index) {
            out.push_str(&snippet(text, line, column));
        }
    }
    if let Some(hint) = error.hint() {
        out.push_str(&format!("hint: {hint}\n"));
    }
    out
}

/// The line and, below it, the caret.
fn snippet(text: &str, line: u64, column: u64) -> String {
    let chars: Vec<char> = text.trim_end_matches('\r').chars().collect();
    let caret = usize::try_from(column).unwrap_or(usize::MAX).saturating_sub(1).min(chars.len());
    // A long line is cut to a window around the caret.
    let from = if chars.len() <= MAX_SHOWN { 0 } else { caret.saturating_sub(MAX_SHOWN / 2) };
    let to = chars.len().min(from + MAX_SHOWN);
    let mut shown = String::new();
    let mut indent = 0;
    if from > 0 {
        shown.push_str("...");
        indent += 3;
    }
    for (i, c) in chars.iter().enumerate().take(to).skip(from) {
        let c = if c.is_control() { ' ' } else { *c };
        shown.push(c);
        if i < caret {
            indent += c.width().unwrap_or(0);
        }
    }
    if to < chars.len() {
        shown.push_str("...");
    }
    let number = line.to_string();
    let gutter = " ".repeat(number.len());
    format!("{gutter} |\n{number} | {shown}\n{gutter} | {}^\n", " ".repeat(indent))
}

#[cfg(test)]
mod tests {
    use spate_engine::types::ErrorKind;

    use super::*;

    fn missing() -> SpateError {
        SpateError::new(ErrorKind::NotFound, "table \"bidz\" does not exist").with_hint("did you mean \"bid\"?")
    }

    #[test]
    fn positions_count_lines_and_characters() {
        assert_eq!(position("ab\ncd", 0), (1, 1));
        assert_eq!(position("ab\ncd", 4), (2, 2));
        assert_eq!(position("é\nü x", 6), (2, 3));
        assert_eq!(position("ab", 99), (1, 3));
    }

    #[test]
    fn positions_move_from_statement_to_text() {
        let text = "select 1; select\n  x from bidz";
        assert_eq!(locate(missing().at(1, 1), text, 10).position(), Some((1, 11)));
        assert_eq!(locate(missing().at(2, 10), text, 10).position(), Some((2, 10)));
        let text = "-- all\n\n select x;";
        assert_eq!(locate(missing(), text, 0).position(), Some((3, 2)));
    }

    #[test]
    fn errors_show_a_caret() {
        let source = Source { name: Some("q.sql"), text: "select *\nfrom bidz\nwhere x" };
        assert_eq!(
            render(&missing().at(2, 6), &source),
            "error: table \"bidz\" does not exist
 --> q.sql:2:6
  |
2 | from bidz
  |      ^
hint: did you mean \"bid\"?
"
        );
        let source = Source { name: None, text: "select 1" };
        assert_eq!(render(&SpateError::unsupported("x"), &source), "error: x\n");
        assert_eq!(render(&SpateError::unsupported("x").at(9, 9), &source), "error: x\n --> 9:9\n");
    }

    #[test]
    fn carets_heed_tabs_wide_characters_and_the_end_of_the_line() {
        let source = Source { name: None, text: "\t日 x\r\n" };
        let at = |column| render(&SpateError::unsupported("m").at(1, column), &source);
        assert!(at(4).ends_with("1 |  日 x\n  |     ^\n"), "{}", at(4));
        assert!(at(99).ends_with("1 |  日 x\n  |      ^\n"), "{}", at(99));
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let text = format!("{}here{}", "a".repeat(1000), "b".repeat(1000));
        let shown = render(&SpateError::unsupported("m").at(1, 1001), &Source { name: None, text: &text });
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[3].len() < 200);
        let caret = lines[4].find('^').unwrap_or(0);
        assert_eq!(&lines[3][caret..caret + 4], "here");
    }
}
