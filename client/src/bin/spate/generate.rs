//! `spate generate`: data sets to files.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spate_engine::connector::generate::{Format, generate_nexmark};

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
    let result = generate_nexmark(&args.out, args.events, format, args.seed, &mut |done, _| bar.set_position(done));
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
            crate::FAILURE
        }
    }
}
