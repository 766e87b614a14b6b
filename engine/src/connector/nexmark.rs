//! The `nexmark` source: people, auctions and bids of the Nexmark benchmark. Event number n is a
//! function of the seed and n; an offset is an event number (counted over all three kinds).

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use nexmark::EventGenerator;
use nexmark::config::NexmarkConfig;
use nexmark::event::Event;

use super::nexmark_bid::{AUCTIONS, BidMaker, PERSONS, ROUND, last_auction, last_person};
use super::options::Opts;
use super::types::{batch, project};
use super::{Options, Polled, SourceConnector, Split, SplitReader, scalar};
use crate::env::Clock;
use crate::types::{Result, SpateError};

const OPTIONS: &[&str] = &["table", "type", "events", "rate", "seed", "base_time"];
const TABLES: &[&str] = &["person", "auction", "bid"];
/// Time of the first event unless another is given: 2015-07-15 00:00:00 UTC, in ms.
const BASE_TIME_MS: u64 = 1_436_918_400_000;
/// Events per second of event time, and of real time for an endless source.
const RATE: u64 = 10_000;
/// Consecutive events of one split when there are several.
const BLOCK: u64 = 20 * ROUND;
/// Seeds lie this many events apart; people and auctions begin at multiples of 100 then.
const SEED_STEP: u64 = 2_097_152 * 100 * ROUND;
pub(super) const MAX_SEED: u64 = 1_000_000_000;
/// Most rows of a batch.
pub(super) const MOST_ROWS: usize = 1 << 16;
/// Most events, for which times and ids stay within bigint.
const MAX_EVENTS: u64 = 1 << 50;

/// One of the three tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NexmarkTable {
    /// People: 1 of 50 events.
    Person,
    /// Auctions: 3 of 50 events.
    Auction,
    /// Bids: 46 of 50 events.
    Bid,
}

impl NexmarkTable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Person, Self::Auction, Self::Bid];

    /// Its name in SQL and of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Auction => "auction",
            Self::Bid => "bid",
        }
    }

    /// Its columns.
    pub fn schema(self) -> SchemaRef {
        let fields: &[(&str, char)] = match self {
            Self::Person => &[
                ("id", 'i'),
                ("name", 's'),
                ("email_address", 's'),
                ("credit_card", 's'),
                ("city", 's'),
                ("state", 's'),
                ("date_time", 't'),
                ("extra", 's'),
            ],
            Self::Auction => &[
                ("id", 'i'),
                ("item_name", 's'),
                ("description", 's'),
                ("initial_bid", 'i'),
                ("reserve", 'i'),
                ("date_time", 't'),
                ("expires", 't'),
                ("seller", 'i'),
                ("category", 'i'),
                ("extra", 's'),
            ],
            Self::Bid => &[
                ("auction", 'i'),
                ("bidder", 'i'),
                ("price", 'i'),
                ("channel", 's'),
                ("url", 's'),
                ("date_time", 't'),
                ("extra", 's'),
            ],
        };
        let field = |(name, kind): &(&str, char)| {
            let t = match kind {
                'i' => DataType::Int64,
                't' => DataType::Timestamp(TimeUnit::Microsecond, None),
                _ => DataType::Utf8,
            };
            Field::new(*name, t, true)
        };
        Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
    }

    /// Whether event `n` is of this kind.
    pub(super) fn has(self, n: u64) -> bool {
        let r = n % ROUND;
        match self {
            Self::Person => r < PERSONS,
            Self::Auction => (PERSONS..PERSONS + AUCTIONS).contains(&r),
            Self::Bid => r >= PERSONS + AUCTIONS,
        }
    }
}

enum Builder {
    Int(Int64Builder),
    Text(StringBuilder),
    Time(TimestampMicrosecondBuilder),
}

enum Datum<'a> {
    Int(i64),
    Text(&'a str),
    /// In ms.
    Time(u64),
}

fn signed(v: u64) -> i64 {
    i64::try_from(v).unwrap_or(i64::MAX)
}

/// Makes the rows of one table.
pub(super) struct Maker {
    table: NexmarkTable,
    schema: SchemaRef,
    /// The projected columns.
    columns: Vec<usize>,
    builders: Vec<Builder>,
    config: NexmarkConfig,
    /// Added to an event's number to make its id, which seeds it.
    shift: u64,
    bids: BidMaker,
    events: Option<EventGenerator>,
    want_extra: bool,
    /// Whether any column but the time is wanted; times need no drawing.
    draw: bool,
    extra: String,
    rows: usize,
}

impl Maker {
    /// For the projected columns of a table.
    pub(super) fn new(table: NexmarkTable, columns: &[usize], seed: u64, base_ms: u64, rate: u64) -> Result<Self> {
        let schema = project(&table.schema(), columns)?;
        let rate = usize::try_from(rate).unwrap_or(usize::MAX);
        let shift = seed.min(MAX_SEED) * SEED_STEP;
        let config = NexmarkConfig {
            base_time: base_ms,
            first_rate: rate,
            next_rate: rate,
            first_event_id: usize::try_from(shift).unwrap_or(0),
            first_auction_id: 0,
            first_person_id: 0,
            ..NexmarkConfig::default()
        };
        let builders = schema
            .fields()
            .iter()
            .map(|f| match f.data_type() {
                DataType::Int64 => Builder::Int(Int64Builder::new()),
                DataType::Utf8 => Builder::Text(StringBuilder::new()),
                _ => Builder::Time(TimestampMicrosecondBuilder::new()),
            })
            .collect();
        let bid = table == NexmarkTable::Bid;
        Ok(Self {
            table,
            builders,
            shift,
            bids: BidMaker::new(&config, bid && columns.iter().any(|c| matches!(c, 3 | 4))),
            events: Some(EventGenerator::new(config.clone())),
            want_extra: columns.contains(&6),
            draw: schema.fields().iter().any(|f| f.name() != "date_time"),
            schema,
            columns: columns.to_vec(),
            config,
            extra: String::new(),
            rows: 0,
        })
    }

    /// Rows so far.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Time of event `n` in ms, rounded as the generator rounds.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn time_ms(&self, n: u64) -> u64 {
        let delay = self.config.us_per_unit as f32 / self.config.first_rate as f32;
        self.config.base_time + ((n as f32 * delay) / 1000.0).round() as u64
    }

    /// An id counted from 0 over all seeds, as one counted from 1000 within this one's. The few
    /// that point before the first are folded back among those that exist: `last` is the newest.
    fn id(id: u64, before: u64, last: u64) -> i64 {
        let own = match id.checked_sub(before) {
            Some(v) => v,
            None => id % (last + 1),
        };
        signed(own + 1000)
    }

    /// Adds event `n` if it is of this table.
    pub(super) fn push(&mut self, n: u64) {
        if !self.table.has(n) {
            return;
        }
        self.rows += 1;
        if !self.draw {
            let time = self.time_ms(n);
            self.builders.iter_mut().for_each(|b| b.add(Datum::Time(time)));
            return;
        }
        let id = n + self.shift;
        let (people, auctions) = (self.shift / ROUND * PERSONS, self.shift / ROUND * AUCTIONS);
        let person = |v: u64| Datum::Int(Self::id(v, people, last_person(n)));
        let auction = |v: u64| Datum::Int(Self::id(v, auctions, last_auction(n)));
        if self.table == NexmarkTable::Bid {
            self.extra.clear();
            let bid = self.bids.make(id, self.want_extra.then_some(&mut self.extra));
            let (channel, url) = self.bids.channel(bid.channel);
            let time = self.time_ms(n);
            for (&c, b) in self.columns.iter().zip(&mut self.builders) {
                b.add(match c {
                    0 => auction(bid.auction),
                    1 => person(bid.bidder),
                    2 => Datum::Int(bid.price),
                    3 => Datum::Text(channel),
                    4 => Datum::Text(url),
                    5 => Datum::Time(time),
                    _ => Datum::Text(&self.extra),
                });
            }
            return;
        }
        let generator = self.events.take().unwrap_or_else(|| EventGenerator::new(self.config.clone()));
        let mut generator = generator.with_offset(n);
        let event = generator.next();
        self.events = Some(generator);
        for (&c, b) in self.columns.iter().zip(&mut self.builders) {
            b.add(match &event {
                Some(Event::Person(p)) => match c {
                    0 => person(p.id as u64),
                    1 => Datum::Text(&p.name),
                    2 => Datum::Text(&p.email_address),
                    3 => Datum::Text(&p.credit_card),
                    4 => Datum::Text(&p.city),
                    5 => Datum::Text(&p.state),
                    6 => Datum::Time(p.date_time),
                    _ => Datum::Text(&p.extra),
                },
                Some(Event::Auction(a)) => match c {
                    0 => auction(a.id as u64),
                    1 => Datum::Text(&a.item_name),
                    2 => Datum::Text(&a.description),
                    3 => Datum::Int(signed(a.initial_bid as u64)),
                    4 => Datum::Int(signed(a.reserve as u64)),
                    5 => Datum::Time(a.date_time),
                    6 => Datum::Time(a.expires),
                    7 => person(a.seller as u64),
                    8 => Datum::Int(signed(a.category as u64)),
                    _ => Datum::Text(&a.extra),
                },
                // Kinds follow from numbers, so there is no other.
                _ => Datum::Int(0),
            });
        }
    }

    /// The rows so far.
    pub(super) fn finish(&mut self) -> Result<RecordBatch> {
        let columns = self.builders.iter_mut().map(Builder::finish).collect();
        batch(&self.schema, columns, std::mem::take(&mut self.rows))
    }
}

impl Builder {
    fn add(&mut self, v: Datum<'_>) {
        match (self, v) {
            (Self::Int(b), Datum::Int(v)) => b.append_value(v),
            (Self::Text(b), Datum::Text(v)) => b.append_value(v),
            (Self::Time(b), Datum::Time(ms)) => b.append_value(signed(ms).saturating_mul(1000)),
            (Self::Int(b), _) => b.append_null(),
            (Self::Text(b), _) => b.append_null(),
            (Self::Time(b), _) => b.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int(b) => Arc::new(b.finish()),
            Self::Text(b) => Arc::new(b.finish()),
            Self::Time(b) => Arc::new(b.finish()),
        }
    }
}

/// The source of one table.
pub(super) struct NexmarkSource {
    table: NexmarkTable,
    /// The declared columns, by place in the table; `None` for all.
    schema: SchemaRef,
    places: Vec<usize>,
    events: Option<u64>,
    /// Events per second of real time; `None` for as fast as they can be made.
    rate: Option<u64>,
    event_rate: u64,
    seed: u64,
    base_ms: u64,
    /// When the first event happened, where events happen by the clock.
    live: Option<i64>,
    clock: Arc<dyn Clock>,
}

impl NexmarkSource {
    /// From options. Declared columns are taken by name and must have the table's types.
    pub(super) fn open(options: &Options, declared: Option<SchemaRef>, clock: Arc<dyn Clock>) -> Result<Self> {
        let opts = Opts::new("nexmark", options, OPTIONS, &[])?;
        let name = match (opts.one_of("table", TABLES)?, opts.one_of("type", TABLES)?) {
            (Some(a), Some(b)) if a != b => return Err(opts.wrong("type", "must agree with the option \"table\"")),
            (Some(a), _) | (None, Some(a)) => a,
            (None, None) => opts.required("table")?,
        };
        let table = NexmarkTable::ALL.into_iter().find(|t| t.name() == name).unwrap_or(NexmarkTable::Bid);
        let events = opts.integer("events", 0, MAX_EVENTS)?;
        let rate = opts.integer("rate", 1, 1_000_000_000)?;
        let mut live = None;
        let base_ms = match opts.get("base_time") {
            None => BASE_TIME_MS,
            Some("now") => {
                // Events happen as time passes, from now on.
                let us = clock.now_us();
                live = Some(us);
                if rate.is_none() && events.is_some() {
                    return Err(opts.wrong("base_time", "can be 'now' with a rate only"));
                }
                u64::try_from(us / 1000).unwrap_or(BASE_TIME_MS)
            }
            Some(t) => {
                let us = scalar::timestamp_us(t).or_else(|| t.parse::<i64>().ok().and_then(|ms| ms.checked_mul(1000)));
                us.and_then(|us| u64::try_from(us / 1000).ok()).filter(|ms| *ms < 1 << 48).ok_or_else(|| {
                    opts.wrong(
                        "base_time",
                        "must be a timestamp such as '2015-07-15 00:00:00', ms since 1970, or 'now'",
                    )
                })?
            }
        };
        let whole = table.schema();
        let (schema, places) = match declared {
            None => (whole.clone(), (0..whole.fields().len()).collect()),
            Some(s) => {
                let names: Vec<String> = whole.fields().iter().map(|f| f.name().clone()).collect();
                let mut places = Vec::new();
                for f in s.fields() {
                    let i = super::types::position_of(&names, f.name())
                        .ok_or_else(|| super::types::missing_column(table.name(), f.name(), &names))?;
                    let t = whole.field(i).data_type();
                    if t != f.data_type() {
                        return Err(SpateError::invalid(format!(
                            "column \"{}\" of nexmark table \"{}\" is {}, not {}",
                            f.name(),
                            table.name(),
                            super::types::sql_name(t),
                            super::types::sql_name(f.data_type())
                        )));
                    }
                    places.push(i);
                }
                (s, places)
            }
        };
        Ok(Self {
            table,
            schema,
            places,
            events,
            rate: rate.or(if events.is_some() { None } else { Some(RATE) }),
            event_rate: rate.unwrap_or(RATE),
            seed: opts.integer("seed", 0, MAX_SEED)?.unwrap_or(0),
            base_ms,
            live,
            clock,
        })
    }
}

impl SourceConnector for NexmarkSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        self.events.is_some()
    }

    fn splits(&self, in_order: bool, parallelism: usize) -> Result<Vec<Split>> {
        let n = if in_order { 1 } else { parallelism.clamp(1, 256) };
        Ok((0..n).map(|i| Split::made(self.table.name(), i, n, self.events)).collect())
    }

    fn open(&self, split: &Split, offset: u64, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        let part = split.detail.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        let Some((part, parts)) = part.filter(|(i, n): &(u64, u64)| i < n) else {
            return Err(SpateError::internal(format!("bad nexmark split \"{}\"", split.detail)));
        };
        let columns: Vec<usize> = projection.iter().filter_map(|p| self.places.get(*p).copied()).collect();
        // The names may be declared in another case.
        let mut maker = Maker::new(self.table, &columns, self.seed, self.base_ms, self.event_rate)?;
        maker.schema = project(&self.schema, projection)?;
        let pace = self.rate.map(|rate| match self.live {
            Some(first_us) => Pace::since(rate, first_us, self.clock.clone()),
            None => Pace::new(rate, offset, self.clock.clone()),
        });
        Ok(Box::new(NexmarkReader { maker, part, parts, next: offset, end: self.events, pace }))
    }
}

/// Steps in which rows become due, in microseconds.
const STEP_US: u128 = 1000;

/// Lets numbers through at a rate, counted from where reading began.
pub(super) struct Pace {
    per_second: u64,
    first: u64,
    began: Duration,
    /// How long before `began` the first was due.
    ahead: Duration,
    clock: Arc<dyn Clock>,
}

impl Pace {
    /// From `first` on, beginning now.
    pub(super) fn new(per_second: u64, first: u64, clock: Arc<dyn Clock>) -> Self {
        Self { per_second, first, began: clock.monotonic(), ahead: Duration::ZERO, clock }
    }

    /// Number 0 was due at this time.
    fn since(per_second: u64, first_us: i64, clock: Arc<dyn Clock>) -> Self {
        let passed = u64::try_from(clock.now_us().saturating_sub(first_us)).unwrap_or(0);
        Self { per_second, first: 0, began: clock.monotonic(), ahead: Duration::from_micros(passed), clock }
    }

    /// The first number that is not due yet.
    pub(super) fn due(&self) -> u64 {
        let us = (self.ahead + self.clock.monotonic().saturating_sub(self.began)).as_micros();
        // In steps: a reader that is quick must not get every row by itself.
        let us = us - us % STEP_US;
        let n = us.saturating_mul(u128::from(self.per_second)) / 1_000_000;
        self.first.saturating_add(u64::try_from(n).unwrap_or(u64::MAX))
    }

    /// How long until something is due that is worth waking up for.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_micros((1_000_000 / self.per_second).clamp(1_000, 100_000))
    }
}

/// The number below which a reader that stands at `next` may read now, of those below `end`; what it
/// answers if there is none.
pub(super) fn reach(pace: Option<&Pace>, next: u64, end: u64, until: Option<u64>) -> std::result::Result<u64, Polled> {
    if next >= end {
        return Err(Polled::End);
    }
    // What is read up to a known offset was made before: it need not wait again.
    let stop = match (until, pace) {
        (Some(u), _) => u.min(end),
        (None, Some(p)) => p.due().min(end),
        (None, None) => end,
    };
    if next >= stop {
        let wait = if until.is_some() { Duration::ZERO } else { pace.map_or(Duration::ZERO, Pace::wait) };
        return Err(Polled::Pending(wait));
    }
    Ok(stop)
}

struct NexmarkReader {
    maker: Maker,
    part: u64,
    parts: u64,
    next: u64,
    end: Option<u64>,
    pace: Option<Pace>,
}

impl SplitReader for NexmarkReader {
    fn poll(&mut self, max_rows: usize, until: Option<u64>) -> Result<Polled> {
        let end = self.end.unwrap_or(MAX_EVENTS);
        let stop = match reach(self.pace.as_ref(), self.next, end, until) {
            Ok(stop) => stop,
            Err(nothing) => return Ok(nothing),
        };
        // Even when few events are of this kind, a poll stays short.
        let most = max_rows.clamp(1, MOST_ROWS);
        let stop = stop.min(self.next.saturating_add(2 * ROUND * self.parts * most as u64));
        while self.next < stop && self.maker.rows() < most {
            let block = self.next / BLOCK;
            if block % self.parts != self.part {
                self.next = ((block + 1) * BLOCK).min(stop);
                continue;
            }
            self.maker.push(self.next);
            self.next += 1;
        }
        let progress = self.end.map(|e| (self.next, e));
        Ok(Polled::Batch { rows: self.maker.finish()?, dead: Vec::new(), progress })
    }

    fn offset(&self) -> u64 {
        self.next
    }
}
