//! Scans: a connector is read by Source, a table or view of the engine by Scan.

use std::sync::Arc;

use datafusion_expr::{LogicalPlan, TableScan};
use spate_engine::plan::{
    OpSpec, ProjectSpec, Properties, ScanSpec, SourceSpec, StreamNode, WatermarkColumn, WatermarkKind, WatermarkSpec,
};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer, expr, project, stream_schema};
use crate::bind::RelationSource;
use crate::catalog::{Relation, RelationKind};

impl Lowerer {
    pub(super) fn scan(&self, t: &TableScan) -> Result<Lowered> {
        let Some(relation) = RelationSource::of(t.source.as_ref()) else {
            return Err(SpateError::unsupported(format!("\"{}\" cannot be read by a continuous query", t.table_name)));
        };
        if !t.filters.is_empty() || t.fetch.is_some() {
            return Err(SpateError::internal("a filter or limit was pushed into a stream scan"));
        }
        let wanted: Vec<usize> = match &t.projection {
            Some(p) => p.clone(),
            None => (0..relation.schema.fields().len()).collect(),
        };
        // A source judges lateness by its watermark column, so it reads that in any case:
        // which rows count must not depend on which columns a query uses.
        let mut read = wanted.clone();
        if relation.kind == RelationKind::Source
            && let Some(w) = relation.watermark
        {
            read.push(w.column);
        }
        read.sort_unstable();
        read.dedup();
        let node = self.leaf(relation, read.clone())?;
        if read == wanted {
            return Ok(node.into());
        }
        let schema = stream_schema(&LogicalPlan::TableScan(t.clone()));
        let mut columns = Vec::with_capacity(wanted.len());
        for w in &wanted {
            let at = read.binary_search(w).map_err(|_| SpateError::internal("a scanned column got lost"))?;
            columns.push(at);
        }
        let exprs = columns.iter().map(|&i| expr::column(node.schema.field(i).name(), i)).collect();
        let plain: Vec<Option<usize>> = columns.iter().map(|&i| Some(i)).collect();
        let props = project::through(&node.props, &plain, self.anyhow());
        Ok(StreamNode { op: OpSpec::Project(ProjectSpec { exprs }), schema, props, inputs: vec![node] }.into())
    }

    fn leaf(&self, relation: &Arc<Relation>, projection: Vec<usize>) -> Result<StreamNode> {
        let schema = relation.schema.project(&projection)?;
        let fields: Vec<_> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
        let schema = Arc::new(arrow::datatypes::Schema::new(fields));
        let position = |c: usize| projection.binary_search(&c).ok();
        // Nobody enforces the key of an append-only source, so nothing may rely on it.
        let keyed = relation.kind != RelationKind::Source || !relation.append_only;
        let stream_key = match &relation.key {
            Some(key) if keyed => key.iter().map(|&c| position(c)).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        let mut props = Properties {
            append_only: relation.append_only,
            stream_key,
            watermarks: Vec::new(),
            distribution: self.anyhow(),
            ..Properties::default()
        };
        let name: Arc<str> = relation.display_name().into();
        let op = match relation.kind {
            RelationKind::Source => {
                let watermark =
                    relation.watermark.and_then(|w| position(w.column).map(|column| WatermarkSpec { column, ..w }));
                if let Some(w) = watermark {
                    props.watermarks.push(WatermarkColumn { column: w.column, kind: WatermarkKind::EventTime });
                }
                OpSpec::Source(SourceSpec { id: relation.id, name, projection, watermark, in_order: false })
            }
            RelationKind::Table | RelationKind::MaterializedView => {
                // Late rows never get into an append-only table; elsewhere an UPDATE may bring one.
                let watermark = relation.watermark.filter(|_| relation.append_only);
                if let Some(column) = watermark.and_then(|w| position(w.column)) {
                    props.watermarks.push(WatermarkColumn { column, kind: WatermarkKind::EventTime });
                }
                OpSpec::Scan(ScanSpec { id: relation.id, name, projection })
            }
            RelationKind::View => return Err(SpateError::internal(format!("view \"{name}\" was not expanded"))),
        };
        Ok(StreamNode { op, inputs: vec![], schema, props })
    }
}
