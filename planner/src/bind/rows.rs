//! Comparisons of rows, `(a, b) = (c, d)` and the like: they compare element by element, with the
//! NULLs of three-valued logic. (DataFusion would make structs of both sides, which it compares as
//! values without NULLs.) With a subquery the row stays one, marked, until the plan is there:
//! see [`crate::rules::subquery::rows`].

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{self, BinaryOperator as Op, Expr, Spanned, Visit, Visitor};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::any::{any, opposite};
use super::check::at_span;
use crate::sql::parse_query;

/// What the rows of a subquery that a row is compared with are called.
pub(crate) const ROWS: &str = "__rows";

/// The name of a column of those.
pub(crate) fn column(i: usize) -> String {
    format!("{ROWS}_{i}")
}

/// `e` in terms of the elements of its rows, if it compares some. `stable` says whether two readings
/// of one subquery give the same rows.
pub(super) fn compared(e: &Expr, stable: bool) -> Result<Option<Expr>> {
    Ok(match e {
        Expr::BinaryOp { left, op, right } if compares(op) => match (row(left), row(right)) {
            (Some(l), Some(r)) => Some(nested(compare(l, op, r)?)),
            (Some(l), None) => match subquery(right) {
                Some(s) => Some(nested(compare(l, op, &values(s, l.len(), stable)?)?)),
                None => None,
            },
            (None, Some(r)) => match subquery(left) {
                Some(s) => Some(nested(compare(&values(s, r.len(), stable)?, op, r)?)),
                None => None,
            },
            (None, None) => None,
        },
        Expr::IsDistinctFrom(l, r) => distinct(l, r, true)?,
        Expr::IsNotDistinctFrom(l, r) => distinct(l, r, false)?,
        Expr::IsNull(x) => row(x).map(|x| nested(all(x, |e| Expr::IsNull(Box::new(e))))),
        Expr::IsNotNull(x) => row(x).map(|x| nested(all(x, |e| Expr::IsNotNull(Box::new(e))))),
        Expr::Between { expr, negated, low, high } => match (row(expr), row(low), row(high)) {
            (Some(x), Some(low), Some(high)) => {
                once(expr)?;
                let both = binary(nested(compare(x, &Op::GtEq, low)?), Op::And, nested(compare(x, &Op::LtEq, high)?));
                Some(negate(both, *negated))
            }
            _ => None,
        },
        Expr::InList { expr, list, negated } => match row(expr) {
            Some(x) => {
                once(expr)?;
                let mut any = Vec::with_capacity(list.len());
                for item in list {
                    let Some(item) = row(item) else {
                        return Err(SpateError::new(
                            ErrorKind::Type,
                            format!("a row is compared with {item}, which is not one"),
                        )
                        .with_hint("write a row for each element, as in (a, b) IN ((1, 2), (3, 4))"));
                    };
                    any.push(nested(compare(x, &Op::Eq, item)?));
                }
                Some(negate(balanced(any, &Op::Or)?, *negated))
            }
            None => None,
        },
        Expr::InSubquery { expr, subquery, negated } => match row(expr) {
            Some(x) => {
                once(expr)?;
                let (expr, subquery) = (Box::new(made(x)), Box::new(as_rows(subquery, x.len())?));
                Some(Expr::InSubquery { expr, subquery, negated: *negated })
            }
            None => None,
        },
        Expr::AnyOp { left, compare_op, right, is_some } => match (row(left), subquery(right)) {
            (Some(x), Some(s)) => {
                once(left)?;
                let right = Box::new(Expr::Subquery(Box::new(as_rows(s, x.len())?)));
                let left = Box::new(made(x));
                Some(Expr::AnyOp { left, compare_op: compare_op.clone(), right, is_some: *is_some })
            }
            (None, None) => any(left, compare_op, right),
            _ => None,
        },
        Expr::AllOp { left, compare_op, right } => match (row(left), subquery(right)) {
            (Some(x), Some(s)) => {
                once(left)?;
                let right = Box::new(Expr::Subquery(Box::new(as_rows(s, x.len())?)));
                Some(Expr::AllOp { left: Box::new(made(x)), compare_op: compare_op.clone(), right })
            }
            (None, None) => opposite(compare_op).and_then(|op| any(left, &op, right)).map(|any| negate(any, true)),
            _ => None,
        },
        _ => None,
    })
}

fn compares(op: &Op) -> bool {
    matches!(op, Op::Eq | Op::NotEq | Op::Lt | Op::LtEq | Op::Gt | Op::GtEq)
}

/// The elements of `(a, b)` or `ROW(a, b)`.
fn row(e: &Expr) -> Option<&[Expr]> {
    match e {
        Expr::Tuple(all) => Some(all),
        Expr::Nested(inner) => row(inner),
        _ => None,
    }
}

fn subquery(e: &Expr) -> Option<&ast::Query> {
    match e {
        Expr::Subquery(q) => Some(q),
        Expr::Nested(inner) => subquery(inner),
        _ => None,
    }
}

fn unequal() -> SpateError {
    SpateError::new(ErrorKind::Type, "unequal number of entries in row expressions")
}

/// `left op right`, element by element.
fn compare(left: &[Expr], op: &Op, right: &[Expr]) -> Result<Expr> {
    if left.len() != right.len() {
        return Err(unequal());
    }
    let one = |l: &Expr, op: &Op, r: &Expr| -> Result<Expr> {
        Ok(match (row(l), row(r)) {
            (Some(l), Some(r)) => nested(compare(l, op, r)?),
            _ => binary(l.clone(), op.clone(), r.clone()),
        })
    };
    let pairs = || left.iter().zip(right);
    match op {
        Op::Eq => chain(pairs().map(|(l, r)| one(l, op, r)), &Op::And),
        Op::NotEq => chain(pairs().map(|(l, r)| one(l, op, r)), &Op::Or),
        _ => {
            // The first elements that differ decide.
            let strict = match op {
                Op::LtEq => Op::Lt,
                Op::GtEq => Op::Gt,
                other => other.clone(),
            };
            let mut done: Option<Expr> = None;
            for (l, r) in pairs().rev() {
                done = Some(match done {
                    None => one(l, op, r)?,
                    Some(rest) => {
                        let equal = nested(binary(one(l, &Op::Eq, r)?, Op::And, nested(rest)));
                        binary(one(l, &strict, r)?, Op::Or, equal)
                    }
                });
            }
            done.ok_or_else(unequal)
        }
    }
}

fn distinct(l: &Expr, r: &Expr, negated: bool) -> Result<Option<Expr>> {
    let (Some(left), Some(right)) = (row(l), row(r)) else { return Ok(None) };
    if left.len() != right.len() {
        return Err(unequal());
    }
    let one = |(l, r): (&Expr, &Expr)| -> Result<Expr> {
        if let Some(inner) = distinct(l, r, negated)? {
            return Ok(inner);
        }
        let (l, r) = (Box::new(l.clone()), Box::new(r.clone()));
        Ok(nested(if negated { Expr::IsDistinctFrom(l, r) } else { Expr::IsNotDistinctFrom(l, r) }))
    };
    let op = if negated { Op::Or } else { Op::And };
    Ok(Some(nested(chain(left.iter().zip(right).map(one), &op)?)))
}

fn all(elements: &[Expr], test: impl Fn(Expr) -> Expr) -> Expr {
    let mut tests = elements.iter().map(|e| match row(e) {
        // A row within a row is a value, NULL only if it is missing as a whole.
        Some(_) => test(nested(e.clone())),
        None => test(e.clone()),
    });
    let first = tests.next().unwrap_or_else(|| Expr::Value(ast::Value::Boolean(true).with_empty_span()));
    tests.fold(first, |all, one| binary(all, Op::And, one))
}

fn chain(parts: impl Iterator<Item = Result<Expr>>, op: &Op) -> Result<Expr> {
    balanced(parts.collect::<Result<_>>()?, op)
}

/// `parts` joined by `op`, not deeper than it must be.
fn balanced(mut parts: Vec<Expr>, op: &Op) -> Result<Expr> {
    while parts.len() > 1 {
        let mut joined = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(left) = rest.next() {
            joined.push(match rest.next() {
                Some(right) => nested(binary(left, op.clone(), right)),
                None => left,
            });
        }
        parts = joined;
    }
    parts.pop().ok_or_else(unequal)
}

fn binary(left: Expr, op: Op, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(e: Expr) -> Expr {
    match e {
        Expr::Nested(_) => e,
        other => Expr::Nested(Box::new(other)),
    }
}

fn negate(e: Expr, negated: bool) -> Expr {
    match negated {
        true => nested(Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: Box::new(nested(e)) }),
        false => nested(e),
    }
}

/// Refuses a row that is compared more than once if that might give different values.
fn once(row: &Expr) -> Result<()> {
    struct Finder;
    impl Visitor for Finder {
        type Break = &'static str;

        fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<&'static str> {
            ControlFlow::Break("a subquery")
        }

        fn pre_visit_expr(&mut self, e: &Expr) -> ControlFlow<&'static str> {
            match e {
                Expr::Function(f)
                    if super::check::RANDOM_FUNCTIONS.contains(&f.name.to_string().to_ascii_lowercase().as_str()) =>
                {
                    ControlFlow::Break("a function that varies from call to call")
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match row.visit(&mut Finder) {
        ControlFlow::Break(what) => {
            let error = SpateError::unsupported(format!(
                "{what} in a row on the left of IN, ANY, ALL or BETWEEN is not supported"
            ));
            Err(at_span(error.with_hint("compute it in a subquery in FROM"), row.span()))
        }
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// A row as one value. (DataFusion takes no more than columns and literals in `(a, b)`.)
fn made(row: &[Expr]) -> Expr {
    Expr::Struct { values: row.to_vec(), fields: vec![] }
}

/// `SELECT list FROM (query) AS rows(columns)`.
fn over(query: &ast::Query, width: usize, list: &str) -> Result<ast::Query> {
    check_width(query, width)?;
    let names: Vec<String> = (0..width).map(|i| format!("\"{}\"", column(i))).collect();
    let mut outer = parse_query(&format!("SELECT {list} FROM (SELECT 1) AS \"{ROWS}\" ({})", names.join(", ")))?;
    if let ast::SetExpr::Select(select) = outer.body.as_mut()
        && let [from] = select.from.as_mut_slice()
        && let ast::TableFactor::Derived { subquery, .. } = &mut from.relation
    {
        **subquery = query.clone();
        name_items(subquery);
    }
    Ok(*outer)
}

/// Names of their own for the columns of a subquery that names none: two may be alike.
fn name_items(query: &mut ast::Query) {
    let ast::SetExpr::Select(select) = query.body.as_mut() else { return };
    if query.order_by.is_some() || select.distinct.is_some() {
        return;
    }
    for (i, item) in select.projection.iter_mut().enumerate() {
        if let ast::SelectItem::UnnamedExpr(e) = item {
            let alias = ast::Ident::with_quote('"', column(i));
            *item = ast::SelectItem::ExprWithAlias { expr: e.clone(), alias };
        }
    }
}

/// PostgreSQL's error for a subquery of another width, where its list shows it.
fn check_width(query: &ast::Query, width: usize) -> Result<()> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return Ok(()) };
    let plain =
        |i: &ast::SelectItem| matches!(i, ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. });
    if !select.projection.iter().all(plain) || select.projection.len() == width {
        return Ok(());
    }
    let how = if select.projection.len() < width { "few" } else { "many" };
    let error = SpateError::new(ErrorKind::Type, format!("subquery has too {how} columns"));
    Err(at_span(error, query.span()).with_hint(format!("the row that it is compared with has {width}")))
}

/// `query` with its columns as one row, marked.
fn as_rows(query: &ast::Query, width: usize) -> Result<ast::Query> {
    let list: Vec<String> = (0..width).map(|i| format!("\"{ROWS}\".\"{}\"", column(i))).collect();
    over(query, width, &format!("struct({})", list.join(", ")))
}

/// The columns of a subquery of one row, each a subquery of its own.
fn values(query: &ast::Query, width: usize, stable: bool) -> Result<Vec<Expr>> {
    if !stable && (query.limit_clause.is_some() || query.fetch.is_some()) {
        let error =
            SpateError::unsupported("a row compared with a subquery that has LIMIT is not supported in a SELECT");
        return Err(at_span(error.with_hint("use IN, or join with the subquery"), query.span()));
    }
    (0..width)
        .map(|i| Ok(Expr::Subquery(Box::new(over(query, width, &format!("\"{ROWS}\".\"{}\"", column(i)))?))))
        .collect()
}
