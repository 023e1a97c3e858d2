//! The CPU device's operations against values computed independently, in f64, from their definitions.

use crate::rig::{ALL_FORMS, DENSE_ROWS, FLOATS, Form, Nd, Rig, assert_close, encode, indices};
use std::f64::consts::PI;
use wgfuse::device::{Device, DeviceError};
use wgfuse::graph::{
    BufferClass, DType, FlashAttn, Glu, LeafKind, Op, OpKind, Precision, Rope, RopeMode, SortOrder, TensorId, Unary,
};

/// What a result of this type may be off by, relative to its largest value.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 2e-6,
        DType::F16 => 6e-4,
        DType::BF16 => 5e-3,
        DType::I32 | DType::I64 | DType::Block(_) => 0.0,
    }
}

/// Runs one operation and compares it with `expected`, which gets the sources' values.
#[track_caller]
fn check(mut rig: Rig, op: Op, sources: &[TensorId], expected: impl FnOnce(&[Nd]) -> Nd) {
    let out = rig.graph.push(op, &sources.iter().copied().map(Some).collect::<Vec<_>>()).unwrap();
    let dtype = rig.graph.tensor(out).dtype();
    let ran = rig.run(&[out]);
    let sources: Vec<Nd> = sources.iter().map(|&id| ran.nd(id)).collect();
    assert_close(&ran.nd(out), &expected(&sources), tolerance(dtype));
}

#[test]
fn arithmetic_broadcasts_and_keeps_the_first_type() {
    type Case = (Op, fn(f64, f64) -> f64);
    let ops: [Case; 4] =
        [(Op::Add, |a, b| a + b), (Op::Sub, |a, b| a - b), (Op::Mul, |a, b| a * b), (Op::Div, |a, b| a / b)];
    let ne = [6, 4, 3, 2];
    for (op, f) in ops {
        for small in [ne, [6, 1, 1, 1], [1, 4, 3, 1], [2, 2, 1, 2], [1, 1, 1, 1], [3, 1, 3, 1]] {
            for form in ALL_FORMS {
                let mut rig = Rig::default();
                let (a, b) = (rig.source(form, DType::F32, ne), rig.source(Form::Padded, DType::F32, small));
                check(rig, op, &[a, b], |s| Nd::from_fn(ne, |at| f(s[0].at(at), s[1].wrapped(at))));
            }
        }
    }
    for first in FLOATS {
        for second in FLOATS {
            let mut rig = Rig::default();
            let (a, b) = (rig.source(Form::Swapped, first, ne), rig.source(Form::Transposed, second, ne));
            check(rig, Op::Add, &[a, b], |s| Nd::from_fn(ne, |at| s[0].at(at) + s[1].at(at)));
        }
    }
}

#[test]
fn functions_of_one_element() {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    type Case<'a> = (Op, &'a dyn Fn(f64) -> f64);
    let cases: [Case; 7] = [
        (Op::Sqr, &|x| x * x),
        (Op::Sin, &f64::sin),
        (Op::Unary(Unary::Tanh), &f64::tanh),
        (Op::Unary(Unary::Sigmoid), &sigmoid),
        (Op::Unary(Unary::Gelu), &gelu),
        (Op::Unary(Unary::Silu), &|x| x * sigmoid(x)),
        (Op::Unary(Unary::Softplus), &|x| if x > 20.0 { x } else { x.exp().ln_1p() }),
    ];
    for (op, f) in cases {
        for dtype in FLOATS {
            for form in ALL_FORMS {
                let mut rig = Rig::default();
                let a = rig.source(form, dtype, [5, 3, 2, 2]);
                check(rig, op, &[a], |s| Nd::from_fn([5, 3, 2, 2], |at| f(s[0].at(at))));
            }
        }
        let mut rig = Rig::default();
        let a = rig.input(DType::F32, [6, 1, 1, 1], &[-88.0, -20.0, 0.0, 19.0, 21.0, 88.0]);
        check(rig, op, &[a], |s| Nd::from_fn([6, 1, 1, 1], |at| f(s[0].at(at))));
    }
}

#[test]
fn scale_and_clamp() {
    for form in ALL_FORMS {
        let mut rig = Rig::default();
        let a = rig.source(form, DType::F32, [5, 3, 2, 1]);
        let op = Op::Scale { scale: -2.5, bias: 0.25, in_place: false };
        check(rig, op, &[a], |s| Nd::from_fn([5, 3, 2, 1], |at| s[0].at(at) * -2.5 + 0.25));
        let mut rig = Rig::default();
        let a = rig.source(form, DType::F32, [5, 3, 2, 1]);
        let op = Op::Clamp { min: -0.25, max: 0.5 };
        check(rig, op, &[a], |s| Nd::from_fn([5, 3, 2, 1], |at| s[0].at(at).clamp(-0.25, 0.5)));
    }
    let mut rig = Rig::default();
    let a = rig.input(DType::F32, [3, 1, 1, 1], &[f64::NAN, f64::NEG_INFINITY, f64::INFINITY]);
    check(rig, Op::Clamp { min: 1.0, max: 2.0 }, &[a], |_| Nd { ne: [3, 1, 1, 1], all: vec![f64::NAN, 1.0, 2.0] });
}

#[test]
fn scale_in_place_changes_the_viewed_part_of_a_cache_alone() {
    let mut rig = Rig::default();
    let cache = rig.leaf(LeafKind::Cache, DType::F32, [4, 3, 1, 1], &(0..12).map(f64::from).collect::<Vec<_>>());
    let part = rig.graph.view(cache, [2, 3, 1, 1], [4, 16, 48, 48], 4).unwrap();
    let scaled = rig.graph.scale_in_place(part, 10.0, 1.0).unwrap();
    let ran = rig.run(&[scaled]);
    assert_eq!(ran.nd(cache).all, [0.0, 11.0, 21.0, 3.0, 4.0, 51.0, 61.0, 7.0, 8.0, 91.0, 101.0, 11.0]);
}

#[test]
fn gated_units_of_two_tensors_and_of_halves() {
    let act = |glu: Glu, x: f64| match glu {
        Glu::Geglu => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
        Glu::Swiglu => x / (1.0 + (-x).exp()),
    };
    let ne = [6, 4, 2, 2];
    for glu in [Glu::Geglu, Glu::Swiglu] {
        for dtype in FLOATS {
            for form in DENSE_ROWS {
                for swapped in [false, true] {
                    let op = Op::Glu { glu, swapped };
                    let mut rig = Rig::default();
                    let (a, b) = (rig.source(form, dtype, ne), rig.source(Form::Padded, dtype, ne));
                    check(rig, op, &[a, b], |s| {
                        let (gate, value) = if swapped { (&s[1], &s[0]) } else { (&s[0], &s[1]) };
                        Nd::from_fn(ne, |at| act(glu, gate.at(at)) * value.at(at))
                    });
                    let mut rig = Rig::default();
                    let a = rig.source(form, dtype, ne);
                    check(rig, op, &[a], |s| {
                        let (gate, value) = if swapped { (3, 0) } else { (0, 3) };
                        let shift = |[i0, i1, i2, i3]: [usize; 4], by| s[0].at([i0 + by, i1, i2, i3]);
                        Nd::from_fn([3, 4, 2, 2], |at| act(glu, shift(at, gate)) * shift(at, value))
                    });
                }
            }
        }
    }
}

#[test]
fn norms_divide_by_the_deviation() {
    let ne = [37, 3, 2, 2];
    for form in DENSE_ROWS {
        for eps in [0.0, 1e-5, 0.5] {
            let row = |s: &Nd, [_, i1, i2, i3]: [usize; 4]| (0..37).map(|i| s.at([i, i1, i2, i3])).collect::<Vec<_>>();
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            let mut rig = Rig::default();
            let a = rig.source(form, DType::F32, ne);
            check(rig, Op::RmsNorm { eps }, &[a], |s| {
                Nd::from_fn(ne, |at| {
                    let squares: Vec<f64> = row(&s[0], at).iter().map(|x| x * x).collect();
                    s[0].at(at) / (mean(&squares) + f64::from(eps)).sqrt()
                })
            });
            let mut rig = Rig::default();
            let a = rig.source(form, DType::F32, ne);
            check(rig, Op::Norm { eps }, &[a], |s| {
                Nd::from_fn(ne, |at| {
                    let centre = mean(&row(&s[0], at));
                    let squares: Vec<f64> = row(&s[0], at).iter().map(|x| (x - centre) * (x - centre)).collect();
                    (s[0].at(at) - centre) / (mean(&squares) + f64::from(eps)).sqrt()
                })
            });
        }
    }
}

fn product(a: &Nd, plane: [usize; 2], row: usize, b: &Nd, [i1, i2, i3]: [usize; 3]) -> f64 {
    (0..a.ne[0]).map(|k| a.at([k, row, plane[0], plane[1]]) * b.at([k, i1, i2, i3])).sum()
}

#[test]
fn matrix_products_share_matrices_over_the_outer_dimensions() {
    for (a_ne, b_ne) in [
        ([16, 8, 1, 1], [16, 1, 1, 1]),
        ([37, 5, 1, 1], [37, 3, 1, 1]),
        ([19, 6, 2, 1], [19, 4, 6, 1]),
        ([8, 7, 2, 3], [8, 2, 4, 6]),
        ([1, 1, 1, 1], [1, 9, 2, 2]),
        ([0, 3, 1, 1], [0, 2, 1, 1]),
        ([256, 129, 1, 1], [256, 65, 1, 1]),
    ] {
        for dtype in FLOATS {
            for (a_form, b_form) in
                [(Form::Dense, Form::Dense), (Form::Padded, Form::Transposed), (Form::Swapped, Form::Swapped)]
            {
                let mut rig = Rig::default();
                let (a, b) = (rig.source(a_form, dtype, a_ne), rig.source(b_form, DType::F32, b_ne));
                check(rig, Op::MulMat, &[a, b], |s| {
                    Nd::from_fn([a_ne[1], b_ne[1], b_ne[2], b_ne[3]], |[row, i1, i2, i3]| {
                        let plane = [i2 / (b_ne[2] / a_ne[2]), i3 / (b_ne[3] / a_ne[3])];
                        product(&s[0], plane, row, &s[1], [i1, i2, i3])
                    })
                });
            }
        }
    }
}

#[test]
fn matrix_products_by_id() {
    let (width, height, experts, used, tokens) = (13, 6, 5, 4, 7);
    for dtype in FLOATS {
        for columns in [1, 2, 4] {
            let mut rig = Rig::default();
            let a = rig.source(Form::Padded, dtype, [width, height, experts, 1]);
            let b = rig.source(Form::Swapped, DType::F32, [width, columns, tokens, 1]);
            let all: Vec<f64> = (0..(used + 2) * tokens).map(|i| (i * i % experts) as f64).collect();
            let wide = rig.input(DType::I32, [used + 2, tokens, 1, 1], &all);
            // The first few of each sorted row, as expert routing takes them.
            let nb = rig.graph.tensor(wide).nb();
            let ids = rig.graph.view(wide, [used, tokens, 1, 1], nb, 0).unwrap();
            check(rig, Op::MulMatId, &[a, b, ids], |s| {
                Nd::from_fn([height, used, tokens, 1], |[row, slot, token, _]| {
                    let expert = s[2].at([slot, token, 0, 0]) as usize;
                    product(&s[0], [expert, 0], row, &s[1], [slot % columns, token, 0])
                })
            });
        }
    }
}

#[test]
fn get_rows_of_every_type() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
        for form in DENSE_ROWS {
            let mut rig = Rig::default();
            let a = if dtype == DType::I32 {
                let all: Vec<f64> = (0..120).map(|i| f64::from(i * 1_000_003 % 2_000_000_011)).collect();
                rig.input(dtype, [5, 4, 3, 2], &all)
            } else {
                rig.source(form, dtype, [5, 4, 3, 2])
            };
            let ids: Vec<f64> = (0..36).map(|i| f64::from(i * 7 % 4)).collect();
            let ids = rig.input(DType::I32, [6, 3, 2, 1], &ids);
            check(rig, Op::GetRows, &[a, ids], |s| {
                Nd::from_fn([5, 6, 3, 2], |[i0, i1, i2, i3]| s[0].at([i0, s[1].at([i1, i2, i3, 0]) as usize, i2, i3]))
            });
        }
    }
}

#[test]
fn set_rows_converts_and_leaves_other_rows() {
    for dtype in FLOATS {
        for id_type in [DType::I32, DType::I64] {
            for form in DENSE_ROWS {
                let mut rig = Rig::default();
                let cache = rig.leaf(LeafKind::Cache, dtype, [6, 8, 2, 2], &[7.0; 192]);
                let nb = rig.graph.tensor(cache).nb();
                let part = rig.graph.view(cache, [4, 8, 2, 2], nb, nb[0]).unwrap();
                let values = rig.source(form, DType::F32, [4, 3, 2, 2]);
                // One list of rows for each index in dimension 2, shared over dimension 3.
                let ids = rig.input(id_type, [3, 2, 1, 1], &[5.0, 0.0, 2.0, 7.0, 1.0, 6.0]);
                let out = rig.graph.set_rows(values, ids, part).unwrap();
                let ran = rig.run(&[out]);
                let (values, ids) = (ran.nd(values), ran.nd(ids));
                let mut expected = Nd::from_fn([6, 8, 2, 2], |_| 7.0);
                for [i0, i1, i2, i3] in indices(values.ne) {
                    let row = ids.at([i1, i2, 0, 0]) as usize;
                    expected.all[((i3 * 2 + i2) * 8 + row) * 6 + i0 + 1] = values.at([i0, i1, i2, i3]);
                }
                assert_close(&ran.nd(cache), &expected, tolerance(dtype) / 7.0);
            }
        }
    }
}

#[test]
fn of_rows_set_twice_the_last_stays() {
    let mut rig = Rig::default();
    let cache = rig.leaf(LeafKind::Cache, DType::F32, [1, 3, 1, 1], &[]);
    let values = rig.input(DType::F32, [1, 3, 1, 1], &[1.0, 2.0, 3.0]);
    let ids = rig.input(DType::I32, [3, 1, 1, 1], &[1.0, 2.0, 1.0]);
    let out = rig.graph.set_rows(values, ids, cache).unwrap();
    let ran = rig.run(&[out]);
    assert_eq!(ran.nd(cache).all, [0.0, 3.0, 2.0]);
}

#[test]
fn indices_outside_are_errors() {
    for bad in [-1.0, 4.0, 2e9] {
        for op in [OpKind::GetRows, OpKind::SetRows, OpKind::MulMatId] {
            let mut rig = Rig::default();
            let a = rig.random(LeafKind::Cache, DType::F32, [3, 4, 4, 1]);
            let out = if op == OpKind::MulMatId {
                let ids = rig.input(DType::I32, [2, 1, 1, 1], &[0.0, bad]);
                let b = rig.random(LeafKind::Input, DType::F32, [3, 1, 1, 1]);
                rig.graph.mul_mat_id(a, b, ids)
            } else {
                let ids = rig.input(DType::I32, [2, 4, 1, 1], &[0.0, 0.0, 0.0, bad, 0.0, 0.0, 0.0, 0.0]);
                let b = rig.random(LeafKind::Input, DType::F32, [3, 2, 4, 1]);
                if op == OpKind::GetRows { rig.graph.get_rows(a, ids) } else { rig.graph.set_rows(b, ids, a) }
            };
            let error = rig.try_run(&[out.unwrap()], |_| {}).err();
            assert_eq!(error, Some(DeviceError::Index { op, index: bad as i64, count: 4 }));
        }
    }
}

#[test]
fn copies_between_types_and_strides() {
    for from in FLOATS {
        for to in FLOATS {
            for form in ALL_FORMS {
                let mut rig = Rig::default();
                let a = rig.source(form, from, [4, 3, 2, 2]);
                let cache = rig.leaf(LeafKind::Cache, to, [8, 9, 1, 1], &[5.0; 72]);
                let size = to.block_bytes();
                // Rows of six with gaps, another shape than the source's.
                let part =
                    rig.graph.view(cache, [6, 8, 1, 1], [size, size * 8, size * 72, size * 72], size * 8).unwrap();
                let out = rig.graph.cpy(a, part).unwrap();
                let ran = rig.run(&[out]);
                let source = ran.nd(a);
                let expected =
                    Nd::from_fn(
                        [8, 9, 1, 1],
                        |[i0, i1, ..]| {
                            if i0 < 6 && i1 > 0 { source.all[(i1 - 1) * 6 + i0] } else { 5.0 }
                        },
                    );
                assert_close(&ran.nd(cache), &expected, tolerance(to) / 5.0);
            }
        }
    }
    for (from, to) in [(DType::I32, DType::I64), (DType::I32, DType::I32), (DType::I64, DType::I64)] {
        let mut rig = Rig::default();
        let a = rig.input(from, [3, 2, 1, 1], &[1.0, -2.0, 3.0, -2_147_483_648.0, 2_147_483_647.0, 0.0]);
        let a = rig.graph.transpose(a).unwrap();
        let cache = rig.leaf(LeafKind::Cache, to, [6, 1, 1, 1], &[]);
        let out = rig.graph.cpy(a, cache).unwrap();
        let ran = rig.run(&[out]);
        assert_eq!(ran.nd(cache).all, ran.nd(a).all);
    }
    let mut rig = Rig::default();
    let a = rig.input(DType::I64, [1; 4], &[1.0]);
    let cache = rig.leaf(LeafKind::Cache, DType::I32, [1; 4], &[]);
    let out = rig.graph.cpy(a, cache).unwrap();
    assert!(matches!(rig.try_run(&[out], |_| {}), Err(DeviceError::Unsupported { op: OpKind::Cpy, .. })));
}

#[test]
fn contiguous_copies() {
    for dtype in FLOATS {
        for form in ALL_FORMS {
            let mut rig = Rig::default();
            let a = rig.source(form, dtype, [4, 3, 2, 2]);
            check(rig, Op::Cont { ne: [2, 24, 1, 1] }, &[a], |s| Nd { ne: [2, 24, 1, 1], all: s[0].all.clone() });
        }
    }
    let mut rig = Rig::default();
    let a = rig.input(DType::I64, [2, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
    let a = rig.graph.transpose(a).unwrap();
    check(rig, Op::Cont { ne: [2, 2, 1, 1] }, &[a], |_| Nd { ne: [2, 2, 1, 1], all: vec![1.0, 3.0, 2.0, 4.0] });
}

#[test]
fn concatenation_along_every_dimension() {
    for dim in 0..4 {
        for dtype in FLOATS {
            for form in ALL_FORMS {
                for length in [0, 1, 5] {
                    let a_ne = [4, 3, 2, 2];
                    let mut b_ne = a_ne;
                    b_ne[dim] = length;
                    let mut ne = a_ne;
                    ne[dim] += length;
                    for swapped in [false, true] {
                        let mut rig = Rig::default();
                        let (a, b) = (rig.source(form, dtype, a_ne), rig.source(Form::Transposed, dtype, b_ne));
                        let (sources, split) = if swapped { ([b, a], length) } else { ([a, b], a_ne[dim]) };
                        let out = rig.graph.concat(sources[0], sources[1], dim as u8).unwrap();
                        let ran = rig.run(&[out]);
                        let s = sources.map(|id| ran.nd(id));
                        let expected = Nd::from_fn(ne, |mut at| {
                            if at[dim] < split {
                                return s[0].at(at);
                            }
                            at[dim] -= split;
                            s[1].at(at)
                        });
                        assert_close(&ran.nd(out), &expected, 0.0);
                    }
                }
            }
        }
    }
    let mut rig = Rig::default();
    let a = rig.input(DType::I32, [2, 1, 1, 1], &[1.0, 2.0]);
    check(rig, Op::Concat { dim: 0 }, &[a, a], |_| Nd { ne: [4, 1, 1, 1], all: vec![1.0, 2.0, 1.0, 2.0] });
}

#[test]
fn repetition() {
    for dtype in FLOATS {
        for form in ALL_FORMS {
            let mut rig = Rig::default();
            let a = rig.source(form, dtype, [3, 2, 1, 2]);
            check(rig, Op::Repeat { ne: [6, 2, 4, 4] }, &[a], |s| Nd::from_fn([6, 2, 4, 4], |at| s[0].wrapped(at)));
        }
    }
}

#[test]
fn sums_of_rows() {
    for form in ALL_FORMS {
        let mut rig = Rig::default();
        let a = rig.source(form, DType::F32, [41, 3, 2, 2]);
        check(rig, Op::SumRows, &[a], |s| {
            Nd::from_fn([1, 3, 2, 2], |[_, i1, i2, i3]| (0..41).map(|i0| s[0].at([i0, i1, i2, i3])).sum())
        });
    }
    let mut rig = Rig::default();
    let a = rig.random(LeafKind::Input, DType::F32, [0, 3, 1, 1]);
    check(rig, Op::SumRows, &[a], |_| Nd { ne: [1, 3, 1, 1], all: vec![0.0; 3] });
}

#[test]
fn sorting_is_stable_and_puts_nan_above_all_numbers() {
    let row = [2.0, f64::NAN, -1.0, 2.0, f64::INFINITY, 0.0, -0.0, f64::NEG_INFINITY, f64::NAN];
    for (order, expected) in [
        (SortOrder::Ascending, [7.0, 2.0, 5.0, 6.0, 0.0, 3.0, 4.0, 1.0, 8.0]),
        (SortOrder::Descending, [1.0, 8.0, 4.0, 0.0, 3.0, 5.0, 6.0, 2.0, 7.0]),
    ] {
        let mut rig = Rig::default();
        let a = rig.input(DType::F32, [9, 1, 1, 1], &row);
        check(rig, Op::Argsort { order }, &[a], |_| Nd { ne: [9, 1, 1, 1], all: expected.to_vec() });
    }
    let mut rig = Rig::default();
    let a = rig.source(Form::Swapped, DType::F32, [50, 3, 2, 1]);
    let out = rig.graph.argsort(a, SortOrder::Descending).unwrap();
    let ran = rig.run(&[out]);
    let (a, order) = (ran.nd(a), ran.nd(out));
    for [i0, i1, i2, i3] in indices([49, 3, 2, 1]) {
        let value = |i0| a.at([order.at([i0, i1, i2, i3]) as usize, i1, i2, i3]);
        assert!(value(i0) >= value(i0 + 1));
    }
}

fn slope(max_bias: f64, head: usize, heads: usize) -> f64 {
    if max_bias == 0.0 {
        return 1.0;
    }
    let n = (0..).map(|power| 1 << power).take_while(|&n| n <= heads).last().unwrap();
    if head < n {
        2f64.powf(-max_bias / n as f64).powf((head + 1) as f64)
    } else {
        2f64.powf(-max_bias / 2.0 / n as f64).powf((2 * (head - n) + 1) as f64)
    }
}

#[test]
fn alibi_slopes_are_the_published_ones() {
    // Eight heads: 1/2, 1/4, … 1/256; twelve: those, then 2^-0.5, 2^-1.5, 2^-2.5, 2^-3.5.
    for (head, heads, expected) in [(0, 8, -1.0), (1, 8, -2.0), (7, 8, -8.0), (8, 12, -0.5), (11, 12, -3.5)] {
        assert!((slope(8.0, head, heads).log2() - expected).abs() < 1e-12);
    }
}

fn soft_max(scores: &[f64], sink: Option<f64>) -> Vec<f64> {
    let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return vec![0.0; scores.len()];
    }
    let sum: f64 = scores.iter().copied().chain(sink).map(|x| (x - max).exp()).sum();
    scores.iter().map(|x| (x - max).exp() / sum).collect()
}

#[test]
fn soft_max_with_masks_slopes_and_sinks() {
    let ne = [17, 3, 6, 2];
    for form in DENSE_ROWS {
        for mask in [None, Some((DType::F32, [17, 3, 1, 1])), Some((DType::F16, [17, 8, 3, 2]))] {
            for max_bias in [0.0, 8.0] {
                for with_sinks in [false, true] {
                    let mut rig = Rig::default();
                    let a = rig.source(form, DType::F32, ne);
                    let mask = mask.map(|(dtype, ne)| rig.source(Form::Padded, dtype, ne));
                    let sinks = with_sinks.then(|| rig.random(LeafKind::Weight, DType::F32, [6, 1, 1, 1]));
                    let out = rig.graph.soft_max(a, mask, sinks, 1.7, max_bias).unwrap();
                    let ran = rig.run(&[out]);
                    let a = ran.nd(a);
                    let mask = mask.map(|mask| ran.nd(mask));
                    let sinks = sinks.map(|sinks| ran.nd(sinks));
                    let mut expected = Vec::new();
                    for [_, i1, i2, i3] in indices([1, 3, 6, 2]) {
                        let scores: Vec<f64> = (0..17)
                            .map(|i0| {
                                let bias = mask
                                    .as_ref()
                                    .map_or(0.0, |mask| mask.at([i0, i1, i2 % mask.ne[2], i3 % mask.ne[3]]));
                                a.at([i0, i1, i2, i3]) * f64::from(1.7f32) + slope(max_bias.into(), i2, 6) * bias
                            })
                            .collect();
                        expected.extend(soft_max(&scores, sinks.as_ref().map(|sinks| sinks.all[i2])));
                    }
                    assert_close(&ran.nd(out), &Nd { ne, all: expected }, 2e-6);
                }
            }
        }
    }
    let mut rig = Rig::default();
    let a = rig.input(DType::F32, [2, 2, 1, 1], &[1.0, f64::NAN, 3.0, f64::NAN]);
    let hidden = f64::NEG_INFINITY;
    let mask = rig.input(DType::F16, [2, 2, 1, 1], &[hidden, hidden, 0.0, hidden]);
    check(rig, Op::SoftMax { scale: 1.0, max_bias: 0.0 }, &[a, mask], |_| Nd {
        ne: [2, 2, 1, 1],
        all: vec![0.0, 0.0, 1.0, 0.0],
    });
}

const PLAIN_ROPE: Rope = Rope {
    n_dims: 8,
    mode: RopeMode::Normal,
    n_ctx_orig: 64,
    freq_base: 10_000.0,
    freq_scale: 1.0,
    ext_factor: 0.0,
    attn_factor: 1.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
};

/// The angle of a pair and the factor on the result, by the formulas of the YaRN paper.
fn angle(rope: &Rope, position: f64, pair: usize, factor: f64) -> (f64, f64) {
    let (dims, base) = (f64::from(rope.n_dims), f64::from(rope.freq_base));
    let theta = position * base.powf(-2.0 * pair as f64 / dims) / factor;
    if rope.ext_factor == 0.0 {
        return (theta * f64::from(rope.freq_scale), rope.attn_factor.into());
    }
    let bound =
        |turns: f32| dims * (f64::from(rope.n_ctx_orig) / (f64::from(turns) * 2.0 * PI)).ln() / (2.0 * base.ln());
    let (low, high) = (bound(rope.beta_fast).floor().max(0.0), bound(rope.beta_slow).ceil().min(dims - 1.0));
    let ramp = 1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
    let mix = ramp * f64::from(rope.ext_factor);
    let scaled = theta * f64::from(rope.freq_scale);
    let magnitude = f64::from(rope.attn_factor) * (1.0 + 0.1 * (1.0 / f64::from(rope.freq_scale)).ln());
    (scaled * (1.0 - mix) + theta * mix, magnitude)
}

#[test]
fn rotary_embedding() {
    let yarn = Rope { freq_scale: 0.25, ext_factor: 1.0, attn_factor: 0.9, n_ctx_orig: 4096, n_dims: 16, ..PLAIN_ROPE };
    let variants = [
        PLAIN_ROPE,
        Rope { n_dims: 20, freq_base: 500.0, ..PLAIN_ROPE },
        Rope { freq_scale: 0.5, attn_factor: 1.5, ..PLAIN_ROPE },
        yarn,
        Rope { ext_factor: 0.6, freq_base: 100.0, n_ctx_orig: 200, ..yarn },
    ];
    let ne = [20, 3, 5, 2];
    for variant in variants {
        for mode in [RopeMode::Normal, RopeMode::Neox] {
            for with_factors in [false, true] {
                for (form, dtype) in
                    DENSE_ROWS.map(|form| (form, DType::F32)).into_iter().chain([(Form::Dense, DType::F16)])
                {
                    let rope = Rope { mode, ..variant };
                    let mut rig = Rig::default();
                    let a = rig.source(form, dtype, ne);
                    let positions = rig.input(DType::I32, [5, 1, 1, 1], &[0.0, 1.0, 7.0, 100.0, 4000.0]);
                    let halves: Vec<f64> = (0..10).map(|i| 1.0 + f64::from(i) / 2.0).collect();
                    let factors = with_factors.then(|| rig.input(DType::F32, [10, 1, 1, 1], &halves));
                    let out = rig.graph.rope(a, positions, factors, rope).unwrap();
                    let ran = rig.run(&[out]);
                    let (a, positions) = (ran.nd(a), ran.nd(positions));
                    let dims = rope.n_dims as usize;
                    let expected = Nd::from_fn(ne, |[i0, i1, i2, i3]| {
                        if i0 >= dims {
                            return a.at([i0, i1, i2, i3]);
                        }
                        let (pair, second, partner) = match mode {
                            RopeMode::Normal => (i0 / 2, i0 % 2 == 1, i0 ^ 1),
                            RopeMode::Neox => (i0 % (dims / 2), i0 >= dims / 2, (i0 + dims / 2) % dims),
                        };
                        let factor = if with_factors { halves[pair] } else { 1.0 };
                        let (angle, magnitude) = angle(&rope, positions.all[i2], pair, factor);
                        let angle = f64::from(angle as f32);
                        let (own, other) = (a.at([i0, i1, i2, i3]), a.at([partner, i1, i2, i3]));
                        magnitude * (own * angle.cos() + if second { other } else { -other } * angle.sin())
                    });
                    assert_close(&ran.nd(out), &expected, tolerance(dtype));
                }
            }
        }
    }
}

/// One attention call's shapes and options.
#[derive(Clone, Copy)]
struct Attention {
    d: usize,
    dv: usize,
    tokens: usize,
    cells: usize,
    heads: usize,
    heads_kv: usize,
    batch: usize,
    batch_kv: usize,
    kv: DType,
    mask: Option<[usize; 4]>,
    sinks: bool,
    max_bias: f32,
    cap: f32,
    form: Form,
}

#[track_caller]
fn check_attention(case: Attention) {
    let Attention { d, dv, tokens, cells, heads, heads_kv, batch, batch_kv, .. } = case;
    let attn = FlashAttn { scale: 0.6, max_bias: case.max_bias, logit_softcap: case.cap, precision: Precision::F32 };
    let mut rig = Rig::default();
    let q = rig.source(case.form, DType::F32, [d, tokens, heads, batch]);
    let k = rig.source(case.form, case.kv, [d, cells, heads_kv, batch_kv]);
    let v = rig.source(Form::Swapped, case.kv, [dv, cells, heads_kv, batch_kv]);
    let mask = case.mask.map(|ne| {
        let values: Vec<f64> = indices(ne)
            .map(|[cell, token, head, _]| match (token, cell) {
                // The first token of each head sees nothing, the others see the past.
                (0, _) => f64::NEG_INFINITY,
                _ if cell > token + 2 => f64::NEG_INFINITY,
                _ => -0.25 * (head + cell) as f64,
            })
            .collect();
        rig.input(DType::F16, ne, &values)
    });
    let sinks = case.sinks.then(|| rig.random(LeafKind::Weight, DType::F32, [heads, 1, 1, 1]));
    let out = rig.graph.flash_attn([q, k, v], mask, sinks, attn).unwrap();
    let ran = rig.run(&[out]);
    let [q, k, v] = [q, k, v].map(|id| ran.nd(id));
    let (mask, sinks) = (mask.map(|id| ran.nd(id)), sinks.map(|id| ran.nd(id)));
    let mut expected = Vec::new();
    for [head, token, b, _] in indices([heads, tokens, batch, 1]) {
        let (head_kv, b_kv) = (head / (heads / heads_kv), b / (batch / batch_kv));
        let scores: Vec<f64> = (0..cells)
            .map(|cell| {
                let dot: f64 = (0..d).map(|i| q.at([i, token, head, b]) * k.at([i, cell, head_kv, b_kv])).sum();
                let score = dot * f64::from(attn.scale);
                let cap = f64::from(case.cap);
                let score = if cap == 0.0 { score } else { cap * (score / cap).tanh() };
                let bias = mask.as_ref().map_or(0.0, |mask| mask.at([cell, token, head % mask.ne[2], b % mask.ne[3]]));
                score + slope(case.max_bias.into(), head, heads) * bias
            })
            .collect();
        let weights = soft_max(&scores, sinks.as_ref().map(|sinks| sinks.all[head]));
        expected.extend((0..dv).map(|i| {
            weights.iter().enumerate().map(|(cell, weight)| weight * v.at([i, cell, head_kv, b_kv])).sum::<f64>()
        }));
    }
    assert_close(&ran.nd(out), &Nd { ne: [dv, heads, tokens, batch], all: expected }, 3e-6);
}

#[test]
fn attention() {
    let plain = Attention {
        d: 24,
        dv: 24,
        tokens: 5,
        cells: 11,
        heads: 6,
        heads_kv: 6,
        batch: 1,
        batch_kv: 1,
        kv: DType::F32,
        mask: None,
        sinks: false,
        max_bias: 0.0,
        cap: 0.0,
        form: Form::Dense,
    };
    for kv in FLOATS {
        for form in DENSE_ROWS {
            let plain = Attention { kv, form, ..plain };
            let masked = Attention { mask: Some([11, 8, 1, 1]), ..plain };
            for case in [
                plain,
                masked,
                Attention { heads_kv: 2, dv: 7, ..masked },
                Attention { batch: 4, batch_kv: 2, mask: Some([11, 5, 3, 2]), ..masked },
                Attention { max_bias: 8.0, ..masked },
                Attention { cap: 0.5, ..masked },
                Attention { sinks: true, max_bias: 4.0, cap: 2.0, heads_kv: 3, ..masked },
                Attention { tokens: 1, mask: None, heads_kv: 1, ..plain },
                Attention { cells: 0, ..plain },
            ] {
                check_attention(case);
            }
        }
    }
}

#[test]
fn attention_does_not_read_what_the_mask_hides() {
    let mut rig = Rig::default();
    let q = rig.input(DType::F32, [1, 1, 1, 1], &[1.0]);
    let k = rig.input(DType::F16, [1, 3, 1, 1], &[0.5, f64::NAN, f64::INFINITY]);
    let v = rig.input(DType::F16, [1, 3, 1, 1], &[0.5, f64::NAN, f64::INFINITY]);
    let mask = rig.input(DType::F16, [3, 1, 1, 1], &[0.0, f64::NEG_INFINITY, f64::NEG_INFINITY]);
    let attn = FlashAttn { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::Default };
    let out = rig.graph.flash_attn([q, k, v], Some(mask), None, attn).unwrap();
    assert_eq!(rig.run(&[out]).nd(out).all, [0.5]);
}

#[test]
fn state_space_convolution() {
    for (width, tokens, sequences) in [(4, 1, 1), (4, 6, 3), (1, 3, 2), (3, 2, 1)] {
        for form in DENSE_ROWS {
            let mut rig = Rig::default();
            let x = rig.source(form, DType::F32, [width - 1 + tokens, 5, sequences, 1]);
            let c = rig.random(LeafKind::Weight, DType::F32, [width, 5, 1, 1]);
            check(rig, Op::SsmConv, &[x, c], |s| {
                Nd::from_fn([5, tokens, sequences, 1], |[channel, token, sequence, _]| {
                    (0..width).map(|w| s[0].at([token + w, channel, sequence, 0]) * s[1].at([w, channel, 0, 0])).sum()
                })
            });
        }
    }
}

#[test]
fn gated_delta_rule_with_snapshots() {
    for (size, heads_k, heads, tokens, batch, snapshots, wide_gate) in [
        (4, 1, 1, 1, 1, 1, false),
        (8, 2, 4, 5, 2, 1, false),
        (8, 2, 4, 5, 2, 3, true),
        (5, 3, 3, 2, 2, 4, true),
        (32, 1, 2, 8, 1, 8, false),
        (4, 2, 2, 0, 1, 2, false),
    ] {
        for form in DENSE_ROWS {
            let mut rig = Rig::default();
            let q = rig.source(form, DType::F32, [size, heads_k, tokens, batch]);
            let k = rig.source(Form::Padded, DType::F32, [size, heads_k, tokens, batch]);
            let v = rig.source(form, DType::F32, [size, heads, tokens, batch]);
            let gate = if wide_gate { size } else { 1 };
            let g = rig.random(LeafKind::Input, DType::F32, [gate, heads, tokens, batch]);
            let beta = rig.random(LeafKind::Input, DType::F32, [1, heads, tokens, batch]);
            let state = rig.random(LeafKind::Cache, DType::F32, [size, size, heads, batch]);
            let out = rig.graph.gated_delta_net([q, k, v, g, beta, state], snapshots).unwrap();
            let ran = rig.run(&[out]);
            let s = [q, k, v, g, beta, state].map(|id| ran.nd(id));
            let kept = tokens.min(snapshots as usize);
            let attention = size * heads * tokens * batch;
            let snapshot = size * size * heads * batch;
            let mut expected = vec![0.0; attention + snapshot * snapshots as usize];
            for [head, b, _, _] in indices([heads, batch, 1, 1]) {
                let mut memory = Nd::from_fn([size, size, 1, 1], |[j, i, ..]| s[5].at([j, i, head, b]));
                for token in 0..tokens {
                    let key = |source: &Nd, j| source.at([j, head % heads_k, token, b]);
                    for i in 0..size {
                        let row = &mut memory.all[i * size..][..size];
                        for (j, cell) in row.iter_mut().enumerate() {
                            *cell *= s[3].wrapped([j, head, token, b]).exp();
                        }
                        let recalled: f64 = row.iter().enumerate().map(|(j, cell)| cell * key(&s[1], j)).sum();
                        let correction = (s[2].at([i, head, token, b]) - recalled) * s[4].at([0, head, token, b]);
                        row.iter_mut().enumerate().for_each(|(j, cell)| *cell += key(&s[1], j) * correction);
                        let read: f64 = row.iter().enumerate().map(|(j, cell)| cell * key(&s[0], j)).sum();
                        expected[((b * tokens + token) * heads + head) * size + i] = read / (size as f64).sqrt();
                    }
                    let age = tokens - 1 - token;
                    if age < kept {
                        let start = attention + age * snapshot + (b * heads + head) * size * size;
                        expected[start..][..size * size].copy_from_slice(&memory.all);
                    }
                }
            }
            let found = ran.nd(out);
            assert_close(&found, &Nd { ne: found.ne, all: expected }, 5e-6);
        }
    }
}

#[test]
fn empty_results_need_nothing() {
    let mut rig = Rig::default();
    let a = rig.random(LeafKind::Input, DType::F32, [4, 0, 2, 1]);
    let b = rig.random(LeafKind::Weight, DType::F32, [4, 1, 1, 1]);
    let sum = rig.graph.add(a, b).unwrap();
    let norm = rig.graph.rms_norm(sum, 1e-6).unwrap();
    let product = rig.graph.mul_mat(b, norm).unwrap();
    assert!(rig.run(&[product]).nd(product).all.is_empty());
}

#[test]
fn large_results_do_not_depend_on_how_work_is_shared() {
    // Each row alone is too little work for a second thread, all rows together are not.
    let mut rig = Rig::default();
    let a = rig.random(LeafKind::Weight, DType::F16, [300, 70, 1, 1]);
    let b = rig.random(LeafKind::Input, DType::F32, [300, 90, 1, 1]);
    let whole = rig.graph.mul_mat(a, b).unwrap();
    let normed = rig.graph.rms_norm(b, 1e-6).unwrap();
    let nb = rig.graph.tensor(b).nb();
    let parts: Vec<TensorId> = (0..90)
        .map(|row| {
            let column = rig.graph.view(b, [300, 1, 1, 1], nb, nb[1] * row).unwrap();
            rig.graph.mul_mat(a, column).unwrap()
        })
        .collect();
    let outputs: Vec<TensorId> = [whole, normed].into_iter().chain(parts.iter().copied()).collect();
    let ran = rig.run(&outputs);
    let alone: Vec<f64> = parts.iter().flat_map(|&part| ran.nd(part).all).collect();
    assert_eq!(ran.nd(whole).all, alone);
}

#[test]
fn buffers_answer_with_values_or_errors() {
    let device = wgfuse::cpu::CpuDevice::new(wgfuse::fusion::FusionConfig::default());
    assert_eq!((device.info().name.as_str(), device.info().backend), ("CPU", "CPU"));
    let id = device.create_buffer(BufferClass::Computed, 10).unwrap();
    let mut bytes = [9; 10];
    device.read(id, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 10]);
    device.write(id, 7, &[1, 2, 3]).unwrap();
    device.read(id, 6, &mut bytes[..4]).unwrap();
    assert_eq!(bytes[..4], [0, 1, 2, 3]);
    let outside = DeviceError::OutOfBounds { start: 8, end: 11, size: 10 };
    assert_eq!(device.write(id, 8, &[0; 3]), Err(outside.clone()));
    assert_eq!(device.read(id, 8, &mut bytes[..3]), Err(outside));
    assert!(device.write(id, usize::MAX, &[0; 3]).is_err());
    device.write(id, 10, &[]).unwrap();
    for bytes in [usize::MAX, isize::MAX as usize, 1 << 62] {
        assert!(matches!(device.create_buffer(BufferClass::Weight, bytes), Err(DeviceError::OutOfMemory { .. })));
    }
    device.destroy_buffer(id);
    device.destroy_buffer(id);
    assert_eq!(device.write(id, 0, &[0]), Err(DeviceError::UnknownBuffer(id)));
    let next = device.create_buffer(BufferClass::Cache, 0).unwrap();
    assert_ne!(next, id);
}

#[test]
fn programs_keep_destroyed_buffers_and_run_again() {
    let mut rig = Rig::default();
    let cache = rig.leaf(LeafKind::Cache, DType::F32, [1, 1, 1, 1], &[1.0]);
    let doubled = rig.graph.scale_in_place(cache, 2.0, 0.0).unwrap();
    let ran = rig.run(&[doubled]);
    let mut program = ran.device.load(&ran.graph, &ran.plan, &ran.arenas).unwrap();
    program.run().unwrap();
    assert_eq!(ran.nd(cache).all, [4.0]);
    let slot = ran.plan.placement.slot(&ran.graph, cache).unwrap();
    ran.device.destroy_buffer(ran.buffer(&slot));
    program.run().unwrap();
    assert!(ran.device.load(&ran.graph, &ran.plan, &ran.arenas).is_err());
}

#[test]
fn programs_that_share_buffers_run_from_many_threads() {
    let mut rig = Rig::default();
    let cache = rig.leaf(LeafKind::Cache, DType::F32, [1000, 1, 1, 1], &[0.0; 1000]);
    let raised = rig.graph.scale_in_place(cache, 1.0, 1.0).unwrap();
    let ran = rig.run(&[raised]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut program = ran.device.load(&ran.graph, &ran.plan, &ran.arenas).unwrap();
            scope.spawn(move || (0..25).for_each(|_| program.run().unwrap()));
        }
    });
    assert_eq!(ran.nd(cache).all, [101.0; 1000]);
}

#[test]
fn plans_that_do_not_fit_are_refused_when_loaded() {
    let mut rig = Rig::default();
    let cache = rig.leaf(LeafKind::Cache, DType::F32, [64, 1, 1, 1], &[]);
    let out = rig.graph.sqr(cache).unwrap();
    let ran = rig.run(&[out]);
    assert!(matches!(ran.device.load(&ran.graph, &ran.plan, &[]), Err(DeviceError::Plan { .. })));
    let small = ran.device.create_buffer(BufferClass::Computed, 8).unwrap();
    assert!(matches!(ran.device.load(&ran.graph, &ran.plan, &[small]), Err(DeviceError::OutOfBounds { .. })));
    let other = wgfuse::cpu::CpuDevice::new(wgfuse::fusion::FusionConfig::default());
    assert!(matches!(other.load(&ran.graph, &ran.plan, &ran.arenas), Err(DeviceError::UnknownBuffer(_))));
    let foreign = std::sync::Arc::new(wgfuse::graph::Graph::new());
    assert!(matches!(ran.device.load(&foreign, &ran.plan, &ran.arenas), Err(DeviceError::Plan { .. })));
}

#[test]
fn rounding_to_half_precision_is_to_nearest_even() {
    // 2049 and 2051 lie halfway between neighbours in f16, 257 and 259 in bf16.
    for (dtype, values, expected) in [
        (DType::F16, [2049.0, 2051.0, 65520.0, 1e-8], [2048.0, 2052.0, f64::INFINITY, 0.0]),
        (DType::BF16, [257.0, 259.0, 1e38, -0.0], [256.0, 260.0, 1.003_867_1e38, 0.0]),
    ] {
        let mut rig = Rig::default();
        let a = rig.input(DType::F32, [4, 1, 1, 1], &values);
        let cache = rig.leaf(LeafKind::Cache, dtype, [4, 1, 1, 1], &[]);
        let out = rig.graph.cpy(a, cache).unwrap();
        let found = rig.run(&[out]).nd(out).all;
        assert_eq!(found[..2], expected[..2]);
        assert_eq!(encode(dtype, found), encode(dtype, values.map(|v| if v == -0.0 { -0.0 } else { v })));
    }
}
