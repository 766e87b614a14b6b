//! Functions that are defined in SQL: a call is replaced by the function's expression before
//! anything is bound, so that batch and stream see the same plan.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion_sql::sqlparser::ast::{self, Expr, Spanned, VisitMut, VisitorMut};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::check::{RANDOM_FUNCTIONS, at_span};
use super::{Resolver, context};
use crate::catalog::SqlFunction;
use crate::sql::{fold, parse_expr, types};

/// Functions may call functions this deep.
const MAX_DEPTH: usize = 32;

/// Whether a name is that of a function that is always there.
pub fn is_builtin(name: &str) -> bool {
    context::is_function(name)
}

/// Replaces all calls of SQL functions in something.
pub(super) fn inline<T: VisitMut>(resolver: &dyn Resolver, node: &mut T) -> Result<()> {
    inline_at(resolver, node, 0)
}

fn inline_at<T: VisitMut>(resolver: &dyn Resolver, node: &mut T, depth: usize) -> Result<()> {
    match node.visit(&mut Inliner { resolver, depth }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Inliner<'a> {
    resolver: &'a dyn Resolver,
    depth: usize,
}

impl VisitorMut for Inliner<'_> {
    type Break = SpateError;

    // Arguments come first, so what a call is replaced by holds no calls of the query's own.
    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<SpateError> {
        let Expr::Function(call) = e else { return ControlFlow::Continue(()) };
        match self.expand(call) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(new)) => {
                *e = new;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(at_span(error, call.span())),
        }
    }
}

impl Inliner<'_> {
    fn expand(&self, call: &ast::Function) -> Result<Option<Expr>> {
        let parts: Vec<String> = call.name.0.iter().filter_map(|p| p.as_ident()).map(fold).collect();
        let (schema, name) = match parts.as_slice() {
            [name] if !is_builtin(name) => (None, name),
            [schema, name] => (Some(schema.as_str()), name),
            _ => return Ok(None),
        };
        let Some(function) = self.resolver.function(schema, name)? else { return Ok(None) };
        if self.depth >= MAX_DEPTH {
            return Err(SpateError::unsupported(format!("functions are nested more than {MAX_DEPTH} deep")));
        }
        let args = arguments(call, &function)?;
        let mut body = function.body.clone();
        // Calls in the body first: the arguments are the caller's, and done already.
        inline_at(self.resolver, &mut body, self.depth + 1)?;
        substitute(&function, body, args).map(Some)
    }
}

fn arguments(call: &ast::Function, function: &SqlFunction) -> Result<Vec<Expr>> {
    let name = &function.name;
    let plain = call.over.is_none()
        && call.filter.is_none()
        && call.null_treatment.is_none()
        && call.within_group.is_empty()
        && matches!(call.parameters, ast::FunctionArguments::None);
    let list = match &call.args {
        ast::FunctionArguments::List(l) if plain && l.duplicate_treatment.is_none() && l.clauses.is_empty() => &l.args,
        _ => {
            return Err(SpateError::invalid(format!(
                "{name} is a plain function: OVER, FILTER, DISTINCT and the like do not go with it"
            )));
        }
    };
    let mut args = Vec::with_capacity(list.len());
    for a in list {
        match a {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => args.push(e.clone()),
            _ => return Err(SpateError::unsupported(format!("named arguments and * of {name} are not supported"))),
        }
    }
    if args.len() != function.args.len() {
        return Err(SpateError::new(
            ErrorKind::Type,
            format!("function {name} takes {} arguments, {} were given", function.args.len(), args.len()),
        ));
    }
    Ok(args)
}

/// The function's expression for these arguments.
fn substitute(function: &SqlFunction, body: Expr, args: Vec<Expr>) -> Result<Expr> {
    let mut values: BTreeMap<String, Expr> = BTreeMap::new();
    for (i, ((name, data_type), value)) in function.args.iter().zip(args).enumerate() {
        let used = uses(&body, name, i);
        if used > 1 && is_random(&value) {
            return Err(SpateError::unsupported(format!(
                "an argument of {} that differs from call to call is not supported: it is used {used} times",
                function.name
            )));
        }
        let value = cast(value, &types::display(data_type))?;
        if !name.is_empty() {
            values.insert(name.clone(), value.clone());
        }
        values.insert(format!("${}", i + 1), value);
    }
    let mut body = body;
    let _ = body.visit(&mut Substitute { function: &function.name, values: &values });
    let body = cast(body, &types::display(&function.returns))?;
    if !function.strict || function.args.is_empty() {
        return Ok(Expr::Nested(Box::new(body)));
    }
    let nulls: Vec<String> = (1..=function.args.len()).map(|i| format!("${i} IS NULL")).collect();
    let mut strict = parse_expr(&format!("CASE WHEN {} THEN NULL ELSE $0 END", nulls.join(" OR ")))?;
    values.insert("$0".into(), body);
    let _ = strict.visit(&mut Substitute { function: "", values: &values });
    Ok(strict)
}

/// `CAST(e AS to)`.
fn cast(e: Expr, to: &str) -> Result<Expr> {
    let mut out = parse_expr(&format!("CAST(NULL AS {to})"))?;
    if let Expr::Cast { expr, .. } = &mut out {
        **expr = e;
    }
    Ok(out)
}

struct Substitute<'a> {
    function: &'a str,
    values: &'a BTreeMap<String, Expr>,
}

impl Substitute<'_> {
    fn key(&self, e: &Expr) -> Option<String> {
        key(self.function, e)
    }
}

fn key(function: &str, e: &Expr) -> Option<String> {
    match e {
        Expr::Identifier(i) => Some(fold(i)),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [f, a] if fold(f) == function => Some(fold(a)),
            _ => None,
        },
        Expr::Value(v) => match &v.value {
            ast::Value::Placeholder(p) => Some(p.clone()),
            _ => None,
        },
        _ => None,
    }
}

impl VisitorMut for Substitute<'_> {
    type Break = ();

    // After its parts, so that what was put in is not looked at again.
    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        if let Some(value) = self.key(e).and_then(|k| self.values.get(&k)) {
            *e = Expr::Nested(Box::new(value.clone()));
        }
        ControlFlow::Continue(())
    }
}

fn uses(body: &Expr, name: &str, index: usize) -> usize {
    let mut n = 0;
    let placeholder = format!("${}", index + 1);
    let mut copy = body.clone();
    let _ = copy.visit(&mut Seen(&mut |e: &Expr| {
        let hit = match e {
            Expr::Identifier(i) => !name.is_empty() && fold(i) == name,
            Expr::CompoundIdentifier(p) => p.last().is_some_and(|i| !name.is_empty() && fold(i) == name),
            Expr::Value(v) => matches!(&v.value, ast::Value::Placeholder(p) if *p == placeholder),
            _ => false,
        };
        n += usize::from(hit);
    }));
    n
}

/// Whether an expression calls a function whose value differs from call to call.
pub fn is_random(e: &Expr) -> bool {
    let mut found = false;
    let mut copy = e.clone();
    let _ = copy.visit(&mut Seen(&mut |e: &Expr| {
        found |= matches!(e, Expr::Function(f)
            if RANDOM_FUNCTIONS.contains(&f.name.to_string().to_ascii_lowercase().as_str()));
    }));
    found
}

struct Seen<'a>(&'a mut dyn FnMut(&Expr));

impl VisitorMut for Seen<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        (self.0)(e);
        ControlFlow::Continue(())
    }
}

/// The function behind a definition: arguments as columns of a relation of its name.
pub fn check_function(function: &SqlFunction, resolver: &dyn Resolver) -> Result<()> {
    use arrow::datatypes::{Field, Schema};
    let mut body = function.body.clone();
    inline(resolver, &mut body)?;
    // Placeholders are columns too while the types are checked.
    let names: Vec<String> = (1..=function.args.len()).map(|i| format!("__arg{i}")).collect();
    let mut values = BTreeMap::new();
    for (i, (name, _)) in function.args.iter().enumerate() {
        let column = Expr::Identifier(ast::Ident::new(names[i].clone()));
        values.insert(format!("${}", i + 1), column.clone());
        if !name.is_empty() {
            values.insert(name.clone(), column);
        }
    }
    let _ = body.visit(&mut Substitute { function: &function.name, values: &values });
    // One more column, since a relation without any cannot be read.
    let mut fields = vec![Field::new("__none", arrow::datatypes::DataType::Boolean, true)];
    fields.extend(names.iter().zip(&function.args).map(|(n, (_, t))| Field::new(n, t.clone(), true)));
    let schema = Arc::new(Schema::new(fields));
    let mode = super::BindMode::AdHoc;
    super::bind_columns(&function.name, &schema, &[(&body, &function.returns)], &mode)
        .map_err(SpateError::without_position)
        .map(|_| ())
}
