//! What a plan is to achieve.

use serde::{Deserialize, Serialize};

use super::super::error::{FaultError, Result};
use super::super::model::When;
use super::super::shock::Cost;

/// How protection is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Least running cost plus price of late rows.
    #[default]
    Cost,
    /// Least lateness within the budgets, at the mean load.
    Latency,
    /// The same over the measured load states, with a mode for each.
    Burst,
    /// The global checkpoint alone.
    None,
    /// Every task takes snapshots every 2^level epochs, the same for all.
    Checkpoint,
    /// Every task has a replica.
    Active,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Cost, Self::Latency, Self::Burst, Self::None, Self::Checkpoint, Self::Active];

    /// Its name, as `fault.strategy` and cluster files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Latency => "latency",
            Self::Burst => "burst",
            Self::None => "none",
            Self::Checkpoint => "checkpoint",
            Self::Active => "active",
        }
    }

    /// What it does, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Cost => "Least cost of protection and late rows",
            Self::Latency => "Least lateness within budgets",
            Self::Burst => "The same over the states of the load",
            Self::None => "The global checkpoint alone",
            Self::Checkpoint => "Snapshots of every task",
            Self::Active => "A replica of every task",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// Every failure must be over in this time, this likely.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// Longest outage [s].
    pub recovery_s: f64,
    /// Probability with which each single shock keeps it.
    pub confidence: f64,
}

/// What a plan is to achieve, and within what.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Goal {
    /// How.
    pub strategy: Strategy,
    /// `fault.loss_budget`: late rows per hour (for `cost`: then the cheapest plan within it).
    pub loss_budget_rows_per_h: Option<f64>,
    /// `fault.replica_slots`: replicas at most.
    pub replica_slots: Option<usize>,
    /// `fault.overhead`: share of all tasks' cores that snapshots may take.
    pub overhead: Option<f64>,
    /// `recovery_slo` and `slo_confidence`: then the cheapest plan that keeps it.
    pub slo: Option<Slo>,
    /// The level for [`Strategy::Checkpoint`]; none: the one level that makes its objective least.
    pub level: Option<u8>,
}

impl Goal {
    /// A strategy without budgets.
    pub fn of(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
    }

    /// Checks that every number is in range.
    pub fn validate(&self) -> Result<()> {
        let bad = |what: String| Err(FaultError::Invalid { what });
        if let Some(b) = self.loss_budget_rows_per_h.filter(|b| !(b.is_finite() && *b >= 0.0)) {
            return bad(format!("fault.loss_budget is {b}, must be 0 or more"));
        }
        if self.loss_budget_rows_per_h.is_some() && !self.counts_rows() {
            let name = self.strategy.name();
            return bad(format!(
                "fault.loss_budget is for strategy 'cost', which counts late rows; '{name}' makes lateness least within \
                 fault.replica_slots and fault.overhead"
            ));
        }
        if let Some(o) = self.overhead.filter(|o| !(0.0..=1.0).contains(o)) {
            return bad(format!("fault.overhead is {o}, must be between 0 and 1"));
        }
        if let Some(s) = self.slo {
            if !(s.recovery_s.is_finite() && s.recovery_s > 0.0) {
                return bad(format!("recovery_slo is {} s, must be above 0", s.recovery_s));
            }
            if !(s.confidence > 0.0 && s.confidence <= 1.0) {
                return bad(format!("slo_confidence is {}, must be above 0 and at most 1", s.confidence));
            }
        }
        Ok(())
    }

    /// Whether the plan minimises running cost first (else losses).
    pub(super) fn cheapest(&self) -> bool {
        self.slo.is_some() || self.counts_rows()
    }

    /// Which load losses are taken at: `latency` looks at the mean load alone, as if it were steady.
    pub fn when(&self) -> When {
        if self.strategy == Strategy::Latency { When::Mean } else { When::States }
    }

    /// Whether losses are counted as late rows and priced (else as their lateness). Fixed policies are
    /// measured by what they cost, too.
    pub fn counts_rows(&self) -> bool {
        !matches!(self.strategy, Strategy::Latency | Strategy::Burst)
    }

    /// The loss that counts, of a plan's cost.
    pub fn loss(&self, cost: &Cost) -> f64 {
        if self.counts_rows() { cost.late_rows_per_h } else { cost.lateness_row_s_per_h }
    }
}
