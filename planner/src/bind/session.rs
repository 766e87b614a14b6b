//! SESSION windows as a node of the bound plan. A stream has an operator for it; in batch it is
//! made of window functions ([`in_batch`]).

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion_common::tree_node::Transformed;
use datafusion_common::{DFSchema, DFSchemaRef, Result, internal_err};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{
    Expr, ExprFunctionExt, ExprSchemable, LogicalPlan, LogicalPlanBuilder, UserDefinedLogicalNodeCore, WindowFrame,
    WindowFunctionDefinition, lit, when,
};
use datafusion_functions_aggregate::{min_max, sum};
use datafusion_functions_window::lead_lag;

use super::functions;
use super::lookup::LookupJoin;
use super::windows::{END, START};

/// Adds to each row the start and the end of its session: a run of rows of one partition in
/// which each comes less than the gap after the one before. Rows have a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionWindow {
    /// The rows.
    pub input: LogicalPlan,
    /// Columns; sessions are cut among rows that agree on them.
    pub partition: Vec<Expr>,
    /// The column with the time.
    pub time: Expr,
    /// The gap, in microseconds.
    pub gap_us: i64,
    schema: DFSchemaRef,
}

impl SessionWindow {
    /// The node over `input`.
    pub(super) fn try_new(input: LogicalPlan, partition: Vec<Expr>, time: Expr, gap_us: i64) -> Result<Self> {
        let from = input.schema();
        let t = time.get_type(from)?;
        if !matches!(t, DataType::Timestamp(TimeUnit::Microsecond, _)) {
            return internal_err!("a session over times of type {t}");
        }
        let mut fields: Vec<_> = from.iter().map(|(q, f)| (q.cloned(), Arc::clone(f))).collect();
        fields.push((None, Arc::new(Field::new(START, t.clone(), true))));
        fields.push((None, Arc::new(Field::new(END, t, true))));
        let schema = Arc::new(DFSchema::new_with_metadata(fields, from.metadata().clone())?);
        Ok(Self { input, partition, time, gap_us, schema })
    }

    /// The same in window functions.
    fn in_batch(&self) -> Result<LogicalPlan> {
        let over = |f: WindowFunctionDefinition, arg: Expr, partition: Vec<Expr>, ordered: bool| {
            let f = Expr::from(WindowFunction::new(f, vec![arg])).partition_by(partition);
            if ordered {
                let frame = WindowFrame::new(Some(false));
                f.order_by(vec![self.time.clone().sort(true, false)]).window_frame(frame).build()
            } else {
                f.build()
            }
        };
        let aggregate = WindowFunctionDefinition::AggregateUDF;
        let column = |name: &str| Expr::Column(datafusion_common::Column::new_unqualified(name));
        let lag = WindowFunctionDefinition::WindowUDF(lead_lag::lag_udwf());
        let last = over(lag, self.time.clone(), self.partition.clone(), true)?.alias("__session_last");
        let before = || column("__session_last");
        let starts = before().is_null().or(functions::window_end(before(), self.gap_us).lt_eq(self.time.clone()));
        let starts = when(starts, lit(1i64)).otherwise(lit(0i64))?.alias("__session_starts");
        let number = over(aggregate(sum::sum_udaf()), column("__session_starts"), self.partition.clone(), true)?;
        let session: Vec<Expr> = self.partition.iter().cloned().chain([column("__session")]).collect();
        let first = over(aggregate(min_max::min_udaf()), self.time.clone(), session.clone(), false)?;
        let latest = over(aggregate(min_max::max_udaf()), self.time.clone(), session, false)?;
        let mut columns: Vec<Expr> = self.input.schema().columns().into_iter().map(Expr::Column).collect();
        let mut with_starts = columns.clone();
        with_starts.push(starts);
        columns.push(column("__session_first").alias(START));
        columns.push(functions::window_end(column("__session_latest"), self.gap_us).alias(END));
        LogicalPlanBuilder::from(self.input.clone())
            .window(vec![last])?
            .project(with_starts)?
            .window(vec![number.alias("__session")])?
            .window(vec![first.alias("__session_first"), latest.alias("__session_latest")])?
            .project(columns)?
            .build()
    }
}

/// A bound plan in nodes that DataFusion can run.
pub fn in_batch(plan: LogicalPlan) -> spate_engine::types::error::Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| match &node {
        LogicalPlan::Extension(e) => {
            let any = e.node.as_any();
            if let Some(s) = any.downcast_ref::<SessionWindow>() {
                return Ok(Transformed::yes(s.in_batch()?));
            }
            match any.downcast_ref::<LookupJoin>() {
                Some(l) => Ok(Transformed::yes(l.in_batch()?)),
                None => Ok(Transformed::no(node)),
            }
        }
        _ => Ok(Transformed::no(node)),
    });
    Ok(done.map_err(super::bind_error)?.data)
}

impl PartialOrd for SessionWindow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.gap_us.partial_cmp(&other.gap_us).filter(|o| o.is_ne() || self == other)
    }
}

impl UserDefinedLogicalNodeCore for SessionWindow {
    fn name(&self) -> &str {
        "SessionWindow"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.partition.iter().cloned().chain([self.time.clone()]).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let keys: Vec<String> = self.partition.iter().map(ToString::to_string).collect();
        write!(f, "SessionWindow: partition=[{}] time={} gap={} us", keys.join(", "), self.time, self.gap_us)
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (Some(input), Some(time)) = (inputs.pop(), exprs.pop()) else {
            return internal_err!("a session without its input");
        };
        Self::try_new(input, exprs, time, self.gap_us)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let from = self.input.schema();
        let width = from.fields().len();
        let mut needed: Vec<usize> = output_columns.iter().copied().filter(|c| *c < width).collect();
        for e in self.partition.iter().chain([&self.time]) {
            let Expr::Column(c) = e else { return None };
            needed.push(from.index_of_column(c).ok()?);
        }
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}
