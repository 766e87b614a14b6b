//! The `spate` command: a prompt and scripts on an embedded engine or as a client, a server, test
//! files, generated data and benchmarks.
#![allow(clippy::disallowed_methods)]

mod args;
mod backend;
mod bench;
mod generate;
mod interrupt;
mod progress;
mod repl;
mod server;
mod shell;
mod simulate;
mod slt;

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use spate_client::format::Format;
use spate_client::script::Source;
use spate_engine::types::{ErrorKind, SpateError};

use args::{Args, Command, Input};
use shell::{Shell, Stop};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Something failed.
const FAILURE: u8 = 1;
/// The command line makes no sense.
const USAGE: u8 = 2;
/// Ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let thread = std::thread::Builder::new()
        .name("spate-main".into())
        .stack_size(spate_server::threads::STACK_BYTES)
        .spawn(start);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // A panic has printed its message.
        Ok(Err(_)) => ExitCode::from(FAILURE),
        Err(e) => {
            report(&SpateError::from(e).context("cannot start a thread"));
            ExitCode::from(FAILURE)
        }
    }
}

fn start() -> ExitCode {
    let matches = Args::command().get_matches();
    let inputs = args::inputs(&matches);
    let args = match Args::from_arg_matches(&matches) {
        Ok(args) => args,
        Err(e) => e.exit(),
    };
    ExitCode::from(match &args.command_name {
        Some(Command::Server(server)) => server::run(server),
        Some(Command::Slt(slt)) => slt::run(slt),
        Some(Command::Generate(generate)) => generate::run(generate),
        Some(Command::Bench(bench)) => bench::run(bench),
        Some(Command::Simulate(simulate)) => simulate::run(simulate),
        None => run(&args, inputs),
    })
}

/// Shows an error that has no place in a script.
fn report(error: &SpateError) {
    let source = Source { name: None, text: "" };
    let _ = io::stderr().write_all(spate_client::script::render(error, &source).as_bytes());
}

/// Scripts from `-c`, `-f` or standard input, or else the prompt.
fn run(args: &Args, inputs: Vec<Input>) -> u8 {
    if args.url.is_some() && (args.engine.threads.is_some() || args.engine.epoch_interval.is_some()) {
        report(
            &SpateError::invalid("--threads and --epoch-interval are settings of an embedded engine, not of a client")
                .with_hint("give them to spate server"),
        );
        return USAGE;
    }
    let at_prompt = inputs.is_empty() && io::stdin().is_terminal();
    if args.format == Format::Arrow && (at_prompt || io::stdout().is_terminal()) {
        report(
            &SpateError::invalid("format arrow is binary and not for a terminal")
                .with_hint("redirect the output: spate -c '...' --format arrow > result.arrows"),
        );
        return USAGE;
    }
    // The editor takes over Ctrl-C when it is made, so it comes before the shell, which takes it back.
    let editor = match at_prompt.then(repl::editor).transpose() {
        Ok(editor) => editor,
        Err(e) => {
            report(&e);
            return FAILURE;
        }
    };
    let mut shell = match Shell::open(args, at_prompt) {
        Ok(shell) => shell,
        Err(e) => {
            report(&e);
            return FAILURE;
        }
    };
    let code = match editor {
        Some(editor) => repl::run(&mut shell, editor, args.quiet),
        None => run_inputs(&mut shell, inputs),
    };
    shell.close();
    code
}

fn run_inputs(shell: &mut Shell, mut inputs: Vec<Input>) -> u8 {
    if inputs.is_empty() {
        inputs.push(Input::File("-".into()));
    }
    for input in inputs {
        let (name, text) = match input {
            Input::Sql(text) => ("-c".to_owned(), text),
            Input::File(path) => match read(&path) {
                Ok(text) if path.as_os_str() == "-" => ("<stdin>".to_owned(), text),
                Ok(text) => (path.display().to_string(), text),
                Err(e) => {
                    report(&e);
                    return FAILURE;
                }
            },
        };
        match shell.run_script(&Source { name: Some(&name), text: &text }) {
            Ok(()) => {}
            // `| head` has seen enough.
            Err(Stop::Closed) => return 0,
            Err(Stop::Interrupted) => return INTERRUPTED,
            Err(Stop::Failed) => {
                // What was written before is not lost with the statement that failed.
                shell.settle();
                return FAILURE;
            }
        }
    }
    if shell.settle() { 0 } else { FAILURE }
}

/// A script's text; `-` is standard input.
pub fn read(path: &Path) -> Result<String, SpateError> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    }
    .map_err(|e| SpateError::new(ErrorKind::Io, format!("cannot read \"{}\": {e}", path.display())))?;
    // Some editors put a byte order mark at the start.
    if let Some(rest) = bytes.strip_prefix("\u{feff}".as_bytes()) {
        bytes = rest.to_vec();
    }
    String::from_utf8(bytes)
        .map_err(|_| SpateError::new(ErrorKind::Io, format!("\"{}\" is not UTF-8 text", path.display())))
}
