//! What a failure would cost a query, and how it would be protected: `EXPLAIN FAULT`, and what
//! `spate simulate` plans with. The model is `spate_planner::fault`; here it meets catalog and settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use spate_engine::env::read_text;
use spate_engine::plan::fragment::FragmentGraph;
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::dataflow;
use spate_planner::fault::cluster::{ClusterFile, Rack, TaskDefaults};
use spate_planner::fault::error::FaultError;
use spate_planner::fault::explain;
use spate_planner::fault::model::Model;
use spate_planner::fault::optimize::{self, Goal, Planned, Strategy};
use spate_planner::sql::{did_you_mean, options};

/// A prior: machines fail four times a year, a rack of them every ten years.
const WORKER_MTBF_H: f64 = 2_000.0;
const RACK_MTBF_H: f64 = 88_000.0;

/// More priors: what all tasks of a source read in a second, and what those of a stateful fragment keep.
const SOURCE_ROWS_PER_S: f64 = 10_000.0;
const STATE_MB: f64 = 200.0;

/// Reads the description of a cluster, in TOML.
///
/// # Errors
/// When the file cannot be read, or says something that it cannot (named, with its line).
pub fn read_cluster(path: &Path) -> Result<ClusterFile> {
    let text = read_text(path)
        .map_err(|e| SpateError::from(e).context(format!("cannot read cluster file \"{}\"", path.display())))?;
    let file: ClusterFile = toml::from_str(&text).map_err(|e| {
        SpateError::invalid(format!("cluster file \"{}\": {}", path.display(), e.to_string().trim_end()))
    })?;
    file.validate().map_err(|e| failed(e).context(format!("cluster file \"{}\"", path.display())))?;
    Ok(file)
}

/// Three machines in three racks with room for every task and a replica of each: what is assumed where no
/// cluster is described.
pub fn assumed_cluster(graph: &FragmentGraph) -> ClusterFile {
    let tasks: usize = graph.fragments.iter().map(|f| f.parallelism).sum();
    // The same query does the same work on more tasks.
    let share = graph.fragments.iter().map(|f| f.parallelism).max().unwrap_or(1).max(1) as f64;
    let task =
        TaskDefaults { source_rows_per_s: SOURCE_ROWS_PER_S / share, state_mb: STATE_MB / share, ..Default::default() };
    let rack = |name: &str| Rack {
        name: name.to_owned(),
        workers: 1,
        slots: tasks.max(2),
        worker_mtbf_h: WORKER_MTBF_H,
        rack_mtbf_h: Some(RACK_MTBF_H),
    };
    ClusterFile {
        rack: ["zone-a", "zone-b", "zone-c"].map(rack).to_vec(),
        times: Default::default(),
        price: Default::default(),
        load: Vec::new(),
        task,
        fragment: Vec::new(),
        sink: Default::default(),
        goal: Default::default(),
    }
}

/// The session's variables whose names begin with `fault.`; what is not set is as the cluster file says.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    cluster: Option<PathBuf>,
    strategy: Option<Strategy>,
    deadline: Option<Duration>,
    recovery_slo: Option<Duration>,
    slo_confidence: Option<f64>,
    loss_budget: Option<f64>,
    replica_slots: Option<usize>,
    overhead: Option<f64>,
}

fn number(name: &str, value: &str, most: f64) -> Result<f64> {
    let n = value.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0 && *n <= most);
    n.ok_or_else(|| {
        let range = if most.is_finite() { format!("between 0 and {most}") } else { "that is not negative".to_owned() };
        SpateError::invalid(format!("\"{name}\" requires a number {range}, not \"{value}\""))
    })
}

impl Settings {
    /// Sets one, by its whole name; `false` if there is none of this name.
    ///
    /// # Errors
    /// When the value makes no sense.
    pub fn set(&mut self, name: &str, value: &str, base_dir: &Path) -> Result<bool> {
        match name {
            "fault.cluster" => {
                let path = base_dir.join(value);
                read_cluster(&path)?;
                self.cluster = Some(path);
            }
            "fault.strategy" => {
                let word = value.trim().to_lowercase();
                self.strategy = Some(Strategy::named(&word).ok_or_else(|| {
                    let words = Strategy::ALL.map(Strategy::name);
                    let e = SpateError::invalid(format!("\"{name}\" has no value \"{value}\""));
                    match did_you_mean(&word, words) {
                        Some(w) => e.with_hint(format!("did you mean \"{w}\"?")),
                        None => e.with_hint(format!("one of {}", words.join(", "))),
                    }
                })?);
            }
            "fault.deadline" => self.deadline = Some(options::to_duration(name, value)?),
            "fault.recovery_slo" => {
                let time = options::to_duration(name, value)?;
                if time.is_zero() {
                    return Err(SpateError::invalid("\"fault.recovery_slo\" must be above 0")
                        .with_hint("no recovery takes no time; RESET fault.recovery_slo asks for none"));
                }
                self.recovery_slo = Some(time);
            }
            "fault.slo_confidence" => {
                let part = number(name, value, 1.0)?;
                if part == 0.0 {
                    return Err(SpateError::invalid("\"fault.slo_confidence\" must be above 0 and at most 1"));
                }
                self.slo_confidence = Some(part);
            }
            "fault.loss_budget" => self.loss_budget = Some(number(name, value, f64::INFINITY)?),
            "fault.replica_slots" => {
                self.replica_slots = Some(usize::try_from(options::to_u64(name, value)?).unwrap_or(usize::MAX));
            }
            "fault.overhead" => self.overhead = Some(number(name, value, 1.0)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Unsets one; `false` if there is none of this name.
    pub fn reset(&mut self, name: &str) -> bool {
        match name {
            "fault.cluster" => self.cluster = None,
            "fault.strategy" => self.strategy = None,
            "fault.deadline" => self.deadline = None,
            "fault.recovery_slo" => self.recovery_slo = None,
            "fault.slo_confidence" => self.slo_confidence = None,
            "fault.loss_budget" => self.loss_budget = None,
            "fault.replica_slots" => self.replica_slots = None,
            "fault.overhead" => self.overhead = None,
            _ => return false,
        }
        true
    }

    /// The value of one as text, empty if it is not set; `None` if there is none of this name.
    pub fn show(&self, name: &str) -> Option<String> {
        let time = |d: Option<Duration>| d.map(|d| format!("{} ms", d.as_millis()));
        let number = |n: Option<f64>| n.map(|n| n.to_string());
        let text = match name {
            "fault.cluster" => self.cluster.as_ref().map(|p| p.display().to_string()),
            "fault.strategy" => self.strategy.map(|s| s.name().to_owned()),
            "fault.deadline" => time(self.deadline),
            "fault.recovery_slo" => time(self.recovery_slo),
            "fault.slo_confidence" => number(self.slo_confidence),
            "fault.loss_budget" => number(self.loss_budget),
            "fault.replica_slots" => self.replica_slots.map(|n| n.to_string()),
            "fault.overhead" => number(self.overhead),
            _ => return None,
        };
        Some(text.unwrap_or_default())
    }

    /// The described cluster, or the assumed one, with what is set.
    fn over(&self, graph: &FragmentGraph) -> Result<ClusterFile> {
        let mut file = match &self.cluster {
            Some(path) => read_cluster(path)?,
            None => assumed_cluster(graph),
        };
        let goal = &mut file.goal;
        goal.strategy = self.strategy.unwrap_or(goal.strategy);
        goal.loss_budget = self.loss_budget.or(goal.loss_budget);
        goal.replica_slots = self.replica_slots.or(goal.replica_slots);
        goal.overhead = self.overhead.or(goal.overhead);
        goal.recovery_slo_s = self.recovery_slo.map(|d| d.as_secs_f64()).or(goal.recovery_slo_s);
        goal.slo_confidence = self.slo_confidence.or(goal.slo_confidence);
        if let Some(d) = self.deadline {
            file.sink.deadline_s = d.as_secs_f64();
        }
        Ok(file)
    }
}

/// `EXPLAIN FAULT`: the plan for one query whose result is called `name`.
///
/// # Errors
/// When the description contradicts itself, or no plan does what is asked.
pub fn explain(settings: &Settings, graph: &FragmentGraph, name: &str, json: bool) -> Result<String> {
    let cluster = settings.over(graph)?;
    let mut report = with_plan(&cluster, graph, name, |m, g, p| explain::explain(m, g, p).map_err(failed))?;
    if settings.cluster.is_none() {
        report.notes.insert(
            0,
            "no cluster is described: three machines are assumed, each in a rack of its own (SET fault.cluster = \
             'FILE' names one); this version runs in one process and protects nothing yet"
                .to_owned(),
        );
    }
    Ok(if json { report.to_json() } else { report.to_text() })
}

/// Plans the protection of one query whose result is called `name`, and hands model, goal and plan over.
///
/// # Errors
/// When the description contradicts itself, or no plan does what is asked.
pub fn with_plan<T>(
    cluster: &ClusterFile,
    graph: &FragmentGraph,
    name: &str,
    then: impl FnOnce(&Model<'_>, &Goal, &Planned) -> Result<T>,
) -> Result<T> {
    let input = cluster.input(&dataflow::flow(graph, name)).map_err(failed)?;
    let model = Model::new(&input).map_err(failed)?;
    let goal = cluster.goal().map_err(failed)?;
    let planned = optimize::plan(&model, &goal).map_err(failed)?;
    then(&model, &goal, &planned)
}

/// An error of the model as one of the engine.
pub fn failed(e: FaultError) -> SpateError {
    match e {
        FaultError::Invalid { what } => SpateError::invalid(what),
        FaultError::CannotMeet { goal, because, hint } => {
            SpateError::new(ErrorKind::Limit, format!("cannot meet {goal}, because {because}")).with_hint(hint)
        }
    }
}
