//! WITH RECURSIVE: the fixpoint of a step, found at the barrier.
//!
//! The recursive term is a chain of operators of its own, with their own tables; its leaves
//! are the rows found last and the relations that the term reads besides. The chain is linear
//! in the rows that are fed back, so only changes go round: what is new, and what follows from
//! changes of the other relations for all rows that there are.
//!
//! With UNION ALL rows are counted, so taking back goes round like adding. With UNION a row
//! may hold itself up through a cycle: when anything is taken back all rows are found anew,
//! and the difference goes out.

use arrow::datatypes::SchemaRef;

use super::consolidate::{Consolidator, pick, weights_or_none};
use super::expr::batch_of;
use super::{BarrierInfo, Operator, Output};
use crate::state::{TableDef, Tables};
use crate::types::{Delta, ErrorKind, Result, SpateError};

/// Rounds of one epoch.
const MAX_ROUNDS: usize = 10_000;
/// Rows, copies counted, that the rounds of one epoch may give.
const MAX_ROWS: i64 = 20_000_000;

/// Tables of the operator itself when rows are distinct: what the first term gave, and all rows.
const GIVEN: usize = 0;
const FOUND: usize = 1;

/// An operator of the step.
pub struct StepOp {
    /// The operator.
    pub op: Box<dyn Operator>,
    /// Which one takes its output, at which port; the step's result if `None`.
    pub parent: Option<(usize, usize)>,
}

/// Where rows enter the step.
#[derive(Debug, Clone, Copy)]
pub struct StepLeaf {
    /// Input of the whole operator; 0 stands for the rows found last.
    pub input: usize,
    /// The operator that takes them, and its port; the step's result if `None`.
    pub parent: Option<(usize, usize)>,
}

/// The recursive term: producers stand before their consumers.
pub struct Step {
    /// Its operators.
    pub ops: Vec<StepOp>,
    /// Its leaves.
    pub leaves: Vec<StepLeaf>,
}

/// A fixpoint.
pub struct Recursive {
    step: Step,
    /// First table of each operator of the step, and how many it has.
    places: Vec<(usize, usize)>,
    distinct: bool,
    monotone: bool,
    schema: SchemaRef,
    /// Changes of the epoch, by input.
    changes: Vec<Consolidator>,
    net: Consolidator,
}

impl Recursive {
    /// The fixpoint of `step` over rows of `schema`; `inputs` are the schemas of the inputs, the
    /// first one the term without recursion. `monotone` as in the spec.
    pub fn new(step: Step, distinct: bool, monotone: bool, inputs: &[SchemaRef], schema: SchemaRef) -> Result<Self> {
        let mut at = if distinct { 2 } else { 0 };
        let places = step
            .ops
            .iter()
            .map(|o| {
                let n = o.op.tables().len();
                at += n;
                (at - n, n)
            })
            .collect();
        let changes = inputs
            .iter()
            .enumerate()
            .map(|(i, s)| Consolidator::new(if i == 0 { schema.clone() } else { s.clone() }))
            .collect::<Result<_>>()?;
        Ok(Self { step, places, distinct, monotone, net: Consolidator::new(schema.clone())?, schema, changes })
    }

    fn renamed(&self, delta: &Delta) -> Result<Delta> {
        delta.with_rows(batch_of(&self.schema, delta.rows().columns().to_vec(), delta.num_rows())?)
    }

    /// One round: feeds the changes of some inputs to the step, and gives its net output.
    fn round(
        &mut self,
        feeds: &[(usize, Vec<Delta>)],
        info: &BarrierInfo<'_>,
        tables: &mut Tables,
    ) -> Result<Vec<Delta>> {
        let mut waiting: Vec<Vec<(usize, Delta)>> = self.step.ops.iter().map(|_| Vec::new()).collect();
        let mut result = Consolidator::new(self.schema.clone())?;
        let mut give = |parent: Option<(usize, usize)>, delta: Delta, waiting: &mut Vec<Vec<(usize, Delta)>>| {
            match parent {
                Some((op, port)) => match waiting.get_mut(op) {
                    Some(w) => w.push((port, delta)),
                    None => return Err(SpateError::internal("a recursive step lacks an operator")),
                },
                None => {
                    let rows = batch_of(&self.schema, delta.rows().columns().to_vec(), delta.num_rows())?;
                    result.push(&delta.with_rows(rows)?)?;
                }
            }
            Ok(())
        };
        for leaf in &self.step.leaves {
            for (_, deltas) in feeds.iter().filter(|(i, _)| *i == leaf.input) {
                for delta in deltas {
                    give(leaf.parent, delta.clone(), &mut waiting)?;
                }
            }
        }
        for i in 0..self.step.ops.len() {
            let (Some(o), Some(&(first, count))) = (self.step.ops.get_mut(i), self.places.get(i)) else { continue };
            let mut own = tables.lend(first, count);
            let mut out = Output::default();
            let mut work = || -> Result<()> {
                for (port, delta) in waiting.get_mut(i).map(std::mem::take).unwrap_or_default() {
                    let piece = o.op.max_input_rows();
                    let mut at = 0;
                    while at < delta.num_rows() {
                        let n = piece.min(delta.num_rows() - at);
                        o.op.push(port, delta.slice(at, n), &mut own, &mut out)?;
                        at += n;
                    }
                }
                o.op.barrier(info, &mut own, &mut out)
            };
            let done = work();
            tables.take_back(first, own);
            done?;
            let parent = o.parent;
            for delta in out.take() {
                give(parent, delta, &mut waiting)?;
            }
        }
        result.finish()
    }

    /// Feeds `fresh` back until nothing new comes, and adds all to the net change.
    fn fixpoint(&mut self, mut fresh: Vec<Delta>, info: &BarrierInfo<'_>, tables: &mut Tables) -> Result<()> {
        let mut rows = 0i64;
        for _ in 0..MAX_ROUNDS {
            if self.distinct {
                fresh = unseen(fresh, tables)?;
            }
            if fresh.is_empty() {
                return Ok(());
            }
            for delta in &fresh {
                for i in 0..delta.num_rows() {
                    rows = rows.saturating_add(delta.weight(i).saturating_abs());
                }
                self.net.push(delta)?;
            }
            if rows > MAX_ROWS {
                return Err(endless(&format!("{MAX_ROWS} rows")));
            }
            fresh = self.round(&[(0, fresh)], info, tables)?;
        }
        Err(endless(&format!("{MAX_ROUNDS} rounds")))
    }

    /// All rows go, and are found anew from what the first term gives.
    fn anew(&mut self, others: Vec<(usize, Vec<Delta>)>, info: &BarrierInfo<'_>, tables: &mut Tables) -> Result<()> {
        let mut gone = Vec::new();
        for batch in tables.bag(FOUND)?.freeze().batches() {
            let (rows, _) = batch?;
            gone.push(Delta::insert(rows).negate());
        }
        for delta in &gone {
            tables.bag(FOUND)?.merge(delta, None, None)?;
            self.net.push(delta)?;
        }
        // Without rows that are fed back the step gives nothing, whatever it reads besides.
        self.round(&[(0, gone)], info, tables)?;
        self.round(&others, info, tables)?;
        let mut given = Vec::new();
        for batch in tables.bag(GIVEN)?.freeze().batches() {
            let (rows, weights) = batch?;
            given.push(Delta::new(rows, Some(weights))?);
        }
        self.fixpoint(given, info, tables)
    }
}

fn endless(limit: &str) -> SpateError {
    SpateError::new(ErrorKind::Limit, format!("WITH RECURSIVE has not come to an end after {limit}"))
        .with_hint("bound the recursion in its WHERE, or use UNION where rows may come again")
}

fn takes_back(deltas: &[Delta]) -> bool {
    deltas.iter().any(|d| d.weights().is_some_and(|w| w.values().iter().any(|w| *w < 0)))
}

/// Those rows, once each, that were not found before; they are now.
fn unseen(deltas: Vec<Delta>, tables: &mut Tables) -> Result<Vec<Delta>> {
    let found = tables.bag(FOUND)?;
    let mut fresh = Vec::new();
    for delta in deltas {
        let known = found.find(delta.rows().columns(), delta.num_rows())?;
        let rows: Vec<u32> = known
            .iter()
            .enumerate()
            .filter(|(i, k)| k.is_none() && delta.weight(*i) > 0)
            .map(|(i, _)| i as u32)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let ones = weights_or_none(vec![1; rows.len()]);
        let new = pick(&delta, rows, ones)?;
        found.merge(&new, None, None)?;
        fresh.push(new);
    }
    Ok(fresh)
}

impl Operator for Recursive {
    fn tables(&self) -> Vec<TableDef> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let bag = TableDef::Bag { schema: self.schema.clone(), key: all.clone(), dist: all };
        let mut defs = if self.distinct { vec![bag.clone(), bag] } else { Vec::new() };
        defs.extend(self.step.ops.iter().flat_map(|o| o.op.tables()));
        defs
    }

    fn push(&mut self, input: usize, delta: Delta, _tables: &mut Tables, _out: &mut Output) -> Result<()> {
        let delta = if input == 0 { self.renamed(&delta)? } else { delta };
        match self.changes.get_mut(input) {
            Some(c) => c.push(&delta),
            None => Err(SpateError::internal(format!("a recursion has no input {input}"))),
        }
    }

    fn barrier(&mut self, info: &BarrierInfo<'_>, tables: &mut Tables, out: &mut Output) -> Result<()> {
        let mut all = Vec::with_capacity(self.changes.len());
        for (i, c) in self.changes.iter_mut().enumerate() {
            all.push((i, c.finish()?));
        }
        if all.iter().all(|(_, d)| d.is_empty()) {
            return Ok(());
        }
        let others = all.split_off(1);
        let given = all.pop().map(|(_, d)| d).unwrap_or_default();
        if self.distinct {
            for delta in &given {
                tables.bag(GIVEN)?.merge(delta, None, None)?;
            }
        }
        let replaces = |d: &[Delta]| takes_back(d) || (!self.monotone && !d.is_empty());
        if self.distinct && (takes_back(&given) || others.iter().any(|(_, d)| replaces(d))) {
            self.anew(others, info, tables)?;
        } else {
            let mut first = Consolidator::new(self.schema.clone())?;
            for delta in given.iter().chain(&self.round(&others, info, tables)?) {
                first.push(delta)?;
            }
            self.fixpoint(first.finish()?, info, tables)?;
        }
        for delta in self.net.finish()? {
            out.emit(delta);
        }
        if self.distinct {
            tables.bag(GIVEN)?.maintain()?;
            tables.bag(FOUND)?.maintain()?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Recursive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recursive({} operators)", self.step.ops.len())
    }
}

#[cfg(test)]
#[path = "recursive_tests.rs"]
mod tests;
