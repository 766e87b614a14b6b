//! What runs statements: an engine in this process, or a server.

use std::sync::Arc;

use futures::StreamExt;
use spate_client::protocol::Client;
use spate_client::remote;
use spate_client::text::Column;
use spate_engine::types::Result;
use spate_server::{CancelHandle, Engine, EngineConfig, Outcome, Session};

use crate::args::Args;

/// What runs statements.
pub enum Backend {
    /// An engine in this process.
    Embedded {
        /// The engine.
        engine: Arc<Engine>,
        /// The session.
        session: Box<Session>,
    },
    /// A server.
    Server {
        /// The connection, with its session.
        client: Client,
        /// Cancels the running statement.
        cancel: CancelHandle,
    },
}

impl Backend {
    /// Connects to the server that is named, or starts an engine.
    pub async fn open(args: &Args) -> Result<Self> {
        match &args.url {
            Some(url) => {
                let client = Client::connect(url).await.map_err(remote::error)?;
                Ok(Self::Server { client, cancel: CancelHandle::default() })
            }
            None => {
                let config = EngineConfig { data_dir: args.data_dir.clone(), ..EngineConfig::default() };
                let engine = Engine::open(args.engine.over(config))?;
                let session = Box::new(engine.session());
                Ok(Self::Embedded { engine, session })
            }
        }
    }

    /// The engine, if it is in this process.
    pub fn engine(&self) -> Option<&Arc<Engine>> {
        match self {
            Self::Embedded { engine, .. } => Some(engine),
            Self::Server { .. } => None,
        }
    }

    /// Runs one statement.
    pub async fn execute(&mut self, sql: &str) -> Result<Outcome> {
        match self {
            Self::Embedded { session, .. } => session.execute(sql).await,
            Self::Server { client, cancel } => remote::execute(client, cancel, sql).await,
        }
    }

    /// Cancels the running statement.
    pub fn cancel_handle(&self) -> CancelHandle {
        match self {
            Self::Embedded { session, .. } => session.cancel_handle(),
            Self::Server { cancel, .. } => cancel.clone(),
        }
    }

    /// Names for completion. A server that does not tell them has none.
    pub async fn completions(&mut self) -> Vec<String> {
        match self {
            Self::Embedded { session, .. } => session.completions(),
            Self::Server { .. } => self.names().await.unwrap_or_default(),
        }
    }

    async fn names(&mut self) -> Result<Vec<String>> {
        let sql = "SELECT table_name AS name FROM information_schema.tables \
                   UNION SELECT column_name FROM information_schema.columns";
        let mut names = Vec::new();
        if let Outcome::Rows(mut rows) = self.execute(sql).await? {
            while let Some(batch) = rows.stream.next().await {
                let batch = batch?;
                for column in Column::all(&batch)? {
                    names.extend((0..batch.num_rows()).filter_map(|row| column.text(row)));
                }
            }
        }
        Ok(names)
    }

    /// Stops the engine, or ends the session.
    pub async fn close(self) {
        match self {
            Self::Embedded { engine, .. } => engine.shutdown(),
            // Else it ends by itself after a while.
            Self::Server { client, .. } => drop(client.close().await),
        }
    }
}
