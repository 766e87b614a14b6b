//! CREATE and DROP.

mod alter;
mod function;
pub(super) mod index;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use spate_engine::checkpoint::Snapshots;
use spate_engine::connector::{FormatSpec, OnError, SinkWriter, open_sink};
use spate_engine::plan::fragment::{Fragment, FragmentGraph};
use spate_engine::plan::{ObjectId, Properties, StreamNode, WatermarkKind, WatermarkSpec};
use spate_engine::state::view::ViewStore;
use spate_engine::task::{JobContext, TaskId, build_job};
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::bind::{BindMode, bind_query, relations_of, without_marks};
use spate_planner::catalog::{Object, ObjectKind, Relation, RelationKind};
use spate_planner::fragment::cut;
use spate_planner::lower::{LowerOptions, Target, lower};
use spate_planner::rules::guard::ErrorCounter;
use spate_planner::rules::optimize_continuous;
use spate_planner::sql::statement::{
    CreateMaterializedView, CreateSink, CreateView, Drop as DropStatement, DropKind, FormatClause, Input, Name,
};
use spate_planner::sql::{Query, did_you_mean, options, parse_query, quote};

use super::engine::Observed;
use super::resolver::{Names, is_system};
use super::{Session, still_wanted};

/// A continuous query, ready to run.
struct Planned {
    graph: FragmentGraph,
    root: StreamNode,
    reads: Vec<Arc<Relation>>,
    named: Vec<ObjectId>,
    on_error: OnError,
}

/// What the `WITH (…)` of a materialized view says.
struct QueryOptions {
    parallelism: usize,
    on_error: OnError,
}

/// Where a new object goes.
struct Room {
    schema: Arc<str>,
    name: Arc<str>,
    replaces: Option<Replaced>,
}

/// What has the name already.
enum Replaced {
    /// It stays, and nothing is to be done.
    Keep,
    /// It goes.
    Drop(ObjectId),
}

impl Room {
    fn is_kept(&self) -> bool {
        matches!(self.replaces, Some(Replaced::Keep))
    }

    /// Identity, schema and name of the new object.
    fn object(&self, engine: &super::Engine) -> (ObjectId, Arc<str>, Arc<str>) {
        let before = engine.restoring.lock().as_ref().map(|r| r.id);
        let id = before.unwrap_or_else(|| engine.catalog.lock().allocate_id());
        (id, self.schema.clone(), self.name.clone())
    }
}

impl Session {
    /// What a CREATE finds under its name. What is to be replaced stays until [`Self::vacate`], so
    /// that a statement that fails changes nothing.
    fn make_room(&self, kind: DropKind, name: &Name, or_replace: bool, if_not_exists: bool) -> Result<Room> {
        let catalog = self.engine.catalog.lock();
        let (schema, new) = catalog.place_of(&self.variables.search_path, name)?;
        let Some(taken) = catalog.lookup(&schema, &new) else { return Ok(Room { schema, name: new, replaces: None }) };
        if if_not_exists {
            return Ok(Room { schema, name: new, replaces: Some(Replaced::Keep) });
        }
        if !or_replace {
            let e = catalog.new_name(&self.variables.search_path, name).err();
            let e = e.unwrap_or_else(|| SpateError::internal("a name is taken and free"));
            return Err(e.with_hint("use IF NOT EXISTS or OR REPLACE, or DROP it first"));
        }
        if taken.kind.drop_kind() != kind {
            return Err(
                SpateError::invalid(format!("\"{name}\" is not a {kind}")).with_hint(format!("it is a {}", taken.kind))
            );
        }
        let id = taken.id;
        catalog.clone().remove(&[id], false)?;
        Ok(Room { schema, name: new, replaces: Some(Replaced::Drop(id)) })
    }

    /// Drops what a CREATE OR REPLACE replaces, which must not be among what the new object reads.
    fn vacate(&self, room: &Room, reads: &[ObjectId]) -> Result<()> {
        let Some(Replaced::Drop(id)) = room.replaces else { return Ok(()) };
        if reads.contains(&id) {
            return Err(SpateError::invalid(format!("\"{}\" cannot be replaced by what reads it", room.name)));
        }
        let gone = self.engine.catalog.lock().remove(&[id], false)?;
        for object in gone {
            index::let_go(&self.engine, &object);
            forget(&self.engine, object.id);
        }
        Ok(())
    }

    pub(super) async fn create_view(&mut self, create: CreateView, text: &str) -> Result<()> {
        let engine = self.engine.clone();
        let _ddl = engine.ddl.lock().await;
        let room = self.make_room(DropKind::View, &create.name, create.or_replace, create.if_not_exists)?;
        if room.is_kept() {
            return Ok(());
        }
        let (schema, named, reads) = {
            let names = Names::new(&engine, &self.variables.search_path);
            let plan = bind_query(&names, &create.query, &BindMode::AdHoc)?;
            let schema = plan.schema().as_arrow();
            let schema = without_marks(schema).map_or_else(|| schema.clone(), |s| s.as_ref().clone());
            (schema, names.named(), relations_of(&plan)?)
        };
        still_wanted().await;
        let schema = renamed(&schema, &create.columns)?;
        let query = with_columns(&create.query_text, &create.columns);
        let (id, schema_name, name) = room.object(&engine);
        let relation = Relation {
            id,
            schema_name: schema_name.clone(),
            name: name.clone(),
            kind: RelationKind::View,
            schema,
            key: None,
            append_only: false,
            watermark: None,
            bounded: reads.iter().all(|r| r.bounded),
            query: Some(query.into()),
        };
        self.vacate(&room, &named)?;
        engine.catalog.lock().add(Object {
            id,
            schema: schema_name,
            name,
            kind: ObjectKind::View,
            relation: Some(relation),
            sql: text.to_owned(),
            depends_on: named,
            options: BTreeMap::new(),
            format: None,
            table: None,
            function: None,
            index: None,
            comments: BTreeMap::new(),
        })?;
        Ok(())
    }

    async fn plan(&self, query: &Query, emit: bool, with: &QueryOptions, target: Target) -> Result<Planned> {
        let planned = self.plan_at_once(query, emit, with, target);
        still_wanted().await;
        planned
    }

    fn plan_at_once(&self, query: &Query, emit: bool, with: &QueryOptions, target: Target) -> Result<Planned> {
        let QueryOptions { parallelism, on_error } = *with;
        let names = Names::new(&self.engine, &self.variables.search_path);
        let worker = self.engine.worker.clone();
        let label = match &target {
            Target::Materialize { name, .. } | Target::Sink { name, .. } => name.to_string(),
            Target::Subscribe => "subscription".to_owned(),
        };
        let errors = ErrorCounter::new(move |expr, rows, sample| worker.logs.query_error(&label, expr, rows, sample))
            .failing(on_error == OnError::Fail);
        let bound = bind_query(&names, query, &BindMode::Continuous { errors })?;
        let reads = relations_of(&bound)?;
        if let Some(r) = reads.iter().find(|r| is_system(r.id)) {
            return Err(SpateError::unsupported(format!(
                "system table \"{}\" cannot be read by a continuous query",
                r.display_name()
            )));
        }
        let optimized = optimize_continuous(bound)?;
        let root = lower(&optimized, &LowerOptions { parallelism, emit_on_window_close: emit, target })?;
        Ok(Planned { graph: cut(root.clone(), parallelism), root, reads, named: names.named(), on_error })
    }

    fn query_options(&self, options: &BTreeMap<String, String>) -> Result<QueryOptions> {
        let mut parallelism = self.variables.parallelism;
        for (key, value) in options {
            match key.as_str() {
                "parallelism" => {
                    parallelism = usize::try_from(options::to_u64(key, value)?).unwrap_or(usize::MAX);
                    if !(1..=256).contains(&parallelism) {
                        return Err(SpateError::invalid(format!("parallelism must be between 1 and 256, not {value}")));
                    }
                }
                "on_error" => {}
                k if k.starts_with("fault.") || k == "recovery_slo" || k == "deadline" => {
                    return Err(SpateError::unsupported(format!("option \"{k}\" is not supported yet")));
                }
                k => {
                    let error = SpateError::invalid(format!("unknown option \"{k}\" of a materialized view"));
                    return Err(match did_you_mean(k, ["parallelism", "on_error"]) {
                        Some(near) => error.with_hint(format!("did you mean \"{near}\"?")),
                        None => error.with_hint("the options are: parallelism, on_error"),
                    });
                }
            }
        }
        Ok(QueryOptions { parallelism, on_error: OnError::of(options)? })
    }

    pub(super) async fn create_materialized_view(&mut self, create: CreateMaterializedView, text: &str) -> Result<()> {
        let engine = self.engine.clone();
        let ddl = engine.ddl.lock().await;
        let kind = DropKind::MaterializedView;
        let room = self.make_room(kind, &create.name, create.or_replace, create.if_not_exists)?;
        if room.is_kept() {
            return Ok(());
        }
        let with = self.query_options(&create.options)?;
        let (id, schema_name, name) = room.object(&engine);
        let target = Target::Materialize { id, name: create.name.to_string().into() };
        let text_with_names = with_columns(&create.query_text, &create.columns);
        let query = if create.columns.is_empty() { create.query } else { parse_query(&text_with_names)? };
        let planned = self.plan(&query, create.emit_on_window_close, &with, target).await?;
        renamed(&planned.root.schema, &create.columns)?;
        let props = &planned.root.props;
        let relation = Relation {
            id,
            schema_name: schema_name.clone(),
            name: name.clone(),
            kind: RelationKind::MaterializedView,
            schema: planned.root.schema.clone(),
            key: props.stream_key.clone(),
            append_only: props.append_only,
            watermark: event_time(props),
            bounded: false,
            query: Some(text_with_names.into()),
        };
        let bounded = planned.reads.iter().all(|r| r.kind != RelationKind::Source || r.bounded);
        self.vacate(&room, &planned.named)?;
        engine.catalog.lock().add(Object {
            id,
            schema: schema_name,
            name,
            kind: ObjectKind::MaterializedView,
            relation: Some(relation),
            sql: text.to_owned(),
            depends_on: planned.named.clone(),
            options: create.options,
            format: None,
            table: None,
            function: None,
            index: None,
            comments: BTreeMap::new(),
        })?;
        let started = self.start(id, planned, None).await;
        drop(ddl);
        self.finish_create(id, started, bounded).await
    }

    pub(super) async fn create_sink(&mut self, create: CreateSink, text: &str) -> Result<()> {
        let engine = self.engine.clone();
        let ddl = engine.ddl.lock().await;
        let room = self.make_room(DropKind::Sink, &create.name, create.or_replace, create.if_not_exists)?;
        if room.is_kept() {
            return Ok(());
        }
        let (query, emit) = match create.input {
            Input::Query { query, emit_on_window_close, .. } => (query, emit_on_window_close),
            Input::Relation(name) => (parse_query(&format!("SELECT * FROM {}", quoted(&name)))?, false),
        };
        let mut sink_options = create.options.clone();
        match sink_options.remove("delivery").as_deref() {
            None | Some("exactly_once") => {}
            Some(d @ ("at_least_once" | "at_most_once")) => {
                return Err(SpateError::unsupported(format!("delivery = '{d}' is not supported yet"))
                    .with_hint("leave it out: exactly_once is the default"));
            }
            Some(other) => {
                return Err(SpateError::invalid(format!("option delivery has no value '{other}'"))
                    .with_hint("use exactly_once"));
            }
        }
        let (id, schema_name, name) = room.object(&engine);
        let target = Target::Sink { id, name: create.name.to_string().into() };
        let with = QueryOptions { parallelism: self.variables.parallelism, on_error: OnError::of(&sink_options)? };
        let planned = self.plan(&query, emit, &with, target).await?;
        let format = create.format.as_ref().map(format_spec);
        let writer = open_sink(
            &sink_options,
            format.as_ref(),
            planned.root.schema.clone(),
            planned.root.props.append_only,
            planned.root.props.stream_key.as_deref(),
            &engine.base_dir,
        )?;
        let writer = match &engine.config.sink_observer {
            Some(observer) => Box::new(Observed { writer, observer: observer.clone() }),
            None => writer,
        };
        if engine.restoring.lock().is_none()
            && let Some(epoch) = writer.last_epoch()?
        {
            return Err(SpateError::new(
                ErrorKind::AlreadyExists,
                format!("the sink's target already holds output, up to epoch {epoch}, of another run"),
            )
            .with_hint("name another path, or remove what is there"));
        }
        let bounded = planned.reads.iter().all(|r| r.kind != RelationKind::Source || r.bounded);
        self.vacate(&room, &planned.named)?;
        engine.catalog.lock().add(Object {
            id,
            schema: schema_name,
            name,
            kind: ObjectKind::Sink,
            relation: None,
            sql: text.to_owned(),
            depends_on: planned.named.clone(),
            options: create.options,
            format: create.format,
            table: None,
            function: None,
            index: None,
            comments: BTreeMap::new(),
        })?;
        let started = self.start(id, planned, Some(writer)).await;
        drop(ddl);
        self.finish_create(id, started, bounded).await
    }

    /// Stops ticks and waits until nothing is in flight. The caller resumes the worker.
    pub(super) async fn quiesce(&self) -> Result<()> {
        self.engine.worker.pause();
        let guard = Resume(Some(self.engine.clone()));
        self.engine.wait_until(|| Ok(self.engine.worker.is_drained().then_some(()))).await?;
        guard.disarm();
        Ok(())
    }

    /// Starts the job of object `id`. Ticks are held back from draining to starting, so that the
    /// snapshot that is backfilled and the first epoch meet without a gap.
    async fn start(&mut self, id: ObjectId, planned: Planned, sink: Option<Box<dyn SinkWriter>>) -> Result<()> {
        self.quiesce_at_checkpoint().await?;
        let resume = Resume(Some(self.engine.clone()));
        let made = self.start_drained(id, planned, sink).and_then(|()| self.store_catalog());
        drop(resume);
        made?;
        self.engine.worker.request_tick();
        Ok(())
    }

    fn start_drained(&mut self, id: ObjectId, planned: Planned, sink: Option<Box<dyn SinkWriter>>) -> Result<()> {
        let engine = &self.engine;
        let worker = &engine.worker;
        let restoring = engine.restoring.lock().clone();
        let resume = match &restoring {
            None => None,
            Some(r) => {
                let of = |f: &Fragment| (0..f.parallelism).map(move |i| (f.id, i)).collect::<Vec<_>>();
                let all: Vec<(usize, usize)> = planned.graph.fragments.iter().flat_map(of).collect();
                let task = |(f, i)| TaskId { job: id, fragment: f as u32, index: i as u32 };
                engine.resume_of(r, all.into_iter().map(task))?
            }
        };
        let start = match &restoring {
            Some(r) => r.start,
            None => worker.last() + 1,
        };
        let mut sources = BTreeMap::new();
        let mut stores = BTreeMap::new();
        let mut strict = BTreeSet::new();
        for r in &planned.reads {
            if r.kind == RelationKind::Source {
                if planned.on_error == OnError::Fail || engine.source_on_error(r.id)? == OnError::Fail {
                    strict.insert(r.id);
                }
                let c = engine.connectors.lock().get(&r.id).cloned();
                sources.insert(r.id, c.ok_or_else(|| SpateError::internal("a source without a connector"))?);
            } else {
                if let Some(e) = worker.job(r.id).and_then(|j| j.error) {
                    return Err(e.context(format!("\"{}\" has stopped", r.display_name())));
                }
                let s = worker.store(r.id);
                stores.insert(r.id, s.ok_or_else(|| SpateError::internal("a table without a store"))?);
            }
        }
        let keeps = sink.is_none().then_some(id);
        let target = match keeps {
            None => None,
            Some(_) => {
                let last = planned.graph.fragments.last();
                let partitions = last.map_or(1, |f| f.parallelism);
                let props = &planned.root.props;
                let schema = planned.root.schema.clone();
                let key = props.stream_key.clone().filter(|k| !k.is_empty());
                let store = ViewStore::new(
                    schema,
                    key,
                    props.append_only,
                    partitions,
                    worker.last(),
                    worker.log_spill.clone(),
                )?;
                worker.add_store(id, store.clone(), None);
                Some(store)
            }
        };
        let kept = engine.catalog.lock().get(id).is_some();
        let name = engine.catalog.lock().get(id).map_or_else(|| format!("subscription {id}"), |o| o.display_name());
        let context = JobContext {
            job: id,
            start,
            sources,
            strict,
            stores,
            target,
            sink,
            board: worker.board.clone(),
            events: worker.clone(),
            clock: engine.clock.clone(),
            spill: worker.spill.clone(),
            memory: worker.memory.clone(),
            hand_over: engine.config.hand_over,
            snapshot_every: None,
            checkpoints: worker.durable.as_ref().filter(|_| kept).map(|d| d.checkpoints.clone() as Arc<dyn Snapshots>),
            resume,
        };
        let reads = planned.reads.iter().map(|r| r.id).filter(|r| *r != id).collect();
        let tasks = build_job(planned.graph, context, worker.executor.as_ref())?;
        worker.start_job(name, tasks, start, reads, keeps)
    }

    /// Makes a view or sink that cannot go on, with the error that says why.
    fn stopped(&self, id: ObjectId, error: SpateError) -> Result<()> {
        let worker = &self.engine.worker;
        let object = self.engine.catalog.lock().get(id).cloned();
        let object = object.ok_or_else(|| SpateError::internal("an object that was made is gone"))?;
        tracing::error!("{} cannot go on: {error}", object.display());
        if let Some(r) = &object.relation
            && worker.store(id).is_none()
        {
            let spill = worker.log_spill.clone();
            let store = ViewStore::new(r.schema.clone(), r.key.clone(), r.append_only, 1, worker.last(), spill)?;
            worker.add_store(id, store, None);
        }
        worker.add_stopped(id, object.display_name(), object.relation.is_some().then_some(id), error);
        Ok(())
    }

    /// Waits until a new view or sink has caught up; takes it back if it fails or the user cancels.
    async fn finish_create(&mut self, id: ObjectId, started: Result<()>, bounded: bool) -> Result<()> {
        if self.engine.restoring.lock().is_some() {
            return match started {
                Ok(()) => Ok(()),
                // It was there before: it stays, stopped, and tells why.
                Err(e) => self.stopped(id, e),
            };
        }
        let mut undo = Undo { session: Some((self.engine.clone(), id)) };
        started?;
        if bounded && !self.variables.background_ddl {
            let engine = &self.engine;
            let ready = engine
                .wait_until(|| match engine.worker.job(id) {
                    None => Err(SpateError::new(ErrorKind::Cancelled, "it was dropped meanwhile")),
                    Some(j) => match (j.error, j.ready) {
                        (Some(e), _) => Err(e),
                        (None, Some(epoch)) => Ok(Some(epoch)),
                        (None, None) => Ok(None),
                    },
                })
                .await?;
            engine.wait_visible(ready).await?;
            self.written = self.written.max(ready);
        }
        undo.session = None;
        Ok(())
    }

    pub(super) async fn drop_objects(&mut self, drop: &DropStatement) -> Result<()> {
        let engine = self.engine.clone();
        let _ddl = engine.ddl.lock().await;
        self.drop_locked(drop)
    }

    fn drop_locked(&mut self, drop: &DropStatement) -> Result<()> {
        let gone = self.engine.catalog.lock().apply_drop(&self.variables.search_path, drop)?;
        for object in gone {
            index::let_go(&self.engine, &object);
            forget(&self.engine, object.id);
        }
        Ok(())
    }

    /// Runs a query as a temporary view and gives its id and store.
    pub(super) async fn start_temporary(
        &mut self,
        query: &Query,
        emit: bool,
    ) -> Result<(ObjectId, Arc<ViewStore>, bool)> {
        let engine = self.engine.clone();
        let _ddl = engine.ddl.lock().await;
        let id = engine.catalog.lock().allocate_id();
        let target = Target::Materialize { id, name: "subscription".into() };
        let with = QueryOptions { parallelism: self.variables.parallelism, on_error: OnError::Continue };
        let planned = self.plan(query, emit, &with, target).await?;
        let append_only = planned.root.props.append_only;
        if let Err(e) = self.start(id, planned, None).await {
            forget(&engine, id);
            return Err(e);
        }
        match engine.worker.store(id) {
            Some(store) => Ok((id, store, append_only)),
            None => Err(SpateError::internal("a subscription without a store")),
        }
    }
}

/// The event time that a view passes on from what it reads: its rows are late no more.
fn event_time(props: &Properties) -> Option<WatermarkSpec> {
    let column = props.watermarks.iter().find(|w| w.kind == WatermarkKind::EventTime)?.column;
    props.append_only.then_some(WatermarkSpec { column, delay_us: 0, idle_us: None })
}

/// Stops the job of an object and lets go of what it held.
pub(super) fn forget(engine: &super::Engine, id: ObjectId) {
    engine.worker.stop_job(id);
    engine.worker.remove_store(id);
    engine.connectors.lock().remove(&id);
    engine.writers.lock().remove(&id);
}

/// Takes a half-made object back when its statement fails or is cancelled.
struct Undo {
    session: Option<(Arc<super::Engine>, ObjectId)>,
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some((engine, id)) = self.session.take() {
            // Nothing can depend on it yet that must stay: it was never ready.
            let gone = engine.catalog.lock().remove(&[id], true).unwrap_or_default();
            for o in &gone {
                forget(&engine, o.id);
            }
            forget(&engine, id);
        }
    }
}

/// Resumes ticks, also when a statement is cancelled in between.
pub(super) struct Resume(pub(super) Option<Arc<super::Engine>>);

impl Resume {
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Resume {
    fn drop(&mut self) {
        if let Some(engine) = self.0.take() {
            engine.worker.resume();
        }
    }
}

fn format_spec(clause: &FormatClause) -> FormatSpec {
    FormatSpec { format: clause.format.clone(), encode: clause.encode.clone() }
}

fn quoted(name: &Name) -> String {
    match &name.schema {
        Some(s) => format!("{}.{}", quote(s), quote(&name.name)),
        None => quote(&name.name),
    }
}

/// The query with its leading columns renamed.
fn with_columns(query: &str, columns: &[String]) -> String {
    if columns.is_empty() {
        return query.to_owned();
    }
    let names: Vec<String> = columns.iter().map(|c| quote(c)).collect();
    format!("SELECT * FROM ({query}) AS __q ({})", names.join(", "))
}

fn renamed(schema: &Schema, columns: &[String]) -> Result<SchemaRef> {
    if columns.len() > schema.fields().len() {
        return Err(SpateError::invalid(format!(
            "{} column names for a query of {} columns",
            columns.len(),
            schema.fields().len()
        )));
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut fields = Vec::new();
    for (i, f) in schema.fields().iter().enumerate() {
        let name = columns.get(i).unwrap_or(f.name());
        if !seen.insert(name.clone()) {
            return Err(SpateError::invalid(format!("column \"{name}\" is named twice"))
                .with_hint("give the columns different names with AS"));
        }
        fields.push(f.as_ref().clone().with_name(name));
    }
    Ok(Arc::new(Schema::new(fields)))
}
