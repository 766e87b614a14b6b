//! The model by hand, and what it refuses.

use super::*;
use crate::fault::graph::{Delivery, FailureRate, Merge};
use crate::fault::testing::{burst_load, edge, input};

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-6 * b.abs().max(1e-9), "{a} is not {b}");
}

fn one() -> Input {
    input(2, &[edge(0, 1, 1000.0)], &[1])
}

#[test]
fn delay_by_hand() {
    let mut x = one();
    x.tasks[1].snapshot_completion_s = 0.4;
    x.tasks[1].replay_speedup = 2.0;
    x.tasks[1].epoch_replay_s = 0.001;
    let m = Model::new(&x).unwrap();
    // T0 = 0.3 + 0.5 + 1; E + record = 0.11; per second of age 0.5/2 + 0.001/0.1.
    let d = m.delay(1, Choice::checkpoint(3), Hit::All, Stress::NONE, 0.0);
    close(d.low_s, 1.91 + 0.26 * 0.4);
    close(d.high_s, 1.91 + 0.26 * 1.2);
    let d = m.delay(1, Choice::active(3), Hit::Primary, Stress::NONE, 0.0);
    close(d.low_s, 0.3 + 0.1 + 0.11);
    close(d.high_s, d.low_s);
    // Both copies gone: the price without a replica.
    assert_eq!(
        m.delay(1, Choice::active(3), Hit::All, Stress::NONE, 0.0),
        m.delay(1, Choice::checkpoint(3), Hit::All, Stress::NONE, 0.0)
    );
    let slow = m.delay(1, Choice::checkpoint(3), Hit::All, Stress { restore: 3.0, load: 1.0, wait_s: 5.0 }, 0.0);
    close(slow.low_s, 1.91 + 0.26 * 0.4 + 2.0 + 5.0);
}

#[test]
fn running_cost_by_hand() {
    let mut x = one();
    x.tasks[1].dirty.measured_bytes = vec![None, None, Some(4e6)];
    let m = Model::new(&x).unwrap();
    let r = m.running(1, Choice::checkpoint(2));
    // (2e-9·4e6 + 0.002)/0.4 of one core.
    close(r.utilisation, 0.025);
    close(r.net_bytes_per_s, 1e7);
    close(r.memory_bytes, 1000.0 * 0.4 * 100.0);
    close(r.added_latency_s, 0.002f64.powi(2) / (2.0 * 0.4 * 0.5));
    close(r.cost_per_h, 0.025 * 0.04 + 40_000.0 / GIB * 0.005 + 1e7 * 3600.0 / GIB * 0.01);
    let a = m.running(1, Choice::active(2));
    close(a.cost_per_h - r.cost_per_h, 0.04 + 3e8 / GIB * 0.005 + 1e5 * 3600.0 / GIB * 0.01);
    close(m.rho(1, Choice::checkpoint(2), 0.0), 0.525);
}

#[test]
fn dirty_bytes_are_concave_and_end_at_the_state() {
    let t = &one().tasks[0];
    let mut last = (0.0, f64::INFINITY);
    for i in 0..24 {
        let b = t.dirty_bytes(i, 0.1);
        let tau = 0.1 * f64::from(i).exp2();
        assert!(b >= last.0 && b / tau <= last.1 && b <= t.state_bytes);
        last = (b, b / tau);
    }
    close(t.dirty_bytes(24, 0.1), 1e8);
    // One measurement moves the curve to it.
    let mut u = t.clone();
    u.dirty.measured_bytes = vec![Some(2.0 * t.dirty_bytes(0, 0.1))];
    close(u.dirty_bytes(3, 0.1), 2.0 * t.dirty_bytes(3, 0.1));
}

#[test]
fn a_stall_spreads_downstream_at_once_then_through_the_job_then_through_logs() {
    // Job 0: 0 → 1 → sink a, 0 → 2 → sink b. Job 1 reads from 2: 3 → sink c.
    let mut x = input(4, &[edge(0, 1, 500.0), edge(0, 2, 500.0), edge(2, 3, 500.0)], &[1]);
    x.edges[2].logged = true;
    x.tasks[3].job = 1;
    x.tasks[2].capacity_rows_per_s = 600.0;
    x.sinks.push(crate::fault::testing::sink(&[2]));
    x.sinks.push(crate::fault::testing::sink(&[3]));
    let m = Model::new(&x).unwrap();
    let buffer = |v: usize, s: usize| m.reach[v].iter().find(|r| r.sink == s).map(|r| r.buffer_s);
    assert_eq!([buffer(0, 0), buffer(0, 1), buffer(0, 2)], [Some(0.0); 3]);
    assert_eq!(buffer(1, 0), Some(0.0));
    close(buffer(1, 1).unwrap(), 0.8);
    // Job 1 does not notice that job 0's other branch is stalled, for it is not fed by it.
    assert_eq!(buffer(1, 2), None);
    close(buffer(3, 0).unwrap(), 60.8);
    assert_eq!(buffer(3, 2), Some(0.0));
    // The bottleneck downstream counts, not only the own load.
    close(m.path_rho(0, m.reach[0].iter().find(|r| r.sink == 1).unwrap(), Choice::checkpoint(6), 0.0), 500.0 / 600.0);
}

#[test]
fn at_most_once_loses_a_share() {
    let mut x = input(3, &[edge(0, 2, 750.0), edge(1, 2, 250.0)], &[2]);
    x.sinks[0].delivery = Delivery::AtMostOnce;
    let m = Model::new(&x).unwrap();
    close(m.reach[0][0].share, 0.75);
    close(m.information_share(1, 0).unwrap(), 0.25);
    x.tasks[2].merge = Merge::Join;
    x.edges[1].input = 1;
    close(Model::new(&x).unwrap().reach[1][0].share, 1.0);
}

#[test]
fn states_of_one_level_are_the_mean() {
    let mut x = one();
    x.load = burst_load();
    x.load[1].level = 0.0;
    let m = Model::new(&x).unwrap();
    let c = Choice::checkpoint(6);
    let at = |w| m.loss(1, &m.reach[1][0], c, Hit::All, Stress::NONE, w).unwrap();
    let (a, b) = (at(When::Mean), at(When::States));
    assert!((a.late_rows / b.late_rows - 1.0).abs() < 1e-3);
    assert!((a.lateness_row_s / b.lateness_row_s - 1.0).abs() < 0.02);
}

#[test]
fn a_burst_makes_failures_dearer() {
    let mut x = one();
    for t in &mut x.tasks {
        t.peak_rows_per_s = 1800.0;
    }
    x.load = burst_load();
    let m = Model::new(&x).unwrap();
    let c = Choice::checkpoint(6);
    let at = |w| m.loss(1, &m.reach[1][0], c, Hit::All, Stress::NONE, w).unwrap().lateness_row_s;
    assert!(at(When::State(1)) > 3.0 * at(When::State(0)));
    assert!(at(When::States) > at(When::Mean));
}

#[test]
fn a_busier_cluster_after_a_failure_is_dearer_and_stays_finite() {
    let x = one();
    let m = Model::new(&x).unwrap();
    let at = |load| {
        let s = Stress { load, ..Stress::NONE };
        m.loss(1, &m.reach[1][0], Choice::checkpoint(6), Hit::All, s, When::Mean).unwrap().late_rows
    };
    assert!(at(1.0) < at(1.5) && at(1.5) < at(2.5) && at(2.5).is_finite());
}

#[test]
fn bad_input_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Input), part: &str| {
        let mut x = one();
        change(&mut x);
        let e = Model::new(&x).unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    };
    refused(&|x| x.tasks[1].capacity_rows_per_s = 900.0, "rho");
    refused(&|x| x.tasks[1].rows_per_s = -1.0, "input rate");
    refused(&|x| x.tasks[1].state_bytes = f64::NAN, "state");
    refused(&|x| x.tasks[1].crash = FailureRate { alpha: -1.0, beta_s: 1.0 }, "failure rate");
    refused(&|x| x.edges.push(edge(1, 0, 1.0)), "cycle");

    refused(&|x| x.edges[0].to = 7, "joins tasks");
    refused(&|x| x.sinks[0].tasks = vec![0], "no sink can be reached from task \"t1\"");
    refused(&|x| x.sinks[0].tasks.clear(), "cannot be reached");
    refused(&|x| x.tasks[0].job = 1, "not logged");
    refused(&|x| x.cluster.workers.clear(), "no worker");
    refused(&|x| x.load = vec![burst_load().remove(0)], "add up");
}
