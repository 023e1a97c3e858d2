//! Operations that carry a state from token to token.

use crate::numbers::pairs;
use crate::rig::{DENSE_ROWS, Form, Rig};
use wgfuse::graph::{DType, Op, TensorId};

#[test]
fn state_space_convolution() {
    let mut rig = Rig::default();
    for (width, channels, tokens, sequences) in [
        (4, 5, 1, 1),
        (4, 5, 6, 3),
        (1, 5, 3, 2),
        (3, 5, 2, 1),
        (1, 1, 1, 1),
        (4, 33, 1, 2),
        (4, 100, 17, 3),
        (3, 7, 200, 1),
    ] {
        for form in DENSE_ROWS {
            let x = rig.source(form, DType::F32, [width - 1 + tokens, channels, sequences, 1]);
            let c = rig.weight([width, channels, 1, 1]);
            rig.want(Op::SsmConv, &[x, c]);
        }
    }
    rig.check();
}

/// The sources of a delta net as models have them: keys have length one, gates decay, and beta is a probability.
pub fn delta_sources(
    rig: &mut Rig,
    form: Form,
    [size, heads_k, heads]: [usize; 3],
    [tokens, batch]: [usize; 2],
    per_channel: bool,
) -> [TensorId; 5] {
    let q = rig.source(form, DType::F32, [size, heads_k, tokens, batch]);
    let k = rig.source(Form::Swapped, DType::F32, [size, heads_k, tokens, batch]);
    let keys = rig.contents(rig.graph.root(k));
    let unit = |key: &[f64]| {
        let length = key.iter().map(|x| x * x).sum::<f64>().sqrt();
        key.iter().map(|x| x / length).collect::<Vec<_>>()
    };
    rig.give(k, keys.chunks(size).flat_map(unit).collect());
    let v = rig.source(form, DType::F32, [size, heads, tokens, batch]);
    let g = rig.input([if per_channel { size } else { 1 }, heads, tokens, batch]);
    let beta = rig.input([1, heads, tokens, batch]);
    [q, k, v, rig.map(g, |x| -0.5 * (x + 1.0)), rig.map(beta, |x| 0.5 * (x + 1.0))]
}

#[test]
fn gated_delta_rule_with_snapshots() {
    let mut rig = Rig::default();
    for (heads, times, snapshots) in [
        ([4, 1, 1], [1, 1], 1),
        ([4, 1, 1], [2, 1], 1),
        ([8, 2, 4], [5, 2], 1),
        ([8, 2, 4], [5, 2], 3),
        ([16, 2, 4], [3, 2], 2),
        ([24, 1, 3], [5, 1], 2),
        ([32, 1, 2], [8, 1], 8),
        ([32, 2, 2], [1, 2], 4),
        ([64, 2, 6], [8, 2], 4),
        ([128, 1, 2], [4, 1], 1),
        ([256, 1, 1], [3, 1], 2),
        ([36, 1, 2], [70, 1], 3),
        ([4, 2, 2], [0, 1], 2),
    ] {
        for (form, per_channel) in pairs(DENSE_ROWS, [false, true]) {
            let [q, k, v, g, beta] = delta_sources(&mut rig, form, heads, times, per_channel);
            let state = rig.source(Form::Dense, DType::F32, [heads[0], heads[0], heads[2], times[1]]);
            rig.want(Op::GatedDeltaNet { snapshots }, &[q, k, v, g, beta, state]);
        }
    }
    rig.check();
}
