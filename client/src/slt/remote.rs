//! A server as what a test file runs against: each file has a schema of its own there.

use std::ops::Range;

use async_trait::async_trait;
use futures::StreamExt;
use spate_engine::types::{Result, SpateError};
use spate_server::{CancelHandle, Outcome, Session};
use tokio::sync::OnceCell;

use super::driver::{cells, count_of, types};
use super::{Answer, Connection, Database};
use crate::protocol::Client;
use crate::remote;

/// A server.
pub struct Remote {
    url: String,
    schema: String,
    made: OnceCell<Client>,
}

impl Remote {
    /// The server at `url`; names without a schema are those of `schema`, which is made and dropped.
    pub fn new(url: String, schema: String) -> Self {
        Self { url, schema, made: OnceCell::new() }
    }

    /// The connection that made the schema.
    async fn own(&self) -> Result<&Client> {
        self.made
            .get_or_try_init(|| async {
                let client = Client::connect(&self.url).await.map_err(remote::error)?;
                client.execute(&format!("CREATE SCHEMA {}", self.schema)).await.map_err(remote::error)?;
                Ok(client)
            })
            .await
    }
}

#[async_trait]
impl Database for Remote {
    async fn connect(&self) -> Result<Box<dyn Connection>> {
        self.own().await?;
        let client = Client::connect(&self.url).await.map_err(remote::error)?;
        client.execute(&format!("SET search_path = {}", self.schema)).await.map_err(remote::error)?;
        Ok(Box::new(RemoteConnection { client }))
    }

    async fn verify_views(&self) -> Result<usize> {
        self.own().await?.verify_views().await.map_err(remote::error)
    }

    async fn shutdown(&self) {
        if let Some(client) = self.made.get() {
            // A server that is gone has no schema either.
            let _ = client.execute(&format!("DROP SCHEMA {} CASCADE", self.schema)).await;
        }
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
        let mut result = match remote::execute(&self.client, &CancelHandle::default(), sql).await? {
            Outcome::Done(tag) => return Ok(Answer::Done(count_of(&tag))),
            Outcome::Rows(result) => result,
        };
        if result.endless {
            return Err(SpateError::unsupported("a statement that never ends cannot run in a test file")
                .with_hint("read the view with SELECT after FLUSH"));
        }
        let mut rows = Vec::new();
        while let Some(batch) = result.stream.next().await {
            cells(&batch?, &mut rows)?;
        }
        Ok(Answer::Rows { types: types(&result.schema), rows })
    }
}
