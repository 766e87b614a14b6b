//! State tables: everything that an operator keeps between epochs.
//!
//! Three shapes share one life cycle (`freeze`, changes since the last snapshot, snapshot
//! and restore): [`BagTable`] (rows with weights, found by a hash key), [`GroupTable`]
//! (one row per key with typed columns that change in place) and [`OrderedTable`]
//! (memcomparable keys with weights, scanned in order). All work batch-wise, so that state
//! larger than memory can later live behind the same calls.
//!
//! - Rows are copied out of incoming batches: a stored slice never pins a batch.
//! - Copy-on-write is per chunk: `freeze` clones pointers; later writes copy what they touch.
//! - Rows whose weight becomes 0 leave the index at once, and a row that comes back is a new
//!   row at the end, so "insertion order" means the same before and after a restore.
//! - Each row carries its vnode, so that snapshots are filed by vnode.

pub mod bag;
pub mod chunk;
pub mod chunked;
mod equal;
pub mod frozen;
pub mod group;
pub mod index;
mod layout;
pub(crate) mod native;
pub mod ordered;
mod slots;
pub mod snapshot;
pub mod view;

use arrow::datatypes::SchemaRef;

pub use bag::{BagTable, Change, Matches, ProbeCursor, ProbeKeys};
pub use chunk::{NO_SLOT, Slot};
pub use frozen::FrozenBag;
pub use group::{ColumnKind, GroupTable};
pub use ordered::OrderedTable;
pub use snapshot::TableSegment;

use crate::types::{Result, SpateError};

/// What a table is to hold.
#[derive(Debug, Clone)]
pub enum TableDef {
    /// Rows with weights.
    Bag {
        /// Columns of the rows.
        schema: SchemaRef,
        /// Columns of the hash key.
        key: Vec<usize>,
        /// Columns that give the row its vnode (often the same).
        dist: Vec<usize>,
    },
    /// One row per key.
    Group {
        /// Columns of the key.
        key: SchemaRef,
        /// Those among them that give the row its vnode.
        dist: Vec<usize>,
        /// Mutable columns.
        values: Vec<ColumnKind>,
    },
    /// Memcomparable keys.
    Ordered,
}

/// One table of any shape.
#[derive(Debug)]
pub enum Table {
    /// Rows with weights.
    Bag(BagTable),
    /// One row per key.
    Group(GroupTable),
    /// Memcomparable keys.
    Ordered(OrderedTable),
}

/// The tables of one operator in one task.
#[derive(Debug, Default)]
pub struct Tables {
    tables: Vec<Table>,
}

impl Tables {
    /// Empty tables for these definitions.
    pub fn new(defs: &[TableDef]) -> Result<Self> {
        let tables = defs
            .iter()
            .map(|d| {
                Ok(match d {
                    TableDef::Bag { schema, key, dist } => {
                        Table::Bag(BagTable::new(schema.clone(), key.clone(), dist.clone())?)
                    }
                    TableDef::Group { key, dist, values } => {
                        Table::Group(GroupTable::new(key.clone(), dist.clone(), values.clone())?)
                    }
                    TableDef::Ordered => Table::Ordered(OrderedTable::new()),
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { tables })
    }

    /// The bag at `i`.
    pub fn bag(&mut self, i: usize) -> Result<&mut BagTable> {
        match self.tables.get_mut(i) {
            Some(Table::Bag(t)) => Ok(t),
            _ => Err(SpateError::internal(format!("table {i} is no bag"))),
        }
    }

    /// Two different bags at once.
    pub fn two_bags(&mut self, a: usize, b: usize) -> Result<(&mut BagTable, &mut BagTable)> {
        match self.tables.get_disjoint_mut([a, b]) {
            Ok([Table::Bag(x), Table::Bag(y)]) => Ok((x, y)),
            _ => Err(SpateError::internal(format!("tables {a} and {b} are no two bags"))),
        }
    }

    /// The group table at `i`.
    pub fn group(&mut self, i: usize) -> Result<&mut GroupTable> {
        match self.tables.get_mut(i) {
            Some(Table::Group(t)) => Ok(t),
            _ => Err(SpateError::internal(format!("table {i} is no group table"))),
        }
    }

    /// The ordered table at `i`.
    pub fn ordered(&mut self, i: usize) -> Result<&mut OrderedTable> {
        match self.tables.get_mut(i) {
            Some(Table::Ordered(t)) => Ok(t),
            _ => Err(SpateError::internal(format!("table {i} is no ordered table"))),
        }
    }

    /// Lends `count` tables from `first` on to an operator within an operator; empty ones stand
    /// in their places until [`Self::take_back`].
    pub(crate) fn lend(&mut self, first: usize, count: usize) -> Self {
        let end = first.saturating_add(count).min(self.tables.len());
        let lent = self.tables.get_mut(first..end).into_iter().flatten();
        Self { tables: lent.map(|t| std::mem::replace(t, Table::Ordered(OrderedTable::new()))).collect() }
    }

    /// Takes back what was lent from `first` on.
    pub(crate) fn take_back(&mut self, first: usize, lent: Self) {
        for (place, table) in self.tables.iter_mut().skip(first).zip(lent.tables) {
            *place = table;
        }
    }

    /// All tables, to borrow several at once.
    pub fn all(&mut self) -> &mut [Table] {
        &mut self.tables
    }

    /// What changed since the last call (everything, if `full`), one segment per table.
    pub fn snapshot(&mut self, full: bool) -> Result<Vec<TableSegment>> {
        self.tables
            .iter_mut()
            .map(|t| match t {
                Table::Bag(t) => t.snapshot(full),
                Table::Group(t) => t.snapshot(full),
                Table::Ordered(t) => t.snapshot(full),
            })
            .collect()
    }

    /// Fills empty tables from a chain of snapshots, oldest first.
    pub fn restore(&mut self, chain: &[Vec<TableSegment>]) -> Result<()> {
        for (i, t) in self.tables.iter_mut().enumerate() {
            let segments: Vec<&TableSegment> = chain.iter().filter_map(|c| c.get(i)).collect();
            match t {
                Table::Bag(t) => t.restore(&segments)?,
                Table::Group(t) => t.restore(&segments)?,
                Table::Ordered(t) => t.restore(&segments)?,
            }
        }
        Ok(())
    }

    /// Bytes held.
    pub fn memory_size(&self) -> usize {
        self.tables
            .iter()
            .map(|t| match t {
                Table::Bag(t) => t.memory_size(),
                Table::Group(t) => t.memory_size(),
                Table::Ordered(t) => t.memory_size(),
            })
            .sum()
    }
}
