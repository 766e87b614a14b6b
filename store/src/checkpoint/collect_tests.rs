//! Whatever crashes when, what a manifest reaches stays, and what none can reach goes.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use object_store::memory::InMemory;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::checkpoint::chains::Chains;
use crate::checkpoint::manifest::SnapshotEntry;
use crate::checkpoint::manifest::tests::part;
use crate::checkpoint::names::ManifestName;
use crate::checkpoint::objects::tests::{Faulty, Wrong, over};

fn task(t: usize) -> TaskId {
    TaskId { job: 1, fragment: t as u32, index: 0 }
}

/// What survives every crash but what is in the object store: the meta store.
#[derive(Default)]
struct Durable {
    /// The value of the job's manifest.
    manifest: Option<Bytes>,
    pins: Vec<Bytes>,
    term: u32,
}

/// A job of two tasks, its leader, and an upload or a collection under way.
struct World {
    objects: SnapshotObjects,
    durable: Durable,
    /// The leader's books, and the sequence of its last manifest.
    chains: Chains,
    sequence: u64,
    position: [Epoch; 2],
    generation: [u64; 2],
    /// Snapshots whose objects are put but not filed, by task.
    uploaded: [Option<SnapshotEntry>; 2],
    merged: Option<(usize, SnapshotEntry)>,
    /// What an earlier collection has listed, or is about to delete.
    listed: Option<Vec<(ObjectName, u64)>>,
    doomed: Vec<ObjectName>,
    rng: SmallRng,
}

impl World {
    fn new(seed: u64) -> Self {
        let chains = Chains::new([(task(0), 1, 2, vec![task(1)]), (task(1), 1, 1, vec![])], 4).unwrap();
        let mut this = Self {
            objects: over(Arc::new(InMemory::new())),
            durable: Durable { term: 1, ..Durable::default() },
            chains,
            sequence: 0,
            position: [0; 2],
            generation: [1; 2],
            uploaded: [None, None],
            merged: None,
            listed: None,
            doomed: Vec::new(),
            rng: SmallRng::seed_from_u64(seed),
        };
        if this.rng.random() {
            this.write_manifest();
        }
        this
    }

    fn put(&self, name: PartName) -> ObjectRef {
        block_on(self.objects.put(ObjectName::Part(name), &[Bytes::from(ObjectName::Part(name).to_string())])).unwrap()
    }

    /// Uploads all or, if the writer dies on the way, some objects of a snapshot.
    fn upload(&mut self, t: usize) {
        let epoch = self.position[t] + [2, 1][t];
        if self.uploaded[t].is_some() || self.position[t] > self.chains.current(task(1)) + 3 {
            return;
        }
        let since = self.chains.since(task(t)).filter(|s| *s == self.position[t]);
        let name = |table| part(task(t), self.generation[t], epoch, table, false);
        let parts = (0..3).map(|table| vec![self.put(name(table))]).collect();
        let leaves = vec![];
        self.uploaded[t] =
            Some(SnapshotEntry { epoch, since, generation: self.generation[t], tables: vec![parts], leaves });
        self.position[t] = epoch;
    }

    fn merge(&mut self, t: usize) {
        let chain = self.chains.chain(task(t));
        if chain.len() > 1 && self.merged.is_none() {
            let epoch = chain[chain.len() - 1].epoch;
            let parts = vec![vec![vec![self.put(part(task(t), self.generation[t], epoch, 0, true))]]];
            let generation = self.generation[t];
            self.merged = Some((t, SnapshotEntry { epoch, since: None, generation, tables: parts, leaves: vec![] }));
        }
    }

    fn write_manifest(&mut self) {
        let manifest = self.chains.manifest(1, 1, self.durable.term, self.sequence + 1);
        let mut value = manifest.to_stored().unwrap().value;
        if self.rng.random() {
            // As if it were large.
            let name = ManifestName { incarnation: 1, job: 1, term: manifest.term, sequence: manifest.sequence };
            let object = block_on(self.objects.put(ObjectName::Manifest(name), &[value])).unwrap();
            value = serde_json::to_vec(&object).unwrap().into();
        }
        self.sequence += 1;
        // The leader may die before the meta store has it.
        if self.rng.random_bool(0.1) {
            self.new_leader();
        } else {
            self.durable.manifest = Some(value);
        }
    }

    fn read(&self, value: &Bytes) -> (Manifest, Option<ObjectRef>) {
        match serde_json::from_slice::<ObjectRef>(value) {
            Ok(o) => (Manifest::decode("m", &block_on(self.objects.get(&o)).unwrap()).unwrap(), Some(o)),
            Err(_) => (Manifest::decode("m", value).unwrap(), None),
        }
    }

    /// Another leader knows what is durable alone. Tasks live on and tell it again what they have
    /// uploaded since; here they are lost instead, now and then.
    fn new_leader(&mut self) {
        self.durable.term += 1;
        match self.durable.manifest.clone().map(|m| self.read(&m).0) {
            Some(m) => {
                self.sequence = m.sequence;
                self.chains = Chains::from_manifest(&m, 4).unwrap();
            }
            None => {
                let job = [(task(0), 1, 2, vec![task(1)]), (task(1), 1, 1, vec![])];
                (self.chains, self.sequence) = (Chains::new(job, 4).unwrap(), 0);
            }
        }
        self.merged = None;
        for t in 0..2 {
            self.lose(t);
        }
    }

    fn lose(&mut self, t: usize) {
        self.uploaded[t] = None;
        self.generation[t] += 1;
        let chain = self.chains.restart(task(t), self.generation[t]).unwrap();
        self.position[t] = chain.last().map_or(0, |s| s.epoch);
    }

    fn needed(&self) -> Needed {
        let manifests: Vec<_> = self.durable.manifest.iter().map(|m| self.read(m)).collect();
        let starting = match manifests.is_empty() {
            true => (0..2).map(|t| (task(t), self.generation[t])).collect(),
            false => BTreeMap::new(),
        };
        let pinned = self.durable.pins.iter().map(|m| self.read(m)).collect();
        Needed { manifests, pinned, starting, incarnation: 1, term: self.durable.term }
    }

    fn step(&mut self) {
        let t = self.rng.random_range(0..2);
        match self.rng.random_range(0..100) {
            0..35 => self.upload(t),
            35..60 => {
                if let Some(s) = self.uploaded[t].take() {
                    self.chains.file(task(t), s).unwrap();
                }
            }
            60..72 => self.write_manifest(),
            72..77 => self.merge(t),
            77..81 => {
                if let Some((t, s)) = self.merged.take() {
                    self.chains.replace(task(t), s);
                }
            }
            81..84 => self.lose(t),
            84 => self.new_leader(),
            85..87 => self.durable.pins.extend(self.durable.manifest.clone()),
            87..89 => drop(self.durable.pins.pop()),
            89..93 => self.listed = Some(block_on(self.objects.list(None)).unwrap()),
            // Much may have happened since the list was made.
            93..97 => {
                if let Some(listed) = self.listed.take() {
                    self.doomed = unreachable(&listed, &self.needed());
                }
            }
            // And since it was found what is to go; some of it goes, then the collector dies.
            _ => {
                let n = self.rng.random_range(0..=self.doomed.len());
                let some: Vec<ObjectName> = self.doomed.drain(..n).collect();
                block_on(self.objects.delete(some)).unwrap();
            }
        }
    }

    /// Everything that a restore may need is there, and what the leader has filed or is to file.
    fn check(&self) {
        let there: BTreeSet<ObjectName> =
            block_on(self.objects.list(None)).unwrap().into_iter().map(|(n, _)| n).collect();
        let all = self.durable.manifest.iter().chain(&self.durable.pins);
        let mut wanted: Vec<ObjectName> = Vec::new();
        for (m, own) in all.map(|m| self.read(m)) {
            wanted.extend(m.objects().map(|o| o.name));
            wanted.extend(own.map(|o| o.name));
        }
        wanted.extend(self.chains.objects().map(|o| o.name));
        wanted.extend(self.uploaded.iter().flatten().flat_map(|s| s.objects()).map(|o| o.name));
        for w in wanted {
            assert!(there.contains(&w), "{w} is gone");
        }
    }
}

#[test]
fn nothing_needed_is_ever_deleted_and_the_rest_goes_in_the_end() {
    let mut deleted = 0;
    for seed in 0..200 {
        let mut w = World::new(seed);
        for _ in 0..250 {
            let before = w.doomed.len();
            w.step();
            deleted += before.saturating_sub(w.doomed.len());
            w.check();
        }
        // Once nothing is under way, all that is there is reached.
        (0..2).for_each(|t| w.lose(t));
        w.merged = None;
        while w.durable.manifest.as_ref().is_none_or(|m| w.read(m).0.tasks[0].generation != w.generation[0]) {
            w.write_manifest();
        }
        let needed = w.needed();
        block_on(collect(&w.objects, async || Ok(needed.clone()))).unwrap();
        w.check();
        let mut reached: Vec<ObjectName> = Vec::new();
        for (m, own) in needed.manifests.iter().chain(&needed.pinned) {
            reached.extend(m.objects().map(|o| o.name));
            reached.extend(own.map(|o| o.name));
        }
        for (name, _) in block_on(w.objects.list(None)).unwrap() {
            assert!(reached.contains(&name), "{name} stays for ever");
        }
    }
    assert!(deleted > 5000, "{deleted}");
}

#[test]
fn an_error_before_the_first_delete_deletes_nothing() {
    let put = |o: &SnapshotObjects| {
        let name = ObjectName::Part(part(task(0), 1, 1, 0, false));
        block_on(o.put(name, &[Bytes::from_static(b"x")])).unwrap()
    };
    let broken = over(Faulty::new(|call, _| match call {
        "list" => Wrong::Io(io::ErrorKind::TimedOut),
        _ => Wrong::Nothing,
    }));
    let object = put(&broken);
    assert!(block_on(collect(&broken, async || Ok(Needed::default()))).is_err());
    assert!(block_on(broken.get(&object)).is_ok());

    let o = over(Arc::new(InMemory::new()));
    put(&o);
    let unreadable = || StoreError::Unavailable { what: "the meta store".into(), why: "x".into() };
    assert_eq!(block_on(collect(&o, async || Err(unreadable()))), Err(unreadable()));
    assert_eq!(block_on(o.list(None)).unwrap().len(), 1);
    // Nothing that is running wrote it.
    assert_eq!(block_on(collect(&o, async || Ok(Needed { incarnation: 1, ..Needed::default() }))), Ok(1));
}

#[test]
fn what_a_newer_incarnation_or_generation_writes_is_let_be() {
    let name =
        |incarnation, generation| ObjectName::Part(PartName { incarnation, ..part(task(0), generation, 1, 0, false) });
    let listed: Vec<_> = [name(1, 9), name(2, 1), name(2, 2), name(2, 3), name(3, 1)].map(|n| (n, 1)).into();
    let needed = Needed { incarnation: 2, starting: [(task(0), 2)].into(), ..Needed::default() };
    assert_eq!(unreachable(&listed, &needed), [name(1, 9), name(2, 1)]);
}
