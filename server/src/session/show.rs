//! SHOW and DESCRIBE.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use spate_engine::types::{Result, SpateError};
use spate_planner::catalog::info;
use spate_planner::sql::statement::{DropKind, JobRef, Name, ShowKind};

use super::resolver::jobs;
use super::variables::VARIABLES;
use super::{Outcome, RowStream, Session};

pub(super) fn text_rows(columns: &[(&str, Vec<String>)]) -> Result<RecordBatch> {
    let fields: Vec<Field> = columns.iter().map(|(n, _)| Field::new(*n, DataType::Utf8, false)).collect();
    let arrays = columns.iter().map(|(_, v)| Arc::new(StringArray::from(v.clone())) as _).collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

impl Session {
    pub(super) fn show_objects(&self, kind: ShowKind, schema: Option<&str>) -> Result<Outcome> {
        let batch = match kind {
            ShowKind::Jobs => jobs(&self.engine)?,
            ShowKind::Workers => text_rows(&[
                ("worker", vec!["local".into()]),
                ("slots", vec![self.engine.config.threads.to_string()]),
                ("state", vec!["alive".into()]),
            ])?,
            _ => info::show_objects(&self.engine.catalog.lock(), kind, schema)?,
        };
        Ok(Outcome::Rows(RowStream::of(batch)))
    }

    pub(super) fn show_create(&self, kind: Option<DropKind>, name: &Name) -> Result<Outcome> {
        let catalog = self.engine.catalog.lock();
        let object = match kind {
            Some(k) => catalog.resolve_kind(&self.variables.search_path, name, k)?,
            None => catalog.resolve(&self.variables.search_path, name)?,
        };
        Ok(Outcome::Rows(RowStream::of(info::show_create(object)?)))
    }

    pub(super) fn describe(&self, name: &Name) -> Result<Outcome> {
        let catalog = self.engine.catalog.lock();
        let object = catalog.resolve(&self.variables.search_path, name)?;
        Ok(Outcome::Rows(RowStream::of(info::describe(object)?)))
    }

    pub(super) fn show_variable(&self, name: &str) -> Result<Outcome> {
        let value = self.variables.show(&self.engine, name)?;
        Ok(Outcome::Rows(RowStream::of(text_rows(&[(name, vec![value])])?)))
    }

    pub(super) fn show_all(&self) -> Result<Outcome> {
        let mut values = Vec::new();
        for (name, _) in VARIABLES {
            values.push(self.variables.show(&self.engine, name)?);
        }
        let names = VARIABLES.iter().map(|v| v.0.to_owned()).collect();
        let texts = VARIABLES.iter().map(|v| v.1.to_owned()).collect();
        Ok(Outcome::Rows(RowStream::of(text_rows(&[("name", names), ("value", values), ("description", texts)])?)))
    }

    pub(super) async fn cancel_job(&mut self, job: &JobRef) -> Result<()> {
        let id = match job {
            JobRef::Id(id) => *id,
            JobRef::Name(name) => self.engine.catalog.lock().resolve(&self.variables.search_path, name)?.id,
        };
        let status = self.engine.worker.job(id);
        let Some(status) = status else {
            return Err(SpateError::new(spate_engine::types::ErrorKind::NotFound, format!("there is no job {id}"))
                .with_hint("SHOW JOBS lists them"));
        };
        // A cancelled job is a failed one: its view says why it stands still, DROP works on it.
        self.engine
            .worker
            .fail_job(status.id, SpateError::new(spate_engine::types::ErrorKind::Cancelled, "cancelled by CANCEL JOB"));
        self.engine.wait_until(|| Ok(self.engine.worker.job(id).is_none_or(|j| j.error.is_some()).then_some(()))).await
    }
}
