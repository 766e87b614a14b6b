//! The client library of Spate: a client of a server ([`protocol`]), values as text, results in several formats, scripts with
//! their positions, and the sqllogictest runner. The `spate` command is made of it.

pub mod format;
pub mod protocol;
pub mod remote;
pub mod scan;
pub mod script;
pub mod slt;
pub mod text;

pub use protocol::Client;
