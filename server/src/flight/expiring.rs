//! A bounded map whose entries go when nobody has taken them in time.

use std::collections::BTreeMap;
use std::time::Duration;

/// Entries by name, each with the time when it was put in or last used.
#[derive(Debug)]
pub struct Expiring<T> {
    entries: BTreeMap<String, (Duration, T)>,
    limit: usize,
}

impl<T> Expiring<T> {
    /// At most `limit` entries.
    pub fn new(limit: usize) -> Self {
        Self { entries: BTreeMap::new(), limit }
    }

    /// Puts an entry in; gives it back if there are too many.
    pub fn insert(&mut self, name: String, now: Duration, entry: T) -> Result<(), T> {
        if self.entries.len() >= self.limit && !self.entries.contains_key(&name) {
            return Err(entry);
        }
        self.entries.insert(name, (now, entry));
        Ok(())
    }

    /// An entry, used now.
    pub fn touch(&mut self, name: &str, now: Duration) -> Option<&T> {
        let (used, entry) = self.entries.get_mut(name)?;
        *used = now;
        Some(entry)
    }

    /// Takes an entry out.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        self.entries.remove(name).map(|(_, e)| e)
    }

    /// Takes out the entries that were put in or used before `since`, if `may_go` says so.
    pub fn expire(&mut self, since: Duration, mut may_go: impl FnMut(&T) -> bool) -> Vec<T> {
        self.take(|used, e| used < since && may_go(e))
    }

    /// Takes out the entries of which `gone` says so.
    pub fn take(&mut self, mut gone: impl FnMut(Duration, &T) -> bool) -> Vec<T> {
        let names: Vec<String> =
            self.entries.iter().filter(|(_, (used, e))| gone(*used, e)).map(|(n, _)| n.clone()).collect();
        names.iter().filter_map(|n| self.remove(n)).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_bounded_and_expire() {
        let at = Duration::from_secs;
        let mut map: Expiring<i32> = Expiring::new(2);
        assert!(map.insert("a".into(), at(1), 1).is_ok() && map.insert("b".into(), at(2), 2).is_ok());
        assert_eq!(map.insert("c".into(), at(3), 3), Err(3));
        assert_eq!(map.touch("a", at(9)), Some(&1));
        assert!(map.expire(at(5), |_| false).is_empty());
        assert_eq!(map.expire(at(5), |_| true), [2]);
        assert_eq!((map.len(), map.remove("a"), map.remove("a")), (1, Some(1), None));
    }
}
