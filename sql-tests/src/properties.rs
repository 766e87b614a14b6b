//! Holds what the planner derived of a view's rows against what the view put out, epoch by epoch.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::TimestampMicrosecondType;
use arrow::row::{RowConverter, SortField};
use spate_engine::plan::{Motion, Properties};
use spate_engine::types::{Result, WATERMARK_MIN, Watermark};

use crate::driver::{Weighted, row_texts};

/// Bytes that compare as values do.
type Bytes = Vec<u8>;

/// A row as it is compared.
struct Row {
    /// All of it.
    text: String,
    key: Option<Bytes>,
    fixed: Bytes,
    /// Columns that move, so that greater bytes come later.
    moving: Vec<(usize, Bytes)>,
}

/// Follows one view.
pub struct Checker {
    props: Properties,
    /// The rows that are there, how often, and what is compared of them.
    rows: BTreeMap<String, (i64, Row)>,
    watermark: Watermark,
}

fn encoded(rows: &RecordBatch, columns: &[usize], options: SortOptions) -> Result<Bytes> {
    let arrays: Vec<ArrayRef> = columns.iter().map(|c| rows.column(*c).clone()).collect();
    if arrays.is_empty() {
        return Ok(Vec::new());
    }
    let fields = arrays.iter().map(|a| SortField::new_with_options(a.data_type().clone(), options)).collect();
    Ok(RowConverter::new(fields)?.convert_columns(&arrays)?.row(0).data().to_vec())
}

impl Checker {
    /// For a view of which this was derived, when it had no rows.
    pub fn new(props: Properties) -> Self {
        Self { props, rows: BTreeMap::new(), watermark: WATERMARK_MIN }
    }

    /// What was derived.
    pub fn props(&self) -> &Properties {
        &self.props
    }

    fn row(&self, rows: &RecordBatch) -> Result<Row> {
        let up = SortOptions { descending: false, nulls_first: true };
        let down = SortOptions { descending: true, nulls_first: true };
        let motion = self.props.motion.as_deref().unwrap_or_default();
        let (mut fixed, mut moving) = (Vec::new(), Vec::new());
        for (c, m) in motion.iter().enumerate() {
            match m {
                Motion::Fixed => fixed.push(c),
                Motion::Rising => moving.push((c, encoded(rows, &[c], up)?)),
                Motion::Falling => moving.push((c, encoded(rows, &[c], down)?)),
                Motion::Free => {}
            }
        }
        Ok(Row {
            text: row_texts(rows)?.concat(),
            key: self.props.stream_key.as_ref().map(|k| encoded(rows, k, up)).transpose()?,
            fixed: encoded(rows, &fixed, up)?,
            moving,
        })
    }

    /// For each fixed part and moving column the values there are, the last to come first.
    fn values(&self) -> BTreeMap<(Bytes, usize), Vec<Bytes>> {
        let mut out: BTreeMap<(Bytes, usize), Vec<Bytes>> = BTreeMap::new();
        for (n, row) in self.rows.values() {
            for (c, v) in &row.moving {
                let all = out.entry((row.fixed.clone(), *c)).or_default();
                all.extend((0..*n).map(|_| v.clone()));
            }
        }
        out.values_mut().for_each(|all| all.sort_by(|a, b| b.cmp(a)));
        out
    }

    /// How often each fixed part is there.
    fn counts(&self) -> BTreeMap<Bytes, i64> {
        let mut out = BTreeMap::new();
        for (n, row) in self.rows.values() {
            *out.entry(row.fixed.clone()).or_default() += n;
        }
        out
    }

    /// Takes the changes of an epoch. The text of the error says what does not hold.
    pub fn epoch(&mut self, changes: &[Weighted]) -> std::result::Result<(), String> {
        let moves = self.props.motion.is_some();
        let (before, counts) = if moves { (self.values(), self.counts()) } else { (BTreeMap::new(), BTreeMap::new()) };
        for change in changes {
            let row = self.row(&change.row).map_err(|e| e.to_string())?;
            if self.props.append_only && change.weight < 0 {
                return Err(format!("append-only, but ({}) is taken back", row.text));
            }
            self.check_watermark(&change.row, &row.text)?;
            let entry = self.rows.entry(row.text.clone()).or_insert((0, row));
            entry.0 += change.weight;
        }
        self.rows.retain(|_, (n, _)| *n != 0);
        if let Some((row, _)) = self.rows.iter().find(|(_, (n, _))| *n < 0) {
            return Err(format!("({row}) is there less than never"));
        }
        if self.props.stream_key.is_some() {
            let mut seen: BTreeMap<&Bytes, &str> = BTreeMap::new();
            for (text, (n, row)) in &self.rows {
                let other = row.key.as_ref().and_then(|k| seen.insert(k, text));
                if *n > 1 || other.is_some() {
                    return Err(format!("two rows of one key: ({text}) and ({})", other.unwrap_or(text)));
                }
            }
        }
        let now = if moves { self.counts() } else { BTreeMap::new() };
        if counts.iter().any(|(fixed, n)| now.get(fixed).is_none_or(|m| m < n)) {
            return Err("a row that stays has gone".into());
        }
        let after = if moves { self.values() } else { BTreeMap::new() };
        for ((fixed, column), old) in before {
            let new = after.get(&(fixed, column)).map(Vec::as_slice).unwrap_or_default();
            if new.len() < old.len() || old.iter().zip(new).any(|(o, n)| n < o) {
                return Err(format!("column {column} has moved the other way"));
            }
        }
        Ok(())
    }

    fn check_watermark(&self, rows: &RecordBatch, text: &str) -> std::result::Result<(), String> {
        for w in &self.props.watermarks {
            let times = rows.column(w.column).as_primitive_opt::<TimestampMicrosecondType>();
            let times = times.ok_or_else(|| format!("column {} is no time", w.column))?;
            let below = w.kind.final_below(self.watermark);
            if self.watermark != WATERMARK_MIN && times.is_valid(0) && times.value(0) < below {
                return Err(format!("({text}) comes after the watermark {}", self.watermark));
            }
        }
        Ok(())
    }

    /// The watermark behind all that was taken.
    pub fn reached(&mut self, watermark: Watermark) {
        self.watermark = self.watermark.max(watermark);
    }
}
