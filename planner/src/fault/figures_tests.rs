//! That drawings are sound, and the ones in `docs/figures`.

use super::*;
use crate::fault::cluster::ClusterFile;
use crate::fault::flow::Flow;
use crate::fault::optimize::{self, Goal, Strategy};
use crate::fault::reliability;
use crate::fault::simulate::system::System;
use crate::fault::simulate::{Mission, run};
use crate::fault::testing::flow;

/// Three racks, a join and an aggregation with states of different size.
fn example() -> (ClusterFile, Flow) {
    let rack = |name: &str| {
        serde_json::json!({
            "name": name, "workers": 3, "slots": 3, "worker_mtbf_h": 300.0, "rack_mtbf_h": 4000.0,
        })
    };
    let racks: Vec<_> = ["a", "b", "c"].into_iter().map(rack).collect();
    let file = serde_json::json!({
        "rack": racks,
        "times": { "coordinator_mtbf_h": 5000.0, "global_checkpoint_s": 51.2 },
        "price": { "late_row": 1e-3 },
        "sink": { "deadline_s": 3.0 },
        "task": { "crash_mtbf_h": 1000.0, "common_cause": 0.0, "first_touch_mb_per_s": 5.0 },
        "fragment": [
            { "name": "join", "state_mb": 1200.0 },
            { "name": "sum", "state_mb": 150.0, "capacity_rows_per_s": 150_000.0 },
        ],
    });
    (serde_json::from_value(file).unwrap(), flow([1.0, 0.2, 1.0, 0.1]))
}

/// Outages that the model expects, as a sorted sample: each shock by its rate and its snapshot's age.
fn expected_outages(model: &Model, plan: &Plan) -> Vec<f64> {
    let mut out = Vec::new();
    let shocks = reliability::all_shocks(model, plan);
    let total: f64 = shocks.iter().map(super::super::shock::Shock::per_s).sum();
    for s in &shocks {
        let copies = (s.per_s() / total * 4000.0).round() as usize;
        let at = reliability::outages(model, plan, s, 0);
        out.extend((0..copies).map(|i| at[i * at.len() / copies].1));
    }
    out.sort_by(f64::total_cmp);
    out
}

/// With fewer points where only their soundness matters.
fn drawings(years: f64, points: u8) -> Vec<(&'static str, String)> {
    let (file, flow) = example();
    let input = file.input(&flow).unwrap();
    let model = Model::new(&input).unwrap();
    let best = optimize::plan(&model, &Goal::of(Strategy::Cost)).unwrap();
    let none = optimize::plan(&model, &Goal::of(Strategy::None)).unwrap();
    let simulated = |p: &Plan| {
        let s = System::new(&model, p, &[]).unwrap();
        run(&s, &Mission { years, ..Mission::default() }).unwrap().outages_s
    };
    let series = [
        exceedance("none, model", &expected_outages(&model, &none.plan)),
        exceedance("none, simulated", &simulated(&none.plan)),
        exceedance("cost, model", &expected_outages(&model, &best.plan)),
        exceedance("cost, simulated", &simulated(&best.plan)),
    ];
    let outages = chart(
        "Outages: share that is longer",
        "length of the outage [s]",
        "share of outages",
        (Scale::Linear, Scale::Log),
        &series,
    );
    // Lateness against what snapshots may take, for some numbers of replicas.
    let budget = |k: usize| {
        (0..points)
            .filter_map(|i| {
                let overhead = 0.0005 * f64::from(i).exp2().sqrt();
                let goal = Goal { replica_slots: Some(k), overhead: Some(overhead), ..Goal::of(Strategy::Latency) };
                Some((overhead * 100.0, optimize::plan(&model, &goal).ok()?.cost.lateness_row_s_per_h))
            })
            .collect::<Vec<_>>()
    };
    let lines = [(0, "no replica"), (1, "1 replica"), (2, "2 replicas")]
        .map(|(k, name)| Series { name: name.into(), points: budget(k) });
    let budgets = chart(
        "Lateness against budget",
        "snapshots may take (fault.overhead) [% of the cores]",
        "lateness [row·s/h]",
        (Scale::Log, Scale::Log),
        &lines,
    );
    let graph = plan(&model, &best.plan, "The cheapest plan (yellow: with a replica)");
    vec![("fault-outages.svg", outages), ("fault-budget.svg", budgets), ("fault-plan.svg", graph)]
}

#[test]
fn drawings_are_sound() {
    for (name, svg) in drawings(0.2, 2) {
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{name}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
    let odd = [Series { name: "<a&b>".into(), points: vec![(f64::NAN, 1.0), (1.0, f64::INFINITY), (0.0, 0.0)] }];
    for scales in [(Scale::Linear, Scale::Linear), (Scale::Log, Scale::Log)] {
        let svg = chart("t", "x", "y", scales, &odd);
        assert!(svg.contains("&lt;a&amp;b&gt;") && !svg.contains("NaN") && !svg.contains("inf"));
        assert!(chart("t", "x", "y", scales, &[]).contains("</svg>"));
    }
}

#[test]
#[ignore = "writes docs/figures: cargo test --release -p spate-planner -- --ignored draw_the_figures_of_the_docs"]
fn draw_the_figures_of_the_docs() {
    let dir =
        std::env::var("SPATE_FIGURES").unwrap_or_else(|_| format!("{}/../docs/figures", env!("CARGO_MANIFEST_DIR")));
    std::fs::create_dir_all(&dir).unwrap();
    for (name, svg) in drawings(20.0, 16) {
        std::fs::write(format!("{dir}/{name}"), svg).unwrap();
    }
}
