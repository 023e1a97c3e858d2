//! Copies with parts replaced, constants and numbers made from positions.

use super::super::{apart, f16, f32, i32, i64, of, sparse};
use super::{BF16, Case, F16, F32, I32, fresh, shared};
use wgfuse::graph::{BlockFormat, DType, Op, Triangle, Window};

const WINDOW: Window = Window { nb: [32, 96, 384], offset: 36 };

pub fn cases() -> Vec<Case> {
    let x = f32([8, 3, 4, 6]);
    let whole = (0, 0, [4, 32, 96, 384]);
    let q8 = DType::Block(BlockFormat::Q8_0);
    let mut cases = vec![
        fresh(Op::Repeat { ne: [16, 3, 8, 6] }, 1, &[sparse(i32([8, 3, 4, 6]))], I32, [16, 3, 8, 6]),
        fresh(Op::Dup, 1, &[sparse(i64([8, 3, 4, 6]))], DType::I64, [8, 3, 4, 6]),
        fresh(Op::Dup, 1, &[of(q8, [64, 3, 4, 6])], q8, [64, 3, 4, 6]),
        fresh(Op::Fill { value: 2.0, in_place: false }, 1, &[sparse(of(BF16, [8, 3, 4, 6]))], BF16, [8, 3, 4, 6]),
        shared(
            Op::Fill { value: 2.0, in_place: true },
            &[apart(f16([8, 3, 1, 1]))],
            F16,
            [8, 3, 1, 1],
            (0, 0, [2, 18, 54, 54]),
        ),
        fresh(Op::Arange { start: -1.0, stop: 2.0, step: 0.75 }, 0, &[], F32, [4, 1, 1, 1]),
        // The quotient is rounded before it is rounded up.
        fresh(Op::Arange { start: 0.0, stop: 0.3, step: 0.1 }, 0, &[], F32, [3, 1, 1, 1]),
        fresh(Op::TimestepEmbedding { dim: 7, max_period: 100 }, 1, &[sparse(f32([5, 1, 1, 1]))], F32, [7, 5, 1, 1]),
        fresh(Op::TimestepEmbedding { dim: 0, max_period: 1 }, 1, &[f32([5, 1, 1, 1])], F32, [0, 5, 1, 1]),
        fresh(Op::Diag, 1, &[sparse(f32([8, 1, 4, 6]))], F32, [8, 8, 4, 6]),
    ];
    for part in Triangle::ALL {
        cases.push(fresh(Op::Tri { part }, 1, &[sparse(f32([3, 3, 4, 6]))], F32, [3, 3, 4, 6]));
    }
    for op in [|in_place| Op::Acc { window: WINDOW, in_place }, |in_place| Op::Set { window: WINDOW, in_place }] {
        let b = sparse(f32([7, 2, 3, 5]));
        cases.push(fresh(op(false), 2, &[x, b], F32, [8, 3, 4, 6]));
        cases.push(shared(op(true), &[x, b], F32, [8, 3, 4, 6], whole));
    }
    // A window without elements may start at the end.
    let end = Op::Acc { window: Window { offset: 2304, ..WINDOW }, in_place: false };
    cases.push(fresh(end, 2, &[x, f32([0, 2, 3, 5])], F32, [8, 3, 4, 6]));
    let set = Op::Set { window: Window { nb: [4, 4, 4], offset: 4 }, in_place: false };
    cases.push(fresh(set, 2, &[i32([8, 3, 1, 1]), i32([23, 1, 1, 1])], I32, [8, 3, 1, 1]));
    for op in [|in_place| Op::DiagMaskInf { n_past: 3, in_place }, |in_place| Op::DiagMaskZero { n_past: 3, in_place }]
    {
        cases.push(fresh(op(false), 1, &[sparse(x)], F32, [8, 3, 4, 6]));
        cases.push(shared(op(true), &[x], F32, [8, 3, 4, 6], whole));
    }
    cases
}

pub fn words() -> Vec<(Op, Vec<u32>)> {
    let bits = f32::to_bits;
    vec![
        (Op::Acc { window: WINDOW, in_place: false }, vec![32, 96, 384, 36]),
        (Op::Set { window: WINDOW, in_place: true }, vec![32, 96, 384, 36, 1]),
        (Op::Fill { value: f32::NEG_INFINITY, in_place: true }, vec![bits(f32::NEG_INFINITY)]),
        (Op::Arange { start: 1.0, stop: 3.0, step: 0.5 }, vec![bits(1.0), bits(3.0), bits(0.5)]),
        (Op::TimestepEmbedding { dim: 320, max_period: 10_000 }, vec![320, 10_000]),
        (Op::Tri { part: Triangle::UpperDiag }, vec![0]),
        (Op::Tri { part: Triangle::Upper }, vec![1]),
        (Op::Tri { part: Triangle::LowerDiag }, vec![2]),
        (Op::Tri { part: Triangle::Lower }, vec![3]),
        (Op::DiagMaskInf { n_past: 5, in_place: true }, vec![5]),
        (Op::DiagMaskZero { n_past: 5, in_place: false }, vec![5]),
    ]
}
