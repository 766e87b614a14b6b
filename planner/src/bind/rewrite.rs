//! Expressions that DataFusion's planner would read otherwise than PostgreSQL, as calls of our
//! functions or as other literals.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{self, AccessExpr, Expr, Spanned, Value, VisitMut, VisitorMut};
use spate_engine::types::error::{Result, SpateError};

use super::check::at_span;
use super::clock::spelled_out;
use super::datetime::{TIMEZONE, TO_TIMESTAMP};
use crate::sql::{parse_expr, types};

/// Rewrites all expressions of a query. In a continuous one two readings of a subquery give the same.
pub(super) fn rewrite(query: &mut ast::Query, continuous: bool) -> Result<()> {
    match query.visit(&mut Rewriter { continuous }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Rewriter {
    continuous: bool,
}

impl VisitorMut for Rewriter {
    type Break = SpateError;

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<SpateError> {
        let span = e.span();
        match rewritten(e, self.continuous) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(new)) => {
                *e = new;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(at_span(error, span)),
        }
    }
}

fn rewritten(e: &Expr, continuous: bool) -> Result<Option<Expr>> {
    Ok(match e {
        Expr::AtTimeZone { timestamp, time_zone } => {
            Some(call(TIMEZONE, vec![time_zone.as_ref().clone(), timestamp.as_ref().clone()]))
        }
        Expr::Interval(i) => match text_literal(&i.value).and_then(spelled_out) {
            Some(text) => {
                let value = Box::new(Expr::Value(Value::SingleQuotedString(text).into()));
                Some(Expr::Interval(ast::Interval { value, ..i.clone() }))
            }
            None => None,
        },
        // `(e).field`, as composite types are read.
        Expr::CompoundFieldAccess { root, access_chain } if !matches!(**root, Expr::Identifier(_)) => {
            Some(field_access(root, access_chain)?)
        }
        Expr::Function(f) if is_named(f, "to_timestamp") => {
            arguments(f).map(|[text, pattern]| call(TO_TIMESTAMP, vec![text, pattern]))
        }
        Expr::Function(f) if (is_named(f, "jsonb_agg") || is_named(f, "json_agg")) && f.over.is_none() => {
            array_of_json(f)
        }
        // Their escapes are read already.
        Expr::Value(v) => match &v.value {
            Value::UnicodeStringLiteral(s) | Value::NationalStringLiteral(s) => {
                Some(Expr::Value(Value::SingleQuotedString(s.clone()).into()))
            }
            _ => None,
        },
        // DataFusion reads the elements as if nothing stood around them: no outer column, no subquery's.
        Expr::Array(ast::Array { elem, .. }) if !elem.is_empty() => Some(call("make_array", elem.clone())),
        // `ROW(a, b)` is `(a, b)`.
        Expr::Function(f) if is_named(f, "row") && f.over.is_none() && f.filter.is_none() => {
            all_arguments(f).filter(|all| !all.is_empty()).map(Expr::Tuple)
        }
        // DataFusion's function gives its text.
        Expr::Function(f) if is_named(f, "gen_random_uuid") && f.over.is_none() && has_no_arguments(f) => {
            Some(parse_expr("CAST(uuid() AS uuid)")?)
        }
        Expr::Cast { expr, data_type: ast::DataType::Bytea, kind, array, format } => match text_literal(expr) {
            Some(text) => {
                let bytes = types::bytea_in(text)?;
                let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
                Some(Expr::Cast {
                    kind: kind.clone(),
                    expr: Box::new(Expr::Value(Value::HexStringLiteral(hex).into())),
                    data_type: ast::DataType::Bytea,
                    array: *array,
                    format: format.clone(),
                })
            }
            None => None,
        },
        _ => super::rows::compared(e, continuous)?,
    })
}

fn field_access(root: &Expr, chain: &[AccessExpr]) -> Result<Expr> {
    let mut e = root.clone();
    for access in chain {
        e = match access {
            AccessExpr::Dot(Expr::Identifier(field)) => {
                let name = Expr::Value(Value::SingleQuotedString(crate::sql::fold(field)).into());
                call("get_field", vec![e, name])
            }
            other => Expr::CompoundFieldAccess { root: Box::new(e), access_chain: vec![other.clone()] },
        };
    }
    Ok(e)
}

fn text_literal(e: &Expr) -> Option<&str> {
    match e {
        Expr::Value(v) => match &v.value {
            Value::SingleQuotedString(s) | Value::EscapedStringLiteral(s) => Some(s),
            _ => None,
        },
        Expr::Nested(inner) => text_literal(inner),
        _ => None,
    }
}

fn is_named(f: &ast::Function, name: &str) -> bool {
    matches!(f.name.0.as_slice(), [part] if part.as_ident().is_some_and(|i| crate::sql::fold(i) == name))
}

/// `jsonb_agg(x …)` as `jsonb_of_list(array_agg(to_jsonb(x) …))`; `None` if it has not one argument.
fn array_of_json(f: &ast::Function) -> Option<Expr> {
    let mut list = f.clone();
    list.name = ast::ObjectName::from(vec![ast::Ident::new("array_agg")]);
    let ast::FunctionArguments::List(args) = &mut list.args else { return None };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(value))] = args.args.as_mut_slice() else {
        return None;
    };
    *value = call("to_jsonb", vec![value.clone()]);
    Some(call(super::json::OF_LIST, vec![Expr::Function(list)]))
}

/// A call of a function.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|e| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e))).collect();
    Expr::Function(ast::Function {
        name: ast::ObjectName::from(vec![ast::Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

fn has_no_arguments(f: &ast::Function) -> bool {
    matches!(&f.args, ast::FunctionArguments::List(list) if list.args.is_empty() && list.clauses.is_empty())
}

fn arguments(f: &ast::Function) -> Option<[Expr; 2]> {
    all_arguments(f)?.try_into().ok()
}

fn all_arguments(f: &ast::Function) -> Option<Vec<Expr>> {
    let ast::FunctionArguments::List(list) = &f.args else { return None };
    let plain = |a: &ast::FunctionArg| match a {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => Some(e.clone()),
        _ => None,
    };
    list.args.iter().map(plain).collect()
}
