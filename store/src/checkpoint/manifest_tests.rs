//! Manifests come back as they were, inline or as objects, and damaged ones never do.

use std::io;

use futures::executor::block_on;
use object_store::memory::InMemory;

use super::*;
use crate::checkpoint::names::PartName;
use crate::checkpoint::objects::tests::{Faulty, Wrong, over};

pub(in crate::checkpoint) fn part(task: TaskId, generation: u64, epoch: Epoch, table: u32, merged: bool) -> PartName {
    PartName { incarnation: 1, task, generation, epoch, merged, op: 0, table, part: 0 }
}

fn entry(task: TaskId, epoch: Epoch, since: Option<Epoch>, tables: u32) -> Arc<SnapshotEntry> {
    let object = |t| ObjectRef {
        name: ObjectName::Part(part(task, 2, epoch, t, false)),
        size: 17,
        checksum: u128::MAX / (u128::from(t) + 3),
    };
    let tables = vec![(0..tables).map(|t| vec![object(t)]).collect(), vec![vec![]]];
    let leaves = vec![Bytes::from_static(b"\x00\xffstate"), Bytes::new()];
    Arc::new(SnapshotEntry { epoch, since, generation: 2, tables, leaves })
}

fn manifest(tables: u32) -> Manifest {
    let task = |fragment| TaskId { job: 7, fragment, index: 0 };
    let of = |f, consumers: Vec<u32>, current, chain: &[(Epoch, Option<Epoch>)]| TaskEntry {
        task: task(f),
        generation: 3,
        every: 2,
        consumers: consumers.into_iter().map(task).collect(),
        current,
        chain: chain.iter().map(|(e, since)| entry(task(f), *e, *since, tables)).collect(),
    };
    let tasks = vec![
        of(0, vec![1], 4, &[(2, None), (4, Some(2)), (6, Some(4))]),
        of(1, vec![], 6, &[(2, None), (4, Some(2)), (6, None)]),
    ];
    Manifest { incarnation: 1, job: 7, term: 5, sequence: 9, epoch: 4, tasks }
}

#[test]
fn a_manifest_comes_back_as_it_was() {
    let o = over(Arc::new(InMemory::new()));
    for tables in [0, 1, 2000] {
        let m = manifest(tables);
        let value = block_on(m.put(&o)).unwrap();
        assert!(value.len() <= INLINE_MAX);
        assert_eq!(Manifest::pointer("k", &value).unwrap().is_some(), tables == 2000);
        assert_eq!(block_on(Manifest::get("k", &value, &o)).unwrap(), m);
    }
    assert_eq!(block_on(o.list(None)).unwrap().len(), 1);
    assert_eq!(manifest(2).objects().count(), 12);
}

#[test]
fn a_damaged_manifest_is_told_whatever_byte_it_is() {
    let o = over(Arc::new(InMemory::new()));
    for inline_max in [INLINE_MAX, 0] {
        let stored = manifest(1).stored(inline_max).unwrap();
        if let Some((name, bytes)) = &stored.object {
            block_on(o.put(*name, std::slice::from_ref(bytes))).unwrap();
        }
        let good = stored.value.to_vec();
        let corrupt = |bytes: &[u8]| matches!(block_on(Manifest::get("k", bytes, &o)), Err(StoreError::Corrupt { .. }));
        assert!(!corrupt(&good));
        for i in 0..good.len() {
            for flip in [1u8, 2, 0x10, 0x80] {
                let mut bad = good.clone();
                bad[i] ^= flip;
                assert!(corrupt(&bad), "{}", String::from_utf8_lossy(&bad));
            }
            assert!(corrupt(&good[..i]));
        }
        assert!(corrupt(&[good, b" ".to_vec()].concat()));
    }
}

#[test]
fn a_newer_format_is_refused_by_its_number() {
    let body = "{\"other\": 1}";
    for magic in [MAGIC, POINTER] {
        let newer = seal(magic, 7, body);
        let o = over(Arc::new(InMemory::new()));
        let e = block_on(Manifest::get("k", &newer, &o)).unwrap_err();
        assert_eq!(e, StoreError::Newer { what: "k".into(), found: 7, known: VERSION });
    }
}

#[test]
fn an_object_out_of_reach_is_not_a_missing_checkpoint() {
    let store = Faulty::new(|call, _| match call {
        "get" => Wrong::Io(io::ErrorKind::ConnectionReset),
        _ => Wrong::Nothing,
    });
    let o = over(store);
    let value = block_on(manifest(2000).put(&o)).unwrap();
    assert!(matches!(block_on(Manifest::get("k", &value, &o)), Err(StoreError::Unavailable { .. })));
}

#[test]
fn a_manifest_that_does_not_hang_together_is_refused() {
    let broken: [fn(&mut Manifest); 10] = [
        |m| m.tasks[0].current = 5,
        |m| (m.tasks[0].current, m.tasks[1].current) = (6, 4),
        |m| m.tasks[1].current = 2,
        |m| drop(m.tasks[0].chain.remove(1)),
        |m| drop(m.tasks[0].chain.remove(0)),
        |m| m.tasks[1].chain.reverse(),
        |m| m.tasks.reverse(),
        |m| m.tasks[0].generation = 1,
        |m| m.epoch = 5,
        |m| m.tasks[0].consumers.push(TaskId { job: 7, fragment: 9, index: 0 }),
    ];
    for (i, b) in broken.iter().enumerate() {
        let mut m = manifest(1);
        b(&mut m);
        let value = m.to_stored().unwrap().value;
        assert!(matches!(Manifest::decode("k", &value), Err(StoreError::Corrupt { .. })), "{i}");
    }
}
