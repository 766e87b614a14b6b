//! What the planner derives of an operator's output. EXPLAIN shows it, operators rely on it, and
//! `sql-tests/tests/suites/properties.rs` holds it against what is really put out.

/// What the planner derived about an output; operators may rely on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Properties {
    /// Every weight is positive: nothing is ever taken back.
    pub append_only: bool,
    /// Columns that identify a row (no two rows of the result agree on them).
    pub stream_key: Option<Vec<usize>>,
    /// Columns that the watermark speaks of.
    pub watermarks: Vec<WatermarkColumn>,
    /// How rows change that stay: one entry per column. `None` if rows may go for good, and of
    /// append-only rows, all of whose columns are [`Motion::Fixed`]: see [`Properties::motions`].
    pub motion: Option<Vec<Motion>>,
    /// Of rows that stay: what is taken back may be in another task than what comes instead.
    pub scattered: bool,
    /// What of the order in which rows come decides the result.
    pub order: Order,
    /// How rows are spread over parallel tasks.
    pub distribution: Distribution,
}

impl Properties {
    /// How the columns of rows change, of which none ever goes for good; `None` if some may.
    pub fn motions(&self, width: usize) -> Option<Vec<Motion>> {
        if self.append_only { Some(vec![Motion::Fixed; width]) } else { self.motion.clone() }
    }
}

/// How the value of a column changes over the epochs, of rows that stay: each row that is taken back
/// comes again in the same epoch, with all fixed columns as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Motion {
    /// Never.
    Fixed,
    /// It only grows, in the order of ORDER BY; NULL may come before all values, and never after one.
    Rising,
    /// It only shrinks; NULL may come before all values, and never after one.
    Falling,
    /// In any way.
    Free,
}

/// What of the order of rows that come decides the result. If nothing does, the same rows give the
/// same result, bit by bit, however they are shuffled within epochs and over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    /// Sums of floats are rounded: the last digits follow from the order of the additions.
    pub digits: bool,
    /// Which rows come in which epoch.
    pub epochs: bool,
    /// Which record of a key comes last (or first).
    pub records: bool,
}

impl Order {
    /// What decides the result of an operator over both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            digits: self.digits || other.digits,
            epochs: self.epochs || other.epochs,
            records: self.records || other.records,
        }
    }

    /// Whether nothing of it does.
    pub fn is_free(self) -> bool {
        self == Self::default()
    }
}

/// How a column relates to the edge's watermark `w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatermarkColumn {
    /// Index of the column (a timestamp of microseconds).
    pub column: usize,
    /// What the column holds.
    pub kind: WatermarkKind,
}

/// When a value of a watermark column can get no more rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatermarkKind {
    /// An event time `t`: final once `t < w`.
    EventTime,
    /// Start `s` of a window of `size_us` microseconds: final once `s + size_us <= w`.
    WindowStart {
        /// Length of the window in microseconds.
        size_us: i64,
    },
    /// End `e` of a window: final once `e <= w`.
    WindowEnd,
}

impl WatermarkKind {
    /// The bound `b` for which exactly the values `< b` are final under watermark `w`.
    pub fn final_below(self, w: i64) -> i64 {
        match self {
            Self::EventTime => w,
            Self::WindowStart { size_us } => w.saturating_sub(size_us).saturating_add(1),
            Self::WindowEnd => w.saturating_add(1),
        }
    }
}

/// How rows are spread over the parallel tasks of a fragment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Distribution {
    /// Anyhow.
    #[default]
    Any,
    /// All in one task.
    Single,
    /// By the vnode of these columns.
    Hash(Vec<usize>),
    /// All rows in every task.
    Broadcast,
}
