//! Functions that give rows: `generate_series`, `range` and `unnest` in FROM, WITH ORDINALITY
//! too, and `generate_series` in a SELECT list. All become `unnest` of lists.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, SelectItem, TableFactor, VisitMut, VisitorMut,
};

use super::rewrite::call;

/// Rewrites a query and all queries within it.
pub(super) fn rewrite(query: &mut ast::Query) {
    let _ = query.visit(&mut Rewriter);
}

/// Whether a function in FROM is one of those.
pub(super) fn gives_rows(name: &ast::ObjectName) -> bool {
    ["generate_series", "range", "unnest"].iter().any(|f| named(name, f)) || json_rows(name).is_some()
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_table_factor(&mut self, t: &mut TableFactor) -> ControlFlow<()> {
        let made = match t {
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                series(name, &args.args).map(|call| (vec![call], alias.take(), *with_ordinality, name.to_string()))
            }
            TableFactor::Function { name, args, alias, with_ordinality, .. } => {
                let name = name.to_string();
                let lists = match name.to_ascii_lowercase().as_str() {
                    "unnest" => plain(args),
                    _ => series(&ast::ObjectName::from(vec![ast::Ident::new(name.clone())]), args).map(|c| vec![c]),
                };
                lists.map(|lists| (lists, alias.take(), *with_ordinality, name))
            }
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality,
            } => Some((std::mem::take(array_exprs), alias.take(), *with_ordinality, "unnest".to_owned())),
            _ => None,
        };
        if let Some((lists, alias, ordinality, name)) = made {
            *t = unnest(lists, alias, ordinality, &name.to_ascii_lowercase());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        if let ast::SetExpr::Select(select) = query.body.as_mut() {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } = item
                    && matches!(e, Expr::Function(f) if f.over.is_none()
                        && (named(&f.name, "generate_series") || json_rows(&f.name).is_some()))
                {
                    *e = call("unnest", vec![e.clone()]);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn named(name: &ast::ObjectName, wanted: &str) -> bool {
    name.to_string().eq_ignore_ascii_case(wanted)
}

fn plain(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    args.iter()
        .map(|a| match a {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e.clone()),
            _ => None,
        })
        .collect()
}

/// The list that a function in FROM unfolds.
fn series(name: &ast::ObjectName, args: &[FunctionArg]) -> Option<Expr> {
    let function = ["generate_series", "range"].into_iter().find(|f| named(name, f));
    let function = function.or_else(|| json_rows(name).map(|(function, _)| function))?;
    Some(call(function, plain(args)?))
}

/// The function of `jsonb` that gives rows, and what its column is called.
fn json_rows(name: &ast::ObjectName) -> Option<(&'static str, &'static str)> {
    super::json::GIVE_ROWS.iter().copied().find(|(f, _)| named(name, f))
}

/// `unnest` in FROM with names for its columns: those of the alias, else the alias itself for
/// the only column, as PostgreSQL has it.
fn unnest(mut lists: Vec<Expr>, alias: Option<ast::TableAlias>, ordinality: bool, name: &str) -> TableFactor {
    let quoted = |n: &str| ast::Ident::with_quote('"', n);
    let mut alias =
        alias.unwrap_or_else(|| ast::TableAlias { explicit: true, name: quoted(name), columns: vec![], at: None });
    let column = |name: ast::Ident| ast::TableAliasColumnDef { name, data_type: None };
    let own = lists.len();
    if alias.columns.is_empty() && own == 1 {
        let value = super::json::GIVE_ROWS.iter().find(|(f, _)| *f == name);
        alias.columns.push(column(value.map_or_else(|| alias.name.clone(), |(_, column)| quoted(column))));
    }
    if ordinality && let [list] = lists.as_slice() {
        // Counted as long as the list is.
        let length = Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(call("array_length", vec![list.clone()])),
            data_type: ast::DataType::BigInt(None),
            array: false,
            format: None,
        };
        let one = Expr::Value(ast::Value::Number("1".to_owned(), false).with_empty_span());
        lists.push(call("generate_series", vec![one, length]));
        if alias.columns.len() == own {
            alias.columns.push(column(quoted("ordinality")));
        }
        return TableFactor::UNNEST {
            alias: Some(alias),
            array_exprs: lists,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality: false,
        };
    }
    TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: lists,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: ordinality,
    }
}
