//! Parameters (`$1`, `$2`, …) of a statement: which there are, and values put in their places.
//!
//! Values become literals of the syntax tree, so that binding sees what it would see had the user
//! written them: text is a literal without a type, numbers have one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::ScalarValue;
use datafusion_sql::sqlparser::ast::{self, Expr, Value, VisitMut, VisitorMut};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::statement::{Input, Statement};
use super::types;

/// Most parameters of a statement.
pub const MAX_PARAMETERS: usize = 65_535;

/// What a visitor may do at each expression.
struct EachExpr<F>(F);

impl<F: FnMut(&mut Expr) -> Result<()>> VisitorMut for EachExpr<F> {
    type Break = SpateError;

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<SpateError> {
        match (self.0)(e) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Calls `f` for every expression of a statement in which parameters may stand. Inner ones come first.
fn each_expr(statement: &mut Statement, f: &mut dyn FnMut(&mut Expr) -> Result<()>) -> Result<()> {
    let mut visitor = EachExpr(f);
    let v = &mut visitor;
    let flow = match statement {
        Statement::Query(q) => VisitMut::visit(q, v),
        Statement::Subscribe(s) => match &mut s.target {
            Input::Query { query, .. } => VisitMut::visit(query, v),
            Input::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::Insert(i) => match VisitMut::visit(&mut i.source, v) {
            ControlFlow::Continue(()) => VisitMut::visit(&mut i.returning, v),
            stop => stop,
        },
        Statement::Update(u) => {
            let mut flow = VisitMut::visit(&mut u.from, v);
            for (_, e) in &mut u.assignments {
                if flow.is_continue() {
                    flow = VisitMut::visit(e, v);
                }
            }
            if flow.is_continue() {
                flow = VisitMut::visit(&mut u.selection, v);
            }
            if flow.is_continue() {
                flow = VisitMut::visit(&mut u.returning, v);
            }
            flow
        }
        Statement::Delete(d) => {
            let mut flow = VisitMut::visit(&mut d.using, v);
            if flow.is_continue() {
                flow = VisitMut::visit(&mut d.selection, v);
            }
            if flow.is_continue() {
                flow = VisitMut::visit(&mut d.returning, v);
            }
            flow
        }
        Statement::Explain(e) => return each_expr(&mut e.statement, visitor.0),
        // What is kept as text, or has no expressions.
        _ => ControlFlow::Continue(()),
    };
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// The number of a parameter, if an expression is one.
pub fn number(e: &Expr) -> Result<Option<usize>> {
    let Expr::Value(v) = e else { return Ok(None) };
    let Value::Placeholder(name) = &v.value else { return Ok(None) };
    let n = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()).filter(|n| (1..=MAX_PARAMETERS).contains(n));
    match n {
        Some(n) => Ok(Some(n)),
        None => {
            let start = v.span.start;
            let error = SpateError::new(ErrorKind::Syntax, format!("\"{name}\" is no parameter"))
                .with_hint("parameters are called $1, $2 and so on");
            Err(if start.line > 0 { error.at(start.line, start.column) } else { error })
        }
    }
}

/// The parameters of a statement: how many (the highest number), and the types of those that are
/// cast where they stand.
pub fn of(statement: &mut Statement) -> Result<(usize, BTreeMap<usize, DataType>)> {
    let mut count = 0;
    let mut cast = BTreeMap::new();
    each_expr(statement, &mut |e| {
        if let Some(n) = number(e)? {
            count = count.max(n);
        }
        if let Expr::Cast { expr, data_type, .. } = e
            && let Some(n) = number(expr)?
        {
            cast.entry(n).or_insert(types::to_arrow(data_type)?);
        }
        Ok(())
    })?;
    Ok((count, cast))
}

/// Puts values in the places of parameters.
///
/// # Errors
/// When a parameter has no value, or a value is of a type that has no literal.
pub fn bind(statement: &mut Statement, values: &[ScalarValue]) -> Result<()> {
    let mut literals = Vec::with_capacity(values.len());
    for (i, v) in values.iter().enumerate() {
        literals.push(literal(v).map_err(|e| e.context(format!("parameter ${}", i + 1)))?);
    }
    replace(statement, &literals)
}

/// Puts NULLs of these types in the places of parameters.
pub fn bind_nulls(statement: &mut Statement, kinds: &[DataType]) -> Result<()> {
    let mut literals = Vec::with_capacity(kinds.len());
    for kind in kinds {
        literals.push(literal(&ScalarValue::try_from(kind)?)?);
    }
    replace(statement, &literals)
}

fn replace(statement: &mut Statement, literals: &[Expr]) -> Result<()> {
    let mut used = 0;
    each_expr(statement, &mut |e| {
        if let Some(n) = number(e)? {
            used = used.max(n);
            *e = literals.get(n - 1).cloned().ok_or_else(|| {
                SpateError::invalid(format!("there is no value for parameter ${n}"))
                    .with_hint("prepare the statement and bind its parameters")
            })?;
        }
        Ok(())
    })?;
    if used < literals.len() {
        return Err(SpateError::invalid(format!("{} values were given for {used} parameters", literals.len())));
    }
    Ok(())
}

fn text(text: impl Into<String>) -> Value {
    Value::SingleQuotedString(text.into())
}

/// `CAST(value AS type)`.
fn cast(value: Value, to: &DataType) -> Result<Expr> {
    let sample = super::parse_expr(&format!("CAST(NULL AS {})", types::display(to)))?;
    match sample {
        Expr::Cast { kind, data_type, array, format, .. } => {
            Ok(Expr::Cast { kind, expr: Box::new(Expr::Value(value.into())), data_type, array, format })
        }
        _ => Err(SpateError::internal("a cast that is none")),
    }
}

/// A value as a literal.
fn literal(value: &ScalarValue) -> Result<Expr> {
    use ScalarValue as S;
    if value.is_null() {
        let kind = value.data_type();
        // Nothing is known of its type: it has that of where it stands.
        return if kind == DataType::Null || is_text(&kind) {
            Ok(Expr::Value(Value::Null.into()))
        } else {
            cast(Value::Null, &kind)
        };
    }
    let kind = value.data_type();
    let plain = |v: Value| Ok(Expr::Value(v.into()));
    match value {
        S::Boolean(Some(b)) => plain(Value::Boolean(*b)),
        S::Int8(Some(n)) => integer(i128::from(*n)),
        S::Int16(Some(n)) => integer(i128::from(*n)),
        S::Int32(Some(n)) => integer(i128::from(*n)),
        S::Int64(Some(n)) => integer(i128::from(*n)),
        S::UInt8(Some(n)) => integer(i128::from(*n)),
        S::UInt16(Some(n)) => integer(i128::from(*n)),
        S::UInt32(Some(n)) => integer(i128::from(*n)),
        S::UInt64(Some(n)) => integer(i128::from(*n)),
        S::Float16(Some(f)) => cast(text(f.to_string()), &DataType::Float32),
        S::Float32(Some(f)) => cast(text(float(f64::from(*f), f.to_string())), &kind),
        S::Float64(Some(f)) => cast(text(float(*f, f.to_string())), &kind),
        S::Utf8(Some(t)) | S::LargeUtf8(Some(t)) | S::Utf8View(Some(t)) => plain(text(t)),
        S::Binary(Some(b)) | S::LargeBinary(Some(b)) | S::BinaryView(Some(b)) | S::FixedSizeBinary(_, Some(b)) => {
            let hex: String = b.iter().map(|b| format!("{b:02x}")).collect();
            if kind == spate_engine::types::uuid::TYPE {
                return cast(text(hex), &kind);
            }
            cast(text(format!("\\x{hex}")), &DataType::Binary)
        }
        S::Dictionary(_, inner) => literal(inner),
        S::List(list) => elements(&list.value(0), &kind),
        S::LargeList(list) => elements(&list.value(0), &kind),
        S::FixedSizeList(list) => elements(&list.value(0), &kind),
        S::Struct(_) | S::Map(_) | S::Union(..) | S::RunEndEncoded(..) => {
            Err(SpateError::unsupported(format!("values of type {} are not supported", types::display(&kind)))
                .with_hint("give its text, and CAST it"))
        }
        // Dates, times, intervals and decimals, as they are written.
        other => {
            let array = other.to_array()?;
            let written = ArrayFormatter::try_new(array.as_ref(), &FormatOptions::default())?.value(0).to_string();
            let to = match &kind {
                DataType::Interval(_) | DataType::Duration(_) => {
                    return Err(SpateError::unsupported("values of type interval are not supported")
                        .with_hint("give its text, and CAST it"));
                }
                DataType::Date64 => DataType::Date32,
                other => other.clone(),
            };
            cast(text(written), &to)
        }
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn integer(n: i128) -> Result<Expr> {
    if n > i128::from(i64::MAX) || n == i128::from(i64::MIN) {
        // No literal of a signed number.
        let kind = if n > 0 { DataType::Decimal128(20, 0) } else { DataType::Int64 };
        return cast(text(n.to_string()), &kind);
    }
    let magnitude = Expr::Value(Value::Number(n.unsigned_abs().to_string(), false).into());
    Ok(match n < 0 {
        true => Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: Box::new(magnitude) },
        false => magnitude,
    })
}

/// The text of a float, as it is read again.
fn float(f: f64, shortest: String) -> String {
    match f {
        f if f.is_nan() => "NaN".into(),
        f if f == f64::INFINITY => "Infinity".into(),
        f if f == f64::NEG_INFINITY => "-Infinity".into(),
        _ => shortest,
    }
}

/// `CAST(ARRAY[…] AS type[])`.
fn elements(array: &arrow::array::ArrayRef, kind: &DataType) -> Result<Expr> {
    let mut all = Vec::with_capacity(array.len());
    for i in 0..array.len() {
        all.push(match array.as_string_opt::<i32>() {
            Some(texts) if texts.is_valid(i) => Expr::Value(text(texts.value(i)).into()),
            _ => literal(&ScalarValue::try_from_array(array, i)?)?,
        });
    }
    let mut out = cast(Value::Null, kind)?;
    if let Expr::Cast { expr, .. } = &mut out {
        **expr = Expr::Array(ast::Array { elem: all, named: true });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse_one;

    fn bound(sql: &str, values: &[ScalarValue]) -> Result<String> {
        let mut statement = parse_one(sql)?.statement;
        bind(&mut statement, values)?;
        match statement {
            Statement::Query(q) => Ok(q.to_string()),
            other => Ok(format!("{other:?}")),
        }
    }

    #[test]
    fn values_become_literals() {
        let one = |v: ScalarValue| bound("SELECT $1", &[v]).unwrap();
        assert_eq!(one(ScalarValue::from(-5i32)), "SELECT -5");
        assert_eq!(one(ScalarValue::from("it's")), "SELECT 'it''s'");
        assert_eq!(one(ScalarValue::from(true)), "SELECT true");
        assert_eq!(one(ScalarValue::Null), "SELECT NULL");
        assert_eq!(one(ScalarValue::Float64(Some(f64::NEG_INFINITY))), "SELECT CAST('-Infinity' AS DOUBLE PRECISION)");
        assert_eq!(one(ScalarValue::Int64(None)), "SELECT CAST(NULL AS BIGINT)");
        assert_eq!(one(ScalarValue::Int64(Some(i64::MIN))), "SELECT CAST('-9223372036854775808' AS BIGINT)");
        assert_eq!(one(ScalarValue::Binary(Some(vec![1, 255]))), "SELECT CAST('\\x01ff' AS BYTEA)");
        assert_eq!(one(ScalarValue::Decimal128(Some(-1250), 10, 2)), "SELECT CAST('-12.50' AS NUMERIC(10,2))");
        assert_eq!(one(ScalarValue::Date32(Some(0))), "SELECT CAST('1970-01-01' AS DATE)");
    }

    #[test]
    fn parameters_are_counted_and_must_have_values() {
        let mut s = parse_one("UPDATE t SET a = $2::int WHERE b IN (SELECT x FROM u WHERE x > $1) RETURNING a + $3")
            .unwrap()
            .statement;
        assert_eq!(of(&mut s).unwrap(), (3, BTreeMap::from([(2, DataType::Int32)])));
        let e = bound("SELECT $1 + $2", &[ScalarValue::from(1i64)]).unwrap_err();
        assert_eq!(e.message(), "there is no value for parameter $2");
        let e = bound("SELECT $1", &[ScalarValue::from(1i64), ScalarValue::from(1i64)]).unwrap_err();
        assert_eq!(e.message(), "2 values were given for 1 parameters");
        assert!(bound("SELECT $x", &[]).unwrap_err().message().contains("no parameter"));
    }
}
