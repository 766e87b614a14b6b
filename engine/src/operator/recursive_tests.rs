//! Reachability by UNION, and counted paths by UNION ALL, against computing them anew.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion_physical_expr::expressions::Column;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::operator::join::HashJoin;
use crate::operator::project::Project;
use crate::operator::testing::{apply, texts};
use crate::plan::{JoinKind, JoinSpec, ProjectSpec};
use crate::types::Tick;

fn schema(names: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(names.iter().map(|n| Field::new(*n, DataType::Int64, true)).collect::<Vec<_>>()))
}

/// Pairs and edges, joined at the pair's end and the edge's start.
fn make(distinct: bool) -> Recursive {
    let (pairs, edges) = (schema(&["a", "b"]), schema(&["c", "d"]));
    let spec = JoinSpec {
        kind: JoinKind::Inner,
        left_keys: vec![1],
        right_keys: vec![0],
        null_equal: false,
        filter: None,
        append_only_inputs: false,
        expire: [None, None],
        apart: None,
    };
    let joined = schema(&["a", "b", "c", "d"]);
    let join = HashJoin::new(&spec, pairs.clone(), edges.clone(), joined).unwrap();
    let exprs = vec![Arc::new(Column::new("a", 0)) as _, Arc::new(Column::new("d", 3)) as _];
    let project = Project::new(ProjectSpec { exprs }, pairs.clone()).unwrap();
    let step = Step {
        ops: vec![StepOp { op: Box::new(join), parent: Some((1, 0)) }, StepOp { op: Box::new(project), parent: None }],
        leaves: vec![StepLeaf { input: 0, parent: Some((0, 0)) }, StepLeaf { input: 1, parent: Some((0, 1)) }],
    };
    Recursive::new(step, distinct, true, &[pairs.clone(), edges], pairs).unwrap()
}

fn delta(schema: &SchemaRef, rows: &[(i64, i64, i64)]) -> Delta {
    let a: Int64Array = rows.iter().map(|r| r.0).collect();
    let b: Int64Array = rows.iter().map(|r| r.1).collect();
    let w: Int64Array = rows.iter().map(|r| r.2).collect();
    Delta::new(RecordBatch::try_new(schema.clone(), vec![Arc::new(a), Arc::new(b)]).unwrap(), Some(w)).unwrap()
}

fn epoch(
    op: &mut Recursive,
    tables: &mut Tables,
    edges: &[(i64, i64, i64)],
    pieces: usize,
) -> Result<Vec<(String, i64)>> {
    let mut out = Output::default();
    for part in edges.chunks(edges.len().div_ceil(pieces).max(1)) {
        op.push(1, delta(&schema(&["c", "d"]), part), tables, &mut out).unwrap();
        op.push(0, delta(&schema(&["x", "y"]), part), tables, &mut out).unwrap();
    }
    let tick = Tick { incarnation: 1, term: 1, epoch: 1, opened_us: 0, now_us: 1 };
    op.barrier(&BarrierInfo { tick, watermark: 0, input_watermarks: &[0, 0], complete: &[] }, tables, &mut out)?;
    Ok(out.take().iter().flat_map(texts).collect())
}

fn reachable(edges: &BTreeMap<(i64, i64), i64>) -> BTreeMap<String, i64> {
    let mut all: BTreeSet<(i64, i64)> = edges.keys().copied().collect();
    loop {
        let more: Vec<_> = all
            .iter()
            .flat_map(|(a, b)| edges.keys().filter(move |e| e.0 == *b).map(move |e| (*a, e.1)))
            .filter(|p| !all.contains(p))
            .collect();
        if more.is_empty() {
            return all.into_iter().map(|(a, b)| (format!("{a}|{b}"), 1)).collect();
        }
        all.extend(more);
    }
}

fn paths(edges: &BTreeMap<(i64, i64), i64>) -> BTreeMap<String, i64> {
    let mut last = edges.clone();
    let mut all = BTreeMap::new();
    while !last.is_empty() {
        let mut next: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for ((a, b), n) in &last {
            *all.entry(format!("{a}|{b}")).or_default() += n;
            for ((c, d), m) in edges {
                if c == b {
                    *next.entry((*a, *d)).or_default() += n * m;
                }
            }
        }
        last = next;
    }
    all
}

#[test]
fn follows_the_model() {
    for (seed, distinct) in (0..8u64).flat_map(|s| [(s, true), (s, false)]) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut ops = [make(distinct), make(distinct)];
        let mut tables = [Tables::new(&ops[0].tables()).unwrap(), Tables::new(&ops[1].tables()).unwrap()];
        let mut chain = vec![];
        let mut edges: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        let mut result = BTreeMap::new();
        for e in 0..12 {
            let mut changes = vec![];
            for _ in 0..if e == 11 { 0 } else { [5, 2, 0, 3][e % 4] } {
                let (a, b) = (rng.random_range(0..7), rng.random_range(0..7));
                // Counted paths must end.
                let (a, b) = if distinct { (a, b) } else { (a.min(b), a.max(b) + 1) };
                let n = edges.get(&(a, b)).copied().unwrap_or(0);
                let w = if e == 9 { -n } else { rng.random_range(-n..=2 - n.min(1)) };
                *edges.entry((a, b)).or_default() += w;
                changes.push((a, b, w));
            }
            if e == 11 {
                changes = edges.iter().map(|((a, b), n)| (*a, *b, -n)).collect();
                edges.clear();
            }
            edges.retain(|_, n| *n != 0);
            let whole = epoch(&mut ops[0], &mut tables[0], &changes, 1).unwrap();
            assert_eq!(epoch(&mut ops[1], &mut tables[1], &changes, 3).unwrap(), whole, "seed {seed}");
            chain.push(tables[1].snapshot(e == 0).unwrap());
            if e == 5 {
                ops[1] = make(distinct);
                tables[1] = Tables::new(&ops[1].tables()).unwrap();
                tables[1].restore(&chain).unwrap();
            }
            let mut once = BTreeSet::new();
            assert!(whole.iter().all(|(r, w)| *w != 0 && once.insert(r.clone())), "{whole:?}");
            apply(&mut result, &whole);
            let want = if distinct { reachable(&edges) } else { paths(&edges) };
            assert_eq!(result, want, "seed {seed}, epoch {e}, distinct {distinct}");
        }
    }
}

#[test]
fn what_never_ends_is_an_error() {
    let mut op = make(false);
    let mut tables = Tables::new(&op.tables()).unwrap();
    let e = epoch(&mut op, &mut tables, &[(1, 1, 1)], 1).unwrap_err();
    assert!(e.to_string().contains("WITH RECURSIVE has not come to an end after 10000 rounds"), "{e}");
    let mut op = make(false);
    let mut tables = Tables::new(&op.tables()).unwrap();
    let e = epoch(&mut op, &mut tables, &[(1, 1, 2)], 1).unwrap_err();
    assert!(e.to_string().contains("after 20000000 rows"), "{e}");
}
