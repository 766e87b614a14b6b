//! Changes by key as records: `FORMAT UPSERT` and `FORMAT DEBEZIUM` of sinks. What happened to a
//! key in an epoch is one record.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray, StructArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};

use super::change::DELETED;
use super::format::Envelope;
use super::sink::{columns_as_written, schema_as_written};
use super::types::batch;
use crate::types::{Delta, Result, SpateError};

/// Makes records of an epoch's changes.
pub(super) struct Changes {
    envelope: Envelope,
    columns: SchemaRef,
    /// The columns as they are written.
    shown: SchemaRef,
    schema: SchemaRef,
    /// What tells rows apart; without it events are of single rows.
    key: Option<(Vec<usize>, RowConverter)>,
}

/// A row that went and one that came, under one key.
type Pair = (Option<u32>, Option<u32>);

impl Changes {
    /// For deltas of `columns`, whose rows `key` tells apart.
    pub(super) fn new(envelope: Envelope, columns: &SchemaRef, key: Option<&[usize]>) -> Result<Self> {
        if envelope == Envelope::Upsert && key.is_none() {
            return Err(SpateError::invalid("FORMAT UPSERT needs rows with a key, and this query's rows have none")
                .with_hint("read from a table with a PRIMARY KEY, or GROUP BY what tells rows apart"));
        }
        let shown = schema_as_written(columns, true);
        let fields = shown.fields();
        let schema = if envelope == Envelope::Upsert {
            if fields.iter().any(|f| f.name() == DELETED) {
                return Err(SpateError::invalid(format!("column \"{DELETED}\" is taken by FORMAT UPSERT"))
                    .with_hint("rename the column"));
            }
            let deleted = Arc::new(Field::new(DELETED, DataType::Boolean, false));
            Schema::new(fields.iter().cloned().chain([deleted]).collect::<Vec<_>>())
        } else {
            let row = || DataType::Struct(fields.clone());
            Schema::new(vec![
                Field::new("before", row(), true),
                Field::new("after", row(), true),
                Field::new("op", DataType::Utf8, false),
            ])
        };
        let key = match key {
            None => None,
            Some(key) => {
                let sort = |c: &usize| match columns.fields().get(*c) {
                    Some(f) => Ok(SortField::new(f.data_type().clone())),
                    None => Err(SpateError::internal("a key column is not there")),
                };
                let sort = key.iter().map(sort).collect::<Result<Vec<_>>>()?;
                Some((key.to_vec(), RowConverter::new(sort)?))
            }
        };
        Ok(Self { envelope, columns: columns.clone(), shown, schema: Arc::new(schema), key })
    }

    /// The schema of the records.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The records of an epoch's net changes.
    pub(super) fn records(&self, deltas: &[Delta]) -> Result<Option<RecordBatch>> {
        let net = Delta::concat(&self.columns, deltas)?;
        let pairs = self.pairs(&net)?;
        if pairs.is_empty() {
            return Ok(None);
        }
        let columns: Vec<ArrayRef> = if self.envelope == Envelope::Upsert {
            let rows: UInt32Array = pairs.iter().map(|(old, new)| new.or(*old)).collect();
            let deleted: BooleanArray = pairs.iter().map(|(_, new)| Some(new.is_none())).collect();
            let picked = net.rows().columns().iter().map(|c| take(c, &rows, None));
            let mut columns = columns_as_written(picked.collect::<std::result::Result<Vec<_>, _>>()?, true)?;
            columns.push(Arc::new(deleted));
            columns
        } else {
            let ops: StringArray = pairs
                .iter()
                .map(|pair| match pair {
                    (None, _) => Some("c"),
                    (Some(_), Some(_)) => Some("u"),
                    (Some(_), None) => Some("d"),
                })
                .collect();
            let before = self.side(&net, pairs.iter().map(|p| p.0).collect())?;
            let after = self.side(&net, pairs.iter().map(|p| p.1).collect())?;
            vec![before, after, Arc::new(ops)]
        };
        batch(&self.schema, columns, pairs.len()).map(Some)
    }

    fn side(&self, net: &Delta, rows: UInt32Array) -> Result<ArrayRef> {
        let columns = net.rows().columns().iter().map(|c| take(c, &rows, None));
        let columns = columns_as_written(columns.collect::<std::result::Result<Vec<_>, _>>()?, true)?;
        let valid = rows.nulls().cloned();
        Ok(Arc::new(StructArray::try_new_with_length(self.shown.fields().clone(), columns, valid, rows.len())?))
    }

    /// What went and what came, key by key in the order of their first change.
    fn pairs(&self, net: &Delta) -> Result<Vec<Pair>> {
        let mut pairs: Vec<Pair> = Vec::new();
        let Some((key, converter)) = &self.key else {
            for i in 0..net.num_rows() {
                let row = Some(u32::try_from(i).map_err(|_| SpateError::internal("an epoch has too many rows"))?);
                let pair = if net.weight(i) < 0 { (row, None) } else { (None, row) };
                pairs.extend(std::iter::repeat_n(pair, usize::try_from(net.weight(i).unsigned_abs()).unwrap_or(0)));
            }
            return Ok(pairs);
        };
        let columns: Vec<ArrayRef> = key.iter().map(|&c| net.column(c).clone()).collect();
        // Without key columns there is but one row.
        let rows = if key.is_empty() { None } else { Some(converter.convert_columns(&columns)?) };
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        for i in 0..net.num_rows() {
            let bytes = rows.as_ref().map_or(&[][..], |r| r.row(i).data());
            let at = *places.entry(bytes).or_insert_with(|| {
                pairs.push((None, None));
                pairs.len() - 1
            });
            let pair = &mut pairs[at];
            let side = match net.weight(i) {
                -1 => &mut pair.0,
                1 => &mut pair.1,
                _ => return Err(two_rows()),
            };
            if side.replace(i as u32).is_some() {
                return Err(two_rows());
            }
        }
        Ok(pairs)
    }
}

fn two_rows() -> SpateError {
    SpateError::internal("two rows have the key of one")
}
