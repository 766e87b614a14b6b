//! Encoded rows of an epoch in one piece of memory, to be sorted once at the barrier.

/// Memory that is kept from one epoch to the next.
const KEPT_BYTES: usize = 4 << 20;

/// A row: where its key is, and what goes with it.
#[derive(Debug, Clone, Copy)]
struct At {
    /// The key's first bytes, to compare most keys without looking at them.
    head: u128,
    start: usize,
    len: u32,
    partition: u32,
    weight: i64,
    vnode: u8,
}

/// Rows as memcomparable keys that begin with their partition, with weights.
#[derive(Debug, Default)]
pub(super) struct EncodedRows {
    bytes: Vec<u8>,
    rows: Vec<At>,
}

impl EncodedRows {
    /// Adds a row whose key is `key` and then `tail`; its first `partition` bytes are its partition's.
    pub(super) fn push(&mut self, key: &[u8], tail: &[u8], partition: usize, weight: i64, vnode: u8) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(tail);
        let key = &self.bytes[start..];
        let mut head = [0u8; 16];
        let n = key.len().min(16);
        head[..n].copy_from_slice(&key[..n]);
        let head = u128::from_be_bytes(head);
        self.rows.push(At { head, start, len: key.len() as u32, partition: partition as u32, weight, vnode });
    }

    /// Puts the rows in order and adds up the weights of equal ones; those that are 0 go.
    pub(super) fn sort(&mut self) {
        let Self { bytes, rows } = self;
        let key = |r: &At| &bytes[r.start..r.start + r.len as usize];
        rows.sort_unstable_by(|a, b| a.head.cmp(&b.head).then_with(|| key(a).cmp(key(b))));
        rows.dedup_by(|row, first| {
            let same = row.head == first.head && key(row) == key(first);
            if same {
                first.weight = first.weight.wrapping_add(row.weight);
            }
            same
        });
        rows.retain(|r| r.weight != 0);
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn key(&self, row: usize) -> &[u8] {
        let r = &self.rows[row];
        &self.bytes[r.start..r.start + r.len as usize]
    }

    pub(super) fn weight(&self, row: usize) -> i64 {
        self.rows[row].weight
    }

    pub(super) fn vnode(&self, row: usize) -> u8 {
        self.rows[row].vnode
    }

    /// The partition of a row.
    pub(super) fn partition(&self, row: usize) -> &[u8] {
        let r = &self.rows[row];
        &self.bytes[r.start..r.start + r.partition as usize]
    }

    /// The end of the run of rows, from `row` on, of one partition. Rows must be sorted.
    pub(super) fn run_end(&self, row: usize) -> usize {
        let partition = self.partition(row);
        let mut end = row + 1;
        while end < self.len() && self.partition(end) == partition {
            end += 1;
        }
        end
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.rows.shrink_to(KEPT_BYTES / size_of::<At>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_add_up_in_order() {
        let mut rows = EncodedRows::default();
        let long = [7u8; 40];
        for (key, weight) in [(&b"b2"[..], 1), (b"a9", 2), (&long, 1), (b"b1", 1), (b"a9", -2), (&long, 3), (b"b2", 1)]
        {
            rows.push(key, b"!", 1, weight, 0);
        }
        rows.sort();
        let got: Vec<(Vec<u8>, i64)> = (0..rows.len()).map(|i| (rows.key(i).to_vec(), rows.weight(i))).collect();
        let long = [&long[..], b"!"].concat();
        assert_eq!(got, [(long, 4), (b"b1!".to_vec(), 1), (b"b2!".to_vec(), 2)]);
        assert_eq!((rows.run_end(0), rows.run_end(1)), (1, 3));
        // A key that is the beginning of another comes first, also where zeros follow.
        rows.clear();
        rows.push(b"a\0", b"", 1, 1, 0);
        rows.push(b"a", b"", 1, 1, 0);
        rows.sort();
        assert_eq!((rows.key(0), rows.key(1), rows.len()), (&b"a"[..], &b"a\0"[..], 2));
    }
}
