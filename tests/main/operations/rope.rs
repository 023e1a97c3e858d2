//! Rotary position embedding.

use crate::devices::{all, unfused};
use crate::numbers::pairs;
use crate::reference::angle;
use crate::rig::{DENSE_ROWS, FLOATS, Form, Rig, called};
use wgfuse::graph::{DType, Graph, LeafKind, Rope, RopeMode};

const PLAIN: Rope = Rope {
    n_dims: 8,
    first_dim: 0,
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

/// Rows that turn by four positions each, parts of rows that do not start at the first element, and the way back.
#[test]
fn pairs_turn_by_the_position_of_their_section() {
    let variants = [
        (20, Rope { mode: RopeMode::Mrope { sections: [4, 3, 2, 1] }, n_dims: 20, ..PLAIN }),
        (21, Rope { mode: RopeMode::Mrope { sections: [2, 0, 1, 0] }, n_dims: 16, first_dim: 4, ..YARN }),
        (128, Rope { mode: RopeMode::Mrope { sections: [32, 32, 32, 32] }, n_dims: 128, ..PLAIN }),
        (24, Rope { mode: RopeMode::Imrope { sections: [4, 3, 3, 0] }, n_dims: 20, first_dim: 2, ..PLAIN }),
        (24, Rope { mode: RopeMode::Imrope { sections: [5, 1, 3, 2] }, n_dims: 24, ..YARN }),
        (20, Rope { mode: RopeMode::Vision { sections: [5, 5, 0, 0] }, n_dims: 10, ..PLAIN }),
        (20, Rope { mode: RopeMode::Vision { sections: [2, 1, 3, 2] }, n_dims: 10, ..YARN }),
        (80, Rope { mode: RopeMode::Vision { sections: [10, 10, 10, 10] }, n_dims: 40, freq_scale: 0.5, ..PLAIN }),
        (24, Rope { first_dim: 16, ..PLAIN }),
        (24, Rope { mode: RopeMode::Neox, first_dim: 6, ..YARN }),
    ];
    let mut rig = Rig::default();
    let memory: Vec<(Form, DType)> = pairs(DENSE_ROWS, FLOATS).collect();
    let options = [(false, false), (true, false), (false, true), (true, true)];
    // Every variant in every way, each time in the next of all types and forms.
    let all = variants.into_iter().flat_map(|variant| options.map(|options| (variant, options)));
    for (((width, rope), (with_factors, back)), &(form, dtype)) in all.zip(memory.iter().cycle()) {
        let a = rig.source(form, dtype, [width, 3, 5, 2]);
        let count: u32 = if rope.sections().is_some() { 20 } else { 5 };
        let each: Vec<f64> = (0..count).map(|at| f64::from(at * 37 % 101 + 1)).collect();
        let positions = rig.given(LeafKind::Input, DType::I32, [count as usize, 1, 1, 1], &each);
        let factors = with_factors.then(|| {
            let factors = rig.weight([rope.pairs(), 1, 1, 1]);
            rig.map(factors, |x| x.abs() * 4.0 + 0.5)
        });
        let make = if back { Graph::rope_back } else { Graph::rope };
        let out = make(&mut rig.graph, a, positions, factors, rope).unwrap();
        rig.output(out);
    }
    rig.check();
}

/// One pair for each element of the first half; elements that are 1 and 0 come out as the cosine of the angle.
#[test]
fn sections_choose_the_published_positions() {
    // A position of 0 leaves the cosine at 1, so that the cosines tell which position each pair turned by.
    let chosen = |mode, width: usize, n_dims, axis: usize| -> Vec<bool> {
        let mut rig = Rig::default();
        let ones: Vec<f64> = (0..width).map(|i| if i < width / 2 { 1.0 } else { 0.0 }).collect();
        let a = rig.given(LeafKind::Input, DType::F32, [width, 1, 1, 1], &ones);
        let mut positions = [0.0; 4];
        positions[axis] = 1.0;
        let positions = rig.given(LeafKind::Input, DType::I32, [4, 1, 1, 1], &positions);
        let rope = Rope { mode, n_dims, freq_base: 4.0, ..PLAIN };
        let out = rig.graph.rope(a, positions, None, rope).unwrap();
        rig.output(out);
        let found: Vec<Vec<bool>> = all()
            .iter()
            .map(|device| rig.run(device, unfused()).unwrap()[0].all[..width / 2].iter().map(|&x| x != 1.0).collect())
            .collect();
        assert!(found.iter().all(|other| *other == found[0]));
        found[0].clone()
    };
    let text = |mode, width, n_dims| -> String {
        let axes = [0, 1, 2, 3].map(|axis| chosen(mode, width, n_dims, axis));
        (0..width / 2)
            .map(|pair| (0..4).filter(|&axis| axes[axis][pair]).map(|a| ['t', 'y', 'x', 'e'][a]).collect::<String>())
            .collect()
    };
    // The examples of ggml's documentation, continued by hand.
    assert_eq!(text(RopeMode::Mrope { sections: [4, 2, 2, 0] }, 16, 16), "ttttyyxx");
    assert_eq!(text(RopeMode::Imrope { sections: [3, 3, 2, 0] }, 16, 16), "tyxtyxty");
    assert_eq!(text(RopeMode::Imrope { sections: [2, 1, 1, 4] }, 16, 16), "tyxteeee");
    assert_eq!(text(RopeMode::Vision { sections: [4, 4, 0, 0] }, 16, 8), "ttttyyyy");
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
