//! Metrics in the text format of Prometheus, with base units: seconds, bytes, rows.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use spate_engine::types::{WATERMARK_MAX, WATERMARK_MIN};

use crate::flight::{Shared, status};
use crate::worker::JobStatus;

/// States of a job, as `SHOW JOBS` names them.
const STATES: [&str; 4] = ["running", "catching up", "finished", "failed"];

fn state(status: &JobStatus) -> &'static str {
    match (&status.error, status.ready, status.ended) {
        (Some(_), _, _) => "failed",
        (None, None, _) => "catching up",
        (None, Some(_), true) => "finished",
        (None, Some(_), false) => "running",
    }
}

/// Metrics as they are written.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a text does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        if !labels.is_empty() {
            let quoted = labels.iter().map(|(n, v)| format!("{n}=\"{}\"", escape(v))).collect::<Vec<_>>();
            let _ = write!(self.0, "{{{}}}", quoted.join(","));
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// A label's value between its quotes.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All metrics.
pub fn text(shared: &Shared) -> String {
    let engine = &shared.engine;
    let counters = &shared.counters;
    let mut p = Page(String::new());
    p.family("spate_build_info", "gauge", "Version of the server.");
    p.sample("spate_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    p.one("spate_uptime_seconds", "gauge", "Time since the engine started.", engine.clock.monotonic().as_secs_f64());
    p.one("spate_visible_epoch", "gauge", "Newest epoch that readers see.", engine.worker.visible());
    p.one("spate_state_bytes", "gauge", "Memory that the operators of continuous queries keep.", engine.state_bytes());
    let (dead, late) = engine.worker.logs.totals();
    p.one("spate_dead_letters_total", "counter", "Records that could not be decoded.", dead);
    p.one("spate_late_rows_total", "counter", "Rows that came after the watermark and were left out.", late);
    jobs(&mut p, shared);
    p.one("spate_connections", "gauge", "Open Flight connections.", shared.connections.open());
    p.one("spate_sessions", "gauge", "Sessions of clients.", shared.sessions.count());
    let (waiting, running) = shared.results.counts();
    p.one("spate_waiting_results", "gauge", "Results that wait to be fetched.", waiting);
    p.one("spate_running_results", "gauge", "Results and subscriptions that are being sent.", running);
    let count = |c: &std::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
    p.one("spate_statements_total", "counter", "Statements begun over Flight.", count(&counters.statements));
    p.one("spate_rows_sent_total", "counter", "Rows sent to clients.", count(&counters.rows_sent));
    p.one("spate_rows_ingested_total", "counter", "Rows taken in by bulk ingest.", count(&counters.rows_ingested));
    p.family("spate_errors_total", "counter", "Statements and results that failed, by kind of error.");
    for ((_, kind, _), counter) in status::KINDS.iter().zip(&counters.errors) {
        p.sample("spate_errors_total", &[("kind", kind)], count(counter));
    }
    p.0
}

fn jobs(p: &mut Page, shared: &Shared) {
    let jobs = shared.engine.worker.jobs();
    p.family("spate_jobs", "gauge", "Continuous queries, by state.");
    for s in STATES {
        p.sample("spate_jobs", &[("state", s)], jobs.iter().filter(|(j, _)| state(j) == s).count());
    }
    p.family("spate_job_source_rows_total", "counter", "Rows that the sources of a job have delivered.");
    let mut watermarks = Vec::new();
    for (job, leaves) in &jobs {
        let id = job.id.to_string();
        let labels = [("id", id.as_str()), ("job", job.name.as_str())];
        let rows: u64 = leaves.iter().map(|m| m.rows.load(Ordering::Relaxed)).sum();
        p.sample("spate_job_source_rows_total", &labels, rows);
        let marks = leaves.iter().map(|m| m.watermark.load(Ordering::Relaxed));
        if let Some(least) = marks.filter(|w| *w != WATERMARK_MIN && *w != WATERMARK_MAX).min() {
            watermarks.push((id.clone(), job.name.clone(), least));
        }
    }
    p.family("spate_job_watermark_seconds", "gauge", "Least watermark of a job's sources, in seconds since 1970.");
    for (id, name, micros) in watermarks {
        // Microseconds are exact in a float for 285 years.
        p.sample("spate_job_watermark_seconds", &[("id", &id), ("job", &name)], micros as f64 / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut p = Page(String::new());
        p.sample("a", &[("job", "x\"y\\z\n")], 1);
        assert_eq!(p.0, "a{job=\"x\\\"y\\\\z\\n\"} 1\n");
    }
}
