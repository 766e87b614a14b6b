//! Suites of queries kept as files, one query each.

use std::path::Path;

use spate_engine::types::{Result, SpateError};

/// The statements of `FILE.sql` in a folder of this crate.
pub fn script(folder: &str, file: &str) -> Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(format!("{file}.sql"));
    let text = std::fs::read_to_string(&path)
        .map_err(|e| SpateError::internal(format!("cannot read {}: {e}", path.display())))?;
    let ranges = spate_server::Session::split(&text)?;
    Ok(ranges.into_iter().filter_map(|r| text.get(r).map(str::to_owned)).collect())
}

/// The queries `q*.sql` of a folder of this crate, by name, in order.
pub fn queries(folder: &str) -> Result<Vec<(String, String)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let failed = |e: std::io::Error| SpateError::internal(format!("cannot read {}: {e}", path.display()));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if let Some(stem) = name.strip_suffix(".sql").filter(|s| s.starts_with('q')) {
            names.push(stem.to_owned());
        }
    }
    names.sort();
    let mut out = Vec::new();
    for name in names {
        let text = script(folder, &name)?.into_iter().next();
        out.push((name, text.ok_or_else(|| SpateError::internal("an empty query"))?));
    }
    Ok(out)
}
