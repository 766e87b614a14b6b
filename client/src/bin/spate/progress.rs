//! A progress line on standard error while a statement runs for longer than a moment:
//! rows, rows per second, epoch, watermark, and the share done where the sources know it.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use spate_client::text::scalar::{self, Unit};
use spate_server::Engine;
use spate_server::session::Progress as Numbers;
use tokio::runtime::Handle;

/// Statements that end before this show nothing.
const DELAY: Duration = Duration::from_millis(300);
const REFRESH: Duration = Duration::from_millis(100);

/// The line; gone when dropped.
pub struct Progress {
    /// `None` once stopped: whoever draws holds the lock, so nothing is drawn after that.
    bar: Option<Arc<Mutex<Option<ProgressBar>>>>,
}

impl Progress {
    /// Shows the line after a moment, if standard error is a terminal and `wanted`.
    pub fn start(engine: Option<&Arc<Engine>>, runtime: &Handle, wanted: bool) -> Self {
        // What a server does is not told.
        let Some(engine) = engine.filter(|_| wanted && std::io::stderr().is_terminal()) else {
            return Self { bar: None };
        };
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        let bar = Arc::new(Mutex::new(Some(bar)));
        let (shared, engine) = (bar.clone(), engine.clone());
        let (before, started) = (engine.progress(), Instant::now());
        runtime.spawn(async move {
            tokio::time::sleep(DELAY).await;
            let mut shown = false;
            loop {
                let line = describe(&before, &engine.progress(), started.elapsed());
                {
                    let bar = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    let Some(bar) = bar.as_ref() else { return };
                    if !std::mem::replace(&mut shown, true) {
                        bar.set_draw_target(ProgressDrawTarget::stderr());
                    }
                    bar.set_message(line);
                    bar.tick();
                }
                tokio::time::sleep(REFRESH).await;
            }
        });
        Self { bar: Some(bar) }
    }

    /// Removes the line for good, before other output goes to the terminal.
    pub fn stop(&mut self) {
        if let Some(bar) = self.bar.take()
            && let Some(bar) = bar.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the line says about the time since `before`.
fn describe(before: &Numbers, now: &Numbers, elapsed: Duration) -> String {
    let rows = now.rows.saturating_sub(before.rows);
    let rate = (rows as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
    let mut line = format!("{} rows  {} rows/s  epoch {}", HumanCount(rows), HumanCount(rate), now.epoch);
    if let Some(watermark) = now.watermark {
        line.push_str("  watermark ");
        scalar::timestamp(watermark, Unit::MICRO, ' ', "", &mut line);
    }
    if let Some((done, all)) = now.done_of
        && all > 0
    {
        line.push_str(&format!("  {:.0}%", (done.min(all) as f64 / all as f64) * 100.0));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_since_the_statement_began() {
        let before = Numbers { rows: 1000, ..Numbers::default() };
        let now = Numbers { rows: 2_001_000, done_of: Some((1, 4)), epoch: 7, watermark: Some(1_500_000) };
        assert_eq!(
            describe(&before, &now, Duration::from_secs(2)),
            "2,000,000 rows  1,000,000 rows/s  epoch 7  watermark 1970-01-01 00:00:01.5  25%"
        );
        assert_eq!(describe(&before, &before, Duration::ZERO), "0 rows  0 rows/s  epoch 0");
    }
}
