//! Sums of floats and of their products without any rounding.
//!
//! A sum is a whole number of units of 2^[`UNIT`], which divides every float and every product of
//! two: in two's complement, 64 bits to a limb, the lowest first, as many limbs as its value needs
//! and none for 0. So a sum depends on nothing but what was added, in whatever order, and what is
//! taken away leaves no trace. Encoded it is the place of its lowest limb and the limbs, 8 bytes
//! each; sums of ordinary numbers have two to four.
//!
//! The idea is that of Kulisch's long accumulator, cut to the limbs in use.

/// Two to this power is the unit: the least product of two floats is 2^-2148.
const UNIT: i32 = -2176;

/// A sum in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExactSum {
    /// Place of the first limb.
    low: usize,
    /// Two's complement; the last limb has the sign.
    limbs: Vec<u64>,
}

impl ExactSum {
    /// A sum from its bytes; none are 0.
    pub fn decode(bytes: Option<&[u8]>) -> Self {
        let mut out = Self::default();
        out.load(bytes);
        out
    }

    /// Makes this the sum of these bytes.
    pub fn load(&mut self, bytes: Option<&[u8]>) {
        self.limbs.clear();
        self.low = 0;
        let mut words =
            bytes.unwrap_or_default().chunks_exact(8).map(|c| c.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b)));
        if let Some(low) = words.next() {
            self.low = usize::try_from(low).unwrap_or(0);
            self.limbs.extend(words);
        }
    }

    /// Writes it to a cell, which keeps its memory if the length is the same. 0 is no bytes.
    pub fn store(&self, cell: &mut Option<Box<[u8]>>) {
        if self.limbs.is_empty() {
            *cell = None;
            return;
        }
        let words = std::iter::once(self.low as u64).chain(self.limbs.iter().copied());
        match cell {
            Some(bytes) if bytes.len() == 8 * (self.limbs.len() + 1) => {
                bytes.chunks_exact_mut(8).zip(words).for_each(|(to, w)| to.copy_from_slice(&w.to_le_bytes()));
            }
            _ => *cell = Some(words.flat_map(u64::to_le_bytes).collect()),
        }
    }

    /// Bytes that it takes beside itself.
    pub fn size(&self) -> usize {
        self.limbs.capacity() * size_of::<u64>()
    }

    /// Adds `x`, `weight` times. `x` must be finite.
    pub fn add(&mut self, x: f64, weight: i64) {
        let (mantissa, exponent) = parts(x);
        self.add_scaled(i128::from(mantissa) * i128::from(weight), exponent);
    }

    /// Adds `x · y`, `weight` times. Both must be finite.
    pub fn add_product(&mut self, x: f64, y: f64, weight: i64) {
        let ((a, e), (b, f)) = (parts(x), parts(y));
        // 106 bits, taken in two pieces so that each fits with its weight.
        let product = i128::from(a) * i128::from(b);
        let (high, low) = (product >> 56, product & ((1 << 56) - 1));
        self.add_scaled(low * i128::from(weight), e + f);
        self.add_scaled(high * i128::from(weight), e + f + 56);
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        if let Some(last) = other.limbs.len().checked_sub(1) {
            self.reach(other.low, other.low + last);
            self.add_at(other.low, &other.limbs);
        }
    }

    /// `value · 2^exponent`.
    fn add_scaled(&mut self, value: i128, exponent: i32) {
        if value == 0 {
            return;
        }
        let place = usize::try_from(exponent - UNIT).unwrap_or(0);
        let (low, shift) = (place / 64, place % 64);
        let wide = (value as u128) << shift;
        let top = if shift == 0 { value >> 127 } else { value >> (128 - shift) };
        let limbs = [wide as u64, (wide >> 64) as u64, top as u64];
        self.reach(low, low + 2);
        self.add_at(low, &limbs);
    }

    /// Makes room for places `from..=to` and one more for the sign.
    fn reach(&mut self, from: usize, to: usize) {
        if self.limbs.is_empty() {
            self.low = from;
        }
        if from < self.low {
            let more = self.low - from;
            self.limbs.splice(0..0, std::iter::repeat_n(0, more));
            self.low = from;
        }
        let sign = self.sign();
        let needed = (to + 2 - self.low).max(self.limbs.len() + 1);
        self.limbs.resize(needed, sign);
    }

    fn sign(&self) -> u64 {
        match self.limbs.last() {
            Some(l) if *l >> 63 != 0 => u64::MAX,
            _ => 0,
        }
    }

    /// Adds limbs at a place for which there is room.
    fn add_at(&mut self, low: usize, limbs: &[u64]) {
        let sign = match limbs.last() {
            Some(l) if *l >> 63 != 0 => u64::MAX,
            _ => 0,
        };
        let mut carry = false;
        let start = low - self.low;
        for (i, to) in self.limbs.iter_mut().skip(start).enumerate() {
            let (a, over) = to.overflowing_add(limbs.get(i).copied().unwrap_or(sign));
            let (b, more) = a.overflowing_add(u64::from(carry));
            *to = b;
            carry = over || more;
        }
        self.trim();
    }

    /// Leaves out limbs that say nothing.
    fn trim(&mut self) {
        while let [.., a, b] = self.limbs.as_slice()
            && ((*b == 0 && a >> 63 == 0) || (*b == u64::MAX && a >> 63 == 1))
        {
            self.limbs.pop();
        }
        if self.limbs == [0] {
            self.limbs.clear();
        }
        let zeros = self.limbs.iter().take_while(|l| **l == 0).count();
        self.limbs.drain(..zeros);
        self.low = if self.limbs.is_empty() { 0 } else { self.low + zeros };
    }

    fn is_negative(&self) -> bool {
        self.sign() != 0
    }

    fn negated(&self) -> Self {
        let mut out = Self { low: self.low, limbs: self.limbs.iter().map(|l| !l).collect() };
        if !out.limbs.is_empty() {
            out.reach(out.low, out.low + out.limbs.len() - 1);
            out.add_at(out.low, &[1]);
        }
        out
    }

    /// `n` times the sum minus the product of two others: what variances are made of. `n` is not
    /// negative. Exact; in units of 2^(2 · [`UNIT`]) for all three.
    pub fn scaled_difference(&self, n: i64, a: &Self, b: &Self) -> Scaled {
        // `n · self`, with the unit of a product.
        let by = Self { low: 0, limbs: vec![n.unsigned_abs(), 0] };
        let mut left = product(self, &by);
        left.low += usize::try_from(-UNIT).unwrap_or(0) / 64;
        let right = product(a, b).negated();
        left.merge(&right);
        left.scaled(2 * UNIT)
    }

    /// The sum as a scaled number.
    pub fn value(&self) -> Scaled {
        self.scaled(UNIT)
    }

    fn scaled(&self, unit: i32) -> Scaled {
        if self.limbs.is_empty() {
            return Scaled { mantissa: 0.0, exponent: 0 };
        }
        let negative = self.is_negative();
        let mut size = if negative { self.negated() } else { self.clone() };
        size.trim();
        while size.limbs.last() == Some(&0) {
            size.limbs.pop();
        }
        // The top 128 bits; what lies below only matters to a half.
        let n = size.limbs.len();
        let limb = |i: usize| n.checked_sub(i).and_then(|i| size.limbs.get(i)).copied().unwrap_or(0);
        let zeros = limb(1).leading_zeros();
        let top = u128::from(limb(1)) << 64 | u128::from(limb(2));
        let mut top = top << zeros;
        if zeros > 0 {
            top |= u128::from(limb(3) >> (64 - zeros));
        }
        let below = size.limbs.iter().rev().skip(2).any(|l| *l != 0);
        if below {
            top |= 1;
        }
        // Rounded once, to even.
        let bits = i32::try_from(64 * n).unwrap_or(i32::MAX) - i32::try_from(zeros).unwrap_or(0);
        let exponent = i32::try_from(64 * size.low).unwrap_or(0) + bits - 128 + unit;
        let mantissa = top as f64;
        Scaled { mantissa: if negative { -mantissa } else { mantissa }, exponent }
    }
}

/// The product of two sums, in units of 2^(2 · [`UNIT`]).
fn product(a: &ExactSum, b: &ExactSum) -> ExactSum {
    let negative = a.is_negative() != b.is_negative();
    let size = |s: &ExactSum| if s.is_negative() { s.negated() } else { s.clone() };
    let (a, b) = (size(a), size(b));
    let mut limbs = vec![0u64; a.limbs.len() + b.limbs.len() + 1];
    for (i, x) in a.limbs.iter().enumerate() {
        let mut carry = 0u128;
        for (j, y) in b.limbs.iter().enumerate() {
            let sum = u128::from(*x) * u128::from(*y) + u128::from(limbs[i + j]) + carry;
            limbs[i + j] = sum as u64;
            carry = sum >> 64;
        }
        limbs[i + b.limbs.len()] = carry as u64;
    }
    let mut out = ExactSum { low: a.low + b.low, limbs };
    out.trim();
    if negative { out.negated() } else { out }
}

/// A finite float as a whole number and a power of two.
fn parts(x: f64) -> (i64, i32) {
    let bits = x.to_bits();
    let exponent = i32::try_from(bits >> 52 & 0x7ff).unwrap_or(0);
    let fraction = i64::try_from(bits & ((1 << 52) - 1)).unwrap_or(0);
    let (mantissa, exponent) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    (if bits >> 63 == 0 { mantissa } else { -mantissa }, exponent)
}

/// A number of 53 bits whose exponent has no bounds: `mantissa · 2^exponent`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaled {
    mantissa: f64,
    exponent: i32,
}

impl Scaled {
    /// A whole number.
    pub fn whole(n: i64) -> Self {
        Self { mantissa: n as f64, exponent: 0 }
    }

    /// Whether it is 0.
    pub fn is_zero(self) -> bool {
        self.mantissa == 0.0
    }

    /// Whether it is below 0.
    pub fn is_negative(self) -> bool {
        self.mantissa < 0.0
    }

    /// `self · other`.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let (a, b) = (self.small(), other.small());
        Self { mantissa: a.mantissa * b.mantissa, exponent: a.exponent + b.exponent }
    }

    /// `self / other`; `other` is not 0.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        let (a, b) = (self.small(), other.small());
        Self { mantissa: a.mantissa / b.mantissa, exponent: a.exponent - b.exponent }
    }

    /// The root; of a negative number NaN.
    #[must_use]
    pub fn sqrt(self) -> Self {
        let s = self.small();
        let (mantissa, exponent) =
            if s.exponent % 2 == 0 { (s.mantissa, s.exponent) } else { (s.mantissa * 2.0, s.exponent - 1) };
        Self { mantissa: mantissa.sqrt(), exponent: exponent / 2 }
    }

    /// With a mantissa around 1.
    fn small(self) -> Self {
        let bits = i32::try_from(self.mantissa.to_bits() >> 52 & 0x7ff).unwrap_or(0) - 1023;
        Self { mantissa: times_power(self.mantissa, -bits), exponent: self.exponent + bits }
    }

    /// The nearest float; infinite if there is none.
    pub fn to_f64(self) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let s = self.small();
        times_power(s.mantissa, s.exponent)
    }
}

/// `x · 2^n`, rounded once: below the normal floats the last step is the only one that can round.
fn times_power(x: f64, n: i32) -> f64 {
    let power = |n: i32| f64::from_bits(u64::try_from(n + 1023).unwrap_or(0) << 52);
    match n {
        ..-2200 => x * 0.0,
        -2200..-1022 => times_power(x * power(-900), n + 900),
        -1022..=1023 => x * power(n),
        1024..=2200 => times_power(x * power(900), n - 900),
        _ => x * f64::INFINITY,
    }
}

#[cfg(test)]
#[path = "exact_tests.rs"]
mod tests;
