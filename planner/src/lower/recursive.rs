//! WITH RECURSIVE: the recursive term becomes a step within one operator. Relations that it
//! reads besides the recursive one are inputs of that operator, lowered like any other plan.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_expr::{JoinType, LogicalPlan, RecursiveQuery, TableScan};
use spate_engine::plan::{Distribution, JoinKind, OpSpec, Properties, RecursiveSpec, StreamNode};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer, construct, project, stream_schema};
use crate::bind::WorkTable;

/// What lowering a recursive term gathers.
pub(crate) struct StepScope {
    name: String,
    /// Tasks per fragment of what is not in the step.
    parallelism: usize,
    inputs: RefCell<Vec<StreamNode>>,
}

impl Lowerer {
    pub(super) fn recursive(&self, r: &RecursiveQuery) -> Result<Lowered> {
        if references(&r.recursive_term, &r.name)? > 1 {
            return Err(SpateError::unsupported(format!(
                "more than one reference to \"{}\" within its recursive term is not supported",
                r.name
            )));
        }
        let given = self.require(self.node(&r.static_term, false)?.node, Distribution::Single);
        let scope = Rc::new(StepScope {
            name: r.name.clone(),
            parallelism: self.parallelism,
            inputs: RefCell::new(vec![given]),
        });
        let inner = Lowerer { parallelism: 1, on_close: false, step: Some(Rc::clone(&scope)) };
        let step = inner.node(&r.recursive_term, false)?.node;
        let inputs = scope.inputs.take();
        let schema = stream_schema(&LogicalPlan::RecursiveQuery(r.clone()));
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let monotone = !fills_in(&step);
        let props = Properties {
            // What the step gives only grows, unless a left join fills in for what is not there yet.
            append_only: inputs.iter().all(|n| n.props.append_only) && monotone,
            stream_key: r.is_distinct.then_some(all),
            watermarks: Vec::new(),
            distribution: Distribution::Single,
            ..Properties::default()
        };
        let spec = RecursiveSpec { step: Box::new(step), distinct: r.is_distinct, monotone };
        Ok(StreamNode { op: OpSpec::Recursive(spec), schema, props, inputs }.into())
    }

    /// Within a recursive term: a relation that is not recursive is an input of the whole; of
    /// the others only those are let through that treat each row by itself.
    pub(super) fn step(&self, scope: &StepScope, plan: &LogicalPlan) -> Result<Option<Lowered>> {
        if references(plan, &scope.name)? == 0 {
            let outer = Lowerer { parallelism: scope.parallelism, on_close: false, step: None };
            let node = outer.require(outer.node(plan, false)?.node, Distribution::Single);
            let mut inputs = scope.inputs.borrow_mut();
            let leaf = leaf(inputs.len(), &node);
            inputs.push(node);
            return Ok(Some(leaf.into()));
        }
        match plan {
            LogicalPlan::TableScan(t) => work_table(t).map(Some),
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Unnest(_)
            | LogicalPlan::Union(_) => Ok(None),
            LogicalPlan::Join(j) => {
                let linear = match j.join_type {
                    JoinType::Inner => true,
                    JoinType::Left => references(&j.right, &scope.name)? == 0,
                    _ => false,
                };
                match linear {
                    true => Ok(None),
                    false => Err(refused("this kind of join")),
                }
            }
            other => Err(refused(&construct(other))),
        }
    }
}

fn refused(what: &str) -> SpateError {
    SpateError::unsupported(format!("{what} over the recursive relation within WITH RECURSIVE is not supported"))
}

fn leaf(input: usize, node: &StreamNode) -> StreamNode {
    let props = Properties { distribution: Distribution::Single, ..Properties::default() };
    StreamNode { op: OpSpec::StepInput(input), inputs: Vec::new(), schema: Arc::clone(&node.schema), props }
}

/// The rows found last.
fn work_table(t: &TableScan) -> Result<Lowered> {
    let fields = t.source.schema();
    let fields = fields.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect::<Vec<_>>();
    let node = StreamNode {
        op: OpSpec::StepInput(0),
        inputs: Vec::new(),
        schema: Arc::new(arrow::datatypes::Schema::new(fields)),
        props: Properties { distribution: Distribution::Single, ..Properties::default() },
    };
    match &t.projection {
        Some(kept) if kept.len() != node.schema.fields().len() || !kept.is_sorted() => {
            Ok(project::columns(node, kept)?.into())
        }
        _ => Ok(node.into()),
    }
}

/// How often a plan reads the recursive relation.
fn references(plan: &LogicalPlan, name: &str) -> Result<usize> {
    let mut count = 0;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(t) = node
            && WorkTable::of(t.source.as_ref()).is_some_and(|w| w.name() == name)
        {
            count += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(crate::bind::bind_error)?;
    Ok(count)
}

fn fills_in(node: &StreamNode) -> bool {
    matches!(&node.op, OpSpec::Join(j) if j.kind != JoinKind::Inner) || node.inputs.iter().any(fills_in)
}
