//! A client of a Spate server, over Flight SQL. It needs nothing of the engine.
//!
//! ```no_run
//! # async fn example() -> spate_client::protocol::Result<()> {
//! use spate_client::Client;
//!
//! let client = Client::connect("grpc://127.0.0.1:50051").await?;
//! client.execute("CREATE TABLE t (id int PRIMARY KEY)").await?;
//! client.execute("INSERT INTO t VALUES (1), (2)").await?;
//! let mut changes = client.subscribe("t").await?;
//! while let Some(change) = changes.next().await? {
//!     println!("epoch {}: {} batches", change.epoch, change.rows.len());
//! }
//! # Ok(())
//! # }
//! ```

pub mod client;
pub mod error;
pub mod prepared;
pub mod rows;
pub mod subscription;

pub use client::{Answer, Client, IngestMode};
pub use error::{Error, Kind, Result};
pub use prepared::Prepared;
pub use rows::Rows;
pub use subscription::{Change, Subscription, SubscriptionOptions};
