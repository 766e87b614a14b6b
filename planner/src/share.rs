//! Shares what a plan computes more than once: equal parts run once and feed all who need them.
//! So a source that a query names twice is read once, and a common table expression that it uses
//! twice is computed once.
//!
//! Parts are equal if their operators, schemas and properties are. To let more of them be equal,
//! all readers of one source read the columns that any of them needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use spate_engine::plan::{Distribution, ObjectId, OpSpec, ProjectSpec, SourceSpec, StreamNode};
use spate_engine::types::error::{Result, SpateError};

use crate::lower::exchange;
use crate::lower::expr::column;
use crate::lower::project::through;

/// Plans of more nodes are left as they are: looking for equal parts takes time that grows faster.
const MAX_NODES: usize = 4096;

/// Puts an exchange over every part that the plan computes more than once, unless one is there.
/// Cutting then finds equal fragments and keeps one of them.
pub fn share(root: StreamNode) -> Result<StreamNode> {
    if count(&root) > MAX_NODES {
        return Ok(root);
    }
    let mut read = BTreeMap::new();
    columns_read(&root, &mut read);
    read.retain(|_, (readers, _)| *readers > 1);
    let root = if read.is_empty() { root } else { read_alike(root, &read)? };
    let mut parts = Parts::default();
    parts.visit(&root);
    if parts.consumers.iter().all(|n| *n < 2) {
        return Ok(root);
    }
    let mut next = 0;
    Ok(parts.mark(root, &mut next, false))
}

fn count(node: &StreamNode) -> usize {
    1 + node.inputs.iter().map(count).sum::<usize>()
}

/// How often each source is read, and the columns that are.
type Read = BTreeMap<ObjectId, (usize, BTreeMap<usize, FieldRef>)>;

fn columns_read(node: &StreamNode, out: &mut Read) {
    if let OpSpec::Source(s) = &node.op {
        let (readers, columns) = out.entry(s.id).or_default();
        *readers += 1;
        // The names differ where a query renames columns; the first reader's are as good as any.
        for (c, field) in s.projection.iter().zip(node.schema.fields()) {
            columns.entry(*c).or_insert_with(|| Arc::clone(field));
        }
    }
    node.inputs.iter().for_each(|n| columns_read(n, out));
}

/// Makes all readers of a source read the same columns; what one does not need is dropped above.
fn read_alike(node: StreamNode, read: &Read) -> Result<StreamNode> {
    let StreamNode { op, inputs, schema, props } = node;
    let inputs = inputs.into_iter().map(|n| read_alike(n, read)).collect::<Result<Vec<_>>>()?;
    let node = StreamNode { op, inputs, schema, props };
    let OpSpec::Source(s) = &node.op else { return Ok(node) };
    let Some((_, columns)) = read.get(&s.id) else { return Ok(node) };
    if columns.len() == s.projection.len() && node.schema.fields().iter().eq(columns.values()) {
        return Ok(node);
    }
    widen(&node, s, columns)
}

fn widen(node: &StreamNode, spec: &SourceSpec, columns: &BTreeMap<usize, FieldRef>) -> Result<StreamNode> {
    let lost = || SpateError::internal("a shared source lost a column");
    let place = |c: usize| columns.keys().position(|k| *k == c).ok_or_else(lost);
    let kept = spec.projection.iter().map(|c| place(*c)).collect::<Result<Vec<usize>>>()?;
    let moved = |c: usize| kept.get(c).copied().ok_or_else(lost);
    let mut watermark = spec.watermark;
    if let Some(w) = &mut watermark {
        w.column = moved(w.column)?;
    }
    let mut props = node.props.clone();
    for w in &mut props.watermarks {
        w.column = moved(w.column)?;
    }
    props.stream_key = props.stream_key.map(|k| k.into_iter().map(moved).collect::<Result<_>>()).transpose()?;
    let wide = StreamNode {
        op: OpSpec::Source(SourceSpec { projection: columns.keys().copied().collect(), watermark, ..spec.clone() }),
        inputs: Vec::new(),
        schema: Arc::new(Schema::new(columns.values().cloned().collect::<Vec<_>>())),
        props,
    };
    let exprs = kept.iter().map(|&i| column(wide.schema.field(i).name(), i)).collect();
    let plain: Vec<Option<usize>> = kept.iter().copied().map(Some).collect();
    let props = through(&wide.props, &plain, wide.props.distribution.clone());
    Ok(StreamNode {
        op: OpSpec::Project(ProjectSpec { exprs }),
        schema: Arc::clone(&node.schema),
        props,
        inputs: vec![wide],
    })
}

/// The distinct parts of a plan.
#[derive(Default)]
struct Parts {
    /// One node per part: what it is apart from its inputs, and those.
    parts: Vec<(StreamNode, Vec<usize>)>,
    /// Parts by name and inputs, to compare few of them.
    by_shape: BTreeMap<(&'static str, Vec<usize>), Vec<usize>>,
    /// For each part how many places consume it.
    consumers: Vec<usize>,
    /// Whether computing it again costs more than handing it over.
    worth: Vec<bool>,
    /// The part at each place of the plan, in the order of a walk.
    places: Vec<usize>,
}

impl Parts {
    fn visit(&mut self, node: &StreamNode) -> usize {
        let at = self.places.len();
        self.places.push(0);
        let inputs: Vec<usize> = node.inputs.iter().map(|n| self.visit(n)).collect();
        let shape = (node.op.name(), inputs.clone());
        let alike = |p: &&usize| {
            self.parts
                .get(**p)
                .is_some_and(|(n, _)| n.op == node.op && n.schema == node.schema && n.props == node.props)
        };
        let found = self.by_shape.get(&shape).and_then(|all| all.iter().find(alike)).copied();
        let part = found.unwrap_or_else(|| {
            let part = self.parts.len();
            for i in &inputs {
                self.consumers[*i] += 1;
            }
            let below = inputs.iter().any(|i| self.worth[*i]);
            self.worth.push(below || is_work(&node.op));
            let alone = StreamNode {
                op: node.op.clone(),
                inputs: Vec::new(),
                schema: Arc::clone(&node.schema),
                props: node.props.clone(),
            };
            self.parts.push((alone, inputs));
            self.consumers.push(0);
            self.by_shape.entry(shape).or_default().push(part);
            part
        });
        self.places[at] = part;
        part
    }

    /// The plan with exchanges over shared parts. `cut`: an exchange stands above already.
    fn mark(&self, node: StreamNode, next: &mut usize, cut: bool) -> StreamNode {
        let part = self.places.get(*next).copied();
        *next += 1;
        let is_exchange = matches!(node.op, OpSpec::Exchange(_));
        let StreamNode { op, inputs, schema, props } = node;
        let inputs = inputs.into_iter().map(|n| self.mark(n, next, is_exchange)).collect();
        let node = StreamNode { op, inputs, schema, props };
        let shared = part.is_some_and(|p| self.consumers[p] > 1 && self.worth[p]);
        if !shared || cut || is_exchange {
            return node;
        }
        // Rows stay in the tasks that they are in.
        let distribution = node.props.distribution.clone();
        let to = if distribution == Distribution::Single { Distribution::Single } else { Distribution::Any };
        let mut over = exchange(node, to);
        over.props.distribution = distribution;
        over
    }
}

/// Whether an operator keeps state or reads from outside. A scan of a table is cheap, and each
/// reader may start from its own place.
pub(crate) fn is_work(op: &OpSpec) -> bool {
    !matches!(
        op,
        OpSpec::Scan(_)
            | OpSpec::Values(_)
            | OpSpec::Filter(_)
            | OpSpec::Project(_)
            | OpSpec::Unnest(_)
            | OpSpec::Repeat(_)
            | OpSpec::Expand(_)
            | OpSpec::Union
            | OpSpec::Net
            | OpSpec::Exchange(_)
    )
}
