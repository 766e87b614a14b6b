//! A store's rows at an epoch as a table: all of them, or those that an index gives for the
//! conditions of a query. Conditions are tested again by the query itself.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::scalar::ScalarValue;
use parking_lot::Mutex;
use spate_engine::state::index::Wanted;
use spate_engine::state::view::{ViewReader, ViewStore};
use spate_engine::types::{Epoch, ErrorKind, Result, SpateError, float};

use super::provider::memory;

/// Most tuples that an index is asked for; a query with more reads all rows.
const MAX_TUPLES: usize = 1024;

/// How rows can be found.
#[derive(Debug, Clone)]
pub struct Path {
    /// The index; `None` for the store's key.
    pub index: Option<u64>,
    /// What it is called.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<usize>,
}

/// A store at an epoch.
#[derive(Debug)]
pub struct Stored {
    name: String,
    schema: SchemaRef,
    store: Arc<ViewStore>,
    /// The store's own schema when this was made: another one after an ALTER.
    layout: SchemaRef,
    epoch: Epoch,
    /// Keeps the epoch readable.
    _pin: ViewReader,
    paths: Vec<Path>,
    all: OnceLock<Vec<RecordBatch>>,
    /// Reads nothing, but notes how it would read.
    notes: Option<Arc<Mutex<Vec<String>>>>,
}

/// What conditions say of a column.
#[derive(Debug, Default)]
struct Condition {
    /// It is one of these.
    one_of: Option<Vec<ScalarValue>>,
    lower: Option<ScalarValue>,
    upper: Option<ScalarValue>,
}

impl Stored {
    /// `store` at `epoch`, as the relation `name` with columns `schema`. Fails with `NotFound` when
    /// the epoch is no longer kept. With `notes`, reading gives no rows and notes how rows are found.
    pub fn new(
        name: String,
        schema: SchemaRef,
        store: Arc<ViewStore>,
        epoch: Epoch,
        paths: Vec<Path>,
        notes: Option<Arc<Mutex<Vec<String>>>>,
    ) -> Result<Arc<Self>> {
        let layout = store.schema();
        let pin = store.pin(epoch)?;
        Ok(Arc::new(Self { name, schema, store, layout, epoch, _pin: pin, paths, all: OnceLock::new(), notes }))
    }

    fn rows(&self, filters: &[Expr]) -> Result<Vec<RecordBatch>> {
        let conditions = self.conditions(filters);
        let found = self.paths.iter().filter_map(|p| asked(p, &conditions).map(|(rank, w)| (rank, p, w)));
        let best = found.max_by_key(|(rank, ..)| *rank);
        if let Some(notes) = &self.notes {
            if let Some((_, path, _)) = best {
                notes.lock().push(format!("{} by {}", self.name, path.name));
            }
            return Ok(vec![]);
        }
        let rows = match best {
            None => match self.all.get() {
                Some(rows) => rows.clone(),
                None => {
                    let rows = self.store.rows_at(self.epoch)?;
                    self.all.get_or_init(|| rows).clone()
                }
            },
            Some((_, Path { index: Some(id), .. }, wanted)) => {
                match self.store.indexed_at(self.epoch, *id, &wanted) {
                    // The index was dropped meanwhile.
                    Err(e) if e.kind() == ErrorKind::NotFound => self.store.rows_at(self.epoch)?,
                    other => other?,
                }
            }
            Some((_, Path { index: None, .. }, wanted)) => self.store.keyed_at(self.epoch, &wanted.equal)?,
        };
        // The plan was made for the columns of then.
        if !Arc::ptr_eq(&self.layout, &self.store.schema()) {
            return Err(SpateError::invalid(format!("\"{}\" was altered meanwhile", self.name)).with_hint("try again"));
        }
        Ok(rows)
    }

    fn conditions(&self, filters: &[Expr]) -> HashMap<usize, Condition> {
        let mut out: HashMap<usize, Condition> = HashMap::new();
        for (column, found) in filters.iter().filter_map(|f| self.condition(f)) {
            let c = out.entry(column).or_default();
            // Any one of several is enough: all are tested again.
            c.one_of = c.one_of.take().or(found.one_of);
            c.lower = c.lower.take().or(found.lower);
            c.upper = c.upper.take().or(found.upper);
        }
        out
    }

    /// What a condition says, if it is of one column that a path has.
    fn condition(&self, filter: &Expr) -> Option<(usize, Condition)> {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let ((a, left), (b, right)) = (self.condition(left)?, self.condition(right)?);
                let (mut values, more) = (left.one_of?, right.one_of?);
                values.extend(more);
                (a == b).then_some((a, Condition { one_of: Some(values), ..Condition::default() }))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (column, value, op) = match (left.as_ref(), right.as_ref()) {
                    (Expr::Column(c), Expr::Literal(v, _)) => (c, v, *op),
                    (Expr::Literal(v, _), Expr::Column(c)) => (c, v, op.swap()?),
                    _ => return None,
                };
                let column = self.column(&column.name)?;
                let value = self.value(column, value)?;
                let mut c = Condition::default();
                match op {
                    Operator::Eq => c.one_of = Some(vec![value]),
                    Operator::Gt | Operator::GtEq => c.lower = Some(value),
                    Operator::Lt | Operator::LtEq => c.upper = Some(value),
                    _ => return None,
                }
                Some((column, c))
            }
            Expr::InList(list) if !list.negated => {
                let Expr::Column(c) = list.expr.as_ref() else { return None };
                let column = self.column(&c.name)?;
                let value = |e: &Expr| match e {
                    Expr::Literal(v, _) => self.value(column, v),
                    _ => None,
                };
                let values = list.list.iter().map(value).collect::<Option<Vec<_>>>()?;
                Some((column, Condition { one_of: Some(values), ..Condition::default() }))
            }
            _ => None,
        }
    }

    fn column(&self, name: &str) -> Option<usize> {
        let column = self.schema.index_of(name).ok()?;
        self.paths.iter().any(|p| p.columns.contains(&column)).then_some(column)
    }

    /// A value to compare a column with, if equal values look alike and the order is that of bytes.
    fn value(&self, column: usize, value: &ScalarValue) -> Option<ScalarValue> {
        let t = self.schema.field(column).data_type();
        let ordered = t.is_primitive() && !matches!(t, DataType::Interval(_) | DataType::Duration(_))
            || matches!(t, DataType::Boolean | DataType::Utf8 | DataType::Binary);
        (ordered && !value.is_null() && value.data_type() == *t).then(|| value.clone())
    }
}

/// What `conditions` ask a path for, and how good it is: the number of columns that are known,
/// and whether the next one has a bound.
fn asked(path: &Path, conditions: &HashMap<usize, Condition>) -> Option<((usize, usize), Wanted)> {
    let mut lists: Vec<&[ScalarValue]> = Vec::new();
    let mut tuples = 1usize;
    for c in &path.columns {
        let Some(values) = conditions.get(c).and_then(|c| c.one_of.as_deref()) else { break };
        match tuples.checked_mul(values.len()) {
            Some(n) if n <= MAX_TUPLES => tuples = n,
            _ => break,
        }
        lists.push(values);
    }
    let next = path.columns.get(lists.len()).and_then(|c| conditions.get(c));
    let (lower, upper) = match next {
        Some(c) if path.index.is_some() => (one(c.lower.as_ref())?, one(c.upper.as_ref())?),
        _ => (None, None),
    };
    let bounds = usize::from(lower.is_some()) + usize::from(upper.is_some());
    // A key is asked for as a whole.
    if lists.len() + bounds == 0 || (path.index.is_none() && lists.len() < path.columns.len()) {
        return None;
    }
    let mut equal: Vec<ArrayRef> = Vec::with_capacity(lists.len());
    let mut repeat = tuples;
    for values in &lists {
        repeat /= values.len().max(1);
        let picked = (0..tuples).map(|i| values[i / repeat.max(1) % values.len()].clone());
        equal.push(float::canonical(&ScalarValue::iter_to_array(picked).ok()?));
    }
    Some(((lists.len(), bounds), Wanted { equal, lower, upper }))
}

/// A bound as an array of one; `None` if it cannot be one.
fn one(value: Option<&ScalarValue>) -> Option<Option<ArrayRef>> {
    match value {
        None => Some(None),
        Some(v) => v.to_array().ok().map(|a| Some(float::canonical(&a))),
    }
}

#[async_trait]
impl TableProvider for Stored {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let known = |f: &&Expr| match self.condition(f) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(known).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let rows = self.rows(filters).map_err(DataFusionError::from)?;
        memory(state, &self.schema, &rows, projection)
    }
}
