//! Variances, covariances, correlation and linear regression from exact sums: their results depend
//! on the multiset of rows alone, and taking rows away takes away all of them.
//!
//! Everything is made of `n·Σab − Σa·Σb`, which is computed without rounding; then a few roundings
//! of a division or a root remain. Rows that hold NaN or ±Inf are counted apart; while there are any
//! the result is NaN.

use std::fmt;

use super::exact::{ExactSum, Scaled};

/// A function. Of two arguments, the regressions have y first and x second, as SQL does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// `var_pop`.
    VarPop,
    /// `var_samp`.
    VarSamp,
    /// `stddev_pop`.
    StddevPop,
    /// `stddev_samp`.
    StddevSamp,
    /// `covar_pop`.
    CovarPop,
    /// `covar_samp`.
    CovarSamp,
    /// `corr`.
    Corr,
    /// `regr_slope`.
    RegrSlope,
    /// `regr_intercept`.
    RegrIntercept,
    /// `regr_r2`.
    RegrR2,
    /// `regr_avgx`.
    RegrAvgX,
    /// `regr_avgy`.
    RegrAvgY,
    /// `regr_sxx`.
    RegrSxx,
    /// `regr_syy`.
    RegrSyy,
    /// `regr_sxy`.
    RegrSxy,
}

const NAMES: &[(&str, Moment)] = &[
    ("var_pop", Moment::VarPop),
    ("var", Moment::VarSamp),
    ("stddev_pop", Moment::StddevPop),
    ("stddev", Moment::StddevSamp),
    ("covar_pop", Moment::CovarPop),
    ("covar_samp", Moment::CovarSamp),
    ("corr", Moment::Corr),
    ("regr_slope", Moment::RegrSlope),
    ("regr_intercept", Moment::RegrIntercept),
    ("regr_r2", Moment::RegrR2),
    ("regr_avgx", Moment::RegrAvgX),
    ("regr_avgy", Moment::RegrAvgY),
    ("regr_sxx", Moment::RegrSxx),
    ("regr_syy", Moment::RegrSyy),
    ("regr_sxy", Moment::RegrSxy),
];

impl Moment {
    /// The function that DataFusion calls by this name.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(n, _)| *n == name).map(|(_, m)| *m)
    }

    /// What DataFusion calls it.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, m)| *m == self).map_or("", |(n, _)| n)
    }

    /// Whether it has two arguments.
    pub fn of_pairs(self) -> bool {
        !matches!(self, Self::VarPop | Self::VarSamp | Self::StddevPop | Self::StddevSamp)
    }

    /// The result; nothing for NULL.
    pub fn result(self, s: &Sums) -> Option<f64> {
        let least = match self {
            Self::VarSamp | Self::StddevSamp | Self::CovarSamp | Self::Corr => 2,
            Self::RegrSlope | Self::RegrIntercept | Self::RegrR2 => 2,
            _ => 1,
        };
        if s.rows < least {
            return None;
        }
        if s.odd != 0 {
            return Some(f64::NAN);
        }
        let n = Scaled::whole(s.rows);
        let pop = || n.times(n);
        let samp = || n.times(Scaled::whole(s.rows - 1));
        let [a, b, aa, bb, ab] = &s.sums;
        let of_a = || aa.scaled_difference(s.rows, a, a);
        let of_b = || bb.scaled_difference(s.rows, b, b);
        let of_both = || ab.scaled_difference(s.rows, a, b);
        Some(match self {
            Self::VarPop => of_a().over(pop()).to_f64(),
            Self::VarSamp => of_a().over(samp()).to_f64(),
            Self::StddevPop => of_a().over(pop()).sqrt().to_f64(),
            Self::StddevSamp => of_a().over(samp()).sqrt().to_f64(),
            Self::CovarPop => of_both().over(pop()).to_f64(),
            Self::CovarSamp => of_both().over(samp()).to_f64(),
            Self::Corr => {
                let (x, y) = (of_a(), of_b());
                if x.is_zero() || y.is_zero() {
                    return None;
                }
                of_both().over(x.times(y).sqrt()).to_f64().clamp(-1.0, 1.0)
            }
            Self::RegrSlope | Self::RegrIntercept => {
                let x = of_b();
                if x.is_zero() {
                    return None;
                }
                let slope = of_both().over(x);
                if self == Self::RegrSlope {
                    return Some(slope.to_f64());
                }
                a.value().over(n).to_f64() - slope.times(b.value().over(n)).to_f64()
            }
            Self::RegrR2 => {
                let (x, y, both) = (of_b(), of_a(), of_both());
                if x.is_zero() || y.is_zero() {
                    return None;
                }
                both.times(both).over(x.times(y)).to_f64().min(1.0)
            }
            Self::RegrAvgX => b.value().over(n).to_f64(),
            Self::RegrAvgY => a.value().over(n).to_f64(),
            Self::RegrSxx => of_b().over(n).to_f64(),
            Self::RegrSyy => of_a().over(n).to_f64(),
            Self::RegrSxy => of_both().over(n).to_f64(),
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the functions are computed from.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// Number of rows.
    pub rows: i64,
    /// How many of them hold something that is not finite.
    pub odd: i64,
    /// Sums of a, b, a·a, b·b and a·b over all other rows. Of one argument there is no b.
    pub sums: [ExactSum; 5],
}

/// Places in [`Sums::sums`] that a function of one argument needs.
pub const OF_ONE: &[usize] = &[0, 2];
/// Places that a function of two arguments needs.
pub const OF_PAIRS: &[usize] = &[0, 1, 2, 3, 4];

impl Sums {
    /// Adds a row `weight` times.
    pub fn add(&mut self, a: f64, b: Option<f64>, weight: i64) {
        self.rows = self.rows.wrapping_add(weight);
        if !a.is_finite() || b.is_some_and(|b| !b.is_finite()) {
            self.odd = self.odd.wrapping_add(weight);
            return;
        }
        let [sa, sb, saa, sbb, sab] = &mut self.sums;
        sa.add(a, weight);
        saa.add_product(a, a, weight);
        if let Some(b) = b {
            sb.add(b, weight);
            sbb.add_product(b, b, weight);
            sab.add_product(a, b, weight);
        }
    }

    /// Adds other rows.
    pub fn merge(&mut self, other: &Self) {
        self.rows = self.rows.wrapping_add(other.rows);
        self.odd = self.odd.wrapping_add(other.odd);
        self.sums.iter_mut().zip(&other.sums).for_each(|(to, from)| to.merge(from));
    }
}
