//! One failing task, row by row: Poisson arrivals, deterministic service, snapshots on a grid, a
//! failure at a random moment, restart, replay, catching up. What the fluid model takes for a liquid
//! is counted here.

use rand::Rng;
use rand::rngs::SmallRng;

/// One task and one kind of failure.
#[derive(Debug, Clone, Copy)]
pub struct RowTask {
    /// Poisson arrivals [rows/s].
    pub rows_per_s: f64,
    /// Time to serve a row [s].
    pub service_s: f64,
    /// Replayed rows are served this many times as fast.
    pub replay_speedup: f64,
    /// Snapshots every so often [s].
    pub interval_s: f64,
    /// The server pauses so long for each [s].
    pub pause_s: f64,
    /// A snapshot counts so long after it was begun [s].
    pub completion_s: f64,
    /// The server is gone for so long [s].
    pub down_s: f64,
    /// Arrivals per second for so long after the failure, if load changes then.
    pub burst: Option<(f64, f64)>,
    /// A row is late beyond this delay [s].
    pub deadline_s: f64,
}

/// What one failure did.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowOutcome {
    /// Until the queue was empty for the first time [s].
    pub outage_s: f64,
    /// Rows beyond the deadline that would not have been without the failure.
    pub late_rows: f64,
    /// By how much [row·s].
    pub lateness_row_s: f64,
    /// The greatest delay [s].
    pub worst_delay_s: f64,
}

/// Most rows of one run: beyond capacity a queue never empties.
const MOST_ROWS: usize = 50_000_000;

impl RowTask {
    /// One failure, at `phase` (0 to 1) of the interval between snapshots: take it at random, or
    /// evenly over many runs for less noise.
    pub fn fail(&self, phase: f64, rng: &mut SmallRng) -> RowOutcome {
        // Times relative to the failure.
        let shift = self.interval_s * phase.clamp(0.0, 1.0);
        // The last snapshot begun at least completion_s before the failure.
        let mut snapshot = shift;
        while snapshot > -self.completion_s {
            snapshot -= self.interval_s;
        }
        let before = self.interval_s + self.completion_s + 200.0 * self.service_s;
        // The same arrivals with and without the failure.
        let mut with = Server { free_at: -before, next_pause: shift - self.interval_s * 1e3, task: *self };
        with.skip_pauses(-before);
        let mut without = with;
        let mut t = -before;
        let mut replay = 0usize;
        let mut out = RowOutcome::default();
        let mut failed = false;
        let mut current = false;
        for _ in 0..MOST_ROWS {
            let rate = match self.burst {
                Some((rate, length)) if t >= 0.0 && t < length => rate,
                _ => self.rows_per_s,
            };
            let step = -(1.0 - rng.random::<f64>()).ln() / rate;
            // Where the rate changes within a step, begin a new one there: exponential steps forget.
            t = match self.burst {
                Some((_, length)) if t < length && t >= 0.0 && t + step > length => {
                    t = length;
                    continue;
                }
                Some(_) if t < 0.0 && t + step > 0.0 && self.burst.is_some() && !failed => {
                    t = 0.0;
                    self.crash(&mut with, replay);
                    failed = true;
                    continue;
                }
                _ => t + step,
            };
            if t >= 0.0 && !failed {
                self.crash(&mut with, replay);
                failed = true;
            }
            let b = without.serve(t, self.service_s) - t;
            if failed {
                if with.free_at <= t && !current {
                    out.outage_s = with.free_at;
                    current = true;
                }
                if current {
                    break;
                }
                let a = with.serve(t, self.service_s) - t;
                out.worst_delay_s = out.worst_delay_s.max(a);
                let late = |d: f64| (d - self.deadline_s).max(0.0);
                out.late_rows += f64::from(u8::from(late(a) > 0.0)) - f64::from(u8::from(late(b) > 0.0));
                out.lateness_row_s += late(a) - late(b);
            } else {
                with = without;
                replay += usize::from(t >= snapshot);
            }
        }
        out
    }

    /// Time 0: what was served since the snapshot must be served again once the server is back.
    fn crash(&self, server: &mut Server, replay: usize) {
        server.free_at = self.down_s;
        server.skip_pauses(self.down_s);
        for _ in 0..replay {
            // No snapshots during replay.
            server.free_at += self.service_s / self.replay_speedup;
        }
        server.skip_pauses(server.free_at);
    }
}

#[derive(Clone, Copy)]
struct Server {
    free_at: f64,
    next_pause: f64,
    task: RowTask,
}

impl Server {
    fn skip_pauses(&mut self, until: f64) {
        while self.next_pause < until {
            self.next_pause += self.task.interval_s;
        }
    }

    /// Serves a row that arrives at `t`; when it leaves.
    fn serve(&mut self, t: f64, service_s: f64) -> f64 {
        let mut start = self.free_at.max(t);
        while self.next_pause <= start {
            // The pause happened while idle, or happens now.
            let end = self.next_pause.max(self.free_at) + self.task.pause_s;
            self.free_at = self.free_at.max(end);
            start = start.max(end);
            self.next_pause += self.task.interval_s;
        }
        self.free_at = start + service_s;
        self.free_at
    }
}
