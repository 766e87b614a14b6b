//! CREATE TABLE, CREATE SOURCE, CREATE TABLE AS.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{Field, Schema, SchemaRef};
use futures::TryStreamExt;
use spate_engine::connector::generated::{ColumnSource, Generated};
use spate_engine::connector::{Envelope, OnError, SourceConnector, idle_timeout, open_source};
use spate_engine::plan::{
    Distribution, ObjectId, OpSpec, Properties, SourceSpec, StreamNode, UpsertSpec, WatermarkSpec,
};
use spate_engine::state::view::ViewStore;
use spate_engine::types::{Delta, ErrorKind, Result, SpateError, WATERMARK_MIN};
use spate_planner::bind::{BindMode, bind_columns, bind_query, without_marks};
use spate_planner::catalog::{Object, ObjectKind, Relation, RelationKind, TableColumn, TableDetails};
use spate_planner::fragment::cut;
use spate_planner::lower::{exchange, note_order};
use spate_planner::rules::guard::ErrorCounter;
use spate_planner::sql::statement::{CreateTable, CreateTableAs, DropKind, OnConflict};
use spate_planner::sql::{parse_query, quote, types};

use super::{Planned, format_spec, quoted, renamed};
use crate::session::Session;
use crate::session::dml::cast_column;
use crate::session::resolver::Names;
use crate::worker::TableClose;

impl Session {
    pub(in crate::session) async fn create_table(&mut self, create: CreateTable, text: &str) -> Result<()> {
        let engine = self.engine.clone();
        let _ddl = engine.ddl.lock().await;
        let kind = if create.source { DropKind::Source } else { DropKind::Table };
        let room = self.make_room(kind, &create.name, create.or_replace, create.if_not_exists)?;
        if room.is_kept() {
            return Ok(());
        }
        let restoring = engine.restoring.lock().clone();
        let mut details = TableDetails::from_statement(&create);
        let declared: Option<SchemaRef> = (!create.columns.is_empty()).then(|| {
            let fields = create.columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable));
            Arc::new(Schema::new(fields.collect::<Vec<_>>())) as SchemaRef
        });
        // What was inferred once stays so.
        let declared = declared.or_else(|| restoring.as_ref().and_then(|r| r.columns.clone()));
        let label = create.name.to_string();
        if let Some(schema) = &declared {
            check_generated(&label, &details, schema)?;
        }
        let on_error = OnError::of(&create.options)?;
        check_keyed(&create, &details)?;
        let connector = if create.options.is_empty() && create.format.is_none() {
            None
        } else {
            Some(self.open_connector(&create, &details, declared.clone(), on_error)?)
        };
        let schema = match (&connector, declared) {
            (Some(c), Some(s)) if c.changes() => s,
            (Some(c), _) => c.schema(),
            (None, Some(s)) => s,
            (None, None) => {
                return Err(SpateError::invalid("a table needs columns, or a connector to infer them from")
                    .with_hint("CREATE TABLE t (a int, b text)"));
            }
        };
        if details.columns.is_empty() {
            details.columns = schema
                .fields()
                .iter()
                .map(|f| TableColumn {
                    name: f.name().clone(),
                    data_type: f.data_type().clone(),
                    nullable: f.is_nullable(),
                    default: None,
                    generated: None,
                })
                .collect();
        }
        if create.source && connector.is_none() {
            return Err(SpateError::invalid("a source needs a connector")
                .with_hint("CREATE SOURCE s WITH (connector = 'file', path = '…')"));
        }
        let key = (!details.primary_key.is_empty()).then(|| details.primary_key.clone());
        if create.append_only && create.on_conflict == OnConflict::Overwrite {
            return Err(SpateError::invalid("an APPEND ONLY table cannot overwrite rows on conflict"));
        }
        let idle_us = match connector {
            Some(_) => idle_timeout(&create.options, create.watermark.is_some())?,
            None => None,
        };
        let watermark = match &create.watermark {
            None => None,
            Some(w) => {
                let column = schema.index_of(&w.column).map_err(|_| {
                    SpateError::new(ErrorKind::NotFound, format!("watermark column \"{}\" does not exist", w.column))
                })?;
                let t = schema.field(column).data_type();
                if !matches!(t, arrow::datatypes::DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, _)) {
                    return Err(SpateError::new(
                        ErrorKind::Type,
                        format!("watermark column \"{}\" must be a timestamp", w.column),
                    ));
                }
                Some(WatermarkSpec { column, delay_us: w.delay_us, idle_us })
            }
        };
        let called = self.check_defaults(&details).await?;
        let (id, schema_name, name) = room.object(&engine);
        let keep_first = create.on_conflict == OnConflict::Nothing;
        let append_only = create.source || create.append_only || (connector.is_some() && (key.is_none() || keep_first));
        if connector.is_some() && !append_only && watermark.is_some() {
            return Err(SpateError::unsupported("a WATERMARK on rows that later records change is not supported")
                .with_hint("leave it out, or let the first record of a key count with ON CONFLICT DO NOTHING"));
        }
        let relation = Relation {
            id,
            schema_name: schema_name.clone(),
            name: name.clone(),
            kind: if create.source { RelationKind::Source } else { RelationKind::Table },
            schema: schema.clone(),
            key: key.clone(),
            append_only,
            watermark,
            bounded: connector.as_ref().is_some_and(|c| c.bounded()),
            query: None,
        };
        let object = Object {
            id,
            schema: schema_name,
            name,
            kind: if create.source { ObjectKind::Source } else { ObjectKind::Table },
            relation: Some(relation.clone()),
            sql: text.to_owned(),
            depends_on: called,
            options: create.options,
            format: create.format,
            table: Some(details),
            function: None,
            index: None,
            comments: BTreeMap::new(),
        };
        self.vacate(&room, &[])?;
        match connector {
            Some(c) if create.source => {
                engine.connectors.lock().insert(id, c);
                engine.catalog.lock().add(object)?;
                Ok(())
            }
            Some(c) => self.start_connected_table(object, relation, c, keep_first).await,
            None => self.start_table(object).await,
        }
    }

    /// Makes the store of a table that DML writes.
    pub(super) async fn start_table(&mut self, object: Object) -> Result<()> {
        let engine = self.engine.clone();
        let id = object.id;
        let relation = object.relation.clone().ok_or_else(|| SpateError::internal("a table without a relation"))?;
        engine.catalog.lock().add(object)?;
        // A tick between making the store and registering it would leave a gap.
        self.quiesce().await?;
        let append_only = relation.append_only && relation.key.is_none();
        let start = engine.worker.last();
        let spill = engine.worker.log_spill.clone();
        let made = ViewStore::new(relation.schema, relation.key, append_only, 1, start, spill).and_then(|store| {
            let restoring = engine.restoring.lock().clone();
            let before = restoring.map(|r| engine.refill(&r, &store)).transpose()?.flatten();
            let mark = before.unwrap_or(WATERMARK_MIN);
            let close = TableClose { watermark: parking_lot::Mutex::new((mark, mark)) };
            engine.worker.add_store(id, store, Some(Arc::new(close)));
            // Nothing that is written to it is acknowledged before.
            self.store_catalog()
        });
        engine.worker.resume();
        made
    }

    /// The connector of a table or source, with its generated columns.
    fn open_connector(
        &self,
        create: &CreateTable,
        details: &TableDetails,
        declared: Option<SchemaRef>,
        on_error: OnError,
    ) -> Result<Arc<dyn SourceConnector>> {
        let engine = &self.engine;
        let format = create.format.as_ref().map(format_spec);
        let open = |columns: Option<SchemaRef>| {
            let at = |k: &usize| columns.as_ref().and_then(|c| c.index_of(&details.columns.get(*k)?.name).ok());
            let key: Vec<usize> = details.primary_key.iter().filter_map(at).collect();
            open_source(&create.options, format.as_ref(), columns, &key, &engine.base_dir, engine.clock.clone())
        };
        let Some(schema) = declared else { return open(None) };
        let (base, generated) = details.split_generated(&schema);
        if generated.is_empty() {
            return open(Some(schema));
        }
        if let Some((i, _)) = generated.iter().find(|(i, _)| !schema.field(*i).is_nullable()) {
            return Err(SpateError::unsupported(format!(
                "NOT NULL on the generated column \"{}\" of a connector's rows is not supported",
                schema.field(*i).name()
            )));
        }
        let inner = open(Some(Arc::new(schema.project(&base)?)))?;
        let worker = engine.worker.clone();
        let label = create.name.to_string();
        let errors = ErrorCounter::new(move |expr, rows, sample| worker.logs.query_error(&label, expr, rows, sample))
            .failing(on_error == OnError::Fail);
        let exprs: Vec<_> = generated.iter().map(|(i, e)| (*e, schema.field(*i).data_type())).collect();
        let bound = bind_columns(&create.name.name, &inner.schema(), &exprs, &BindMode::Continuous { errors })?;
        let mut columns: Vec<ColumnSource> = Vec::with_capacity(schema.fields().len());
        let mut bound = bound.into_iter();
        for i in 0..schema.fields().len() {
            columns.push(match base.iter().position(|b| *b == i) {
                Some(k) => ColumnSource::Read(k),
                None => ColumnSource::Computed(
                    bound.next().ok_or_else(|| SpateError::internal("a generated column got lost"))?,
                ),
            });
        }
        if !inner.changes() {
            return Ok(Arc::new(Generated::new(inner, schema, columns)));
        }
        // What a record changes stays behind the columns.
        columns.push(ColumnSource::Read(base.len()));
        let change = inner.schema().field(base.len()).clone();
        let fields = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).chain([change]);
        Ok(Arc::new(Generated::new(inner, Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns)))
    }

    /// `CREATE TABLE … AS`; gives the command tag.
    pub(in crate::session) async fn create_table_as(&mut self, create: CreateTableAs) -> Result<String> {
        let engine = self.engine.clone();
        let _ddl = engine.ddl.lock().await;
        let room = self.make_room(DropKind::Table, &create.name, create.or_replace, create.if_not_exists)?;
        if room.is_kept() {
            return Ok("CREATE TABLE AS".into());
        }
        let plan = {
            let names = Names::new(&engine, &self.variables.search_path);
            bind_query(&names, &create.query, &BindMode::AdHoc)?
        };
        let given = plan.schema().as_arrow();
        let given = without_marks(given).unwrap_or_else(|| Arc::new(given.clone()));
        let schema = renamed(&given, &create.columns)?;
        let fields = schema.fields().iter().map(|f| Field::new(f.name(), types::storable(f.data_type()), true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batches: Vec<RecordBatch> = if create.with_data {
            self.select_plan(plan, &BTreeMap::new()).await?.stream.try_collect().await?
        } else {
            Vec::new()
        };
        let mut rows = Vec::with_capacity(batches.len());
        for b in &batches {
            let columns = b.columns().iter().zip(schema.fields());
            let columns = columns.map(|(c, f)| cast(c, f.data_type())).collect::<std::result::Result<Vec<_>, _>>()?;
            rows.push(RecordBatch::try_new(schema.clone(), columns)?);
        }
        let (id, schema_name, name) = room.object(&engine);
        let columns: Vec<TableColumn> = schema
            .fields()
            .iter()
            .map(|f| TableColumn {
                name: f.name().clone(),
                data_type: f.data_type().clone(),
                nullable: true,
                default: None,
                generated: None,
            })
            .collect();
        let defs: Vec<String> =
            columns.iter().map(|c| format!("{} {}", quote(&c.name), types::display(&c.data_type))).collect();
        let relation = Relation {
            id,
            schema_name: schema_name.clone(),
            name: name.clone(),
            kind: RelationKind::Table,
            schema: schema.clone(),
            key: None,
            append_only: false,
            watermark: None,
            bounded: false,
            query: None,
        };
        let object = Object {
            id,
            schema: schema_name,
            name,
            kind: ObjectKind::Table,
            relation: Some(relation),
            // The rows are the table's own now: what made them is not part of it.
            sql: format!("CREATE TABLE {} ({})", quoted(&create.name), defs.join(", ")),
            depends_on: Vec::new(),
            options: BTreeMap::new(),
            format: None,
            table: Some(TableDetails { columns, ..TableDetails::default() }),
            function: None,
            index: None,
            comments: BTreeMap::new(),
        };
        self.vacate(&room, &[])?;
        self.start_table(object).await?;
        let n: usize = rows.iter().map(RecordBatch::num_rows).sum();
        if n > 0 {
            let store = engine.worker.store(id).ok_or_else(|| SpateError::internal("a table without a store"))?;
            for b in rows {
                store.write(Delta::insert(b))?;
            }
            self.written = self.written.max(engine.worker.request_tick());
        }
        Ok(if create.with_data { format!("SELECT {n}") } else { "CREATE TABLE AS".into() })
    }

    async fn start_connected_table(
        &mut self,
        object: Object,
        relation: Relation,
        connector: Arc<dyn SourceConnector>,
        keep_first: bool,
    ) -> Result<()> {
        let engine = self.engine.clone();
        let id = object.id;
        let bounded = connector.bounded();
        let (with_change, read) = (connector.changes(), connector.schema());
        engine.connectors.lock().insert(id, connector);
        // The table is the materialized result of reading its own connector.
        let source = Relation { kind: RelationKind::Source, ..relation };
        let parallelism = self.variables.parallelism;
        let keyed = source.key.is_some();
        let mut node = StreamNode {
            op: OpSpec::Source(SourceSpec {
                id,
                name: source.display_name().into(),
                projection: (0..read.fields().len()).collect(),
                watermark: source.watermark,
                in_order: keyed,
            }),
            inputs: Vec::new(),
            schema: read,
            props: Properties {
                append_only: true,
                // One task reads all, so that it is the order of the files that counts for a key.
                distribution: if parallelism == 1 || keyed { Distribution::Single } else { Distribution::Any },
                ..Properties::default()
            },
        };
        if let Some(key) = &source.key {
            if parallelism > 1 {
                node = exchange(node, Distribution::Hash(key.clone()));
            }
            node = StreamNode {
                op: OpSpec::Upsert(UpsertSpec { key: key.clone(), keep_first, with_change }),
                schema: source.schema.clone(),
                props: Properties {
                    append_only: source.append_only,
                    stream_key: Some(key.clone()),
                    ..node.props.clone()
                },
                inputs: vec![node],
            };
        }
        let mut root = StreamNode {
            op: OpSpec::Materialize(spate_engine::plan::MaterializeSpec { id, name: source.display_name().into() }),
            schema: node.schema.clone(),
            props: node.props.clone(),
            inputs: vec![node],
        };
        note_order(&mut root);
        let planned = Planned {
            graph: cut(root.clone(), parallelism),
            root,
            reads: vec![Arc::new(source)],
            named: vec![],
            on_error: OnError::Continue,
        };
        engine.catalog.lock().add(object)?;
        let started = self.start(id, planned, None).await;
        self.finish_create(id, started, bounded).await
    }

    /// Checks that defaults can be computed and fit their columns, by doing so once.
    /// Gives the functions that they call.
    pub(super) async fn check_defaults(&self, details: &TableDetails) -> Result<Vec<ObjectId>> {
        let mut called = Vec::new();
        for c in &details.columns {
            called.extend(self.default_value(c).await?.map(|(_, called)| called).unwrap_or_default());
        }
        called.sort_unstable();
        called.dedup();
        Ok(called)
    }

    /// What the default of a column gives now, as one row, and the functions that it calls.
    pub(super) async fn default_value(&self, column: &TableColumn) -> Result<Option<(ArrayRef, Vec<ObjectId>)>> {
        let Some(d) = &column.default else { return Ok(None) };
        let given = async {
            let query = parse_query(&format!("SELECT {d}"))?;
            let (plan, called) = {
                let names = Names::new(&self.engine, &self.variables.search_path);
                (bind_query(&names, &query, &BindMode::AdHoc)?, names.named())
            };
            let rows = self.select_plan(plan, &BTreeMap::new()).await?;
            let batches: Vec<RecordBatch> = rows.stream.try_collect().await?;
            match batches.iter().find(|b| b.num_rows() == 1) {
                Some(one) => Ok((cast_column(one.column(0), &column.data_type, &column.name)?, called)),
                None => Err(SpateError::internal("a default without a value")),
            }
        };
        match given.await {
            Ok(given) => Ok(Some(given)),
            // The place would be one in the default's text, not in the statement's.
            Err(e) => Err(e.without_position().context(format!("default of column \"{}\"", column.name))),
        }
    }
}

/// What makes sense together of a key, how records speak of changes, and where rows come from.
fn check_keyed(create: &CreateTable, details: &TableDetails) -> Result<()> {
    let envelope = create.format.as_ref().map_or(Ok(Envelope::Plain), |f| format_spec(f).envelope())?;
    let format = create.format.as_ref().map(|f| f.format.to_uppercase()).unwrap_or_default();
    if create.source && (!details.primary_key.is_empty() || envelope != Envelope::Plain) {
        let what = if envelope == Envelope::Plain { "a PRIMARY KEY".into() } else { format!("FORMAT {format}") };
        return Err(SpateError::unsupported(format!("{what} on a source is not supported: it keeps no rows"))
            .with_hint("use CREATE TABLE with the same options"));
    }
    if envelope == Envelope::Plain {
        return Ok(());
    }
    if create.columns.is_empty() || details.primary_key.is_empty() {
        return Err(SpateError::invalid(format!("FORMAT {format} needs columns and a PRIMARY KEY"))
            .with_hint("it says which row a record is about"));
    }
    if create.append_only || create.on_conflict == OnConflict::Nothing {
        let what = if create.append_only { "APPEND ONLY" } else { "ON CONFLICT DO NOTHING" };
        return Err(SpateError::invalid(format!("{what} does not go with FORMAT {format}, whose records change rows")));
    }
    Ok(())
}

/// Checks that generated columns can be computed, from the columns that are not, and give the same
/// value every time.
pub(super) fn check_generated(name: &str, details: &TableDetails, schema: &SchemaRef) -> Result<()> {
    let (base, generated) = details.split_generated(schema);
    if base.is_empty() && !generated.is_empty() {
        return Err(SpateError::invalid("a table needs a column that is not generated"));
    }
    let base = Arc::new(schema.project(&base)?);
    for (i, e) in generated {
        let field = schema.field(i);
        let mode = BindMode::Continuous { errors: ErrorCounter::ignore() };
        bind_columns(name, &base, &[(e, field.data_type())], &mode).map_err(|e| {
            let names_other = schema.fields().iter().enumerate().any(|(k, f)| {
                base.index_of(f.name()).is_err() && k != i && e.message().contains(&format!("\"{}\"", f.name()))
            });
            let e = e.context(format!("generated column \"{}\"", field.name()));
            if names_other { e.with_hint("a generated column cannot use another generated column") } else { e }
        })?;
    }
    Ok(())
}
