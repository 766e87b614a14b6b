//! Columns merged by USING and NATURAL. DataFusion knows in WHERE, and everywhere after a second such
//! join, only that several tables have a column of the name; here the name is given the table
//! whose value the merged column has, which for inner and left joins is one on the left. (Other
//! joins are [`super::joins`]'s.)

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query, Select, TableFactor, TableWithJoins, VisitMut,
    VisitorMut,
};

use super::Resolver;
use crate::sql::fold;

/// Qualifies merged columns in every SELECT over one FROM item.
pub(super) fn qualify(resolver: &dyn Resolver, query: &mut Query) {
    let _ = query.visit(&mut Selects { resolver });
}

struct Selects<'a> {
    resolver: &'a dyn Resolver,
}

impl VisitorMut for Selects<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        // A name that several items have is ambiguous.
        let [from] = select.from.as_slice() else { return ControlFlow::Continue(()) };
        let mut merged = BTreeMap::new();
        self.merged(from, &mut merged);
        if !merged.is_empty() {
            let names = &mut Names { merged: &merged, depth: 0 };
            let _ = select.projection.visit(names);
            let _ = select.selection.visit(names);
            let _ = select.group_by.visit(names);
            let _ = select.having.visit(names);
            let _ = select.qualify.visit(names);
        }
        ControlFlow::Continue(())
    }
}

impl Selects<'_> {
    /// The merged columns of a FROM item, each with the table that has its value.
    fn merged(&self, from: &TableWithJoins, out: &mut BTreeMap<String, Ident>) {
        let mut left: Vec<&TableFactor> = vec![&from.relation];
        for Join { relation, join_operator, .. } in &from.joins {
            let names = match join_operator {
                JoinOperator::Join(c) | JoinOperator::Inner(c) | JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => {
                    self.names(c, &left, relation)
                }
                // A join that is planned as a whole: its columns are merged already.
                JoinOperator::Right(c) | JoinOperator::RightOuter(c) | JoinOperator::FullOuter(c)
                    if !matches!(c, JoinConstraint::On(_)) =>
                {
                    out.clear();
                    return;
                }
                _ => Vec::new(),
            };
            for name in names {
                if !out.contains_key(&name)
                    && let Some(table) = self.owner(&left, &name)
                {
                    out.insert(name, table);
                }
            }
            left.push(relation);
        }
    }

    fn names(&self, constraint: &JoinConstraint, left: &[&TableFactor], right: &TableFactor) -> Vec<String> {
        match constraint {
            JoinConstraint::Using(names) => names.iter().filter_map(|n| last(n).map(fold)).collect(),
            JoinConstraint::Natural => {
                let ours = left.iter().flat_map(|t| self.columns(t).unwrap_or_default());
                let theirs = self.columns(right).unwrap_or_default();
                ours.filter(|c| theirs.contains(c)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The only table that has the column; `None` if that is not known.
    fn owner(&self, tables: &[&TableFactor], column: &str) -> Option<Ident> {
        if let [one] = tables {
            return called(one);
        }
        let mut owners = tables.iter().filter(|t| self.columns(t).is_none_or(|c| c.iter().any(|c| c == column)));
        let first = owners.next()?;
        (owners.next().is_none() && self.columns(first).is_some()).then(|| called(first))?
    }

    /// The columns of a table, if it is one of the catalog.
    fn columns(&self, table: &TableFactor) -> Option<Vec<String>> {
        let TableFactor::Table { name, alias, args: None, .. } = table else { return None };
        if alias.as_ref().is_some_and(|a| !a.columns.is_empty()) {
            return None;
        }
        let parts: Vec<String> = name.0.iter().filter_map(|p| p.as_ident()).map(fold).collect();
        let (schema, name) = match parts.as_slice() {
            [name] => (None, name),
            [schema, name] => (Some(schema.as_str()), name),
            _ => return None,
        };
        let relation = self.resolver.relation(schema, name).ok()?;
        Some(relation.schema.fields().iter().map(|f| f.name().clone()).collect())
    }
}

fn last(name: &ObjectName) -> Option<&Ident> {
    name.0.last().and_then(|p| p.as_ident())
}

/// What a table is called in its query.
fn called(table: &TableFactor) -> Option<Ident> {
    match table {
        TableFactor::Table { alias: Some(a), .. } | TableFactor::Derived { alias: Some(a), .. } => Some(a.name.clone()),
        TableFactor::Table { name, .. } => last(name).cloned(),
        _ => None,
    }
}

/// Qualifies names of one query, not of those within it.
struct Names<'a> {
    merged: &'a BTreeMap<String, Ident>,
    depth: usize,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(i) = e
            && self.depth == 0
            && let Some(table) = self.merged.get(&fold(i))
        {
            *e = Expr::CompoundIdentifier(vec![table.clone(), i.clone()]);
        }
        ControlFlow::Continue(())
    }
}
