//! Which rows of a join's state nobody can meet any more: those that the other side's watermark
//! has passed, and all once the other side has ended.

use arrow::array::Array;
use arrow::buffer::NullBuffer;

use crate::operator::BarrierInfo;
use crate::plan::{Expiry, JoinSpec};
use crate::state::{BagTable, ProbeKeys};
use crate::types::{Delta, Result, WATERMARK_MAX, WATERMARK_MIN, Watermark};

/// The rules of a join's spec.
#[derive(Debug)]
pub(in crate::operator) struct Expire {
    sides: [Option<Expiry>; 2],
    apart: Option<(i64, i64)>,
    /// Inputs from which nothing more will come. After a restore this is known again at the first
    /// barrier.
    ended: [bool; 2],
}

impl Expire {
    pub(in crate::operator) fn new(spec: &JoinSpec) -> Self {
        // Rows that may be taken back are needed until they are.
        let sides = if spec.append_only_inputs { spec.expire } else { [None, None] };
        Self { sides, apart: spec.apart, ended: [false; 2] }
    }

    /// `keys` such that rows without a time, which match nothing, are not kept.
    pub(in crate::operator) fn timeless(&self, input: usize, delta: &Delta, mut keys: ProbeKeys) -> ProbeKeys {
        let expiry = self.sides.get(input).copied().flatten();
        if let Some(times) = expiry.and_then(|e| delta.rows().columns().get(e.column).cloned())
            && times.null_count() > 0
        {
            keys.valid = NullBuffer::union(keys.valid.as_ref(), times.nulls());
        }
        keys
    }

    /// Whether nothing more will come from an input.
    pub(in crate::operator) fn has_ended(&self, input: usize) -> bool {
        self.ended.get(input).copied().unwrap_or(false)
    }

    /// Notes which inputs end with this barrier.
    pub(in crate::operator) fn note(&mut self, info: &BarrierInfo<'_>) {
        for (ended, mark) in self.ended.iter_mut().zip(info.input_watermarks) {
            *ended |= *mark == WATERMARK_MAX;
        }
    }

    /// Frees what the watermarks of this barrier let go.
    pub(in crate::operator) fn free(
        &self,
        info: &BarrierInfo<'_>,
        left: &mut BagTable,
        right: &mut BagTable,
    ) -> Result<()> {
        for (side, table) in [left, right].into_iter().enumerate() {
            let Some(expiry) = self.sides[side] else { continue };
            let other = info.input_watermarks.get(1 - side).copied().unwrap_or(WATERMARK_MIN);
            let bound = match other {
                WATERMARK_MIN => continue,
                WATERMARK_MAX => i64::MAX,
                w => expiry.other.final_below(w).saturating_add(expiry.offset_us),
            };
            table.delete_below(expiry.column, bound)?;
        }
        Ok(())
    }

    /// The watermark of the pairs: a new row of one side may meet an old one of the other side,
    /// as far back as the two may be apart.
    pub(in crate::operator) fn watermark(&self, info: &BarrierInfo<'_>) -> Watermark {
        let (Some((least, most)), [left, right]) = (self.apart, info.input_watermarks) else {
            return info.watermark;
        };
        let moved = |w: Watermark, by: i64| match w {
            WATERMARK_MIN | WATERMARK_MAX => w,
            w => w.saturating_add(by).max(WATERMARK_MIN + 1),
        };
        (*left).min(*right).min(moved(*right, least)).min(moved(*left, most.saturating_neg()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
    use datafusion_expr::Operator as BinaryOp;
    use datafusion_physical_expr::expressions::{BinaryExpr, col};

    use crate::operator::join::HashJoin;
    use crate::operator::semi_join::SemiJoin;
    use crate::operator::testing::texts;
    use crate::operator::{Operator, Output};
    use crate::plan::{ExprRef, JoinKind, WatermarkKind};
    use crate::state::Tables;
    use crate::types::Tick;

    use super::*;

    fn schema(names: [&str; 2]) -> SchemaRef {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        Arc::new(Schema::new(vec![Field::new(names[0], DataType::Int64, true), Field::new(names[1], time, true)]))
    }

    fn rows(names: [&str; 2], rows: &[(i64, Option<i64>)]) -> Delta {
        let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0)));
        let t: ArrayRef = Arc::new(rows.iter().map(|r| r.1).collect::<TimestampMicrosecondArray>());
        Delta::new(RecordBatch::try_new(schema(names), vec![k, t]).unwrap(), None).unwrap()
    }

    /// Equal keys, and a right time up to 10 after the left one.
    fn spec(kind: JoinKind, append_only: bool) -> JoinSpec {
        let fields = [schema(["k", "t"]), schema(["k2", "t2"])];
        let pair = Schema::new(fields.iter().flat_map(|s| s.fields().iter().cloned()).collect::<Vec<_>>());
        let (t, t2) = (col("t", &pair).unwrap(), col("t2", &pair).unwrap());
        let expiry = |offset_us| Some(Expiry { column: 1, other: WatermarkKind::EventTime, offset_us });
        JoinSpec {
            kind,
            left_keys: vec![0],
            right_keys: vec![0],
            null_equal: false,
            filter: Some(Arc::new(BinaryExpr::new(t, BinaryOp::LtEq, t2)) as ExprRef),
            append_only_inputs: append_only,
            expire: [expiry(-10), expiry(0)],
            apart: Some((-10, 0)),
        }
    }

    fn barrier(op: &mut dyn Operator, tables: &mut Tables, out: &mut Output, marks: [Watermark; 2]) {
        let tick = Tick { incarnation: 1, term: 1, epoch: 1, opened_us: 0, now_us: 1 };
        let info = BarrierInfo { tick, watermark: marks[0].min(marks[1]), input_watermarks: &marks, complete: &[] };
        op.barrier(&info, tables, out).unwrap();
    }

    fn kept(tables: &mut Tables) -> (usize, usize) {
        (tables.bag(0).unwrap().len(), tables.bag(1).unwrap().len())
    }

    #[test]
    fn rows_go_when_the_other_side_has_passed_them() {
        let (l, r) = (schema(["k", "t"]), schema(["k2", "t2"]));
        for kind in [JoinKind::Inner, JoinKind::Full, JoinKind::Anti, JoinKind::Mark] {
            let mut fields: Vec<Field> = l.fields().iter().map(|f| f.as_ref().clone()).collect();
            match kind {
                JoinKind::Anti => {}
                JoinKind::Mark => fields.push(Field::new("mark", DataType::Boolean, true)),
                _ => fields.extend(r.fields().iter().map(|f| f.as_ref().clone())),
            }
            let output: SchemaRef = Arc::new(Schema::new(fields));
            let mut op: Box<dyn Operator> = if kind.keeps_left() {
                Box::new(SemiJoin::new(&spec(kind, true), l.clone(), r.clone(), output).unwrap())
            } else {
                Box::new(HashJoin::new(&spec(kind, true), l.clone(), r.clone(), output).unwrap())
            };
            let mut tables = Tables::new(&op.tables()).unwrap();
            let mut out = Output::default();
            let left = rows(["k", "t"], &[(1, Some(0)), (1, Some(20)), (1, None), (2, Some(5))]);
            op.push(0, left, &mut tables, &mut out).unwrap();
            let right = rows(["k2", "t2"], &[(1, Some(3)), (1, Some(30)), (1, None)]);
            op.push(1, right, &mut tables, &mut out).unwrap();
            barrier(op.as_mut(), &mut tables, &mut out, [WATERMARK_MIN, WATERMARK_MIN]);
            assert_eq!(kept(&mut tables), (3, 2), "{kind:?}: a row without a time meets nobody");
            // The right side is at 12: left rows below 2 meet nobody any more.
            barrier(op.as_mut(), &mut tables, &mut out, [WATERMARK_MIN, 12]);
            assert_eq!(kept(&mut tables), (2, 2), "{kind:?}");
            barrier(op.as_mut(), &mut tables, &mut out, [4, 15]);
            assert_eq!(kept(&mut tables), (2, 1), "{kind:?}");
            barrier(op.as_mut(), &mut tables, &mut out, [WATERMARK_MAX, 16]);
            assert_eq!(kept(&mut tables), (1, 0), "{kind:?}");
            let changes: i64 = out.take().iter().flat_map(texts).map(|(_, w)| w).sum();
            assert!(changes > 0);
        }
    }

    #[test]
    fn nothing_is_kept_for_a_side_that_has_ended() {
        let (l, r) = (schema(["k", "t"]), schema(["k2", "t2"]));
        let both: Vec<_> = l.fields().iter().chain(r.fields()).cloned().collect();
        for (kind, append_only) in [(JoinKind::Full, true), (JoinKind::Inner, false), (JoinKind::Semi, false)] {
            let mut spec = spec(kind, append_only);
            (spec.expire, spec.apart, spec.filter) = ([None, None], None, None);
            let mut op: Box<dyn Operator> = match kind {
                JoinKind::Semi => Box::new(SemiJoin::new(&spec, l.clone(), r.clone(), l.clone()).unwrap()),
                _ => {
                    let output = Arc::new(Schema::new(both.clone()));
                    Box::new(HashJoin::new(&spec, l.clone(), r.clone(), output).unwrap())
                }
            };
            let mut tables = Tables::new(&op.tables()).unwrap();
            let mut out = Output::default();
            let net = |out: &mut Output| -> i64 { out.take().iter().flat_map(texts).map(|(_, w)| w).sum() };
            op.push(1, rows(["k2", "t2"], &[(1, Some(3)), (2, None)]), &mut tables, &mut out).unwrap();
            op.push(0, rows(["k", "t"], &[(1, Some(0))]), &mut tables, &mut out).unwrap();
            barrier(op.as_mut(), &mut tables, &mut out, [WATERMARK_MIN, WATERMARK_MIN]);
            assert_eq!(kept(&mut tables), (1, 2), "{kind:?}");
            net(&mut out);
            barrier(op.as_mut(), &mut tables, &mut out, [WATERMARK_MIN, WATERMARK_MAX]);
            assert_eq!(kept(&mut tables), (0, 2), "{kind:?}");
            // New left rows still meet the right ones, once each.
            for round in 0..2 {
                op.push(0, rows(["k", "t"], &[(1, Some(0)), (2, Some(0))]), &mut tables, &mut out).unwrap();
                barrier(op.as_mut(), &mut tables, &mut out, [WATERMARK_MIN, WATERMARK_MAX]);
                // The first match of the second right row takes its NULLs away.
                let first = kind == JoinKind::Full && round == 0;
                assert_eq!(net(&mut out), 2 - i64::from(first), "{kind:?}");
                assert_eq!(kept(&mut tables), (0, 2), "{kind:?}");
            }
            barrier(op.as_mut(), &mut tables, &mut out, [WATERMARK_MAX, WATERMARK_MAX]);
            assert_eq!(kept(&mut tables), (0, 0), "{kind:?}");
        }
    }

    #[test]
    fn rows_that_may_be_taken_back_stay() {
        let (l, r) = (schema(["k", "t"]), schema(["k2", "t2"]));
        let fields: Vec<_> = l.fields().iter().chain(r.fields()).cloned().collect();
        let mut op = HashJoin::new(&spec(JoinKind::Inner, false), l, r, Arc::new(Schema::new(fields))).unwrap();
        let mut tables = Tables::new(&op.tables()).unwrap();
        let mut out = Output::default();
        op.push(0, rows(["k", "t"], &[(1, Some(0)), (1, None)]), &mut tables, &mut out).unwrap();
        barrier(&mut op, &mut tables, &mut out, [40, 40]);
        assert_eq!(kept(&mut tables), (2, 0));
    }

    fn watermark(apart: Option<(i64, i64)>, left: Watermark, right: Watermark) -> Watermark {
        let spec = JoinSpec { apart, ..spec(JoinKind::Inner, true) };
        let tick = Tick { incarnation: 1, term: 1, epoch: 1, opened_us: 0, now_us: 1 };
        let marks = [left, right];
        let info = BarrierInfo { tick, watermark: left.min(right), input_watermarks: &marks, complete: &[] };
        Expire::new(&spec).watermark(&info)
    }

    #[test]
    fn pairs_are_as_late_as_their_times_may_be_apart() {
        assert_eq!(watermark(None, 50, 40), 40);
        // A left row of time 50 meets right ones of 40 to 55.
        assert_eq!(watermark(Some((-5, 10)), 50, 70), 40);
        // A right row of time 20 meets left ones of 15 to 30.
        assert_eq!(watermark(Some((-5, 10)), 50, 20), 15);
        assert_eq!(watermark(Some((5, 10)), 50, 50), 40);
        assert_eq!(watermark(Some((-5, 10)), WATERMARK_MAX, WATERMARK_MAX), WATERMARK_MAX);
        assert_eq!(watermark(Some((-5, 10)), WATERMARK_MAX, 20), 15);
        assert_eq!(watermark(Some((-5, 10)), WATERMARK_MIN, 20), WATERMARK_MIN);
    }
}
