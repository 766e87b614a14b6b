//! GROUPING SETS, ROLLUP and CUBE: an Expand below the Aggregate, which then groups by the
//! columns and by the number of the set.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_expr::{Expr, GroupingSet as Sets};
use spate_engine::plan::{ExpandSpec, GroupingSet, Motion, OpSpec, Properties, StreamNode, WatermarkColumn};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::unaliased;

/// More grouping sets than this are taken for a mistake: every row is repeated for each.
const MAX_SETS: usize = 256;

/// Grouping sets: expressions, and the sets of them.
pub(super) struct Grouping<'a> {
    pub(super) exprs: Vec<&'a Expr>,
    pub(super) sets: Vec<GroupingSet>,
}

impl Grouping<'_> {
    /// Numbers of the sets without columns.
    pub(super) fn empty(&self) -> Vec<u64> {
        self.sets.iter().filter(|s| !s.keep.contains(&true)).map(|s| s.id).collect()
    }
}

/// The grouping sets of a GROUP BY, if it has any.
pub(super) fn sets_of(group: &[Expr]) -> Result<Option<Grouping<'_>>> {
    let sets = match group {
        [one] => match unaliased(one) {
            Expr::GroupingSet(sets) => sets,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let exprs = sets.distinct_expr();
    let n = exprs.len();
    let count = match sets {
        Sets::Rollup(_) => n + 1,
        Sets::Cube(_) => 1usize.checked_shl(n as u32).unwrap_or(usize::MAX),
        Sets::GroupingSets(lists) => lists.len(),
    };
    if count > MAX_SETS {
        let what = format!("GROUP BY has {count} grouping sets; at most {MAX_SETS} are allowed");
        return Err(SpateError::new(ErrorKind::Limit, what));
    }
    let keeps: Vec<Vec<bool>> = match sets {
        Sets::Rollup(_) => (0..=n).map(|len| (0..n).map(|i| i < len).collect()).collect(),
        Sets::Cube(_) => (0..count).map(|set| (0..n).map(|i| set >> i & 1 == 1).collect()).collect(),
        Sets::GroupingSets(lists) => lists.iter().map(|l| exprs.iter().map(|e| l.contains(e)).collect()).collect(),
    };
    let mut numbered: Vec<GroupingSet> = Vec::with_capacity(keeps.len());
    for keep in keeps {
        // As DataFusion numbers them: a bit per column that is left out, the last one lowest, and
        // above them which of several equal sets it is.
        let left_out = keep.iter().fold(0u64, |id, k| id << 1 | u64::from(!k));
        let equal = numbered.iter().filter(|s| s.keep == keep).count() as u64;
        numbered.push(GroupingSet { keep, id: left_out | equal << n });
    }
    Ok(Some(Grouping { exprs, sets: numbered }))
}

/// Expands `input`, and makes `group` the expanded columns and the number. `schema` is the
/// aggregate's, which has their names.
pub(super) fn node(
    input: StreamNode,
    group: &mut Vec<usize>,
    sets: Vec<GroupingSet>,
    schema: &SchemaRef,
) -> Result<StreamNode> {
    let width = input.schema.fields().len();
    let mut fields: Vec<Field> = input.schema.fields().iter().map(|f| f.as_ref().clone()).collect();
    let named = schema.fields().iter().take(group.len() + 1);
    fields.extend(named.map(|f| f.as_ref().clone().with_nullable(true)));
    if fields.len() != width + group.len() + 1 {
        return Err(SpateError::internal("grouping sets without a number"));
    }
    let mut watermarks = input.props.watermarks.clone();
    for (i, column) in group.iter().enumerate() {
        // What is NULL in some set never ends.
        if let Some(w) = input.props.watermarks.iter().find(|w| w.column == *column)
            && sets.iter().all(|s| s.keep.get(i) == Some(&true))
        {
            watermarks.push(WatermarkColumn { column: width + i, kind: w.kind });
        }
    }
    let number = width + group.len();
    let props = Properties {
        append_only: input.props.append_only,
        stream_key: input.props.stream_key.as_ref().map(|k| k.iter().copied().chain([number]).collect()),
        watermarks,
        // What a set leaves out is NULL for good.
        motion: input.props.motion.as_ref().map(|m| {
            let copied = group.iter().map(|g| m.get(*g).copied().unwrap_or(Motion::Free));
            m.iter().copied().chain(copied).chain([Motion::Fixed]).collect()
        }),
        scattered: input.props.scattered,
        distribution: input.props.distribution.clone(),
        ..Properties::default()
    };
    let spec = ExpandSpec { columns: std::mem::take(group), sets };
    group.extend(width..=number);
    Ok(StreamNode { op: OpSpec::Expand(spec), schema: Arc::new(Schema::new(fields)), props, inputs: vec![input] })
}
