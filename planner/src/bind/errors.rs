//! DataFusion's planning errors in the house form: kind, PostgreSQL-style message, place
//! in the statement, "did you mean".

use arrow::error::ArrowError;
use datafusion_common::{Column, DataFusionError, SchemaError};
use spate_engine::types::error::{ErrorKind, MORE_MEMORY, SpateError};

use super::wording::in_sql_types;
use crate::sql::did_you_mean;

/// Turns a planning error into ours.
pub fn bind_error(e: DataFusionError) -> SpateError {
    let position = e
        .diagnostic()
        .and_then(|d| d.span)
        .map(|s| (s.start.line, s.start.column))
        .or_else(|| column_position(&e))
        .filter(|(line, _)| *line > 0);
    let own = spate_error(&e);
    let carried = own.is_some();
    let error = own.unwrap_or_else(|| translate(&e));
    match position {
        // An error of ours knows its place, or has none worth telling.
        Some((line, column)) if error.position().is_none() && !(carried && error.kind() == ErrorKind::Internal) => {
            error.at(line, column)
        }
        _ => error,
    }
}

/// An error of ours that travelled through DataFusion.
fn spate_error(e: &DataFusionError) -> Option<SpateError> {
    match e {
        DataFusionError::External(inner) => match inner.downcast_ref::<SpateError>() {
            Some(own) => Some(own.clone()),
            None => inner.downcast_ref::<DataFusionError>().and_then(spate_error),
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => spate_error(inner),
        DataFusionError::Shared(inner) => spate_error(inner),
        DataFusionError::Collection(errors) => errors.first().and_then(spate_error),
        _ => None,
    }
}

fn root(e: &DataFusionError) -> &DataFusionError {
    match e {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => root(inner),
        DataFusionError::Shared(inner) => root(inner),
        DataFusionError::Collection(errors) => errors.first().map_or(e, root),
        _ => e,
    }
}

fn column_position(e: &DataFusionError) -> Option<(u64, u64)> {
    let field = match root(e) {
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            SchemaError::FieldNotFound { field, .. } | SchemaError::AmbiguousReference { field } => field,
            _ => return None,
        },
        _ => return None,
    };
    field.spans.first().map(|s| (s.start.line, s.start.column))
}

fn column_name(column: &Column) -> String {
    match &column.relation {
        Some(relation) => super::qualifiers::as_written(&format!("{relation}.{}", column.name)).to_owned(),
        None => column.name.clone(),
    }
}

/// Whether two columns of a SELECT list have one name.
pub(super) fn is_repeated_name(e: &DataFusionError) -> bool {
    matches!(root(e), DataFusionError::Plan(m) if m.contains("require unique expression names"))
}

fn translate(e: &DataFusionError) -> SpateError {
    // These come in errors of several kinds, with all signatures and types in Arrow's words.
    if let Some(error) = super::wording::mismatch(&e.strip_backtrace()) {
        return error;
    }
    match root(e) {
        DataFusionError::SchemaError(inner, _) => schema_error(inner),
        DataFusionError::Plan(message) if message.starts_with("Invalid function '") => {
            let name = message["Invalid function '".len()..].split('\'').next().unwrap_or_default();
            let error = SpateError::new(ErrorKind::NotFound, format!("function {name} does not exist"));
            match did_you_mean(name, super::context::function_names()) {
                Some(near) if near == name => error.with_hint(format!("{name} is a window function: add OVER (…)")),
                Some(near) => error.with_hint(format!("did you mean {near}?")),
                None => error,
            }
        }
        DataFusionError::Plan(message) if message.contains("require unique expression names") => {
            SpateError::new(ErrorKind::Type, "two columns of a SELECT list have the same name")
                .with_hint("give them different names with AS")
        }
        DataFusionError::Plan(message) if message.starts_with("Too many columns! The subquery") => {
            SpateError::new(ErrorKind::Type, "subquery has too many columns")
        }
        DataFusionError::Plan(message) if message.starts_with("Source table contains ") => {
            let counts: Vec<u64> = message.split(' ').filter_map(|word| word.parse().ok()).collect();
            let message = match counts.as_slice() {
                [has, wanted] => {
                    let how = if has < wanted { "few" } else { "many" };
                    format!("too {how} columns: the table or subquery has {has}, {wanted} are expected")
                }
                _ => lower_first(first_line(message)),
            };
            SpateError::new(ErrorKind::Type, message)
        }
        DataFusionError::Plan(message) => {
            SpateError::new(ErrorKind::Type, lower_first(&in_sql_types(first_line(message))))
        }
        DataFusionError::NotImplemented(message) => {
            // Some of these go on with a dump of the syntax tree.
            let line = first_line(message);
            let said = line.find(" {").map_or(line, |i| &line[..i]);
            let said = match said.split_once(" ast node in sqltorel: ") {
                Some((_, node)) => node,
                None => said.strip_prefix("Unsupported ast node ").unwrap_or(said),
            };
            if said.contains("OuterReferenceColumn(") {
                return SpateError::unsupported("a LATERAL subquery of this form is not supported")
                    .with_hint("join with a grouped subquery instead");
            }
            SpateError::unsupported(format!("not supported yet: {}", lower_first(&in_sql_types(said))))
        }
        DataFusionError::ArrowError(a, _) => arrow_error(a),
        DataFusionError::Execution(message) => {
            SpateError::new(ErrorKind::Evaluation, lower_first(&in_sql_types(first_line(message))))
        }
        other => {
            let message = other.strip_backtrace();
            let kind = match other {
                DataFusionError::SQL(..) => ErrorKind::Syntax,
                DataFusionError::ResourcesExhausted(_) => {
                    return SpateError::new(ErrorKind::Limit, message).with_hint(MORE_MEMORY);
                }
                _ => ErrorKind::Internal,
            };
            SpateError::new(kind, message)
        }
    }
}

fn arrow_error(e: &ArrowError) -> SpateError {
    let message = match e {
        ArrowError::DivideByZero => "division by zero",
        ArrowError::CastError(m)
        | ArrowError::ParseError(m)
        | ArrowError::ComputeError(m)
        | ArrowError::InvalidArgumentError(m)
        | ArrowError::ArithmeticOverflow(m) => m,
        other => return SpateError::from(DataFusionError::from(ArrowError::ComputeError(other.to_string()))),
    };
    SpateError::new(ErrorKind::Evaluation, lower_first(&in_sql_types(first_line(message))))
}

fn schema_error(e: &SchemaError) -> SpateError {
    match e {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let error =
                SpateError::new(ErrorKind::NotFound, format!("column \"{}\" does not exist", column_name(field)));
            let names: Vec<&str> = valid_fields.iter().map(|c| c.name.as_str()).collect();
            if names.contains(&field.name.as_str()) {
                let mut tables: Vec<String> =
                    valid_fields.iter().filter(|c| c.name == field.name).map(column_name).collect();
                tables.sort();
                return error.with_hint(format!("did you mean \"{}\"?", tables.join("\" or \"")));
            }
            match did_you_mean(&field.name, names) {
                Some(near) => error.with_hint(format!("did you mean \"{near}\"?")),
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => {
            SpateError::new(ErrorKind::Type, format!("column reference \"{}\" is ambiguous", field.name))
                .with_hint("put the table's name or alias before it")
        }
        SchemaError::DuplicateQualifiedField { qualifier, name } => SpateError::new(
            ErrorKind::Type,
            format!("two tables called \"{}\" have a column \"{name}\"", qualifier.table()),
        )
        .with_hint("give one of them another name with AS"),
        SchemaError::DuplicateUnqualifiedField { name } => {
            SpateError::new(ErrorKind::Type, format!("column \"{name}\" is specified more than once"))
                .with_hint("give the columns different names with AS")
        }
    }
}

fn first_line(s: &str) -> &str {
    s.lines().next().unwrap_or(s).trim_end_matches('.')
}

fn lower_first(s: &str) -> String {
    let mut chars = s.chars();
    match (chars.next(), chars.clone().next()) {
        // An acronym keeps its case.
        (Some(a), Some(b)) if a.is_uppercase() && !b.is_uppercase() => a.to_lowercase().chain(chars).collect(),
        _ => s.to_string(),
    }
}
