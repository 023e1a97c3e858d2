//! MXFP4: the 4-bit floats of the OCP Microscaling formats.

use super::block::{Block, Encode, extreme, nibbles, pack_nibbles};
use bytemuck::{Pod, Zeroable};

/// `2^(e − 127) · v`, where `v` is a float of a sign, two bits of exponent and one of mantissa; ggml's `block_mxfp4`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mxfp4 {
    e: u8,
    qs: [u8; 16],
}

/// Twice the values of the floats.
const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `2^(e − 128)`, half the scale, as [`VALUES`] are doubled. The format's NaN, 255, is not told apart.
fn half_scale(e: u8) -> f32 {
    // The two smallest are subnormal.
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

impl Block<32> for Mxfp4 {
    fn decode(&self, out: &mut [f32; 32]) {
        let d = half_scale(self.e);
        for (out, q) in out.iter_mut().zip(nibbles(&self.qs)) {
            *out = f32::from(VALUES[usize::from(q)]) * d;
        }
    }
}

impl Encode<32> for Mxfp4 {
    fn encode(x: &[f32; 32]) -> Self {
        let (largest, _) = extreme(x);
        // The largest float is 6, whose exponent is 2.
        let e = if largest > 0.0 { (floor_log2(largest) - 2.0 + 127.0) as u8 } else { 0 };
        let d = half_scale(e);
        let q = x.map(|x| {
            let error = |value: i8| (f32::from(value) * d - x).abs();
            let best =
                (1..VALUES.len()).fold(0, |best, i| if error(VALUES[i]) < error(VALUES[best]) { i } else { best });
            best as u8
        });
        Self { e, qs: pack_nibbles(&q) }
    }
}

/// `⌊log₂ x⌋` where the logarithm is rounded to f32 first: a number just below a power of two counts as that power.
fn floor_log2(x: f32) -> f32 {
    (f64::from(x).log2() as f32).floor()
}
