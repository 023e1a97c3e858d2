//! The formats of one scale for 32 elements.
//!
//! Layouts are those of ggml's `block_q4_0` to `block_q8_0`. In all of them element `j` is in the low half of byte `j`
//! of `qs`, and element `16 + j` in its high half; bit `i` of `qh` is the fifth bit of element `i`.

use super::block::{Block, Encode, Half, extreme, inverse, nibbles, pack_nibbles};
use bytemuck::{Pod, Zeroable};

/// `d · (q − 8)`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q4_0 {
    d: Half,
    qs: [u8; 16],
}

/// `d · q + m`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q4_1 {
    d: Half,
    m: Half,
    qs: [u8; 16],
}

/// `d · (q − 16)`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q5_0 {
    d: Half,
    qh: [u8; 4],
    qs: [u8; 16],
}

/// `d · q + m`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q5_1 {
    d: Half,
    m: Half,
    qh: [u8; 4],
    qs: [u8; 16],
}

/// `d · q`, where `q` is a signed byte.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q8_0 {
    d: Half,
    qs: [i8; 32],
}

/// The numbers of 5 bits.
fn fives(qs: &[u8; 16], qh: [u8; 4]) -> impl Iterator<Item = u8> + '_ {
    let high = u32::from_le_bytes(qh);
    nibbles(qs).enumerate().map(move |(i, low)| low | ((high >> i & 1) as u8) << 4)
}

/// The inverse of [`fives`].
fn pack_fives(q: &[u8; 32]) -> ([u8; 16], [u8; 4]) {
    let high = q.iter().enumerate().fold(0, |bits: u32, (i, q)| bits | u32::from(q >> 4) << i);
    (pack_nibbles(&q.map(|q| q & 15)), high.to_le_bytes())
}

/// The scale that brings the element of largest magnitude to `−limit`, where there is one more number than above zero,
/// and all elements as numbers from 0 around `limit`.
fn symmetric(x: &[f32; 32], limit: i8) -> (Half, [u8; 32]) {
    let (_, extreme) = extreme(x);
    let d = extreme / -f32::from(limit);
    let id = inverse(d);
    let middle = f32::from(limit) + 0.5;
    (Half::new(d), x.map(|x| ((x * id + middle) as i8).clamp(0, 2 * limit - 1) as u8))
}

/// The scale that spreads the elements over 0 to `limit`, the smallest element, and all elements so spread.
fn spread(x: &[f32; 32], limit: u8) -> (Half, Half, [u8; 32]) {
    let min = x.iter().fold(f32::MAX, |min, &x| if x < min { x } else { min });
    let max = x.iter().fold(f32::MIN, |max, &x| if x > max { x } else { max });
    let d = (max - min) / f32::from(limit);
    let id = inverse(d);
    (Half::new(d), Half::new(min), x.map(|x| (((x - min) * id + 0.5) as u8).min(limit)))
}

impl Block<32> for Q4_0 {
    fn decode(&self, out: &mut [f32; 32]) {
        let d = self.d.get();
        for (out, q) in out.iter_mut().zip(nibbles(&self.qs)) {
            *out = (f32::from(q) - 8.0) * d;
        }
    }
}

impl Encode<32> for Q4_0 {
    fn encode(x: &[f32; 32]) -> Self {
        let (d, q) = symmetric(x, 8);
        Self { d, qs: pack_nibbles(&q) }
    }
}

impl Block<32> for Q4_1 {
    fn decode(&self, out: &mut [f32; 32]) {
        let (d, m) = (self.d.get(), self.m.get());
        for (out, q) in out.iter_mut().zip(nibbles(&self.qs)) {
            *out = f32::from(q) * d + m;
        }
    }
}

impl Encode<32> for Q4_1 {
    fn encode(x: &[f32; 32]) -> Self {
        let (d, m, q) = spread(x, 15);
        Self { d, m, qs: pack_nibbles(&q) }
    }
}

impl Block<32> for Q5_0 {
    fn decode(&self, out: &mut [f32; 32]) {
        let d = self.d.get();
        for (out, q) in out.iter_mut().zip(fives(&self.qs, self.qh)) {
            *out = (f32::from(q) - 16.0) * d;
        }
    }
}

impl Encode<32> for Q5_0 {
    fn encode(x: &[f32; 32]) -> Self {
        let (d, q) = symmetric(x, 16);
        let (qs, qh) = pack_fives(&q);
        Self { d, qh, qs }
    }
}

impl Block<32> for Q5_1 {
    fn decode(&self, out: &mut [f32; 32]) {
        let (d, m) = (self.d.get(), self.m.get());
        for (out, q) in out.iter_mut().zip(fives(&self.qs, self.qh)) {
            *out = f32::from(q) * d + m;
        }
    }
}

impl Encode<32> for Q5_1 {
    fn encode(x: &[f32; 32]) -> Self {
        let (d, m, q) = spread(x, 31);
        let (qs, qh) = pack_fives(&q);
        Self { d, m, qh, qs }
    }
}

impl Block<32> for Q8_0 {
    fn decode(&self, out: &mut [f32; 32]) {
        let d = self.d.get();
        for (out, q) in out.iter_mut().zip(self.qs) {
            *out = f32::from(q) * d;
        }
    }
}

impl Encode<32> for Q8_0 {
    fn encode(x: &[f32; 32]) -> Self {
        let d = extreme(x).0 / 127.0;
        let id = inverse(d);
        Self { d: Half::new(d), qs: x.map(|x| (x * id).round() as i8) }
    }
}
