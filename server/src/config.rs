//! The server's configuration file: TOML with the same names as the flags of `spate server`.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use spate_engine::env::read_text;
use spate_engine::types::{ErrorKind, Result, SpateError};

/// What a configuration file may say. What it leaves out has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// Address of Flight SQL.
    pub listen: Option<String>,
    /// Address of HTTP.
    pub http: Option<String>,
    /// Directory to keep data and running queries in.
    pub data_dir: Option<PathBuf>,
    /// Time between checkpoints while there is input, in milliseconds.
    pub checkpoint_interval: Option<u32>,
    /// Worker threads.
    pub threads: Option<u16>,
    /// Longest time between two epochs while there is input, in milliseconds.
    pub epoch_interval: Option<u32>,
    /// Bytes that continuous queries and their views may keep.
    pub memory_limit: Option<u64>,
    /// Bytes that all running SELECTs and DML statements may take.
    pub query_memory_limit: Option<u64>,
    /// Sessions at a time.
    pub max_sessions: Option<u32>,
    /// Seconds after which a session that nobody uses ends.
    pub session_timeout: Option<u32>,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is no TOML, or says what it may not.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_text(path)
            .map_err(|e| SpateError::new(ErrorKind::Io, format!("cannot read \"{}\": {e}", path.display())))?;
        Self::parse(&text).map_err(|e| e.context(path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|e| SpateError::invalid(e.to_string().trim_end().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_are_refused() {
        let config = ConfigFile::parse("listen = '0.0.0.0:1'\nthreads = 3\n").unwrap();
        assert_eq!((config.listen.as_deref(), config.threads, config.http), (Some("0.0.0.0:1"), Some(3), None));
        let e = ConfigFile::parse("listne = 'x'").unwrap_err();
        assert!(e.message().contains("listne") && e.message().contains("listen"), "{}", e.message());
    }
}
