//! Primary keys: which new rows may come in, and which old ones they replace.

use std::collections::{HashMap, HashSet};

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::sql::statement::OnConflict;

use super::Table;

fn key_columns(rows: &RecordBatch, key: &[usize]) -> Vec<ArrayRef> {
    key.iter().map(|k| rows.column(*k).clone()).collect()
}

fn key_rows(rows: &RecordBatch, key: &[usize]) -> Result<arrow::row::Rows> {
    let columns = key_columns(rows, key);
    let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    Ok(RowConverter::new(fields)?.convert_columns(&columns)?)
}

fn duplicate(table: &Table, key: &[usize], rows: &RecordBatch, row: usize, why: &str) -> SpateError {
    let options = FormatOptions::default().with_null("NULL");
    let text = |c: usize| {
        ArrayFormatter::try_new(rows.column(c), &options).map_or_else(|_| "?".to_owned(), |f| f.value(row).to_string())
    };
    let schema = rows.schema();
    let names: Vec<&str> = key.iter().map(|k| schema.field(*k).name().as_str()).collect();
    let values: Vec<String> = key.iter().map(|k| text(*k)).collect();
    SpateError::new(
        ErrorKind::Constraint,
        format!("duplicate key value violates the primary key of \"{}\"", table.name()),
    )
    .with_hint(format!("key ({})=({}) {why}", names.join(", "), values.join(", ")))
}

/// Rows to add and rows to take away so that the primary key holds.
pub(super) fn resolve_conflicts(
    table: &Table,
    key: &[usize],
    rows: RecordBatch,
    on_conflict: OnConflict,
) -> Result<(RecordBatch, RecordBatch)> {
    let encoded = key_rows(&rows, key)?;
    // Which of several new rows with one key counts: the last that overwrites, else the first.
    let mut chosen: HashMap<&[u8], usize> = HashMap::with_capacity(rows.num_rows());
    let mut keep = vec![true; rows.num_rows()];
    for i in 0..rows.num_rows() {
        if let Some(before) = chosen.get(encoded.row(i).data()).copied() {
            match on_conflict {
                OnConflict::Error => {
                    return Err(duplicate(table, key, &rows, i, "is given twice"));
                }
                OnConflict::Nothing => {
                    keep[i] = false;
                    continue;
                }
                OnConflict::Overwrite => keep[before] = false,
            }
        }
        chosen.insert(encoded.row(i).data(), i);
    }
    drop(chosen);
    let rows = if keep.contains(&false) { filter_record_batch(&rows, &BooleanArray::from(keep))? } else { rows };
    let (hits, old) = table.store.find(&key_columns(&rows, key))?;
    match (on_conflict, hits.first()) {
        (_, None) => Ok((rows, old)),
        (OnConflict::Error, Some(i)) => Err(duplicate(table, key, &rows, *i as usize, "already exists")),
        (OnConflict::Overwrite, _) => Ok((rows, old)),
        (OnConflict::Nothing, _) => {
            let mut keep = vec![true; rows.num_rows()];
            hits.iter().for_each(|i| keep[*i as usize] = false);
            let none = RecordBatch::new_empty(old.schema());
            Ok((filter_record_batch(&rows, &BooleanArray::from(keep))?, none))
        }
    }
}

/// An UPDATE of key columns must not make two rows alike.
pub(super) fn check_new_keys(table: &Table, key: &[usize], old: &RecordBatch, new: &RecordBatch) -> Result<()> {
    let encoded = key_rows(new, key)?;
    let mut seen = HashSet::with_capacity(new.num_rows());
    for i in 0..new.num_rows() {
        if !seen.insert(encoded.row(i).data().to_vec()) {
            return Err(duplicate(table, key, new, i, "would be there twice"));
        }
    }
    let (hits, found) = table.store.find(&key_columns(new, key))?;
    let old_keys = key_rows(old, key)?;
    let gone: HashSet<Vec<u8>> = (0..old.num_rows()).map(|i| old_keys.row(i).data().to_vec()).collect();
    let there = key_rows(&found, key)?;
    for (k, i) in hits.iter().enumerate() {
        if !gone.contains(there.row(k).data()) {
            return Err(duplicate(table, key, new, *i as usize, "already exists"));
        }
    }
    Ok(())
}
