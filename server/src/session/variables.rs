//! Session variables: `SET`, `RESET`, `SHOW`.

use std::time::Duration;

use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::sql::{did_you_mean, options};

use super::Engine;
use crate::fault::Settings;

/// Values of the session's variables.
#[derive(Debug, Clone)]
pub struct Variables {
    /// Tasks per fragment of the queries that are created.
    pub parallelism: usize,
    /// Where names without a schema are looked for.
    pub search_path: Vec<String>,
    /// `CREATE MATERIALIZED VIEW` and `CREATE SINK` return before the result has caught up.
    pub background_ddl: bool,
    /// How long a read waits for the views that it reads.
    pub read_timeout: Duration,
    /// What `EXPLAIN FAULT` is told.
    pub fault: Settings,
}

/// Names and what they mean, for `SHOW ALL`.
pub const VARIABLES: &[(&str, &str)] = &[
    ("background_ddl", "CREATE returns before the result has caught up (true or false)"),
    ("epoch_interval", "longest time between epochs while there is input, for the whole engine"),
    ("fault.cluster", "file that describes the cluster for EXPLAIN FAULT, in TOML"),
    ("fault.deadline", "how old a result may be"),
    ("fault.loss_budget", "late rows per hour at most"),
    ("fault.overhead", "share of the cores that snapshots may take, 0 to 1"),
    ("fault.recovery_slo", "longest outage after a failure"),
    ("fault.replica_slots", "replicas of tasks at most"),
    ("fault.slo_confidence", "probability with which fault.recovery_slo is kept, 0 to 1"),
    ("fault.strategy", "what protection is chosen for: cost, latency, burst, none, checkpoint or active"),
    ("parallelism", "tasks per fragment of queries created from now on"),
    ("read_timeout", "how long a read waits for the views that it reads"),
    ("search_path", "schemas in which names are looked up, in order"),
];

const MAX_PARALLELISM: u64 = 256;

impl Variables {
    /// The defaults.
    pub fn new(engine: &Engine) -> Self {
        Self {
            parallelism: engine.config.threads.max(1),
            search_path: vec!["public".to_owned()],
            background_ddl: false,
            read_timeout: Duration::from_secs(30),
            fault: Settings::default(),
        }
    }

    fn unknown(name: &str) -> SpateError {
        let e = SpateError::new(ErrorKind::NotFound, format!("unrecognized variable \"{name}\""));
        match did_you_mean(name, VARIABLES.iter().map(|v| v.0)) {
            Some(n) => e.with_hint(format!("did you mean \"{n}\"?")),
            None => e.with_hint("SHOW ALL lists the variables"),
        }
    }

    /// Sets one.
    pub fn set(&mut self, engine: &Engine, name: &str, value: &str) -> Result<()> {
        match name {
            "parallelism" => {
                let n = options::to_u64(name, value)?;
                if n == 0 || n > MAX_PARALLELISM {
                    return Err(SpateError::invalid(format!(
                        "parallelism must be between 1 and {MAX_PARALLELISM}, not {n}"
                    )));
                }
                self.parallelism = n as usize;
            }
            "search_path" => {
                self.search_path = value.split(',').map(|s| s.trim().trim_matches('"').to_owned()).collect();
            }
            "background_ddl" => self.background_ddl = options::to_bool(name, value)?,
            "read_timeout" => self.read_timeout = options::to_duration(name, value)?,
            "epoch_interval" => {
                let d = options::to_duration(name, value)?;
                if d < Duration::from_millis(1) || d > Duration::from_secs(60) {
                    return Err(SpateError::invalid("epoch_interval must be between 1 ms and 60 s"));
                }
                engine.worker.set_interval(d);
            }
            _ => {
                if !self.fault.set(name, value, &engine.base_dir)? {
                    return Err(Self::unknown(name));
                }
            }
        }
        Ok(())
    }

    /// Sets one, or all, back to the default.
    pub fn reset(&mut self, engine: &Engine, name: Option<&str>) -> Result<()> {
        let d = Self::new(engine);
        match name {
            None => {
                *self = d;
                engine.worker.set_interval(engine.config.epoch_interval);
            }
            Some("parallelism") => self.parallelism = d.parallelism,
            Some("search_path") => self.search_path = d.search_path,
            Some("background_ddl") => self.background_ddl = d.background_ddl,
            Some("read_timeout") => self.read_timeout = d.read_timeout,
            Some("epoch_interval") => engine.worker.set_interval(engine.config.epoch_interval),
            Some(other) => {
                if !self.fault.reset(other) {
                    return Err(Self::unknown(other));
                }
            }
        }
        Ok(())
    }

    /// The value of one.
    pub fn show(&self, engine: &Engine, name: &str) -> Result<String> {
        Ok(match name {
            "parallelism" => self.parallelism.to_string(),
            "search_path" => self.search_path.join(", "),
            "background_ddl" => self.background_ddl.to_string(),
            "read_timeout" => format!("{} ms", self.read_timeout.as_millis()),
            "epoch_interval" => format!("{} ms", engine.worker.interval().as_millis()),
            _ => self.fault.show(name).ok_or_else(|| Self::unknown(name))?,
        })
    }
}
