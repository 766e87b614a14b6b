//! `TUMBLE(t, ts, size [, offset])`, `HOP(t, ts, slide, size [, offset])`,
//! `CUMULATE(t, ts, step, size [, offset])` and `SESSION(t [PARTITION BY k], ts, gap)` as
//! relations: each adds `window_start` and `window_end`, in plain DataFusion nodes but for
//! SESSION, which has a node of its own. Rows without a time belong
//! to no window and are left out. Flink's `TABLE(TUMBLE(…, DESCRIPTOR(ts), …))` works too.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Column, DFSchema, Result, ScalarValue, UnnestOptions};
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::{Expr, ExprSchemable, Extension, LogicalPlan, LogicalPlanBuilder};
use datafusion_sql::sqlparser::ast::{self, Spanned};
use datafusion_sql::sqlparser::tokenizer::Span;
use spate_engine::types::error::{ErrorKind, SpateError};

use super::check::at_span;
use super::functions;
use super::session::SessionWindow;

/// More windows per row than this are taken for a mistake.
const MAX_WINDOWS_PER_ROW: i64 = 10_000;

/// Names of the columns that windows add.
pub(super) const START: &str = "window_start";
pub(super) const END: &str = "window_end";

#[derive(Debug)]
pub(super) struct WindowTables;

impl RelationPlanner for WindowTables {
    fn plan_relation(
        &self,
        relation: ast::TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let at = relation.span();
        match relation {
            ast::TableFactor::Table { name, alias, args: Some(args), .. } if is_window(&name) => {
                let plan = window_table(&name, args.args, at, context)?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
            }
            ast::TableFactor::Function { name, alias, args, .. } if is_window(&name) => {
                let plan = window_table(&name, args, at, context)?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
            }
            ast::TableFactor::TableFunction { expr: ast::Expr::Function(f), alias } if is_window(&f.name) => {
                let args = match f.args {
                    ast::FunctionArguments::List(list) => list.args,
                    _ => Vec::new(),
                };
                let plan = window_table(&f.name, args, at, context)?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
            }
            other => Ok(RelationPlanning::Original(Box::new(other))),
        }
    }
}

fn is_window(name: &ast::ObjectName) -> bool {
    matches!(name.to_string().to_ascii_lowercase().as_str(), "tumble" | "hop" | "cumulate" | "session")
}

fn window_table(
    name: &ast::ObjectName,
    args: Vec<ast::FunctionArg>,
    at: Span,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let name = name.to_string().to_ascii_uppercase();
    let wrong = |usage: &str| {
        at_span(SpateError::invalid(format!("wrong arguments of {name}")).with_hint(format!("write {usage}")), at)
    };
    let mut exprs = Vec::with_capacity(args.len());
    for arg in args {
        match arg {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => exprs.push(e),
            _ => return Err(wrong("the arguments without names").into()),
        }
    }
    let mut exprs = exprs.into_iter();
    match name.as_str() {
        "TUMBLE" => {
            let usage = "TUMBLE(table, time column, INTERVAL 'size' [, INTERVAL 'offset'])";
            let (Some(table), Some(ts), Some(size)) = (exprs.next(), exprs.next(), exprs.next()) else {
                return Err(wrong(usage).into());
            };
            let offset = exprs.next();
            if exprs.next().is_some() {
                return Err(wrong(usage).into());
            }
            let input = table_argument(table, usage, context)?;
            let ts = time_column(ts, &name, &input, context)?;
            let size_us = positive_length(size, "size", context)?;
            let offset_us = offset.map_or(Ok(0), |o| length(o, "offset", context))?;
            tumble(input, ts, size_us, offset_us.rem_euclid(size_us))
        }
        "HOP" => {
            let usage = "HOP(table, time column, INTERVAL 'slide', INTERVAL 'size' [, INTERVAL 'offset'])";
            let arguments = stepped(exprs, &name, usage, "slide", context)?.ok_or_else(|| wrong(usage))?;
            let Stepped { input, ts, step_us: slide_us, size_us, offset_us } = arguments;
            let offset_us = offset_us.rem_euclid(slide_us);
            let order = "the slide comes before the size: HOP(t, ts, slide, size)";
            check_count(&name, size_us / slide_us, order).map_err(|e| at_span(e, at))?;
            let starts = functions::hop_starts(ts.clone(), slide_us, size_us, offset_us);
            hop(input, ts, starts, size_us)
        }
        "CUMULATE" => {
            let usage = "CUMULATE(table, time column, INTERVAL 'step', INTERVAL 'size' [, INTERVAL 'offset'])";
            let arguments = stepped(exprs, &name, usage, "step", context)?.ok_or_else(|| wrong(usage))?;
            let Stepped { input, ts, step_us, size_us, offset_us } = arguments;
            let offset_us = offset_us.rem_euclid(size_us);
            let order = "the step comes before the size: CUMULATE(t, ts, step, size)";
            if size_us % step_us != 0 {
                let what = "the size of CUMULATE must be a multiple of its step";
                return Err(at_span(SpateError::invalid(what).with_hint(order), at).into());
            }
            check_count(&name, size_us / step_us, order).map_err(|e| at_span(e, at))?;
            cumulate(input, ts, (step_us, size_us, offset_us))
        }
        _ => {
            let usage = "SESSION(table [PARTITION BY columns], time column, INTERVAL 'gap')";
            let (Some(table), Some(ts), Some(gap), None) = (exprs.next(), exprs.next(), exprs.next(), exprs.next())
            else {
                return Err(wrong(usage).into());
            };
            let (table, keys) = crate::sql::partition_argument(&table).unwrap_or((table, vec![]));
            let input = table_argument(table, usage, context)?;
            let ts = time_column(ts, &name, &input, context)?;
            let gap_us = positive_length(gap, "gap", context)?;
            let mut partition: Vec<Expr> = Vec::with_capacity(keys.len());
            for key in keys {
                let (at, shown) = (key.span(), key.to_string());
                let key = context.sql_to_expr(key, input.schema())?;
                if !matches!(key, Expr::Column(_)) {
                    let what = format!("PARTITION BY of SESSION needs a column, not \"{shown}\"");
                    return Err(at_span(SpateError::invalid(what).with_hint("compute it in a subquery"), at).into());
                }
                if !partition.contains(&key) {
                    partition.push(key);
                }
            }
            all_columns(&input)?;
            let input = LogicalPlanBuilder::from(input).filter(ts.clone().is_not_null())?.build()?;
            let node = SessionWindow::try_new(input, partition, ts, gap_us)?;
            Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
        }
    }
}

fn check_count(name: &str, windows: i64, hint: &str) -> std::result::Result<(), SpateError> {
    if windows <= MAX_WINDOWS_PER_ROW {
        return Ok(());
    }
    let what = format!("{name} would put each row into {windows} windows; at most {MAX_WINDOWS_PER_ROW} are allowed");
    Err(SpateError::invalid(what).with_hint(hint))
}

fn tumble(input: LogicalPlan, ts: Expr, size_us: i64, offset_us: i64) -> Result<LogicalPlan> {
    let mut columns = all_columns(&input)?;
    let start = functions::tumble_start(ts.clone(), size_us, offset_us);
    columns.push(start.clone().alias(START));
    columns.push(functions::window_end(start, size_us).alias(END));
    LogicalPlanBuilder::from(input).filter(ts.is_not_null())?.project(columns)?.build()
}

fn cumulate(input: LogicalPlan, ts: Expr, (step_us, size_us, offset_us): (i64, i64, i64)) -> Result<LogicalPlan> {
    let mut columns = all_columns(&input)?;
    columns.push(functions::tumble_start(ts.clone(), size_us, offset_us).alias(START));
    columns.push(functions::cumulate_ends(ts.clone(), step_us, size_us, offset_us).alias(END));
    LogicalPlanBuilder::from(input)
        .filter(ts.is_not_null())?
        .project(columns)?
        .unnest_column_with_options(Column::from_name(END), UnnestOptions::new().with_preserve_nulls(false))?
        .build()
}

fn hop(input: LogicalPlan, ts: Expr, starts: Expr, size_us: i64) -> Result<LogicalPlan> {
    let columns = all_columns(&input)?;
    let mut with_list = columns.clone();
    with_list.push(starts.alias(START));
    let start = Column::from_name(START);
    let mut with_end = columns;
    with_end.push(Expr::Column(start.clone()));
    with_end.push(functions::window_end(Expr::Column(start.clone()), size_us).alias(END));
    LogicalPlanBuilder::from(input)
        .filter(ts.is_not_null())?
        .project(with_list)?
        .unnest_column_with_options(start, UnnestOptions::new().with_preserve_nulls(false))?
        .project(with_end)?
        .build()
}

/// The input's columns, after a check that the window's columns do not clash with them.
fn all_columns(input: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut columns = Vec::with_capacity(input.schema().fields().len() + 2);
    for (qualifier, field) in input.schema().iter() {
        if field.name() == START || field.name() == END {
            return Err(SpateError::new(
                ErrorKind::AlreadyExists,
                format!("the input of a window function already has a column \"{}\"", field.name()),
            )
            .with_hint("rename it in a subquery")
            .into());
        }
        columns.push(Expr::Column(Column::from((qualifier, field))));
    }
    Ok(columns)
}

/// The arguments of HOP and CUMULATE.
struct Stepped {
    input: LogicalPlan,
    ts: Expr,
    step_us: i64,
    size_us: i64,
    offset_us: i64,
}

/// Reads `table, time column, step, size [, offset]`, where the step is called `step`; `None` if
/// there are more or fewer.
fn stepped(
    mut exprs: std::vec::IntoIter<ast::Expr>,
    name: &str,
    usage: &str,
    step: &str,
    context: &mut dyn RelationPlannerContext,
) -> Result<Option<Stepped>> {
    let (Some(table), Some(ts), Some(every), Some(size)) = (exprs.next(), exprs.next(), exprs.next(), exprs.next())
    else {
        return Ok(None);
    };
    let offset = exprs.next();
    if exprs.next().is_some() {
        return Ok(None);
    }
    let input = table_argument(table, usage, context)?;
    let ts = time_column(ts, name, &input, context)?;
    let step_us = positive_length(every, step, context)?;
    let size_us = positive_length(size, "size", context)?;
    let offset_us = offset.map_or(Ok(0), |o| length(o, "offset", context))?;
    Ok(Some(Stepped { input, ts, step_us, size_us, offset_us }))
}

fn table_argument(arg: ast::Expr, usage: &str, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let at = arg.span();
    let name = match (crate::sql::table_argument(&arg), arg) {
        // `TABLE t`, as Flink writes it.
        (Some(name), _) => name,
        (None, ast::Expr::Identifier(ident)) => ast::ObjectName::from(vec![ident]),
        (None, ast::Expr::CompoundIdentifier(parts)) => ast::ObjectName::from(parts),
        (None, ast::Expr::Subquery(subquery)) => {
            return context.plan(ast::TableFactor::Derived { lateral: false, subquery, alias: None, sample: None });
        }
        (None, other) => {
            return Err(at_span(
                SpateError::invalid(format!("\"{other}\" is not a table")).with_hint(format!("write {usage}")),
                at,
            )
            .into());
        }
    };
    context.plan(ast::TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    })
}

fn time_column(
    arg: ast::Expr,
    name: &str,
    input: &LogicalPlan,
    context: &mut dyn RelationPlannerContext,
) -> Result<Expr> {
    let at = arg.span();
    let arg = match arg {
        ast::Expr::Function(f) if f.name.to_string().eq_ignore_ascii_case("descriptor") => match f.args {
            ast::FunctionArguments::List(list) => match list.args.into_iter().next() {
                Some(ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e))) => e,
                _ => return Err(at_span(SpateError::invalid("DESCRIPTOR names one column"), at).into()),
            },
            _ => return Err(at_span(SpateError::invalid("DESCRIPTOR names one column"), at).into()),
        },
        other => other,
    };
    let shown = arg.to_string();
    let ts = context.sql_to_expr(arg, input.schema())?;
    if !matches!(ts, Expr::Column(_)) {
        return Err(at_span(
            SpateError::invalid(format!("{name} needs a column for the time, not \"{shown}\""))
                .with_hint("compute it in a subquery"),
            at,
        )
        .into());
    }
    match ts.get_type(input.schema())? {
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(ts),
        other => Err(at_span(
            SpateError::new(ErrorKind::Type, format!("{name} needs a timestamp column; \"{shown}\" has type {other}"))
                .with_hint("cast it to timestamp in a subquery"),
            at,
        )
        .into()),
    }
}

fn positive_length(arg: ast::Expr, what: &str, context: &mut dyn RelationPlannerContext) -> Result<i64> {
    let at = arg.span();
    match length(arg, what, context)? {
        us if us > 0 => Ok(us),
        _ => Err(at_span(SpateError::invalid(format!("a window's {what} must be positive")), at).into()),
    }
}

/// A constant interval in microseconds; days have 24 hours.
fn length(arg: ast::Expr, what: &str, context: &mut dyn RelationPlannerContext) -> Result<i64> {
    let at = arg.span();
    let bad = |message: String| at_span(SpateError::invalid(message), at);
    let us = match context.sql_to_expr(arg, &DFSchema::empty())? {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(v)), _) => {
            if v.months != 0 {
                return Err(bad(format!("a window's {what} cannot be in months or years: their length varies")).into());
            }
            if v.nanoseconds % 1000 != 0 {
                return Err(bad(format!("a window's {what} must be whole microseconds")).into());
            }
            i128::from(v.days) * 86_400_000_000 + i128::from(v.nanoseconds / 1000)
        }
        Expr::Literal(ScalarValue::IntervalDayTime(Some(v)), _) => {
            i128::from(v.days) * 86_400_000_000 + i128::from(v.milliseconds) * 1000
        }
        _ => {
            return Err(bad(format!("a window's {what} must be a constant interval"))
                .with_hint("such as INTERVAL '10 seconds'")
                .into());
        }
    };
    i64::try_from(us).map_err(|_| bad(format!("a window's {what} is too long")).into())
}
