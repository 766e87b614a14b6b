//! SUBSCRIBE: a view's or query's changes as they become visible, epoch by epoch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::StreamExt;
use spate_engine::operator::consolidate::consolidate;
use spate_engine::plan::ObjectId;
use spate_engine::state::view::{ViewReader, ViewStore};
use spate_engine::types::{Delta, Epoch, ErrorKind, Result, SpateError, WATERMARK_MAX};
use spate_planner::catalog::ObjectKind;
use spate_planner::sql::parse_query;
use spate_planner::sql::statement::{Input, Subscribe};

use super::ddl::forget;
use super::{Engine, RowStream, Session};

/// Epochs that a subscriber may be behind; then its subscription ends with an error that names
/// the epoch to go on from.
pub const MAX_BEHIND: u64 = 1024;

/// How far a subscription has come: what its reader needs to go on elsewhere.
#[derive(Debug)]
pub struct Delivered {
    /// Identity of the table or view; `None` for a query, which no other subscription can go on with.
    pub of: Option<ObjectId>,
    /// Newest epoch of which all rows have been taken, plus 1; 0 before the first.
    next: AtomicU64,
}

impl Delivered {
    /// The newest epoch of which all rows have been taken from the stream.
    pub fn complete(&self) -> Option<Epoch> {
        self.next.load(Ordering::Acquire).checked_sub(1)
    }
}

struct State {
    engine: Arc<Engine>,
    job: ObjectId,
    /// Dropped with the subscription.
    temporary: bool,
    store: Arc<ViewStore>,
    /// `None` once it is kept for whoever goes on after this subscription.
    reader: Option<ViewReader>,
    append_only: bool,
    /// The store's columns; others after an ALTER.
    columns: SchemaRef,
    schema: SchemaRef,
    /// What is due, in order.
    pending: VecDeque<RecordBatch>,
    next: Epoch,
    snapshot: bool,
    /// Epochs that it may be behind now.
    allowed: u64,
    delivered: Arc<Delivered>,
}

impl Drop for State {
    fn drop(&mut self) {
        if self.temporary {
            forget(&self.engine, self.job);
        } else if let Some(reader) = self.reader.take() {
            self.engine.retain(reader);
        }
    }
}

/// Columns of a relation and, after them, those of a subscription to it.
pub(super) fn with_marks(columns: &Schema) -> SchemaRef {
    let mut fields = columns.fields().to_vec();
    fields.push(Arc::new(Field::new("__weight", DataType::Int64, false)));
    fields.push(Arc::new(Field::new("__epoch", DataType::UInt64, false)));
    Arc::new(Schema::new(fields))
}

impl Session {
    pub(super) async fn subscribe(&mut self, subscribe: Subscribe) -> Result<RowStream> {
        let (job, store, append_only, temporary) = match subscribe.target {
            Input::Query { query, emit_on_window_close, .. } => {
                let (id, store, append_only) = self.start_temporary(&query, emit_on_window_close).await?;
                (id, store, append_only, true)
            }
            Input::Relation(name) => {
                let object = self.engine.catalog.lock().resolve(&self.variables.search_path, &name)?.clone();
                match object.kind {
                    ObjectKind::Table | ObjectKind::MaterializedView => {
                        let store = self.engine.worker.store(object.id);
                        let store = store.ok_or_else(|| SpateError::internal("a view without a store"))?;
                        (object.id, store, object.relation.as_ref().is_some_and(|r| r.append_only), false)
                    }
                    ObjectKind::View | ObjectKind::Source => {
                        let query = parse_query(&format!("SELECT * FROM {}", object.display_name()))?;
                        let (id, store, append_only) = self.start_temporary(&query, false).await?;
                        (id, store, append_only, true)
                    }
                    ObjectKind::Sink | ObjectKind::Function | ObjectKind::Index => {
                        let kind = object.kind;
                        return Err(SpateError::invalid(format!("\"{name}\" is a {kind}, which cannot be read")));
                    }
                }
            }
        };
        let columns = store.schema();
        let schema = with_marks(&columns);
        let mut state = State {
            engine: self.engine.clone(),
            job,
            temporary,
            reader: Some(store.reader(1, 0)),
            store,
            append_only,
            columns,
            schema: schema.clone(),
            pending: VecDeque::new(),
            next: 0,
            snapshot: subscribe.snapshot,
            allowed: MAX_BEHIND,
            delivered: Arc::new(Delivered { of: (!temporary).then_some(job), next: AtomicU64::new(0) }),
        };
        let delivered = Some(state.delivered.clone());
        match subscribe.as_of {
            None => state.begin(self.written).await?,
            Some(epoch) => state.go_on(epoch)?,
        }
        if state.pending.is_empty() {
            state.delivered.next.store(state.next, Ordering::Release);
        }
        let stream = futures::stream::try_unfold(state, |mut s| async move {
            match s.next().await? {
                Some(batch) => Ok(Some((batch, s))),
                None => Ok(None),
            }
        });
        Ok(RowStream { schema, stream: stream.boxed(), endless: true, delivered })
    }
}

impl State {
    /// Starts with the rows of the newest epoch, once the result is complete.
    async fn begin(&mut self, written: Epoch) -> Result<()> {
        let engine = self.engine.clone();
        let (job, temporary) = (self.job, self.temporary);
        let epoch = engine
            .wait_until(|| {
                let visible = engine.worker.visible();
                // A query over connectors is followed from its first epoch on; a view from the
                // epoch at which it has caught up.
                let ready = match engine.worker.job(job) {
                    Some(j) => match (j.error, j.ready) {
                        (Some(e), _) => return Err(e),
                        (None, r) => {
                            if temporary {
                                Some(r.unwrap_or(0))
                            } else {
                                r
                            }
                        }
                    },
                    None => Some(0),
                };
                Ok(ready.is_some_and(|r| visible >= r.max(written)).then_some(visible))
            })
            .await?;
        let epoch = epoch.min(self.store.complete());
        if self.snapshot {
            let rows = self.store.freeze_at(epoch)?;
            for (rows, weights) in rows {
                let delta = Delta::new(rows, weights)?;
                self.push(&delta, epoch)?;
            }
        }
        self.next = epoch + 1;
        Ok(())
    }

    /// Goes on after an epoch that the subscriber has.
    fn go_on(&mut self, epoch: Epoch) -> Result<()> {
        let visible = self.engine.worker.visible();
        if epoch > visible {
            return Err(SpateError::invalid(format!("epoch {epoch} has not been reached; the newest is {visible}"))
                .with_hint("name the last epoch that you have received; epochs count anew after a start"));
        }
        self.next = epoch + 1;
        // It was away: what it has missed meanwhile is not held against it.
        self.allowed = MAX_BEHIND + (visible - epoch);
        self.reader()?.release(0, epoch);
        // Fails if the epoch is no longer kept.
        if epoch < self.store.complete() {
            self.reader()?.barriers(self.next).map_err(|_| {
                SpateError::new(ErrorKind::NotFound, format!("epoch {epoch} is no longer kept"))
                    .with_hint("subscribe again WITH SNAPSHOT")
            })?;
        }
        Ok(())
    }

    fn reader(&self) -> Result<&ViewReader> {
        self.reader.as_ref().ok_or_else(|| SpateError::internal("the subscription has ended"))
    }

    fn push(&mut self, delta: &Delta, epoch: Epoch) -> Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        let mut columns = delta.rows().columns().to_vec();
        columns.push(Arc::new(delta.weights_or_ones()));
        columns.push(Arc::new(UInt64Array::from(vec![epoch; delta.num_rows()])));
        self.pending.push_back(RecordBatch::try_new(self.schema.clone(), columns)?);
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let batch = self.pending.pop_front();
            if self.pending.is_empty() {
                self.delivered.next.store(self.next, Ordering::Release);
            }
            if batch.is_some() {
                return Ok(batch);
            }
            let engine = self.engine.clone();
            let (job, next) = (self.job, self.next);
            let store = self.store.clone();
            let more = engine
                .wait_until(|| {
                    let visible = engine.worker.visible().min(store.complete());
                    if visible >= next {
                        return Ok(Some(true));
                    }
                    if engine.worker.store(job).is_none() {
                        return Err(SpateError::new(ErrorKind::NotFound, "what was subscribed to was dropped"));
                    }
                    match engine.worker.job(job) {
                        Some(j) => match j.error {
                            Some(e) => Err(e),
                            // All input has ended and all of it was delivered. The last epoch may be
                            // complete and yet to become visible.
                            None => {
                                let ended = j.ended && store.watermark() == WATERMARK_MAX;
                                Ok((ended && store.complete() < next).then_some(false))
                            }
                        },
                        None => Ok(None),
                    }
                })
                .await?;
            if !more {
                return Ok(None);
            }
            let visible = engine.worker.visible().min(self.store.complete());
            let behind = visible - self.next;
            if behind > self.allowed {
                return Err(SpateError::new(
                    ErrorKind::Limit,
                    format!("the subscriber is more than {MAX_BEHIND} epochs behind"),
                )
                .with_hint(format!("go on with SUBSCRIBE … AS OF EPOCH {}", self.next - 1)));
            }
            self.allowed = self.allowed.min(behind + MAX_BEHIND).max(MAX_BEHIND);
            if !Arc::ptr_eq(&self.columns, &self.store.schema()) {
                return Err(SpateError::new(ErrorKind::NotFound, "the columns of what was subscribed to were altered")
                    .with_hint("subscribe again"));
            }
            let mut deltas: Vec<Delta> = self.reader()?.epoch(self.next)?.into_iter().flatten().collect();
            if !self.append_only {
                deltas = consolidate(self.columns.clone(), deltas)?;
            }
            let epoch = self.next;
            for d in &deltas {
                self.push(d, epoch)?;
            }
            // What is on its way to a client may be lost with its connection.
            let kept = if self.engine.config.subscribe_retention.is_zero() { 0 } else { MAX_BEHIND };
            if let Some(done) = epoch.checked_sub(kept) {
                self.reader()?.release(0, done);
            }
            self.next += 1;
        }
    }
}
