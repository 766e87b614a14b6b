//! GROUP BY: keys and arguments become columns first, then one Aggregate over them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan};
use spate_engine::plan::{
    AggCall, AggFunc, AggregateSpec, Distribution, ExprRef, OpSpec, OrderBy, Phase, ProjectSpec, Properties, RowsCall,
    StreamNode, WatermarkColumn, WatermarkKind,
};
use spate_engine::types::error::{ErrorKind, Result, SpateError};
use spate_engine::types::moments::Moment;

use super::{Lowered, Lowerer, close, expand, expr, motion, project, stream_schema, unaliased};
use crate::rules::aggregate::moments::Moments;
use crate::rules::aggregate::sorted::SortedAggregate;

impl Lowerer {
    pub(super) fn aggregate(&self, a: &Aggregate, on_close: bool) -> Result<Lowered> {
        let input = if on_close { self.settled(&a.input)? } else { self.node(&a.input, false)? }.node;
        let schema = stream_schema(&LogicalPlan::Aggregate(a.clone()));
        let mut columns = Columns { aggregate: a, exprs: Vec::new(), watermarks: Vec::new() };
        let sets = expand::sets_of(&a.group_expr)?;
        let grouped: Vec<&Expr> = match &sets {
            Some(sets) => sets.exprs.clone(),
            None => a.group_expr.iter().collect(),
        };
        let mut group = Vec::with_capacity(grouped.len());
        for e in grouped {
            group.push(columns.place(e, &input)?);
        }
        let keys = schema.fields().len() - a.aggr_expr.len();
        let mut calls = Vec::with_capacity(a.aggr_expr.len());
        for (i, e) in a.aggr_expr.iter().enumerate() {
            let Expr::AggregateFunction(f) = unaliased(e) else {
                return Err(refuse(&format!("the aggregate expression {}", e.human_display())));
            };
            let result_type = schema.field(keys + i).data_type().clone();
            let inner = f.func.inner();
            calls.push(match (inner.downcast_ref::<SortedAggregate>(), inner.downcast_ref::<Moments>()) {
                (Some(sorted), _) => columns.sorted(f, sorted, result_type, &input)?,
                (None, Some(moments)) => columns.moments(f, moments.moment(), &input)?,
                (None, None) => columns.call(f, result_type, &input)?,
            });
        }
        let mut input = columns.apply(input, &mut group, &mut calls, self.anyhow())?;
        let mut always = Vec::new();
        if let Some(sets) = sets {
            always = sets.empty();
            input = expand::node(input, &mut group, sets.sets, &schema)?;
        }

        let append_only_input = input.props.append_only;
        let motion = motion::aggregated(&input, &group, &mut calls);
        let window = if append_only_input { window_of(&group, &input.props) } else { None };
        if on_close && window.is_none() {
            return Err(SpateError::unsupported(
                "EMIT ON WINDOW CLOSE needs a GROUP BY column that the watermark closes",
            )
            .with_hint("group by window_start or window_end of TUMBLE(…) or HOP(…) over a source with WATERMARK FOR"));
        }
        // Each task sums up its own rows where all of them would go to one task.
        let split = group.is_empty() && input.props.distribution != Distribution::Single;
        let mut phase = Phase::Whole;
        if split && calls.iter().all(|c| is_sum(c, append_only_input)) {
            phase = Phase::Final(Arc::clone(&input.schema));
            input = partial(input, &calls, append_only_input, self.anyhow());
        }
        let needed = if group.is_empty() { Distribution::Single } else { Distribution::Hash(group.clone()) };
        let input = self.require(input, needed);
        let keys: Vec<usize> = (0..group.len()).collect();
        let mut watermarks: Vec<WatermarkColumn> = group
            .iter()
            .enumerate()
            .filter_map(|(column, from)| {
                let w = input.props.watermarks.iter().find(|w| w.column == *from)?;
                Some(WatermarkColumn { column, kind: w.kind })
            })
            .filter(|_| append_only_input)
            .collect();
        if let Some(w) = window.filter(|_| on_close) {
            close::keep(&mut watermarks, w, &input, &group);
        }
        // Groups that stay and are nothing but their keys.
        let append_only = on_close || motion.as_ref().is_some_and(|m| motion::all_fixed(m, 0..m.len()));
        let props = Properties {
            append_only,
            stream_key: Some(keys.clone()),
            watermarks,
            distribution: match input.props.distribution {
                Distribution::Single => Distribution::Single,
                _ => Distribution::Hash(keys),
            },
            motion: motion.filter(|_| !append_only),
            ..Properties::default()
        };
        let spec = AggregateSpec { group, calls, append_only_input, window, emit_on_close: on_close, always, phase };
        Ok(StreamNode { op: OpSpec::Aggregate(spec), schema, props, inputs: vec![input] }.into())
    }
}

/// Whether a call can be summed up in parts: it needs neither sorted nor distinct rows.
fn is_sum(c: &AggCall, append_only: bool) -> bool {
    let extreme = matches!(c.func, AggFunc::Min | AggFunc::Max);
    let idempotent = extreme || matches!(c.func, AggFunc::BoolAnd | AggFunc::BoolOr | AggFunc::BitAnd | AggFunc::BitOr);
    c.rows.is_none() && (!c.distinct || idempotent) && (!extreme || append_only)
}

/// The first phase of a GROUP BY without columns: a row of sums per task and epoch.
fn partial(input: StreamNode, calls: &[AggCall], append_only_input: bool, anyhow: Distribution) -> StreamNode {
    let props = Properties { append_only: true, distribution: anyhow, ..Properties::default() };
    let spec = AggregateSpec {
        group: vec![],
        calls: calls.to_vec(),
        append_only_input,
        window: None,
        emit_on_close: false,
        always: vec![],
        phase: Phase::Partial,
    };
    let schema = Arc::new(Schema::new(vec![Field::new("sums", DataType::Binary, true)]));
    StreamNode { op: OpSpec::Aggregate(spec), schema, props, inputs: vec![input] }
}

fn refuse(what: &str) -> SpateError {
    SpateError::unsupported(format!("{what} is not supported in a continuous query yet"))
}

/// The group column whose windows end the groups, counted among the outputs (which start with the
/// keys).
fn window_of(group: &[usize], props: &Properties) -> Option<WatermarkColumn> {
    let w = close::window_of(group, props)?;
    Some(WatermarkColumn { column: group.iter().position(|g| *g == w.column)?, kind: w.kind })
}

/// The columns that an aggregate reads: input columns, or expressions to compute first.
struct Columns<'a> {
    aggregate: &'a Aggregate,
    exprs: Vec<&'a Expr>,
    watermarks: Vec<(usize, WatermarkKind)>,
}

impl<'a> Columns<'a> {
    /// The place of `e` among the computed columns.
    fn place(&mut self, e: &'a Expr, input: &StreamNode) -> Result<usize> {
        let e = unaliased(e);
        if let Some(at) = self.exprs.iter().position(|x| *x == e) {
            return Ok(at);
        }
        let at = self.exprs.len();
        if let Some(kind) = expr::watermark_of(e, self.aggregate.input.schema(), &input.props) {
            self.watermarks.push((at, kind));
        }
        self.exprs.push(e);
        Ok(at)
    }

    fn call(&mut self, f: &'a AggregateFunction, result_type: DataType, input: &StreamNode) -> Result<AggCall> {
        let name = f.func.name();
        let func = match name {
            "count" => AggFunc::Count,
            "sum" => AggFunc::Sum,
            "avg" => AggFunc::Avg,
            "min" => AggFunc::Min,
            "max" => AggFunc::Max,
            "bool_and" => AggFunc::BoolAnd,
            "bool_or" => AggFunc::BoolOr,
            "bit_and" => AggFunc::BitAnd,
            "bit_or" => AggFunc::BitOr,
            "bit_xor" => AggFunc::BitXor,
            _ => return Err(refuse(&format!("aggregate function {name}"))),
        };
        let params = &f.params;
        if params.null_treatment.is_some() {
            return Err(refuse(&format!("IGNORE or RESPECT NULLS in {name}")));
        }
        let [arg] = params.args.as_slice() else {
            return Err(refuse(&format!("{name} of {} arguments", params.args.len())));
        };
        let schema = self.aggregate.input.schema();
        let arg_type = arg.get_type(schema).map_err(crate::bind::bind_error)?;
        check_types(func, &arg_type, &result_type)?;
        // count(*) comes as the count of a constant.
        let every_row = func == AggFunc::Count
            && !params.distinct
            && matches!(unaliased(arg), Expr::Literal(value, _) if !value.is_null());
        let arg = if every_row { None } else { Some(self.place(arg, input)?) };
        let filter = params.filter.as_deref().map(|f| self.place(f, input)).transpose()?;
        Ok(AggCall {
            func,
            arg,
            other: None,
            distinct: params.distinct,
            filter,
            outward: false,
            arg_type,
            result_type,
            rows: None,
        })
    }

    /// A function of exact sums.
    fn moments(&mut self, f: &'a AggregateFunction, moment: Moment, input: &StreamNode) -> Result<AggCall> {
        let [arg, more @ ..] = f.params.args.as_slice() else {
            return Err(SpateError::internal(format!("{moment} without an argument")));
        };
        let arg = Some(self.place(arg, input)?);
        let other = more.first().map(|e| self.place(e, input)).transpose()?;
        let filter = f.params.filter.as_deref().map(|f| self.place(f, input)).transpose()?;
        let float = DataType::Float64;
        Ok(AggCall {
            func: AggFunc::Moment(moment),
            arg,
            other,
            distinct: false,
            filter,
            outward: false,
            arg_type: float.clone(),
            result_type: float,
            rows: None,
        })
    }

    /// A function of sorted rows.
    fn sorted(
        &mut self,
        f: &'a AggregateFunction,
        function: &SortedAggregate,
        result_type: DataType,
        input: &StreamNode,
    ) -> Result<AggCall> {
        let mut sorted = Vec::with_capacity(f.params.args.len());
        for (arg, o) in f.params.args.iter().zip(function.options()) {
            let column = self.place(arg, input)?;
            sorted.push(OrderBy { column, descending: o.descending, nulls_first: o.nulls_first });
        }
        let filter = f.params.filter.as_deref().map(|f| self.place(f, input)).transpose()?;
        let rows = RowsCall {
            columns: sorted,
            not_null: function.not_null(),
            first: function.first(),
            function: Arc::new(function.clone()),
        };
        Ok(AggCall {
            func: AggFunc::Rows,
            arg: None,
            other: None,
            distinct: function.distinct(),
            filter,
            outward: false,
            arg_type: DataType::Null,
            result_type,
            rows: Some(rows),
        })
    }

    /// Computes the columns, unless all of them are there already, and makes `group` and
    /// `calls` speak of the columns as they lie then.
    fn apply(
        self,
        input: StreamNode,
        group: &mut [usize],
        calls: &mut [AggCall],
        anyhow: Distribution,
    ) -> Result<StreamNode> {
        let from = self.aggregate.input.schema();
        let mut plain = Vec::with_capacity(self.exprs.len());
        for e in &self.exprs {
            plain.push(expr::plain_column(e, from)?);
        }
        if let Some(places) = plain.iter().copied().collect::<Option<Vec<usize>>>() {
            let at = |i: usize| places.get(i).copied().unwrap_or(i);
            for g in group {
                *g = at(*g);
            }
            for c in calls {
                c.arg = c.arg.map(at);
                c.other = c.other.map(at);
                c.filter = c.filter.map(at);
                for o in c.rows.iter_mut().flat_map(|r| &mut r.columns) {
                    o.column = at(o.column);
                }
            }
            return Ok(input);
        }
        let exprs: Vec<ExprRef> = self.exprs.iter().map(|e| expr::physical(e, from)).collect::<Result<_>>()?;
        let mut fields = Vec::with_capacity(exprs.len());
        for e in &self.exprs {
            let (_, field) = e.to_field(from).map_err(crate::bind::bind_error)?;
            fields.push(Field::new(e.human_display().to_string(), field.data_type().clone(), true));
        }
        let mut props = project::through(&input.props, &plain, anyhow);
        let motions = input.props.motion.as_ref();
        props.motion = motions.map(|m| exprs.iter().map(|e| motion::of_expr(e, m)).collect());
        props.watermarks =
            self.watermarks.iter().map(|(column, kind)| WatermarkColumn { column: *column, kind: *kind }).collect();
        Ok(StreamNode {
            op: OpSpec::Project(ProjectSpec { exprs }),
            schema: Arc::new(Schema::new(fields)),
            props,
            inputs: vec![input],
        })
    }
}

fn check_types(func: AggFunc, arg: &DataType, result: &DataType) -> Result<()> {
    let ok = match func {
        AggFunc::Count => *result == DataType::Int64,
        AggFunc::Sum | AggFunc::Avg => arg.is_numeric() && result.is_numeric(),
        AggFunc::Min | AggFunc::Max => !arg.is_nested() && arg == result,
        AggFunc::BoolAnd | AggFunc::BoolOr => *arg == DataType::Boolean,
        AggFunc::BitAnd | AggFunc::BitOr | AggFunc::BitXor => arg.is_integer() && arg == result,
        AggFunc::Moment(_) | AggFunc::Rows => false,
    };
    if ok {
        return Ok(());
    }
    Err(SpateError::new(
        ErrorKind::Unsupported,
        format!("{func} of type {arg} is not supported in a continuous query yet"),
    ))
}
