//! What all formats share: blocks as plain data, half-precision fields, rounding.

use bytemuck::{Pod, Zeroable};
use half::f16;

/// A block as it lies in memory, whose fields are bytes and so need no alignment. It holds `N` elements.
pub(super) trait Block<const N: usize>: Pod {
    /// The elements, computed as ggml's `dequantize_row_*` does, operation by operation.
    fn decode(&self, out: &mut [f32; N]);
}

/// A block that ggml makes without an importance matrix.
pub(super) trait Encode<const N: usize>: Block<N> {
    /// The block for these elements, computed as ggml's `quantize_row_*_ref` does, operation by operation.
    ///
    /// Of elements that are not finite, or so small or large that a scale is not, no block makes sense; they give some
    /// block, where ggml's conversions are undefined.
    fn encode(x: &[f32; N]) -> Self;
}

/// As many whole blocks as there are in both.
pub(super) fn decode_row<B: Block<N>, const N: usize>(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.chunks_exact(size_of::<B>()).zip(out.as_chunks_mut().0) {
        bytemuck::pod_read_unaligned::<B>(bytes).decode(out);
    }
}

/// As many whole blocks as there are in both.
pub(super) fn encode_row<B: Encode<N>, const N: usize>(values: &[f32], bytes: &mut [u8]) {
    for (values, bytes) in values.as_chunks().0.iter().zip(bytes.chunks_exact_mut(size_of::<B>())) {
        bytes.copy_from_slice(bytemuck::bytes_of(&B::encode(values)));
    }
}

/// A half-precision number, little-endian.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Half([u8; 2]);

impl Half {
    pub(super) fn new(value: f32) -> Self {
        Self(f16::from_f32(value).to_le_bytes())
    }

    pub(super) fn get(self) -> f32 {
        f16::from_le_bytes(self.0).to_f32()
    }
}

/// Number `i` of 2 bits: four to a byte, 32 elements apart.
pub(super) const fn pair(bytes: &[u8; 64], i: usize) -> u8 {
    bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// The inverse of [`pair`]; numbers have no other bits.
pub(super) fn pack_pairs(numbers: &[u8; 256]) -> [u8; 64] {
    std::array::from_fn(|at| {
        let first = at / 32 * 128 + at % 32;
        (0..4).fold(0, |byte, n| byte | numbers[first + 32 * n] << (2 * n))
    })
}

/// Whether bit `i` is set.
pub(super) const fn bit(byte: u8, i: usize) -> bool {
    byte >> i & 1 == 1
}

/// 4-bit numbers of which the first half lies in the low halves of the bytes, the second in the high halves: how all
/// formats pack them.
pub(super) fn nibbles<const HALF: usize>(bytes: &[u8; HALF]) -> impl Iterator<Item = u8> + '_ {
    bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4))
}

/// The inverse of [`nibbles`].
pub(super) fn pack_nibbles<const HALF: usize>(numbers: &[u8]) -> [u8; HALF] {
    std::array::from_fn(|j| numbers[j] | numbers[HALF + j] << 4)
}

/// The nearest integer, ties to even, by the way ggml finds it: adding 1.5·2²³ leaves it in the mantissa. Numbers of
/// 2²² and more wrap.
pub(super) fn nearest(x: f32) -> i32 {
    let bits = (x + 12_582_912.0).to_bits();
    (bits & 0x007f_ffff) as i32 - 0x0040_0000
}

/// 1/x, but 0 of 0.
pub(super) fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// The largest magnitude, and the first element that has it.
pub(super) fn extreme(x: &[f32]) -> (f32, f32) {
    x.iter().fold((0.0, 0.0), |best, &x| if x.abs() > best.0 { (x.abs(), x) } else { best })
}
