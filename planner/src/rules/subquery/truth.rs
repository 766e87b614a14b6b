//! IN, ANY and ALL in terms of EXISTS, with the NULLs of three-valued logic.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, ExprSchema, Result, ScalarValue};
use datafusion_expr::expr::{Case, Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::utils::{conjunction, disjunction};
use datafusion_expr::{BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, lit, not};

use super::{Rewriter, has_subquery};

/// `x op ANY (rows)`, or its negation.
struct Any {
    x: Expr,
    op: Operator,
    rows: Subquery,
    negated: bool,
}

impl Any {
    fn of(e: Expr) -> std::result::Result<Self, Expr> {
        Ok(match e {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Self { x: *expr, op: Operator::Eq, rows: subquery, negated }
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => match (quantifier, op.negate()) {
                (SetQuantifier::Any, _) => Self { x: *expr, op, rows: subquery, negated: false },
                // What holds of all rows is what fails for none.
                (SetQuantifier::All, Some(op)) => Self { x: *expr, op, rows: subquery, negated: true },
                (SetQuantifier::All, None) => {
                    return Err(Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }));
                }
            },
            other => return Err(other),
        })
    }

    /// The value that the subquery gives per row.
    fn column(&self) -> Expr {
        let (qualifier, field) = self.rows.subquery.schema().qualified_field(0);
        Expr::Column(Column::from((qualifier, field)))
    }

    fn exists(&self, condition: Option<Expr>) -> Result<Expr> {
        let mut rows = LogicalPlanBuilder::from(Arc::clone(&self.rows.subquery));
        if let Some(condition) = condition {
            rows = rows.filter(condition)?;
        }
        let rows = rows.build()?;
        let outer_ref_columns = rows.all_out_ref_exprs();
        let subquery = Subquery { subquery: Arc::new(rows), outer_ref_columns, spans: self.rows.spans.clone() };
        Ok(Expr::Exists(Exists { subquery, negated: false }))
    }

    /// There is a row for which the comparison is true.
    fn is_true(&self, outer: &DFSchema) -> Result<Expr> {
        let x = as_outer(self.x.clone(), outer)?;
        self.exists(Some(Expr::BinaryExpr(BinaryExpr::new(Box::new(x), self.op, Box::new(self.column())))))
    }

    /// Ways in which the comparison with a row is NULL.
    fn is_null(&self, input: &LogicalPlan) -> Result<Vec<Expr>> {
        let mut ways = Vec::new();
        if !never_null(&self.x, input) {
            ways.push(self.x.clone().is_null().and(self.exists(None)?));
        }
        if !never_null(&self.column(), &self.rows.subquery) {
            ways.push(self.exists(Some(self.column().is_null()))?);
        }
        Ok(ways)
    }
}

impl Rewriter {
    /// `e` as the value that it has, NULL included, with EXISTS as its only subqueries of rows.
    pub(super) fn value(&mut self, e: Expr, input: &LogicalPlan) -> Result<Expr> {
        let done = e.transform_up(|e| {
            let any = match Any::of(e) {
                Ok(any) => any,
                Err(other) => return Ok(Transformed::no(other)),
            };
            if let Some(compared) = Self::with_one_row(&any)? {
                return Ok(Transformed::yes(compared));
            }
            let (yes, no) = (lit(!any.negated), lit(any.negated));
            let mut cases = vec![(Box::new(any.is_true(input.schema())?), Box::new(yes))];
            if let Some(null) = disjunction(any.is_null(input)?) {
                cases.push((Box::new(null), Box::new(Expr::Literal(ScalarValue::Boolean(None), None))));
            }
            Ok(Transformed::yes(Expr::Case(Case::new(None, cases, Some(Box::new(no))))))
        })?;
        Ok(done.data)
    }

    /// A condition that is true where `e` is (where `e` is false, if `negated`); it may be
    /// false where that is NULL.
    pub(super) fn condition(&mut self, e: Expr, input: &LogicalPlan, negated: bool) -> Result<Expr> {
        if !has_subquery(&e)? {
            return Ok(if negated { not(e) } else { e });
        }
        let any = match e {
            Expr::Case(c) if super::rows::parts(&c).is_some() => {
                return self.rows_condition(c, input, negated);
            }
            Expr::Not(inner) => return self.condition(*inner, input, !negated),
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                let left = self.condition(*left, input, negated)?;
                let right = self.condition(*right, input, negated)?;
                let both = (op == Operator::And) != negated;
                return Ok(if both { left.and(right) } else { left.or(right) });
            }
            other => match Any::of(other) {
                Ok(any) => any,
                Err(other) => {
                    let value = self.value(other, input)?;
                    return Ok(if negated { not(value) } else { value });
                }
            },
        };
        if let Some(compared) = Self::with_one_row(&any)? {
            return Ok(if negated { not(compared) } else { compared });
        }
        let holds = any.is_true(input.schema())?;
        if any.negated == negated {
            return Ok(holds);
        }
        // Neither a match nor a NULL in sight, each a condition of its own.
        let mut none = vec![not(holds)];
        if !never_null(&any.x, input) {
            none.push(any.x.clone().is_not_null().or(not(any.exists(None)?)));
        }
        if !never_null(&any.column(), &any.rows.subquery) {
            none.push(not(any.exists(Some(any.column().is_null()))?));
        }
        Ok(conjunction(none).unwrap_or_else(|| lit(true)))
    }

    /// Such a condition on a comparison of rows: see [`super::rows`].
    fn rows_condition(&mut self, c: Case, input: &LogicalPlan, negated: bool) -> Result<Expr> {
        let Some((first_is, first, null)) = super::rows::parts(&c) else {
            return self.value(Expr::Case(c), input);
        };
        if first_is != negated {
            return Ok(first.clone());
        }
        let mut none = vec![not(first.clone())];
        let mut rest: Vec<&Expr> = null.into_iter().collect();
        while let Some(e) = rest.pop() {
            match e {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                    rest.extend([right.as_ref(), left.as_ref()])
                }
                exists => none.push(not(exists.clone())),
            }
        }
        Ok(conjunction(none).unwrap_or_else(|| lit(true)))
    }

    /// A subquery of exactly one row is a value to compare with.
    fn with_one_row(any: &Any) -> Result<Option<Expr>> {
        if !super::existence::is_one_row(&any.rows.subquery) {
            return Ok(None);
        }
        let value = Expr::ScalarSubquery(any.rows.clone());
        let compared = Expr::BinaryExpr(BinaryExpr::new(Box::new(any.x.clone()), any.op, Box::new(value)));
        Ok(Some(if any.negated { not(compared) } else { compared }))
    }
}

/// `x` as seen from within a subquery.
pub(super) fn as_outer(x: Expr, outer: &DFSchema) -> Result<Expr> {
    let done = x.transform_up(|e| match e {
        Expr::Column(c) => {
            let field = Arc::clone(outer.field_from_column(&c)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, c)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(done.data)
}

/// Whether `e` is a column that a table declares NOT NULL. (What expressions promise is not
/// taken: in a continuous query one that fails is NULL.)
pub(super) fn never_null(e: &Expr, plan: &LogicalPlan) -> bool {
    let column = match e {
        Expr::Column(c) => c,
        Expr::Literal(v, _) => return !v.is_null(),
        Expr::Alias(a) => return never_null(&a.expr, plan),
        _ => return false,
    };
    let Ok(index) = plan.schema().index_of_column(column) else { return false };
    let below = |input: &LogicalPlan| {
        let (qualifier, field) = input.schema().qualified_field(index);
        never_null(&Expr::Column(Column::from((qualifier, field))), input)
    };
    match plan {
        LogicalPlan::TableScan(_) => !plan.schema().field(index).is_nullable(),
        LogicalPlan::Projection(p) => p.expr.get(index).is_some_and(|e| never_null(e, &p.input)),
        LogicalPlan::SubqueryAlias(a) => below(&a.input),
        LogicalPlan::Filter(f) => below(&f.input),
        LogicalPlan::Sort(s) => below(&s.input),
        LogicalPlan::Limit(l) => below(&l.input),
        LogicalPlan::Distinct(d) => below(d.input()),
        _ => false,
    }
}
