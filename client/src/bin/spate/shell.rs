//! Runs statements one after the other on a session and writes what they give.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use spate_client::format::{Format, Layout, RowWriter, WriteError, row_writer};
use spate_client::script::{Source, locate, render};
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_server::{Engine, EngineConfig, Outcome, RowStream, Session};
use tokio::runtime::Runtime;

use crate::args::Args;
use crate::interrupt::{Interrupts, Running};
use crate::progress::Progress;

/// Why a script ended early; what there is to say about it has been said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A statement failed.
    Failed,
    /// Ctrl-C.
    Interrupted,
    /// Nobody reads the output any more.
    Closed,
}

/// Why a statement did not end well.
enum Trouble {
    Statement(SpateError),
    Output(WriteError),
    /// Ctrl-C; `quiet` if that is how such a statement ends.
    Interrupted {
        quiet: bool,
    },
}

impl From<WriteError> for Trouble {
    fn from(e: WriteError) -> Self {
        Self::Output(e)
    }
}

impl From<io::Error> for Trouble {
    fn from(e: io::Error) -> Self {
        Self::Output(e.into())
    }
}

/// Where results go.
struct Output {
    writer: BufWriter<Box<dyn Write + Send>>,
    terminal: bool,
}

impl Output {
    fn stdout() -> Self {
        Self { writer: BufWriter::new(Box::new(io::stdout())), terminal: io::stdout().is_terminal() }
    }
}

/// A session, and how its results are shown.
pub struct Shell {
    runtime: Runtime,
    engine: Arc<Engine>,
    session: Session,
    interrupts: Interrupts,
    output: Output,
    format: Format,
    quiet: bool,
    /// `\timing`
    pub timing: bool,
    /// `\x`
    pub expanded: bool,
}

impl Shell {
    /// Starts an engine and a session. At the prompt, Ctrl-C between statements is harmless.
    pub fn open(args: &Args, interactive: bool) -> Result<Self> {
        let runtime = spate_server::threads::runtime()?;
        let interrupts = Interrupts::watch(&runtime, interactive)?;
        let engine = {
            let _context = runtime.enter();
            let config = EngineConfig { data_dir: args.data_dir.clone(), ..EngineConfig::default() };
            Engine::open(args.engine.over(config))?
        };
        let session = engine.session();
        Ok(Self {
            runtime,
            session,
            engine,
            interrupts,
            output: Output::stdout(),
            format: args.format,
            quiet: args.quiet,
            timing: false,
            expanded: false,
        })
    }

    /// Waits for a while; says whether Ctrl-C came first.
    pub fn pause(&mut self, time: Duration) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let running = self.interrupts.during(self.session.cancel_handle());
        let until = Instant::now() + time;
        self.runtime.block_on(async {
            while !running.cancelled() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                tokio::time::sleep(left.min(LOOK_EVERY)).await;
            }
            true
        })
    }

    /// Waits a moment until what was written has reached views and sinks. Says whether it did; an
    /// engine that has not the time for it has said why, or is stuck.
    pub fn settle(&mut self) -> bool {
        let Self { runtime, session, .. } = self;
        let flush = session.execute("FLUSH");
        match runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), flush).await }) {
            Ok(Err(e)) => {
                let _ = self.report(&e, &Source { name: None, text: "" });
                false
            }
            Ok(Ok(_)) | Err(_) => true,
        }
    }

    /// Stops the engine. What a cancelled statement may still be doing is not waited for.
    pub fn close(self) {
        self.engine.shutdown();
        drop(self.session);
        self.runtime.shutdown_timeout(Duration::from_secs(2));
    }

    /// Whether Ctrl-C was hit at the prompt, on a terminal where it is no key.
    pub fn take_interrupt(&self) -> bool {
        self.interrupts.take_at_prompt()
    }

    /// Names for completion.
    pub fn completions(&self) -> Vec<String> {
        self.session.completions()
    }

    /// Results go to this file from now on, or to standard output again.
    pub fn redirect(&mut self, path: Option<&Path>) -> Result<()> {
        self.output.writer.flush()?;
        self.output = match path {
            None => Output::stdout(),
            Some(path) => {
                let file = File::create(path)
                    .map_err(|e| SpateError::new(ErrorKind::Io, format!("cannot write \"{}\": {e}", path.display())))?;
                Output { writer: BufWriter::new(Box::new(file)), terminal: false }
            }
        };
        Ok(())
    }

    /// Runs all statements of a text; the first error is reported and stops.
    pub fn run_script(&mut self, source: &Source<'_>) -> Result<(), Stop> {
        let statements = match Session::split(source.text) {
            Ok(statements) => statements,
            Err(e) => return self.report(&e, source),
        };
        for range in statements {
            let start = range.start;
            let sql = source.text.get(range).unwrap_or("");
            let Err(trouble) = self.run_statement(sql) else { continue };
            return match trouble {
                Trouble::Output(WriteError::Closed) => Err(Stop::Closed),
                Trouble::Output(e) => self.report(&SpateError::from(e), source),
                // What was just typed needs no place, unless the error names one.
                Trouble::Statement(e) if source.name.is_none() && e.position().is_none() => self.report(&e, source),
                Trouble::Statement(e) => self.report(&locate(e, source.text, start), source),
                Trouble::Interrupted { quiet } => {
                    let _ = self.output.writer.flush();
                    if !quiet {
                        let _ = io::stderr().write_all(b"cancelled\n");
                    }
                    Err(Stop::Interrupted)
                }
            };
        }
        Ok(())
    }

    fn report(&mut self, error: &SpateError, source: &Source<'_>) -> Result<(), Stop> {
        let _ = self.output.writer.flush();
        let _ = io::stderr().write_all(render(error, source).as_bytes());
        Err(Stop::Failed)
    }

    fn run_statement(&mut self, sql: &str) -> Result<(), Trouble> {
        let started = Instant::now();
        let running = self.interrupts.during(self.session.cancel_handle());
        let mut progress = Progress::start(&self.engine, self.runtime.handle(), !self.quiet);
        let result = {
            let Self { runtime, session, output, .. } = self;
            runtime.block_on(async {
                match session.execute(sql).await.map_err(Trouble::Statement)? {
                    Outcome::Done(tag) => Ok(Some(tag)),
                    Outcome::Rows(rows) => {
                        let layout = Layout { endless: rows.endless, expanded: self.expanded };
                        let writer = row_writer(self.format, &rows.schema, layout)?;
                        write_rows(rows, writer, output, &running, &mut progress).await?;
                        Ok(None)
                    }
                }
            })
        };
        progress.stop();
        let tag = match result {
            Ok(tag) => tag,
            Err(Trouble::Statement(e)) if running.cancelled() && e.kind() == ErrorKind::Cancelled => {
                return Err(Trouble::Interrupted { quiet: false });
            }
            Err(trouble) => return Err(trouble),
        };
        let out = &mut self.output.writer;
        if let Some(tag) = tag
            && !self.quiet
            && self.format == Format::Table
        {
            writeln!(out, "{tag}")?;
        }
        if self.timing {
            writeln!(out, "Time: {:.3} ms", started.elapsed().as_secs_f64() * 1000.0)?;
        }
        out.flush()?;
        Ok(())
    }

    /// All rows of a statement that is known to be short.
    pub fn collect(&mut self, sql: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let Self { runtime, session, .. } = self;
        runtime.block_on(async {
            match session.execute(sql).await? {
                Outcome::Done(tag) => Err(SpateError::internal(format!("{sql} gave {tag} instead of rows"))),
                Outcome::Rows(mut rows) => {
                    let mut batches = Vec::new();
                    while let Some(batch) = rows.stream.next().await {
                        batches.push(batch?);
                    }
                    Ok((rows.schema, batches))
                }
            }
        })
    }

    /// Shows rows under a title.
    pub fn show(&mut self, title: &str, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<()> {
        let out = &mut self.output.writer;
        writeln!(out, "{title}")?;
        let mut writer = row_writer(Format::Table, schema, Layout::default()).map_err(SpateError::from)?;
        for batch in batches {
            writer.write(batch, out).map_err(SpateError::from)?;
        }
        writer.finish(out).map_err(SpateError::from)?;
        out.flush()?;
        Ok(())
    }
}

/// Tells the user something; that nobody listens is no error.
pub fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes rows as they come, until they end or Ctrl-C.
async fn write_rows(
    mut rows: RowStream,
    mut writer: Box<dyn RowWriter>,
    output: &mut Output,
    running: &Running,
    progress: &mut Progress,
) -> Result<(), Trouble> {
    // One future for all rows: rows that keep coming must not postpone it.
    let overdue = running.overdue();
    tokio::pin!(overdue);
    loop {
        let next = tokio::select! {
            biased;
            () = &mut overdue => None,
            next = rows.stream.next() => next,
        };
        let stopped = running.cancelled();
        let batch = match next {
            Some(Ok(batch)) => batch,
            Some(Err(e)) if !(stopped && e.kind() == ErrorKind::Cancelled) => return Err(Trouble::Statement(e)),
            _ if stopped => {
                if rows.endless {
                    writer.finish(&mut output.writer)?;
                }
                return Err(Trouble::Interrupted { quiet: rows.endless });
            }
            _ => break,
        };
        if output.terminal {
            progress.stop();
        }
        writer.write(&batch, &mut output.writer)?;
    }
    if output.terminal {
        progress.stop();
    }
    Ok(writer.finish(&mut output.writer)?)
}
