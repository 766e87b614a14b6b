//! A float and a decimal meet as floats, as in PostgreSQL. DataFusion would make decimals of
//! both, which fails for infinities and for what is too large.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchemaRef, Result};
use datafusion_expr::expr::{Between, BinaryExpr, InList};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, cast};

/// Casts decimals that meet floats in comparisons and arithmetic, in the whole plan, which is not
/// coerced yet.
pub(crate) fn decimals_meet_floats(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let mut schema: DFSchemaRef = Arc::new(merge_schema(&node.inputs()));
        if node.inputs().is_empty() {
            schema = Arc::clone(node.schema());
        }
        let mut rewritten = super::map_named(node, |e| e.transform_up(|e| meet(e, &schema)))?;
        if let LogicalPlan::Join(j) = &mut rewritten.data {
            for (l, r) in &mut j.on {
                let (a, b) = (l.get_type(&schema), r.get_type(&schema));
                if let (Ok(a), Ok(b)) = (a, b)
                    && mixed([&a, &b])
                {
                    rewritten.transformed = true;
                    for (e, t) in [(l, a), (r, b)] {
                        *e = float_of(e.clone(), &t);
                    }
                }
            }
        }
        Ok(rewritten)
    })?;
    Ok(done.data)
}

fn mixed<'a>(types: impl IntoIterator<Item = &'a DataType>) -> bool {
    let (mut float, mut decimal) = (false, false);
    for t in types {
        float |= t.is_floating();
        decimal |= t.is_decimal();
    }
    float && decimal
}

fn float_of(e: Expr, t: &DataType) -> Expr {
    if t.is_decimal() { cast(e, DataType::Float64) } else { e }
}

/// Whether an expression is made of plain literals.
fn constant(e: &Expr) -> bool {
    match e {
        Expr::Literal(..) => true,
        Expr::Negative(e) => constant(e),
        Expr::BinaryExpr(b) => constant(&b.left) && constant(&b.right),
        _ => false,
    }
}

fn meet(e: Expr, schema: &DFSchemaRef) -> Result<Transformed<Expr>> {
    // An expression without a type yet (a parameter, an error to come) is left to the analyzer; so
    // are constants: `0.1` is written as a decimal, whatever type it is given, and meets one as one.
    let type_of = |e: &Expr| match constant(e) {
        true => DataType::Null,
        false => e.get_type(schema).unwrap_or(DataType::Null),
    };
    match e {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (l, r) = (type_of(&left), type_of(&right));
            if !mixed([&l, &r]) {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            }
            let (left, right) = (Box::new(float_of(*left, &l)), Box::new(float_of(*right, &r)));
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::Between(b) => {
            let types = [type_of(&b.expr), type_of(&b.low), type_of(&b.high)];
            if !mixed(&types) {
                return Ok(Transformed::no(Expr::Between(b)));
            }
            let Between { expr, negated, low, high } = b;
            let [e, l, h] = types;
            Ok(Transformed::yes(Expr::Between(Between {
                expr: Box::new(float_of(*expr, &e)),
                negated,
                low: Box::new(float_of(*low, &l)),
                high: Box::new(float_of(*high, &h)),
            })))
        }
        Expr::InList(i) => {
            let first = type_of(&i.expr);
            let types: Vec<DataType> = i.list.iter().map(type_of).collect();
            if !mixed(types.iter().chain([&first])) {
                return Ok(Transformed::no(Expr::InList(i)));
            }
            let InList { expr, list, negated } = i;
            let list = list.into_iter().zip(&types).map(|(e, t)| float_of(e, t)).collect();
            Ok(Transformed::yes(Expr::InList(InList { expr: Box::new(float_of(*expr, &first)), list, negated })))
        }
        other => Ok(Transformed::no(other)),
    }
}
