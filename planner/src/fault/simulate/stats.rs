//! Means with confidence intervals.

use serde::{Deserialize, Serialize};

/// A mean and half the width of its 95% confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Sample mean.
    pub mean: f64,
    /// Half the width of the interval; infinite with fewer than two samples.
    #[serde(with = "finite")]
    pub half_width: f64,
}

/// JSON has no infinity: it is written as null.
mod finite {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(x: &f64, s: S) -> Result<S::Ok, S::Error> {
        x.is_finite().then_some(*x).serialize(s)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(d: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(d)?.unwrap_or(f64::INFINITY))
    }
}

impl Estimate {
    /// From independent samples, by Student's t.
    pub fn of(samples: &[f64]) -> Self {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n.max(1.0);
        if samples.len() < 2 {
            return Self { mean, half_width: f64::INFINITY };
        }
        let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { mean, half_width: student(samples.len() - 1) * (variance / n).sqrt() }
    }

    /// Whether a value lies in the interval.
    pub fn covers(&self, x: f64) -> bool {
        (x - self.mean).abs() <= self.half_width
    }
}

/// The 97.5% quantile of Student's t: the normal's with the first terms of its expansion in 1/ν
/// (Abramowitz & Stegun 26.7.5), good to 1% from ν = 5 on.
fn student(degrees: usize) -> f64 {
    const Z: f64 = 1.959_963_985;
    let v = degrees as f64;
    if let Some(exact) = [12.706, 12.706, 4.303, 3.182, 2.776].get(degrees) {
        return *exact;
    }
    let z3 = Z.powi(3);
    let z5 = Z.powi(5);
    Z + (z3 + Z) / (4.0 * v) + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * v * v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_students_t() {
        for (v, t) in [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)] {
            assert!((student(v) - t).abs() < 0.015 * t, "{v}: {}", student(v));
        }
        let e = Estimate::of(&[1.0, 2.0, 3.0, 4.0]);
        assert!((e.mean - 2.5).abs() < 1e-12 && e.covers(1.0) && !e.covers(5.0));
    }
}
