//! `spate slt`: runs test files and tells what failed.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use spate_client::slt::{Database, Embedded, FileReport, Options, Remote, junit, run_paths_on};
use spate_engine::types::{ErrorKind, Result, SpateError};

use crate::args::SltArgs;

/// Exit code 0 if all passed, 1 if not, 2 if the paths name nothing.
pub fn run(args: &SltArgs) -> u8 {
    let defaults = Options::default();
    let options = Options {
        complete: args.complete,
        jobs: args.jobs.into(),
        timeout: Duration::from_secs(args.timeout.into()),
        engine: args.engine.over(defaults.engine),
    };
    let summary = match run_files(args, &options) {
        Ok(summary) => summary,
        Err(e) => {
            crate::report(&e);
            return match e.kind() {
                ErrorKind::NotFound | ErrorKind::InvalidArgument => crate::USAGE,
                ErrorKind::Cancelled => crate::INTERRUPTED,
                _ => crate::FAILURE,
            };
        }
    };
    let mut code = if summary.ok() { 0 } else { crate::FAILURE };
    if let Some(path) = &args.junit
        && let Err(e) = std::fs::write(path, junit(&summary))
    {
        crate::report(&SpateError::new(ErrorKind::Io, format!("cannot write \"{}\": {e}", path.display())));
        code = crate::FAILURE;
    }
    let _ = writeln!(std::io::stdout(), "{summary}");
    code
}

fn run_files(args: &SltArgs, options: &Options) -> Result<spate_client::slt::Summary> {
    let runtime = spate_server::threads::runtime()?;
    let open = |_: &Path| {
        Ok(match &args.url {
            None => Arc::new(Embedded::open(options.engine.clone())?) as Arc<dyn Database>,
            Some(url) => Arc::new(Remote::new(url.clone())),
        })
    };
    let summary = runtime.block_on(async {
        tokio::select! {
            summary = run_paths_on(&args.paths, options, open, |file| show(file, args.quiet)) => summary,
            // Leaving this way removes temporary folders.
            Ok(()) = tokio::signal::ctrl_c() => Err(SpateError::new(ErrorKind::Cancelled, "cancelled")),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(2));
    summary
}

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn show(file: &FileReport, quiet: bool) {
    let path = file.path.display();
    let text = match &file.failure {
        Some(failure) => format!("FAILED {path}\n{}\n\n", failure.trim_end()),
        None if quiet => return,
        None => {
            format!("ok     {path} ({}, {:.2} s)\n", count(file.statements, "statement"), file.elapsed.as_secs_f64())
        }
    };
    let _ = std::io::stdout().write_all(text.as_bytes());
}
