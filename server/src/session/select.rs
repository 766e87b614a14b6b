//! SELECT.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::catalog::TableProvider;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use parking_lot::Mutex;
use spate_engine::connector::DeadLetter;
use spate_engine::plan::ObjectId;
use spate_engine::state::view::ViewStore;
use spate_engine::types::{Epoch, ErrorKind, Result, SpateError};
use spate_planner::bind::{BindMode, bind_query, relations_of, without_marks};
use spate_planner::catalog::{Relation, RelationKind};
use spate_planner::sql::Query;

use super::ddl::index;
use super::resolver::{Names, is_system, system_rows};
use super::{RowStream, Session};
use crate::batch::provider::{Bounded, Snapshot};
use crate::batch::stored::{Path, Stored};

impl Session {
    pub(super) async fn select(&mut self, query: &Query) -> Result<RowStream> {
        let plan = {
            let names = Names::new(&self.engine, &self.variables.search_path);
            bind_query(&names, query, &BindMode::AdHoc)?
        };
        self.select_plan(plan, &BTreeMap::new()).await
    }

    /// Runs a bound plan on a snapshot; `instead` gives the rows of some relations.
    pub(super) async fn select_plan(
        &self,
        plan: LogicalPlan,
        instead: &BTreeMap<ObjectId, Vec<RecordBatch>>,
    ) -> Result<RowStream> {
        let physical = self.physical(plan, instead, None).await?;
        let schema = physical.schema();
        let stream = self.engine.batch.stream(physical)?;
        let Some(plain) = without_marks(&schema) else {
            return Ok(RowStream { schema, stream, endless: false, delivered: None });
        };
        let renamed = plain.clone();
        let stream = stream
            .map(move |b| b.and_then(|b| Ok(RecordBatch::try_new(renamed.clone(), b.columns().to_vec())?)))
            .boxed();
        Ok(RowStream { schema: plain, stream, endless: false, delivered: None })
    }

    /// The plan over a snapshot. With `notes` it is over no rows, and notes how rows are found.
    async fn physical(
        &self,
        plan: LogicalPlan,
        instead: &BTreeMap<ObjectId, Vec<RecordBatch>>,
        notes: Option<&Arc<Mutex<Vec<String>>>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let relations = relations_of(&plan)?;
        let mut tries = 0;
        let providers = loop {
            // Nothing is read for notes, so nothing is waited for.
            let epoch = match notes {
                Some(_) => self.engine.worker.visible(),
                None => self.readable(&relations, instead).await?,
            };
            match self.providers(&relations, epoch, instead, notes) {
                // The epoch was let go between choosing and reading it: take a newer one.
                Err(e) if e.kind() == ErrorKind::NotFound && tries < 10 => tries += 1,
                other => break other?,
            }
        };
        let of = |r: &Arc<Relation>| {
            let provider = providers.get(&r.id).cloned();
            provider.ok_or_else(|| SpateError::internal(format!("no rows for {}", r.display_name())))
        };
        self.engine.batch.plan(plan, of).await
    }

    /// How rows of a relation can be found: by its key and its indexes.
    fn paths(&self, relation: &Relation, store: &ViewStore) -> Vec<Path> {
        let key = store.key().map(|columns| Path { index: None, name: "its key".into(), columns });
        let catalog = self.engine.catalog.lock();
        let indexes = index::of(&catalog, relation.id).filter_map(|o| {
            let columns = o.index.as_ref()?.columns.clone();
            Some(Path { index: Some(o.id), name: format!("index {}", o.display_name()), columns })
        });
        indexes.chain(key).collect()
    }

    fn providers(
        &self,
        relations: &[Arc<Relation>],
        epoch: Epoch,
        instead: &BTreeMap<ObjectId, Vec<RecordBatch>>,
        notes: Option<&Arc<Mutex<Vec<String>>>>,
    ) -> Result<BTreeMap<ObjectId, Arc<dyn TableProvider>>> {
        let mut out: BTreeMap<ObjectId, Arc<dyn TableProvider>> = BTreeMap::new();
        for r in relations {
            let provider: Arc<dyn TableProvider> = if let Some(rows) = instead.get(&r.id) {
                Snapshot::new(r.schema.clone(), rows.clone())
            } else if is_system(r.id) {
                let catalog = self.engine.catalog.lock().clone();
                let rows = system_rows(&self.engine, &catalog, r.id)?;
                Snapshot::new(rows.schema(), vec![rows])
            } else if r.kind == RelationKind::Source {
                self.bounded_source(r)?
            } else {
                let store = self.engine.worker.store(r.id).ok_or_else(|| {
                    SpateError::new(ErrorKind::NotFound, format!("relation \"{}\" is gone", r.display_name()))
                        .context("it was dropped meanwhile")
                })?;
                if !same_columns(&store.schema(), &r.schema) {
                    return Err(SpateError::invalid(format!("\"{}\" was altered meanwhile", r.display_name()))
                        .with_hint("try again"));
                }
                let paths = self.paths(r, &store);
                Stored::new(r.display_name(), r.schema.clone(), store, epoch, paths, notes.cloned())?
            };
            out.insert(r.id, provider);
        }
        Ok(out)
    }

    fn bounded_source(&self, r: &Relation) -> Result<Arc<dyn TableProvider>> {
        let connector = self.engine.connectors.lock().get(&r.id).cloned();
        let connector =
            connector.ok_or_else(|| SpateError::internal(format!("no connector for {}", r.display_name())))?;
        if !connector.bounded() {
            return Err(SpateError::unsupported(format!(
                "source \"{}\" does not end, so SELECT cannot read it",
                r.display_name()
            ))
            .with_hint("use SUBSCRIBE TO SELECT …, or create a materialized view over it"));
        }
        let engine = self.engine.clone();
        let name: Arc<str> = r.display_name().into();
        let on_error = engine.source_on_error(r.id)?;
        let on_dead = Arc::new(move |dead: Vec<DeadLetter>| {
            let failed = on_error.check(&name, &dead);
            engine.worker.file_dead_letters(&name, dead);
            failed
        });
        Ok(Bounded::new(connector, on_dead))
    }

    /// The newest epoch at which all of these can be read, after what this session wrote.
    async fn readable(
        &self,
        relations: &[Arc<Relation>],
        instead: &BTreeMap<ObjectId, Vec<RecordBatch>>,
    ) -> Result<Epoch> {
        let engine = &self.engine;
        let mut laggard: Option<String> = None;
        let wait = engine.wait_until(|| {
            let visible = engine.worker.visible();
            let mut need = self.written;
            laggard = None;
            for r in relations.iter().filter(|r| !instead.contains_key(&r.id)) {
                let Some(job) = engine.worker.job(r.id) else { continue };
                if let Some(e) = job.error {
                    return Err(e
                        .context(format!("materialized view \"{}\" has stopped", r.display_name()))
                        .with_hint("DROP it, mend the cause, and create it again"));
                }
                match job.ready {
                    Some(ready) => need = need.max(ready),
                    None => laggard = Some(r.display_name()),
                }
            }
            Ok((laggard.is_none() && visible >= need).then_some(visible))
        });
        let timeout = self.variables.read_timeout;
        let waited = tokio::time::timeout(timeout, wait).await;
        match waited {
            Ok(r) => r,
            Err(_) => Err(SpateError::new(
                ErrorKind::Limit,
                match laggard {
                    Some(name) => format!("\"{name}\" is still catching up after {} ms", timeout.as_millis()),
                    None => format!("what was written is not visible after {} ms", timeout.as_millis()),
                },
            )
            .with_hint("wait and try again, or SET read_timeout to a longer time")),
        }
    }

    /// What a query that is answered once finds by a key or an index; `None` also where it cannot be
    /// answered now, which is no reason not to explain it.
    pub(super) async fn found_how(&self, query: &Query) -> Option<String> {
        let plan = {
            let names = Names::new(&self.engine, &self.variables.search_path);
            bind_query(&names, query, &BindMode::AdHoc).ok()?
        };
        let endless = relations_of(&plan).ok()?.iter().any(|r| r.kind == RelationKind::Source);
        if endless {
            return None;
        }
        let notes = Arc::new(Mutex::default());
        self.physical(plan, &BTreeMap::new(), Some(&notes)).await.ok()?;
        let mut notes: Vec<String> = std::mem::take(&mut *notes.lock());
        notes.dedup();
        (!notes.is_empty()).then(|| format!("SELECT finds rows of {}", notes.join(", of ")))
    }
}

fn same_columns(a: &Schema, b: &Schema) -> bool {
    let same = |(x, y): (&FieldRef, &FieldRef)| x.name() == y.name() && x.data_type() == y.data_type();
    a.fields().len() == b.fields().len() && a.fields().iter().zip(b.fields()).all(same)
}
