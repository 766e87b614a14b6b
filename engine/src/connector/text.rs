//! Reads a split of a text file: records from [`Lines`], decoded one by one into columns.

use std::time::Duration;

use super::columns::RowBuilder;
use super::lines::{HEAD, Lines, Scan};
use super::{DeadLetter, Polled, Split, SplitReader};
use crate::types::Result;

/// After how many bytes of records a batch is closed.
const BATCH_BYTES: usize = 1 << 20;
/// After how many dead letters a batch is closed; each may hold 4 KiB.
const BATCH_DEAD: usize = 1024;
/// How long a watched file without news is left alone.
const IDLE: Duration = Duration::from_millis(100);

/// Turns one record into one row.
pub(super) trait Decode: Send {
    /// Adds the record as a row, or as a dead letter made by `letter`. `bytes` is valid UTF-8 in
    /// `text`. A record that is no data (a header, an empty line) adds nothing.
    fn decode(&mut self, offset: u64, text: &str, out: &mut RowBuilder, letter: &dyn Fn(String) -> DeadLetter);
}

/// A [`SplitReader`] over a text format.
pub(super) struct TextReader<D> {
    lines: Lines,
    decode: D,
    out: RowBuilder,
    split: Split,
    grows: bool,
}

impl<D: Decode> TextReader<D> {
    /// Reads `lines`, which were opened for `split`.
    pub(super) fn new(lines: Lines, decode: D, out: RowBuilder, split: &Split) -> Self {
        let grows = lines.file_len().is_none();
        Self { lines, decode, out, split: split.clone(), grows }
    }
}

/// The start of a record as text for a dead letter.
pub(super) fn head_text(bytes: &[u8]) -> String {
    let head = bytes.get(..HEAD.min(bytes.len())).unwrap_or_default();
    let mut text = String::from_utf8_lossy(head).into_owned();
    // Replacement characters may make it longer again.
    let mut end = HEAD.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

impl<D: Decode> SplitReader for TextReader<D> {
    fn poll(&mut self, max_rows: usize, until: Option<u64>) -> Result<Polled> {
        let before = self.lines.offset();
        let id = &self.split.id;
        let mut at_end = false;
        while self.out.rows() < max_rows.max(1) {
            let (dead, bytes) = self.out.load();
            if bytes >= BATCH_BYTES || dead >= BATCH_DEAD {
                break;
            }
            match self.lines.next(until)? {
                Scan::Record { offset, bytes } => {
                    self.out.read(bytes.len() + 1);
                    let letter =
                        |error: String| DeadLetter { split: id.clone(), offset, text: head_text(bytes), error };
                    match std::str::from_utf8(bytes) {
                        Ok(text) => self.decode.decode(offset, text, &mut self.out, &letter),
                        Err(e) => {
                            self.out.dead(letter(format!("invalid UTF-8 at byte {} of the record", e.valid_up_to())))
                        }
                    }
                }
                Scan::Bad { offset, head, error } => {
                    self.out.dead(DeadLetter { split: id.clone(), offset, text: head_text(&head), error });
                }
                Scan::Wait => break,
                Scan::End => {
                    at_end = true;
                    break;
                }
            }
        }
        let now = self.lines.offset();
        if now == before && self.out.rows() == 0 && self.out.load().0 == 0 {
            let ended = self.split.end.is_some_and(|e| now >= e);
            let stopped = !ended && until.is_some_and(|u| now >= u);
            return Ok(if at_end && !stopped {
                Polled::End
            } else if stopped {
                Polled::Pending(Duration::ZERO)
            } else {
                Polled::Pending(IDLE)
            });
        }
        let (rows, dead) = self.out.finish()?;
        let progress = if self.grows {
            None
        } else {
            let end = self.split.end.or(self.lines.file_len()).unwrap_or(now);
            let total = end.saturating_sub(self.split.start);
            Some((now.saturating_sub(self.split.start).min(total), total))
        };
        Ok(Polled::Batch { rows, dead, progress })
    }

    fn offset(&self) -> u64 {
        self.lines.offset()
    }
}
