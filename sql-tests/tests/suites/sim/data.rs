//! What the simulated jobs read: the catalog, seeded rows for sources, scripted changes for tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use rand::Rng;
use rand::rngs::SmallRng;
use spate_engine::plan::{ObjectId, WatermarkSpec};
use spate_engine::sim::cluster::Script;
use spate_engine::sim::source::SimRows;
use spate_engine::types::{Delta, ErrorKind, Result, SpateError};
use spate_planner::bind::Resolver;
use spate_planner::catalog::{Relation, RelationKind};
use spate_planner::sql::Query;

/// Sources `s` (watermark, ends), `r` (no watermark, ends), `w` (watermark, finds splits as it
/// goes, never ends); table `t` with a key; view `mv` in two partitions; append-only table `lg`.
pub struct Catalog;

fn relation(id: ObjectId, name: &str, kind: RelationKind, columns: &[(&str, DataType)]) -> Relation {
    let fields: Vec<Field> = columns.iter().map(|(n, t)| Field::new(*n, t.clone(), *n != "id")).collect();
    Relation {
        id,
        schema_name: "public".into(),
        name: name.into(),
        kind,
        schema: Arc::new(Schema::new(fields)),
        key: None,
        append_only: false,
        watermark: None,
        bounded: false,
        query: None,
    }
}

fn ts() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn relations() -> Vec<Relation> {
    use DataType::{Int32, Int64, Utf8};
    let s = [("k", Int32), ("v", Int64), ("name", Utf8), ("ts", ts())];
    let watermark = Some(WatermarkSpec { column: 3, delay_us: 2_000_000, idle_us: None });
    // A split that is slow to be read is let go now and then.
    let impatient = Some(WatermarkSpec { column: 3, delay_us: 2_000_000, idle_us: Some(300_000) });
    let source = |r: Relation| Relation { append_only: true, ..r };
    vec![
        source(Relation { watermark, bounded: true, ..relation(1, "s", RelationKind::Source, &s) }),
        source(Relation {
            bounded: true,
            ..relation(2, "r", RelationKind::Source, &[("k", Int32), ("v", Int64), ("name", Utf8), ("ts", ts())])
        }),
        source(Relation { watermark: impatient, ..relation(3, "w", RelationKind::Source, &s) }),
        Relation {
            key: Some(vec![0]),
            ..relation(4, "t", RelationKind::Table, &[("id", Int64), ("k", Int32), ("v", Int64), ("name", Utf8)])
        },
        relation(5, "mv", RelationKind::MaterializedView, &[("k", Int32), ("n", Int64)]),
        Relation { append_only: true, ..relation(6, "lg", RelationKind::Table, &[("k", Int32), ("n", Int64)]) },
    ]
}

/// A relation by id.
pub fn by_id(id: ObjectId) -> Option<Relation> {
    relations().into_iter().find(|r| r.id == id)
}

impl Resolver for Catalog {
    fn relation(&self, _schema: Option<&str>, name: &str) -> Result<Arc<Relation>> {
        let found = relations().into_iter().find(|r| &*r.name == name);
        found.map(Arc::new).ok_or_else(|| SpateError::new(ErrorKind::NotFound, format!("no relation {name}")))
    }

    fn parse_view(&self, view: &Relation) -> Result<Query> {
        Err(SpateError::internal(format!("{} is no view", view.name)))
    }
}

const NAMES: [&str; 6] = ["ash", "birch", "cedar", "elm", "", "oak"];

fn key(rng: &mut SmallRng) -> Option<i32> {
    rng.random_bool(0.93).then(|| rng.random_range(0..7))
}

fn value(rng: &mut SmallRng) -> Option<i64> {
    rng.random_bool(0.9).then(|| rng.random_range(-20..40))
}

fn name(rng: &mut SmallRng) -> Option<&'static str> {
    rng.random_bool(0.9).then(|| NAMES[rng.random_range(0..NAMES.len())])
}

/// Rows of a source: one to five splits, some empty, event times that rise with much jitter.
pub fn source_rows(id: ObjectId, rng: &mut SmallRng) -> SimRows {
    let schema = by_id(id).unwrap().schema;
    let splits = (0..rng.random_range(1..=5)).map(|_| {
        let n = if rng.random_bool(0.1) { 0 } else { rng.random_range(10..70) };
        let mut k = Vec::new();
        let mut v = Vec::new();
        let mut s = Vec::new();
        let mut t = Vec::new();
        for i in 0..n {
            k.push(key(rng));
            v.push(value(rng));
            s.push(name(rng));
            let jitter = if rng.random_bool(0.1) { -9_000_000 } else { rng.random_range(-1_500_000..1_500_000) };
            t.push(rng.random_bool(0.97).then_some(i64::from(i) * 700_000 + jitter));
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(k)),
            Arc::new(Int64Array::from(v)),
            Arc::new(StringArray::from(s)),
            Arc::new(TimestampMicrosecondArray::from(t)),
        ];
        RecordBatch::try_new(schema.clone(), columns).unwrap()
    });
    SimRows { schema: schema.clone(), splits: splits.collect(), watch: id == 3 }
}

type TRow = (i64, Option<i32>, Option<i64>, Option<&'static str>);
type MvRow = (Option<i32>, i64);

fn t_delta(schema: &SchemaRef, rows: &[(TRow, i64)]) -> Delta {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|r| Some(r.0.0)).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.0.1).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|r| r.0.2).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.0.3).collect::<StringArray>()),
    ];
    let weights = rows.iter().map(|r| r.1).collect::<Vec<_>>();
    Delta::new(RecordBatch::try_new(schema.clone(), columns).unwrap(), Some(Int64Array::from(weights))).unwrap()
}

fn mv_delta(schema: &SchemaRef, rows: &[(MvRow, i64)]) -> Delta {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|r| r.0.0).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|r| Some(r.0.1)).collect::<Int64Array>()),
    ];
    let weights: Vec<i64> = rows.iter().map(|r| r.1).collect();
    let plain = weights.iter().all(|w| *w == 1);
    let weights = (!plain).then(|| Int64Array::from(weights));
    Delta::new(RecordBatch::try_new(schema.clone(), columns).unwrap(), weights).unwrap()
}

/// What happens to a table or view in so many epochs; the first bring most rows.
pub fn script(id: ObjectId, epochs: u64, rng: &mut SmallRng) -> Script {
    let relation = by_id(id).unwrap();
    let schema = relation.schema.clone();
    let partitions = if id == 5 { 2 } else { 1 };
    let mut live: BTreeMap<i64, TRow> = BTreeMap::new();
    let mut bags: Vec<Vec<MvRow>> = vec![Vec::new(); partitions];
    let mut next = 0;
    let mut changes = Vec::new();
    for epoch in 0..epochs {
        let n = if epoch < 2 { rng.random_range(5..30) } else { rng.random_range(0..5) };
        let mut of_epoch = Vec::new();
        for bag in &mut bags {
            let mut deltas = Vec::new();
            for _ in 0..if n == 0 { 0 } else { rng.random_range(1..=3) } {
                let mut t_rows = Vec::new();
                let mut mv_rows = Vec::new();
                for _ in 0..n {
                    if id == 4 {
                        let old = rng.random_range(0..=next);
                        if let Some(row) = live.remove(&old).filter(|_| epoch > 0) {
                            t_rows.push((row, -1));
                        }
                        let id = if rng.random_bool(0.4) { old } else { next + 1 };
                        next = next.max(id);
                        if rng.random_bool(0.8) && !live.contains_key(&id) {
                            let row = (id, key(rng), value(rng), name(rng));
                            live.insert(id, row);
                            t_rows.push((row, 1));
                        }
                    } else {
                        if id == 5 && !bag.is_empty() && rng.random_bool(0.5) {
                            let i = rng.random_range(0..bag.len());
                            mv_rows.push((bag.swap_remove(i), -1));
                        }
                        let row = (key(rng), rng.random_range(0..9));
                        let weight = if id == 5 { rng.random_range(1..=3) } else { 1 };
                        bag.extend((0..weight).map(|_| row));
                        mv_rows.push((row, weight));
                    }
                }
                let delta = if id == 4 { t_delta(&schema, &t_rows) } else { mv_delta(&schema, &mv_rows) };
                deltas.push(delta);
            }
            of_epoch.push(deltas);
        }
        changes.push(of_epoch);
    }
    Script { schema, append_only: relation.append_only, changes, partitions }
}
