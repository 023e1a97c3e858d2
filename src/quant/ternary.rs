//! The formats of −1, 0 and 1.

use super::block::{Block, Encode, Half, extreme, inverse, pack_pairs, pair};
use bytemuck::{Pod, Zeroable};

/// `d · (t − 1)`, where a byte holds five trits or, in the last four, four; ggml's `block_tq1_0`,
/// whose `qs` and `qh` are one array here.
///
/// A byte is the fraction `0.t₀t₁t₂t₃t₄` in base 3, in units of 1/256 and rounded up: multiplied by 3, its integer part
/// is the first trit. The trits of one byte are as many elements apart as the bytes are that hold them together: 160
/// elements in 32 bytes, then 80 in 16, then 16 in 4.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Tq1_0 {
    qs: [u8; 52],
    d: Half,
}

/// `d · (q − 1)`, where a byte holds four numbers of 2 bits, 32 elements apart; ggml's `block_tq2_0`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Tq2_0 {
    qs: [u8; 64],
    d: Half,
}

/// Trits in a byte.
const TRITS: u32 = 5;

/// Trit `n` of a byte.
fn trit(byte: u8, n: u32) -> u8 {
    let rest = byte.wrapping_mul(3u8.pow(n));
    ((u16::from(rest) * 3) >> 8) as u8
}

/// The byte of these trits, and zeros after them. Only the first five count.
fn pack(trits: impl Iterator<Item = u8>) -> u8 {
    let number =
        trits.chain(std::iter::repeat(0)).take(TRITS as usize).fold(0u8, |q, t| q.wrapping_mul(3).wrapping_add(t));
    (u16::from(number) * 256).div_ceil(3u16.pow(TRITS)) as u8
}

impl Tq1_0 {
    /// The parts of a block: where its bytes start, how many they are, and how many trits each of them has.
    const PARTS: [(usize, usize, usize); 3] = [(0, 32, 5), (32, 16, 5), (48, 4, 4)];
}

/// The largest magnitude and every element as −1, 0 or 1 of it, plus 1.
fn thirds(x: &[f32; 256]) -> (Half, [u8; 256]) {
    let (d, _) = extreme(x);
    let id = inverse(d);
    (Half::new(d), x.map(|x| ((x * id).round() as i8).wrapping_add(1) as u8))
}

impl Block<256> for Tq1_0 {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        let mut out = out.iter_mut();
        for (start, len, trits) in Self::PARTS {
            for n in 0..trits {
                for (byte, out) in self.qs[start..start + len].iter().zip(&mut out) {
                    *out = (f32::from(trit(*byte, n as u32)) - 1.0) * d;
                }
            }
        }
    }
}

impl Encode<256> for Tq1_0 {
    fn encode(x: &[f32; 256]) -> Self {
        let (d, t) = thirds(x);
        let mut block = Self { qs: [0; 52], d };
        let mut first = 0;
        for (start, len, trits) in Self::PARTS {
            for j in 0..len {
                block.qs[start + j] = pack((0..trits).map(|n| t[first + n * len + j]));
            }
            first += trits * len;
        }
        block
    }
}

impl Block<256> for Tq2_0 {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        for (i, out) in out.iter_mut().enumerate() {
            *out = (f32::from(pair(&self.qs, i)) - 1.0) * d;
        }
    }
}

impl Encode<256> for Tq2_0 {
    fn encode(x: &[f32; 256]) -> Self {
        let (d, t) = thirds(x);
        Self { qs: pack_pairs(&t.map(|t| t & 3)), d }
    }
}
