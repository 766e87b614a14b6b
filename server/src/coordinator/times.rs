//! How long epochs take: from the tick that closes one until readers may see it.

use std::collections::VecDeque;
use std::time::Duration;

use spate_engine::types::Epoch;

/// Upper bounds of the buckets are powers of two microseconds, the last of them 2^(this − 1).
const BUCKETS: usize = 32;

/// Times of all epochs so far, in buckets. Bounded, whatever happens.
#[derive(Debug, Clone, Default)]
pub struct EpochTimes {
    counts: [u64; BUCKETS],
    count: u64,
    sum: Duration,
    max: Duration,
}

impl EpochTimes {
    fn add(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = us.saturating_sub(1).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
        self.max = self.max.max(took);
    }

    /// Number of epochs.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All their times together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Upper bounds of the buckets, and how many epochs took no longer.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let rising = self.counts.iter().scan(0, |sum, n| {
            *sum += n;
            Some(*sum)
        });
        rising.enumerate().map(|(n, upto)| (Duration::from_micros(1 << n), upto))
    }
}

/// Ticks of the epochs in flight, and what became of those before.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    running: VecDeque<(Epoch, Duration)>,
    pub(super) times: EpochTimes,
}

impl Stopwatch {
    /// An epoch was closed.
    pub(super) fn start(&mut self, epoch: Epoch, now: Duration) {
        self.running.push_back((epoch, now));
    }

    /// All epochs up to this one are visible.
    pub(super) fn stop(&mut self, visible: Epoch, now: Duration) {
        while let Some((_, since)) = self.running.pop_front_if(|(epoch, _)| *epoch <= visible) {
            self.times.add(now.saturating_sub(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_is_counted_once_with_its_time() {
        let ms = Duration::from_millis;
        let mut watch = Stopwatch::default();
        (1..=3).for_each(|e| watch.start(e, ms(10 * e)));
        watch.stop(2, ms(25));
        watch.stop(2, ms(90));
        watch.stop(3, ms(1030));
        let times = &watch.times;
        assert_eq!((times.count(), times.sum(), times.max()), (3, ms(15 + 5 + 1000), ms(1000)));
        let upto = |d: Duration| times.buckets().filter(|(b, _)| *b <= d).last().map(|(_, n)| n);
        assert_eq!(upto(ms(4)), Some(0));
        assert_eq!(upto(ms(10)), Some(1));
        assert_eq!(upto(ms(20)), Some(2));
        assert_eq!(upto(ms(2000)), Some(3));
    }

    #[test]
    fn extreme_times_have_a_bucket() {
        let mut times = EpochTimes::default();
        let all = [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_micros(1),
            Duration::from_micros(2),
            Duration::MAX,
        ];
        all.into_iter().for_each(|d| times.add(d));
        assert_eq!(times.buckets().map(|b| b.1).take(2).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(times.buckets().last().map(|b| b.1), Some(5));
    }
}
