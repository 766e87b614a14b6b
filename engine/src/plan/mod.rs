//! Stream plans as plain data: what each operator is to do, with the properties that
//! the planner derived. One spec per operator; `operator/` mirrors the names.

mod explain;
pub mod fragment;
mod props;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_expr::Accumulator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::window::WindowExpr;

pub use self::props::{Distribution, Motion, Order, Properties, WatermarkColumn, WatermarkKind};
use crate::types::moments::Moment;

/// A bound expression over the operator's input columns.
pub type ExprRef = Arc<dyn PhysicalExpr>;

/// A bound window function over rows of one partition in order.
pub type WindowRef = Arc<dyn WindowExpr>;

/// A node of the plan: an operator, its inputs and what is known of its output.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamNode {
    /// What it does.
    pub op: OpSpec,
    /// Where its input comes from, in port order.
    pub inputs: Vec<StreamNode>,
    /// Shape of the output rows.
    pub schema: SchemaRef,
    /// What is known of the output.
    pub props: Properties,
}

/// Identifies a table, source, view or sink within the engine.
pub type ObjectId = u64;

/// Every operator there is.
#[derive(Debug, Clone, PartialEq)]
pub enum OpSpec {
    /// Reads a connector.
    Source(SourceSpec),
    /// Reads a table's or view's snapshot, then its changes.
    Scan(ScanSpec),
    /// Constant rows, once, in the first epoch.
    Values(ValuesSpec),
    /// Keeps rows for which a predicate is true.
    Filter(FilterSpec),
    /// Lets rows in and out as time goes on.
    Temporal(TemporalSpec),
    /// Computes columns.
    Project(ProjectSpec),
    /// One row per element of list columns.
    Unnest(UnnestSpec),
    /// Rows as often as a column says.
    Repeat(RepeatSpec),
    /// Rows repeated per grouping set.
    Expand(ExpandSpec),
    /// GROUP BY.
    Aggregate(AggregateSpec),
    /// SESSION windows.
    Session(SessionSpec),
    /// Hash join, semi and anti join.
    Join(JoinSpec),
    /// Join with the row nearest in time.
    AsOf(AsOfSpec),
    /// Join with the rows that there are when a row comes.
    Lookup(LookupSpec),
    /// UNION ALL.
    Union,
    /// SELECT DISTINCT over whole rows.
    Distinct,
    /// What an epoch's changes of equal rows come to.
    Net,
    /// Records by key as changes of rows.
    Upsert(UpsertSpec),
    /// ORDER BY … LIMIT … OFFSET.
    TopN(TopNSpec),
    /// Window functions.
    Over(OverSpec),
    /// Top-n per group.
    GroupTopN(GroupTopNSpec),
    /// Holds rows back until their windows close.
    Close(CloseSpec),
    /// WITH RECURSIVE.
    Recursive(RecursiveSpec),
    /// Within the step of a recursion: rows of an input of it, or those found last.
    StepInput(usize),
    /// Moves rows to the tasks that need them.
    Exchange(ExchangeSpec),
    /// Keeps the result readable.
    Materialize(MaterializeSpec),
    /// Writes to a connector.
    Sink(SinkSpec),
}

/// Reads a connector.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceSpec {
    /// The catalog object.
    pub id: ObjectId,
    /// Its qualified name (for dead letters and EXPLAIN).
    pub name: Arc<str>,
    /// Columns to deliver, as indices into the source's schema, rising.
    pub projection: Vec<usize>,
    /// The declared watermark, over *output* columns.
    pub watermark: Option<WatermarkSpec>,
    /// Whether the order of records within a file or partition matters.
    pub in_order: bool,
}

/// Makes changes of rows from records that speak of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpsertSpec {
    /// Columns that tell rows apart.
    pub key: Vec<usize>,
    /// The first record of a key counts, not the last.
    pub keep_first: bool,
    /// The input has one more column, which says whether a record sets its key's row (1) or takes
    /// it away (-1).
    pub with_change: bool,
}

/// `WATERMARK FOR column AS column - delay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatermarkSpec {
    /// The event-time column.
    pub column: usize,
    /// How far the watermark stays behind the greatest event time seen, in microseconds.
    pub delay_us: i64,
    /// A split from which nothing has come for so many microseconds does not hold the watermark back
    /// any more.
    pub idle_us: Option<i64>,
}

/// Reads a table or view of the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanSpec {
    /// The catalog object.
    pub id: ObjectId,
    /// Its qualified name.
    pub name: Arc<str>,
    /// Columns to deliver, as indices into the object's schema.
    pub projection: Vec<usize>,
}

/// Constant rows.
#[derive(Debug, Clone, PartialEq)]
pub struct ValuesSpec {
    /// The rows.
    pub rows: RecordBatch,
}

/// A predicate.
#[derive(Debug, Clone)]
pub struct FilterSpec {
    /// Boolean; NULL drops the row.
    pub predicate: ExprRef,
}

impl PartialEq for FilterSpec {
    fn eq(&self, other: &Self) -> bool {
        self.predicate.as_ref() == other.predicate.as_ref()
    }
}

/// Conditions on `now()`; a row is in while all hold.
#[derive(Debug, Clone, PartialEq)]
pub struct TemporalSpec {
    /// The conditions.
    pub bounds: Vec<TemporalBound>,
}

/// A bound of the times at which a row is in.
#[derive(Debug, Clone)]
pub struct TemporalBound {
    /// A time of the row (microseconds).
    pub expr: ExprRef,
    /// Microseconds between it and the bound.
    pub shift_us: i64,
    /// The row leaves then; else it enters then.
    pub leave: bool,
}

impl PartialEq for TemporalBound {
    fn eq(&self, other: &Self) -> bool {
        self.expr.as_ref() == other.expr.as_ref() && self.shift_us == other.shift_us && self.leave == other.leave
    }
}

/// Output columns.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectSpec {
    /// One per output column.
    pub exprs: Vec<ExprRef>,
}

/// List columns to unfold.
#[derive(Debug, Clone, PartialEq)]
pub struct UnnestSpec {
    /// Input columns of type List to unfold side by side (shorter ones padded with NULL).
    pub columns: Vec<usize>,
    /// Whether a row whose lists are all NULL or empty gives one row with NULLs.
    pub preserve_nulls: bool,
}

/// Rows to repeat (INTERSECT ALL, EXCEPT ALL).
#[derive(Debug, Clone, PartialEq)]
pub struct RepeatSpec {
    /// Input column (a bigint) with the number of copies of its row.
    pub count: usize,
}

/// Grouping sets: the output's columns are the input's, the group columns (NULL where a set leaves
/// them out), and the set's number.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpandSpec {
    /// Group columns, among the input's.
    pub columns: Vec<usize>,
    /// The sets.
    pub sets: Vec<GroupingSet>,
}

/// One grouping set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupingSet {
    /// Which of the group columns it has.
    pub keep: Vec<bool>,
    /// Its number: as a group column of its own, and for `grouping()`.
    pub id: u64,
}

/// GROUP BY.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateSpec {
    /// Input columns that make the key; none means one global group, which has a row
    /// even when there is no input. Output columns: the keys, then the calls.
    pub group: Vec<usize>,
    /// Aggregate calls.
    pub calls: Vec<AggCall>,
    /// Whether input is append-only.
    pub append_only_input: bool,
    /// A group column with its watermark kind: closed groups are freed. The column is
    /// counted among the outputs, so it is also the place in `group`.
    pub window: Option<WatermarkColumn>,
    /// Emit a group only once its window has closed (then exactly once, weight +1).
    pub emit_on_close: bool,
    /// Values of the last group column (the number of a grouping set without columns) whose one group
    /// has a row even when there is no input.
    pub always: Vec<u64>,
    /// Whether it does the whole work.
    pub phase: Phase,
}

/// Which part of a GROUP BY an operator does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// All of it.
    Whole,
    /// Sums up an epoch's rows: its output is the keys and a column of bytes.
    Partial,
    /// Adds up what such operators put out. The spec's columns are those of their input, given here.
    Final(SchemaRef),
}

/// One aggregate call.
#[derive(Debug, Clone, PartialEq)]
pub struct AggCall {
    /// Function.
    pub func: AggFunc,
    /// Input column of the argument; `None` for `count(*)`.
    pub arg: Option<usize>,
    /// Input column of the second argument, if there is one.
    pub other: Option<usize>,
    /// Only distinct values count.
    pub distinct: bool,
    /// Boolean input column; rows where it is not true are left out.
    pub filter: Option<usize>,
    /// Of `min` and `max` over changes: rows stay, and their values move outwards only, so the least (or
    /// greatest) value ever seen is the answer.
    pub outward: bool,
    /// Type of the argument.
    pub arg_type: DataType,
    /// Type of the result, as DataFusion plans it.
    pub result_type: DataType,
    /// What [`AggFunc::Rows`] computes; it has no `arg`.
    pub rows: Option<RowsCall>,
}

/// An aggregate that is computed anew from the sorted rows of its group.
#[derive(Debug, Clone)]
pub struct RowsCall {
    /// Input columns that it reads, in the order by which the rows are sorted.
    pub columns: Vec<OrderBy>,
    /// Place in `columns` of what must not be NULL for a row to count (IGNORE NULLS).
    pub not_null: Option<usize>,
    /// So many rows from the start decide the result; `None` for all.
    pub first: Option<usize>,
    /// The function.
    pub function: Arc<dyn RowsFunction>,
}

impl PartialEq for RowsCall {
    fn eq(&self, other: &Self) -> bool {
        // Functions do not compare; the same one is equal to itself.
        self.columns == other.columns
            && self.not_null == other.not_null
            && self.first == other.first
            && Arc::ptr_eq(&self.function, &other.function)
    }
}

/// A function of sorted rows. Its text shows what it computes, with `$0`, `$1`, … for the columns.
pub trait RowsFunction: fmt::Debug + fmt::Display + Send + Sync {
    /// Starts with no rows. The accumulator takes the columns of the rows, in order. What fails in it
    /// for the data's sake is NULL in the end; its errors stop the query.
    fn start(&self) -> datafusion_common::Result<Box<dyn Accumulator>>;
}

/// Aggregates with incremental kernels, and all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggFunc {
    /// Number of rows, or of non-NULL values.
    Count,
    /// Sum.
    Sum,
    /// Mean.
    Avg,
    /// Least.
    Min,
    /// Greatest.
    Max,
    /// Whether all are true.
    BoolAnd,
    /// Whether any is true.
    BoolOr,
    /// Bits that all have.
    BitAnd,
    /// Bits that any has.
    BitOr,
    /// Bits that an odd number has.
    BitXor,
    /// Variances and the like, from exact sums.
    Moment(Moment),
    /// Any other: see [`RowsCall`].
    Rows,
}

/// SESSION windows: output columns are the input's, then the start and the end of the session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSpec {
    /// Sessions are cut among rows that agree on these columns.
    pub partition: Vec<usize>,
    /// The time of a row, a timestamp of microseconds.
    pub time: usize,
    /// A row that comes this many microseconds after the one before, or later, begins a session.
    pub gap_us: i64,
    /// Whether input is append-only and its watermark speaks of the time: then it closes and frees
    /// sessions.
    pub append_only_input: bool,
    /// Emit rows only once their session has closed (then exactly once).
    pub emit_on_close: bool,
}

/// The kinds of join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// Matches.
    Inner,
    /// Matches, and left rows without one.
    Left,
    /// Matches, and right rows without one.
    Right,
    /// Matches, and rows of both sides without one.
    Full,
    /// Left rows with a match, once each.
    Semi,
    /// Left rows without a match.
    Anti,
    /// Left rows, with a boolean column that says whether they have a match.
    Mark,
}

impl JoinKind {
    /// Whether the output is that of the left side, filtered or marked.
    pub fn keeps_left(self) -> bool {
        matches!(self, Self::Semi | Self::Anti | Self::Mark)
    }
}

/// Join: output columns are the left's, then the right's; of a semi and anti join the
/// left's, of a mark join the left's and the mark.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinSpec {
    /// Kind.
    pub kind: JoinKind,
    /// Key columns of the left input; as many as on the right, of equal types. May be
    /// empty (every pair is a candidate; both inputs in one task).
    pub left_keys: Vec<usize>,
    /// Key columns of the right input.
    pub right_keys: Vec<usize>,
    /// Whether NULL keys match each other (IS NOT DISTINCT FROM).
    pub null_equal: bool,
    /// What else must be true, over the left's columns and then the right's.
    pub filter: Option<ExprRef>,
    /// Whether both inputs are append-only.
    pub append_only_inputs: bool,
    /// What frees the rows of the left and of the right input (append-only inputs only).
    pub expire: [Option<Expiry>; 2],
    /// The least and the most that a left time is after a right one, in microseconds, when the
    /// output has watermarks of these times: they wait for the later of the two.
    pub apart: Option<(i64, i64)>,
}

/// When the rows of one side of a join meet no new row of the other side any more: once their
/// time is below what is final on the other side, moved by an offset. Rows without a time never
/// meet any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// The time among the side's columns.
    pub column: usize,
    /// The kind of the other side's time.
    pub other: WatermarkKind,
    /// What is added to it, in microseconds.
    pub offset_us: i64,
}

/// ASOF JOIN: output columns are the left's, then the right's. All key and time columns of a side
/// are different ones, of the same types on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsOfSpec {
    /// Key columns of the left input; may be empty.
    pub left_keys: Vec<usize>,
    /// Key columns of the right input.
    pub right_keys: Vec<usize>,
    /// Time of the left input.
    pub left_time: usize,
    /// Time of the right input.
    pub right_time: usize,
    /// The right row is the last before the left one; else the first after it.
    pub backward: bool,
    /// It is not of the same time.
    pub strict: bool,
    /// Left rows without a match are in the output.
    pub outer: bool,
    /// What the watermarks say of the times of both sides, if both are append-only: rows that no row to
    /// come can reach are freed.
    pub times: Option<[WatermarkKind; 2]>,
    /// Left rows go out only once nothing can change what they match (then exactly once).
    pub emit_on_close: bool,
}

/// Join of append-only rows with what the right input holds when they come: output columns are the
/// left's, then the right's. What was given is never taken back.
#[derive(Debug, Clone)]
pub struct LookupSpec {
    /// Key columns of the left input, at least one.
    pub left_keys: Vec<usize>,
    /// Key columns of the right input, of the same types.
    pub right_keys: Vec<usize>,
    /// What else must be true, over the left's columns and then the right's.
    pub filter: Option<ExprRef>,
    /// Left rows without a match are in the output.
    pub outer: bool,
}

impl PartialEq for LookupSpec {
    fn eq(&self, other: &Self) -> bool {
        self.left_keys == other.left_keys
            && self.right_keys == other.right_keys
            && self.filter == other.filter
            && self.outer == other.outer
    }
}

/// ORDER BY … LIMIT … OFFSET. Ties are broken by the whole row, so the planner appends
/// all other columns to `order`.
#[derive(Debug, Clone, PartialEq)]
pub struct TopNSpec {
    /// Sort columns, in order.
    pub order: Vec<OrderBy>,
    /// Rows to skip.
    pub offset: usize,
    /// Rows to keep after that; `None` keeps all.
    pub limit: Option<usize>,
}

/// Window functions (OVER): one column each, after the input's.
#[derive(Debug, Clone)]
pub struct OverSpec {
    /// PARTITION BY.
    pub partition: Vec<usize>,
    /// ORDER BY; the longest of all functions, which the others' begin.
    pub order: Vec<OrderBy>,
    /// The functions, in the order of their columns; those of a stage may read the columns of
    /// earlier stages.
    pub stages: Vec<Vec<WindowRef>>,
    /// A partition column that the watermark closes (append-only input only): closed partitions are
    /// freed.
    pub window: Option<WatermarkColumn>,
    /// Emit a partition only once its window has closed (then exactly once).
    pub emit_on_close: bool,
}

impl PartialEq for OverSpec {
    fn eq(&self, other: &Self) -> bool {
        // DataFusion's window expressions do not compare; the same one is equal to itself.
        let alike = |(a, b): (&Vec<WindowRef>, &Vec<WindowRef>)| {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| Arc::ptr_eq(x, y))
        };
        self.partition == other.partition
            && self.order == other.order
            && self.window == other.window
            && self.emit_on_close == other.emit_on_close
            && self.stages.len() == other.stages.len()
            && self.stages.iter().zip(&other.stages).all(alike)
    }
}

/// The rows of each partition whose number or rank is at most `limit`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupTopNSpec {
    /// PARTITION BY.
    pub partition: Vec<usize>,
    /// ORDER BY; what `row_number` needs is without ties but for equal rows.
    pub order: Vec<OrderBy>,
    /// How rows are ranked.
    pub kind: RankKind,
    /// Greatest rank.
    pub limit: usize,
    /// Whether the rank is a column, after the input's.
    pub with_rank: bool,
    /// Whether the input is append-only.
    pub append_only_input: bool,
    /// A partition column that the watermark closes (append-only input only): closed partitions are
    /// freed.
    pub window: Option<WatermarkColumn>,
    /// Emit a partition only once its window has closed (then exactly once).
    pub emit_on_close: bool,
}

/// Rows that wait until the watermark has passed their time; then they are final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseSpec {
    /// The time.
    pub time: WatermarkColumn,
    /// Whether the input is append-only.
    pub append_only_input: bool,
}

/// WITH RECURSIVE. The first input is the term without recursion, the others are the relations
/// that the recursive term reads besides itself; all in one task.
#[derive(Debug, Clone, PartialEq)]
pub struct RecursiveSpec {
    /// The recursive term; its leaves are [`OpSpec::StepInput`]: 0 for the rows found last, else
    /// the number of an input.
    pub step: Box<StreamNode>,
    /// UNION: each row once.
    pub distinct: bool,
    /// New rows of the other inputs take nothing back that the step gave.
    pub monotone: bool,
}

/// How rows are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RankKind {
    /// One after the other.
    RowNumber,
    /// Peers alike, by the rows before them.
    Rank,
    /// Peers alike, by the groups of peers before them.
    DenseRank,
}

/// One sort column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderBy {
    /// Input column.
    pub column: usize,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}

/// Where rows go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeSpec {
    /// Distribution after the exchange.
    pub to: Distribution,
}

/// Keeps the result readable.
#[derive(Debug, Clone, PartialEq)]
pub struct MaterializeSpec {
    /// The view or table.
    pub id: ObjectId,
    /// Its qualified name.
    pub name: Arc<str>,
}

/// Writes to a connector.
#[derive(Debug, Clone, PartialEq)]
pub struct SinkSpec {
    /// The catalog object.
    pub id: ObjectId,
    /// Its qualified name.
    pub name: Arc<str>,
}

impl OpSpec {
    /// The operator's name as EXPLAIN prints it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Source(_) => "Source",
            Self::Scan(_) => "Scan",
            Self::Values(_) => "Values",
            Self::Filter(_) => "Filter",
            Self::Temporal(_) => "Temporal",
            Self::Project(_) => "Project",
            Self::Unnest(_) => "Unnest",
            Self::Repeat(_) => "Repeat",
            Self::Expand(_) => "Expand",
            Self::Aggregate(_) => "Aggregate",
            Self::Session(_) => "Session",
            Self::Join(_) => "Join",
            Self::AsOf(_) => "AsOf",
            Self::Lookup(_) => "Lookup",
            Self::Union => "Union",
            Self::Distinct => "Distinct",
            Self::Net => "Net",
            Self::Upsert(_) => "Upsert",
            Self::TopN(_) => "TopN",
            Self::Over(_) => "Over",
            Self::GroupTopN(_) => "GroupTopN",
            Self::Close(_) => "Close",
            Self::Recursive(_) => "Recursive",
            Self::StepInput(_) => "StepInput",
            Self::Exchange(_) => "Exchange",
            Self::Materialize(_) => "Materialize",
            Self::Sink(_) => "Sink",
        }
    }
}

impl fmt::Display for AggFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::BoolAnd => "bool_and",
            Self::BoolOr => "bool_or",
            Self::BitAnd => "bit_and",
            Self::BitOr => "bit_or",
            Self::BitXor => "bit_xor",
            Self::Moment(m) => m.name(),
            Self::Rows => "rows",
        })
    }
}
