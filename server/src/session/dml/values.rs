//! The values of INSERT and UPDATE: defaults, literals with the type of their column.

use std::ops::ControlFlow;

use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};
use spate_engine::types::{Result, SpateError};
use spate_planner::catalog::TableDetails;
use spate_planner::sql::{Query, parse_expr, parse_query};

/// Most digits of a decimal number.
const MAX_DIGITS: usize = 38;

/// Whether an expression is the word DEFAULT.
pub(super) fn is_default(e: &ast::Expr) -> bool {
    matches!(e, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

/// For each column of VALUES, whether all its cells are the word DEFAULT.
pub(super) fn only_defaults(query: &Query) -> Vec<bool> {
    let ast::SetExpr::Values(values) = query.body.as_ref() else { return Vec::new() };
    let width = values.rows.first().map_or(0, |r| r.content.len());
    (0..width).map(|k| values.rows.iter().all(|r| r.content.get(k).is_some_and(is_default))).collect()
}

/// Puts the columns' defaults where VALUES says `DEFAULT`.
pub(super) fn fill_defaults(query: &mut Query, columns: &[usize], details: &TableDetails) {
    let ast::SetExpr::Values(values) = query.body.as_mut() else { return };
    for row in &mut values.rows {
        for (cell, c) in row.content.iter_mut().zip(columns) {
            if is_default(cell) {
                let default = details.columns.get(*c).and_then(|d| d.default.clone());
                *cell = default.unwrap_or_else(|| ast::Expr::Value(ast::Value::Null.into()));
            }
        }
    }
}

/// Makes the decimal literals of an expression exact: as floats they would lose digits.
pub(super) fn exact_decimals(e: &mut ast::Expr) -> Result<()> {
    struct Exact;
    impl VisitorMut for Exact {
        type Break = SpateError;

        fn post_visit_expr(&mut self, e: &mut ast::Expr) -> ControlFlow<SpateError> {
            let Some((whole, part)) =
                number_text(e).as_deref().and_then(|n| n.split_once('.')).map(|(w, p)| (w.to_owned(), p.to_owned()))
            else {
                return ControlFlow::Continue(());
            };
            if !matches!(e, ast::Expr::Value(_)) || whole.len() + part.len() > MAX_DIGITS {
                return ControlFlow::Continue(());
            }
            let (digits, scale) = ((whole.len() + part.len()).max(1), part.len());
            match parse_expr(&format!("CAST('{whole}.{part}' AS numeric({digits}, {scale}))")) {
                Ok(exact) => {
                    *e = exact;
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            }
        }
    }
    match VisitMut::visit(e, &mut Exact) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// A plain decimal number as written, with its sign.
fn number_text(e: &ast::Expr) -> Option<String> {
    match e {
        ast::Expr::Value(v) => match &v.value {
            ast::Value::Number(n, _) if !n.contains(['e', 'E']) => Some(n.replace('_', "")),
            _ => None,
        },
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => {
            number_text(expr).filter(|n| !n.starts_with('-')).map(|n| format!("-{n}"))
        }
        _ => None,
    }
}

/// Gives literals among the VALUES of an INSERT the type of their column: numbers for a numeric
/// column, which would lose digits as floats, and all values where quoted ones stand among
/// others: `VALUES (1), ('NaN')` into a float column is not about integers.
pub(super) fn type_literals(query: &mut Query, columns: &[usize], schema: &SchemaRef) -> Result<()> {
    let ast::SetExpr::Values(values) = query.body.as_mut() else { return Ok(()) };
    let literal = |e: &ast::Expr, null: bool| match e {
        ast::Expr::Value(v) => match &v.value {
            ast::Value::SingleQuotedString(_) => !null,
            ast::Value::Null => null,
            _ => false,
        },
        _ => false,
    };
    for (k, c) in columns.iter().enumerate() {
        let decimal = schema.field(*c).data_type().is_decimal();
        if decimal {
            for cell in values.rows.iter_mut().filter_map(|r| r.content.get_mut(k)) {
                match number_text(cell) {
                    Some(n) => *cell = ast::Expr::Value(ast::Value::SingleQuotedString(n).into()),
                    None => exact_decimals(cell)?,
                }
            }
        }
        let cells = || values.rows.iter().filter_map(|r| r.content.get(k));
        let quoted = cells().any(|e| literal(e, false));
        // A column of nothing but quoted literals is cast as a whole.
        if !quoted || cells().all(|e| literal(e, false) || literal(e, true)) {
            continue;
        }
        let to = spate_planner::sql::types::display(schema.field(*c).data_type());
        let sample = parse_query(&format!("SELECT CAST(NULL AS {to})"))?;
        let ast::SetExpr::Select(select) = *sample.body else { continue };
        let Some(ast::SelectItem::UnnamedExpr(cast)) = select.projection.into_iter().next() else { continue };
        for cell in values.rows.iter_mut().filter_map(|r| r.content.get_mut(k)) {
            let text = cell.clone();
            *cell = cast.clone();
            if let ast::Expr::Cast { expr, .. } = cell {
                **expr = text;
            }
        }
    }
    Ok(())
}
