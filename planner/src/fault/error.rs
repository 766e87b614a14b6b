//! What can go wrong when a fault plan is asked for: input that makes no sense, or a promise that
//! nobody can keep. Neither is ever told as a number.

use thiserror::Error;

/// Why there is no plan, or no prediction.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum FaultError {
    /// The description contradicts itself or is out of range.
    #[error("invalid fault model input: {what}")]
    Invalid {
        /// What is wrong, and where.
        what: String,
    },
    /// The description is sound, but no plan does what is asked.
    #[error("cannot meet {goal}, because {because}; {hint}")]
    CannotMeet {
        /// The promise, such as `recovery_slo = 2 s`.
        goal: String,
        /// The task, shock or budget that binds.
        because: String,
        /// What would help.
        hint: String,
    },
}

impl FaultError {
    /// An error about the input.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }

    /// A promise that cannot be kept.
    pub fn cannot_meet(goal: impl Into<String>, because: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::CannotMeet { goal: goal.into(), because: because.into(), hint: hint.into() }
    }
}

/// A result with a [`FaultError`].
pub type Result<T> = std::result::Result<T, FaultError>;
