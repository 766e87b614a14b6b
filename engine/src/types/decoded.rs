//! Columns decoded from memcomparable rows. The decoder leaves the least integer behind a NULL, and
//! kernels that compute all values, NULL or not, overflow on it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, downcast_primitive_array};
use arrow::row::{Row, RowConverter};

use super::Result;

/// The columns of rows, with nothing behind their NULLs.
pub(crate) fn columns<'a>(converter: &RowConverter, rows: impl IntoIterator<Item = Row<'a>>) -> Result<Vec<ArrayRef>> {
    Ok(converter.convert_rows(rows)?.into_iter().map(plain_nulls).collect())
}

/// The same array with zeros behind its NULLs, where decoding left other values: some kernels
/// compute those as well, and may fail on them.
fn plain_nulls(array: ArrayRef) -> ArrayRef {
    fn zeroed<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> ArrayRef {
        let value = |(i, v): (usize, &T::Native)| if array.is_null(i) { T::default_value() } else { *v };
        let values: Vec<T::Native> = array.values().iter().enumerate().map(value).collect();
        let plain = PrimitiveArray::<T>::new(values.into(), array.nulls().cloned());
        Arc::new(plain.with_data_type(array.data_type().clone()))
    }
    if array.null_count() == 0 {
        return array;
    }
    let inner = array.as_ref();
    downcast_primitive_array!(
        inner => zeroed(inner),
        _ => array.clone(),
    )
}
