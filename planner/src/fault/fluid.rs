//! The price of one failure in late rows: a fluid model.
//!
//! A task that fails and comes back has a backlog worth `X` seconds of delay: the time until its
//! first replayed row, and the work of the replay. A row that arrives `a` seconds after the failure
//! leaves with extra delay `d(a) = X − (1−ρ)a`, since in each second ρ seconds of work arrive and one
//! is done. From that all else follows:
//!
//! - current again after the *outage* `O = X/(1−ρ)`, where d reaches 0;
//! - with a deadline D, d(a) > D for the first `(X−D)/(1−ρ)` seconds: *late rows*
//!   `N = q·(X−D)⁺/(1−ρ)` at q rows per second;
//! - their excess delay is a triangle of that base and the height X−D: *lateness*
//!   `Λ = q·((X−D)⁺)²/(2(1−ρ))` row-seconds.
//!
//! X depends on how old the snapshot is, which is uniform between two bounds; hence [`Span`].
//! Load that changes during the outage makes d piecewise linear; [`loss_in_phases`] integrates it.

/// Delay that a failure causes [s], uniform on `[low_s, high_s]`.
///
/// The age u of a snapshot at a failure is uniform on [κ, κ+τ], κ being how long a snapshot takes
/// to become durable, and X is linear in u.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Least delay: the snapshot had just become current.
    pub low_s: f64,
    /// Greatest delay: the next one was about to.
    pub high_s: f64,
}

impl Span {
    /// A delay that does not vary.
    pub fn point(s: f64) -> Self {
        Self { low_s: s, high_s: s }
    }

    /// Mean delay [s].
    pub fn mean_s(self) -> f64 {
        f64::midpoint(self.low_s, self.high_s)
    }

    /// The delay that a share `p` of failures stays below [s].
    pub fn quantile_s(self, p: f64) -> f64 {
        self.low_s + (self.high_s - self.low_s) * p.clamp(0.0, 1.0)
    }

    /// P(X > d), between 0 and 1.
    pub fn exceeds(self, d_s: f64) -> f64 {
        if self.high_s <= d_s {
            0.0
        } else if self.low_s >= d_s {
            // A span of no width at exactly d_s fell into the case above.
            1.0
        } else {
            (self.high_s - d_s) / (self.high_s - self.low_s)
        }
    }

    /// E[(X−d)⁺] [s].
    ///
    /// With X uniform on [l, h]: ∫(x−d)⁺dx/(h−l) = ((h−d)⁺² − (l−d)⁺²) / (2(h−l)).
    pub fn mean_excess_s(self, d_s: f64) -> f64 {
        let (l, h) = ((self.low_s - d_s).max(0.0), (self.high_s - d_s).max(0.0));
        let width = self.high_s - self.low_s;
        // (h²−l²)/2w, written so that nothing cancels when both ends are beyond d.
        if width <= 0.0 { h } else { (h - l) / width * f64::midpoint(h, l) }
    }

    /// E[((X−d)⁺)²] [s²], in the same way: ((h−d)⁺³ − (l−d)⁺³) / (3(h−l)).
    pub fn mean_square_excess_s2(self, d_s: f64) -> f64 {
        let (l, h) = ((self.low_s - d_s).max(0.0), (self.high_s - d_s).max(0.0));
        let width = self.high_s - self.low_s;
        if width <= 0.0 { h * h } else { (h - l) / width * (h * h + h * l + l * l) / 3.0 }
    }

    /// The same delay as seen by someone who notices only what exceeds `slack_s`.
    pub fn later_by(self, s: f64) -> Self {
        Self { low_s: self.low_s + s, high_s: self.high_s + s }
    }
}

/// What one failure costs at one sink.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Loss {
    /// Rows that leave after their deadline.
    pub late_rows: f64,
    /// Their delay beyond the deadline, summed up [row·s].
    pub lateness_row_s: f64,
}

/// Seconds until a task with `delay_s` of backlog is current again, at utilisation `rho`.
/// `None` if it never is.
pub fn outage_s(delay_s: f64, rho: f64) -> Option<f64> {
    (rho < 1.0).then(|| delay_s / (1.0 - rho))
}

/// Expected loss of one failure at constant load. `None` if the task never catches up (ρ ≥ 1).
pub fn loss(delay: Span, rho: f64, deadline_s: f64, rows_per_s: f64) -> Option<Loss> {
    (rho < 1.0).then(|| Loss {
        late_rows: rows_per_s * delay.mean_excess_s(deadline_s) / (1.0 - rho),
        lateness_row_s: rows_per_s * delay.mean_square_excess_s2(deadline_s) / (2.0 * (1.0 - rho)),
    })
}

/// Outage when a burst at utilisation `rho_burst` goes on for `burst_s` after the failure, with
/// `rho` afterwards. `None` if it never ends.
///
/// Within the burst the delay falls by 1−ρ_p per second (or rises): it is current again inside it
/// if X/(1−ρ_p) ≤ B; otherwise X − (1−ρ_p)B is left, to be worked off at 1−ρ.
pub fn outage_in_burst_s(delay_s: f64, rho_burst: f64, burst_s: f64, rho: f64) -> Option<f64> {
    if rho_burst < 1.0 && delay_s / (1.0 - rho_burst) <= burst_s {
        return Some(delay_s / (1.0 - rho_burst));
    }
    outage_s(delay_s - (1.0 - rho_burst) * burst_s, rho).map(|rest| burst_s + rest)
}

/// Whether a burst makes rows late with no failure at all: the queue that it builds is worth
/// (ρ_p−1)B seconds at its end.
pub fn burst_alone_is_late(rho_burst: f64, burst_s: f64, deadline_s: f64) -> bool {
    (rho_burst - 1.0) * burst_s > deadline_s
}

/// A stretch of constant load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Utilisation of the path that has to catch up.
    pub rho: f64,
    /// Rows per second at the sink.
    pub rows_per_s: f64,
    /// How long it lasts [s]; the last phase of a list lasts for ever, whatever stands here.
    pub length_s: f64,
}

/// Loss that a failure adds when load changes while the task catches up: the loss with the failure
/// less the loss that the same load would cause without it, so that a burst is not blamed on a
/// failure. `queue_s` is the delay that the burst itself had built up when the task failed.
///
/// Both delays follow the same piecewise linear law and merge once the greater has reached 0;
/// beyond that nothing differs. `None` if that never happens.
pub fn loss_in_phases(delay_s: f64, queue_s: f64, phases: &[Phase], deadline_s: f64) -> Option<Loss> {
    let mut with = delay_s + queue_s;
    let mut without = queue_s;
    let mut out = Loss::default();
    for (i, p) in phases.iter().enumerate() {
        let last = i + 1 == phases.len();
        let slope = p.rho - 1.0;
        let drained = if slope < 0.0 { with / -slope } else { f64::INFINITY };
        if last && !drained.is_finite() {
            return None;
        }
        let length = if last { drained } else { p.length_s.min(drained) };
        let a = area_above(with, slope, length, deadline_s);
        let b = area_above(without, slope, length, deadline_s);
        out.late_rows += p.rows_per_s * (a.0 - b.0);
        out.lateness_row_s += p.rows_per_s * (a.1 - b.1);
        if drained <= length {
            break;
        }
        with += slope * length;
        without = (without + slope * length).max(0.0);
    }
    Some(out)
}

/// For a delay that starts at `d0` and changes by `slope` per second (never below 0): seconds that
/// it spends above `line`, and the area between it and the line.
fn area_above(d0: f64, slope: f64, length: f64, line: f64) -> (f64, f64) {
    let d1 = d0 + slope * length;
    let (e0, e1) = (d0 - line, d1 - line);
    match (e0 > 0.0, e1 > 0.0) {
        (false, false) => (0.0, 0.0),
        (true, true) => (length, length * f64::midpoint(e0, e1)),
        (true, false) => (e0 / -slope, e0 * e0 / (2.0 * -slope)),
        (false, true) => (e1 / slope, e1 * e1 / (2.0 * slope)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-6 * b.abs().max(1.0), "{a} is not {b}");
    }

    #[test]
    fn without_age_and_deadline_the_outage_is_the_classic_one() {
        for (t0, rho) in [(1.0, 0.0), (3.0, 0.5), (7.5, 0.95)] {
            close(outage_s(t0, rho).unwrap(), t0 / (1.0 - rho));
            let l = loss(Span::point(t0), rho, 0.0, 10.0).unwrap();
            close(l.late_rows, 10.0 * t0 / (1.0 - rho));
            close(l.lateness_row_s, 10.0 * t0 * t0 / (2.0 * (1.0 - rho)));
        }
    }

    #[test]
    fn expectations_over_the_age_are_those_of_numeric_integration() {
        let span = Span { low_s: 2.0, high_s: 5.0 };
        for d in [0.0, 1.0, 2.0, 3.3, 4.9, 5.0, 8.0] {
            let n = 200_000;
            let (mut m1, mut m2, mut p) = (0.0, 0.0, 0.0);
            for i in 0..n {
                let x: f64 = 2.0 + 3.0 * (f64::from(i) + 0.5) / f64::from(n);
                m1 += (x - d).max(0.0);
                m2 += (x - d).max(0.0).powi(2);
                p += f64::from(u8::from(x > d));
            }
            let n = f64::from(n);
            close(span.mean_excess_s(d), m1 / n);
            close(span.mean_square_excess_s2(d), m2 / n);
            assert!((span.exceeds(d) - p / n).abs() < 1e-4);
        }
    }

    #[test]
    fn one_phase_is_constant_load() {
        let phase = Phase { rho: 0.7, rows_per_s: 100.0, length_s: 0.0 };
        for d in [0.0, 1.5, 9.0] {
            let a = loss_in_phases(4.0, 0.0, &[phase], d).unwrap();
            let b = loss(Span::point(4.0), 0.7, d, 100.0).unwrap();
            close(a.late_rows, b.late_rows);
            close(a.lateness_row_s, b.lateness_row_s);
        }
    }

    #[test]
    fn phases_agree_with_stepping_through_time() {
        let phases = [
            Phase { rho: 0.5, rows_per_s: 50.0, length_s: 3.0 },
            Phase { rho: 1.4, rows_per_s: 140.0, length_s: 5.0 },
            Phase { rho: 0.6, rows_per_s: 60.0, length_s: 0.0 },
        ];
        for (x, queue, deadline) in [(4.0, 0.0, 1.0), (2.0, 1.0, 0.5), (10.0, 0.0, 3.0), (0.5, 0.0, 1.9)] {
            let dt = 1e-4;
            let (mut with, mut without, mut t) = (x + queue, queue, 0.0);
            let mut want = Loss::default();
            while with > 0.0 || t < 8.0 {
                let p = if t < 3.0 { phases[0] } else { phases[if t < 8.0 { 1 } else { 2 }] };
                for (d, sign) in [(&mut with, 1.0), (&mut without, -1.0)] {
                    if *d > deadline {
                        want.late_rows += sign * p.rows_per_s * dt;
                        want.lateness_row_s += sign * p.rows_per_s * dt * (*d - deadline);
                    }
                    *d = (*d + (p.rho - 1.0) * dt).max(0.0);
                }
                t += dt;
            }
            let got = loss_in_phases(x, queue, &phases, deadline).unwrap();
            assert!((got.late_rows - want.late_rows).abs() < 0.5, "{got:?} {want:?}");
            assert!((got.lateness_row_s - want.lateness_row_s).abs() < 0.5, "{got:?} {want:?}");
        }
    }

    #[test]
    fn a_burst_is_charged_with_its_own_lateness() {
        // Overload that is late by itself: the failure adds what comes on top only.
        assert!(burst_alone_is_late(1.5, 10.0, 2.0));
        assert!(!burst_alone_is_late(1.1, 10.0, 2.0));
        let phases =
            [Phase { rho: 1.5, rows_per_s: 10.0, length_s: 10.0 }, Phase { rho: 0.5, rows_per_s: 10.0, length_s: 0.0 }];
        let none = loss_in_phases(0.0, 0.0, &phases, 2.0).unwrap();
        close(none.late_rows, 0.0);
        assert!(loss_in_phases(1.0, 0.0, &phases, 2.0).unwrap().late_rows > 0.0);
    }

    #[test]
    fn overload_is_never_a_number() {
        assert_eq!(outage_s(1.0, 1.0), None);
        assert_eq!(loss(Span::point(1.0), 1.2, 0.0, 1.0), None);
        assert_eq!(loss_in_phases(1.0, 0.0, &[Phase { rho: 1.0, rows_per_s: 1.0, length_s: 1.0 }], 0.0), None);
        assert_eq!(outage_in_burst_s(1.0, 1.2, 5.0, 1.0), None);
        close(outage_in_burst_s(1.0, 0.5, 5.0, 0.1).unwrap(), 2.0);
        close(outage_in_burst_s(4.0, 0.5, 5.0, 0.25).unwrap(), 5.0 + 1.5 / 0.75);
    }
}
