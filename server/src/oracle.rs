//! The oracle: recomputes every materialized view in batch and compares (a view equals its
//! query at every epoch).
//!
//! The view's query is bound as for continuous running, so that both sides mean the same plan,
//! and run by DataFusion over the inputs' rows at the same epoch: those of tables and views from
//! their stores, those of sources as they were accepted. Floats may differ in their last digits, sums
//! of floats by what [`sums`] says.

mod sums;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Float64Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::TableProvider;
use datafusion::logical_expr::LogicalPlan;
use spate_engine::plan::{OpSpec, Properties, StreamNode};
use spate_engine::types::{Epoch, ErrorKind, Result, SpateError, WATERMARK_MAX, Watermark};
use spate_planner::bind::{BindMode, bind_error, bind_query, relations_of, with_now};
use spate_planner::catalog::{Object, ObjectKind, Relation, RelationKind};
use spate_planner::rules::guard::ErrorCounter;
use spate_planner::sql::parse_query;

use crate::batch::provider::Snapshot;
use crate::session::Engine;
use crate::session::resolver::Names;

/// Rows of a difference that an error shows.
const SHOWN: usize = 5;
/// Relative error that floats may have: the last rounding of each side.
const ROUNDING: f64 = 4.0 * f64::EPSILON;
/// Relative error that floats may have where they are added up in an order that is not known: over
/// windows, and of distinct values.
const REORDERED: f64 = 1e-9;

/// Checks what the planner derived of a view's key: no two rows have one. (That an append-only view
/// takes nothing back its store checks at every write.)
fn check_key(view: &Relation, rows: &[RecordBatch]) -> Result<()> {
    let Some(key) = &view.key else { return Ok(()) };
    let twice = |what: String| {
        let name = view.display_name();
        Err(SpateError::internal(format!("view \"{name}\" has a key by its plan, but two rows of it: {what}")))
    };
    let mut seen = HashSet::new();
    for batch in rows {
        if key.is_empty() {
            if batch.num_rows() + seen.len() > 1 {
                return twice("it has no columns".into());
            }
            seen.extend((0..batch.num_rows()).map(|_| Vec::new()));
            continue;
        }
        let columns: Vec<ArrayRef> = key.iter().map(|c| batch.column(*c).clone()).collect();
        let fields: Vec<SortField> = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
        // Such types are no keys of tables either.
        if !RowConverter::supports_fields(&fields) {
            return Ok(());
        }
        let encoded = RowConverter::new(fields)?.convert_columns(&columns)?;
        for (i, row) in encoded.iter().enumerate() {
            if !seen.insert(row.data().to_vec()) {
                let formats = columns.iter().map(|c| ArrayFormatter::try_new(c, &FormatOptions::default()));
                let formats = formats.collect::<std::result::Result<Vec<_>, _>>()?;
                let shown: Vec<String> = formats.iter().map(|f| f.value(i).to_string()).collect();
                return twice(format!("({})", shown.join(", ")));
            }
        }
    }
    Ok(())
}

impl Engine {
    /// Waits until all input so far is in all views, then recomputes every materialized view in
    /// batch with DataFusion and compares. Returns the number of views checked; the error shows
    /// the difference.
    ///
    /// Views over connectors can be checked only if the engine records sources; else they are
    /// passed over.
    pub async fn verify_views(&self) -> Result<usize> {
        let epoch = self.worker.request_tick();
        self.wait_visible(epoch).await?;
        self.verify_at_visible().await
    }

    /// Compares every view at the newest visible epoch.
    pub async fn verify_at_visible(&self) -> Result<usize> {
        let views: Vec<Arc<Object>> = {
            let catalog = self.catalog.lock();
            catalog.list(Some(ObjectKind::MaterializedView), None).into_iter().cloned().collect()
        };
        let mut checked = 0;
        for view in views {
            let mut tries = 0;
            let done = loop {
                match self.verify(&view).await {
                    // The epoch was let go meanwhile: take a newer one.
                    Err(e) if e.kind() == ErrorKind::NotFound && tries < 10 => tries += 1,
                    // A view that differs names itself.
                    Err(e) if e.message().contains(&format!("\"{}\"", view.name)) => return Err(e),
                    Err(e) => return Err(e.context(format_args!("view \"{}\"", view.name))),
                    Ok(done) => break done,
                }
            };
            checked += usize::from(done);
        }
        Ok(checked)
    }

    async fn verify(&self, view: &Arc<Object>) -> Result<bool> {
        let visible = self.worker.visible();
        let (Some(job), Some(store)) = (self.worker.job(view.id), self.worker.store(view.id)) else {
            return Ok(false);
        };
        // A view that has stopped or is catching up promises nothing yet.
        if job.error.is_some() || job.ready.is_none_or(|r| r > visible) {
            return Ok(false);
        }
        let Some(relation) = &view.relation else { return Ok(false) };
        let Some(text) = relation.query.as_deref() else { return Ok(false) };
        let query = parse_query(text)?;
        let path = vec![view.schema.to_string(), "public".to_owned()];
        let plan = {
            let names = Names::new(self, &path);
            bind_query(&names, &query, &BindMode::Continuous { errors: ErrorCounter::ignore() })?
        };
        let opened = match self.worker.opened_us(visible) {
            Some(at) => at,
            None if visible == 0 => i64::MIN,
            None => return Err(SpateError::new(ErrorKind::NotFound, format!("epoch {visible} is long gone"))),
        };
        let plan = with_now(plan, opened)?;
        let relations = relations_of(&plan)?;
        let mut rows: BTreeMap<u64, Arc<dyn TableProvider>> = BTreeMap::new();
        for r in &relations {
            let batches = if r.kind == RelationKind::Source {
                match self.recorded(view.id, r, visible)? {
                    Some(b) => b,
                    None => return Ok(false),
                }
            } else {
                let s = self.worker.store(r.id);
                s.ok_or_else(|| SpateError::internal("an input without a store"))?.rows_at(visible)?
            };
            rows.insert(r.id, Snapshot::new(r.schema.clone(), batches));
        }
        let run = async |plan: LogicalPlan| {
            let physical = self
                .batch
                .plan(plan, |r| rows.get(&r.id).cloned().ok_or_else(|| SpateError::internal("no rows for an input")))
                .await?;
            Ok::<_, SpateError>(self.batch.collect(physical).await?.1)
        };
        let expected = run(plan.clone()).await?;
        let actual = store.rows_at(visible)?;
        // What such a view holds depends on when its rows came, which batch cannot know.
        let finds = |what: fn(&StreamNode) -> bool| {
            let found =
                self.worker.with_tasks(view.id, |t| t.graph().fragments.iter().any(|f| finds_node(&f.root, what)));
            found.unwrap_or(false)
        };
        if finds(|n| n.props.order.epochs) {
            return Ok(false);
        }
        check_key(relation, &actual)?;
        let partial = finds(emits_on_close) && store.watermark() != WATERMARK_MAX;
        let relative = if sums::others(&plan).map_err(bind_error)? { REORDERED } else { ROUNDING };
        let mut compared = compare(&relation.schema, &expected, &actual, partial, &Tolerance { relative, moved: None });
        if compared.is_err()
            && let Some(exact) = sums::without_rounding(plan.clone(), false).map_err(bind_error)?
            && let Some(moved) = sums::without_rounding(plan, true).map_err(bind_error)?
        {
            let (exact, moved) = (run(exact).await?, run(moved).await?);
            let tolerance = Tolerance { relative, moved: Some(&moved) };
            compared = compare(&relation.schema, &exact, &actual, partial, &tolerance);
        }
        compared.map_err(|difference| {
            SpateError::internal(format!(
                "view \"{}\" differs from its query at epoch {visible}:\n{difference}",
                view.display_name()
            ))
        })?;
        Ok(true)
    }

    /// What the plan of a materialized view derived of its rows, and the watermark that they have reached;
    /// `None` if there is no such view, or it does not run. For tests that hold it against the rows.
    pub fn derived(&self, view: &str) -> Option<(Properties, Watermark)> {
        let id = {
            let catalog = self.catalog.lock();
            catalog.list(Some(ObjectKind::MaterializedView), None).iter().find(|o| o.display_name() == view)?.id
        };
        let root = self.worker.with_tasks(id, |t| t.graph().fragments.last().map(|f| f.root.props.clone()))??;
        Some((root, self.worker.store(id)?.watermark()))
    }

    /// Rows of a source that a job accepted up to an epoch, in the source's whole schema; columns
    /// that the job does not read are NULL.
    fn recorded(&self, job: u64, source: &Relation, epoch: Epoch) -> Result<Option<Vec<RecordBatch>>> {
        let leaves = self.worker.with_tasks(job, |t| {
            let mut found = Vec::new();
            for f in &t.graph().fragments {
                let mut specs = Vec::new();
                leaves_of(&f.root, &mut specs);
                for (i, node) in specs.into_iter().enumerate() {
                    if let OpSpec::Source(s) = &node.op
                        && s.id == source.id
                    {
                        found.push((f.id as u32, i, s.projection.clone()));
                    }
                }
            }
            found
        });
        let mut all: Vec<Vec<RecordBatch>> = Vec::new();
        for (fragment, leaf, projection) in leaves.unwrap_or_default() {
            let Some(batches) = self.worker.logs.recorded(job, fragment, leaf, epoch) else { return Ok(None) };
            let mut whole = Vec::new();
            for b in batches {
                let n = b.num_rows();
                let columns: Vec<ArrayRef> = source
                    .schema
                    .fields()
                    .iter()
                    .enumerate()
                    .map(|(i, f)| match projection.iter().position(|p| *p == i) {
                        Some(k) => b.column(k).clone(),
                        None => new_null_array(f.data_type(), n),
                    })
                    .collect();
                whole.push(RecordBatch::try_new(nullable(&source.schema), columns)?);
            }
            all.push(whole);
        }
        // A source that is read twice by one job is read by two readers; the batch plan has only
        // one scan to give rows to: such a view is passed over.
        if all.len() > 1 {
            return Ok(None);
        }
        Ok(Some(all.pop().unwrap_or_default()))
    }
}

fn nullable(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
    Arc::new(arrow::datatypes::Schema::new(fields.collect::<Vec<_>>()))
}

fn leaves_of<'a>(node: &'a StreamNode, out: &mut Vec<&'a StreamNode>) {
    if node.inputs.is_empty() {
        out.push(node);
    }
    node.inputs.iter().for_each(|i| leaves_of(i, out));
}

fn emits_on_close(node: &StreamNode) -> bool {
    match &node.op {
        OpSpec::Aggregate(a) => a.emit_on_close,
        OpSpec::Session(s) => s.emit_on_close,
        OpSpec::Over(o) => o.emit_on_close,
        OpSpec::GroupTopN(t) => t.emit_on_close,
        OpSpec::AsOf(a) => a.emit_on_close,
        OpSpec::Close(_) => true,
        _ => false,
    }
}

fn finds_node(node: &StreamNode, what: fn(&StreamNode) -> bool) -> bool {
    what(node) || node.inputs.iter().any(|n| finds_node(n, what))
}

/// A bag of rows in a canonical order: columns that compare exactly first, then floats.
struct Sorted {
    rows: RecordBatch,
    keys: arrow::row::Rows,
    order: Vec<usize>,
}

fn is_float(t: &DataType) -> bool {
    matches!(t, DataType::Float16 | DataType::Float32 | DataType::Float64)
}

fn sorted(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Sorted> {
    let schema = nullable(schema);
    let mut aligned = Vec::new();
    for b in batches {
        let columns = b
            .columns()
            .iter()
            .zip(schema.fields())
            .map(|(c, f)| cast(c, f.data_type()))
            .collect::<Result<Vec<_>, _>>()?;
        aligned.push(RecordBatch::try_new(schema.clone(), columns)?);
    }
    let rows = concat_batches(&schema, &aligned)?;
    let (exact, floats): (Vec<usize>, Vec<usize>) =
        (0..rows.num_columns()).partition(|i| !is_float(schema.field(*i).data_type()));
    let exact: Vec<ArrayRef> = exact.iter().map(|i| rows.column(*i).clone()).collect();
    let fields = exact.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    let keys = if exact.is_empty() {
        RowConverter::new(vec![SortField::new(DataType::Null)])?
            .convert_columns(&[new_null_array(&DataType::Null, rows.num_rows())])?
    } else {
        RowConverter::new(fields)?.convert_columns(&exact)?
    };
    let values: Vec<ArrayRef> =
        floats.iter().map(|i| cast(rows.column(*i), &DataType::Float64)).collect::<Result<_, _>>()?;
    let mut order: Vec<usize> = (0..rows.num_rows()).collect();
    order.sort_by(|a, b| {
        keys.row(*a).cmp(&keys.row(*b)).then_with(|| {
            for v in &values {
                let v = v.as_primitive::<Float64Type>();
                let at = |i: usize| v.is_valid(i).then(|| v.value(i) + 0.0);
                let o = match (at(*a), at(*b)) {
                    (Some(x), Some(y)) => x.total_cmp(&y),
                    (x, y) => x.is_some().cmp(&y.is_some()),
                };
                if o.is_ne() {
                    return o;
                }
            }
            std::cmp::Ordering::Equal
        })
    });
    Ok(Sorted { rows, keys, order })
}

/// How far floats may be from what is expected.
struct Tolerance<'a> {
    /// In terms of their size.
    relative: f64,
    /// What is expected with sums off by as much as they may be: the distance is allowed.
    moved: Option<&'a [RecordBatch]>,
}

fn float(a: &ArrayRef, i: usize) -> Option<f64> {
    let a = cast(a, &DataType::Float64).ok()?;
    let a = a.as_primitive::<Float64Type>();
    a.is_valid(i).then(|| a.value(i))
}

/// Whether `found` may stand for `expected`, which a move of the sums brings to `moved`.
fn close(expected: Option<f64>, found: Option<f64>, moved: Option<f64>, relative: f64) -> bool {
    let (Some(x), Some(y)) = (expected, found) else { return expected.is_none() && found.is_none() };
    let allowed = moved.map_or(0.0, |m| (m - x).abs());
    let allowed = if allowed.is_finite() { allowed } else { 0.0 };
    x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= allowed + relative * x.abs().max(y.abs())
}

fn text(rows: &RecordBatch, row: usize) -> String {
    let options = FormatOptions::default().with_null("NULL");
    let cells: Vec<String> = rows
        .columns()
        .iter()
        .map(|c| ArrayFormatter::try_new(c, &options).map_or_else(|e| e.to_string(), |f| f.value(row).to_string()))
        .collect();
    format!("({})", cells.join(", "))
}

/// Compares two bags; `partial` allows expected rows to be missing still.
fn compare(
    schema: &SchemaRef,
    expected: &[RecordBatch],
    actual: &[RecordBatch],
    partial: bool,
    tolerance: &Tolerance<'_>,
) -> std::result::Result<(), String> {
    let e = sorted(schema, expected).map_err(|e| format!("cannot compare: {e}"))?;
    let a = sorted(schema, actual).map_err(|e| format!("cannot compare: {e}"))?;
    // Rows that the move turned into others, or put elsewhere, tell nothing.
    let m = match tolerance.moved {
        Some(rows) => Some(sorted(schema, rows).map_err(|e| format!("cannot compare: {e}"))?),
        None => None,
    };
    let m = m.filter(|m| m.order.len() == e.order.len());
    let moved = |place: usize, c: usize| {
        let m = m.as_ref()?;
        let (ours, theirs) = (*e.order.get(place)?, *m.order.get(place)?);
        if e.keys.row(ours) != m.keys.row(theirs) {
            return None;
        }
        float(m.rows.column(c), theirs)
    };
    let floats: Vec<usize> = (0..schema.fields().len()).filter(|i| is_float(schema.field(*i).data_type())).collect();
    let (mut missing, mut extra) = (Vec::new(), Vec::new());
    let (mut i, mut j) = (0, 0);
    while i < e.order.len() || j < a.order.len() {
        let order = match (e.order.get(i), a.order.get(j)) {
            (Some(x), Some(y)) => e.keys.row(*x).cmp(&a.keys.row(*y)),
            (Some(_), None) => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Greater,
        };
        match order {
            std::cmp::Ordering::Less => {
                missing.push(e.order[i]);
                i += 1;
            }
            std::cmp::Ordering::Greater => {
                extra.push(a.order[j]);
                j += 1;
            }
            std::cmp::Ordering::Equal => {
                let (x, y) = (e.order[i], a.order[j]);
                let near = |c: &usize| {
                    let (expected, found) = (float(e.rows.column(*c), x), float(a.rows.column(*c), y));
                    close(expected, found, moved(i, *c), tolerance.relative)
                };
                if floats.iter().all(near) {
                    i += 1;
                    j += 1;
                } else {
                    missing.push(x);
                    extra.push(y);
                    i += 1;
                    j += 1;
                }
            }
        }
    }
    if extra.is_empty() && (missing.is_empty() || partial) {
        return Ok(());
    }
    let list = |rows: &RecordBatch, which: &[usize]| {
        let mut lines: Vec<String> = which.iter().take(SHOWN).map(|r| format!("    {}", text(rows, *r))).collect();
        if which.len() > SHOWN {
            lines.push(format!("    … and {} more", which.len() - SHOWN));
        }
        lines.join("\n")
    };
    Err(format!(
        "  {} rows expected, {} found\n  missing ({}):\n{}\n  not expected ({}):\n{}",
        e.order.len(),
        a.order.len(),
        missing.len(),
        list(&e.rows, &missing),
        extra.len(),
        list(&a.rows, &extra)
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array};
    use arrow::datatypes::{Field, Schema};

    fn rows(values: &[(i64, f64)]) -> (SchemaRef, Vec<RecordBatch>) {
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Float64, true),
        ]));
        let a: Int64Array = values.iter().map(|v| Some(v.0)).collect();
        let b: Float64Array = values.iter().map(|v| Some(v.1)).collect();
        (schema.clone(), vec![RecordBatch::try_new(schema, vec![Arc::new(a), Arc::new(b)]).unwrap()])
    }

    const STRICT: Tolerance<'static> = Tolerance { relative: ROUNDING, moved: None };

    #[test]
    fn order_does_not_matter_and_multiplicity_does() {
        let (s, a) = rows(&[(1, 1.0), (2, 2.0), (1, 1.0)]);
        let (_, b) = rows(&[(2, 2.0), (1, 1.0), (1, 1.0)]);
        assert!(compare(&s, &a, &b, false, &STRICT).is_ok());
        let (_, c) = rows(&[(2, 2.0), (1, 1.0)]);
        assert!(compare(&s, &a, &c, false, &STRICT).is_err());
        assert!(compare(&s, &c, &a, false, &STRICT).is_err());
        assert!(compare(&s, &a, &c, true, &STRICT).is_ok());
    }

    #[test]
    fn floats_may_differ_in_the_last_digits_only() {
        let (s, a) = rows(&[(1, 0.1 + 0.2)]);
        let (_, b) = rows(&[(1, 0.3)]);
        assert!(compare(&s, &a, &b, false, &STRICT).is_ok());
        let (_, c) = rows(&[(1, 0.3000000001)]);
        assert!(compare(&s, &a, &c, false, &STRICT).is_err());
    }

    /// 1e16, 1 and −1e16 add up to 1 or to 0, as they come: what is off by as much as their sum may be
    /// passes, and nothing else does.
    #[test]
    fn sums_may_be_off_by_what_their_values_say() {
        let (s, expected) = rows(&[(1, 1.0), (2, 5.0)]);
        let (_, moved) = rows(&[(1, 1.0 + 8.0), (2, 5.0 + 4e-15)]);
        let tolerance = Tolerance { relative: ROUNDING, moved: Some(&moved) };
        let (_, found) = rows(&[(1, 0.0), (2, 5.0)]);
        assert!(compare(&s, &expected, &found, false, &tolerance).is_ok());
        let (_, found) = rows(&[(1, 1.0), (2, 5.001)]);
        assert!(compare(&s, &expected, &found, false, &tolerance).is_err());
        let (_, found) = rows(&[(1, 10.0), (2, 5.0)]);
        assert!(compare(&s, &expected, &found, false, &tolerance).is_err());
        // A move that makes other rows allows nothing.
        let (_, moved) = rows(&[(1, 9.0)]);
        let tolerance = Tolerance { relative: ROUNDING, moved: Some(&moved) };
        let (_, found) = rows(&[(1, 0.0), (2, 5.0)]);
        assert!(compare(&s, &expected, &found, false, &tolerance).is_err());
    }
}
