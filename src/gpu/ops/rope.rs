//! ROPE and ROPE_BACK.

use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Switch};
use crate::graph::{Rope, RopeMode, TensorId};
use std::f64::consts::TAU;

/// Encodes a ROPE node, or a ROPE_BACK node, which turns `back`.
///
/// # Errors
/// [`DeviceError::Unsupported`] for frequencies that grow along the row or exceed a turn per position.
pub fn rope(cx: &Context<'_>, node: TensorId, rope: &Rope, back: bool) -> Result<Vec<Dispatch>, DeviceError> {
    let (source, positions) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let layout = cx.tensor(node).layout();
    let pairs = rope.pairs();
    let yarn = rope.ext_factor != 0.0;
    // With YaRN the scale differs from pair to pair.
    let scale = if yarn { 1.0 } else { f64::from(rope.freq_scale) };
    let ratio = f64::from(rope.freq_base).powf(-2.0 / f64::from(rope.n_dims));
    if !(ratio <= 1.0 && (0.0..TAU).contains(&scale)) {
        let detail = format!("base {} and scale {}", rope.freq_base, rope.freq_scale);
        return Err(cx.unsupported(cx.tensor(node).kind(), detail));
    }
    let bits = usize::BITS - pairs.saturating_sub(1).leading_zeros();
    let (mode, sections) = match rope.mode {
        RopeMode::Normal => ("normal", Vec::new()),
        RopeMode::Neox => ("neox", Vec::new()),
        RopeMode::Mrope { sections } => ("mrope", sections.to_vec()),
        RopeMode::Imrope { sections } => ("imrope", sections.to_vec()),
        RopeMode::Vision { sections } => ("vision", sections.to_vec()),
    };
    let mut encoder = cx
        .kernel("rope", node)
        .switch("mode", Switch::Str(mode))
        .switch("sections", Switch::Ints(sections))
        .switch("back", Switch::Bool(back))
        .switch("yarn", Switch::Bool(yarn))
        .switch("bits", Switch::Int(bits))
        .input("x", source)
        .strides("x", source, &[1, 2, 3])
        .input("positions", positions)
        .optional_input("factors", "has_factors", cx.tensor(node).src(2))
        .output("y", node)
        .shape("y", node, &[0, 1, 2])
        .size("pairs", pairs)
        .size("first_dim", rope.first_dim as usize)
        .size("fastest", fixed_point(scale / TAU));
    for bit in 0..bits {
        encoder = encoder.size(format!("ratio{bit}"), fixed_point(ratio.powf(f64::from(bit).exp2())));
    }
    let mut magnitude = rope.attn_factor;
    if yarn {
        let (start, length) = ramp(rope);
        magnitude *= 1.0 - 0.1 * rope.freq_scale.ln();
        encoder = encoder
            .float("ramp_start", start)
            .float("ramp_length", length)
            .float("freq_scale", rope.freq_scale)
            .float("ext_factor", rope.ext_factor);
    }
    let threads = layout.rows() * (layout.ne[0] - pairs);
    Ok(vec![encoder.float("magnitude", magnitude).threads(threads).finish()?])
}

/// A number from 0 to 1 as a fraction of 2³².
fn fixed_point(fraction: f64) -> usize {
    // 1 itself becomes the largest fraction there is.
    ((fraction * 4_294_967_296.0).round() as usize).min(u32::MAX as usize)
}

/// The pairs between which YaRN passes from extrapolation to interpolation: where they start, and how many.
fn ramp(rope: &Rope) -> (f32, f32) {
    let pair_that_turns = |times: f32| {
        let wavelength = rope.n_ctx_orig as f32 / (times * std::f32::consts::TAU);
        rope.n_dims as f32 * wavelength.ln() / (2.0 * rope.freq_base.ln())
    };
    let start = pair_that_turns(rope.beta_fast).floor().max(0.0);
    let end = pair_that_turns(rope.beta_slow).ceil().min((rope.n_dims - 1) as f32);
    (start, (end - start).max(0.001))
}
