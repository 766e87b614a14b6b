//! Sums of runs of floats: a tree of partial sums over a partition. The sum of a run is put
//! together from the nodes that cover it, so that it takes logarithmic time and depends on
//! the run's own values only.

use std::ops::Range;

use arrow::array::Float64Array;

/// The tree, and the number of values before each place.
#[derive(Debug)]
pub(super) struct SumTree {
    /// Node i covers nodes 2i and 2i + 1; leaves begin at `width`.
    nodes: Vec<f64>,
    width: usize,
    known_before: Vec<usize>,
}

impl SumTree {
    /// A tree over `values`; NULLs count for nothing.
    pub(super) fn new(values: &Float64Array) -> Self {
        let width = values.len().next_power_of_two();
        let mut nodes = vec![0.0; 2 * width];
        let mut known_before = Vec::with_capacity(values.len() + 1);
        let mut known = 0;
        known_before.push(0);
        for (i, v) in values.iter().enumerate() {
            if let (Some(v), Some(leaf)) = (v, nodes.get_mut(width + i)) {
                *leaf = v;
                known += 1;
            }
            known_before.push(known);
        }
        for i in (1..width).rev() {
            nodes[i] = nodes[2 * i] + nodes[2 * i + 1];
        }
        Self { nodes, width, known_before }
    }

    /// Sum and number of the values in `run`.
    pub(super) fn sum(&self, run: Range<usize>) -> (f64, usize) {
        let before = |i: usize| self.known_before.get(i).copied().unwrap_or_default();
        let count = before(run.end).saturating_sub(before(run.start));
        let (mut from, mut to) = (run.start + self.width, run.end + self.width);
        let (mut left, mut right) = (0.0, 0.0);
        while from < to {
            if from % 2 == 1 {
                left += self.nodes[from];
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                right += self.nodes[to];
            }
            from /= 2;
            to /= 2;
        }
        (left + right, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_summed_from_their_own_values() {
        let values = Float64Array::from(vec![Some(1e300), Some(1.0), None, Some(2.0), Some(f64::INFINITY), Some(4.0)]);
        let tree = SumTree::new(&values);
        assert_eq!(tree.sum(1..4), (3.0, 2));
        assert_eq!(tree.sum(2..3), (0.0, 0));
        assert_eq!(tree.sum(5..6), (4.0, 1));
        assert_eq!(tree.sum(3..6).0, f64::INFINITY);
        assert_eq!(tree.sum(0..0), (0.0, 0));
    }
}
