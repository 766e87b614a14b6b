//! Subscriptions that go on after a lost connection: rows are handed over by whole epochs, and the
//! server is asked for what came after the last one, so nothing is lost and nothing comes twice.

use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::sql::CommandStatementQuery;
use futures::StreamExt;

use super::client::{Told, schema_of};
use super::{Client, Error, Kind, Result};

/// How a subscription begins, and how it bears with failures.
#[derive(Debug, Clone)]
pub struct SubscriptionOptions {
    /// Whether the rows that are there come first.
    pub snapshot: bool,
    /// Go on after this epoch, which was received before.
    pub as_of: Option<u64>,
    /// First and longest pause between attempts to reach the server.
    pub backoff: (Duration, Duration),
    /// Attempts to reach the server after which a lost connection is an error.
    pub attempts: u32,
    /// Bytes that one epoch (or the rows that are there at first) may take here.
    pub epoch_bytes: usize,
}

impl Default for SubscriptionOptions {
    fn default() -> Self {
        Self {
            snapshot: true,
            as_of: None,
            backoff: (Duration::from_millis(50), Duration::from_secs(5)),
            attempts: 20,
            epoch_bytes: 4 << 30,
        }
    }
}

/// All changes of an epoch. The last columns of the rows are `__weight` and `__epoch`.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The epoch.
    pub epoch: u64,
    /// Its rows, at least one.
    pub rows: Vec<RecordBatch>,
}

/// A subscription. Dropped, it ends on the server too.
pub struct Subscription {
    client: Client,
    target: String,
    options: SubscriptionOptions,
    schema: SchemaRef,
    told: Told,
    data: Option<FlightDataDecoder>,
    /// Rows of an epoch of which not all have come.
    part: Vec<RecordBatch>,
    part_bytes: usize,
    /// The newest epoch that was handed over whole.
    complete: Option<u64>,
    /// Times that the connection was made anew.
    resumed: u64,
}

impl Subscription {
    pub(super) async fn new(client: Client, target: &str, options: SubscriptionOptions) -> Result<Self> {
        let (schema, told, data) = begin(&client, target, options.snapshot, options.as_of).await?;
        Ok(Self {
            client,
            target: target.to_owned(),
            complete: options.as_of.or(told.complete),
            options,
            schema,
            told,
            data: Some(data),
            part: Vec::new(),
            part_bytes: 0,
            resumed: 0,
        })
    }

    /// Columns, `__weight` and `__epoch` among them.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The newest epoch of which all changes were handed over: where another subscription can go on.
    pub fn complete(&self) -> Option<u64> {
        self.complete
    }

    /// How often a lost connection was made anew.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// The changes of the next epoch that has any; `None` when all input has ended.
    ///
    /// # Errors
    /// When what is followed is gone, the subscriber was too slow, or the server was not reached again.
    pub async fn next(&mut self) -> Result<Option<Change>> {
        loop {
            let Some(data) = &mut self.data else {
                self.go_on().await?;
                continue;
            };
            match data.next().await {
                None => {
                    // The server ends a subscription once all input has ended; a part cannot be left.
                    if self.part.is_empty() {
                        return Ok(None);
                    }
                    self.lost();
                }
                Some(Err(e)) => {
                    let e = Error::from(e);
                    if e.kind() != Kind::Unavailable {
                        return Err(e);
                    }
                    self.lost();
                }
                Some(Ok(message)) => {
                    let done = complete(&message.inner)?;
                    if let DecodedPayload::RecordBatch(batch) = message.payload
                        && batch.num_rows() > 0
                    {
                        self.part_bytes = self.part_bytes.saturating_add(batch.get_array_memory_size());
                        if self.part_bytes > self.options.epoch_bytes {
                            let most = self.options.epoch_bytes;
                            self.data = None;
                            return Err(Error::new(Kind::Limit, format!("an epoch takes more than {most} bytes"))
                                .with_hint("raise SubscriptionOptions::epoch_bytes"));
                        }
                        self.part.push(batch);
                    }
                    let Some(epoch) = done else { continue };
                    self.complete = Some(epoch);
                    self.part_bytes = 0;
                    let rows = std::mem::take(&mut self.part);
                    if !rows.is_empty() {
                        return Ok(Some(Change { epoch, rows }));
                    }
                }
            }
        }
    }

    /// The connection is gone, and with it what has come of an epoch.
    fn lost(&mut self) {
        self.data = None;
        self.part.clear();
        self.part_bytes = 0;
    }

    /// Asks for what came after the last whole epoch.
    async fn go_on(&mut self) -> Result<()> {
        if self.told.of.is_none() && self.complete.is_some() {
            return Err(Error::new(Kind::Unavailable, "the connection was lost, and a query cannot be gone on with")
                .with_hint("create a materialized view of it, and subscribe to that"));
        }
        let (mut pause, longest) = self.options.backoff;
        let mut tries = 0;
        loop {
            match begin(&self.client, &self.target, self.options.snapshot, self.complete).await {
                Ok((schema, told, data)) => {
                    self.check(&schema, &told)?;
                    (self.schema, self.told, self.data) = (schema, told, Some(data));
                    self.resumed += 1;
                    return Ok(());
                }
                Err(e) => {
                    tries += 1;
                    // A server that has begun anew may not have come as far, or not know the relation.
                    if e.kind() != Kind::Unavailable || tries >= self.options.attempts {
                        return Err(e);
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(longest);
                }
            }
        }
    }

    /// What goes on must be what there was.
    fn check(&self, schema: &SchemaRef, told: &Told) -> Result<()> {
        if self.complete.is_none() {
            return Ok(());
        }
        let what = if told.instance != self.told.instance {
            "the server was started anew, and its epochs with it"
        } else if told.of != self.told.of || *schema != self.schema {
            "what was subscribed to is another relation now"
        } else {
            return Ok(());
        };
        Err(Error::new(Kind::NotFound, what).with_hint("subscribe again, from the rows that are there"))
    }
}

/// The epoch that a message says is complete with it.
fn complete(data: &FlightData) -> Result<Option<u64>> {
    if data.app_metadata.is_empty() {
        return Ok(None);
    }
    let parts: serde_json::Value = serde_json::from_slice(&data.app_metadata).map_err(Error::protocol)?;
    Ok(parts["complete_epoch"].as_u64())
}

async fn begin(
    client: &Client,
    target: &str,
    snapshot: bool,
    as_of: Option<u64>,
) -> Result<(SchemaRef, Told, FlightDataDecoder)> {
    let tail = match (as_of, snapshot) {
        (Some(epoch), _) => format!(" AS OF EPOCH {epoch}"),
        (None, true) => String::new(),
        (None, false) => " NO SNAPSHOT".to_owned(),
    };
    let command = CommandStatementQuery { query: format!("SUBSCRIBE TO {target}{tail}"), transaction_id: None };
    let (info, told) = client.info(&command).await?;
    let schema = schema_of(&info)?;
    let data = client.fetch(&info, true).await?;
    Ok((schema, told, FlightDataDecoder::new(data.map(|d| d.map_err(FlightError::from)))))
}
