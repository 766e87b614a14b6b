//! EXPLAIN.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use spate_engine::plan::StreamNode;
use spate_engine::plan::fragment::FragmentGraph;
use spate_engine::types::{Result, SpateError};
use spate_planner::bind::{BindMode, bind_query};
use spate_planner::explain;
use spate_planner::fragment::cut;
use spate_planner::lower::{LowerOptions, Target, lower};
use spate_planner::rules::guard::ErrorCounter;
use spate_planner::rules::optimize_continuous;
use spate_planner::sql::statement::{Explain, ExplainMode, Input, Statement};
use spate_planner::sql::{self, Query};

use super::resolver::Names;
use super::show::text_rows;
use super::{RowStream, Session};
use crate::fault;

impl Session {
    pub(super) async fn explain(&mut self, explain: Explain) -> Result<RowStream> {
        let (statement, mode, waits) = (*explain.statement, explain.mode, explain.emit_on_window_close);
        let json = explain.json;
        let answered = matches!(statement, Statement::Query(_)) && !waits;
        let kept = Kept::of(statement, waits, "EXPLAIN")?;
        let optimized = self.optimized(&kept)?;
        let parallelism = self.variables.parallelism;
        let text = match mode {
            ExplainMode::Logical => explain::logical(&optimized),
            ExplainMode::Stream => explain::stream(&kept.lower(&optimized, parallelism)?),
            ExplainMode::Fragments => explain::fragments(&cut(kept.lower(&optimized, parallelism)?, parallelism)),
            ExplainMode::Fault => {
                let graph = cut(kept.lower(&optimized, parallelism)?, parallelism);
                let name = if kept.sink { "sink" } else { "view" };
                fault::explain(&self.variables.fault, &graph, name, json)?
            }
        };
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if mode == ExplainMode::Stream && answered {
            lines.extend(self.found_how(&kept.query).await);
        }
        Ok(RowStream::of(text_rows(&[("plan", lines)])?))
    }

    /// The fragments of the query of a statement, which is not carried out.
    ///
    /// # Errors
    /// When the statement has no query, or it cannot be planned.
    pub async fn fragments(&mut self, text: &str) -> Result<FragmentGraph> {
        let kept = Kept::of(sql::parse_one(text)?.statement, false, "simulate")?;
        let parallelism = self.variables.parallelism;
        Ok(cut(kept.lower(&self.optimized(&kept)?, parallelism)?, parallelism))
    }

    fn optimized(&self, kept: &Kept) -> Result<LogicalPlan> {
        let names = Names::new(&self.engine, &self.variables.search_path);
        optimize_continuous(bind_query(&names, &kept.query, &BindMode::Continuous { errors: ErrorCounter::ignore() })?)
    }
}

/// A query as it would be kept up to date.
struct Kept {
    query: Box<Query>,
    emit_on_window_close: bool,
    sink: bool,
}

impl Kept {
    /// The query of a statement; `waits` says whether one that stands alone waits for windows, `what` what it is for.
    fn of(statement: Statement, waits: bool, what: &str) -> Result<Self> {
        let (query, emit, sink) = match statement {
            Statement::Query(q) => (q, waits, false),
            Statement::CreateMaterializedView(c) => (c.query, c.emit_on_window_close, false),
            Statement::CreateView(c) => (c.query, false, false),
            Statement::CreateSink(c) => match c.input {
                Input::Query { query, emit_on_window_close, .. } => (query, emit_on_window_close, true),
                Input::Relation(name) => {
                    (spate_planner::sql::parse_query(&format!("SELECT * FROM {name}"))?, false, true)
                }
            },
            Statement::Subscribe(s) => match s.target {
                Input::Query { query, emit_on_window_close, .. } => (query, emit_on_window_close, false),
                Input::Relation(name) => {
                    (spate_planner::sql::parse_query(&format!("SELECT * FROM {name}"))?, false, false)
                }
            },
            other => {
                return Err(SpateError::unsupported(format!("{what} {} is not supported", other.verb()))
                    .with_hint(format!("{what} takes a query, or a statement that keeps one up to date")));
            }
        };
        Ok(Self { query, emit_on_window_close: emit, sink })
    }

    fn lower(&self, optimized: &LogicalPlan, parallelism: usize) -> Result<StreamNode> {
        let name: Arc<str> = if self.sink { "sink".into() } else { "view".into() };
        let target = if self.sink { Target::Sink { id: 0, name } } else { Target::Materialize { id: 0, name } };
        lower(optimized, &LowerOptions { parallelism, emit_on_window_close: self.emit_on_window_close, target })
    }
}
