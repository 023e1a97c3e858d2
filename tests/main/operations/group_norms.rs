//! Norms that are not those of a row's deviation: by length, and of groups of channels.

use crate::numbers::pairs;
use crate::rig::{FORMS, Form, Rig};
use wgfuse::graph::{DType, LeafKind, Op};

const F32: DType = DType::F32;

#[test]
fn by_hand() {
    let mut rig = Rig::default();
    let a = rig.given(LeafKind::Input, F32, [2, 2, 1, 1], &[3.0, -4.0, 0.3, 0.4]);
    rig.want(Op::L2Norm { eps: 1.0 }, &[a]);
    let b = rig.given(LeafKind::Input, F32, [1, 1, 5, 1], &[1.0, 3.0, 5.0, 5.0, 8.0]);
    rig.want(Op::GroupNorm { groups: 3, eps: 3.0 }, &[b]);
    let expected = rig.expected();
    let near = |at: usize, by_hand: &[f64]| {
        assert!(expected[at].1.all.iter().zip(by_hand).all(|(a, b)| (a - b).abs() < 1e-7), "{:?}", expected[at].1);
    };
    near(0, &[0.6, -0.8, 0.3, 0.4]);
    // Two channels each but for the last group: means 2, 5 and 8, variances 1, 0 and 0.
    near(1, &[-0.5, 0.5, 0.0, 0.0, 0.0]);
    rig.check();
}

#[test]
fn rows_are_scaled_to_length_one() {
    let mut rig = Rig::default();
    for (form, eps) in pairs(FORMS, [0.0, 1e-6, 0.1, 10.0]) {
        for ne in [[64, 5, 4, 3], [1, 3, 2, 1], [300, 2, 1, 2], [1025, 3, 1, 1]] {
            let a = rig.source(form, F32, ne);
            rig.want(Op::L2Norm { eps }, &[a]);
        }
    }
    let zeros = rig.given(LeafKind::Input, F32, [5, 1, 1, 1], &[0.0; 5]);
    rig.want(Op::L2Norm { eps: 1e-6 }, &[zeros]);
    let none = rig.input([0, 5, 1, 1]);
    rig.want(Op::L2Norm { eps: 1e-6 }, &[none]);
    let long = rig.input([100_003, 1, 1, 1]);
    rig.want(Op::L2Norm { eps: 1e-6 }, &[long]);
    let many = rig.input([2, 70_001, 1, 1]);
    rig.want(Op::L2Norm { eps: 1e-6 }, &[many]);
    rig.check();
}

#[test]
fn groups_of_channels() {
    let mut rig = Rig::default();
    for (form, eps) in pairs(FORMS, [1e-6, 0.5]) {
        for (ne, groups) in [
            ([9, 7, 12, 1], 4),
            ([5, 3, 7, 2], 3),
            ([5, 3, 7, 2], 5),
            ([4, 1, 3, 2], 9),
            ([16, 16, 32, 1], 32),
            ([3, 2, 6, 3], 1),
        ] {
            let a = rig.source(form, F32, ne);
            rig.want(Op::GroupNorm { groups, eps }, &[a]);
        }
    }
    let none = rig.input([4, 4, 0, 1]);
    rig.want(Op::GroupNorm { groups: 2, eps: 1e-6 }, &[none]);
    let many = rig.source(Form::Padded, F32, [3, 1, 70_001, 1]);
    rig.want(Op::GroupNorm { groups: 70_001, eps: 0.1 }, &[many]);
    let large = rig.input([64, 64, 40, 1]);
    let large = rig.map(large, |x| 3.0 + x);
    rig.want(Op::GroupNorm { groups: 2, eps: 1e-6 }, &[large]);
    rig.check();
}
