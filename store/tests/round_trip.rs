//! A job's life over real files: snapshots, manifests under a term, a merge, a collection, and the
//! whole process gone in between.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use bytes::Bytes;
use futures::executor::block_on;
use object_store::path::Path;
use spate_engine::env::SystemClock;
use spate_engine::state::TableSegment;
use spate_engine::task::TaskId;
use spate_store::checkpoint::chains::{CHAIN, Chains};
use spate_store::checkpoint::codec::Layout;
use spate_store::checkpoint::collect::{Needed, collect};
use spate_store::checkpoint::compact::{compact, get_segment, put_segment};
use spate_store::checkpoint::manifest::{Manifest, SnapshotEntry};
use spate_store::checkpoint::names::PartName;
use spate_store::checkpoint::objects::{Retries, SnapshotObjects};
use spate_store::env::{BlockingSleep, ObjectDir};
use spate_store::meta::epochs::EpochLog;
use spate_store::meta::{Condition, Embedded, MetaError, MetaStore, Op, Revision};

const MANIFEST: &str = "jobs/1/manifest";

fn task(fragment: u32) -> TaskId {
    TaskId { job: 1, fragment, index: 0 }
}

/// What one process holds.
struct Process {
    objects: SnapshotObjects,
    meta: Arc<dyn MetaStore>,
    chains: Chains,
    term: u32,
    leads: Condition,
    sequence: u64,
    version: Option<Revision>,
    log: EpochLog,
}

impl Process {
    fn start(dir: &std::path::Path) -> Self {
        let store = Arc::new(ObjectDir::open(dir.join("objects")).unwrap());
        let objects = SnapshotObjects::new(store, Path::from("s"), Retries::default(), Arc::new(BlockingSleep));
        let meta: Arc<dyn MetaStore> =
            Arc::new(Embedded::open(dir.join("meta"), Arc::new(SystemClock::new())).unwrap());
        let leader = block_on(meta.get("leader")).unwrap();
        let term = leader.as_ref().map_or(0, |e| std::str::from_utf8(&e.value).unwrap().parse().unwrap()) + 1;
        let won = block_on(meta.put_if("leader", term.to_string().into(), leader.map(|e| e.version))).unwrap();
        let leads = Condition::Version("leader".into(), won);
        let log = EpochLog::new(meta.clone(), "epochs/", vec![leads.clone()]);
        let stored = block_on(meta.get(MANIFEST)).unwrap();
        let (chains, sequence) = match &stored {
            Some(e) => {
                let m = block_on(Manifest::get(MANIFEST, &e.value, &objects)).unwrap();
                (Chains::from_manifest(&m, CHAIN).unwrap(), m.sequence)
            }
            None => (Chains::new([(task(0), 1, 2, vec![task(1)]), (task(1), 1, 1, vec![])], CHAIN).unwrap(), 0),
        };
        Self { objects, meta, chains, term, leads, sequence, version: stored.map(|e| e.version), log }
    }

    /// Makes the books durable, if this process still leads.
    fn write_manifest(&mut self) -> Result<Revision, MetaError> {
        let m = self.chains.manifest(1, 1, self.term, self.sequence + 1);
        let value = block_on(m.put(&self.objects)).unwrap();
        let same = match self.version {
            Some(v) => Condition::Version(MANIFEST.into(), v),
            None => Condition::Absent(MANIFEST.into()),
        };
        let done = block_on(self.meta.commit(&[self.leads.clone(), same], &[Op::put(MANIFEST, value)]))?;
        (self.version, self.sequence) = (Some(done), m.sequence);
        block_on(self.log.truncate(m.epoch + 1))?;
        Ok(done)
    }

    fn snapshot(&mut self, fragment: u32, generation: u64, epoch: u64, rows: &[(u64, i64)]) {
        let since = self.chains.since(task(fragment));
        let values: ArrayRef = Arc::new(rows.iter().map(|r| Some(r.1)).collect::<Int64Array>());
        let segment = TableSegment {
            full: since.is_none(),
            ids: rows.iter().map(|r| r.0).collect(),
            vnodes: vec![7; rows.len()],
            weights: rows.iter().map(|r| i64::from(r.1 >= 0)).collect(),
            rows: RecordBatch::try_from_iter_with_nullable([("v", values, true)]).unwrap(),
        };
        let name = PartName {
            incarnation: 1,
            task: task(fragment),
            generation,
            epoch,
            merged: false,
            op: 0,
            table: 0,
            part: 0,
        };
        let parts = block_on(put_segment(&self.objects, name, &segment, Layout::default())).unwrap();
        let leaves = vec![Bytes::from(format!("offset {epoch}"))];
        let entry = SnapshotEntry { epoch, since, generation, tables: vec![vec![parts]], leaves };
        self.chains.file(task(fragment), entry).unwrap();
    }

    /// What a task starts from: its epoch, and its rows by id.
    fn restore(&mut self, fragment: u32, generation: u64) -> (u64, Vec<(u64, i64)>) {
        let chain = self.chains.restart(task(fragment), generation).unwrap();
        let mut rows = std::collections::BTreeMap::new();
        for snapshot in &chain {
            let Some(s) = block_on(get_segment(&self.objects, &snapshot.tables[0][0])).unwrap() else { continue };
            let values = s.rows.column(0).as_any().downcast_ref::<Int64Array>().unwrap().clone();
            for (i, id) in s.ids.iter().enumerate() {
                if s.weights[i] == 0 {
                    rows.remove(id)
                } else {
                    rows.insert(*id, values.value(i))
                };
            }
        }
        (chain.last().map_or(0, |s| s.epoch), rows.into_iter().collect())
    }

    fn collect(&self) -> usize {
        block_on(collect(&self.objects, async || {
            let e = self.meta.get(MANIFEST).await.unwrap().unwrap();
            let own = Manifest::pointer(MANIFEST, &e.value)?;
            let m = Manifest::get(MANIFEST, &e.value, &self.objects).await?;
            Ok(Needed { manifests: vec![(m, own)], incarnation: 1, term: self.term, ..Needed::default() })
        }))
        .unwrap()
    }
}

#[test]
fn a_job_goes_on_after_its_process_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut p = Process::start(dir.path());
    for epoch in 1..=5u64 {
        block_on(p.log.append(epoch, format!("record {epoch}").as_bytes())).unwrap();
        if epoch % 2 == 0 {
            p.snapshot(0, 1, epoch, &[(epoch, epoch as i64 * 10), (1, epoch as i64)]);
        }
        if epoch <= 4 {
            p.snapshot(1, 1, epoch, &[(epoch, epoch as i64), (epoch - 1, -1)]);
        }
        p.write_manifest().unwrap();
    }
    // The producer's sixth waits for the consumer's.
    p.snapshot(0, 1, 6, &[(6, 60)]);
    p.write_manifest().unwrap();
    assert_eq!((p.chains.current(task(0)), p.chains.current(task(1))), (4, 4));
    drop(p);

    let mut p = Process::start(dir.path());
    assert_eq!(p.term, 2);
    let records = block_on(p.log.read(0)).unwrap();
    assert_eq!(records, [(5, Bytes::from("record 5"))]);
    assert_eq!(p.restore(0, 2), (4, vec![(1, 4), (2, 20), (4, 40)]));
    assert_eq!(p.restore(1, 2), (4, vec![(4, 4)]));
    // Until the new generations are durable, the sixth might still be filed.
    assert_eq!(p.collect(), 0);
    p.write_manifest().unwrap();
    assert_eq!(p.collect(), 1);

    let merged = block_on(compact(&p.objects, 1, task(1), 2, p.chains.chain(task(1)), Layout::default())).unwrap();
    assert_eq!(p.collect(), 0, "it is about to be filed");
    assert!(p.chains.replace(task(1), merged));
    p.write_manifest().unwrap();
    assert_eq!(p.collect(), 4);
    assert_eq!(p.restore(1, 3), (4, vec![(4, 4)]));
    p.snapshot(1, 3, 5, &[(5, 5)]);
    p.write_manifest().unwrap();

    // Another takes over: nothing that this one still does counts.
    let term = block_on(p.meta.get("leader")).unwrap().unwrap();
    block_on(p.meta.put_if("leader", "3".into(), Some(term.version))).unwrap();
    p.snapshot(1, 3, 6, &[(6, 6)]);
    assert_eq!(p.write_manifest(), Err(MetaError::Conflict("leader".into())));
    assert_eq!(block_on(p.log.append(6, b"x")), Err(MetaError::Conflict("leader".into())));
    drop(p);
    let mut p = Process::start(dir.path());
    assert_eq!(p.restore(1, 4), (5, vec![(4, 4), (5, 5)]));
}
