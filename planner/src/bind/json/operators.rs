//! The operators of `jsonb` while a query is planned: `->`, `->>`, `#>`, `#>>`, `@>`, `<@`, `?`, `?|`,
//! `?&`, `||`, `-`.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field};
use datafusion_common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr};
use datafusion_expr::{Expr, ExprSchemable, GetFieldAccess, cast};
use datafusion_sql::sqlparser::ast::BinaryOperator as Op;
use spate_engine::types::error::{ErrorKind, SpateError};
use spate_engine::types::jsonb;

use super::{Kind, call};
use crate::sql::types::display;

/// Makes these operators calls of our functions.
#[derive(Debug)]
pub(in crate::bind) struct JsonOperators;

impl ExprPlanner for JsonOperators {
    fn plan_binary_op(&self, e: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (Ok(left), Ok(right)) = (e.left.get_type(schema), e.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(e));
        };
        let (l, r) = (left == jsonb::TYPE, right == jsonb::TYPE);
        let kind = match e.op {
            Op::Arrow if l => Kind::Get,
            Op::LongArrow if l => Kind::GetText,
            Op::HashArrow if l => Kind::Path,
            Op::HashLongArrow if l => Kind::PathText,
            Op::AtArrow | Op::ArrowAt if l || r => Kind::Contains,
            Op::Question if l => Kind::Exists,
            Op::QuestionPipe if l => Kind::ExistsAny,
            Op::QuestionAnd if l => Kind::ExistsAll,
            Op::StringConcat if (l && (r || is_text(&e.right))) || (r && is_text(&e.left)) => Kind::Concat,
            Op::Minus if l => Kind::Delete,
            _ => return Ok(PlannerResult::Original(e)),
        };
        let refused = || mismatch(&left, &e.op, &right);
        let lists = matches!(kind, Kind::Path | Kind::PathText | Kind::ExistsAny | Kind::ExistsAll);
        let args = match (kind, &right) {
            (Kind::Contains | Kind::Concat, _) => {
                let (a, b) = (json(&e.left, l).ok_or_else(refused)?, json(&e.right, r).ok_or_else(refused)?);
                if e.op == Op::ArrowAt { vec![b, a] } else { vec![a, b] }
            }
            _ if lists => vec![e.left.clone(), list(&e.right, &right)?.ok_or_else(refused)?],
            (Kind::Get | Kind::GetText | Kind::Delete, t) if t.is_integer() => vec![e.left, e.right],
            (_, DataType::Utf8 | DataType::Null) => vec![e.left, e.right],
            _ => return Err(refused()),
        };
        Ok(PlannerResult::Planned(call(kind, args)?))
    }

    /// `j['a']` and `j[0]` are `j -> 'a'` and `j -> 0`.
    fn plan_field_access(&self, e: RawFieldAccessExpr, schema: &DFSchema) -> Result<PlannerResult<RawFieldAccessExpr>> {
        if !e.expr.get_type(schema).is_ok_and(|t| t == jsonb::TYPE) {
            return Ok(PlannerResult::Original(e));
        }
        let key = match e.field_access {
            GetFieldAccess::NamedStructField { name } => Expr::Literal(name, None),
            GetFieldAccess::ListIndex { key } => *key,
            GetFieldAccess::ListRange { .. } => {
                return Err(SpateError::unsupported("a range of a jsonb is not supported").into());
            }
        };
        Ok(PlannerResult::Planned(call(Kind::Get, vec![e.expr, key])?))
    }
}

fn is_text(e: &Expr) -> bool {
    matches!(e, Expr::Literal(ScalarValue::Utf8(_), _))
}

/// A side that is `jsonb`, or a literal that becomes one.
fn json(e: &Expr, is_json: bool) -> Option<Expr> {
    match e {
        _ if is_json => Some(e.clone()),
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _) => Some(cast(e.clone(), jsonb::TYPE)),
        _ => None,
    }
}

/// A list of texts, also written as `'{a,b}'`.
fn list(e: &Expr, t: &DataType) -> Result<Option<Expr>> {
    Ok(match (e, t) {
        (Expr::Literal(ScalarValue::Utf8(Some(text)), _), _) => {
            let items: ArrayRef = Arc::new(StringArray::from(items(text)?));
            let field = Arc::new(Field::new_list_field(DataType::Utf8, true));
            let offsets = arrow::buffer::OffsetBuffer::from_lengths([items.len()]);
            let one = arrow::array::ListArray::try_new(field, offsets, items, None)?;
            Some(Expr::Literal(ScalarValue::List(Arc::new(one)), None))
        }
        (_, DataType::List(f)) if matches!(f.data_type(), DataType::Utf8 | DataType::Null) => Some(e.clone()),
        (_, DataType::Null) => Some(e.clone()),
        _ => None,
    })
}

/// The items of an array of texts as PostgreSQL writes it: `{a,"b c",NULL}`.
fn items(text: &str) -> Result<Vec<Option<String>>> {
    let bad = || -> DataFusionError {
        SpateError::new(ErrorKind::Type, format!("malformed array literal: \"{text}\""))
            .with_hint("write a path as '{a,b,0}'")
            .into()
    };
    let inner = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(bad)?;
    let mut out = Vec::new();
    let mut rest = inner.chars().peekable();
    if inner.trim().is_empty() {
        return Ok(out);
    }
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        let mut item = String::new();
        if rest.next_if_eq(&'"').is_some() {
            loop {
                match rest.next().ok_or_else(bad)? {
                    '"' => break,
                    '\\' => item.push(rest.next().ok_or_else(bad)?),
                    c => item.push(c),
                }
            }
            while rest.next_if(|c| c.is_whitespace()).is_some() {}
            out.push(Some(item));
        } else {
            while let Some(c) = rest.next_if(|c| *c != ',') {
                match c {
                    '{' | '}' | '"' => return Err(bad()),
                    '\\' => item.push(rest.next().ok_or_else(bad)?),
                    c => item.push(c),
                }
            }
            let item = item.trim_end();
            if item.is_empty() {
                return Err(bad());
            }
            out.push(if item.eq_ignore_ascii_case("null") { None } else { Some(item.to_owned()) });
        }
        match rest.next() {
            None => return Ok(out),
            Some(',') => {}
            Some(_) => return Err(bad()),
        }
    }
}

fn mismatch(left: &DataType, op: &Op, right: &DataType) -> DataFusionError {
    SpateError::new(ErrorKind::Type, format!("operator does not exist: {} {op} {}", display(left), display(right)))
        .with_hint("cast one side to the type that the operator takes")
        .into()
}
