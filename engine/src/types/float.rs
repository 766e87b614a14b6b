//! One form for every float value: there is one NaN (quiet, positive, without payload) and no
//! negative zero. Values that are equal then look alike to every function too, whichever of
//! them a table kept.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};

/// `array` with its floats in their one form; others, and arrays that need no change, as they are.
pub fn canonical(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float64 => fix(array, array.as_primitive::<Float64Type>(), f64::is_odd, f64::fixed),
        DataType::Float32 => fix(array, array.as_primitive::<Float32Type>(), f32::is_odd, f32::fixed),
        _ => ArrayRef::clone(array),
    }
}

/// Whether [`canonical`] may change values of a type.
pub fn may_vary(t: &DataType) -> bool {
    matches!(t, DataType::Float32 | DataType::Float64)
}

trait Float: Copy {
    /// Whether the value is not in its one form.
    fn is_odd(self) -> bool;
    /// The value in its one form.
    fn fixed(self) -> Self;
}

macro_rules! float {
    ($t:ty) => {
        impl Float for $t {
            fn is_odd(self) -> bool {
                let bits = self.to_bits();
                (self.is_nan() && bits != <$t>::NAN.to_bits()) || bits == (-0.0 as $t).to_bits()
            }

            fn fixed(self) -> Self {
                if self.is_nan() {
                    <$t>::NAN
                } else {
                    // Minus zero and zero make zero; all else stays.
                    self + 0.0
                }
            }
        }
    };
}

float!(f32);
float!(f64);

fn fix<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    values: &PrimitiveArray<T>,
    odd: fn(T::Native) -> bool,
    fixed: fn(T::Native) -> T::Native,
) -> ArrayRef {
    if values.values().iter().any(|v| odd(*v)) {
        let all: PrimitiveArray<T> = values.unary(fixed);
        return Arc::new(all);
    }
    ArrayRef::clone(array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float32Array, Float64Array};

    #[test]
    fn equal_floats_become_one() {
        let odd_nan = f64::from_bits(0xfff8_0000_0000_0001);
        let a: ArrayRef =
            Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(-f64::NAN), Some(odd_nan), Some(-1.5)]));
        let b = canonical(&a);
        let bits: Vec<Option<u64>> = b.as_primitive::<Float64Type>().iter().map(|v| v.map(f64::to_bits)).collect();
        let nan = f64::NAN.to_bits();
        assert_eq!(bits, [Some(0), None, Some(nan), Some(nan), Some((-1.5f64).to_bits())]);
        let c: ArrayRef = Arc::new(Float32Array::from(vec![-0.0, f32::MIN, -f32::INFINITY]));
        let c = canonical(&c);
        assert_eq!(c.as_primitive::<Float32Type>().value(0).to_bits(), 0);
        assert_eq!(c.as_primitive::<Float32Type>().values()[1..], [f32::MIN, -f32::INFINITY]);
    }

    #[test]
    fn nothing_is_copied_without_need() {
        let a: ArrayRef = Arc::new(Float64Array::from(vec![1.0, f64::NAN, f64::INFINITY, 0.0]));
        assert!(Arc::ptr_eq(&a, &canonical(&a)));
    }
}
