//! The formats whose elements are points of a grid, or choose among uneven values.
//!
//! Layouts are those of ggml's `block_iq1_s` to `block_iq4_xs`. Numbers of 16 and 32 bits are little-endian. Bit `j` of
//! a byte of signs says that element `j` of its eight is negative.

use super::block::{Block, Encode, Half, bit, extreme, inverse, nearest, nibbles, pack_nibbles};
use super::grid_search::{self, Fit, Grid, Tries};
use super::grids;
use super::search::EPSILON;
use bytemuck::{Pod, Zeroable};

/// Eight bytes for every 32 elements: four indices into the grid of 256, and a word of four signs of 7 bits (see
/// [`signs`]) and, in its highest bits, a scale of 4.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq2Xxs {
    d: Half,
    qs: [[[u8; 4]; 2]; 8],
}

/// For every 8 elements 9 bits of index into the grid of 512 and above them 7 bits of signs; a scale of 4 bits for every
/// 16 elements.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq2Xs {
    d: Half,
    qs: [[u8; 2]; 32],
    scales: [u8; 8],
}

/// For every 8 elements an index into the grid of 1024, whose two high bits are in `qh`, four to a byte, and a byte of
/// signs; a scale of 4 bits for every 16 elements.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq2S {
    d: Half,
    qs: [u8; 32],
    signs: [u8; 32],
    qh: [u8; 8],
    scales: [u8; 8],
}

/// For every 4 elements an index into the grid of 256; for every 32 a word of signs and a scale as in [`Iq2Xxs`].
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq3Xxs {
    d: Half,
    qs: [u8; 64],
    signs: [[u8; 4]; 8],
}

/// For every 4 elements an index into the grid of 512, whose high bit is in `qh`, and for every 8 a byte of signs; a
/// scale of 4 bits for every 32.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq3S {
    d: Half,
    qs: [u8; 64],
    qh: [u8; 8],
    signs: [u8; 32],
    scales: [u8; 4],
}

/// For every 8 elements an index into the grid of 2048. `qh` holds for every 32 elements the three high bits of four
/// indices, a scale of 3 bits, and the sign of the shift.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq1S {
    d: Half,
    qs: [u8; 32],
    qh: [[u8; 2]; 8],
}

/// For every 8 elements an index into the grid of 2048, whose three high bits are in half a byte of `qh`, below the sign
/// of the shift. Each word of `scales` holds four scales of 3 bits, for 16 elements each, and above them a quarter of
/// the half-precision scale of all.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq1M {
    qs: [u8; 32],
    qh: [u8; 16],
    scales: [[u8; 2]; 4],
}

/// `d · UNEVEN[q]`, packed as in [`Q4_0`](super::simple::Q4_0).
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq4Nl {
    d: Half,
    qs: [u8; 16],
}

/// `d · (scale − 32) · UNEVEN[q]` with a scale of 6 bits for every 32 elements, whose two high bits are in `scales_h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq4Xs {
    d: Half,
    scales_h: [u8; 2],
    scales_l: [u8; 4],
    qs: [[u8; 16]; 8],
}

/// By how much the points of the grid of 2048 are shifted.
const SHIFT: f32 = 0.125;

/// What 4 bits stand for in IQ4_NL and IQ4_XS: closer together around zero, where most elements are.
const UNEVEN: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Eight signs of which seven are stored: the last makes the number of negative ones even.
fn signs(stored: u32) -> u8 {
    let low = (stored & 127) as u8;
    low | (low.count_ones() as u8 & 1) << 7
}

/// Half a byte.
fn half(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (i % 2 * 4) & 15
}

/// Elements that are `d` times the coordinates of a point, with signs.
fn signed<const N: usize>(out: &mut [f32], d: f32, point: [f32; N], signs: u8, first: usize) {
    for (j, (out, x)) in out.iter_mut().zip(point).enumerate() {
        *out = d * x * if bit(signs, first + j) { -1.0 } else { 1.0 };
    }
}

/// Elements that are `d` times the shifted coordinates of a point.
fn shifted(out: &mut [f32; 8], d: f32, index: usize, down: bool) {
    let shift = if down { -SHIFT } else { SHIFT };
    for (out, x) in out.iter_mut().zip(grids::ternary(index)) {
        *out = d * (x + shift);
    }
}

impl Block<256> for Iq2Xxs {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let [indices, word] = self.qs[g / 4];
            let word = u32::from_le_bytes(word);
            let d = d * (0.5 + (word >> 28) as f32) * 0.25;
            signed(out, d, grids::iq2_xxs(indices[g % 4].into()), signs(word >> (g % 4 * 7)), 0);
        }
    }
}

impl Block<256> for Iq2Xs {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let word = u16::from_le_bytes(self.qs[g]);
            let d = d * (0.5 + f32::from(half(&self.scales, g / 2))) * 0.25;
            signed(out, d, grids::iq2_xs((word & 511).into()), signs((word >> 9).into()), 0);
        }
    }
}

impl Block<256> for Iq2S {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let high = usize::from(self.qh[g / 4] >> (g % 4 * 2) & 3);
            let d = d * (0.5 + f32::from(half(&self.scales, g / 2))) * 0.25;
            signed(out, d, grids::iq2_s(usize::from(self.qs[g]) | high << 8), self.signs[g], 0);
        }
    }
}

impl Block<256> for Iq3Xxs {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        for (g, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let word = u32::from_le_bytes(self.signs[g / 8]);
            let d = d * (0.5 + (word >> 28) as f32) * 0.5;
            signed(out, d, grids::iq3_xxs(self.qs[g].into()), signs(word >> (g / 2 % 4 * 7)), g % 2 * 4);
        }
    }
}

impl Block<256> for Iq3S {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        for (g, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let high = usize::from(bit(self.qh[g / 8], g % 8));
            let d = d * f32::from(1 + 2 * half(&self.scales, g / 8));
            signed(out, d, grids::iq3_s(usize::from(self.qs[g]) | high << 8), self.signs[g / 2], g % 2 * 4);
        }
    }
}

impl Block<256> for Iq1S {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let word = u16::from_le_bytes(self.qh[g / 4]);
            let d = d * f32::from(2 * (word >> 12 & 7) + 1);
            let high = usize::from(word >> (g % 4 * 3) & 7);
            shifted(out, d, usize::from(self.qs[g]) | high << 8, word >> 15 == 1);
        }
    }
}

impl Block<256> for Iq1M {
    fn decode(&self, out: &mut [f32; 256]) {
        let words = self.scales.map(u16::from_le_bytes);
        let all = words.iter().enumerate().fold(0, |all, (i, word)| all | word >> 12 << (4 * i));
        let d = half::f16::from_bits(all).to_f32();
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scale = words[g / 8] >> (g % 8 / 2 * 3) & 7;
            let high = half(&self.qh, g);
            let index = usize::from(self.qs[g]) | usize::from(high & 7) << 8;
            shifted(out, d * f32::from(2 * scale + 1), index, bit(high, 3));
        }
    }
}

impl Block<32> for Iq4Nl {
    fn decode(&self, out: &mut [f32; 32]) {
        uneven(out, self.d.get(), &self.qs);
    }
}

impl Block<256> for Iq4Xs {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.get();
        let high = u16::from_le_bytes(self.scales_h);
        for (g, (out, qs)) in out.as_chunks_mut::<32>().0.iter_mut().zip(&self.qs).enumerate() {
            let scale = half(&self.scales_l, g) | ((high >> (2 * g) & 3) as u8) << 4;
            uneven(out, d * (f32::from(scale) - 32.0), qs);
        }
    }
}

fn uneven(out: &mut [f32; 32], d: f32, qs: &[u8; 16]) {
    for (out, q) in out.iter_mut().zip(nibbles(qs)) {
        *out = d * f32::from(UNEVEN[usize::from(q)]);
    }
}

/// The number whose value is nearest; of two equally near the larger.
fn choose(x: f32) -> u8 {
    let value = |q: usize| f32::from(UNEVEN[q]);
    if x <= value(0) {
        return 0;
    }
    if x >= value(15) {
        return 15;
    }
    // The first of a larger value; the last for a NaN.
    let above = (1..15).find(|&q| x < value(q)).unwrap_or(15);
    (if x - value(above - 1) < value(above) - x { above - 1 } else { above }) as u8
}

/// The scale with the least error, weighed by squares, for numbers chosen with the scale `1 / inverse`, and how much it
/// explains.
struct Candidate {
    scale: f32,
    xq: f32,
    qq: f32,
}

fn candidate(x: &[f32; 32], inverse: f32) -> Candidate {
    let (xq, qq) = x.iter().fold((0.0, 0.0), |(xq, qq), &x| {
        let (w, q) = (x * x, f32::from(UNEVEN[usize::from(choose(inverse * x))]));
        (xq + w * q * x, qq + w * q * q)
    });
    Candidate { scale: if qq > 0.0 { xq / qq } else { 0.0 }, xq, qq }
}

impl Encode<32> for Iq4Nl {
    fn encode(x: &[f32; 32]) -> Self {
        let (largest, extreme) = extreme(x);
        if largest < EPSILON {
            // ggml leaves what the numbers were before; with this scale they do not matter.
            return Self::zeroed();
        }
        let inverse = 1.0 / (extreme / f32::from(UNEVEN[0]));
        let d = Half::new(candidate(x, inverse).scale);
        Self { d, qs: pack_nibbles(&x.map(|x| choose(inverse * x))) }
    }
}

/// The best of several scales for 32 elements.
fn search(x: &[f32; 32]) -> f32 {
    let (largest, extreme) = extreme(x);
    if largest < EPSILON {
        return 0.0;
    }
    let lowest = f32::from(UNEVEN[0]);
    let first = candidate(x, 1.0 / (-extreme / lowest));
    let mut scale = first.scale;
    let mut gain = scale * first.xq;
    for step in -7i8..=7 {
        let tried = candidate(x, (f32::from(step) + lowest) / extreme);
        if tried.qq > 0.0 && tried.xq * tried.xq > gain * tried.qq {
            scale = tried.scale;
            gain = scale * tried.xq;
        }
    }
    scale
}

impl Encode<256> for Iq4Xs {
    fn encode(x: &[f32; 256]) -> Self {
        let groups: &[[f32; 32]; 8] = bytemuck::cast_ref(x);
        let scales = groups.each_ref().map(search);
        let largest = scales.iter().fold(0.0f32, |best, &scale| if scale.abs() > best.abs() { scale } else { best });
        let d = -largest / 32.0;
        let id = inverse(d);
        let mut block = Self { d: Half::new(d), ..Self::zeroed() };
        let mut high = 0u16;
        for (g, (x, scale)) in groups.iter().zip(scales).enumerate() {
            let scale = nearest(id * scale).clamp(-32, 31) as i8;
            let inverse = inverse(d * f32::from(scale));
            block.qs[g] = pack_nibbles(&x.map(|x| choose(inverse * x)));
            let stored = (scale + 32) as u8;
            block.scales_l[g / 2] |= (stored & 15) << (g % 2 * 4);
            high |= u16::from(stored >> 4) << (2 * g);
        }
        block.scales_h = high.to_le_bytes();
        block
    }
}

/// Points for `G` elements at a time: their scales, their signs by eights, and the points' positions in the grid.
struct Points {
    scales: Vec<f32>,
    signs: Vec<u8>,
    points: Vec<u16>,
}

/// Finds points of a grid for the magnitudes of elements.
///
/// `even` makes the number of negative elements of each eight even, by turning the one that matters least.
fn points<const N: usize>(
    grid: &Grid<N>,
    x: &[f32; 256],
    group: usize,
    even: bool,
    weight: impl Fn(f32) -> f32,
    tries: &Tries,
) -> Points {
    let mut found = Points { scales: Vec::new(), signs: Vec::new(), points: Vec::new() };
    for x in x.chunks_exact(group) {
        let weights: Vec<f32> = x.iter().map(|&x| weight(x)).collect();
        let mut magnitudes = x.to_vec();
        let mut signs = Vec::with_capacity(group / 8);
        for (magnitudes, weights) in magnitudes.chunks_exact_mut(8).zip(weights.chunks_exact(8)) {
            // What turning an element costs.
            let cost = |j: usize, x: f32| weights[j] * x * x;
            let costs: Vec<f32> = magnitudes.iter().enumerate().map(|(j, &x)| cost(j, x)).collect();
            let mut negative = 0u8;
            for (j, x) in magnitudes.iter_mut().enumerate() {
                if *x < 0.0 || x.is_nan() {
                    *x = -*x;
                    negative |= 1 << j;
                }
            }
            if even && negative.count_ones() % 2 == 1 {
                let least = (1..8).fold(0, |least, j| if costs[j] < costs[least] { j } else { least });
                magnitudes[least] = -magnitudes[least];
                negative ^= 1 << least;
            }
            signs.push(negative);
        }
        match grid.fit(&magnitudes, &weights, tries) {
            Some(Fit { scale, points }) => {
                // Scales are stored without a sign.
                let flip = if scale < 0.0 { 255 } else { 0 };
                found.scales.push(scale.abs());
                found.signs.extend(signs.iter().map(|signs| signs ^ flip));
                found.points.extend(points);
            }
            None => {
                found.scales.push(0.0);
                found.signs.extend(signs.iter().map(|_| 0));
                found.points.extend(std::iter::repeat_n(0, group / N));
            }
        }
    }
    found
}

impl Points {
    /// The scale of all, made larger by `fudge`, and for each group the nearest of the 16 scales `2l + 1`.
    fn scales(&self, fudge: f32) -> (Half, Vec<u8>) {
        let largest = self.scales.iter().fold(0.0, |max: f32, &scale| if max > scale { max } else { scale });
        if largest == 0.0 {
            return (Half::new(0.0), vec![0; self.scales.len()]);
        }
        let d = largest / 31.0;
        let id = 1.0 / d;
        let stored = self.scales.iter().map(|scale| nearest(0.5 * (id * scale - 1.0)).clamp(0, 15) as u8);
        (Half::new(d * fudge), stored.collect())
    }
}

impl Encode<256> for Iq2S {
    fn encode(x: &[f32; 256]) -> Self {
        const TRIES: Tries = Tries { steps: 9, step: 0.1, epsilon: 1e-8, refine_all: false };
        let squares = x.iter().fold(0.0, |sum: f32, x| sum + x * x);
        let spread = 0.25 * (2.0 * squares / 256.0);
        let found = points(&grid_search::IQ2_S, x, 16, false, |x| spread + x * x, &TRIES);
        let (d, scales) = found.scales(0.9875);
        let mut block = Self { d, ..Self::zeroed() };
        for (g, (point, signs)) in found.points.iter().zip(found.signs).enumerate() {
            block.qs[g] = *point as u8;
            block.qh[g / 4] |= ((point >> 8) as u8) << (g % 4 * 2);
            block.signs[g] = signs;
        }
        for (g, scale) in scales.into_iter().enumerate() {
            block.scales[g / 2] |= scale << (g % 2 * 4);
        }
        block
    }
}

impl Encode<256> for Iq3Xxs {
    fn encode(x: &[f32; 256]) -> Self {
        const TRIES: Tries = Tries { steps: 15, step: 0.2, epsilon: 1e-8, refine_all: false };
        let found = points(&grid_search::IQ3_XXS, x, 32, true, |x| x * x, &TRIES);
        let (d, scales) = found.scales(1.0125);
        let mut block = Self { d, ..Self::zeroed() };
        for (qs, point) in block.qs.iter_mut().zip(&found.points) {
            *qs = *point as u8;
        }
        for (g, (signs, scale)) in found.signs.chunks_exact(4).zip(scales).enumerate() {
            let word = signs.iter().rev().fold(u32::from(scale), |word, signs| word << 7 | u32::from(signs & 127));
            block.signs[g] = word.to_le_bytes();
        }
        block
    }
}

impl Encode<256> for Iq3S {
    /// ggml's quantizer misplaces the points and signs that follow 32 zeros in a block; here they stay in their places.
    fn encode(x: &[f32; 256]) -> Self {
        const TRIES: Tries = Tries { steps: 9, step: 0.2, epsilon: 0.0, refine_all: true };
        let found = points(&grid_search::IQ3_S, x, 32, false, |x| x * x, &TRIES);
        let (d, scales) = found.scales(1.033);
        let mut block = Self { d, ..Self::zeroed() };
        for (g, point) in found.points.iter().enumerate() {
            block.qs[g] = *point as u8;
            block.qh[g / 8] |= ((point >> 8) as u8) << (g % 8);
        }
        for (stored, signs) in block.signs.iter_mut().zip(found.signs) {
            *stored = signs;
        }
        for (g, scale) in scales.into_iter().enumerate() {
            block.scales[g / 2] |= scale << (g % 2 * 4);
        }
        block
    }
}
