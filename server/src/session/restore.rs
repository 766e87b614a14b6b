//! Opening a data directory: all objects are made anew by their statements, tables and tasks are filled
//! from the checkpoint, and the epochs since are repeated.

use std::sync::Arc;
use std::time::Duration;

use spate_engine::plan::ObjectId;
use spate_engine::task::TaskId;
use spate_engine::task::build::Resume as ResumeAt;
use spate_engine::types::{Epoch, ErrorKind, Result, SpateError};

use super::Session;
use super::engine::{Engine, Restoring};
use crate::durable::catalog::{MadeWith, StoredObject, changes, load};
use crate::durable::checkpointer::Part;

/// How long a statement waits before it looks again whether a checkpoint can be taken.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Makes everything again that the engine's data directory holds. Without one it does nothing.
pub(super) fn restore(engine: &Arc<Engine>) -> Result<()> {
    let Some(durable) = engine.worker.durable.clone() else { return Ok(()) };
    engine.worker.pause();
    engine.worker.resume_from(engine.config.checkpoint_interval)?;
    let stored = load(&durable.meta)?;
    for schema in &stored.schemas {
        engine.catalog.lock().create_schema(schema, true)?;
    }
    for object in &stored.objects {
        engine.catalog.lock().reserve_id(object.id);
    }
    for object in &stored.objects {
        make_again(engine, object).map_err(|e| e.context(format!("making again: {}", object.sql)))?;
    }
    engine.worker.resume();
    // Nothing new may come into an epoch that is being repeated.
    let worker = &engine.worker;
    here(engine.wait_until(|| Ok((!worker.is_replaying()).then_some(()))))?;
    // Even without input, views are to know that they are up to date.
    engine.worker.request_tick();
    Ok(())
}

/// Waits on this thread. Whoever opens an engine may be in a task, whose share of time is not to end here.
fn here<T>(work: impl Future<Output = T>) -> T {
    futures::executor::block_on(tokio::task::unconstrained(work))
}

fn make_again(engine: &Arc<Engine>, object: &StoredObject) -> Result<()> {
    let mut session = engine.session();
    session.variables.search_path = object.search_path.clone();
    session.variables.parallelism = object.parallelism.max(1);
    session.variables.background_ddl = true;
    let columns = object.columns()?;
    *engine.restoring.lock() = Some(Restoring { id: object.id, start: object.start, columns });
    // Nothing in it waits for what is not there yet: ticks are held back, and nothing is in flight.
    let made = here(session.execute_here(&object.sql));
    *engine.restoring.lock() = None;
    made?;
    if !object.comments.is_empty() {
        let mut catalog = engine.catalog.lock();
        if let Some(o) = catalog.get(object.id) {
            let mut o = o.as_ref().clone();
            o.comments = object.comments.clone();
            catalog.replace(o)?;
        }
    }
    Ok(())
}

impl Engine {
    /// Where the job of an object goes on: `None` if it begins now.
    pub(super) fn resume_of(
        &self,
        restoring: &Restoring,
        tasks: impl Iterator<Item = TaskId>,
    ) -> Result<Option<ResumeAt>> {
        let Some(durable) = &self.worker.durable else { return Ok(None) };
        let after = self.worker.last();
        if restoring.start > after {
            return Ok(None);
        }
        let mut resume = ResumeAt { after, ..ResumeAt::default() };
        for task in tasks {
            let chain = durable.checkpoints.chain(task.into())?;
            if chain.is_empty() {
                return Err(SpateError::new(
                    ErrorKind::Io,
                    "there is no snapshot of it: it had failed before, or is planned in another way by this version",
                )
                .with_hint("DROP it and create it again"));
            }
            if let Some(s) = chain.last().filter(|s| s.epoch != after) {
                return Err(SpateError::internal(format!("a snapshot is of epoch {} and not {after}", s.epoch)));
            }
            resume.tasks.insert(task, chain);
        }
        Ok(Some(resume))
    }

    /// Fills the store of a table from the checkpoint, if it was there then. Gives its watermark.
    pub(super) fn refill(
        &self,
        restoring: &Restoring,
        store: &spate_engine::state::view::ViewStore,
    ) -> Result<Option<i64>> {
        let Some(durable) = &self.worker.durable else { return Ok(None) };
        let chain = durable.checkpoints.chain(Part::Table(restoring.id))?;
        let Some(last) = chain.last() else { return Ok(None) };
        let (epoch, watermark) = (last.epoch, last.watermark);
        let segments: Vec<_> = chain.into_iter().flat_map(|s| s.tables).flatten().collect();
        store.restore(0, &segments, epoch, watermark)?;
        Ok(Some(watermark))
    }
}

impl Session {
    /// Writes the catalog down as it is, if it is to survive.
    pub(super) fn store_catalog(&self) -> Result<()> {
        let Some(durable) = &self.engine.worker.durable else { return Ok(()) };
        if self.engine.restoring.lock().is_some() {
            return Ok(());
        }
        // Written while it is locked, so that what is stored never goes back.
        let catalog = self.engine.catalog.lock();
        let batch = changes(&durable.meta, &catalog, &|id| self.made_with(id))?;
        if batch.is_empty() { Ok(()) } else { durable.meta.commit(batch) }
    }

    fn made_with(&self, id: ObjectId) -> MadeWith {
        MadeWith {
            search_path: self.variables.search_path.clone(),
            parallelism: self.variables.parallelism,
            start: self.engine.worker.job_start(id).unwrap_or_default(),
        }
    }

    /// A table has become another one, while the caller holds ticks back and nothing is in flight: the
    /// catalog that says so, and the table as it is now, are written together.
    pub(super) async fn store_altered(&self, table: ObjectId) -> Result<()> {
        let Some(durable) = &self.engine.worker.durable else { return Ok(()) };
        let along = changes(&durable.meta, &self.engine.catalog.lock(), &|id| self.made_with(id))?;
        durable.checkpoints.restart(Part::Table(table), along);
        match self.checkpoint_held().await? {
            true => Ok(()),
            false => Err(SpateError::internal("a checkpoint that nothing stands against was not taken")),
        }
    }

    /// Takes a checkpoint now, while the caller holds ticks back and nothing is in flight. Gives false if
    /// something cannot be gone on from yet.
    async fn checkpoint_held(&self) -> Result<bool> {
        let (engine, Some(durable)) = (&self.engine, &self.engine.worker.durable) else { return Ok(true) };
        let worker = &engine.worker;
        engine.wait_until(|| Ok((!worker.checkpoint_runs()).then_some(()))).await?;
        let epoch: Epoch = worker.checkpoint_now();
        let ended = || {
            let done = worker.is_drained() && durable.checkpoints.state().1 >= epoch;
            Ok(done.then_some(()))
        };
        engine.wait_until(ended).await?;
        Ok(durable.checkpoints.state().0 >= epoch)
    }

    /// Stops ticks, waits until nothing is in flight and, of a durable engine, takes a checkpoint there: what
    /// is made now never meets epochs from before it. The caller resumes the worker.
    pub(super) async fn quiesce_at_checkpoint(&self) -> Result<()> {
        loop {
            self.quiesce().await?;
            if self.engine.worker.durable.is_none() || self.engine.restoring.lock().is_some() {
                return Ok(());
            }
            let guard = super::ddl::Resume(Some(self.engine.clone()));
            let taken = self.checkpoint_held().await?;
            if taken {
                guard.disarm();
                return Ok(());
            }
            drop(guard);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
