//! Guards: in a continuous query an expression that fails gives NULL for that row and is
//! counted, instead of stopping the query.
//!
//! Every operation that can fail (casts, integer and decimal arithmetic, most functions)
//! is put into a scalar function of our own that evaluates it. What cannot fail stays
//! native, so that the optimizer can see it. A constant that fails is an error at once:
//! it would be NULL in every row.

mod function;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, DFSchemaRef, Result, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr::{BinaryExpr, Cast, Like, ScalarFunction, TryCast};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, Volatility};
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use spate_engine::types::error::{ErrorKind, SpateError};

use function::{Guard, Kind};

/// Is told of failed expressions: the expression, how many rows failed, one error.
#[derive(Clone)]
pub struct ErrorCounter {
    report: Arc<Report>,
    fail: bool,
}

type Report = dyn Fn(&str, u64, &str) + Send + Sync;

impl ErrorCounter {
    /// A counter that calls `report(expression, rows, sample error)`, from any thread, at
    /// most once per expression and batch.
    pub fn new(report: impl Fn(&str, u64, &str) + Send + Sync + 'static) -> Self {
        Self { report: Arc::new(report), fail: false }
    }

    /// Makes a failed expression an error, once it is reported, instead of NULL.
    pub fn failing(self, fail: bool) -> Self {
        Self { fail, ..self }
    }

    /// A counter that counts nothing.
    pub fn ignore() -> Self {
        Self::new(|_, _, _| {})
    }

    /// Reports failed rows.
    ///
    /// # Errors
    /// With `failing(true)`: what failed.
    pub fn report(&self, expr: &str, rows: u64, sample: &str) -> Result<()> {
        (self.report)(expr, rows, sample);
        if self.fail {
            return Err(SpateError::new(ErrorKind::Evaluation, format!("{sample}, in {expr}")).into());
        }
        Ok(())
    }
}

impl fmt::Debug for ErrorCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErrorCounter")
    }
}

/// Functions that never fail on data of the right types, kept native.
const INFALLIBLE: &[&str] = &[
    crate::bind::READABLE,
    "btrim",
    "character_length",
    "concat",
    "concat_ws",
    "contains",
    "ends_with",
    "get_field",
    "lower",
    "ltrim",
    "make_array",
    "named_struct",
    "nullif",
    "octet_length",
    "rtrim",
    "starts_with",
    "struct",
    "upper",
    crate::rules::set_ops::COPIES,
    crate::rules::subquery::single::SINGLE_VALUE,
    crate::bind::textual::TEXT_OF,
    crate::bind::functions::TUMBLE_START,
    crate::bind::functions::HOP_STARTS,
    crate::bind::functions::CUMULATE_ENDS,
    crate::bind::functions::WINDOW_END,
];

/// Guards every expression of an analyzed plan, subqueries included. Names and types of
/// the plan's columns stay; a guarded column may be NULL.
pub fn guard(plan: LogicalPlan, errors: &ErrorCounter) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let schema: DFSchemaRef = Arc::new(merge_schema(&node.inputs()));
        let names = NamePreserver::new(&node);
        let rewritten = node.map_expressions(|e| {
            let name = names.save(&e);
            let done = guard_expr(e, &schema, errors)?;
            Ok(done.update_data(|e| name.restore(e)))
        })?;
        // Children may have become nullable, whether or not this node changed.
        let changed = rewritten.transformed;
        let node = rewritten.data.recompute_schema()?;
        Ok(if changed { Transformed::yes(node) } else { Transformed::new_transformed(node, true) })
    })?;
    Ok(done.data)
}

/// What a guard guards (`e` itself, if it is none).
pub(crate) fn guarded(e: &Expr) -> Expr {
    let Expr::ScalarFunction(f) = e else { return e.clone() };
    let Some(guard) = f.func.inner().downcast_ref::<Guard>() else { return e.clone() };
    let argument = |c: &Column| {
        let index: usize = c.name.strip_prefix('$')?.parse().ok()?;
        f.args.get(index).cloned()
    };
    let whole = guard.template().clone().transform_up(|t| {
        let replaced = match &t {
            Expr::Column(c) => argument(c),
            _ => None,
        };
        Ok(replaced.map_or_else(|| Transformed::no(t), |a| Transformed::new(a, true, TreeNodeRecursion::Continue)))
    });
    whole.map_or_else(|_| e.clone(), |t| t.data)
}

fn guard_expr(e: Expr, schema: &DFSchemaRef, errors: &ErrorCounter) -> Result<Transformed<Expr>> {
    e.transform_up(|e| guard_one(e, schema, errors))
}

fn guard_one(e: Expr, schema: &DFSchemaRef, errors: &ErrorCounter) -> Result<Transformed<Expr>> {
    match e {
        Expr::Cast(cast) => {
            let from = cast.expr.get_type(schema)?;
            if cast_cannot_fail(&from, cast.field.data_type()) {
                return Ok(Transformed::no(Expr::Cast(cast)));
            }
            if matches!(cast.expr.as_ref(), Expr::Literal(..)) {
                return fold(Expr::Cast(cast), schema);
            }
            let whole = Expr::Cast(cast.clone());
            let mut parts = Parts::new(schema);
            let Cast { expr, field } = cast;
            let template = Expr::TryCast(TryCast { expr: Box::new(parts.take(*expr)?), field });
            parts.guard(whole, template, Kind::Cast, errors)
        }
        Expr::BinaryExpr(b) => {
            let (left, right) = (b.left.get_type(schema)?, b.right.get_type(schema)?);
            let Some(kind) = binary_can_fail(b.op, &left, &right) else {
                return Ok(Transformed::no(Expr::BinaryExpr(b)));
            };
            if matches!(kind, Kind::Divide { .. }) && left.is_integer() && harmless_divisor(&b.right) {
                return Ok(Transformed::no(Expr::BinaryExpr(b)));
            }
            let whole = Expr::BinaryExpr(b.clone());
            let mut parts = Parts::new(schema);
            let BinaryExpr { left, op, right } = b;
            let template = Expr::BinaryExpr(BinaryExpr {
                left: Box::new(parts.take(*left)?),
                op,
                right: Box::new(parts.take(*right)?),
            });
            let kind = match kind {
                Kind::Divide { .. } => Kind::Divide { divisor: parts.last_argument(&template) },
                other => other,
            };
            parts.guard(whole, template, kind, errors)
        }
        // A constant pattern of LIKE cannot fail.
        Expr::Like(l) if !matches!(l.pattern.as_ref(), Expr::Literal(..)) => {
            let whole = Expr::Like(l.clone());
            let mut parts = Parts::new(schema);
            let template = Expr::Like(parts.like(l)?);
            parts.guard(whole, template, Kind::Other, errors)
        }
        Expr::SimilarTo(l) => {
            let whole = Expr::SimilarTo(l.clone());
            let mut parts = Parts::new(schema);
            let template = Expr::SimilarTo(parts.like(l)?);
            parts.guard(whole, template, Kind::Other, errors)
        }
        Expr::ScalarFunction(f) => guard_function(f, schema, errors),
        other => Ok(Transformed::no(other)),
    }
}

fn guard_function(f: ScalarFunction, schema: &DFSchemaRef, errors: &ErrorCounter) -> Result<Transformed<Expr>> {
    let is_guard = f.func.inner().is::<Guard>();
    let infallible = |name| {
        INFALLIBLE.contains(&name)
            || crate::bind::json::INFALLIBLE.contains(&name)
            || super::nested::NAMES.contains(&name)
            || crate::bind::any::is_any(name)
    };
    if is_guard || infallible(f.func.name()) {
        return Ok(Transformed::no(Expr::ScalarFunction(f)));
    }
    // Some functions exist only as what they simplify to (arrow_cast, coalesce): guard that.
    let context = SimplifyContext::builder().with_schema(Arc::clone(schema)).build();
    let ScalarFunction { func, args } = f;
    let args = match func.simplify(args, &context)? {
        ExprSimplifyResult::Simplified(simpler) => {
            let done = guard_expr(simpler, schema, errors)?;
            return Ok(Transformed::yes(done.data));
        }
        ExprSimplifyResult::Original(args) => args,
    };
    let whole = Expr::ScalarFunction(ScalarFunction { func: Arc::clone(&func), args: args.clone() });
    // Arguments that are evaluated only when needed must stay with the function.
    if func.conditional_arguments(&args).is_some() || func.signature().volatility != Volatility::Immutable {
        return Ok(Transformed::no(whole));
    }
    let mut parts = Parts::new(schema);
    let args = args.into_iter().map(|a| parts.take(a)).collect::<Result<Vec<_>>>()?;
    let template = Expr::ScalarFunction(ScalarFunction { func, args });
    parts.guard(whole, template, Kind::Other, errors)
}

/// An operation taken apart: constants stay in the template, all else becomes arguments.
struct Parts<'a> {
    schema: &'a DFSchemaRef,
    args: Vec<Expr>,
    fields: Vec<Field>,
}

impl<'a> Parts<'a> {
    fn new(schema: &'a DFSchemaRef) -> Self {
        Self { schema, args: Vec::new(), fields: Vec::new() }
    }

    fn take(&mut self, e: Expr) -> Result<Expr> {
        if matches!(e, Expr::Literal(..)) {
            return Ok(e);
        }
        let name = format!("${}", self.args.len());
        let (_, field) = e.to_field(self.schema)?;
        self.fields.push(field.as_ref().clone().with_name(&name).with_nullable(true));
        self.args.push(e);
        Ok(Expr::Column(Column::new_unqualified(name)))
    }

    fn like(&mut self, l: Like) -> Result<Like> {
        let Like { negated, expr, pattern, escape_char, case_insensitive } = l;
        let (expr, pattern) = (self.take(*expr)?, self.take(*pattern)?);
        Ok(Like { negated, expr: Box::new(expr), pattern: Box::new(pattern), escape_char, case_insensitive })
    }

    /// Which argument the right side of a binary template is, unless it is a constant.
    fn last_argument(&self, template: &Expr) -> Option<usize> {
        match template {
            Expr::BinaryExpr(b) if matches!(b.right.as_ref(), Expr::Column(_)) => self.args.len().checked_sub(1),
            _ => None,
        }
    }

    fn guard(self, whole: Expr, template: Expr, kind: Kind, errors: &ErrorCounter) -> Result<Transformed<Expr>> {
        if self.args.is_empty() {
            return fold(whole, self.schema);
        }
        let return_type = whole.get_type(self.schema)?;
        let schema: SchemaRef = Arc::new(Schema::new(self.fields));
        let physical = physical(&template, &schema)?;
        let shown = whole.to_string();
        let udf = Guard::new(template, kind, schema, return_type, physical, shown, errors.clone());
        Ok(Transformed::yes(ScalarUDF::new_from_impl(udf).call(self.args)))
    }
}

/// Evaluates an operation over constants; what fails is an error in the query.
fn fold(e: Expr, schema: &DFSchemaRef) -> Result<Transformed<Expr>> {
    let empty: SchemaRef = Arc::new(Schema::empty());
    let failed = |error: &dyn fmt::Display| {
        SpateError::new(ErrorKind::Evaluation, format!("{error}"))
            .with_hint(format!("the constant expression {e} can never be evaluated"))
    };
    let physical = physical(&e, &empty)?;
    let batch = RecordBatch::try_new_with_options(
        empty,
        vec![],
        &arrow::array::RecordBatchOptions::new().with_row_count(Some(1)),
    )?;
    let value = physical
        .evaluate(&batch)
        .and_then(|v| match v {
            ColumnarValue::Scalar(s) => Ok(s),
            ColumnarValue::Array(a) => ScalarValue::try_from_array(&a, 0),
        })
        .map_err(|e| {
            let inner = crate::bind::bind_error(e);
            failed(&inner.message())
        })?;
    if value.data_type() != e.get_type(schema)? {
        return Ok(Transformed::no(e));
    }
    Ok(Transformed::yes(Expr::Literal(value, None)))
}

fn physical(e: &Expr, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    let df = DFSchema::try_from(Arc::clone(schema))?;
    create_physical_expr(e, &df, &ExecutionProps::new(), &PhysicalPlanningContext::default())
}

/// How a binary operation can fail, if it can.
fn binary_can_fail(op: Operator, left: &DataType, right: &DataType) -> Option<Kind> {
    let machine = |t: &DataType| t.is_integer() || t.is_floating() || *t == DataType::Null;
    match op {
        Operator::Divide | Operator::Modulo => {
            if left.is_floating() && right.is_floating() {
                None
            } else if right.is_integer() || right.is_decimal() {
                Some(Kind::Divide { divisor: None })
            } else {
                Some(Kind::Other)
            }
        }
        // Integers wrap and floats saturate; decimals, dates and intervals overflow.
        Operator::Plus | Operator::Minus | Operator::Multiply => {
            if machine(left) && machine(right) {
                None
            } else {
                Some(Kind::Other)
            }
        }
        Operator::RegexMatch | Operator::RegexIMatch | Operator::RegexNotMatch | Operator::RegexNotIMatch => {
            Some(Kind::Other)
        }
        // Comparisons, logic, bits and text concatenation cannot.
        Operator::Eq
        | Operator::NotEq
        | Operator::Lt
        | Operator::LtEq
        | Operator::Gt
        | Operator::GtEq
        | Operator::And
        | Operator::Or
        | Operator::IsDistinctFrom
        | Operator::IsNotDistinctFrom
        | Operator::BitwiseAnd
        | Operator::BitwiseOr
        | Operator::BitwiseXor
        | Operator::BitwiseShiftLeft
        | Operator::BitwiseShiftRight
        | Operator::LikeMatch
        | Operator::ILikeMatch
        | Operator::NotLikeMatch
        | Operator::NotILikeMatch
        | Operator::StringConcat => None,
        _ => Some(Kind::Other),
    }
}

/// Whether an integer division by the constant `e` cannot fail: it is neither 0 nor −1
/// (by which the least integer cannot be divided).
fn harmless_divisor(e: &Expr) -> bool {
    let Expr::Literal(value, _) = e else {
        return false;
    };
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(Some(v))) => v != 0 && v != -1,
        _ => false,
    }
}

/// Whether a cast succeeds for every value.
fn cast_cannot_fail(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    let text = |t: &T| matches!(t, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    if from == to || *from == T::Null {
        return true;
    }
    match (from, to) {
        (f, t) if text(t) => text(f) || f.is_integer() || f.is_floating() || f.is_decimal() || *f == T::Boolean,
        (T::Boolean, t) => t.is_integer() || t.is_floating(),
        (f, T::Float64) => f.is_integer() || f.is_decimal() || matches!(f, T::Float16 | T::Float32),
        (f, T::Float32) => f.is_integer() || *f == T::Float16,
        (f, t) if f.is_integer() && t.is_integer() => widens(f, t),
        (f, T::Decimal128(p, s) | T::Decimal256(p, s)) if f.is_integer() => i16::from(*p) - i16::from(*s) >= digits(f),
        (T::Decimal128(p1, s1), T::Decimal128(p2, s2) | T::Decimal256(p2, s2)) => {
            s2 >= s1 && i16::from(*p2) - i16::from(*s2) >= i16::from(*p1) - i16::from(*s1)
        }
        (T::Timestamp(a, tz1), T::Timestamp(b, tz2)) => tz1 == tz2 && unit_rank(a) >= unit_rank(b),
        _ => false,
    }
}

fn unit_rank(u: &TimeUnit) -> u8 {
    match u {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

fn bits(t: &DataType) -> u8 {
    match t {
        DataType::Int8 | DataType::UInt8 => 8,
        DataType::Int16 | DataType::UInt16 => 16,
        DataType::Int32 | DataType::UInt32 => 32,
        _ => 64,
    }
}

fn widens(from: &DataType, to: &DataType) -> bool {
    match (from.is_signed_integer(), to.is_signed_integer()) {
        (a, b) if a == b => bits(to) >= bits(from),
        (false, true) => bits(to) > bits(from),
        _ => false,
    }
}

/// Decimal digits that hold every value of an integer type.
fn digits(t: &DataType) -> i16 {
    match bits(t) {
        8 => 3,
        16 => 5,
        32 => 10,
        _ => 20,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
