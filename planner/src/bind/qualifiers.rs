//! `s.x` where `s` is the name of a table: it is that table's column, also where a nearer query has a
//! column `s`, of which DataFusion would take a field. Such a name gets a schema put before it: then
//! it can only be a table's.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Query, Select, TableAlias, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};

use super::Resolver;
use crate::sql::fold;

/// The schema of tables that have an alias.
const SCHEMA: &str = "__table";

/// `name` as the user wrote it.
pub(super) fn as_written(name: &str) -> &str {
    name.strip_prefix(SCHEMA).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name)
}

/// Marks the columns of tables in a query and all queries within it.
pub(super) fn mark(resolver: &dyn Resolver, query: &mut Query) {
    let _ = query.visit(&mut Marker { resolver, frames: vec![], ctes: BTreeSet::new() });
}

/// A relation of a FROM clause.
struct Seen {
    name: String,
    schema: Option<Ident>,
    /// `None` if they are not known.
    columns: Option<Vec<String>>,
}

/// What a SELECT reads.
struct Frame {
    seen: Vec<Seen>,
    /// In how many subqueries of its FROM clause we are, which do not see it.
    hidden: usize,
}

struct Marker<'a> {
    resolver: &'a dyn Resolver,
    frames: Vec<Frame>,
    /// Names of common table expressions, which are not what the catalog calls so.
    ctes: BTreeSet<String>,
}

impl Marker<'_> {
    fn from(&self, t: &TableWithJoins, seen: &mut Vec<Seen>) {
        for factor in std::iter::once(&t.relation).chain(t.joins.iter().map(|j| &j.relation)) {
            self.factor(factor, seen);
        }
    }

    fn factor(&self, factor: &TableFactor, seen: &mut Vec<Seen>) {
        let aliased = |a: &TableAlias| Seen { name: fold(&a.name), schema: None, columns: None };
        match factor {
            TableFactor::Table { name, alias, args, .. } => {
                let parts: Vec<&Ident> = name.0.iter().filter_map(|p| p.as_ident()).collect();
                let Some((last, before)) = parts.split_last() else { return };
                let known = args.is_none() && alias.as_ref().is_none_or(|a| a.columns.is_empty());
                let columns = if known { self.columns(name) } else { None };
                seen.push(match alias {
                    Some(a) => Seen { columns, ..aliased(a) },
                    None => Seen { name: fold(last), schema: before.last().map(|i| (*i).clone()), columns },
                });
            }
            TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => seen.extend(alias.as_ref().map(aliased)),
            TableFactor::NestedJoin { alias: Some(a), .. } => seen.push(aliased(a)),
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.from(table_with_joins, seen),
            _ => {}
        }
    }

    fn columns(&self, name: &ObjectName) -> Option<Vec<String>> {
        let parts: Vec<String> = name.0.iter().filter_map(|p| p.as_ident()).map(fold).collect();
        let (schema, name) = match parts.as_slice() {
            [name] if !self.ctes.contains(name) => (None, name),
            [schema, name] => (Some(schema.as_str()), name),
            _ => return None,
        };
        let relation = self.resolver.relation(schema, name).ok()?;
        Some(relation.schema.fields().iter().map(|f| f.name().clone()).collect())
    }

    /// The schema to put before `table.column`, if that might be taken for something else.
    fn schema_of(&self, table: &str) -> Option<Ident> {
        let mut risk = false;
        for frame in self.frames.iter().rev().filter(|f| f.hidden == 0) {
            let has = |s: &Seen| s.columns.as_ref().is_none_or(|all| all.iter().any(|c| c == table));
            risk |= frame.seen.iter().any(has);
            if let Some(found) = frame.seen.iter().find(|s| s.name == table) {
                let schema = || found.schema.clone().unwrap_or_else(|| Ident::with_quote('"', SCHEMA));
                return risk.then(schema);
            }
        }
        None
    }
}

fn hides(t: &TableFactor) -> bool {
    matches!(t, TableFactor::Derived { lateral: false, .. })
}

impl VisitorMut for Marker<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let ctes = query.with.iter().flat_map(|w| &w.cte_tables);
        self.ctes.extend(ctes.map(|c| fold(&c.alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut seen = Vec::new();
        for t in &select.from {
            self.from(t, &mut seen);
        }
        self.frames.push(Frame { seen, hidden: 0 });
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.frames.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, t: &mut TableFactor) -> ControlFlow<()> {
        if let Some(frame) = self.frames.last_mut() {
            frame.hidden += usize::from(hides(t));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, t: &mut TableFactor) -> ControlFlow<()> {
        if let Some(frame) = self.frames.last_mut() {
            frame.hidden -= usize::from(hides(t));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = e
            && let [table, _] = parts.as_slice()
            && let Some(schema) = self.schema_of(&fold(table))
        {
            parts.insert(0, schema);
        }
        ControlFlow::Continue(())
    }
}
