//! Numbers of any element type as f64: in which order they stand, how they are stored, and how far apart two results are.

use crate::reference::Tolerance;
use half::{bf16, f16};
use wgfuse::graph::{DType, Layout};

/// Numbers in row-major order with their shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Nd {
    pub ne: [usize; 4],
    pub all: Vec<f64>,
}

impl Nd {
    pub fn from_fn(ne: [usize; 4], value: impl FnMut([usize; 4]) -> f64) -> Self {
        Self { ne, all: indices(ne).map(value).collect() }
    }

    /// What lies in memory in this layout.
    pub fn decode(layout: &Layout, bytes: &[u8]) -> Self {
        let size = layout.dtype.block_bytes();
        Self::from_fn(layout.ne, |at| {
            let start: usize = (0..4).map(|dim| at[dim] * layout.nb[dim]).sum();
            decode(layout.dtype, &bytes[start..start + size])
        })
    }

    pub fn at(&self, [i0, i1, i2, i3]: [usize; 4]) -> f64 {
        let ne = self.ne;
        self.all[((i3 * ne[2] + i2) * ne[1] + i1) * ne[0] + i0]
    }

    /// The element that, when the tensor is repeated, is at these indices.
    pub fn wrapped(&self, at: [usize; 4]) -> f64 {
        self.at(std::array::from_fn(|dim| at[dim] % self.ne[dim]))
    }

    /// What is wrong with these numbers, if `expected` are right once they are rounded to `dtype`.
    pub fn compare(&self, expected: &Self, dtype: DType, tolerance: Tolerance) -> Result<(), String> {
        assert_eq!(self.ne, expected.ne);
        let expected: Vec<f64> = expected.all.iter().map(|&x| rounded(dtype, x)).collect();
        let same = |found: f64, expected: f64| found == expected || (found.is_nan() && expected.is_nan());
        let finite = expected.iter().filter(|x| x.is_finite());
        let (count, power) = finite.fold((0, 0.0), |(count, power), x| (count + 1, power + x * x));
        let rms = (power / f64::from(count.max(1))).sqrt();
        let mut error = 0.0;
        for ((at, &found), &expected) in indices(self.ne).zip(&self.all).zip(&expected) {
            if same(found, expected) {
                continue;
            }
            let off = (found - expected).abs();
            let near = off <= tolerance.each * (expected.abs() + rms.min(1.0));
            if !near {
                return Err(format!("{found} instead of {expected} at {at:?}, off by {off:e}, rms {rms:e}"));
            }
            error += off * off;
        }
        if error <= tolerance.nmse * power { Ok(()) } else { Err(format!("an NMSE of {:e}", error / power)) }
    }
}

pub fn indices(ne: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    let count: usize = ne.iter().product();
    (0..count).map(move |i| [i % ne[0], i / ne[0] % ne[1], i / ne[0] / ne[1] % ne[2], i / ne[0] / ne[1] / ne[2]])
}

/// Each of `first` with each of `second`.
pub fn pairs<A: Copy, B: Copy, const N: usize>(
    first: impl IntoIterator<Item = A>,
    second: [B; N],
) -> impl Iterator<Item = (A, B)> {
    first.into_iter().flat_map(move |a| second.map(|b| (a, b)))
}

/// The squared error of `found` over the square of `expected`. A NaN anywhere makes it a NaN, which no limit allows.
pub fn nmse<T: Copy + Into<f64>>(found: &[T], expected: &[T]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f64| x * x;
    let error: f64 = found.iter().zip(expected).map(|(&a, &b)| square(a.into() - b.into())).sum();
    error / expected.iter().map(|&x| square(x.into())).sum::<f64>()
}

/// A repeatable sequence (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in [-1, 1).
    pub fn float(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

pub fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    fn each<const N: usize>(values: &[f64], bytes: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|&x| bytes(x)).collect()
    }
    match dtype {
        DType::F32 => each(values, |x| (x as f32).to_le_bytes()),
        DType::F16 => each(values, |x| f16::from_f64(x).to_le_bytes()),
        DType::BF16 => each(values, |x| bf16::from_f64(x).to_le_bytes()),
        DType::I32 => each(values, |x| (x as i32).to_le_bytes()),
        DType::I64 => each(values, |x| (x as i64).to_le_bytes()),
        DType::Block(_) => unreachable!("a test gives blocks as bytes"),
    }
}

pub fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::I32 => i32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::I64 => i64::from_le_bytes(bytes.try_into().unwrap()) as f64,
        DType::Block(_) => unreachable!("an element of a block is no bytes of its own"),
    }
}

/// The nearest number of a type; a NaN stays one, whatever the type makes of it.
pub fn rounded(dtype: DType, x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    match dtype {
        DType::F32 => (x as f32).into(),
        DType::F16 => f16::from_f64(x).into(),
        DType::BF16 => bf16::from_f64(x).into(),
        DType::I32 | DType::I64 => x.trunc(),
        DType::Block(_) => unreachable!("an element is rounded with its block"),
    }
}
