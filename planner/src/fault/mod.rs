//! The fault cost model: what a failure costs in late results, and the plan that makes it least.
//!
//! Pure computation: no I/O, no clock, no ambient randomness. `docs/fault-model.md` derives the
//! formulas and shows how they compare with simulation.
//!
//! | module | answers |
//! |---|---|
//! | [`graph`], [`cluster`] | what is there: tasks, sinks, machines, prices |
//! | [`fluid`], [`interval`], [`fidelity`] | closed formulas: outage, late rows, intervals, information loss |
//! | [`model`] | what protects a task, and what that costs with and without failures |
//! | [`shock`], [`reliability`] | what fails together, how often, and what a whole plan promises |
//! | [`optimize`] | the best plan, how far from the best it can be, and when to change it |
//! | [`estimate`] | the model's inputs from what is measured while running |
//! | [`simulate`] | the same system event by event, sharing no formula with the model |
//! | [`explain`], [`figures`] | all of it for people |

pub mod cluster;
pub mod error;
pub mod estimate;
pub mod explain;
pub mod fidelity;
pub mod figures;
pub mod flow;
pub mod fluid;
pub mod graph;
pub mod interval;
pub mod model;
pub mod optimize;
mod reach;
pub mod reliability;
pub mod shock;
pub mod simulate;
mod validate;

#[cfg(test)]
mod khaos_tests;
#[cfg(test)]
mod strategy_tests;
#[cfg(test)]
mod testing;
