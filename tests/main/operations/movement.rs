//! Operations that move elements and change nothing but their type.

use crate::numbers::pairs;
use crate::rig::{DENSE_ROWS, FLOATS, FORMS, KINDS, PLAIN, Rig};
use wgfuse::graph::{DType, LeafKind, Op};

const CACHE: LeafKind = LeafKind::Cache;
const INPUT: LeafKind = LeafKind::Input;

#[test]
fn rows_are_read() {
    let mut rig = Rig::default();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
        for form in DENSE_ROWS {
            for (ne, count) in [([5, 4, 3, 2], 6), ([7, 5, 2, 3], 4)] {
                let a = rig.source(form, dtype, ne);
                let picks: Vec<f64> = (0..count * 6).map(|i| (i * 7 % ne[1]) as f64).collect();
                let ids = rig.given(INPUT, DType::I32, [count, ne[2], ne[3], 1], &picks);
                rig.want(Op::GetRows, &[a, ids]);
            }
        }
    }
    rig.check();
}

#[test]
fn rows_are_written_and_others_left() {
    let mut rig = Rig::default();
    for (dtype, id_type) in pairs(FLOATS, [DType::I32, DType::I64]) {
        for (index, form) in DENSE_ROWS.into_iter().enumerate() {
            // One list of rows for each index in dimension 2, shared over dimension 3; or shared in part over both.
            let few: &[f64] = &[5.0, 0.0, 2.0, 7.0, 1.0, 6.0];
            let many: &[f64] = &[5.0, 0.0, 2.0, 5.0, 1.0, 7.0, 3.0, 2.0, 1.0, 6.0, 3.0, 4.0];
            for (ne, outer, picks) in [([4, 3, 2, 2], [2, 1], few), ([7, 3, 2, 4], [2, 2], many)] {
                let values = rig.source(form, DType::F32, ne);
                let ids = rig.given(INPUT, id_type, [3, outer[0], outer[1], 1], picks);
                for to in [form, DENSE_ROWS[(index + 1) % 4]] {
                    let part = rig.source_of(CACHE, to, dtype, [ne[0], 8, ne[2], ne[3]]);
                    let set = rig.want(Op::SetRows, &[values, ids, part]);
                    rig.written(set, rig.graph.root(part));
                }
            }
        }
    }
    rig.check();
}

#[test]
fn copies_between_types_and_strides() {
    let mut rig = Rig::default();
    let pairs = pairs(FLOATS, FLOATS);
    let integers = [(DType::I32, DType::I64), (DType::I32, DType::I32), (DType::I64, DType::I64)];
    for (index, (from, to)) in pairs.chain(integers).enumerate() {
        for (at, form) in FORMS.into_iter().enumerate() {
            for ne in [[6, 4, 3, 2], [8, 3, 2, 3], [144, 1, 1, 1]] {
                let a = rig.source(form, from, [6, 4, 3, 2]);
                let part = rig.source_of(CACHE, FORMS[(at + index) % 5], to, ne);
                let copied = rig.want(Op::Cpy, &[a, part]);
                rig.written(copied, rig.graph.root(part));
            }
        }
    }
    let a = rig.given(INPUT, DType::I32, [3, 1, 1, 1], &[-2_147_483_648.0, 2_147_483_647.0, 0.0]);
    let cache = rig.leaf(CACHE, DType::I64, [3, 1, 1, 1]);
    rig.want(Op::Cpy, &[a, cache]);
    rig.check();
}

#[test]
fn contiguous_copies() {
    let mut rig = Rig::default();
    for (dtype, form) in pairs(PLAIN, FORMS) {
        for (from, to) in [([4, 3, 2, 2], [2, 24, 1, 1]), ([5, 4, 3, 2], [10, 12, 1, 1])] {
            let a = rig.source_of(CACHE, form, dtype, from);
            rig.want(Op::Cont { ne: to }, &[a]);
            rig.want(Op::Dup, &[a]);
        }
    }
    rig.check();
}

#[test]
fn wide_integers_keep_all_bits() {
    let values = [4294967297.0, -4294967297.0, 9007199254740991.0, -1.0];
    let mut rig = Rig::default();
    let [a, b] = [(); 2].map(|()| rig.given(INPUT, DType::I64, [2, 2, 1, 1], &values));
    let turned = rig.op(Op::Transpose, &[a]);
    rig.want(Op::Cont { ne: [4, 1, 1, 1] }, &[turned]);
    rig.want(Op::Concat { dim: 1 }, &[a, b]);
    rig.check();
}

#[test]
fn concatenation_along_every_dimension() {
    let mut rig = Rig::default();
    for (dtype, dim) in pairs(PLAIN, [0u8, 1, 2, 3]) {
        for (at, form) in FORMS.into_iter().enumerate() {
            for (whole, first, second) in [
                ([4, 3, 2, 2], 4, 1),
                ([4, 3, 2, 2], 1, 4),
                ([4, 3, 2, 2], 2, 5),
                ([5, 4, 3, 2], 0, 3),
                ([5, 4, 3, 2], 3, 0),
            ] {
                let [mut a, mut b] = [whole; 2];
                (a[usize::from(dim)], b[usize::from(dim)]) = (first, second);
                let sources = [rig.source(form, dtype, a), rig.source(FORMS[(at + usize::from(dim)) % 5], dtype, b)];
                rig.want(Op::Concat { dim }, &sources);
            }
        }
    }
    let a = rig.given(INPUT, DType::I32, [2, 1, 1, 1], &[1.0, 2.0]);
    rig.want(Op::Concat { dim: 0 }, &[a, a]);
    rig.check();
}

#[test]
fn repetition() {
    let mut rig = Rig::default();
    for (dtype, form) in pairs([DType::F32, DType::F16, DType::BF16, DType::I32], FORMS) {
        for ne in [[6, 2, 4, 4], [6, 2, 5, 4]] {
            let a = rig.source(form, dtype, [3, 2, 1, 2]);
            rig.want(Op::Repeat { ne }, &[a]);
        }
    }
    rig.check();
}

#[test]
fn weights_may_lie_beside_what_is_written() {
    for kind in KINDS {
        let mut rig = Rig::in_one_buffer();
        let a = rig.leaf(kind, DType::F16, [40, 1, 1, 1]);
        let cache = rig.leaf(CACHE, DType::F32, [40, 1, 1, 1]);
        rig.want(Op::Cpy, &[a, cache]);
        rig.check();
    }
}
