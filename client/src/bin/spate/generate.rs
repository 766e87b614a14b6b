//! `spate generate`: data sets to files.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spate_engine::connector::generate::{Format, generate_nexmark};
use spate_engine::types::{ErrorKind, Result};

use crate::args::{DataSet, FileFormat, GenerateArgs, NexmarkArgs};

/// Gives the exit code.
pub fn run(args: &GenerateArgs) -> u8 {
    match &args.set {
        DataSet::Nexmark(args) => nexmark(args),
    }
}

fn nexmark(args: &NexmarkArgs) -> u8 {
    let format = match args.format {
        FileFormat::Parquet => Format::Parquet,
        FileFormat::Json => Format::Json,
        FileFormat::Csv => Format::Csv,
    };
    let shown = !args.quiet && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(args.events), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent}%  {human_pos} events  {per_sec}  {eta} left") {
        bar.set_style(style);
    }
    let result = stop_on_interrupt().and_then(|stop| {
        generate_nexmark(&args.out, args.events, format, args.seed, &mut |done, _| {
            bar.set_position(done);
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    bar.finish_and_clear();
    match result {
        Ok(files) => {
            if !args.quiet {
                let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                let _ = writeln!(std::io::stdout(), "{} events in {}", args.events, names.join(", "));
            }
            0
        }
        Err(e) => {
            crate::report(&e);
            if e.kind() == ErrorKind::Cancelled { crate::INTERRUPTED } else { crate::FAILURE }
        }
    }
}

/// A flag that Ctrl-C sets, so that files half written are removed.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let flag = Arc::clone(&stop);
    std::thread::spawn(move || {
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
    });
    Ok(stop)
}
