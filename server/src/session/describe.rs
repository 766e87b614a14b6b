//! What a statement takes and gives, without running it: for prepared statements.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast;
use spate_engine::types::{Result, SpateError};
use spate_planner::bind::{BindMode, bind_query, parameter_types, without_marks};
use spate_planner::sql::statement::{Input, Name, Statement};
use spate_planner::sql::types::storable;
use spate_planner::sql::{self, Query, parameters, parse_query, quote};

use super::resolver::Names;
use super::subscribe::with_marks;
use super::{Outcome, Session};

/// What a statement takes and gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Types of the parameters `$1`, `$2`, …; `None` where nothing tells.
    pub parameters: Vec<Option<DataType>>,
    /// Columns of its rows; `None` if it gives none.
    pub columns: Option<SchemaRef>,
}

impl Session {
    /// What a statement takes and gives.
    ///
    /// # Errors
    /// When it is not valid, or names what does not exist.
    pub async fn describe_statement(&mut self, text: &str) -> Result<Description> {
        let located = |e: SpateError| match (e.position(), sql::place_of(text, &e)) {
            (None, Some((line, column))) => e.at(line, column),
            _ => e,
        };
        let mut statement = sql::parse_one(text)?.statement;
        let (count, mut known) = parameters::of(&mut statement)?;
        for (n, t) in self.types_in(&statement).map_err(located)? {
            known.entry(n).or_insert(t);
        }
        let kinds: Vec<Option<DataType>> = (1..=count).map(|n| known.get(&n).map(storable)).collect();
        let filled: Vec<DataType> = kinds.iter().map(|t| t.clone().unwrap_or(DataType::Null)).collect();
        parameters::bind_nulls(&mut statement, &filled)?;
        // These have no effect.
        let looks = matches!(
            statement,
            Statement::Explain(_)
                | Statement::ShowObjects { .. }
                | Statement::ShowCreate { .. }
                | Statement::ShowVariable(_)
                | Statement::ShowAll
                | Statement::Describe(_)
        );
        let columns = if looks && count == 0 {
            match self.execute(text).await? {
                Outcome::Rows(rows) => Some(rows.schema),
                Outcome::Done(_) => None,
            }
        } else {
            self.columns_of(&statement).map_err(located)?
        };
        Ok(Description { parameters: kinds, columns })
    }

    fn names(&self) -> Names<'_> {
        Names::new(&self.engine, &self.variables.search_path)
    }

    /// Types that parameters have by what they stand next to, or by the column that they go into.
    fn types_in(&self, statement: &Statement) -> Result<BTreeMap<usize, DataType>> {
        let mut known = BTreeMap::new();
        match statement {
            Statement::Query(q) => known.extend(parameter_types(&self.names(), q)?),
            Statement::Insert(i) => {
                let schema = self.schema_of(&i.table)?;
                let Some(source) = &i.source else { return Ok(known) };
                let column = |k: usize| match i.columns.get(k) {
                    Some(name) => schema.field_with_name(name).ok(),
                    None if i.columns.is_empty() => schema.fields().get(k).map(AsRef::as_ref),
                    None => None,
                };
                let mut cell = |k: usize, e: &ast::Expr| -> Result<()> {
                    if let (Some(n), Some(field)) = (parameters::number(e)?, column(k)) {
                        known.entry(n).or_insert_with(|| field.data_type().clone());
                    }
                    Ok(())
                };
                match source.body.as_ref() {
                    ast::SetExpr::Values(values) => {
                        for row in &values.rows {
                            for (k, e) in row.content.iter().enumerate() {
                                cell(k, e)?;
                            }
                        }
                    }
                    ast::SetExpr::Select(select) => {
                        for (k, item) in select.projection.iter().enumerate() {
                            if let ast::SelectItem::UnnamedExpr(e) | ast::SelectItem::ExprWithAlias { expr: e, .. } =
                                item
                            {
                                cell(k, e)?;
                            }
                        }
                        self.infer(source, &mut known)?;
                    }
                    _ => self.infer(source, &mut known)?,
                }
            }
            Statement::Update(u) => {
                let schema = self.schema_of(&u.table)?;
                for (name, e) in &u.assignments {
                    if let (Some(n), Ok(field)) = (parameters::number(e)?, schema.field_with_name(name)) {
                        known.entry(n).or_insert_with(|| field.data_type().clone());
                    }
                }
                let called = u.alias.as_deref().unwrap_or(&u.table.name);
                let exprs = u.assignments.iter().map(|(_, e)| e.clone()).collect();
                let query = over(&u.table, called, exprs, u.from.clone(), u.selection.clone())?;
                self.infer(&query, &mut known)?;
            }
            Statement::Delete(d) => {
                let called = d.alias.as_deref().unwrap_or(&d.table.name);
                let query = over(&d.table, called, vec![], d.using.clone(), d.selection.clone())?;
                self.infer(&query, &mut known)?;
            }
            _ => {}
        }
        Ok(known)
    }

    fn infer(&self, query: &Query, known: &mut BTreeMap<usize, DataType>) -> Result<()> {
        for (n, t) in parameter_types(&self.names(), query)? {
            known.entry(n).or_insert(t);
        }
        Ok(())
    }

    fn schema_of(&self, table: &Name) -> Result<SchemaRef> {
        let catalog = self.engine.catalog.lock();
        Ok(catalog.relation(&self.variables.search_path, table)?.schema.clone())
    }

    fn bound_columns(&self, query: &Query) -> Result<SchemaRef> {
        let plan = bind_query(&self.names(), query, &BindMode::AdHoc)?;
        let schema: SchemaRef = plan.schema().inner().clone();
        Ok(without_marks(&schema).unwrap_or(schema))
    }

    fn columns_of(&self, statement: &Statement) -> Result<Option<SchemaRef>> {
        let returned = |table: &Name, alias: &Option<String>, list: &[ast::SelectItem]| {
            if list.is_empty() {
                return Ok(None);
            }
            let called = alias.as_deref().unwrap_or(&table.name);
            let mut query = over(table, called, vec![], vec![], None)?;
            if let ast::SetExpr::Select(select) = query.body.as_mut() {
                select.projection = list.to_vec();
            }
            self.bound_columns(&query).map(Some)
        };
        match statement {
            Statement::Query(q) => self.bound_columns(q).map(Some),
            Statement::Insert(i) => returned(&i.table, &i.alias, &i.returning),
            Statement::Update(u) => returned(&u.table, &u.alias, &u.returning),
            Statement::Delete(d) => returned(&d.table, &d.alias, &d.returning),
            Statement::Subscribe(s) => {
                let columns = match &s.target {
                    Input::Relation(name) => self.schema_of(name)?,
                    Input::Query { query, .. } => self.bound_columns(query)?,
                };
                Ok(Some(with_marks(&columns)))
            }
            Statement::Explain(_) => {
                let field = Field::new("plan", DataType::Utf8, false);
                Ok(Some(Arc::new(Schema::new(vec![field]))))
            }
            _ => Ok(None),
        }
    }
}

/// `SELECT exprs… FROM table AS called, from… WHERE selection`.
fn over(
    table: &Name,
    called: &str,
    exprs: Vec<ast::Expr>,
    from: Vec<ast::TableWithJoins>,
    selection: Option<ast::Expr>,
) -> Result<Box<Query>> {
    let schema = table.schema.as_ref().map(|s| format!("{}.", quote(s))).unwrap_or_default();
    let text = format!("SELECT 1 FROM {schema}{} AS {}", quote(&table.name), quote(called));
    let mut query = parse_query(&text)?;
    if let ast::SetExpr::Select(select) = query.body.as_mut() {
        let named = exprs.into_iter().enumerate().map(|(i, expr)| {
            let alias = ast::Ident::new(format!("__new{i}"));
            ast::SelectItem::ExprWithAlias { expr, alias }
        });
        select.projection.extend(named);
        select.from.extend(from);
        select.selection = selection;
    }
    Ok(query)
}
