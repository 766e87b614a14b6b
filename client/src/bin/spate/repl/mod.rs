//! The prompt: lines become statements at their `;`, lines that begin with `\` are commands.

mod commands;
mod complete;
mod history;
mod syntax;

use std::io;

use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use spate_client::scan::scan;
use spate_client::script::Source;
use spate_engine::types::{Result, SpateError};

use crate::shell::{Shell, Stop, say};
use commands::Next;
use complete::Completer;
use history::History;

const PROMPT: &str = "spate=> ";
/// While a statement is not complete.
const MORE: &str = "spate-> ";
const MAX_HISTORY: usize = 10_000;

/// Reads and runs until the user leaves; gives the exit code.
pub fn run(shell: &mut Shell, mut editor: Editor<Completer, FileHistory>, quiet: bool) -> u8 {
    if !quiet {
        say(concat!("spate ", env!("CARGO_PKG_VERSION"), ". \\? lists commands, \\h SQL, \\q leaves.\n\n"));
    }
    let mut history = History::open(&mut editor);
    let mut buffer = String::new();
    let mut last = String::new();
    loop {
        if let Some(completer) = editor.helper_mut() {
            completer.set_names(shell.completions());
        }
        match editor.readline(if buffer.is_empty() { PROMPT } else { MORE }) {
            Ok(line) => {
                if shell.take_interrupt() {
                    buffer.clear();
                }
                if buffer.is_empty()
                    && let Some(command) = commands::of_line(&line)
                {
                    history.add(&mut editor, &line);
                    if commands::run(shell, command, &last) == Next::Leave {
                        break;
                    }
                    continue;
                }
                if let Some(statements) = take_complete(&mut buffer, &line) {
                    history.add(&mut editor, statements.trim_end());
                    last = statements;
                    if shell.run_script(&Source { name: None, text: &last }) == Err(Stop::Closed) {
                        break;
                    }
                }
            }
            Err(ReadlineError::Interrupted) => buffer.clear(),
            Err(ReadlineError::Eof) => {
                say("\n");
                break;
            }
            Err(ReadlineError::Signal(_)) => {}
            Err(e) => {
                crate::report(&SpateError::from(io::Error::other(e)).context("cannot read from the terminal"));
                return crate::FAILURE;
            }
        }
    }
    0
}

/// The line editor.
pub fn editor() -> Result<Editor<Completer, FileHistory>> {
    let failed = |e: ReadlineError| SpateError::from(io::Error::other(e)).context("cannot use the terminal");
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .history_ignore_space(true)
        .auto_add_history(false)
        .build();
    let mut editor = Editor::with_config(config).map_err(failed)?;
    editor.set_max_history_size(MAX_HISTORY).map_err(failed)?;
    editor.set_helper(Some(Completer::default()));
    Ok(editor)
}

/// Adds a line to what was typed before; gives the statements that are complete now and keeps
/// the beginning of another one.
fn take_complete(buffer: &mut String, line: &str) -> Option<String> {
    if buffer.is_empty() && line.trim().is_empty() {
        return None;
    }
    buffer.push_str(line);
    buffer.push('\n');
    let found = scan(buffer);
    if found.open {
        return None;
    }
    match found.last_end {
        Some(end) => {
            let rest = if found.rest_is_blank { String::new() } else { buffer.split_off(end).trim_start().to_owned() };
            Some(std::mem::replace(buffer, rest))
        }
        None => {
            // A comment alone is no beginning of a statement.
            if found.rest_is_blank {
                buffer.clear();
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds lines; gives what came out and what is left.
    fn feed(lines: &[&str]) -> (Vec<String>, String) {
        let mut buffer = String::new();
        let out = lines.iter().filter_map(|line| take_complete(&mut buffer, line)).collect();
        (out, buffer)
    }

    #[test]
    fn lines_become_statements() {
        assert_eq!(feed(&["select 1;"]), (vec!["select 1;\n".into()], String::new()));
        assert_eq!(feed(&["", "select", "1;"]), (vec!["select\n1;\n".into()], String::new()));
        assert_eq!(feed(&["select 1; select"]), (vec!["select 1;".into()], "select\n".into()));
        assert_eq!(feed(&["select 1; select", "2; "]).0, ["select 1;", "select\n2; \n"]);
        assert_eq!(feed(&["select ';", "';"]).0, ["select ';\n';\n"]);
        assert_eq!(feed(&["select 1; select '", "';"]).0, ["select 1; select '\n';\n"]);
        assert_eq!(feed(&["-- hello", "select 1;"]).0, ["select 1;\n"]);
        assert_eq!(feed(&["select 1; -- done"]), (vec!["select 1; -- done\n".into()], String::new()));
    }
}
