//! Joins in which each left row looks something up on the right: `ASOF [LEFT] JOIN t
//! MATCH_CONDITION (…) ON …` the one row nearest in time, `[LEFT] JOIN t FOR SYSTEM_TIME AS OF
//! PROCTIME() ON …` what there is when the left row comes. Both are nodes of the bound plan with an
//! operator for streams. In batch ([`LookupJoin::in_batch`]) the first is made of window functions
//! and a join; the second is a plain join of what there is now.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use datafusion_common::{Column, DFSchema, DFSchemaRef, Result, ScalarValue, internal_err};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::logical_plan::builder::build_join_schema;
use datafusion_expr::utils::{find_valid_equijoin_key_pair, split_conjunction};
use datafusion_expr::{
    BinaryExpr, Expr, ExprFunctionExt, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, UserDefinedLogicalNodeCore,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, lit, when,
};
use datafusion_functions_aggregate::sum;
use spate_engine::types::error::SpateError;

use crate::lower::unaliased;

/// What a left row looks up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LookupKind {
    /// The row nearest in time.
    AsOf,
    /// The rows that there are when it comes.
    Current,
}

/// A join in which each left row looks something up on the right.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LookupJoin {
    /// What it looks up.
    pub kind: LookupKind,
    /// Whether rows that find nothing stay, with NULLs.
    pub outer: bool,
    /// The rows that look up.
    pub left: LogicalPlan,
    /// Where they look.
    pub right: LogicalPlan,
    /// Of an ASOF JOIN, how the times compare; else TRUE.
    pub condition: Expr,
    /// ON.
    pub on: Expr,
    schema: DFSchemaRef,
}

/// Left and right expressions that must be equal.
pub type Pairs = Vec<(Expr, Expr)>;

/// The times of an ASOF JOIN.
#[derive(Debug, Clone)]
pub struct Nearest {
    /// Time of the left row.
    pub left: Expr,
    /// Time of the right row.
    pub right: Expr,
    /// `left op right`.
    pub op: Operator,
}

impl LookupJoin {
    /// The node. Errors if its conditions are none that it can have.
    pub(super) fn try_new(
        kind: LookupKind,
        outer: bool,
        left: LogicalPlan,
        right: LogicalPlan,
        condition: Expr,
        on: Expr,
    ) -> Result<Self> {
        let join = if outer { JoinType::Left } else { JoinType::Inner };
        let schema = Arc::new(build_join_schema(left.schema(), right.schema(), &join)?);
        Ok(Self { kind, outer, left, right, condition, on, schema })
    }

    /// The pairs of keys of ON, and what else it demands.
    pub fn keys(&self) -> Result<(Pairs, Vec<Expr>)> {
        let (left, right) = (self.left.schema(), self.right.schema());
        let (mut pairs, mut rest) = (Vec::new(), Vec::new());
        // A rewritten condition keeps its name as an alias.
        for e in split_conjunction(unaliased(&self.on)).into_iter().map(unaliased) {
            match e {
                Expr::Literal(ScalarValue::Boolean(Some(true)), _) => continue,
                Expr::BinaryExpr(BinaryExpr { left: a, op: Operator::Eq, right: b }) => {
                    if let Some(pair) = find_valid_equijoin_key_pair(a, b, left, right)? {
                        pairs.push(pair);
                        continue;
                    }
                }
                _ => {}
            }
            rest.push(e.clone());
        }
        Ok((pairs, rest))
    }

    /// The times that an ASOF JOIN compares.
    pub fn nearest(&self) -> Result<Nearest> {
        let of = |e: &Expr, schema: &DFSchema| {
            let columns = e.column_refs();
            !columns.is_empty() && columns.iter().all(|c| schema.has_column(c))
        };
        if let Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) = unaliased(&self.condition)
            && matches!(op, Operator::GtEq | Operator::Gt | Operator::LtEq | Operator::Lt)
        {
            let (left, right) = (self.left.schema(), self.right.schema());
            if of(a, left) && of(b, right) {
                return Ok(Nearest { left: a.as_ref().clone(), right: b.as_ref().clone(), op: *op });
            }
            if let Some(op) = op.swap().filter(|_| of(a, right) && of(b, left)) {
                return Ok(Nearest { left: b.as_ref().clone(), right: a.as_ref().clone(), op });
            }
        }
        Err(SpateError::unsupported("MATCH_CONDITION that does not compare a time of each side is not supported")
            .with_hint("write MATCH_CONDITION (a.ts >= b.ts), or with >, <= or <")
            .into())
    }

    /// Errors if the conditions are none that it can have.
    pub(super) fn check(&self) -> Result<()> {
        let (pairs, rest) = self.keys()?;
        match self.kind {
            LookupKind::AsOf => {
                self.nearest()?;
                if let Some(e) = rest.first() {
                    let text =
                        format!("ASOF JOIN ON another condition than equality of both sides is not supported: {e}");
                    return Err(SpateError::unsupported(text).into());
                }
            }
            LookupKind::Current if pairs.is_empty() => {
                let text = "FOR SYSTEM_TIME AS OF PROCTIME() without an equality of both sides in ON is not supported";
                return Err(SpateError::unsupported(text).into());
            }
            LookupKind::Current => {}
        }
        Ok(())
    }

    /// The same in nodes that DataFusion can run.
    pub(super) fn in_batch(&self) -> Result<LogicalPlan> {
        let join = if self.outer { JoinType::Left } else { JoinType::Inner };
        let left = LogicalPlanBuilder::from(self.left.clone());
        match self.kind {
            LookupKind::Current => left.join_on(self.right.clone(), join, [self.on.clone()])?.build(),
            LookupKind::AsOf => self.numbered(join),
        }
    }

    /// ASOF JOIN: the rows of both sides in one order, in which the nearest right row is the last
    /// before a left one. Numbered in it, right rows have their numbers, and left rows those of the
    /// right rows that they match.
    fn numbered(&self, join: JoinType) -> Result<LogicalPlan> {
        let (pairs, _) = self.keys()?;
        let times = self.nearest()?;
        let backward = matches!(times.op, Operator::GtEq | Operator::Gt);
        let strict = matches!(times.op, Operator::Gt | Operator::Lt);
        let (ours, theirs) = (self.left.schema(), self.right.schema());
        let column = |name: String| Expr::Column(Column::new_unqualified(name));
        let null = |t: &arrow::datatypes::DataType| {
            Ok::<_, datafusion_common::DataFusionError>(lit(ScalarValue::try_new_null(t)?))
        };
        // Of one time, what comes first: a right row, if left rows of its time may match it.
        let (left_place, right_place) = if strict { (0i64, 1i64) } else { (1, 0) };
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (i, (l, r)) in pairs.iter().enumerate() {
            left.push(l.clone().alias(format!("__k{i}")));
            right.push(r.clone().alias(format!("__k{i}")));
        }
        left.extend([times.left.clone().alias("__t"), lit(left_place).alias("__side")]);
        right.extend([times.right.clone().alias("__t"), lit(right_place).alias("__side")]);
        for (i, (c, f)) in ours.columns().into_iter().zip(ours.fields()).enumerate() {
            left.push(Expr::Column(c).alias(format!("__l{i}")));
            right.push(null(f.data_type())?.alias(format!("__l{i}")));
        }
        for (i, (c, f)) in theirs.columns().into_iter().zip(theirs.fields()).enumerate() {
            left.push(null(f.data_type())?.alias(format!("__r{i}")));
            right.push(Expr::Column(c).alias(format!("__r{i}")));
        }
        let keys: Vec<Expr> = (0..pairs.len()).map(|i| column(format!("__k{i}"))).collect();
        let mut known = LogicalPlanBuilder::from(self.right.clone()).project(right)?;
        for e in keys.iter().cloned().chain([column("__t".into())]) {
            known = known.filter(e.is_not_null())?;
        }
        let all = LogicalPlanBuilder::from(self.left.clone()).project(left)?.union(known.build()?)?;
        let mut order = vec![column("__t".into()).sort(backward, true), column("__side".into()).sort(true, true)];
        order.extend((0..theirs.fields().len()).map(|i| column(format!("__r{i}")).sort(true, false)));
        let is = |place: i64| column("__side".into()).eq(lit(place));
        let counts = when(is(right_place), lit(1i64)).otherwise(lit(0i64))?;
        let so_far = WindowFrameBound::Preceding(ScalarValue::UInt64(None));
        let number = Expr::from(WindowFunction::new(
            WindowFunctionDefinition::AggregateUDF(sum::sum_udaf()),
            vec![column("__counts".into())],
        ))
        .partition_by(keys)
        .order_by(order)
        .window_frame(WindowFrame::new_bounds(WindowFrameUnits::Rows, so_far, WindowFrameBound::CurrentRow))
        .build()?
        .alias("__n");
        let mut columns: Vec<Expr> = all.schema().columns().into_iter().map(Expr::Column).collect();
        columns.push(counts.alias("__counts"));
        let all = all.project(columns)?.window(vec![number])?.build()?;
        let side = |place: i64, own: &str, width: usize, name: &str| {
            let mut columns: Vec<Expr> = (0..pairs.len()).map(|i| column(format!("__k{i}"))).collect();
            columns.push(column("__n".into()));
            columns.extend((0..width).map(|i| column(format!("{own}{i}"))));
            LogicalPlanBuilder::from(all.clone()).filter(is(place))?.project(columns)?.alias(name)
        };
        let left = side(left_place, "__l", ours.fields().len(), "__left")?;
        let right = side(right_place, "__r", theirs.fields().len(), "__right")?.build()?;
        let both = |name: String| {
            Expr::Column(Column::new(Some("__left"), name.clone())).eq(Expr::Column(Column::new(Some("__right"), name)))
        };
        let on: Vec<Expr> = (0..pairs.len()).map(|i| format!("__k{i}")).chain(["__n".to_owned()]).map(both).collect();
        let named = |schema: &DFSchemaRef, side: &'static str, own: &'static str| {
            let named: Vec<Expr> = schema
                .iter()
                .enumerate()
                .map(|(i, (qualifier, f))| {
                    let c = Expr::Column(Column::new(Some(side), format!("{own}{i}")));
                    c.alias_qualified(qualifier.cloned(), f.name())
                })
                .collect();
            named
        };
        let mut result = named(ours, "__left", "__l");
        result.extend(named(theirs, "__right", "__r"));
        left.join_on(right, join, on)?.project(result)?.build()
    }
}

impl PartialOrd for LookupJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.kind, self.outer).partial_cmp(&(other.kind, other.outer)).filter(|o| o.is_ne() || self == other)
    }
}

impl UserDefinedLogicalNodeCore for LookupJoin {
    fn name(&self) -> &str {
        "LookupJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![self.condition.clone(), self.on.clone()]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let outer = if self.outer { " outer" } else { "" };
        write!(f, "LookupJoin: {:?}{outer} match={} on={}", self.kind, self.condition, self.on)
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (Some(on), Some(condition), Some(right), Some(left)) =
            (exprs.pop(), exprs.pop(), inputs.pop(), inputs.pop())
        else {
            return internal_err!("a lookup without its inputs");
        };
        Self::try_new(self.kind, self.outer, left, right, condition, on)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.left.schema().fields().len();
        let left = output_columns.iter().copied().filter(|c| *c < width).collect();
        let right = match self.kind {
            // The whole row decides which of several of one time is taken.
            LookupKind::AsOf => (0..self.right.schema().fields().len()).collect(),
            LookupKind::Current => output_columns.iter().filter_map(|c| c.checked_sub(width)).collect(),
        };
        Some(vec![left, right])
    }
}
