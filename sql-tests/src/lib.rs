//! What the SQL tests are made of: an engine driven by statements, random changes of tables,
//! and a list of materialized views that uses every operator there is.

pub mod dml;
pub mod driver;
pub mod properties;
pub mod random;
pub mod suite;
pub mod tpch;
pub mod views;
