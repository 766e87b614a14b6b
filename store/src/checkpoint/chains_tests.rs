//! The books: examples, and every run of small jobs.

use std::collections::BTreeSet;

use super::*;
use crate::checkpoint::manifest::tests::part;
use crate::checkpoint::names::ObjectName;
use crate::checkpoint::objects::ObjectRef;

fn task(fragment: usize) -> TaskId {
    TaskId { job: 1, fragment: fragment as u32, index: 0 }
}

fn snapshot(t: usize, generation: u64, epoch: Epoch, since: Option<Epoch>, merged: bool) -> SnapshotEntry {
    let name = ObjectName::Part(part(task(t), generation, epoch, 0, merged));
    let object = ObjectRef { name, size: 1, checksum: 1 };
    SnapshotEntry { epoch, since, generation, tables: vec![vec![vec![object]]], leaves: vec![] }
}

/// Three tasks in a row; 2 ends the job.
fn row(every: [u64; 3]) -> Chains {
    let tasks = (0..3).map(|t| (task(t), 1, every[t], (t + 1..3.min(t + 2)).map(task).collect()));
    Chains::new(tasks, CHAIN).unwrap()
}

fn add(c: &mut Chains, t: usize, epoch: Epoch) {
    let since = c.since(task(t));
    c.file(task(t), snapshot(t, 1, epoch, since, false)).unwrap();
}

fn current(c: &Chains) -> [Epoch; 3] {
    [0, 1, 2].map(|t| c.current(task(t)))
}

#[test]
fn a_snapshot_becomes_current_after_those_of_its_consumers() {
    let mut c = row([1, 1, 1]);
    add(&mut c, 0, 1);
    add(&mut c, 0, 2);
    add(&mut c, 1, 1);
    assert_eq!(current(&c), [0, 0, 0]);
    add(&mut c, 2, 1);
    assert_eq!(current(&c), [1, 1, 1]);
    add(&mut c, 2, 2);
    assert_eq!(current(&c), [1, 1, 2]);
    add(&mut c, 1, 2);
    assert_eq!(current(&c), [2, 2, 2]);
}

#[test]
fn a_consumer_takes_snapshots_at_least_as_often() {
    let mut c = row([4, 2, 1]);
    for e in 1..=9 {
        (0..3).filter(|t| c.is_due(task(*t), e)).collect::<Vec<_>>().into_iter().for_each(|t| add(&mut c, t, e));
    }
    assert_eq!(current(&c), [8, 8, 9]);
    for every in [[1, 2, 2], [4, 4, 3], [3, 2, 1], [1, 1, 0]] {
        let tasks = (0..3).map(|t| (task(t), 1, every[t], (t + 1..3.min(t + 2)).map(task).collect()));
        assert!(Chains::new(tasks, CHAIN).is_err(), "{every:?}");
    }
    assert!(Chains::new([(task(0), 1, 1, vec![task(1)])], CHAIN).is_err());
}

#[test]
fn recovery_drops_what_is_not_current_and_a_stale_task_files_nothing() {
    let mut c = row([1, 1, 1]);
    (1..=3).for_each(|e| add(&mut c, 1, e));
    add(&mut c, 2, 2);
    let epochs: Vec<Epoch> = c.restart(task(1), 2).unwrap().iter().map(|s| s.epoch).collect();
    assert_eq!(epochs, [1, 2]);
    let late = snapshot(1, 1, 3, Some(2), false);
    assert!(matches!(c.file(task(1), late), Err(StoreError::Conflict { .. })));
    assert!(c.restart(task(1), 2).is_err());
    // It takes the third anew, from where it started.
    assert!(c.file(task(1), snapshot(1, 2, 4, Some(3), false)).is_err());
    c.file(task(1), snapshot(1, 2, 3, Some(2), false)).unwrap();
    add(&mut c, 2, 3);
    assert_eq!(c.current(task(1)), 3);
}

#[test]
fn chains_stay_short_whoever_shortens_them() {
    let mut c = row([1, 1, 1]);
    for e in 1..=100 {
        (0..3).rev().for_each(|t| add(&mut c, t, e));
        assert!((0..3).all(|t| c.chain(task(t)).len() <= CHAIN && c.chain(task(t))[0].is_full()));
        if e % 3 == 0 {
            let changed = c.chain(task(0)).len() > 1;
            assert_eq!(c.replace(task(0), snapshot(0, 1, e, None, true)), changed);
            assert_eq!(c.chain(task(0)).len(), 1);
        }
    }
    // A chain that is no longer there is not replaced.
    assert!(!c.replace(task(0), snapshot(0, 1, 50, None, true)));
    add(&mut c, 0, 101);
    assert!(!c.replace(task(0), snapshot(0, 1, 101, None, true)), "it is not current");
    let again = Chains::from_manifest(&c.manifest(1, 1, 1, 1), CHAIN).unwrap();
    assert_eq!(again.manifest(1, 1, 1, 1), c.manifest(1, 1, 1, 1));
    assert_eq!(again.since(task(0)), Some(101));
}

/// A running job in the exhaustive check.
#[derive(Clone)]
struct Run {
    chains: Chains,
    /// Newest snapshot that each task has taken, filed or not; what it can be told to start from.
    position: Vec<Epoch>,
    generation: Vec<u64>,
    failures: usize,
    merges: usize,
    /// Objects that may have been deleted: whatever was ever unreachable.
    gone: BTreeSet<ObjectName>,
    made: BTreeSet<ObjectName>,
}

impl Run {
    /// All that decides what can happen next.
    fn key(&self) -> Vec<u64> {
        let mut key = vec![self.failures as u64, self.merges as u64];
        for t in self.chains.tasks.values() {
            key.extend([t.current, t.generation, t.chain.len() as u64]);
            key.extend(t.chain.iter().flat_map(|s| [s.epoch, s.since.unwrap_or(u64::MAX), s.generation]));
        }
        key
    }

    fn check(&mut self, edges: &[(usize, usize)], n: usize) {
        let reached: BTreeSet<ObjectName> = self.chains.objects().map(|o| o.name).collect();
        self.gone.extend(self.made.difference(&reached));
        for lost in 0..1usize << n {
            let is_lost = |t: usize| lost >> t & 1 == 1;
            for &(u, t) in edges.iter().filter(|(u, _)| is_lost(*u)) {
                let (from, to) = (self.chains.current(task(u)), self.chains.current(task(t)));
                // A lost consumer starts from its current snapshot; one that lives has taken that
                // snapshot or a later one.
                let needs = if is_lost(t) { to } else { self.position[t].max(to) };
                assert!(from <= needs, "{u} at {from}, {t} at {needs}");
                assert!(from <= to, "the log of {u} may be cut at {to}");
            }
        }
        for t in 0..n {
            let chain = self.chains.chain(task(t));
            assert_eq!(chain.last().map_or(0, |s| s.epoch), self.chains.current(task(t)));
            let mut before = None;
            for s in chain {
                assert!(s.is_full() || s.since == before, "a gap before {}", s.epoch);
                assert!(s.objects().all(|o| !self.gone.contains(&o.name)), "it was deleted");
                before = Some(s.epoch);
            }
            assert!(chain.first().is_none_or(|s| s.is_full()));
        }
    }

    /// All that can happen next.
    fn next(&self, every: &[u64], last: Epoch, failures: usize, merges: usize) -> Vec<Run> {
        let n = every.len();
        let mut out = Vec::new();
        for (t, every) in every.iter().enumerate() {
            let epoch = self.position[t] + every;
            if epoch <= last {
                let mut r = self.clone();
                let since = r.chains.since(task(t));
                let s = snapshot(t, r.generation[t], epoch, since, false);
                r.made.extend(s.objects().map(|o| o.name));
                r.chains.file(task(t), s).unwrap();
                r.position[t] = epoch;
                out.push(r);
            }
            let chain = self.chains.chain(task(t));
            if self.merges < merges && chain.len() > 1 {
                let mut r = self.clone();
                let s = snapshot(t, r.generation[t], chain[chain.len() - 1].epoch, None, true);
                r.made.extend(s.objects().map(|o| o.name));
                assert!(r.chains.replace(task(t), s));
                r.merges += 1;
                out.push(r);
            }
        }
        if self.failures < failures {
            for lost in 1..1usize << n {
                let mut r = self.clone();
                r.failures += 1;
                for t in (0..n).filter(|t| lost >> t & 1 == 1) {
                    r.generation[t] += 1;
                    let chain = r.chains.restart(task(t), r.generation[t]).unwrap();
                    r.position[t] = chain.last().map_or(0, |s| s.epoch);
                }
                out.push(r);
            }
        }
        out
    }
}

/// Runs a job in every order: how many states it has.
fn explore(n: usize, edges: &[(usize, usize)], every: &[u64], last: Epoch, failures: usize, merges: usize) -> usize {
    let consumers = |u: usize| edges.iter().filter(|e| e.0 == u).map(|e| task(e.1)).collect();
    let chains = Chains::new((0..n).map(|t| (task(t), 1, every[t], consumers(t))), 3).unwrap();
    let start = Run {
        chains,
        position: vec![0; n],
        generation: vec![1; n],
        failures: 0,
        merges: 0,
        gone: BTreeSet::new(),
        made: BTreeSet::new(),
    };
    let mut seen = BTreeSet::from([start.key()]);
    let mut open = vec![start];
    while let Some(run) = open.pop() {
        for mut next in run.next(every, last, failures, merges) {
            next.check(edges, n);
            if seen.insert(next.key()) {
                open.push(next);
            }
        }
    }
    seen.len()
}

/// Edges, and epochs between each task's snapshots.
type Job = (Vec<(usize, usize)>, Vec<u64>);

/// All graphs of `n` tasks whose edges lead from lower to higher numbers, with all intervals that
/// are allowed, each once: of jobs that differ in the numbers of their tasks alone, the first.
fn jobs(n: usize, intervals: &[u64]) -> Vec<Job> {
    let pairs: Vec<(usize, usize)> = (0..n).flat_map(|u| (u + 1..n).map(move |t| (u, t))).collect();
    let mut out = Vec::new();
    for mask in 0..1usize << pairs.len() {
        let edges: Vec<_> = pairs.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, p)| *p).collect();
        for code in 0..intervals.len().pow(n as u32) {
            let every: Vec<u64> =
                (0..n).map(|t| intervals[code / intervals.len().pow(t as u32) % intervals.len()]).collect();
            if edges.iter().all(|(u, t)| every[*t] <= every[*u]) && is_first(&edges, &every) {
                out.push((edges.clone(), every));
            }
        }
    }
    out
}

fn is_first(edges: &[(usize, usize)], every: &[u64]) -> bool {
    let n = every.len();
    let mut orders: Vec<Vec<usize>> = vec![vec![]];
    for _ in 0..n {
        let longer = |o: &Vec<usize>| {
            (0..n).filter(|t| !o.contains(t)).map(|t| o.iter().copied().chain([t]).collect()).collect::<Vec<Vec<_>>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders.iter().all(|o| {
        let mut other: Vec<(usize, usize)> = edges.iter().map(|(u, t)| (o[*u], o[*t])).collect();
        other.sort_unstable();
        let mut intervals = vec![0; n];
        (0..n).for_each(|t| intervals[o[t]] = every[t]);
        other.iter().any(|(u, t)| u > t) || (edges, every) <= (&other[..], &intervals[..])
    })
}

#[test]
fn the_current_snapshots_of_any_lost_tasks_fit_in_every_run_of_every_small_job() {
    let mut states = 0;
    for (n, intervals, last, failures, merges) in [
        // Chains of several snapshots that start anew and are merged, and tasks lost twice.
        (1, &[1, 2, 4][..], 8, 2, 2),
        (2, &[1, 2, 4][..], 4, 2, 1),
        (3, &[1, 2, 4][..], 4, 0, 1),
        (3, &[1, 2][..], 2, 2, 0),
        // Every order in which snapshots become complete.
        (4, &[1, 2, 4][..], 4, 0, 0),
        (4, &[1, 2][..], 2, 1, 0),
    ] {
        for (edges, every) in jobs(n, intervals) {
            states += explore(n, &edges, &every, last, failures, merges);
        }
    }
    assert!(states > 100_000, "{states}");
}
