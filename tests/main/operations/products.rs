//! Matrix products.

use crate::devices::unfused;
use crate::numbers::pairs;
use crate::rig::{FLOATS, Form, KINDS, Rig};
use wgfuse::graph::{DType, LeafKind, Op, TensorId};

const F32: DType = DType::F32;

#[test]
fn matrices_are_shared_over_the_outer_dimensions() {
    let shapes = [
        ([16, 8, 1, 1], [16, 1, 1, 1]),
        ([37, 5, 1, 1], [37, 3, 1, 1]),
        ([19, 6, 2, 1], [19, 4, 6, 1]),
        ([8, 7, 2, 3], [8, 2, 4, 6]),
        ([1, 1, 1, 1], [1, 9, 2, 2]),
        ([256, 129, 1, 1], [256, 65, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([3, 5, 1, 1], [3, 2, 2, 3]),
        ([64, 33, 2, 1], [64, 4, 6, 2]),
        ([70, 7, 1, 2], [70, 8, 1, 2]),
        ([300, 6, 1, 1], [300, 9, 2, 1]),
        ([33, 31, 2, 1], [33, 40, 4, 1]),
        ([130, 70, 1, 1], [130, 65, 1, 1]),
        ([17, 200, 3, 2], [17, 100, 3, 4]),
        ([4100, 9, 1, 1], [4100, 1, 1, 1]),
        ([2500, 40, 1, 1], [2500, 37, 1, 1]),
        // Sums over nothing are zero.
        ([0, 3, 1, 1], [0, 2, 1, 1]),
        ([0, 5, 1, 1], [0, 1, 1, 1]),
        ([0, 5, 1, 1], [0, 9, 1, 1]),
    ];
    let forms = [
        (Form::Dense, Form::Dense),
        (Form::Dense, Form::Padded),
        (Form::Padded, Form::Dense),
        (Form::Padded, Form::Transposed),
        (Form::Swapped, Form::Transposed),
        (Form::Swapped, Form::Swapped),
        (Form::Padded, Form::Turned),
    ];
    for (at, (a_form, b_form)) in forms.into_iter().enumerate() {
        let mut rig = Rig::default();
        for ((a_ne, b_ne), dtype) in pairs(shapes, FLOATS) {
            let a = rig.source_of(KINDS[(at + rig.graph.tensors().len()) % 3], a_form, dtype, a_ne);
            let b = rig.source(b_form, F32, b_ne);
            rig.want(Op::MUL_MAT, &[a, b]);
        }
        rig.check();
    }
}

#[test]
fn matrices_are_picked_by_id() {
    let mut rig = Rig::default();
    for (width, height, experts, used, tokens) in [
        (13, 6, 5, 4, 7),
        (5, 3, 2, 1, 1),
        (64, 33, 4, 2, 1),
        (40, 70, 8, 3, 7),
        (33, 35, 3, 2, 40),
        (64, 40, 2, 2, 600),
    ] {
        for (dtype, form) in FLOATS.into_iter().zip([Form::Dense, Form::Padded, Form::Swapped]) {
            for columns in (1..=used).filter(|columns| used % columns == 0) {
                let a = rig.source(Form::Padded, dtype, [width, height, experts, 1]);
                let b = rig.source(form, F32, [width, columns, tokens, 1]);
                let all: Vec<f64> = (0..(used + 2) * tokens).map(|i| ((i * i + i / 3) % experts) as f64).collect();
                let wide = rig.given(LeafKind::Input, DType::I32, [used + 2, tokens, 1, 1], &all);
                // The first few of each sorted row, as expert routing takes them.
                let nb = rig.graph.tensor(wide).nb();
                let ids = rig.op(Op::View { ne: [used, tokens, 1, 1], nb, offset: 0 }, &[wide]);
                rig.want(Op::MUL_MAT_ID, &[a, b, ids]);
            }
        }
    }
    rig.check();
}

#[test]
fn large_results_do_not_depend_on_how_work_is_shared() {
    // Each row alone is too little work for a second thread, all rows together are not.
    let mut rig = Rig::default();
    let a = rig.leaf(LeafKind::Weight, DType::F16, [300, 70, 1, 1]);
    let b = rig.input([300, 90, 1, 1]);
    rig.want(Op::MUL_MAT, &[a, b]);
    rig.want(Op::RmsNorm { eps: 1e-6 }, &[b]);
    let parts: Vec<TensorId> = (0..90).map(|row| rig.view(b, [300, 1, 1, 1], 1200 * row)).collect();
    for part in parts {
        rig.want(Op::MUL_MAT, &[a, part]);
    }
    rig.check();
    let found = rig.run(&crate::devices::cpu(), unfused()).unwrap();
    let alone: Vec<f64> = found[2..].iter().flat_map(|part| part.all.clone()).collect();
    assert_eq!(found[0].all, alone);
}
