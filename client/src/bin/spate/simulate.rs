//! `spate simulate`: a query's fault plan on a described cluster, what the model says of it, and what
//! happens when the same system fails for years in a simulation.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use spate_client::script::{Source, locate, render};
use spate_engine::types::{Result, SpateError};
use spate_planner::fault::explain;
use spate_planner::fault::figures::{self, Scale, Series};
use spate_planner::fault::model::Model;
use spate_planner::fault::optimize::{self, Goal, Planned, Strategy};
use spate_planner::fault::reliability;
use spate_planner::fault::simulate::system::System;
use spate_planner::fault::simulate::{self, Mission};
use spate_planner::sql;
use spate_server::fault::{failed, read_cluster, with_plan};
use spate_server::{Engine, EngineConfig};

use crate::args::SimulateArgs;

/// Budgets at which the drawing of cost against budget looks.
const BUDGETS: u8 = 12;
const HOUR_S: f64 = 3600.0;

/// Gives the exit code.
pub fn run(args: &SimulateArgs) -> u8 {
    let text = match crate::read(&args.query) {
        Ok(text) => text,
        Err(e) => {
            crate::report(&e);
            return crate::FAILURE;
        }
    };
    match simulate(args, &text) {
        Ok(()) => 0,
        Err(e) => {
            let name = args.query.display().to_string();
            let source = Source { name: Some(&name), text: &text };
            let _ = std::io::stderr().write_all(render(&e, &source).as_bytes());
            crate::FAILURE
        }
    }
}

/// What the model and the simulation say of one thing.
struct Line {
    what: &'static str,
    model: f64,
    simulated: simulate::stats::Estimate,
}

fn simulate(args: &SimulateArgs, text: &str) -> Result<()> {
    if !(args.years > 0.0 && args.years <= simulate::MOST_YEARS) {
        let most = simulate::MOST_YEARS;
        return Err(SpateError::invalid(format!("--years must be above 0 and at most {most}, not {}", args.years)));
    }
    let mut cluster = read_cluster(&args.cluster)?;
    cluster.goal.strategy = args.strategy.unwrap_or(cluster.goal.strategy);
    let graph = fragments(text)?;
    with_plan(&cluster, &graph, "result", |model, goal, planned| compare(args, model, goal, planned))
}

/// Explains a plan, and lets it fail for years.
fn compare(args: &SimulateArgs, model: &Model<'_>, goal: &Goal, planned: &Planned) -> Result<()> {
    let report = explain::explain(model, goal, planned).map_err(failed)?;
    print(&report.to_text())?;

    let system = System::new(model, &planned.plan, &planned.modes).map_err(failed)?;
    let mission = Mission { years: args.years, seed: args.seed, ..Mission::default() };
    let simulated = simulate::run(&system, &mission).map_err(failed)?;
    let (each, _) = reliability::promises(model, &planned.plan).map_err(failed)?;
    let misses_per_h = each.iter().map(|p| p.misses_per_s).sum::<f64>() * HOUR_S;
    let lines = [
        Line { what: "late rows/h", model: report.late_rows_per_h, simulated: simulated.late_rows_per_h },
        Line {
            what: "lateness row·s/h",
            model: report.lateness_row_s_per_h,
            simulated: simulated.lateness_row_s_per_h,
        },
        Line { what: "missed deadlines/h", model: misses_per_h, simulated: simulated.misses_per_h },
        Line { what: "availability", model: report.availability, simulated: simulated.availability },
        Line { what: "R(1 day)", model: report.survives_day, simulated: simulated.survival },
    ];
    print(&table(args, &lines, simulated.failures))?;
    if let Some(dir) = &args.draw {
        draw(dir, model, goal, planned, &simulated)?;
    }
    let Some(path) = &args.json else { return Ok(()) };
    let compared: Vec<_> = lines
        .iter()
        .map(|l| {
            let half = l.simulated.half_width;
            json!({
                "what": l.what,
                "model": l.model,
                "simulated": l.simulated.mean,
                "half_width_95": half.is_finite().then_some(half),
            })
        })
        .collect();
    let whole = json!({
        "years": args.years,
        "seed": args.seed,
        "failures": simulated.failures,
        "plan": report,
        "compared": compared,
    });
    write(path, &format!("{whole:#}\n"))
}

/// Carries out all statements but the last, and cuts the query of the last into fragments.
fn fragments(text: &str) -> Result<spate_engine::plan::fragment::FragmentGraph> {
    let mut statements = sql::parse(text)?;
    let last = statements.pop().ok_or_else(|| {
        SpateError::invalid("the file holds no statement").with_hint("its last one is the query to protect")
    })?;
    let goal = |s: &&sql::statement::Parsed| matches!(&s.statement, sql::statement::Statement::Set { name, .. } if name.starts_with("fault."));
    if let Some(s) = statements.iter().find(goal) {
        let e = SpateError::unsupported("a simulation takes its goals from the cluster file, not from SET fault.*")
            .with_hint("put them under [goal] or [sink] there, or use --strategy");
        return Err(locate(e, text, s.range.start));
    }
    let runtime = spate_server::threads::runtime()?;
    let engine = Engine::open(EngineConfig::default())?;
    let mut session = engine.session();
    let done = runtime.block_on(async {
        for s in &statements {
            session.execute(&s.text).await.map_err(|e| locate(e, text, s.range.start))?;
        }
        session.fragments(&last.text).await.map_err(|e| locate(e, text, last.range.start))
    });
    engine.shutdown();
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

/// With so many digits; what rounds to zero has no sign.
fn fixed(x: f64, digits: usize) -> String {
    let text = format!("{x:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|b| matches!(b, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}

fn table(args: &SimulateArgs, lines: &[Line], failures: usize) -> String {
    let mut out = format!(
        "\n{} years simulated with seed {}: {failures} failures\n{:20} {:>14} {:>14} {:>14}\n",
        args.years, args.seed, "", "model", "simulated", "± 95%"
    );
    for l in lines {
        let digits = if l.model.abs() <= 1.0 { 6 } else { 3 };
        let half = l.simulated.half_width;
        let half = if half.is_finite() { fixed(half, digits) } else { "-".to_owned() };
        let (model, simulated) = (fixed(l.model, digits), fixed(l.simulated.mean, digits));
        out.push_str(&format!("{:20} {model:>14} {simulated:>14} {half:>14}\n", l.what));
    }
    out
}

/// Three drawings: outages, lateness against budgets, and the plan.
fn draw(dir: &Path, model: &Model<'_>, goal: &Goal, planned: &Planned, simulated: &simulate::Report) -> Result<()> {
    std::fs::create_dir_all(dir)
        .map_err(|e| SpateError::from(e).context(format!("cannot make directory \"{}\"", dir.display())))?;
    let series = [figures::exceedance("simulated", &simulated.outages_s)];
    let outages = figures::chart(
        "Outages: share that is longer",
        "length of the outage [s]",
        "share of outages",
        (Scale::Linear, Scale::Log),
        &series,
    );
    let lines: Vec<Series> = (0..3usize)
        .map(|replicas| {
            let points = (0..BUDGETS).filter_map(|i| {
                let overhead = 0.0005 * f64::from(i).exp2().sqrt();
                let goal = Goal {
                    replica_slots: Some(replicas),
                    overhead: Some(overhead),
                    slo: None,
                    loss_budget_rows_per_h: None,
                    strategy: Strategy::Latency,
                    ..goal.clone()
                };
                Some((overhead * 100.0, optimize::plan(model, &goal).ok()?.cost.lateness_row_s_per_h))
            });
            Series { name: format!("{replicas} replicas"), points: points.collect() }
        })
        .collect();
    let budget = figures::chart(
        "Lateness against budget",
        "snapshots may take (fault.overhead) [% of the cores]",
        "lateness [row·s/h]",
        (Scale::Log, Scale::Log),
        &lines,
    );
    let plan = figures::plan(model, &planned.plan, "The plan (yellow: with a replica)");
    for (name, svg) in [("outages.svg", outages), ("budget.svg", budget), ("plan.svg", plan)] {
        write(&dir.join(name), &svg)?;
    }
    print(&format!("drawn: outages.svg, budget.svg and plan.svg in {}\n", dir.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|e| SpateError::from(e).context(format!("cannot write \"{}\"", path.display())))
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}
