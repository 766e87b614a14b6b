//! From SQL text to stream plans: statements and dialect, the catalog, binding through
//! DataFusion, rewrite rules, lowering into `engine::plan`, fragments, EXPLAIN, fault plans.
//! Never runs anything: no engine beyond `types`, `plan` and connector options.

pub mod bind;
pub mod catalog;
pub mod dataflow;
pub mod explain;
pub mod fault;
pub mod fragment;
pub mod lower;
pub mod rules;
mod share;
pub mod sql;

#[cfg(test)]
mod testing;
