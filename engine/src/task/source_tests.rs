//! Source leaves read epoch by epoch: what the splits of one file say of event time.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use parking_lot::Mutex;

use super::events::{Events, TaskId};
use super::idle::SourceGroup;
use super::leaf::LeafPoll;
use super::source::{SourceContext, SourceLeaf};
use super::ticks::TickBoard;
use crate::connector::{DeadLetter, OnError, Polled, SourceConnector, Split, SplitReader};
use crate::env::SystemClock;
use crate::plan::{ObjectId, SourceSpec, WatermarkSpec};
use crate::types::{Epoch, Result, SpateError, SplitRange, Tick, WATERMARK_MAX, WATERMARK_MIN, Watermark};

/// Files of splits of times.
struct Files(Vec<Vec<Vec<i64>>>);

struct Rows {
    times: Vec<i64>,
    next: usize,
}

impl SourceConnector for Files {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, None), true)]))
    }

    fn bounded(&self) -> bool {
        true
    }

    fn splits(&self, _: bool, _: usize) -> Result<Vec<Split>> {
        let mut out = Vec::new();
        for (f, splits) in self.0.iter().enumerate() {
            for (i, rows) in splits.iter().enumerate() {
                let end = Some(rows.len() as u64);
                let id = format!("{f}#{i}").into();
                out.push(Split { id, lane: f.to_string().into(), start: 0, end, detail: format!("{f} {i}") });
            }
        }
        Ok(out)
    }

    fn open(&self, split: &Split, offset: u64, _: &[usize]) -> Result<Box<dyn SplitReader>> {
        let (f, i) = split.detail.split_once(' ').unwrap();
        let times = self.0[f.parse::<usize>().unwrap()][i.parse::<usize>().unwrap()].clone();
        Ok(Box::new(Rows { times, next: offset as usize }))
    }
}

impl SplitReader for Rows {
    fn poll(&mut self, max_rows: usize, _: Option<u64>) -> Result<Polled> {
        let times: Vec<i64> = self.times[self.next..].iter().take(max_rows).copied().collect();
        if times.is_empty() {
            return Ok(Polled::End);
        }
        self.next += times.len();
        let schema = Files(Vec::new()).schema();
        let rows = RecordBatch::try_new(schema, vec![Arc::new(TimestampMicrosecondArray::from(times))])?;
        Ok(Polled::Batch { rows, dead: Vec::new(), progress: None })
    }

    fn offset(&self) -> u64 {
        self.next as u64
    }
}

/// Keeps the late rows.
#[derive(Default)]
struct Late(Mutex<Vec<i64>>);

impl Events for Late {
    fn want_tick(&self, _: TaskId, _: bool) {}
    fn closed(&self, _: TaskId, _: usize, _: Tick, _: &[SplitRange]) {}
    fn completed(&self, _: TaskId, _: Epoch, _: Watermark) {}
    fn dead_letters(&self, _: &Arc<str>, _: Vec<DeadLetter>) {}
    fn late(&self, _: &Arc<str>, _: Epoch, rows: RecordBatch) {
        let times = rows.column(0).as_primitive::<TimestampMicrosecondType>().values().to_vec();
        self.0.lock().extend(times);
    }
    fn caught_up(&self, _: TaskId, _: Epoch, _: bool) {}
    fn failed(&self, _: TaskId, _: Epoch, error: SpateError) {
        panic!("{error}");
    }
}

/// The source-wide watermark at the end of each epoch, each task reading two rows per epoch, and the
/// late rows. No delay is declared.
fn watermarks(files: Vec<Vec<Vec<i64>>>, tasks: usize) -> (Vec<Watermark>, Vec<i64>) {
    let late = Arc::new(Late::default());
    let board = Arc::new(TickBoard::keeping_all());
    let group = SourceGroup::new(tasks, true);
    let connector: Arc<dyn SourceConnector> = Arc::new(Files(files));
    let mut leaves: Vec<SourceLeaf> = (0..tasks)
        .map(|index| {
            let ctx = SourceContext {
                task: TaskId { job: 1, fragment: 0, index: index as u32 },
                leaf: 0,
                connector: connector.clone(),
                group: group.clone(),
                board: board.clone(),
                events: late.clone(),
                metrics: Default::default(),
                clock: Arc::new(SystemClock::new()),
                start: 1,
                epoch_rows: 2,
                on_error: OnError::default(),
                spill: None,
                wanted: None,
            };
            let watermark = Some(WatermarkSpec { column: 0, delay_us: 0, idle_us: None });
            let spec =
                SourceSpec { id: 1 as ObjectId, name: "f".into(), projection: vec![0], watermark, in_order: false };
            SourceLeaf::new(ctx, spec, tasks)
        })
        .collect();
    let mut out = Vec::new();
    for epoch in 1.. {
        assert!(epoch < 100, "the source does not end: {out:?}");
        for leaf in &mut leaves {
            while matches!(leaf.poll(epoch).unwrap(), LeafPoll::Data(_)) {}
        }
        let now_us = epoch as i64;
        board.post(Tick { epoch, now_us, opened_us: now_us, incarnation: 1, term: 1 });
        for leaf in &mut leaves {
            assert!(matches!(leaf.poll(epoch).unwrap(), LeafPoll::Closed(_)));
        }
        out.push(group.watermark(epoch).unwrap());
        if out.last() == Some(&WATERMARK_MAX) {
            break;
        }
    }
    let late = late.0.lock().clone();
    (out, late)
}

#[test]
fn a_file_read_in_parts_lets_the_watermark_rise() {
    let file = vec![vec![1, 2, 3, 4], vec![5, 6, 7], vec![8, 9], vec![10, 11, 12]];
    let (one, late) = watermarks(vec![file.clone()], 1);
    assert_eq!(one, [2, 4, 6, 8, 10, 12, WATERMARK_MAX]);
    assert!(late.is_empty());
    // The task that is behind says how far all are: no row of a file in order is late.
    let (two, late) = watermarks(vec![file.clone()], 2);
    assert_eq!(two, [2, 4, 9, WATERMARK_MAX]);
    assert!(late.is_empty());
    // A task without a split holds nothing back.
    let (five, late) = watermarks(vec![file], 5);
    assert_eq!(five, [2, 4, WATERMARK_MAX]);
    assert!(late.is_empty());
}

#[test]
fn a_file_not_begun_holds_the_watermark_back() {
    let files = vec![vec![vec![5, 6], vec![7, 8]], vec![vec![1, 2], vec![3, 4]]];
    let (one, late) = watermarks(files, 1);
    assert_eq!(one, [WATERMARK_MIN, WATERMARK_MIN, 2, 4, WATERMARK_MAX]);
    assert!(late.is_empty());
}

#[test]
fn a_part_that_goes_back_in_time_is_late() {
    let (one, late) = watermarks(vec![vec![vec![5, 6], vec![3, 9, 10]]], 1);
    assert_eq!(one, [6, 10, WATERMARK_MAX]);
    assert_eq!(late, [3]);
}
