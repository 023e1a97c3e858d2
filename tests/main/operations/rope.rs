//! Rotary position embedding.

use crate::devices::{all, unfused};
use crate::numbers::pairs;
use crate::reference::angle;
use crate::rig::{DENSE_ROWS, FLOATS, Form, Rig, called};
use wgfuse::graph::{DType, LeafKind, Rope, RopeMode};

const PLAIN: Rope = Rope {
    n_dims: 8,
    mode: RopeMode::Normal,
    n_ctx_orig: 128,
    freq_base: 10_000.0,
    freq_scale: 1.0,
    ext_factor: 0.0,
    attn_factor: 1.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
};

const YARN: Rope = Rope { freq_scale: 0.25, ext_factor: 1.0, attn_factor: 0.9, n_ctx_orig: 4096, n_dims: 16, ..PLAIN };

const POSITIONS: [f64; 7] = [0.0, 1.0, 2.0, 255.0, 256.0, 100.0, 31.0];

fn rotation(rig: &mut Rig, form: Form, dtype: DType, ne: [usize; 4], rope: Rope, with_factors: bool) {
    let a = rig.source(form, dtype, ne);
    let positions = rig.given(LeafKind::Input, DType::I32, [ne[2], 1, 1, 1], &POSITIONS[..ne[2]]);
    let factors = with_factors.then(|| {
        let factors = rig.weight([rope.n_dims as usize / 2, 1, 1, 1]);
        rig.map(factors, |x| x.abs() * 4.0 + 0.5)
    });
    let out = rig.graph.rope(a, positions, factors, rope).unwrap();
    rig.output(out);
}

#[test]
fn pairs_turn_by_their_position() {
    let mut rig = Rig::default();
    let variants = [
        PLAIN,
        Rope { n_dims: 20, freq_base: 500.0, ..PLAIN },
        Rope { freq_scale: 0.5, attn_factor: 1.5, ..PLAIN },
        YARN,
        Rope { ext_factor: 0.6, freq_base: 100.0, n_ctx_orig: 200, ..YARN },
    ];
    for (rope, mode) in pairs(variants, [RopeMode::Normal, RopeMode::Neox]) {
        for (form, dtype) in pairs(DENSE_ROWS, FLOATS) {
            for with_factors in [false, true] {
                rotation(&mut rig, form, dtype, [20, 3, 5, 2], Rope { mode, ..rope }, with_factors);
            }
        }
    }
    for (d, n_dims) in [(2, 2), (64, 64), (80, 32), (21, 20), (512, 512)] {
        for (form, dtype) in pairs(DENSE_ROWS, FLOATS) {
            for (mode, with_factors, yarn, freq_scale) in [
                (RopeMode::Normal, false, false, 1.0),
                (RopeMode::Neox, false, false, 0.3),
                (RopeMode::Neox, true, false, 1.0),
                (RopeMode::Normal, true, true, 0.25),
                (RopeMode::Neox, false, true, 0.125),
            ] {
                let (ext_factor, attn_factor) = if yarn { (0.75, 1.1) } else { (0.0, 1.0) };
                let rope = Rope { n_dims, mode, freq_scale, ext_factor, attn_factor, ..PLAIN };
                rotation(&mut rig, form, dtype, [d, 3, 7, 2], rope, with_factors);
            }
        }
    }
    rig.check();
}

#[test]
fn angles_of_far_positions_are_right() {
    for (position, limit) in [(255, 4e-6), (4095, 3e-5), (131_071, 1e-3), (-3, 1e-6)] {
        let ropes = [Rope { n_dims: 128, ..PLAIN }, Rope { n_dims: 128, mode: RopeMode::Neox, ..YARN }];
        for (rope, with_factors) in pairs(ropes, [false, true]) {
            let mut rig = Rig::default();
            // What is divided by a factor is an f32 number in a kernel, too.
            let divided = f64::from(position).abs() * f64::from(f32::EPSILON);
            let limit = if with_factors { limit + divided } else { limit };
            // The first element of each pair is 1, the second 0: a cosine and a sine come out.
            let first = |i: usize| if rope.mode == RopeMode::Normal { i.is_multiple_of(2) } else { i < 64 };
            let ones: Vec<f64> = (0..128).map(|i| if first(i) { 1.0 } else { 0.0 }).collect();
            let a = rig.given(LeafKind::Input, DType::F32, [128, 1, 1, 1], &ones);
            let at = rig.given(LeafKind::Input, DType::I32, [1, 1, 1, 1], &[position.into()]);
            let factor = |pair: usize| if with_factors { 1.0 + pair as f64 / 2.0 } else { 1.0 };
            let factors: Vec<f64> = (0..64).map(factor).collect();
            let factors = rig.given(LeafKind::Weight, DType::F32, [64, 1, 1, 1], &factors);
            let out = rig.graph.rope(a, at, with_factors.then_some(factors), rope).unwrap();
            rig.output(out);
            let pair = |i: usize| if rope.mode == RopeMode::Normal { i / 2 } else { i % 64 };
            for device in all() {
                let found = rig.run(&device, unfused()).unwrap().remove(0).all;
                for (i, found) in found.into_iter().enumerate() {
                    let (theta, magnitude) = angle(&rope, position.into(), pair(i), factor(pair(i)));
                    // On the CPU angles are f32 numbers by definition.
                    let theta = if device.info().backend == "CPU" { f64::from(theta as f32) } else { theta };
                    let expected = magnitude * if first(i) { theta.cos() } else { theta.sin() };
                    let off = (found - expected).abs();
                    assert!(off <= limit, "{}: {off:e} at position {position}, element {i}", called(&device));
                }
            }
        }
    }
}
