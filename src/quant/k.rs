//! The formats of two levels: scales (and minima) of 16 or 32 elements are themselves numbers of few bits with a scale
//! for all 256.
//!
//! Layouts are those of ggml's `block_q2_K` to `block_q6_K`. Numbers of 2 bits lie as [`pair`] says; those of 4 bits
//! are two to a byte, 32 elements apart; a mask holds for element `i` bit `i / 32` of byte `i % 32`.

use super::block::{Block, Encode, Half, bit, nearest, pack_pairs, pair};
use super::search::{Affine, EPSILON, Steps, affine, symmetric, symmetric_by_moves};
use bytemuck::{Pod, Zeroable};

/// `d · scale · q − dmin · min`, with the scale in the low and the minimum in the high half of a byte of `scales`, one
/// for every 16 elements.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q2K {
    scales: [u8; 16],
    qs: [u8; 64],
    d: Half,
    dmin: Half,
}

/// `d · (scale − 32) · (q − 4)`, where `qs` holds the two low bits of `q` and `hmask` the third.
///
/// The 16 scales of 6 bits: the low halves of the first 8 bytes are the low bits of scales 0 to 7, their high halves
/// those of scales 8 to 15; bits `2k` and `2k + 1` of byte `8 + j` are the high bits of scale `4k + j`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q3K {
    hmask: [u8; 32],
    qs: [u8; 64],
    scales: [u8; 12],
    d: Half,
}

/// `d · scale · q − dmin · min`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q4K {
    d: Half,
    dmin: Half,
    scales: ScalesAndMinima,
    qs: [u8; 128],
}

/// `d · scale · q − dmin · min`, where `qs` holds the four low bits of `q` and `qh` the fifth.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q5K {
    d: Half,
    dmin: Half,
    scales: ScalesAndMinima,
    qh: [u8; 32],
    qs: [u8; 128],
}

/// `d · scale · (q − 32)` with a signed scale for every 16 elements. Of each half of the block, 64 bytes of `ql` hold
/// the low bits of its elements, 64 elements apart, and 32 bytes of `qh` the two high bits, as [`pair`] says.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q6K {
    ql: [u8; 128],
    qh: [u8; 64],
    scales: [i8; 16],
    d: Half,
}

/// Eight scales and eight minima of 6 bits, one of each for every 32 elements.
///
/// The low six bits of bytes 0 to 3 are scales 0 to 3, those of bytes 4 to 7 the minima 0 to 3. The halves of bytes 8 to
/// 11 are the low bits of scale and minimum 4 to 7, whose two high bits are the high bits of bytes 0 to 3 and 4 to 7.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct ScalesAndMinima([u8; 12]);

impl ScalesAndMinima {
    fn get(&self, j: usize) -> (u8, u8) {
        let Self(bytes) = self;
        if j < 4 {
            (bytes[j] & 63, bytes[j + 4] & 63)
        } else {
            let (low, scale, min) = (bytes[j + 4], bytes[j - 4] >> 6, bytes[j] >> 6);
            (low & 15 | scale << 4, low >> 4 | min << 4)
        }
    }

    fn pack(scales: &[u8; 8], minima: &[u8; 8]) -> Self {
        Self(std::array::from_fn(|at| match at {
            0..4 => scales[at] | scales[at + 4] >> 4 << 6,
            4..8 => minima[at - 4] | minima[at] >> 4 << 6,
            _ => scales[at - 4] & 15 | minima[at - 4] << 4,
        }))
    }
}

/// Number `i` of 4 bits.
fn nibble(qs: &[u8; 128], i: usize) -> u8 {
    qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15
}

/// The inverse of [`nibble`]; higher bits are dropped.
fn pack_nibbles(q: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|at| {
        let first = at / 32 * 64 + at % 32;
        q[first] & 15 | q[first + 32] << 4
    })
}

/// The mask of the elements for which `set` holds.
fn mask(set: impl Fn(usize) -> bool) -> [u8; 32] {
    std::array::from_fn(|at| (0..8).fold(0, |byte, n| byte | u8::from(set(32 * n + at)) << n))
}

/// Groups of `G` elements as numbers from 0 to `limit`, with their scales and minima.
///
/// The numbers are found anew for the scales and minima that the block can hold. `step(j)` gives those of group `j`;
/// where the scale is 0, the numbers stay as they are.
fn requantize<const G: usize>(
    x: &[f32; 256],
    fits: &[Affine<G>],
    limit: i32,
    step: impl Fn(usize) -> (f32, f32),
) -> [u8; 256] {
    let mut q = [0; 256];
    let groups = q.as_chunks_mut::<G>().0.iter_mut().zip(x.as_chunks::<G>().0);
    for (j, ((q, x), fit)) in groups.zip(fits).enumerate() {
        let (d, min) = step(j);
        *q = if d == 0.0 { fit.q } else { x.map(|x| nearest((x + min) / d).clamp(0, limit) as u8) };
    }
    q
}

/// The largest scale and the largest minimum, at least 0.
fn largest<const G: usize>(fits: &[Affine<G>]) -> (f32, f32) {
    fits.iter().fold((0.0, 0.0), |(scale, min), fit| {
        (if fit.scale > scale { fit.scale } else { scale }, if fit.min > min { fit.min } else { min })
    })
}

impl Block<256> for Q2K {
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (self.d.get(), self.dmin.get());
        for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let scale = self.scales[j];
            let (d, min) = (d * f32::from(scale & 15), dmin * f32::from(scale >> 4));
            for (l, out) in out.iter_mut().enumerate() {
                *out = d * f32::from(pair(&self.qs, 16 * j + l)) - min;
            }
        }
    }
}

impl Encode<256> for Q2K {
    fn encode(x: &[f32; 256]) -> Self {
        const STEPS: Steps = Steps { first: -0.5, last: 15, absolute: true };
        let fits: [Affine<16>; 16] = std::array::from_fn(|j| {
            let x = &x.as_chunks::<16>().0[j];
            affine(x, &x.map(f32::abs), 3, STEPS)
        });
        let (scale, min) = largest(&fits);
        // As bytes, of which the low half counts.
        let part = |value: f32, largest: f32| if largest > 0.0 { nearest(15.0 / largest * value) as u8 } else { 0 };
        let scales = fits.each_ref().map(|fit| part(fit.scale, scale) | part(fit.min, min) << 4);
        let unit = |largest: f32| Half::new(if largest > 0.0 { largest / 15.0 } else { 0.0 });
        let (d, dmin) = (unit(scale), unit(min));
        let q =
            requantize(x, &fits, 3, |j| (d.get() * f32::from(scales[j] & 15), dmin.get() * f32::from(scales[j] >> 4)));
        Self { scales, qs: pack_pairs(&q), d, dmin }
    }
}

impl Q3K {
    fn scale(scales: &[u8; 12], j: usize) -> i8 {
        let low = scales[j % 8] >> (j / 8 * 4) & 15;
        let high = scales[8 + j % 4] >> (j / 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    }
}

impl Block<256> for Q3K {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let d = d * f32::from(Self::scale(&self.scales, j));
            for (l, out) in out.iter_mut().enumerate() {
                let i = 16 * j + l;
                let high = if bit(self.hmask[i % 32], i / 32) { 0.0 } else { 4.0 };
                *out = d * (f32::from(pair(&self.qs, i)) - high);
            }
        }
    }
}

impl Encode<256> for Q3K {
    fn encode(x: &[f32; 256]) -> Self {
        let fits: [_; 16] = std::array::from_fn(|j| symmetric_by_moves(&x.as_chunks::<16>().0[j], 4));
        let largest = fits.iter().fold(0.0f32, |best, fit| if fit.scale.abs() > best.abs() { fit.scale } else { best });
        let mut scales = [0; 12];
        let mut d = Half::new(0.0);
        if largest != 0.0 {
            let inverse = -32.0 / largest;
            for (j, fit) in fits.iter().enumerate() {
                // To a byte before it is bounded, as ggml does.
                let scale = (nearest(inverse * fit.scale) as i8).clamp(-32, 31) + 32;
                scales[j % 8] |= (scale as u8 & 15) << (j / 8 * 4);
                scales[8 + j % 4] |= (scale as u8 >> 4) << (j / 4 * 2);
            }
            d = Half::new(1.0 / inverse);
        }
        let mut q = [0; 256];
        let groups = q.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0);
        for (j, ((q, x), fit)) in groups.zip(&fits).enumerate() {
            let d = d.get() * f32::from(Self::scale(&scales, j));
            *q = if d == 0.0 { fit.q } else { x.map(|x| (nearest(x / d).clamp(-4, 3) + 4) as u8) };
        }
        Self { hmask: mask(|i| q[i] > 3), qs: pack_pairs(&q.map(|q| q & 3)), scales, d }
    }
}

/// The scales, minima and numbers up to `limit` of Q4_K and Q5_K.
fn encode_affine(x: &[f32; 256], limit: u8, steps: Steps) -> (Half, Half, ScalesAndMinima, [u8; 256]) {
    let fits: [Affine<32>; 8] = std::array::from_fn(|j| {
        let x = &x.as_chunks::<32>().0[j];
        let squares = x.iter().fold(0.0, |sum: f32, x| sum + x * x);
        let mean = (squares / 32.0).sqrt();
        affine(x, &x.map(|x| mean + x.abs()), limit, steps)
    });
    let (scale, min) = largest(&fits);
    let inverse = |largest: f32| if largest > 0.0 { 63.0 / largest } else { 0.0 };
    let part = |value: f32, largest: f32| (nearest(inverse(largest) * value) as u8).min(63);
    let parts = ScalesAndMinima::pack(
        &fits.each_ref().map(|fit| part(fit.scale, scale)),
        &fits.each_ref().map(|fit| part(fit.min, min)),
    );
    let (d, dmin) = (Half::new(scale / 63.0), Half::new(min / 63.0));
    let q = requantize(x, &fits, limit.into(), |j| {
        let (scale, min) = parts.get(j);
        (d.get() * f32::from(scale), dmin.get() * f32::from(min))
    });
    (d, dmin, parts, q)
}

/// The elements of Q4_K and Q5_K, whose numbers are `q(i)`.
fn decode_affine(d: Half, dmin: Half, scales: &ScalesAndMinima, out: &mut [f32; 256], q: impl Fn(usize) -> u8) {
    let (d, dmin) = (d.get(), dmin.get());
    for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scales.get(j);
        let (d, min) = (d * f32::from(scale), dmin * f32::from(min));
        for (l, out) in out.iter_mut().enumerate() {
            *out = d * f32::from(q(32 * j + l)) - min;
        }
    }
}

impl Block<256> for Q4K {
    fn decode(&self, out: &mut [f32; 256]) {
        decode_affine(self.d, self.dmin, &self.scales, out, |i| nibble(&self.qs, i));
    }
}

impl Encode<256> for Q4K {
    fn encode(x: &[f32; 256]) -> Self {
        let (d, dmin, scales, q) = encode_affine(x, 15, Steps { first: -1.0, last: 20, absolute: false });
        Self { d, dmin, scales, qs: pack_nibbles(&q) }
    }
}

impl Block<256> for Q5K {
    fn decode(&self, out: &mut [f32; 256]) {
        decode_affine(self.d, self.dmin, &self.scales, out, |i| {
            nibble(&self.qs, i) | u8::from(bit(self.qh[i % 32], i / 32)) << 4
        });
    }
}

impl Encode<256> for Q5K {
    fn encode(x: &[f32; 256]) -> Self {
        let (d, dmin, scales, q) = encode_affine(x, 31, Steps { first: -0.5, last: 15, absolute: false });
        Self { d, dmin, scales, qh: mask(|i| q[i] > 15), qs: pack_nibbles(&q) }
    }
}

impl Block<256> for Q6K {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let d = d * f32::from(self.scales[j]);
            for (l, out) in out.iter_mut().enumerate() {
                let i = 16 * j + l;
                let low = self.ql[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
                *out = d * (f32::from(low | pair(&self.qh, i) << 4) - 32.0);
            }
        }
    }
}

impl Encode<256> for Q6K {
    fn encode(x: &[f32; 256]) -> Self {
        let fits: [_; 16] = std::array::from_fn(|j| symmetric(&x.as_chunks::<16>().0[j], 32));
        let largest = fits.iter().fold(0.0f32, |best, fit| if fit.scale.abs() > best.abs() { fit.scale } else { best });
        if largest.abs() < EPSILON {
            return Self::zeroed();
        }
        let inverse = -128.0 / largest;
        let d = Half::new(1.0 / inverse);
        let scales = fits.each_ref().map(|fit| nearest(inverse * fit.scale).min(127) as i8);
        let mut q = [0; 256];
        let groups = q.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0);
        for (j, ((q, x), fit)) in groups.zip(&fits).enumerate() {
            let d = d.get() * f32::from(scales[j]);
            *q = if d == 0.0 { fit.q } else { x.map(|x| (nearest(x / d).clamp(-32, 31) + 32) as u8) };
        }
        let ql = std::array::from_fn(|at| {
            let first = at / 64 * 128 + at % 64;
            q[first] & 15 | q[first + 64] << 4
        });
        Self { ql, qh: pack_pairs(&q.map(|q| q >> 4)), scales, d }
    }
}
