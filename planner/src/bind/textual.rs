//! Types that are written as text of a certain form (`uuid`): a text literal takes the type of what
//! it meets, as in PostgreSQL, and casts from and to text are functions of our own.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DFSchemaRef, Result, ScalarValue, plan_err};
use datafusion_expr::expr::{Between, BinaryExpr, Case, Cast, InList, TryCast, WindowFunction};
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, WindowFrame, WindowFrameBound, WindowFrameUnits, cast,
};
use datafusion_sql::sqlparser::ast::BinaryOperator;
use spate_engine::types::error::{ErrorKind, SpateError};
use spate_engine::types::textual::{Way, convert, is_textual, way};

use crate::sql::types::display;

/// The cast of such a type to text, which cannot fail.
pub(crate) const TEXT_OF: &str = "text_of";

/// Gives the literals of operators their types.
#[derive(Debug)]
pub(super) struct TypedLiterals;

impl ExprPlanner for TypedLiterals {
    fn plan_binary_op(&self, e: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (Ok(left), Ok(right)) = (e.left.get_type(schema), e.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(e));
        };
        if let Some(e) = literal(&e, &left, &right) {
            return Ok(PlannerResult::Original(e));
        }
        if left == right || !(is_textual(&left) || is_textual(&right)) {
            return Ok(PlannerResult::Original(e));
        }
        let refused = || mismatch(&format!("{} {} {}", display(&left), e.op, display(&right)));
        if e.op == BinaryOperator::StringConcat && (left == DataType::Utf8 || right == DataType::Utf8) {
            let text = |e: Expr, t: &DataType| if is_textual(t) { cast(e, DataType::Utf8) } else { e };
            let (l, r) = (text(e.left, &left), text(e.right, &right));
            return Ok(PlannerResult::Original(RawBinaryExpr { left: l, op: e.op, right: r }));
        }
        let (l, r) = (met(&e.left, &left, &right), met(&e.right, &right, &left));
        match (l, r) {
            (Some(l), Some(r)) => Ok(PlannerResult::Original(RawBinaryExpr { left: l, op: e.op, right: r })),
            _ => Err(refused()),
        }
    }
}

/// Types other than the textual ones that a text literal takes: `l = '{1,2}'`, `b = 't'`,
/// `ts - earlier > '1 hour'`.
fn takes_text(t: &DataType) -> bool {
    matches!(t, DataType::List(_) | DataType::Boolean | DataType::Interval(_))
}

/// `e` with a literal that meets such a type as one.
fn literal(e: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<RawBinaryExpr> {
    use BinaryOperator as Op;
    let meets = matches!(
        e.op,
        Op::Eq | Op::NotEq | Op::Lt | Op::LtEq | Op::Gt | Op::GtEq | Op::AtArrow | Op::ArrowAt | Op::PGOverlap
    );
    let literal = |e: &Expr| matches!(e, Expr::Literal(ScalarValue::Utf8(Some(_)), _));
    let (l, r) = match (left, right) {
        (t, DataType::Utf8) if takes_text(t) && meets && literal(&e.right) => {
            (e.left.clone(), cast(e.right.clone(), left.clone()))
        }
        (DataType::Utf8, t) if takes_text(t) && meets && literal(&e.left) => {
            (cast(e.left.clone(), right.clone()), e.right.clone())
        }
        _ => return None,
    };
    Some(RawBinaryExpr { left: l, op: e.op.clone(), right: r })
}

/// `left op right` with the types of literals; `schema` has the columns, but for those from outside.
pub(crate) fn typed_comparison(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> Result<Expr> {
    let (mut left, mut right) = (left.clone(), right.clone());
    if let (Ok(l), Ok(r)) = (left.get_type(schema), right.get_type(schema))
        && l != r
        && (is_textual(&l) || is_textual(&r))
    {
        match (met(&left, &l, &r), met(&right, &r, &l)) {
            (Some(l), Some(r)) => (left, right) = (l, r),
            _ => return Err(mismatch(&format!("{} {op} {}", display(&l), display(&r)))),
        }
    }
    Ok(Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) }))
}

/// `e` of type `own` where it meets something of type `other`; `None` if it cannot.
fn met(e: &Expr, own: &DataType, other: &DataType) -> Option<Expr> {
    match e {
        _ if own == other || *own == DataType::Null || *other == DataType::Null => Some(e.clone()),
        Expr::Literal(ScalarValue::Utf8(_), _) if is_textual(other) => Some(cast(e.clone(), other.clone())),
        // The other one is a literal.
        _ if is_textual(own) && *other == DataType::Utf8 => Some(e.clone()),
        _ => None,
    }
}

fn mismatch(what: &str) -> datafusion_common::DataFusionError {
    SpateError::new(ErrorKind::Type, format!("operator does not exist: {what}"))
        .with_hint("cast one side to the type of the other")
        .into()
}

/// Gives literals in BETWEEN, IN lists and CASE their types; the plan is not coerced yet.
pub(super) fn typed_literals(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| map(node, &typed))?;
    recomputed(done)
}

/// The plan with the schemas that its expressions have now.
fn recomputed(plan: Transformed<LogicalPlan>) -> Result<LogicalPlan> {
    if !plan.transformed {
        return Ok(plan.data);
    }
    Ok(plan.data.transform_up_with_subqueries(|node| Ok(Transformed::yes(node.recompute_schema()?)))?.data)
}

/// Makes casts from and to these types calls of our functions; the plan is coerced.
pub(super) fn casts(plan: LogicalPlan) -> Result<LogicalPlan> {
    recomputed(plan.transform_up_with_subqueries(|node| map(node, &converted))?)
}

type Rewrite = dyn Fn(Expr, &DFSchemaRef) -> Result<Transformed<Expr>>;

/// Rewrites the expressions of a node and keeps their names.
fn map(node: LogicalPlan, rewrite: &Rewrite) -> Result<Transformed<LogicalPlan>> {
    let schema: DFSchemaRef = match node.inputs().is_empty() {
        true => Arc::clone(node.schema()),
        false => Arc::new(merge_schema(&node.inputs())),
    };
    crate::rules::map_named(node, |e| e.transform_up(|e| rewrite(e, &schema)))
}

fn typed(e: Expr, schema: &DFSchemaRef) -> Result<Transformed<Expr>> {
    let type_of = |e: &Expr| e.get_type(schema).unwrap_or(DataType::Null);
    // The type that literals among these take, if any is of such a type.
    let wanted = |all: &[&Expr]| all.iter().map(|e| type_of(e)).find(|t| is_textual(t) || takes_text(t));
    let one = |e: Expr, wanted: &DataType| {
        let own = type_of(&e);
        match &e {
            Expr::Literal(ScalarValue::Utf8(_), _) => Ok(cast(e, wanted.clone())),
            // Others are coerced, or refused, as they would be without a literal.
            _ if !is_textual(wanted) && !is_textual(&own) => Ok(e),
            _ if own == *wanted || own == DataType::Null => Ok(e),
            _ => Err(mismatch(&format!("{} = {}", display(wanted), display(&own)))),
        }
    };
    Ok(match e {
        Expr::Between(b) => match wanted(&[&b.expr, &b.low, &b.high]) {
            Some(t) => {
                let Between { expr, negated, low, high } = b;
                let (expr, low, high) = (one(*expr, &t)?, one(*low, &t)?, one(*high, &t)?);
                Transformed::yes(Expr::Between(Between {
                    expr: Box::new(expr),
                    negated,
                    low: Box::new(low),
                    high: Box::new(high),
                }))
            }
            None => Transformed::no(Expr::Between(b)),
        },
        Expr::InList(i) => match wanted(&i.list.iter().chain([i.expr.as_ref()]).collect::<Vec<_>>()) {
            Some(t) => {
                let list = i.list.into_iter().map(|e| one(e, &t)).collect::<Result<_>>()?;
                let expr = Box::new(one(*i.expr, &t)?);
                Transformed::yes(Expr::InList(InList { expr, list, negated: i.negated }))
            }
            None => Transformed::no(Expr::InList(i)),
        },
        Expr::Case(c) => case(c, &wanted, &one)?,
        Expr::WindowFunction(f) => window(f, &type_of)?,
        other => Transformed::no(other),
    })
}

fn case(
    mut c: Case,
    wanted: &dyn Fn(&[&Expr]) -> Option<DataType>,
    one: &dyn Fn(Expr, &DataType) -> Result<Expr>,
) -> Result<Transformed<Expr>> {
    let results: Vec<&Expr> =
        c.when_then_expr.iter().map(|(_, then)| then.as_ref()).chain(c.else_expr.as_deref()).collect();
    let result = wanted(&results);
    let compared: Vec<&Expr> = match &c.expr {
        Some(e) => c.when_then_expr.iter().map(|(when, _)| when.as_ref()).chain([e.as_ref()]).collect(),
        None => vec![],
    };
    let operand = wanted(&compared);
    for (when, then) in &mut c.when_then_expr {
        for (e, t) in [(when, &operand), (then, &result)] {
            if let Some(t) = t {
                **e = one(e.as_ref().clone(), t)?;
            }
        }
    }
    for (e, t) in [(&mut c.expr, &operand), (&mut c.else_expr, &result)] {
        if let (Some(e), Some(t)) = (e, t) {
            **e = one(e.as_ref().clone(), t)?;
        }
    }
    let changed = operand.is_some() || result.is_some();
    Ok(if changed { Transformed::yes(Expr::Case(c)) } else { Transformed::no(Expr::Case(c)) })
}

/// DataFusion has no RANGE frames over types that it cannot add to. Without offsets they are those
/// of GROUPS.
fn window(mut f: Box<WindowFunction>, type_of: &dyn Fn(&Expr) -> DataType) -> Result<Transformed<Expr>> {
    let first = f.params.order_by.first().map(|s| type_of(&s.expr));
    if let Some(t @ (DataType::Map(..) | DataType::Struct(_))) = &first {
        let what = format!("ORDER BY of type {} in a window is not supported", display(t));
        return Err(SpateError::unsupported(what).into());
    }
    let Some(t) = first.filter(|t| is_textual(t) || matches!(t, DataType::Binary)) else {
        return Ok(Transformed::no(Expr::WindowFunction(f)));
    };
    let frame = &f.params.window_frame;
    if frame.units != WindowFrameUnits::Range {
        return Ok(Transformed::no(Expr::WindowFunction(f)));
    }
    for bound in [&frame.start_bound, &frame.end_bound] {
        if let WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) = bound
            && !by.is_null()
        {
            let what = format!("RANGE with an offset over ORDER BY of type {} is not supported", display(&t));
            return Err(SpateError::unsupported(what).into());
        }
    }
    let (start, end) = (frame.start_bound.clone(), frame.end_bound.clone());
    f.params.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Groups, start, end);
    Ok(Transformed::yes(Expr::WindowFunction(f)))
}

fn converted(e: Expr, schema: &DFSchemaRef) -> Result<Transformed<Expr>> {
    let (inner, to, safe) = match &e {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
        // It would give bytes of any kind a type that promises more.
        Expr::ScalarFunction(f)
            if f.func.name().contains("arrow_") && e.get_type(schema).is_ok_and(|t| is_textual(&t)) =>
        {
            let what = format!("{} to type {} is not supported", f.func.name(), display(&e.get_type(schema)?));
            return Err(SpateError::unsupported(what).with_hint("use CAST").into());
        }
        _ => return Ok(Transformed::no(e)),
    };
    let from = inner.get_type(schema)?;
    match way(&from, to) {
        Way::Native => Ok(Transformed::no(e)),
        Way::None => {
            Err(SpateError::new(ErrorKind::Type, format!("cannot cast type {} to {}", display(&from), display(to)))
                .into())
        }
        Way::Convert => {
            let name = match (is_textual(&from), display(to)) {
                (true, _) => TEXT_OF.to_owned(),
                (false, to) => format!("cast_to_{to}"),
            };
            let signature = Signature::any(1, Volatility::Immutable);
            let f = ScalarUDF::new_from_impl(Convert { name, to: to.clone(), safe, signature });
            Ok(Transformed::yes(f.call(vec![inner.as_ref().clone()])))
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Convert {
    name: String,
    to: DataType,
    safe: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Convert {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = self.safe || args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(Field::new(&self.name, self.to.clone(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.first() {
            Some(ColumnarValue::Array(a)) => Ok(ColumnarValue::Array(convert(a, &self.to, self.safe)?)),
            Some(ColumnarValue::Scalar(s)) => {
                let one = convert(&s.to_array()?, &self.to, self.safe)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?))
            }
            None => plan_err!("{} takes one argument", self.name),
        }
    }
}
