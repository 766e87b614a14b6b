//! Backslash commands, named as psql names them.

use std::path::Path;
use std::time::Duration;

use spate_client::script::Source;
use spate_engine::types::{Result, SpateError};

use super::syntax;
use crate::shell::{Shell, Stop, say};

/// Whether the prompt goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another line.
    Line,
    /// The user leaves, or nobody reads the output any more.
    Leave,
}

/// Name, arguments and purpose.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("\\q", "", "leave"),
    ("\\?", "", "this list"),
    ("\\h", "[NAME]", "forms of SQL statements"),
    ("\\d", "[NAME]", "all tables, sources, views and sinks, or the columns of one"),
    ("\\dt", "", "tables"),
    ("\\ds", "", "sources"),
    ("\\dv", "", "views"),
    ("\\dm", "", "materialized views"),
    ("\\dk", "", "sinks"),
    ("\\dj", "", "running jobs"),
    ("\\dn", "", "schemas"),
    ("\\timing", "[on|off]", "show how long statements take"),
    ("\\x", "[on|off]", "one line per value"),
    ("\\watch", "[SECONDS]", "run what was typed last again and again, until Ctrl-C"),
    ("\\i", "FILE", "run the statements of a file"),
    ("\\o", "[FILE]", "write results to a file, or to the terminal again"),
];

/// What `\d` lists.
const LISTS: &[(&str, &str)] = &[
    ("Tables", "SHOW TABLES"),
    ("Sources", "SHOW SOURCES"),
    ("Views", "SHOW VIEWS"),
    ("Materialized views", "SHOW MATERIALIZED VIEWS"),
    ("Sinks", "SHOW SINKS"),
];

/// All command names, for completion.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _, _)| *name)
}

/// The command that a line is, if it is one. A lone `quit`, `exit` or `help` is what it says.
pub fn of_line(line: &str) -> Option<&str> {
    let line = line.trim();
    match line.trim_end_matches(';') {
        "quit" | "exit" => Some("\\q"),
        "help" => Some("\\?"),
        _ => line.starts_with('\\').then_some(line),
    }
}

/// Runs a command; `last` is what was typed last that is none.
pub fn run(shell: &mut Shell, line: &str, last: &str) -> Next {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = unquote(argument.trim());
    let result = match name {
        "\\q" => return Next::Leave,
        "\\?" => {
            say(&list());
            Ok(())
        }
        "\\h" => {
            say(&syntax::help(argument));
            Ok(())
        }
        "\\d" if argument.is_empty() => relations(shell),
        "\\d" => return statement(shell, &format!("DESCRIBE {}", argument.trim_end_matches(';'))),
        "\\dt" => return statement(shell, "SHOW TABLES"),
        "\\ds" => return statement(shell, "SHOW SOURCES"),
        "\\dv" => return statement(shell, "SHOW VIEWS"),
        "\\dm" => return statement(shell, "SHOW MATERIALIZED VIEWS"),
        "\\dk" => return statement(shell, "SHOW SINKS"),
        "\\dj" => return statement(shell, "SHOW JOBS"),
        "\\dn" => return statement(shell, "SHOW SCHEMAS"),
        "\\timing" => switch("timing", argument, shell.timing).map(|on| shell.timing = on),
        "\\x" => switch("expanded display", argument, shell.expanded).map(|on| shell.expanded = on),
        "\\watch" => match seconds(argument) {
            Ok(every) => return watch(shell, last, every),
            Err(e) => Err(e),
        },
        "\\i" if argument.is_empty() => Err(SpateError::invalid("\\i needs a file name")),
        "\\i" => return file(shell, Path::new(argument)),
        "\\o" => shell.redirect((!argument.is_empty()).then(|| Path::new(argument))),
        "\\!" => Err(SpateError::unsupported("shell commands are not supported")),
        _ => Err(unknown(name)),
    };
    if let Err(e) = result {
        crate::report(&e);
    }
    Next::Line
}

fn statement(shell: &mut Shell, sql: &str) -> Next {
    next(shell.run_script(&Source { name: None, text: sql }))
}

/// The argument of `\watch`.
fn seconds(argument: &str) -> Result<Duration> {
    if argument.is_empty() {
        return Ok(Duration::from_secs(2));
    }
    argument
        .parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .filter(|d| !d.is_zero())
        .ok_or_else(|| SpateError::invalid(format!("\\watch takes a number of seconds, not \"{argument}\"")))
}

fn watch(shell: &mut Shell, last: &str, every: Duration) -> Next {
    if last.trim().is_empty() {
        crate::report(&SpateError::invalid("\\watch has nothing to repeat: type a statement first"));
        return Next::Line;
    }
    loop {
        if let Err(stop) = shell.run_script(&Source { name: None, text: last }) {
            return next(Err(stop));
        }
        if shell.pause(every) {
            return Next::Line;
        }
    }
}

fn file(shell: &mut Shell, path: &Path) -> Next {
    match crate::read(path) {
        Ok(text) => next(shell.run_script(&Source { name: Some(&path.display().to_string()), text: &text })),
        Err(e) => {
            crate::report(&e);
            Next::Line
        }
    }
}

fn next(result: Result<(), Stop>) -> Next {
    if result == Err(Stop::Closed) { Next::Leave } else { Next::Line }
}

/// Every kind of relation of which there are any.
fn relations(shell: &mut Shell) -> Result<()> {
    let mut any = false;
    for (title, sql) in LISTS {
        let (schema, batches) = shell.collect(sql)?;
        if batches.iter().any(|batch| batch.num_rows() > 0) {
            shell.show(title, &schema, &batches)?;
            any = true;
        }
    }
    if !any {
        say("No tables, sources, views or sinks yet.\n");
    }
    Ok(())
}

fn list() -> String {
    let mut text = String::from("Statements end with ; and may span lines. Ctrl-C cancels, Ctrl-D leaves.\n\n");
    for (name, arguments, purpose) in COMMANDS {
        text.push_str(&format!("  {:<18}{purpose}\n", format!("{name} {arguments}")));
    }
    text
}

/// The new state of a setting; without an argument, the other one.
fn switch(what: &str, argument: &str, now: bool) -> Result<bool> {
    let on = match argument.to_ascii_lowercase().as_str() {
        "" => !now,
        "on" | "true" | "1" => true,
        "off" | "false" | "0" => false,
        other => return Err(SpateError::invalid(format!("\"{other}\" is neither on nor off"))),
    };
    say(&format!("{what} is {}\n", if on { "on" } else { "off" }));
    Ok(on)
}

/// File names may stand in single quotes.
fn unquote(argument: &str) -> &str {
    argument.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(argument)
}

fn unknown(name: &str) -> SpateError {
    let error = SpateError::invalid(format!("unknown command {name}"));
    let nearest = names().map(|known| (strsim::damerau_levenshtein(known, name), known)).min();
    match nearest {
        Some((distance, known)) if distance <= 1 || distance * 3 <= name.len() => {
            error.with_hint(format!("did you mean {known}? \\? lists all"))
        }
        _ => error.with_hint("\\? lists all commands"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_are_commands_or_not() {
        assert_eq!(of_line(" \\d t "), Some("\\d t"));
        assert_eq!(of_line("quit;"), Some("\\q"));
        assert_eq!(of_line("select '\\';"), None);
    }

    #[test]
    fn switches_toggle_and_refuse() {
        assert!(switch("x", "", false).unwrap());
        assert!(!switch("x", "OFF", true).unwrap());
        assert!(switch("x", "maybe", true).is_err());
    }

    #[test]
    fn unknown_commands_have_a_suggestion() {
        assert!(unknown("\\timming").hint().unwrap().contains("\\timing"));
        assert_eq!(unknown("\\foobar").hint(), Some("\\? lists all commands"));
    }
}
