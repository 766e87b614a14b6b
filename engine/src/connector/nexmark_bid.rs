//! Bids of the Nexmark generator, column by column: the same values as the `nexmark` crate's (a
//! test compares them), but strings that nobody asks for are not made.
//!
//! The crate draws each event from xoshiro256++ seeded by the event's number through PCG32, and
//! bounded numbers by multiplication with rejection; both are repeated here. Sources: Blackman and
//! Vigna, "Scrambled linear pseudorandom number generators"; O'Neill, "PCG"; Lemire, "Fast random
//! integer generation in an interval".

use std::fmt::Write as _;

use nexmark::config::NexmarkConfig;

/// Events of a round: one person, three auctions, 46 bids.
pub(super) const ROUND: u64 = 50;
pub(super) const PERSONS: u64 = 1;
pub(super) const AUCTIONS: u64 = 3;
/// Distance between "hot" auctions and people.
const HOT_STEP: u64 = 100;
/// How many channels the generator knows besides the hot ones.
const CHANNELS: u32 = 10_000;

/// The random numbers of one event.
pub(super) struct Rng([u64; 4]);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut half = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11_634_580_027_462_260_723);
            #[allow(clippy::cast_possible_truncation)]
            let xored = (((state >> 18) ^ state) >> 27) as u32;
            u64::from(xored.rotate_right((state >> 59) as u32))
        };
        Self(std::array::from_fn(|_| {
            let low = half();
            low | half() << 32
        }))
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let out = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        out
    }

    #[allow(clippy::cast_possible_truncation)]
    fn next32(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// Below `n`, which is not 0, from 64 bits.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        let zone = (n << n.leading_zeros()).wrapping_sub(1);
        loop {
            let wide = u128::from(self.next()) * u128::from(n);
            if wide as u64 <= zone {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Below `n`, which is not 0, from 32 bits.
    #[allow(clippy::cast_possible_truncation)]
    fn below32(&mut self, n: u32) -> u32 {
        let zone = (n << n.leading_zeros()).wrapping_sub(1);
        self.bounded32(n, zone)
    }

    #[allow(clippy::cast_possible_truncation)]
    fn bounded32(&mut self, n: u32, zone: u32) -> u32 {
        loop {
            let wide = u64::from(self.next32()) * u64::from(n);
            if wide as u32 <= zone {
                return (wide >> 32) as u32;
            }
        }
    }

    /// `a` to `z`; bytes are drawn with the exact rejection zone.
    #[allow(clippy::cast_possible_truncation)]
    fn letter(&mut self) -> char {
        const ZONE: u32 = u32::MAX - (u32::MAX - 26 + 1) % 26;
        char::from(b'a' + self.bounded32(26, ZONE) as u8)
    }

    #[allow(clippy::cast_precision_loss)]
    fn unit(&mut self) -> f32 {
        (self.next32() >> 8) as f32 / 16_777_216.0
    }

    #[allow(clippy::cast_possible_truncation)]
    fn price(&mut self) -> i64 {
        (10.0f32.powf(self.unit() * 6.0) * 100.0).round() as i64
    }

    /// Filler that brings a record to about `average` bytes when it has `size`.
    fn extra(&mut self, size: u64, average: u64, out: &mut String) {
        if size > average {
            return;
        }
        let wanted = average - size;
        let delta = (wanted + 2) / 5;
        let n = wanted - delta + if delta == 0 { 0 } else { self.below(2 * delta) };
        out.extend((0..n).map(|_| self.letter()));
    }

    /// A path part of 3 or 4 characters with underscores in it.
    fn part(&mut self, out: &mut String) {
        let n = 3 + self.below(2);
        for _ in 0..n {
            let c = if self.below32(13) == 0 { '_' } else { self.letter() };
            out.push(c);
        }
    }
}

fn base_url(seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let mut url = String::from("https://www.nexmark.com/");
    for _ in 0..3 {
        rng.part(&mut url);
        url.push('/');
    }
    url.push_str("item.htm?query=1");
    url
}

/// One bid; ids are counted from 0 and belong to event `id`, not to its number.
#[derive(Debug, Default)]
pub(super) struct Bid {
    pub(super) auction: u64,
    pub(super) bidder: u64,
    pub(super) price: i64,
    pub(super) channel: Channel,
}

/// Where a bid came from.
#[derive(Debug, Default, Clone, Copy)]
pub(super) enum Channel {
    #[default]
    None,
    Hot(usize),
    Other(usize),
}

/// Last person that event `id` knows of, from 0.
pub(super) fn last_person(id: u64) -> u64 {
    id / ROUND * PERSONS
}

/// Last auction that event `id` knows of, from 0.
pub(super) fn last_auction(id: u64) -> u64 {
    let rounds = id / ROUND * AUCTIONS;
    match id % ROUND {
        0 => rounds.saturating_sub(1),
        r => rounds + (r - PERSONS).min(AUCTIONS - 1),
    }
}

/// Makes bids.
pub(super) struct BidMaker {
    config: NexmarkConfig,
    channels: Vec<(String, String)>,
}

impl BidMaker {
    /// With the generator's configuration; `strings` if channels or URLs are wanted.
    pub(super) fn new(config: &NexmarkConfig, strings: bool) -> Self {
        let mut channels = Vec::new();
        for i in 0..if strings { CHANNELS } else { 0 } {
            let seed = u64::from(i);
            let mut url = base_url(seed);
            if Rng::new(seed).below32(10) > 0 {
                let id = i64::from(i.reverse_bits().cast_signed()).abs();
                // Writing to a string cannot fail.
                let _ = write!(url, "&channel_id={id}");
            }
            channels.push((format!("channel-{i}"), url));
        }
        Self { config: config.clone(), channels }
    }

    /// The bid of event `id`; its filler is appended to `extra`, if wanted.
    pub(super) fn make(&self, id: u64, extra: Option<&mut String>) -> Bid {
        let c = &self.config;
        let rng = &mut Rng::new(id);
        let auction = if rng.below(c.hot_auction_ratio as u64) > 0 {
            last_auction(id) / HOT_STEP * HOT_STEP
        } else {
            let newest = last_auction(id);
            let oldest = newest.saturating_sub(c.in_flight_auctions as u64);
            oldest + rng.below(newest - oldest + 1 + c.auction_id_lead as u64)
        };
        let bidder = if rng.below(c.hot_bidder_ratio as u64) > 0 {
            last_person(id) / HOT_STEP * HOT_STEP + 1
        } else {
            let people = last_person(id) + 1;
            let active = people.min(c.active_people as u64);
            people - active + rng.below(active + c.person_id_lead as u64)
        };
        let price = rng.price();
        let channel = if rng.below(c.hot_channel_ratio as u64) > 0 {
            Channel::Hot(usize::try_from(rng.below(c.hot_channels.len() as u64)).unwrap_or(0))
        } else {
            Channel::Other(rng.below32(CHANNELS) as usize)
        };
        if let Some(out) = extra {
            rng.extra(32, c.avg_bid_byte_size as u64, out);
        }
        Bid { auction, bidder, price, channel }
    }

    /// Name and URL of a channel.
    pub(super) fn channel(&self, channel: Channel) -> (&str, &str) {
        match channel {
            Channel::Hot(i) => (
                self.config.hot_channels.get(i).map_or("", String::as_str),
                self.config.hot_urls.get(i).map_or("", String::as_str),
            ),
            Channel::Other(i) => self.channels.get(i).map_or(("", ""), |(c, u)| (c, u)),
            Channel::None => ("", ""),
        }
    }
}
