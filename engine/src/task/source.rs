//! The source leaf: reads the splits of a connector, cuts epochs at ticks, derives the
//! watermark and drops late rows.
//!
//! The watermark of a lane (a file, of which a task may read every nth part) is the greatest event
//! time seen in it, less the declared delay; one not begun yet holds it at −∞, one that has ended at +∞. The source-wide
//! watermark (all tasks) at the end of epoch e−1 judges which rows of e are late: it follows
//! from the ranges and ticks of the epochs alone, so a replay judges the same way. With an idle
//! timeout see [`super::idle`].

mod marks;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::kernels::{aggregate, boolean};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};

use super::events::{Events, TaskId};
use super::executor::Step;
use super::idle::{Mark, SourceGroup};
use super::leaf::{LeafBarrier, LeafPoll};
use super::metrics::LeafMetrics;
use super::ticks::TickBoard;
use crate::connector::{OnError, Polled, SourceConnector, Split, SplitReader};
use crate::env::Clock;
use crate::exchange::Spill;
use crate::plan::{ExprRef, SourceSpec};
use crate::types::{Delta, Epoch, Result, SpateError, SplitRange, Tick, WATERMARK_MIN, Watermark};

/// Rows that one source task puts into one epoch at the most.
pub const EPOCH_MAX_ROWS: usize = 1 << 23;
/// Bytes that one source task puts into one epoch at the most.
pub const EPOCH_MAX_BYTES: usize = 64 << 20;
/// The same for a source that is read in bulk.
const BULK_MAX_BYTES: usize = 128 << 20;
/// How long a source waits before it looks again whether the exchanges have room.
const CROWDED_WAIT: Duration = Duration::from_millis(2);
const BATCH_ROWS: usize = 8192;
/// How much longer a source waits each time before it looks again for rows of the open epoch.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Ranges of one epoch at the most; then the rest is left for the next one.
const EPOCH_MAX_RANGES: usize = 4096;

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct SplitState {
    split: Split,
    /// Offset that the last closed epoch ended at.
    offset: u64,
    /// Greatest event time seen up to there.
    max_time: Option<i64>,
    ended: bool,
    /// Time of the last tick at which it had given something; at first of the tick that found it.
    moved_us: Option<i64>,
}

/// Where a source leaf stood at a barrier.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SourceState {
    splits: Vec<SplitState>,
    waiting: Vec<Split>,
    late_below: Watermark,
    ended: bool,
    /// Time of the first tick.
    began_us: Option<i64>,
    posted: Watermark,
    idle: bool,
}

struct OpenSplit {
    closed: SplitState,
    /// Offset up to which the open epoch's ranges go.
    noted: u64,
    reader: Option<Box<dyn SplitReader>>,
    max_time: Option<i64>,
    ended: bool,
}

/// What a source leaf works with.
pub struct SourceContext {
    /// The task it belongs to.
    pub task: TaskId,
    /// Its position among the task's leaves.
    pub leaf: usize,
    /// Where rows come from.
    pub connector: Arc<dyn SourceConnector>,
    /// Shared with the other tasks of the source.
    pub group: Arc<SourceGroup>,
    /// Ticks.
    pub board: Arc<TickBoard>,
    /// Reports.
    pub events: Arc<dyn Events>,
    /// Counters.
    pub metrics: Arc<LeafMetrics>,
    /// Monotonic time, for discovering splits.
    pub clock: Arc<dyn Clock>,
    /// First epoch of the job.
    pub start: Epoch,
    /// Rows that the leaf puts into one epoch at the most.
    pub epoch_rows: usize,
    /// What a record that cannot be decoded does.
    pub on_error: OnError,
    /// The filter through which all rows go next, if there is one.
    pub wanted: Option<ExprRef>,
    /// Budget of the exchanges: a source waits while they are crowded. `None` where exchanges keep
    /// epochs for replay, since then waiting frees nothing.
    pub spill: Option<Arc<Spill>>,
}

/// A source leaf.
pub struct SourceLeaf {
    ctx: SourceContext,
    spec: SourceSpec,
    tasks: usize,
    open: Vec<OpenSplit>,
    waiting: std::collections::VecDeque<Split>,
    known: BTreeSet<Arc<str>>,
    /// How many splits the connector has told of, once it was asked.
    listed: Option<usize>,
    /// Splits of a watching source that were there from the start and that nobody has looked into:
    /// the first epoch is not closed before, so that none of them is late because of another.
    unread: BTreeSet<Arc<str>>,
    /// What has been read of the open epoch, in this order: a replay reads the same.
    ranges: Vec<SplitRange>,
    /// Number of splits visited in this pass over them.
    cursor: usize,
    /// Passes in which all splits had nothing more to give, in this epoch.
    passes: u32,
    /// When the next pass is due, by monotonic time.
    next_pass: Duration,
    /// The split visited first, of how many that were open when the epoch began.
    rotation: (usize, usize),
    buffer: std::collections::VecDeque<Delta>,
    /// Late rows of the open epoch: told of once, when it is closed.
    late: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    asked: bool,
    /// The connector has had nothing to give at some time.
    paused: bool,
    /// All splits have ended and none can come.
    ended: bool,
    /// Watermark below which rows of the open epoch are late.
    late_below: Option<Watermark>,
    last_late_below: Watermark,
    /// Time of the first tick.
    began_us: Option<i64>,
    /// The watermark of the last closed epoch, and when (by ticks) another split is let go.
    posted: Watermark,
    /// Nothing had come for long at its end.
    idle: bool,
    due_us: Option<i64>,
    next_discovery: Duration,
    started: bool,
}

impl std::fmt::Debug for SourceLeaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceLeaf").field("source", &self.spec.name).finish_non_exhaustive()
    }
}

enum Read {
    Data(Delta),
    Wait,
    WaitFor(Duration),
}

impl SourceLeaf {
    /// A leaf for one of `tasks` tasks.
    pub fn new(ctx: SourceContext, spec: SourceSpec, tasks: usize) -> Self {
        Self {
            ctx,
            spec,
            tasks,
            open: Vec::new(),
            waiting: Default::default(),
            known: Default::default(),
            listed: None,
            unread: Default::default(),
            ranges: Vec::new(),
            cursor: 0,
            passes: 0,
            next_pass: Duration::ZERO,
            rotation: (0, 0),
            buffer: Default::default(),
            late: Vec::new(),
            rows: 0,
            bytes: 0,
            asked: false,
            paused: false,
            ended: false,
            late_below: None,
            last_late_below: WATERMARK_MIN,
            began_us: None,
            posted: WATERMARK_MIN,
            idle: false,
            due_us: None,
            next_discovery: Duration::ZERO,
            started: false,
        }
    }

    pub(super) fn poll(&mut self, epoch: Epoch) -> Result<LeafPoll> {
        if let Some(d) = self.buffer.pop_front() {
            return Ok(LeafPoll::Data(d));
        }
        // What splits there are must be known before an epoch is closed, also without a read.
        if !self.started {
            self.discover()?;
        }
        if let Some(ranges) = self.recorded(epoch) {
            return self.replay(epoch, &ranges);
        }
        if let Some(tick) = self.ctx.board.get(epoch) {
            if !self.unread.is_empty()
                && let Read::Data(d) = self.read(epoch)?
            {
                return Ok(LeafPoll::Data(d));
            }
            self.unread.clear();
            return self.close(tick, None);
        }
        self.follow(epoch);
        Ok(match self.read(epoch)? {
            Read::Data(d) => LeafPoll::Data(d),
            Read::Wait => LeafPoll::Wait,
            Read::WaitFor(d) => LeafPoll::WaitFor(d),
        })
    }

    fn recorded(&self, epoch: Epoch) -> Option<Arc<[SplitRange]>> {
        self.ctx.events.replay(self.ctx.task, self.ctx.leaf, epoch)
    }

    pub(super) fn background(&mut self, epoch: Epoch) -> Result<Step> {
        if self.ctx.board.get(epoch).is_some() || self.recorded(epoch).is_some() {
            return Ok(Step::Wait);
        }
        self.follow(epoch);
        Ok(match self.read(epoch)? {
            Read::Data(d) => {
                self.buffer.push_back(d);
                Step::Again
            }
            Read::Wait => Step::Wait,
            Read::WaitFor(d) => Step::WaitFor(d),
        })
    }

    fn discover(&mut self) -> Result<()> {
        let now = self.ctx.clock.monotonic();
        if self.started && (self.ctx.connector.discover_every().is_none() || now < self.next_discovery) {
            return Ok(());
        }
        if let Some(every) = self.ctx.connector.discover_every() {
            self.next_discovery = now + every;
        }
        let watch = self.ctx.connector.discover_every().is_some();
        let splits = match self.listed {
            // The first look is a task's own: it must see all that is there.
            None => self.ctx.connector.splits(self.spec.in_order, self.tasks)?,
            Some(known) => self.ctx.connector.more_splits(known, self.spec.in_order, self.tasks)?,
        };
        self.listed = Some(self.listed.unwrap_or(0) + splits.len());
        for (i, s) in splits.into_iter().enumerate() {
            // A watching source hands splits out by name, since their number changes.
            let owner = if watch {
                xxhash_rust::xxh3::xxh3_64(s.id.as_bytes()) as usize % self.tasks.max(1)
            } else {
                i % self.tasks.max(1)
            };
            if owner == self.ctx.task.index as usize && self.known.insert(s.id.clone()) {
                if watch && !self.started {
                    self.unread.insert(s.id.clone());
                }
                self.waiting.push_back(s);
            }
        }
        self.started = true;
        Ok(())
    }

    fn open_next(&mut self) -> Result<()> {
        let watch = self.ctx.connector.discover_every().is_some();
        while !self.waiting.is_empty() {
            let busy = self.open.iter().any(|s| !s.ended);
            if busy && !watch {
                break;
            }
            if let Some(split) = self.waiting.pop_front() {
                self.open_split(split)?;
            }
        }
        Ok(())
    }

    fn open_split(&mut self, split: Split) -> Result<()> {
        let reader = self.reader(&split, split.start)?;
        let offset = split.start;
        // The lane goes on where it stood.
        let lane = self.open.iter().filter(|s| s.closed.split.lane == split.lane);
        let max_time = lane.filter_map(|s| s.max_time).max();
        let closed = SplitState { split, offset, max_time: None, ended: false, moved_us: None };
        self.open.push(OpenSplit { closed, noted: offset, reader: Some(reader), max_time, ended: false });
        Ok(())
    }

    fn read(&mut self, epoch: Epoch) -> Result<Read> {
        let Some(late_below) = self.lateness(epoch) else { return Ok(Read::Wait) };
        if self.is_full() {
            self.ask(true);
            return Ok(Read::Wait);
        }
        if self.ctx.spill.as_ref().is_some_and(|s| s.is_crowded()) {
            // Operators are behind: reading on would only move their input to disk.
            if self.rows > 0 {
                self.ask(true);
            }
            return Ok(Read::WaitFor(CROWDED_WAIT));
        }
        if self.passes > 0 && self.cursor == 0 {
            let rest = self.next_pass.saturating_sub(self.ctx.clock.monotonic());
            if !rest.is_zero() {
                return Ok(Read::WaitFor(rest));
            }
        }
        self.discover()?;
        self.open_next()?;
        let mut wait: Option<Duration> = self.ctx.connector.discover_every();
        while self.cursor < self.open.len() {
            let i = self.visit(self.cursor);
            if !self.open[i].ended {
                match self.poll_split(i, None)? {
                    Some(Polled::Batch { rows, dead, progress }) => {
                        if let Some((done, total)) = progress {
                            self.ctx.metrics.done.store(done, Ordering::Relaxed);
                            self.ctx.metrics.total.store(total, Ordering::Relaxed);
                        }
                        let delta = self.accept(i, epoch, rows, dead, late_below)?;
                        self.ask_if_live();
                        return Ok(Read::Data(delta));
                    }
                    Some(Polled::Pending(d)) => {
                        wait = Some(wait.map_or(d, |w| w.min(d)));
                        self.paused = true;
                        if self.rows > 0 {
                            self.ask_if_live();
                        }
                    }
                    Some(Polled::End) | None => {
                        self.open[i].ended = true;
                        self.ask_if_live();
                        self.open_next()?;
                        self.cursor += 1;
                        return Ok(Read::Data(self.empty()));
                    }
                }
            }
            self.cursor += 1;
        }
        if self.asked && self.rows > 0 {
            if self.ranges.len() >= EPOCH_MAX_RANGES {
                return Ok(Read::Wait);
            }
            // What comes until the tick is still in this epoch, but not for the price of reading
            // every row by itself.
            self.passes += 1;
            wait = wait.map(|w| w.max(LOOK_AGAIN * self.passes));
            self.next_pass = wait.map_or(Duration::ZERO, |w| self.ctx.clock.monotonic() + w);
        }
        self.cursor = 0;
        if wait.is_none() && self.waiting.is_empty() && !self.ended && self.open.iter().all(|s| s.ended) {
            // The end is news: an epoch must carry the watermark +∞.
            self.ask(true);
        }
        Ok(wait.map_or(Read::Wait, Read::WaitFor))
    }

    fn is_full(&self) -> bool {
        let bytes = if self.is_bulk() { BULK_MAX_BYTES } else { EPOCH_MAX_BYTES };
        self.rows >= self.ctx.epoch_rows || self.bytes >= bytes
    }

    fn empty(&self) -> Delta {
        Delta::insert(RecordBatch::new_empty(self.schema()))
    }

    fn schema(&self) -> arrow::datatypes::SchemaRef {
        let all = self.ctx.connector.schema();
        match all.project(&self.spec.projection) {
            Ok(s) => Arc::new(s),
            Err(_) => all,
        }
    }

    /// Index of the split that is visited `k`th in this epoch.
    fn visit(&self, k: usize) -> usize {
        // Splits opened within the epoch come last.
        if k < self.rotation.1 { (k + self.rotation.0) % self.rotation.1 } else { k }
    }

    fn poll_split(&mut self, i: usize, until: Option<u64>) -> Result<Option<Polled>> {
        self.unread.remove(&self.open[i].closed.split.id);
        let room = self.ctx.epoch_rows.saturating_sub(self.rows).clamp(1, BATCH_ROWS);
        let name = self.spec.name.clone();
        let polled = match &mut self.open[i].reader {
            Some(r) => r.poll(room, until).map_err(|e| e.context(format!("source {name}")))?,
            None => return Ok(None),
        };
        self.note(i);
        Ok(Some(polled))
    }

    /// Adds what was just read of a split to the ranges of the open epoch.
    fn note(&mut self, i: usize) {
        let s = &mut self.open[i];
        let end = s.reader.as_ref().map_or(s.noted, |r| r.offset());
        let start = std::mem::replace(&mut s.noted, end);
        if start == end {
            return;
        }
        match self.ranges.last_mut().filter(|r| r.split == s.closed.split.id) {
            Some(last) => last.end = end,
            None => self.ranges.push(SplitRange {
                source: self.spec.name.clone(),
                split: s.closed.split.id.clone(),
                start,
                end,
            }),
        }
    }

    /// Watermark that judges lateness in `epoch`, once it is known.
    fn lateness(&mut self, epoch: Epoch) -> Option<Watermark> {
        if self.spec.watermark.is_none() {
            return Some(WATERMARK_MIN);
        }
        if self.late_below.is_none() {
            self.late_below =
                if epoch <= self.ctx.start { Some(WATERMARK_MIN) } else { self.ctx.group.watermark(epoch - 1) };
            if let Some(w) = self.late_below {
                self.last_late_below = w;
            }
        }
        self.late_below
    }

    fn accept(
        &mut self,
        i: usize,
        epoch: Epoch,
        rows: RecordBatch,
        dead: Vec<crate::connector::DeadLetter>,
        late_below: Watermark,
    ) -> Result<Delta> {
        if !dead.is_empty() {
            let failed = self.ctx.on_error.check(&self.spec.name, &dead);
            self.ctx.events.dead_letters(&self.spec.name, dead);
            failed?;
        }
        let rows = match self.spec.watermark {
            Some(w) => {
                let column = rows
                    .columns()
                    .get(w.column)
                    .filter(|c| matches!(c.data_type(), DataType::Timestamp(TimeUnit::Microsecond, _)))
                    .ok_or_else(|| SpateError::internal("watermark column is no timestamp"))?
                    .clone();
                let times = column.as_primitive::<TimestampMicrosecondType>();
                if let Some(max) = aggregate::max(times) {
                    let slot = &mut self.open[i].max_time;
                    *slot = Some(slot.map_or(max, |m: i64| m.max(max)));
                }
                let (on_time, late) = split_late(&rows, times, late_below)?;
                if let Some(late) = late {
                    self.late.push(late);
                }
                on_time
            }
            None => rows,
        };
        self.rows += rows.num_rows();
        self.bytes += rows.get_array_memory_size();
        self.ctx.metrics.add_rows(rows.num_rows());
        if rows.num_rows() > 0 {
            self.ctx.events.accepted(self.ctx.task, self.ctx.leaf, epoch, &rows);
        }
        Ok(Delta::insert(rows))
    }

    /// A bounded source that has never had to wait is read in bulk: its epochs end at a cap or with
    /// the input, since nobody can look in between and every epoch costs a change of each group
    /// that it touches.
    fn is_bulk(&self) -> bool {
        self.ctx.connector.bounded() && self.ctx.connector.discover_every().is_none() && !self.paused
    }

    /// Asks for a tick within the epoch interval.
    fn ask_if_live(&mut self) {
        if !self.is_bulk() {
            self.ask(false);
        }
    }

    fn ask(&mut self, now: bool) {
        if now || !self.asked {
            self.asked = true;
            self.ctx.events.want_tick(self.ctx.task, now);
        }
    }

    /// Reads up to the recorded ends of an epoch that was closed before.
    fn replay(&mut self, epoch: Epoch, ranges: &[SplitRange]) -> Result<LeafPoll> {
        let Some(late_below) = self.lateness(epoch) else { return Ok(LeafPoll::Wait) };
        self.discover()?;
        for r in ranges {
            if let Some(w) = self.waiting.iter().position(|w| w.id == r.split)
                && let Some(split) = self.waiting.remove(w)
            {
                self.open_split(split)?;
            }
            let Some(i) = self.open.iter().position(|s| s.closed.split.id == r.split) else {
                return Err(SpateError::internal(format!("split {} of a replayed epoch is gone", r.split)));
            };
            let at = self.open[i].reader.as_ref().map_or(r.end, |x| x.offset());
            if at < r.end {
                match self.poll_split(i, Some(r.end))? {
                    Some(Polled::Batch { rows, .. }) => {
                        let delta = self.accept(i, epoch, rows, Vec::new(), late_below)?;
                        return Ok(LeafPoll::Data(delta));
                    }
                    Some(Polled::Pending(d)) => return Ok(LeafPoll::WaitFor(d)),
                    Some(Polled::End) if self.open[i].reader.as_ref().is_some_and(|x| x.offset() >= r.end) => {}
                    Some(Polled::End) | None => {
                        return Err(SpateError::internal(format!("split {} ends before its recorded range", r.split)));
                    }
                }
            }
        }
        match self.ctx.board.get(epoch) {
            Some(tick) => {
                self.settle_ends(ranges);
                self.close(tick, Some(ranges))
            }
            None => Ok(LeafPoll::Wait),
        }
    }

    /// After a replayed epoch, splits whose recorded range says that they ended there have ended.
    fn settle_ends(&mut self, ranges: &[SplitRange]) {
        for s in &mut self.open {
            s.ended |= ranges.iter().any(|r| r.split == s.closed.split.id && r.end == r.start);
        }
    }

    fn close(&mut self, tick: Tick, recorded: Option<&[SplitRange]>) -> Result<LeafPoll> {
        if !self.knows_others(tick.epoch) {
            return Ok(LeafPoll::Wait);
        }
        let mut ranges = std::mem::take(&mut self.ranges);
        for k in 0..self.open.len() {
            let i = self.visit(k);
            let s = &mut self.open[i];
            let offset = s.noted;
            // An empty range says that the split has ended.
            if s.ended && !s.closed.ended {
                ranges.push(SplitRange {
                    source: self.spec.name.clone(),
                    split: s.closed.split.id.clone(),
                    start: offset,
                    end: offset,
                });
            }
            if offset != s.closed.offset || s.closed.moved_us.is_none() {
                s.closed.moved_us = Some(tick.now_us);
            }
            s.closed.offset = offset;
            s.closed.max_time = s.max_time;
            s.closed.ended = s.ended;
            if s.ended {
                s.reader = None;
            }
        }
        if let Some(recorded) = recorded {
            // The order of the splits follows the first reading, which this one cannot know.
            if ranges.len() != recorded.len() || ranges.iter().any(|r| !recorded.contains(r)) {
                return Err(SpateError::internal(format!("replay of epoch {} covers other ranges", tick.epoch)));
            }
            ranges = recorded.to_vec();
        }
        let next = if self.is_full() { self.visit(self.cursor) + 1 } else { 0 };
        self.rotation = (next % self.open.len().max(1), self.open.len());
        self.cursor = 0;
        self.passes = 0;
        let watch = self.ctx.connector.discover_every().is_some();
        let all_ended = self.started && self.waiting.is_empty() && self.open.iter().all(|s| s.ended);
        self.ended = all_ended && !watch;
        self.began_us.get_or_insert(tick.now_us);
        let mark = self.mark(tick);
        let watermark = mark.watermark;
        self.posted = watermark;
        self.idle = mark.idle;
        self.ctx.metrics.watermark.store(watermark, Ordering::Relaxed);
        let ranges: Arc<[SplitRange]> = ranges.into();
        let late = std::mem::take(&mut self.late);
        if recorded.is_none() {
            late.into_iter().for_each(|rows| self.ctx.events.late(&self.spec.name, tick.epoch, rows));
        }
        self.ctx.events.closed(self.ctx.task, self.ctx.leaf, tick, &ranges);
        self.ctx.group.post(tick.epoch, self.ctx.task.index as usize, mark)?;
        self.rows = 0;
        self.bytes = 0;
        self.asked = false;
        self.late_below = None;
        let caught_up = self.ended || !self.ctx.connector.bounded();
        Ok(LeafPoll::Closed(LeafBarrier { tick, watermark, ranges, caught_up }))
    }

    pub(super) fn state(&self) -> SourceState {
        SourceState {
            splits: self.open.iter().map(|s| s.closed.clone()).collect(),
            waiting: self.waiting.iter().cloned().collect(),
            late_below: self.last_late_below,
            ended: self.ended,
            began_us: self.began_us,
            posted: self.posted,
            idle: self.idle,
        }
    }

    /// Goes on from a state that was at the end of `epoch`.
    pub(super) fn restore(&mut self, state: &SourceState, epoch: Epoch) -> Result<()> {
        self.waiting = state.waiting.iter().cloned().collect();
        self.known = state.waiting.iter().map(|s| s.id.clone()).collect();
        self.known.extend(state.splits.iter().map(|s| s.split.id.clone()));
        self.open = state
            .splits
            .iter()
            .map(|s| OpenSplit {
                closed: s.clone(),
                noted: s.offset,
                reader: None,
                max_time: s.max_time,
                ended: s.ended,
            })
            .collect();
        self.last_late_below = state.late_below;
        self.began_us = state.began_us;
        self.posted = state.posted;
        self.idle = state.idle;
        self.ended = state.ended;
        self.started = !state.splits.is_empty() || !state.waiting.is_empty();
        // The other tasks judge by it what is late, also if all come back at once.
        let mark = Mark { watermark: state.posted, idle: state.idle };
        self.ctx.group.post(epoch, self.ctx.task.index as usize, mark)
    }

    /// Opens the readers of restored splits where they left off.
    pub(super) fn reopen(&mut self) -> Result<()> {
        for i in 0..self.open.len() {
            let s = &self.open[i];
            if !s.ended && s.reader.is_none() {
                self.open[i].reader = Some(self.reader(&s.closed.split, s.closed.offset)?);
            }
        }
        Ok(())
    }

    fn reader(&self, split: &Split, offset: u64) -> Result<Box<dyn SplitReader>> {
        let SourceContext { connector, wanted, .. } = &self.ctx;
        match wanted {
            // What is not read tells no event times.
            Some(wanted) if self.spec.watermark.is_none() => {
                connector.open_for(split, offset, &self.spec.projection, wanted)
            }
            _ => connector.open(split, offset, &self.spec.projection),
        }
    }
}

/// Parts rows into those on time and the late ones (`None` if there are none). NULL times are
/// on time.
fn split_late(
    rows: &RecordBatch,
    times: &arrow::array::PrimitiveArray<TimestampMicrosecondType>,
    late_below: Watermark,
) -> Result<(RecordBatch, Option<RecordBatch>)> {
    if late_below == WATERMARK_MIN || aggregate::min(times).is_none_or(|m| m >= late_below) {
        return Ok((rows.clone(), None));
    }
    let late: BooleanArray = (0..times.len()).map(|i| Some(times.is_valid(i) && times.value(i) < late_below)).collect();
    let on_time = arrow::compute::filter_record_batch(rows, &boolean::not(&late)?)?;
    let late = arrow::compute::filter_record_batch(rows, &late)?;
    Ok((on_time, Some(late)))
}
