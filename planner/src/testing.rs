//! A small catalog and one-line helpers for the planner's tests.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion_expr::LogicalPlan;
use datafusion_sql::sqlparser::ast;
use datafusion_sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion_sql::sqlparser::parser::Parser;
use spate_engine::plan::{OpSpec, StreamNode, WatermarkSpec};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use crate::bind::{BindMode, Resolver, bind_query};
use crate::catalog::{Relation, RelationKind};
use crate::lower::{LowerOptions, Target, lower};
use crate::rules::guard::ErrorCounter;
use crate::sql::did_you_mean;

/// The catalog: table `t` with a key, append-only source `bids` with a watermark, table
/// `u`, materialized view `mv`, views `v` and `broken`.
pub(crate) struct Catalog;

fn relation(id: u64, name: &str, kind: RelationKind, columns: &[(&str, DataType)]) -> Relation {
    let fields: Vec<Field> = columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect();
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

pub(crate) fn ts() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn relations() -> Vec<Relation> {
    let t = relation(
        1,
        "t",
        RelationKind::Table,
        &[("id", DataType::Int64), ("k", DataType::Int32), ("v", DataType::Int64), ("s", DataType::Utf8)],
    );
    let mut fields: Vec<Field> = t.schema.fields().iter().map(|f| f.as_ref().clone()).collect();
    fields[0] = fields[0].clone().with_nullable(false);
    let t = Relation { key: Some(vec![0]), schema: Arc::new(Schema::new(fields)), ..t };
    let bids = Relation {
        append_only: true,
        watermark: Some(WatermarkSpec { column: 3, delay_us: 5_000_000, idle_us: None }),
        ..relation(
            2,
            "bids",
            RelationKind::Source,
            &[("auction", DataType::Int64), ("price", DataType::Int64), ("note", DataType::Utf8), ("ts", ts())],
        )
    };
    let u = relation(
        3,
        "u",
        RelationKind::Table,
        &[
            ("id", DataType::Int64),
            ("k", DataType::Int64),
            ("d", DataType::Decimal128(10, 2)),
            ("f", DataType::Float64),
        ],
    );
    let mv = Relation {
        key: Some(vec![0]),
        ..relation(4, "mv", RelationKind::MaterializedView, &[("k", DataType::Int64), ("n", DataType::Int64)])
    };
    let v = Relation {
        query: Some("SELECT k, v + 1 AS w FROM t WHERE v > 0".into()),
        ..relation(5, "v", RelationKind::View, &[("k", DataType::Int32), ("w", DataType::Int64)])
    };
    let broken = Relation {
        query: Some("SELECT nope FROM t".into()),
        ..relation(6, "broken", RelationKind::View, &[("nope", DataType::Int32)])
    };
    let cycle = Relation {
        query: Some("SELECT * FROM cycle".into()),
        ..relation(7, "cycle", RelationKind::View, &[("k", DataType::Int32)])
    };
    vec![t, bids, u, mv, v, broken, cycle]
}

impl Resolver for Catalog {
    fn relation(&self, _schema: Option<&str>, name: &str) -> Result<Arc<Relation>> {
        let all = relations();
        match all.iter().find(|r| &*r.name == name) {
            Some(r) => Ok(Arc::new(r.clone())),
            None => {
                let e = SpateError::new(ErrorKind::NotFound, format!("relation \"{name}\" does not exist"));
                Err(match did_you_mean(name, all.iter().map(|r| &*r.name)) {
                    Some(near) => e.with_hint(format!("did you mean \"{near}\"?")),
                    None => e,
                })
            }
        }
    }

    fn parse_view(&self, view: &Relation) -> Result<ast::Query> {
        Ok(parse(view.query.as_deref().unwrap()))
    }
}

pub(crate) fn parse(sql: &str) -> ast::Query {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
    match statements.remove(0) {
        ast::Statement::Query(q) => *q,
        other => panic!("not a query: {other}"),
    }
}

/// What a counter was told: (expression, rows, error).
pub(crate) type Counted = Arc<Mutex<Vec<(String, u64, String)>>>;

pub(crate) fn counting() -> (BindMode, Counted) {
    let counted: Counted = Arc::default();
    let seen = Arc::clone(&counted);
    let errors = ErrorCounter::new(move |e, n, s| seen.lock().unwrap().push((e.to_string(), n, s.to_string())));
    (BindMode::Continuous { errors }, counted)
}

pub(crate) fn bind(sql: &str) -> Result<LogicalPlan> {
    bind_query(&Catalog, &parse(sql), &BindMode::Continuous { errors: ErrorCounter::ignore() })
}

/// Binds, optimizes and lowers.
pub(crate) fn stream(sql: &str, parallelism: usize, on_close: bool) -> Result<StreamNode> {
    let plan = crate::rules::optimize_continuous(bind(sql)?)?;
    let target = Target::Materialize { id: 100, name: "out".into() };
    lower(&plan, &LowerOptions { parallelism, emit_on_window_close: on_close, target })
}

/// Compares texts; a leading line break and the indentation of the first line are left out
/// of what is expected.
#[track_caller]
pub(crate) fn check_text(actual: &str, expected: &str) {
    let expected = expected.strip_prefix('\n').unwrap_or(expected);
    let indent = expected.len() - expected.trim_start_matches(' ').len();
    let lines: Vec<&str> = expected.lines().map(|l| l.get(indent..).unwrap_or(l.trim_start())).collect();
    let expected = lines.join("\n");
    assert_eq!(actual.trim_end(), expected.trim_end(), "\nactual:\n{actual}");
}

/// The error of a continuous query, as `kind: message (line:column) hint`.
pub(crate) fn refusal(sql: &str, parallelism: usize, on_close: bool) -> String {
    match stream(sql, parallelism, on_close) {
        Ok(plan) => format!("accepted:\n{}", plan.explain()),
        Err(e) => {
            let at = e.position().map_or(String::new(), |(l, c)| format!(" ({l}:{c})"));
            let hint = e.hint().map_or(String::new(), |h| format!(" hint: {h}"));
            format!("{:?}: {}{at}{hint}", e.kind(), e.message())
        }
    }
}

/// Runs the stateless operators of a plan over the rows of its only scan.
pub(crate) fn run(node: &StreamNode, rows: &RecordBatch) -> RecordBatch {
    let input = || run(node.inputs.first().unwrap(), rows);
    match &node.op {
        OpSpec::Scan(s) => rows.project(&s.projection).unwrap(),
        OpSpec::Source(s) => rows.project(&s.projection).unwrap(),
        OpSpec::Values(v) => v.rows.clone(),
        OpSpec::Materialize(_) => input(),
        OpSpec::Filter(f) => {
            let input = input();
            let mask = f.predicate.evaluate(&input).unwrap().into_array(input.num_rows()).unwrap();
            arrow::compute::filter_record_batch(&input, mask.as_boolean()).unwrap()
        }
        OpSpec::Project(p) => {
            let input = input();
            let columns: Vec<ArrayRef> =
                p.exprs.iter().map(|e| e.evaluate(&input).unwrap().into_array(input.num_rows()).unwrap()).collect();
            RecordBatch::try_new(Arc::clone(&node.schema), columns).unwrap()
        }
        OpSpec::Unnest(u) => {
            let input = input();
            let lists = input.column(u.columns[0]).as_list::<i32>().clone();
            let mut from = Vec::new();
            for i in 0..lists.len() {
                from.extend(std::iter::repeat_n(i as u32, lists.value(i).len()));
            }
            let from = UInt32Array::from(from);
            let columns: Vec<ArrayRef> = (0..input.num_columns())
                .map(|c| {
                    if c == u.columns[0] {
                        lists.values().slice(lists.value_offsets()[0] as usize, from.len())
                    } else {
                        arrow::compute::take(input.column(c), &from, None).unwrap()
                    }
                })
                .collect();
            RecordBatch::try_new(Arc::clone(&node.schema), columns).unwrap()
        }
        other => panic!("{} keeps state", other.name()),
    }
}

/// A batch of the columns of a catalog relation.
pub(crate) fn batch(relation: &str, columns: Vec<ArrayRef>) -> RecordBatch {
    let relation = Catalog.relation(None, relation).unwrap();
    RecordBatch::try_new(Arc::clone(&relation.schema), columns).unwrap()
}

/// Rows as text, one line each, cells separated by spaces, `-` for NULL.
pub(crate) fn lines(batch: &RecordBatch) -> String {
    let options = arrow::util::display::FormatOptions::default().with_null("-");
    let columns: Vec<_> =
        batch.columns().iter().map(|c| arrow::util::display::ArrayFormatter::try_new(c, &options).unwrap()).collect();
    let rows =
        (0..batch.num_rows()).map(|i| columns.iter().map(|c| c.value(i).to_string()).collect::<Vec<_>>().join(" "));
    rows.collect::<Vec<_>>().join("\n")
}
