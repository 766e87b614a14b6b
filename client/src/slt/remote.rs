//! A server as what a test file runs against. It must hold nothing when a file begins, and what the file
//! has made is dropped when it ends: files see the same names as on an engine of their own.

use std::ops::Range;

use arrow::array::AsArray;
use async_trait::async_trait;
use spate_engine::types::{Result, SpateError};
use spate_planner::catalog::RESERVED_SCHEMAS;
use spate_planner::sql::quote;
use spate_server::{CancelHandle, Session};
use tokio::sync::OnceCell;

use super::driver::answer;
use super::{Answer, Connection, Database};
use crate::protocol::Client;
use crate::remote;

/// A server.
pub struct Remote {
    url: String,
    own: OnceCell<Client>,
}

/// Columns of texts of a query.
async fn texts(client: &Client, sql: &str) -> Result<Vec<Vec<String>>> {
    let batches = client.query(sql).await.map_err(remote::error)?.collect().await.map_err(remote::error)?;
    let mut out = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch.columns().iter().filter_map(|c| c.as_string_opt::<i32>()).collect();
        out.extend((0..batch.num_rows()).map(|i| columns.iter().map(|c| c.value(i).to_owned()).collect()));
    }
    Ok(out)
}

impl Remote {
    /// The server at `url`.
    pub fn new(url: String) -> Self {
        Self { url, own: OnceCell::new() }
    }

    /// A connection of its own, made when the server was found empty.
    async fn own(&self) -> Result<&Client> {
        self.own
            .get_or_try_init(|| async {
                let client = Client::connect(&self.url).await.map_err(remote::error)?;
                match Self::leftovers(&client).await?.first() {
                    None => Ok(client),
                    Some(first) => Err(SpateError::invalid(format!("the server is not empty: it has {first}"))
                        .with_hint("test files drop what is there; give them a server of their own")),
                }
            })
            .await
    }

    /// What there is, as DROP names it.
    async fn leftovers(client: &Client) -> Result<Vec<String>> {
        let mut out = Vec::new();
        let sql = "SELECT table_type, table_schema, table_name FROM information_schema.tables ORDER BY 1, 2, 3";
        for row in texts(client, sql).await? {
            let [kind, schema, name] = row.as_slice() else { continue };
            let kind = if kind == "BASE TABLE" { "TABLE" } else { kind };
            out.push(format!("{kind} {}.{}", quote(schema), quote(name)));
        }
        for row in texts(client, "SHOW FUNCTIONS").await? {
            if let [schema, name, ..] = row.as_slice() {
                out.push(format!("FUNCTION {}.{}", quote(schema), quote(name)));
            }
        }
        for row in texts(client, "SELECT schema_name FROM information_schema.schemata ORDER BY 1").await? {
            let kept = |s: &String| s == "public" || RESERVED_SCHEMAS.contains(&s.as_str());
            out.extend(row.iter().filter(|s| !kept(s)).map(|s| format!("SCHEMA {}", quote(s))));
        }
        Ok(out)
    }
}

#[async_trait]
impl Database for Remote {
    async fn connect(&self) -> Result<Box<dyn Connection>> {
        self.own().await?;
        let client = Client::connect(&self.url).await.map_err(remote::error)?;
        Ok(Box::new(RemoteConnection { client }))
    }

    async fn verify_views(&self) -> Result<usize> {
        self.own().await?.verify_views().await.map_err(remote::error)
    }

    async fn shutdown(&self) {
        let Some(client) = self.own.get() else { return };
        // A server that is gone has nothing left either; what cannot be dropped, the next file tells of.
        for what in Self::leftovers(client).await.unwrap_or_default() {
            let (kind, name) = what.rsplit_once(' ').unwrap_or_default();
            let _ = client.execute(&format!("DROP {kind} IF EXISTS {name} CASCADE")).await;
        }
        let _ = client.execute("RESET ALL").await;
    }
}

struct RemoteConnection {
    client: Client,
}

#[async_trait]
impl Connection for RemoteConnection {
    fn split(&self, sql: &str) -> Result<Vec<Range<usize>>> {
        Session::split(sql)
    }

    async fn run(&mut self, sql: &str) -> Result<Answer> {
        answer(remote::execute(&self.client, &CancelHandle::default(), sql).await?).await
    }
}
