//! Row groups of a Parquet file that cannot hold a row which a filter keeps, by the least and greatest
//! values that the file states of their columns.
//!
//! Comparisons of a column with a constant count, joined by AND and OR; of anything else nothing is known,
//! and it may be true. The filter itself still looks at all rows that are read.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::kernels::{boolean, cmp};
use arrow::datatypes::{DataType, Schema};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::statistics::Statistics;

/// For each row group whether it may hold a row for which `wanted`, over the columns `delivered`, is true. `places`
/// are those of the columns in the file.
pub(super) fn may_hold(
    file: &ParquetRecordBatchReaderBuilder<File>,
    delivered: &Schema,
    places: &[usize],
    wanted: &Arc<dyn PhysicalExpr>,
) -> Option<BooleanArray> {
    let file = Stated { file, delivered, places };
    // What is not known may be true.
    file.of(wanted).map(|known| known.iter().map(|k| Some(k.unwrap_or(true))).collect())
}

struct Stated<'a> {
    file: &'a ParquetRecordBatchReaderBuilder<File>,
    delivered: &'a Schema,
    places: &'a [usize],
}

impl Stated<'_> {
    /// NULL where the file does not state what is needed; `None` where nothing can be known.
    fn of(&self, e: &Arc<dyn PhysicalExpr>) -> Option<BooleanArray> {
        let e = e.downcast_ref::<BinaryExpr>()?;
        match e.op() {
            Operator::And => match (self.of(e.left()), self.of(e.right())) {
                (Some(a), Some(b)) => boolean::and_kleene(&a, &b).ok(),
                (a, b) => a.or(b).map(only_false),
            },
            Operator::Or => boolean::or_kleene(&self.of(e.left())?, &self.of(e.right())?).ok(),
            op => match (e.left().downcast_ref::<Column>(), e.right().downcast_ref::<Column>()) {
                (Some(c), None) => self.compare(c, *op, e.right().downcast_ref()?),
                (None, Some(c)) => self.compare(c, op.swap()?, e.left().downcast_ref()?),
                _ => None,
            },
        }
    }

    fn compare(&self, column: &Column, op: Operator, with: &Literal) -> Option<BooleanArray> {
        let (least, greatest) = self.range(column)?;
        let value = with.value();
        if value.is_null() || value.data_type() != *least.data_type() {
            return None;
        }
        let value = value.to_scalar().ok()?;
        match op {
            Operator::Eq => {
                boolean::and_kleene(&cmp::lt_eq(&least, &value).ok()?, &cmp::gt_eq(&greatest, &value).ok()?).ok()
            }
            Operator::Lt => cmp::lt(&least, &value).ok(),
            Operator::LtEq => cmp::lt_eq(&least, &value).ok(),
            Operator::Gt => cmp::gt(&greatest, &value).ok(),
            Operator::GtEq => cmp::gt_eq(&greatest, &value).ok(),
            _ => None,
        }
    }

    /// The least and the greatest value of a column per row group.
    fn range(&self, column: &Column) -> Option<(ArrayRef, ArrayRef)> {
        let field = self.delivered.fields().get(column.index())?;
        let found = self.file.schema().fields().get(*self.places.get(column.index())?)?;
        // A NaN is greater than all numbers here, and not among what a file states.
        let ordered = field.data_type().is_integer()
            || matches!(
                field.data_type(),
                DataType::Utf8 | DataType::Date32 | DataType::Timestamp(..) | DataType::Decimal128(..)
            );
        if !ordered || found.data_type() != field.data_type() {
            return None;
        }
        let groups = self.file.metadata().row_groups();
        let converter =
            StatisticsConverter::try_new(found.name(), self.file.schema(), self.file.parquet_schema()).ok()?;
        let leaf = converter.parquet_column_index()?;
        // Old writers ordered text and unsigned numbers in their own way.
        let old = |s: &Statistics| s.is_min_max_deprecated() && s.min_bytes_opt().or(s.max_bytes_opt()).is_some();
        if groups.iter().any(|g| g.column(leaf).statistics().is_some_and(old)) {
            return None;
        }
        let least = converter.row_group_mins(groups).ok()?;
        let greatest = converter.row_group_maxes(groups).ok()?;
        (least.data_type() == field.data_type() && least.len() == groups.len()).then_some((least, greatest))
    }
}

/// Where the other side of an AND is not known only what is false counts.
fn only_false(known: BooleanArray) -> BooleanArray {
    known.iter().map(|k| k.filter(|k| !k)).collect()
}
