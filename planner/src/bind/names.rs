//! Names of output columns as PostgreSQL gives them: a function's result is called like the
//! function, a cast like what it casts, CASE `case`. Where that would make two columns of one
//! list alike, the planner's name stays. All other expressions are called by their text.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion_sql::sqlparser::ast::{self, Expr, Query, SelectItem, SetExpr, VisitMut, VisitorMut};

/// Names the unnamed columns of a query and of all queries within it.
pub(super) fn name_columns(query: &mut Query) {
    let _ = query.visit(&mut Namer);
}

/// What follows a name that another column of the list has too.
const MARK: char = '\u{1}';

/// The query with other names for the columns of its outermost list whose names are taken, or
/// might be by `*`; `None` if there are none to change.
pub(super) fn tell_apart(query: &Query) -> Option<Query> {
    let mut out = query.clone();
    let mut changed = false;
    mark_body(&mut out.body, &mut changed);
    changed.then_some(out)
}

/// A schema with the names as they were before columns were told apart; `None` if none was.
pub fn without_marks(schema: &Schema) -> Option<SchemaRef> {
    let plain = |name: &str| name.find(MARK).map(|i| name[..i].to_owned());
    schema.fields().iter().any(|f| f.name().contains(MARK)).then(|| {
        let fields = schema.fields().iter().map(|f| match plain(f.name()) {
            Some(name) => f.as_ref().clone().with_name(name),
            None => f.as_ref().clone(),
        });
        Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
    })
}

fn mark_body(set: &mut SetExpr, changed: &mut bool) {
    match set {
        SetExpr::Select(select) => mark_list(&mut select.projection, changed),
        SetExpr::SetOperation { left, right, .. } => {
            mark_body(left, changed);
            mark_body(right, changed);
        }
        SetExpr::Query(query) => mark_body(&mut query.body, changed),
        _ => {}
    }
}

fn mark_list(items: &mut [SelectItem], changed: &mut bool) {
    let mut seen: HashSet<String> = HashSet::new();
    let wild = items.iter().any(|i| matches!(i, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    for (n, item) in items.iter_mut().enumerate() {
        let (expr, name, aliased) = match item {
            SelectItem::UnnamedExpr(e) => (e.clone(), list_name(e), false),
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), crate::sql::fold(alias), true),
            _ => continue,
        };
        if seen.contains(&name) || (wild && !aliased) {
            *item = SelectItem::ExprWithAlias { expr, alias: ast::Ident::with_quote('"', format!("{name}{MARK}{n}")) };
            *changed = true;
        } else {
            seen.insert(name);
        }
    }
}

/// What an unnamed column is called; the planner calls a subquery by its only column.
fn list_name(e: &Expr) -> String {
    if let Expr::Subquery(query) = e
        && let SetExpr::Select(select) = query.body.as_ref()
        && let [SelectItem::UnnamedExpr(inner)] = select.projection.as_slice()
    {
        return list_name(inner);
    }
    name_of(e).unwrap_or_else(|| e.to_string())
}

struct Namer;

impl VisitorMut for Namer {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        body(&mut query.body);
        ControlFlow::Continue(())
    }
}

fn body(set: &mut SetExpr) {
    match set {
        SetExpr::Select(select) => list(&mut select.projection),
        SetExpr::SetOperation { left, right, .. } => {
            body(left);
            body(right);
        }
        // Nested queries are visited by themselves.
        _ => {}
    }
}

fn list(items: &mut [SelectItem]) {
    let wild = |i: &SelectItem| matches!(i, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if items.iter().any(wild) {
        return;
    }
    let names: Vec<Option<String>> = items
        .iter()
        .map(|i| match i {
            // The planner calls a subquery by its column.
            SelectItem::UnnamedExpr(Expr::Subquery(_)) => None,
            SelectItem::UnnamedExpr(e) => name_of(e).or_else(|| Some(e.to_string())),
            SelectItem::ExprWithAlias { alias, .. } => Some(crate::sql::fold(alias)),
            _ => None,
        })
        .collect();
    let mut counts: HashMap<&str, usize> = HashMap::with_capacity(names.len());
    for name in names.iter().flatten() {
        *counts.entry(name).or_default() += 1;
    }
    for (i, item) in items.iter_mut().enumerate() {
        let Some(name) = names.get(i).cloned().flatten() else { continue };
        if counts.get(name.as_str()).is_some_and(|n| *n > 1) {
            continue;
        }
        if let SelectItem::UnnamedExpr(e) = item
            && !matches!(e, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        {
            let alias = ast::Ident::with_quote('"', name);
            *item = SelectItem::ExprWithAlias { expr: e.clone(), alias };
        }
    }
}

fn name_of(e: &Expr) -> Option<String> {
    match e {
        Expr::Identifier(i) => Some(crate::sql::fold(i)),
        Expr::CompoundIdentifier(parts) => parts.last().map(crate::sql::fold),
        Expr::Function(f) => f.name.0.last().and_then(|p| p.as_ident()).map(crate::sql::fold),
        Expr::Cast { expr, data_type, .. } => name_of(expr).or_else(|| match expr.as_ref() {
            Expr::Value(_) => Some(data_type.to_string().to_lowercase()),
            _ => None,
        }),
        Expr::Nested(inner) => name_of(inner),
        Expr::CompoundFieldAccess { access_chain, .. } => match access_chain.last() {
            Some(ast::AccessExpr::Dot(Expr::Identifier(field))) => Some(crate::sql::fold(field)),
            _ => None,
        },
        Expr::AtTimeZone { .. } => Some("timezone".to_owned()),
        Expr::Case { .. } => Some("case".to_owned()),
        Expr::Extract { .. } => Some("extract".to_owned()),
        Expr::Substring { .. } => Some("substring".to_owned()),
        Expr::Trim { .. } => Some("trim".to_owned()),
        Expr::Ceil { .. } => Some("ceil".to_owned()),
        Expr::Floor { .. } => Some("floor".to_owned()),
        Expr::Position { .. } => Some("position".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn check(sql: &str, expect: &str) {
        let mut q = crate::sql::parse_query(sql).unwrap();
        name_columns(&mut q);
        assert_eq!(q.to_string(), expect);
    }

    #[test]
    fn functions_casts_and_cases_get_postgresql_names() {
        check("SELECT count(*), max(a) FROM t", "SELECT count(*) AS \"count\", max(a) AS \"max\" FROM t");
        check("SELECT CAST(a AS INT), a+1 FROM t", "SELECT CAST(a AS INT) AS \"a\", a + 1 AS \"a + 1\" FROM t");
        check(
            "SELECT CASE WHEN a THEN 1 END FROM (SELECT lower(b) FROM u) AS t",
            "SELECT CASE WHEN a THEN 1 END AS \"case\" FROM (SELECT lower(b) AS \"lower\" FROM u) AS t",
        );
    }

    #[test]
    fn names_that_would_clash_stay_as_they_are() {
        check("SELECT sum(a), sum(b) FROM t", "SELECT sum(a), sum(b) FROM t");
        check("SELECT count, count(*) FROM t", "SELECT count, count(*) FROM t");
        check("SELECT *, count(*) FROM t", "SELECT *, count(*) FROM t");
    }
}
