//! ORDER BY … LIMIT … OFFSET, in one task.

use std::sync::Arc;

use datafusion_expr::{FetchType, Limit, LogicalPlan, SkipType};
use spate_engine::plan::{Distribution, OpSpec, OrderBy, ProjectSpec, Properties, StreamNode, TopNSpec};
use spate_engine::types::error::{Result, SpateError};

use super::{Lowered, Lowerer, expr, motion, project, stream_schema};

impl Lowerer {
    pub(super) fn topn(&self, l: &Limit) -> Result<Lowered> {
        let constant = || SpateError::unsupported("LIMIT and OFFSET of a continuous query must be constants");
        let offset = match l.get_skip_type().map_err(crate::bind::bind_error)? {
            SkipType::Literal(n) => n,
            SkipType::UnsupportedExpr => return Err(constant()),
        };
        let limit = match l.get_fetch_type().map_err(crate::bind::bind_error)? {
            FetchType::Literal(n) => n,
            FetchType::UnsupportedExpr => return Err(constant()),
        };
        // Binding put a sort under every limit; the optimizer may have put a projection or an
        // alias between the two, which go on top.
        let sort = match l.input.as_ref() {
            LogicalPlan::Sort(sort) => sort,
            LogicalPlan::Projection(p) => {
                let limited = Arc::new(LogicalPlan::Limit(Limit { input: Arc::clone(&p.input), ..l.clone() }));
                let mut over = p.clone();
                over.input = limited;
                return self.project(&over, false);
            }
            LogicalPlan::SubqueryAlias(a) => {
                let mut limited = self.topn(&Limit { input: Arc::clone(&a.input), ..l.clone() })?;
                limited.node.schema = stream_schema(&l.input);
                return Ok(limited);
            }
            _ => return Err(SpateError::internal("a LIMIT lost its ORDER BY")),
        };
        let input = self.node(&sort.input, false)?.node;
        let from = sort.input.schema();
        let width = input.schema.fields().len();
        let mut order: Vec<OrderBy> = Vec::with_capacity(sort.expr.len());
        let mut computed = Vec::new();
        for s in &sort.expr {
            let column = match expr::plain_column(&s.expr, from)? {
                Some(c) => c,
                None => {
                    computed.push(expr::physical(&s.expr, from)?);
                    width + computed.len() - 1
                }
            };
            // A column that has ordered the rows already orders nothing more.
            if !order.iter().any(|o| o.column == column) {
                order.push(OrderBy { column, descending: !s.asc, nulls_first: s.nulls_first });
            }
        }
        // The whole row breaks ties, whatever the optimizer dropped.
        for column in 0..width {
            if !order.iter().any(|o| o.column == column) {
                order.push(OrderBy { column, descending: false, nulls_first: false });
            }
        }
        let extended = if computed.is_empty() { input } else { extend(input, computed)? };
        let extended = self.require(extended, Distribution::Single);
        let stream_key = match limit {
            Some(0 | 1) => Some(Vec::new()),
            _ => extended.props.stream_key.clone(),
        };
        let props = Properties { stream_key, distribution: Distribution::Single, ..Properties::default() };
        let top = StreamNode {
            op: OpSpec::TopN(TopNSpec { order, offset, limit }),
            schema: Arc::clone(&extended.schema),
            props,
            inputs: vec![extended],
        };
        if top.schema.fields().len() == width {
            return Ok(top.into());
        }
        Ok(project::columns(top, &(0..width).collect::<Vec<_>>())?.into())
    }
}

/// `input` with computed columns after its own.
pub(super) fn extend(input: StreamNode, computed: Vec<spate_engine::plan::ExprRef>) -> Result<StreamNode> {
    let mut fields: Vec<arrow::datatypes::Field> = input.schema.fields().iter().map(|f| f.as_ref().clone()).collect();
    let mut exprs: Vec<_> = fields.iter().enumerate().map(|(i, f)| expr::column(f.name(), i)).collect();
    let mut props = input.props.clone();
    for e in computed {
        if let Some(motion) = &mut props.motion {
            motion.push(motion::of_expr(&e, motion));
        }
        let field = e.return_field(&input.schema).map_err(crate::bind::bind_error)?;
        fields.push(arrow::datatypes::Field::new(e.to_string(), field.data_type().clone(), true));
        exprs.push(e);
    }
    Ok(StreamNode {
        op: OpSpec::Project(ProjectSpec { exprs }),
        schema: Arc::new(arrow::datatypes::Schema::new(fields)),
        props,
        inputs: vec![input],
    })
}
