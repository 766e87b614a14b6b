//! What of the order of rows decides a plan's result. Operators of ours break ties by the whole row and
//! aggregate sorted rows where that matters, so few do not care about nothing.

use datafusion_physical_expr::expressions::CastExpr;
use spate_engine::plan::{AggCall, AggFunc, ExprRef, OpSpec, Order, Phase, StreamNode};

use super::expr;

/// Notes in every node of a plan what decides its result.
pub fn note_order(node: &mut StreamNode) {
    let mut order = of_op(node);
    if let OpSpec::Recursive(r) = &mut node.op {
        note_order(&mut r.step);
        order = order.with(r.step.props.order);
    }
    for input in &mut node.inputs {
        note_order(input);
        order = order.with(input.props.order);
    }
    node.props.order = order;
}

/// What decides the result of one operator.
fn of_op(node: &StreamNode) -> Order {
    let free = Order::default();
    match &node.op {
        // Its first phase has said it.
        OpSpec::Aggregate(a) if matches!(a.phase, Phase::Final(_)) => free,
        OpSpec::Aggregate(a) => Order { digits: a.calls.iter().any(|c| rounds(c, node.inputs.first())), ..free },
        // What a row meets is what was there an epoch before.
        OpSpec::Lookup(_) => Order { epochs: true, ..free },
        OpSpec::Upsert(_) => Order { records: true, ..free },
        OpSpec::Source(_)
        | OpSpec::Scan(_)
        | OpSpec::Values(_)
        | OpSpec::Filter(_)
        // Rows come and go by the clock, whenever they came.
        | OpSpec::Temporal(_)
        | OpSpec::Project(_)
        | OpSpec::Unnest(_)
        | OpSpec::Repeat(_)
        | OpSpec::Expand(_)
        | OpSpec::Session(_)
        | OpSpec::Join(_)
        // The whole row breaks ties.
        | OpSpec::AsOf(_)
        | OpSpec::TopN(_)
        | OpSpec::GroupTopN(_)
        // Frames are aggregated in order, in which the whole row breaks ties.
        | OpSpec::Over(_)
        | OpSpec::Union
        | OpSpec::Distinct
        | OpSpec::Net
        | OpSpec::Close(_)
        | OpSpec::Recursive(_)
        | OpSpec::StepInput(_)
        | OpSpec::Exchange(_)
        | OpSpec::Materialize(_)
        | OpSpec::Sink(_) => free,
    }
}

/// Whether the sum of a call is rounded. Integers (also as floats) and decimals are summed exactly, and
/// so is what variances are made of.
fn rounds(c: &AggCall, input: Option<&StreamNode>) -> bool {
    let whole = c.arg.zip(input).is_some_and(|(column, input)| is_whole(input, column));
    matches!(c.func, AggFunc::Sum | AggFunc::Avg) && c.arg_type.is_floating() && !whole
}

/// Whether a column of floats was made of integers.
fn is_whole(node: &StreamNode, column: usize) -> bool {
    let Some(input) = node.inputs.first() else { return false };
    match &node.op {
        OpSpec::Exchange(_) | OpSpec::Filter(_) => is_whole(input, column),
        OpSpec::Project(p) => p.exprs.get(column).is_some_and(|e| match expr::column_index(e) {
            Some(c) => is_whole(input, c),
            None => is_cast_of_integer(e, input),
        }),
        _ => false,
    }
}

fn is_cast_of_integer(e: &ExprRef, input: &StreamNode) -> bool {
    let any: &dyn std::any::Any = e.as_ref();
    let cast = any.downcast_ref::<CastExpr>();
    cast.is_some_and(|c| c.expr().data_type(&input.schema).is_ok_and(|t| t.is_integer()))
}
