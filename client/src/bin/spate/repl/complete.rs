//! Completion: names and keywords by their beginning, in the case that was typed.

use rustyline::completion::{Completer as RustylineCompleter, Pair};
use rustyline::{Context, Helper, Highlighter, Hinter, Validator};

use super::commands;

/// Knows the names.
#[derive(Default, Helper, Hinter, Highlighter, Validator)]
pub struct Completer {
    names: Vec<String>,
}

impl Completer {
    /// Replaces the names.
    pub fn set_names(&mut self, mut names: Vec<String>) {
        names.sort_unstable();
        names.dedup();
        self.names = names;
    }

    /// Start of the word before the cursor, and what it may become.
    fn candidates(&self, line: &str, at: usize) -> (usize, Vec<String>) {
        let before = line.get(..at).unwrap_or(line);
        if before.starts_with('\\') && !before.contains(' ') {
            let found = commands::names().filter(|name| name.starts_with(before)).map(str::to_owned).collect();
            return (0, found);
        }
        let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |i| i + char_length(before, i));
        let word = before.get(start..).unwrap_or("");
        if word.is_empty() {
            return (start, Vec::new());
        }
        let lower = word.to_lowercase();
        let typed_upper = word.chars().any(char::is_uppercase);
        let mut found: Vec<String> = self
            .names
            .iter()
            .filter(|name| name.to_lowercase().starts_with(&lower))
            .map(|name| {
                // Keywords are listed in capitals; whoever types small letters wants to go on so.
                let is_keyword = !name.chars().any(char::is_lowercase);
                if is_keyword && !typed_upper { name.to_lowercase() } else { name.clone() }
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        (start, found)
    }
}

fn char_length(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
}

impl RustylineCompleter for Completer {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = self.candidates(line, at);
        Ok((start, found.into_iter().map(|name| Pair { display: name.clone(), replacement: name }).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed_in_their_case() {
        let mut completer = Completer::default();
        completer.set_names(["SELECT", "SET", "seats", "Été", "seats"].map(String::from).to_vec());
        let at_end = |line: &str| completer.candidates(line, line.len());
        assert_eq!(at_end("se"), (0, vec!["seats".into(), "select".into(), "set".into()]));
        assert_eq!(at_end("SE"), (0, vec!["SELECT".into(), "SET".into(), "seats".into()]));
        assert_eq!(at_end("select * from sea"), (14, vec!["seats".into()]));
        assert_eq!(at_end("x–sel"), (4, vec!["select".into()]));
        assert_eq!(at_end("select "), (7, vec![]));
        assert!(at_end("\\ti").1.contains(&"\\timing".to_owned()));
    }
}
