//! Runs every sqllogictest file of `slt/`, each on a fresh engine; after every FLUSH and at the
//! end of a file its views are compared with their queries in batch.
//!
//! `SPATE_SLT=window` runs only the files whose path has that in it.

use std::path::PathBuf;
use std::time::Duration;

use spate_client::slt::{Options, expand, run_paths};

#[test]
fn all_files() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("slt");
    let wanted = std::env::var("SPATE_SLT").unwrap_or_default();
    let files = expand(&[root]).unwrap();
    let files: Vec<PathBuf> = files.into_iter().filter(|f| f.to_string_lossy().contains(&wanted)).collect();
    assert!(!files.is_empty(), "no file has \"{wanted}\" in its path");
    let options = Options { jobs: 2, timeout: Duration::from_secs(600), ..Options::default() };
    let summary = run_paths(&files, &options).unwrap();
    let failures: Vec<String> =
        summary.files.iter().filter_map(|f| f.failure.as_ref().map(|e| format!("{}: {e}", f.path.display()))).collect();
    assert!(summary.ok(), "{summary}\n\n{}", failures.join("\n\n"));
    assert!(summary.files.iter().all(|f| f.statements > 0), "a file without statements");
    println!("{summary}");
}
