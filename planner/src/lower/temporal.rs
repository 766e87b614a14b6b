//! Temporal filters: conditions that compare with the epoch's time.

use std::sync::Arc;

use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, Filter, Join, JoinType, LogicalPlan, Operator};
use spate_engine::plan::{Distribution, FilterSpec, OpSpec, Properties, StreamNode, TemporalBound, TemporalSpec};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer, expr, motion};
use crate::bind::now::shift_of;

impl Lowerer {
    /// Lowers a filter whose conditions compare with the epoch's time, if it has such.
    pub(super) fn temporal(&self, f: &Filter, on_close: bool) -> Result<Option<Lowered>> {
        let from = f.input.schema();
        let (mut bounds, mut rest) = (Vec::new(), Vec::new());
        for e in split_conjunction(&f.predicate) {
            match comparison(e) {
                Some((value, op, shift)) => {
                    let expr = expr::physical(value, from)?;
                    let back = shift.checked_neg().ok_or_else(|| SpateError::invalid("an interval is too long"))?;
                    // value > now + shift holds while now < value - shift.
                    let (leave, shift_us) = match op {
                        Operator::Gt => (true, back),
                        Operator::GtEq => (true, back.saturating_add(1)),
                        Operator::Lt => (false, back.saturating_add(1)),
                        Operator::LtEq => (false, back),
                        _ => return Err(SpateError::internal("a temporal filter that compares otherwise")),
                    };
                    bounds.push(TemporalBound { expr, shift_us, leave });
                }
                None => rest.push(e.clone()),
            }
        }
        if bounds.is_empty() {
            return Ok(None);
        }
        if on_close || self.step.is_some() {
            let what = if on_close { "EMIT ON WINDOW CLOSE over" } else { "within WITH RECURSIVE," };
            return Err(SpateError::unsupported(format!("{what} a condition on now() is not supported")));
        }
        let mut input = self.node(&f.input, false)?.node;
        if let Some(rest) = conjunction(rest) {
            let predicate = expr::physical(&rest, from)?;
            let (schema, props) = (Arc::clone(&input.schema), motion::filtered(&input, &predicate));
            input = StreamNode { op: OpSpec::Filter(FilterSpec { predicate }), schema, props, inputs: vec![input] };
        }
        // What is taken back must come to the task that has it.
        if !input.props.append_only && input.props.distribution == Distribution::Any {
            let all = (0..input.schema.fields().len()).collect();
            let key = input.props.stream_key.clone().filter(|k| !k.is_empty()).unwrap_or(all);
            input = self.require(input, Distribution::Hash(key));
        }
        let props = Properties {
            append_only: input.props.append_only && !bounds.iter().any(|b| b.leave),
            stream_key: input.props.stream_key.clone(),
            // Rows come out later than they came in.
            watermarks: Vec::new(),
            distribution: input.props.distribution.clone(),
            ..Properties::default()
        };
        let schema = Arc::clone(&input.schema);
        let node = StreamNode { op: OpSpec::Temporal(TemporalSpec { bounds }), schema, props, inputs: vec![input] };
        Ok(Some(node.into()))
    }
}

impl Lowerer {
    /// An inner join into whose condition the optimizer has put comparisons with the epoch's
    /// time: they filter what the join gives.
    pub(super) fn timed_join(&self, j: &Join, on_close: bool) -> Result<Option<Lowered>> {
        let Some(condition) = j.filter.as_ref().filter(|_| j.join_type == JoinType::Inner) else { return Ok(None) };
        let (timed, plain): (Vec<&Expr>, Vec<&Expr>) =
            split_conjunction(condition).into_iter().partition(|e| comparison(e).is_some());
        let Some(timed) = conjunction(timed.into_iter().cloned()) else { return Ok(None) };
        let join = LogicalPlan::Join(Join { filter: conjunction(plain.into_iter().cloned()), ..j.clone() });
        let filter = Filter::try_new(timed, Arc::new(join)).map_err(crate::bind::bind_error)?;
        self.temporal(&filter, on_close)
    }
}

/// A comparison with the epoch's time and a shift, which stands on the right.
fn comparison(e: &Expr) -> Option<(&Expr, Operator, i64)> {
    let Expr::BinaryExpr(b) = e else { return None };
    match (shift_of(&b.left), shift_of(&b.right)) {
        (None, Some(shift)) => Some((&b.left, b.op, shift)),
        (Some(shift), None) => Some((&b.right, b.op.swap()?, shift)),
        _ => None,
    }
}
