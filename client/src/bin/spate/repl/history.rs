//! Where the history is kept, and that trouble with it never gets in the way.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

use rustyline::Editor;
use rustyline::history::FileHistory;

use super::complete::Completer;

/// The history file.
pub struct History {
    /// `None`: history is for this session only.
    path: Option<PathBuf>,
}

impl History {
    /// Loads the history; the file is for the user's eyes only.
    pub fn open(editor: &mut Editor<Completer, FileHistory>) -> Self {
        let Some(path) = location(|name| std::env::var_os(name)) else {
            return Self { path: None };
        };
        let mut history = Self { path: Some(path.clone()) };
        if path.exists() {
            if let Err(e) = editor.load_history(&path) {
                history.give_up(&e.to_string());
            }
        } else if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
            && let Err(e) = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
        {
            history.give_up(&e.to_string());
        }
        history
    }

    /// Adds an entry, at once also to the file.
    pub fn add(&mut self, editor: &mut Editor<Completer, FileHistory>, entry: &str) {
        if !matches!(editor.add_history_entry(entry), Ok(true)) {
            return;
        }
        let Some(path) = self.path.clone() else { return };
        let written = editor.append_history(&path).map_err(|e| e.to_string()).and_then(|()| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(|e| e.to_string())
        });
        if let Err(e) = written {
            self.give_up(&e);
        }
    }

    fn give_up(&mut self, why: &str) {
        if let Some(path) = self.path.take() {
            eprintln!("note: history is not saved: {}: {why}", path.display());
        }
    }
}

/// `SPATE_HISTORY` (empty: nowhere), else below `XDG_STATE_HOME`, else below the home folder.
fn location(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = variable("SPATE_HISTORY") {
        return (!path.is_empty()).then(|| path.into());
    }
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| {
        let home = variable("HOME").filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(".local/state"))
    })?;
    Some(state.join("spate/history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_follows_the_environment() {
        let at = |variables: &[(&str, &str)]| {
            location(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)))
        };
        assert_eq!(at(&[("SPATE_HISTORY", "/x"), ("HOME", "/h")]), Some("/x".into()));
        assert_eq!(at(&[("SPATE_HISTORY", ""), ("HOME", "/h")]), None);
        assert_eq!(at(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Some("/s/spate/history".into()));
        assert_eq!(at(&[("XDG_STATE_HOME", "rel"), ("HOME", "/h")]), Some("/h/.local/state/spate/history".into()));
        assert_eq!(at(&[]), None);
    }
}
