//! Explanations, descriptions of clusters, and that neither ever tells what is not a number.

use rand::Rng;

use super::*;
use crate::fault::cluster::{ClusterFile, Rack};
use crate::fault::error::FaultError;
use crate::fault::flow::{Route, Stream};
use crate::fault::graph::Input;
use crate::fault::optimize::{Strategy, plan};
use crate::fault::simulate::system::System;
use crate::fault::simulate::{Mission, run};
use crate::fault::testing::{SHAPES, burst_load, flow, random_input, rng};

fn file(racks: usize, workers: usize, slots: usize) -> ClusterFile {
    let text = serde_json::json!({
        "rack": (0..racks).map(|i| Rack {
            name: format!("r{i}"), workers, slots, worker_mtbf_h: 2000.0, rack_mtbf_h: Some(20_000.0),
        }).collect::<Vec<_>>(),
    });
    serde_json::from_value(text).unwrap()
}

#[test]
fn a_described_cluster_gives_a_plan_that_explains_itself() {
    let mut f = file(3, 2, 4);
    f.goal.strategy = Strategy::Cost;
    f.price.late_row = 1e-3;
    let input = f.input(&flow([1.0; 4])).unwrap();
    assert_eq!((input.tasks.len(), input.edges.len()), (7, 2 * 2 + 2 + 4));
    assert_eq!(input.cluster.global_level, 7);
    let model = Model::new(&input).unwrap();
    let goal = f.goal().unwrap();
    let planned = plan(&model, &goal).unwrap();
    let report = explain(&model, &goal, &planned).unwrap();
    let text = report.to_text();
    // Every column of the table and every word of the options stands in the legend.
    for word in ["util", "fail/yr", "outage", "late/fail", "loss", "cost/h", "R(1 day)", "available", "gap"] {
        assert!(text.contains(word) && report.legend.iter().any(|l| l.0 == word), "{word}\n{text}");
    }
    for t in &report.tasks {
        assert!(report.legend.iter().any(|l| l.0 == t.option));
        assert!(t.outage_p99_s >= t.outage_mean_s * 0.5);
    }
    assert!(text.contains("priors"));
    // All lateness has somebody whose it is; tasks that are alike have the same part.
    let of_tasks: f64 = report.tasks.iter().map(|t| t.loss_share).sum();
    assert!(of_tasks > 0.0 && of_tasks < 1.0);
    assert!(
        text.contains(&format!(
            "{} of the expected lateness comes from failures of the coordinator",
            percent(1.0 - of_tasks)
        )),
        "{text}"
    );
    let joins: Vec<f64> = report.tasks.iter().filter(|t| t.task.starts_with("join")).map(|t| t.loss_share).collect();
    assert!((joins[0] - joins[1]).abs() <= 0.05 * joins[0].max(joins[1]), "{joins:?}");
    let back: Report = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(back.tasks.len(), report.tasks.len());
    if std::env::var_os("SPATE_SHOW").is_some() {
        println!("{text}");
    }
}

#[test]
fn budgets_bind_every_strategy_or_are_refused() {
    let mut f = file(3, 2, 4);
    let input = f.input(&flow([1.0; 4])).unwrap();
    let model = Model::new(&input).unwrap();
    f.goal.loss_budget = Some(0.0);
    for strategy in Strategy::ALL {
        f.goal.strategy = strategy;
        let counts = !matches!(strategy, Strategy::Latency | Strategy::Burst);
        match f.goal() {
            Ok(goal) => {
                assert!(counts);
                let e = plan(&model, &goal).unwrap_err();
                assert!(
                    matches!(&e, FaultError::CannotMeet { goal, .. } if goal.contains("fault.loss_budget")),
                    "{e:?}"
                );
            }
            Err(FaultError::Invalid { what }) => {
                assert!(!counts && what.contains("fault.loss_budget is for strategy 'cost'"), "{what}");
            }
            Err(e) => panic!("{e:?}"),
        }
    }
    // Snapshots of every task at one interval: the best one, and never worse than the global checkpoint alone.
    f.goal.loss_budget = None;
    let objective = |strategy| plan(&model, &Goal::of(strategy)).unwrap().objective;
    let (one, none, best) = (objective(Strategy::Checkpoint), objective(Strategy::None), objective(Strategy::Cost));
    assert!(best <= one * (1.0 + 1e-9) && one <= none * (1.0 + 1e-9), "{best} {one} {none}");
}

#[test]
fn bad_descriptions_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut ClusterFile), part: &str| {
        let mut f = file(2, 2, 4);
        change(&mut f);
        let e = f.input(&flow([1.0; 4])).and_then(|i| Model::new(&i).map(|_| ())).unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    };
    refused(&|f| f.rack.clear(), "no worker");
    refused(&|f| f.rack[0].worker_mtbf_h = -1.0, "worker_mtbf_h");
    refused(&|f| f.rack[1].name = "r0".into(), "two racks are called \"r0\"");
    refused(&|f| f.rack[0].slots = 0, "slots");
    refused(&|f| f.times.false_alarms_per_h = -1.0, "times: false_alarms_per_h");
    refused(&|f| f.task.source_rows_per_s = -5.0, "source_rows_per_s");
    refused(&|f| f.task.source_rows_per_s = 1e6, "rho");
    refused(&|f| f.times.epoch_s = 0.0, "epoch_s");
    refused(&|f| f.times.detection_s = f64::NAN, "detection");
    refused(&|f| f.price.late_row = -1.0, "late row");
    refused(&|f| f.goal.overhead = Some(2.0), "fault.overhead");
    refused(&|f| f.goal.recovery_slo_s = Some(0.0), "recovery_slo");
    refused(&|f| f.task.peak_factor = 0.5, "peak_factor");
    refused(
        &|f| {
            let name = "nobody".into();
            f.fragment.push(crate::fault::cluster::FragmentOverride { name, ..Default::default() });
        },
        "no fragment \"nobody\"",
    );
    let unknown = r#"{"rack": [], "colour": 1}"#;
    assert!(serde_json::from_str::<ClusterFile>(unknown).unwrap_err().to_string().contains("unknown field `colour`"));
    let unknown = r#"{"rack": [{"name": "a", "workers": 1, "slots": 1, "worker_mtbf_h": 1, "size": 3}]}"#;
    assert!(serde_json::from_str::<ClusterFile>(unknown).unwrap_err().to_string().contains("size"));
    let mut cycle = flow([1.0; 4]);
    cycle.streams.push(Stream { from: 3, to: 2, input: 0, route: Route::Forward, logged: false });
    assert!(file(2, 2, 4).input(&cycle).unwrap_err().to_string().contains("cycle"));
    let mut dead_end = flow([1.0; 4]);
    dead_end.outlets[0].fragment = 2;
    assert!(file(2, 2, 4).input(&dead_end).unwrap_err().to_string().contains("no sink can be reached"));
}

/// Some number of an input made nonsense, or extreme.
fn spoil(x: &mut Input, rng: &mut rand::rngs::SmallRng) {
    let values = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-300, 1e18, 1.0];
    let value = values[rng.random_range(0..values.len())];
    let v = rng.random_range(0..x.tasks.len());
    let t = &mut x.tasks[v];
    let c = &mut x.cluster;
    match rng.random_range(0..27) {
        0 => t.rows_per_s = value,
        1 => t.peak_rows_per_s = value,
        2 => t.capacity_rows_per_s = value,
        3 => t.state_bytes = value,
        4 => t.dirty.first_touch_bytes_per_s = value,
        5 => t.dirty.measured_bytes = vec![Some(value)],
        6 => t.encode_s_per_byte = value,
        7 => t.snapshot_pause_s = value,
        8 => t.snapshot_completion_s = value,
        9 => t.restore_bytes_per_s = value,
        10 => t.replay_speedup = value,
        11 => t.epoch_replay_s = value,
        12 => t.crash.alpha = value,
        13 => t.crash.beta_s = value,
        14 => t.common_cause = value,
        15 => c.detection_s = value,
        16 => c.launch_s = value,
        17 => c.epoch_s = value,
        18 => c.repair_s = value,
        19 => c.false_alarms_per_s = value,
        20 => c.workers[0].failure.beta_s = value,
        21 => x.sinks[0].deadline_s = value,
        22 => x.sinks[0].weight = value,
        23 => x.sinks[0].rows_per_s = value,
        24 => x.prices.late_row = value,
        25 => {
            x.load = vec![
                crate::fault::graph::LoadState { level: value, ..burst_load()[0].clone() },
                burst_load()[1].clone(),
            ]
        }
        _ => x.edges.truncate(1),
    }
}

#[test]
fn nothing_that_is_printed_is_ever_not_a_number() {
    let rounds = if cfg!(debug_assertions) { 400 } else { 4000 };
    let (mut fine, mut refused) = (0, 0);
    for seed in 0..rounds {
        let mut rng = rng(seed);
        let n = rng.random_range(2..5);
        let mut x = random_input(SHAPES[seed as usize % 5], n, 3, 1 + seed as usize % 3, &mut rng);
        if seed % 4 == 0 {
            x.load = burst_load();
        }
        spoil(&mut x, &mut rng);
        let strategy = [Strategy::Cost, Strategy::Latency, Strategy::Burst, Strategy::Active][seed as usize % 4];
        let mut goal = Goal::of(strategy);
        goal.replica_slots = [None, Some(0), Some(1)][seed as usize % 3];
        let told = Model::new(&x).and_then(|m| {
            let p = plan(&m, &goal)?;
            let report = explain(&m, &goal, &p)?;
            Ok((report, p))
        });
        match told {
            Ok((report, p)) => {
                fine += 1;
                let (text, json) = (report.to_text(), report.to_json());
                let whole: serde_json::Value = serde_json::from_str(&json).unwrap();
                fn no_null(v: &serde_json::Value, path: &str) {
                    match v {
                        // Only these may be absent.
                        serde_json::Value::Null => {
                            assert!(path.ends_with("interval_s") || path.ends_with("replica"), "{path}")
                        }
                        serde_json::Value::Array(a) => a.iter().for_each(|v| no_null(v, path)),
                        serde_json::Value::Object(o) => o.iter().for_each(|(k, v)| no_null(v, &format!("{path}.{k}"))),
                        _ => {}
                    }
                }
                no_null(&whole, "");
                for word in ["NaN", "inf"] {
                    let numbers = text.split("Legend").next().unwrap().replace("information", "");
                    assert!(!numbers.contains(word), "seed {seed}: {numbers}");
                }
                assert!(p.gap().is_finite() && (0.0..=1.0).contains(&p.gap()));
                assert!((0.0..=1.0).contains(&report.survives_day) && (0.0..=1.0).contains(&report.availability));
            }
            Err(e) => {
                refused += 1;
                assert!(matches!(e, FaultError::Invalid { .. } | FaultError::CannotMeet { .. }));
                assert!(!e.to_string().is_empty());
            }
        }
    }
    println!("{fine} explained, {refused} refused");
    assert!(fine > rounds / 8 && refused > rounds / 8);
}

#[test]
fn a_cluster_of_100_is_simulated() {
    let mut f = file(5, 20, 4);
    f.task.source_rows_per_s = 40_000.0;
    f.rack.iter_mut().for_each(|r| r.worker_mtbf_h = 500.0);
    let mut flow = flow([1.0; 4]);
    flow.fragments.iter_mut().for_each(|f| f.parallelism = 20);
    let input = f.input(&flow).unwrap();
    let model = Model::new(&input).unwrap();
    let goal = f.goal().unwrap();
    let planned = plan(&model, &goal).unwrap();
    let system = System::new(&model, &planned.plan, &planned.modes).unwrap();
    let years = if cfg!(debug_assertions) { 0.05 } else { 0.5 };
    let r = run(&system, &Mission { years, ..Mission::default() }).unwrap();
    assert!(r.failures > 10 && r.late_rows_per_h.mean.is_finite());
    let report = explain(&model, &goal, &planned).unwrap();
    assert!(report.to_text().contains("more tasks"));
}
