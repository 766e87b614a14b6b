//! Refusals: what DataFusion would silently ignore (in any query), and what has no
//! incremental form yet (in a continuous one), each by name and, where known, with its
//! place in the text.

use std::ops::ControlFlow;

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, LogicalPlan, Volatility};
use datafusion_sql::sqlparser::ast::{self, Spanned, Visit, Visitor};
use datafusion_sql::sqlparser::tokenizer::Span;
use spate_engine::types::error::{ErrorKind, Result, SpateError};

/// Functions whose value depends on when the query runs.
const CLOCK_FUNCTIONS: &[&str] =
    &["now", "current_timestamp", "current_date", "current_time", "today", "localtime", "localtimestamp"];

/// Functions whose value differs from call to call.
pub(super) const RANDOM_FUNCTIONS: &[&str] = &["random", "uuid", "gen_random_uuid"];

/// Checks a query's text as parsed.
pub(super) fn query(query: &ast::Query, continuous: bool) -> Result<()> {
    match query.visit(&mut Refuser { continuous }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Checks the bound plan of a continuous query for what the text does not show (functions
/// that vary, wherever they came from).
pub(super) fn continuous_plan(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    let walked = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|e| {
            e.apply(|e| {
                refused = continuous_expr(e);
                Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    });
    walked.map_err(super::bind_error)?;
    refused.map_or(Ok(()), Err)
}

/// Checks the bound plan of any query for what DataFusion answers wrongly: it loses the
/// HAVING of a LATERAL subquery.
pub(super) fn plan(plan: &LogicalPlan) -> Result<()> {
    let mut wrong = false;
    let walked = plan.apply_with_subqueries(|node| {
        for input in node.inputs() {
            if let LogicalPlan::Subquery(s) = input {
                wrong |= !s.outer_ref_columns.is_empty() && has_having(&s.subquery);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(super::bind_error)?;
    if wrong {
        return Err(ignored("HAVING in a LATERAL subquery").with_hint("test the value outside"));
    }
    Ok(())
}

/// Whether a condition stands over a plan's topmost aggregate.
fn has_having(plan: &LogicalPlan) -> bool {
    fn finds_aggregate(plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::Aggregate(_) => true,
            LogicalPlan::Projection(p) => finds_aggregate(&p.input),
            LogicalPlan::Filter(f) => finds_aggregate(&f.input),
            LogicalPlan::SubqueryAlias(a) => finds_aggregate(&a.input),
            _ => false,
        }
    }
    match plan {
        LogicalPlan::Filter(f) => finds_aggregate(&f.input),
        LogicalPlan::Projection(p) => has_having(&p.input),
        LogicalPlan::SubqueryAlias(a) => has_having(&a.input),
        LogicalPlan::Sort(s) => has_having(&s.input),
        LogicalPlan::Limit(l) => has_having(&l.input),
        LogicalPlan::Distinct(d) => has_having(d.input()),
        _ => false,
    }
}

fn continuous_expr(e: &Expr) -> Option<SpateError> {
    match e {
        Expr::ScalarFunction(f) => {
            let name = f.func.name();
            if CLOCK_FUNCTIONS.contains(&name) {
                return Some(clock(name));
            }
            if f.func.signature().volatility == Volatility::Volatile && name != super::now::EPOCH_TIME {
                return Some(volatile(name));
            }
            None
        }
        Expr::HigherOrderFunction(_) | Expr::Lambda(_) | Expr::LambdaVariable(_) => Some(not_yet("a lambda function")),
        Expr::ScalarVariable(..) => Some(not_yet("a variable")),
        Expr::Placeholder(p) => {
            Some(SpateError::unsupported(format!("parameter {} cannot be used in a continuous query", p.id)))
        }
        _ => None,
    }
}

fn not_yet(what: &str) -> SpateError {
    SpateError::unsupported(format!("{what} is not supported in a continuous query yet"))
}

fn clock(name: &str) -> SpateError {
    SpateError::unsupported(format!("{name}() cannot be used in a continuous query: its value changes with time"))
        .with_hint("WHERE may compare a time with now(), as in ts > now() - INTERVAL '1 hour'")
}

fn volatile(name: &str) -> SpateError {
    SpateError::unsupported(format!(
        "{name}() cannot be used in a continuous query: its value differs from call to call"
    ))
}

fn ignored(what: &str) -> SpateError {
    SpateError::unsupported(format!("{what} is not supported"))
}

/// Puts the place where `span` starts on an error, when it is known.
pub(super) fn at_span(error: SpateError, span: Span) -> SpateError {
    if span.start.line > 0 { error.at(span.start.line, span.start.column) } else { error }
}

/// Whether a table version is the current one, whatever it is at the time.
fn is_now(version: &ast::TableVersion) -> bool {
    let ast::TableVersion::ForSystemTimeAsOf(ast::Expr::Function(f)) = version else { return false };
    let none = match &f.args {
        ast::FunctionArguments::None => true,
        ast::FunctionArguments::List(list) => list.args.is_empty() && list.clauses.is_empty(),
        ast::FunctionArguments::Subquery(_) => false,
    };
    none && f.over.is_none() && f.filter.is_none() && f.name.to_string().eq_ignore_ascii_case("proctime")
}

struct Refuser {
    continuous: bool,
}

type Flow = ControlFlow<SpateError>;

fn refuse_if(condition: bool, error: impl FnOnce() -> SpateError) -> Flow {
    if condition { ControlFlow::Break(error()) } else { ControlFlow::Continue(()) }
}

/// PostgreSQL's error for a window function where rows are still being chosen or grouped.
fn window_function(e: &ast::Expr, clause: &str) -> Option<SpateError> {
    struct Finder {
        depth: usize,
    }
    impl Visitor for Finder {
        type Break = Span;

        fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<Span> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<Span> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, e: &ast::Expr) -> ControlFlow<Span> {
            match e {
                ast::Expr::Function(f) if f.over.is_some() && self.depth == 0 => ControlFlow::Break(e.span()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match e.visit(&mut Finder { depth: 0 }) {
        ControlFlow::Break(span) => {
            let error = SpateError::new(ErrorKind::Type, format!("window functions are not allowed in {clause}"));
            Some(at_span(error.with_hint("use QUALIFY, or test the value in an outer query"), span))
        }
        ControlFlow::Continue(()) => None,
    }
}

/// Whether a RIGHT or FULL JOIN merges columns (see [`super::joins`]).
fn merges(t: &ast::TableWithJoins) -> bool {
    let nested = |f: &ast::TableFactor| match f {
        ast::TableFactor::NestedJoin { table_with_joins, alias: None } => merges(table_with_joins),
        _ => false,
    };
    nested(&t.relation) || t.joins.iter().any(|j| super::joins::merges(j).is_some() || nested(&j.relation))
}

impl Refuser {
    fn set_expr(&self, body: &ast::SetExpr) -> Flow {
        match body {
            ast::SetExpr::SetOperation { left, right, .. } => {
                self.set_expr(left)?;
                self.set_expr(right)
            }
            ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_) | ast::SetExpr::Merge(_) => {
                ControlFlow::Break(at_span(ignored("a data-changing statement inside a query"), body.span()))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Visitor for Refuser {
    type Break = SpateError;

    fn pre_visit_query(&mut self, q: &ast::Query) -> Flow {
        let at = q.span();
        refuse_if(!q.locks.is_empty(), || at_span(ignored("FOR UPDATE or FOR SHARE"), at))?;
        refuse_if(q.for_clause.is_some(), || at_span(ignored("FOR XML, JSON or BROWSE"), at))?;
        refuse_if(q.settings.is_some(), || at_span(ignored("SETTINGS"), at))?;
        refuse_if(q.format_clause.is_some(), || at_span(ignored("FORMAT"), at))?;
        refuse_if(q.fetch.is_some(), || at_span(ignored("FETCH"), at).with_hint("use LIMIT"))?;
        self.set_expr(&q.body)
    }

    fn pre_visit_select(&mut self, s: &ast::Select) -> Flow {
        let at = s.span();
        refuse_if(s.into.is_some(), || at_span(ignored("SELECT INTO"), at).with_hint("use CREATE TABLE AS"))?;
        refuse_if(s.prewhere.is_some(), || at_span(ignored("PREWHERE"), at))?;
        refuse_if(!s.connect_by.is_empty(), || at_span(ignored("CONNECT BY"), at))?;
        refuse_if(s.value_table_mode.is_some(), || at_span(ignored("SELECT AS VALUE or STRUCT"), at))?;
        refuse_if(s.select_modifiers.is_some(), || at_span(ignored("a MySQL SELECT modifier"), at))?;
        refuse_if(!s.distribute_by.is_empty(), || at_span(ignored("DISTRIBUTE BY"), at))?;
        for (clause, e) in [("WHERE", &s.selection), ("HAVING", &s.having)] {
            if let Some(error) = e.as_ref().and_then(|e| window_function(e, clause)) {
                return ControlFlow::Break(error);
            }
        }
        if let ast::GroupByExpr::Expressions(all, _) = &s.group_by
            && let Some(error) = all.iter().find_map(|e| window_function(e, "GROUP BY"))
        {
            return ControlFlow::Break(error);
        }
        // A side's own column of the merged ones does not exist any more, so the list would lack it.
        let all_of_one = s.projection.iter().any(|i| matches!(i, ast::SelectItem::QualifiedWildcard(..)));
        refuse_if(all_of_one && s.from.iter().any(merges), || {
            at_span(ignored("all columns of one side of a RIGHT or FULL JOIN with USING"), at)
                .with_hint("list the columns, or use ON")
        })?;
        if !self.continuous {
            return ControlFlow::Continue(());
        }
        if let ast::GroupByExpr::Expressions(_, modifiers) = &s.group_by {
            refuse_if(!modifiers.is_empty(), || at_span(not_yet("a GROUP BY modifier"), at))?;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, t: &ast::TableFactor) -> Flow {
        let at = t.span();
        match t {
            ast::TableFactor::Table {
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                name,
                args,
                ..
            } => {
                let rows = args.is_some() && super::series::gives_rows(name);
                refuse_if(sample.is_some(), || at_span(ignored("TABLESAMPLE"), at))?;
                refuse_if(version.as_ref().is_some_and(|v| !is_now(v)), || {
                    at_span(ignored("a table version other than FOR SYSTEM_TIME AS OF PROCTIME()"), at)
                })?;
                refuse_if(*with_ordinality && !rows, || at_span(ignored("WITH ORDINALITY"), at))?;
                refuse_if(!with_hints.is_empty() || !index_hints.is_empty(), || at_span(ignored("a table hint"), at))?;
                refuse_if(!partitions.is_empty(), || at_span(ignored("PARTITION"), at))?;
                refuse_if(json_path.is_some(), || at_span(ignored("a JSON path after a table"), at))
            }
            ast::TableFactor::Derived { sample, .. } => {
                refuse_if(sample.is_some(), || at_span(ignored("TABLESAMPLE"), at))
            }
            ast::TableFactor::Function { name, with_ordinality, .. } => {
                let rows = super::series::gives_rows(name);
                refuse_if(*with_ordinality && !rows, || at_span(ignored("WITH ORDINALITY"), at))
            }
            ast::TableFactor::UNNEST { array_exprs, with_ordinality, .. } => {
                refuse_if(*with_ordinality && array_exprs.len() > 1, || {
                    at_span(ignored("WITH ORDINALITY of several arrays"), at)
                })
            }
            ast::TableFactor::Pivot { .. } => ControlFlow::Break(at_span(ignored("PIVOT"), at)),
            ast::TableFactor::Unpivot { .. } => ControlFlow::Break(at_span(ignored("UNPIVOT"), at)),
            ast::TableFactor::MatchRecognize { .. } => ControlFlow::Break(at_span(ignored("MATCH_RECOGNIZE"), at)),
            ast::TableFactor::JsonTable { .. } => ControlFlow::Break(at_span(ignored("JSON_TABLE"), at)),
            ast::TableFactor::OpenJsonTable { .. } => ControlFlow::Break(at_span(ignored("OPENJSON"), at)),
            ast::TableFactor::XmlTable { .. } => ControlFlow::Break(at_span(ignored("XMLTABLE"), at)),
            ast::TableFactor::SemanticView { .. } => ControlFlow::Break(at_span(ignored("SEMANTIC_VIEW"), at)),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, e: &ast::Expr) -> Flow {
        let construct = match e {
            ast::Expr::Collate { .. } => Some("COLLATE"),
            ast::Expr::Convert { .. } => Some("CONVERT"),
            ast::Expr::RLike { .. } => Some("RLIKE"),
            ast::Expr::InUnnest { .. } => Some("IN UNNEST"),
            ast::Expr::IsNormalized { .. } => Some("IS NORMALIZED"),
            ast::Expr::Prior(_) => Some("PRIOR"),
            ast::Expr::MatchAgainst { .. } => Some("MATCH … AGAINST"),
            ast::Expr::OuterJoin(_) => Some("(+)"),
            ast::Expr::UnaryOp { op: ast::UnaryOperator::PGAbs, .. } => Some("the operator @"),
            ast::Expr::UnaryOp { op: ast::UnaryOperator::PGSquareRoot, .. } => Some("the operator |/"),
            ast::Expr::UnaryOp { op: ast::UnaryOperator::PGCubeRoot, .. } => Some("the operator ||/"),
            ast::Expr::UnaryOp {
                op: ast::UnaryOperator::PGPostfixFactorial | ast::UnaryOperator::PGPrefixFactorial,
                ..
            } => Some("the operator !"),
            _ => None,
        };
        if let Some(construct) = construct {
            return ControlFlow::Break(at_span(ignored(construct), e.span()));
        }
        if !self.continuous {
            return ControlFlow::Continue(());
        }
        let refused = match e {
            ast::Expr::Function(f) => {
                let name = f.name.to_string().to_ascii_lowercase();
                // Whether now() stands in a temporal filter shows in the plan.
                let now = matches!(name.as_str(), "now" | "current_timestamp");
                if CLOCK_FUNCTIONS.contains(&name.as_str()) && !now {
                    Some(clock(&name))
                } else if RANDOM_FUNCTIONS.contains(&name.as_str()) {
                    Some(volatile(&name))
                } else {
                    None
                }
            }
            _ => None,
        };
        match refused {
            Some(error) => ControlFlow::Break(at_span(error, e.span())),
            None => ControlFlow::Continue(()),
        }
    }
}
