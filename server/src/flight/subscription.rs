//! Subscriptions on their way to a client. What has come of which epoch is told beside the rows
//! (`complete_epoch` in the application metadata of a message), so that a client that was cut off
//! knows where to go on. A client that does not keep up is let go, whether it reads or not.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt64Type};
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use futures::{FutureExt, StreamExt, TryStreamExt};
use spate_engine::types::{Epoch, ErrorKind, Result, SpateError};
use tokio::sync::mpsc;
use tonic::Status;

use super::results::Running;
use super::statement::{DataStream, cancelled, of_schema};
use super::{Counters, Shared, status, stops};
use crate::RowStream;

/// How often a client that wants to know hears of epochs without changes.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Messages between a subscription and the network.
const BUFFERED: usize = 2;

/// Sends a subscription's rows.
pub fn send(shared: Arc<Shared>, rows: RowStream, running: Running, progress: bool) -> DataStream {
    let (sender, receiver) = mpsc::channel(BUFFERED);
    tokio::spawn(async move {
        let pump = Pump { shared: shared.clone(), sender: sender.clone(), running, progress, sent: None };
        if let Err(status) = pump.run(rows).await {
            // The subscription is gone by now; the reader hears why when it comes to it.
            let _ = sender.send(Err(status)).await;
        }
    });
    futures::stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) }).boxed()
}

struct Pump {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Result<FlightData, Status>>,
    running: Running,
    progress: bool,
    /// The newest epoch that was handed to the network whole.
    sent: Option<Epoch>,
}

/// The epoch of a batch of a subscription.
fn epoch_of(batch: &RecordBatch) -> Option<Epoch> {
    let epochs = batch.columns().last()?.as_primitive_opt::<UInt64Type>()?;
    (!epochs.is_empty()).then(|| epochs.value(0))
}

impl Pump {
    /// Pumps until the subscription ends. Nobody listening any more is such an end.
    async fn run(mut self, rows: RowStream) -> Result<(), Status> {
        let RowStream { schema, mut stream, delivered, .. } = rows;
        let Some(delivered) = delivered else { return Err(self.fail(&SpateError::internal("no subscription"))) };
        let mut stopping = self.shared.stopping.clone();
        self.message(&schema, None, delivered.complete()).await?;
        loop {
            let next = tokio::select! {
                biased;
                () = self.sender.closed() => return Ok(()),
                () = self.running.cancelled() => return Err(self.fail(&cancelled())),
                () = stops(&mut stopping) => return Err(status::stopping()),
                next = stream.next() => next,
                () = tokio::time::sleep(PROGRESS_EVERY), if self.progress => {
                    let complete = delivered.complete();
                    if complete > self.sent {
                        self.message(&schema, Some(RecordBatch::new_empty(schema.clone())), complete).await?;
                    }
                    continue;
                }
            };
            let Some(batch) = next else { return Ok(()) };
            let batch = batch.and_then(|b| of_schema(&schema, b)).map_err(|e| self.fail(&e))?;
            Counters::add(&self.shared.counters.rows_sent, batch.num_rows() as u64);
            // The batch is the last of its epoch if the epoch is complete with it.
            let complete = delivered.complete().filter(|c| epoch_of(&batch).is_some_and(|e| e <= *c));
            self.message(&schema, Some(batch), complete).await?;
        }
    }

    fn fail(&self, error: &SpateError) -> Status {
        self.shared.failed(error)
    }

    /// Sends the schema (without a batch), or a batch with what it completes.
    async fn message(
        &mut self,
        schema: &SchemaRef,
        batch: Option<RecordBatch>,
        complete: Option<Epoch>,
    ) -> Result<(), Status> {
        let mut messages = encode(schema, batch)?;
        if let (Some(epoch), Some(last)) = (complete, messages.last_mut()) {
            last.app_metadata = serde_json::json!({ "complete_epoch": epoch }).to_string().into();
        }
        for data in messages {
            self.deliver(data).await?;
        }
        self.sent = self.sent.max(complete);
        Ok(())
    }

    /// Waits until there is room, but not for longer than the client may be behind.
    async fn deliver(&mut self, data: FlightData) -> Result<(), Status> {
        let engine = self.shared.engine.clone();
        let mut stopping = self.shared.stopping.clone();
        let limit = self.shared.limits.epochs_behind;
        let behind = async {
            // One that goes on may have much to catch up with; it is slow if it takes nothing.
            let from = engine.worker.visible();
            if engine.wait_visible(from.saturating_add(limit + 1)).await.is_err() {
                // The engine has stopped, which the others see.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            permit = self.sender.reserve() => {
                if let Ok(permit) = permit {
                    permit.send(Ok(data));
                }
                // The loop sees that nobody listens.
                Ok(())
            }
            () = self.running.cancelled() => Err(self.shared.failed(&cancelled())),
            () = stops(&mut stopping) => Err(status::stopping()),
            () = behind => Err(self.shared.failed(&too_slow(limit, self.sent))),
        }
    }
}

/// The error of a subscriber that is too slow; `sent` is the newest epoch that it was sent whole.
fn too_slow(limit: u64, sent: Option<Epoch>) -> SpateError {
    let error = SpateError::new(ErrorKind::Limit, format!("the subscriber is more than {limit} epochs behind"));
    match sent {
        Some(last) => error.with_hint(format!("go on with SUBSCRIBE … AS OF EPOCH {last}")),
        None => error.with_hint("subscribe again"),
    }
}

/// A batch in messages of a bounded size; without one, the schema.
fn encode(schema: &SchemaRef, batch: Option<RecordBatch>) -> Result<Vec<FlightData>, Status> {
    let has_batch = batch.is_some();
    let rows = futures::stream::iter(batch.map(Ok::<_, FlightError>));
    let encoder = FlightDataEncoderBuilder::new().with_schema(schema.clone()).build(rows);
    // Nothing in it waits.
    let mut messages = encoder.try_collect::<Vec<FlightData>>().now_or_never().unwrap_or_else(|| Ok(Vec::new()))?;
    // Every encoder begins with the schema.
    if has_batch {
        if messages.is_empty() {
            return Err(Status::internal("a batch was not encoded"));
        }
        messages.remove(0);
    }
    Ok(messages)
}
