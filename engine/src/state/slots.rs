//! `SlotIndex`: where rows stand, by hash. The index beneath group and bag tables.
//!
//! An entry is eight bytes, a tag (half of the hash) and a slot; whoever asks compares the rows
//! themselves. Entries lie in *shards* of some thousand, each an array with linear probing. As the
//! index grows, one shard after the other is split in two (linear hashing, Litwin 1980), so the longest
//! pause is that of moving one shard, however many rows there are, and no epoch waits for the whole index to
//! move. Nothing here depends on more than the hashes and slots put in.

use std::hint::black_box;

use super::chunk::{NO_SLOT, Slot};

/// Places of a shard, but of the first one while it is alone.
const SHARD_PLACES: usize = 1 << 14;
/// Entries per shard, on average: one that is to be split next holds twice as many as one that was split
/// just now, and fits its places all the time.
const SHARD_ROWS: usize = SHARD_PLACES * 11 / 32;
/// Fewest places of a shard that has any.
const LEAST_PLACES: usize = 8;
/// Below this many shards the index lies in the processor's cache.
const CACHED_SHARDS: usize = 8;

/// Rows to look up together: so many cache misses may overlap.
pub(crate) const TOGETHER: usize = 512;

const EMPTY: u64 = NO_SLOT as u64;

/// The bits of a hash that the index keeps. The low ones name the vnode, of which a task has few.
#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[inline]
fn entry(tag: u32, slot: Slot) -> u64 {
    u64::from(tag) << 32 | u64::from(slot)
}

#[inline]
fn tag(entry: u64) -> u32 {
    (entry >> 32) as u32
}

#[inline]
fn slot(entry: u64) -> Slot {
    entry as u32
}

/// Entries whose tags end in the same bits.
#[derive(Debug, Clone, Default)]
struct Shard {
    /// None, or a power of two of them.
    places: Vec<u64>,
    used: usize,
}

impl Shard {
    fn with_places(places: usize) -> Self {
        Self { places: vec![EMPTY; places], used: 0 }
    }

    /// Where the search for a tag begins. There must be places.
    #[inline]
    fn home(&self, tag: u32) -> usize {
        // The shard was chosen by the low bits; these come from all.
        ((u64::from(tag.wrapping_mul(0x9e37_79b1)) * self.places.len() as u64) >> 32) as usize
    }

    #[inline]
    fn find(&self, wanted: u32, mut is: impl FnMut(Slot) -> bool) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut at = self.home(wanted);
        loop {
            let e = self.places[at];
            if e == EMPTY {
                return None;
            }
            if tag(e) == wanted && is(slot(e)) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// There must be an empty place.
    #[inline]
    fn put(&mut self, e: u64) {
        let mask = self.places.len() - 1;
        let mut at = self.home(tag(e));
        while self.places[at] != EMPTY {
            at = (at + 1) & mask;
        }
        self.places[at] = e;
        self.used += 1;
    }

    fn insert(&mut self, e: u64) {
        if (self.used + 1) * 4 > self.places.len() * 3 {
            let mut larger = Self::with_places((self.places.len() * 2).max(LEAST_PLACES));
            self.entries().for_each(|e| larger.put(e));
            *self = larger;
        }
        self.put(e);
    }

    /// Empties a place and moves up what was pushed past it.
    fn remove_at(&mut self, place: usize) {
        let mask = self.places.len() - 1;
        let (mut hole, mut at) = (place, place);
        loop {
            at = (at + 1) & mask;
            let e = self.places[at];
            if e == EMPTY {
                break;
            }
            // It may fill the hole if its home is not behind the hole.
            let from_home = at.wrapping_sub(self.home(tag(e))) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.places[hole] = e;
                hole = at;
            }
        }
        self.places[hole] = EMPTY;
        self.used -= 1;
    }

    fn entries(&self) -> impl Iterator<Item = u64> + '_ {
        self.places.iter().copied().filter(|e| *e != EMPTY)
    }
}

/// Slots by hash. See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct SlotIndex {
    shards: Vec<Shard>,
    /// One less than the least power of two that is no less than the number of shards.
    mask: usize,
    len: usize,
}

impl SlotIndex {
    pub(crate) fn new() -> Self {
        Self { shards: vec![Shard::default()], mask: 0, len: 0 }
    }

    /// An empty index with room for so many entries.
    pub(crate) fn with_capacity(entries: usize) -> Self {
        let shards = entries.div_ceil(SHARD_ROWS).max(1);
        let places = match entries {
            0 => 0,
            n if shards == 1 => (n * 4 / 3 + 1).next_power_of_two().max(LEAST_PLACES),
            _ => SHARD_PLACES,
        };
        Self {
            shards: (0..shards).map(|_| Shard::with_places(places)).collect(),
            mask: shards.next_power_of_two() - 1,
            len: 0,
        }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn shard_of(&self, tag: u32) -> usize {
        let low = tag as usize & self.mask;
        // A shard that is not there yet is still part of the one it will be split from.
        if low < self.shards.len() { low } else { low & (self.mask >> 1) }
    }

    /// The first slot with this hash's tag for which `is` holds. Equal hashes have equal tags;
    /// other hashes may have them too.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let wanted = tag_of(hash);
        let shard = &self.shards[self.shard_of(wanted)];
        shard.find(wanted, is).map(|at| slot(shard.places[at]))
    }

    /// All slots with this hash's tag.
    pub(crate) fn candidates(&self, hash: u64, into: &mut Vec<Slot>) {
        self.find(hash, |slot| {
            into.push(slot);
            false
        });
    }

    /// Adds an entry without looking for it.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, slot: Slot) {
        if self.len >= self.shards.len() * SHARD_ROWS {
            self.split();
        }
        let tag = tag_of(hash);
        let shard = self.shard_of(tag);
        self.shards[shard].insert(entry(tag, slot));
        self.len += 1;
    }

    /// Takes an entry out, if it is there.
    pub(crate) fn remove(&mut self, hash: u64, slot: Slot) {
        let tag = tag_of(hash);
        let n = self.shard_of(tag);
        let shard = &mut self.shards[n];
        if let Some(at) = shard.find(tag, |s| s == slot) {
            shard.remove_at(at);
            self.len -= 1;
        }
    }

    /// Lets an entry, if it is there, lead to another slot.
    pub(crate) fn replace(&mut self, hash: u64, old: Slot, new: Slot) {
        let tag = tag_of(hash);
        let n = self.shard_of(tag);
        let shard = &mut self.shards[n];
        if let Some(at) = shard.find(tag, |s| s == old) {
            shard.places[at] = entry(tag, new);
        }
    }

    /// Moves what belongs there from one shard to a new one at the end.
    fn split(&mut self) {
        let new = self.shards.len();
        self.mask = (new + 1).next_power_of_two() - 1;
        let from = &mut self.shards[new & (self.mask >> 1)];
        let mut fresh = Shard::with_places(SHARD_PLACES);
        let old = std::mem::replace(from, Shard::with_places(SHARD_PLACES));
        for e in old.entries() {
            let shard = if tag(e) as usize & self.mask == new { &mut fresh } else { &mut *from };
            shard.insert(e);
        }
        self.shards.push(fresh);
    }

    /// An index of the same hashes whose slots are those in `moved`, by the old ones.
    pub(crate) fn renumbered(&self, moved: &[Slot]) -> Self {
        let mut out = Self::with_capacity(self.len);
        for shard in &self.shards {
            for e in shard.entries() {
                out.insert(u64::from(tag(e)) << 32, moved[slot(e) as usize]);
            }
        }
        out
    }

    /// Whether lookups would wait for memory, so that [`Self::warm`] pays.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.shards.len() > CACHED_SHARDS
    }

    /// Reads the places of these hashes one after the other without waiting for any, so that their
    /// cache misses overlap; gives for each the slot that stands first with its tag, or [`NO_SLOT`].
    pub(crate) fn warm(&self, hashes: &[u64], likely: &mut Vec<Slot>) {
        likely.clear();
        likely.extend(hashes.iter().map(|&h| {
            let wanted = tag_of(h);
            let shard = &self.shards[self.shard_of(wanted)];
            let Some(&e) = shard.places.get(if shard.places.is_empty() { 0 } else { shard.home(wanted) }) else {
                return NO_SLOT;
            };
            // No branch on what was read.
            let other = u32::from(tag(e) != wanted).wrapping_neg();
            slot(e) | other
        }));
        black_box(likely);
    }

    /// Bytes held.
    pub(crate) fn memory_size(&self) -> usize {
        let places: usize = self.shards.iter().map(|s| s.places.capacity()).sum();
        places * size_of::<u64>() + self.shards.capacity() * size_of::<Shard>()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn hash(key: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&key.to_le_bytes())
    }

    #[test]
    fn holds_what_was_put_in() {
        // Few keys, so that hashes meet; many, so that shards are split; tags that all are equal.
        for (keys, alike) in [(50, false), (60_000, false), (40, true)] {
            let hash = |key: u64| if alike { key } else { hash(key) };
            let mut rng = SmallRng::seed_from_u64(keys);
            let mut index = SlotIndex::new();
            let mut model: HashMap<u64, Slot> = HashMap::new();
            for step in 0..200_000u32 {
                let key = rng.random_range(0..keys);
                let known = model.get(&key).copied();
                let found = index.find(hash(key), |s| known == Some(s));
                assert_eq!(found, known, "key {key} at step {step}");
                match (known, rng.random_range(0..4)) {
                    (None, _) => {
                        index.insert(hash(key), step);
                        model.insert(key, step);
                    }
                    (Some(s), 0) if keys < 1000 || step > 150_000 => {
                        index.remove(hash(key), s);
                        model.remove(&key);
                    }
                    (Some(s), 1) => {
                        index.replace(hash(key), s, step);
                        model.insert(key, step);
                    }
                    _ => {}
                }
                assert_eq!(index.len(), model.len());
            }
            let mut moved = vec![NO_SLOT; 200_000];
            model.values().enumerate().for_each(|(to, from)| moved[*from as usize] = to as Slot);
            let renumbered = index.renumbered(&moved);
            for (key, slot) in &model {
                assert_eq!(index.find(hash(*key), |s| s == *slot), Some(*slot));
                let to = moved[*slot as usize];
                assert_eq!(renumbered.find(hash(*key), |s| s == to), Some(to));
            }
            assert_eq!(renumbered.len(), model.len());
            assert!(index.shards.len() > if keys > 1000 { 3 } else { 0 });
        }
    }

    #[test]
    fn absent_entries_stay_absent() {
        let mut index = SlotIndex::new();
        index.remove(hash(1), 1);
        index.replace(hash(1), 1, 2);
        assert_eq!(index.find(hash(1), |_| true), None);
        index.insert(hash(1), 1);
        index.remove(hash(1), 2);
        assert_eq!(index.find(hash(1), |_| true), Some(1));
        let mut all = Vec::new();
        index.candidates(hash(1), &mut all);
        assert_eq!(all, [1]);
    }

    #[test]
    fn no_shard_grows_much_beyond_the_others() {
        let mut index = SlotIndex::new();
        for n in 0..300_000u32 {
            index.insert(hash(u64::from(n)), n);
            let places: usize = index.shards.iter().map(|s| s.places.len()).max().unwrap();
            assert!(places <= SHARD_PLACES * 2);
        }
        assert!(index.is_large());
        let hashes: Vec<u64> = (0..300_000).map(hash).collect();
        let mut likely = Vec::new();
        index.warm(&hashes, &mut likely);
        let right = likely.iter().enumerate().filter(|(n, s)| **s == *n as u32).count();
        assert!(right > 150_000, "{right}");
        // Bytes of the index per row.
        assert!(index.memory_size() / 300_000 < 26);
        for capacity in [0, 1, 5, SHARD_ROWS, SHARD_ROWS + 1, 30_000, 100_000, 300_000] {
            let mut sized = SlotIndex::with_capacity(capacity);
            let before = sized.shards.len();
            for (n, hash) in hashes.iter().take(capacity).enumerate() {
                sized.insert(*hash, n as u32);
            }
            assert_eq!(sized.shards.len(), before, "{capacity}");
            assert!(sized.memory_size() <= 26 * capacity + 2 * 8 * SHARD_PLACES, "{capacity}: {}", sized.memory_size());
        }
    }
}
