//! Norms with the factor and shift that follow.

use super::{ROW, X, count, fires, fires_times, planned, refuses};
use crate::devices::gpus;
use crate::rig::{DENSE_ROWS, Form, Rig, called};
use wgfuse::fusion::{Decline, Fusion};
use wgfuse::graph::{DType, LeafKind, Op, OpKind, TensorId};

/// `norm · scale (+ shift)` with these second sources.
pub fn norm_graph(norm: Op, seconds: impl FnOnce(&mut Rig) -> Vec<TensorId>) -> Rig {
    let mut b = Rig::default();
    let x = b.input(X);
    let seconds = seconds(&mut b);
    let normed = b.op(norm, &[x]);
    let scaled = b.op(Op::Mul, &[normed, seconds[0]]);
    let last = seconds.get(1).map_or(scaled, |&shift| b.op(Op::Add, &[scaled, shift]));
    b.finish(&[last])
}

const NORM: Op = Op::Norm { eps: 1e-5 };
pub const RMS_NORM: Op = Op::RmsNorm { eps: 1e-6 };

/// A row with dense elements no more.
fn strided(b: &mut Rig) -> TensorId {
    let w = b.weight([64, 2, 1, 1]);
    b.op(Op::View { ne: ROW, nb: [8, 512, 512, 512], offset: 0 }, &[w])
}

fn half(b: &mut Rig) -> TensorId {
    b.leaf(LeafKind::Weight, DType::F16, ROW)
}

pub fn near_miss(row: &Fusion, check: &str) -> Option<Rig> {
    let norm = if row.ops[0] == OpKind::Norm { NORM } else { RMS_NORM };
    let wrong: fn(&mut Rig) -> TensorId = match check {
        "reads_previous_first" => {
            let mut b = Rig::default();
            let (x, w, shift) = (b.input(X), b.input(X), b.weight(ROW));
            let normed = b.op(norm, &[x]);
            let scaled = b.op(Op::Mul, &[w, normed]);
            let last = if row.ops.len() == 3 { b.op(Op::Add, &[scaled, shift]) } else { scaled };
            return Some(b.finish(&[last]));
        }
        "row_width" => |b| b.weight([1, 1, 1, 1]),
        "contiguous_rows" => strided,
        "f32" => half,
        _ => return None,
    };
    let seconds = |b: &mut Rig| if row.ops.len() == 3 { vec![b.weight(ROW), wrong(b)] } else { vec![wrong(b)] };
    Some(norm_graph(norm, seconds))
}

#[test]
fn norms_are_right() {
    for (name, rms) in [("NORM", false), ("RMS_NORM", true)] {
        let (mut scaled, mut shifted) = (Rig::default(), Rig::default());
        let (mut times, mut times_shifted) = (0, 0);
        for (width, outer) in [(5, [3, 2, 2]), (40, [3, 2, 2]), (128, [4, 6, 1]), (2050, [3, 1, 1])] {
            let ne = [width, outer[0], outer[1], outer[2]];
            let [n1, n2, n3] = outer;
            for (form, eps) in DENSE_ROWS.into_iter().zip([1e-6, 2e-5, 0.3, 1e-5]) {
                // Factors of one row, and of rows that repeat in different dimensions.
                for of in [[1, 1, 1], [n1, 1, 1], [1, n2, 1], [n1, 1, n3], outer].map(|[b, c, d]| [width, b, c, d]) {
                    let norm = if rms { Op::RmsNorm { eps } } else { Op::Norm { eps } };
                    let product = |b: &mut Rig| {
                        let (x, w) = (b.source(form, DType::F32, ne), b.source(Form::Padded, DType::F32, of));
                        let normed = b.op(norm, &[x]);
                        b.op(Op::Mul, &[normed, w])
                    };
                    let result = product(&mut scaled);
                    scaled.output(result);
                    times += 1;
                    for shift in [[width, 1, 1, 1], ne] {
                        let result = product(&mut shifted);
                        let shift = shifted.source(Form::Dense, DType::F32, shift);
                        shifted.want(Op::Add, &[result, shift]);
                        times_shifted += 1;
                    }
                }
            }
        }
        fires_times(&format!("{name}+MUL"), times, &scaled);
        fires_times(&format!("{name}+MUL+ADD"), times_shifted, &shifted);
    }
}

/// The table refuses a factor that comes first, yet the kernel could take it.
#[test]
fn a_factor_may_come_first_in_the_kernel() {
    for outer in [[3, 2, 2], [4, 6, 1]] {
        let mut rig = Rig::default();
        let ne = [128, outer[0], outer[1], outer[2]];
        let (x, w) = (rig.source(Form::Padded, DType::F32, ne), rig.input(ne));
        let normed = rig.rms_norm(x);
        let scaled = rig.want(Op::Mul, &[w, normed]);
        let expected = rig.expected();
        for device in gpus() {
            let found = rig.run_merged(&device, &[normed, scaled]).unwrap();
            rig.compare(&called(&device), &found, &expected);
        }
    }
}

#[test]
fn norms_fire() {
    for (norm, name) in [(NORM, "NORM"), (RMS_NORM, "RMS_NORM")] {
        fires(&format!("{name}+MUL"), &norm_graph(norm, |b| vec![b.weight(ROW)]));
        fires(&format!("{name}+MUL"), &norm_graph(norm, |b| vec![b.input(X)]));
        fires(&format!("{name}+MUL+ADD"), &norm_graph(norm, |b| vec![b.weight(ROW), b.weight(ROW)]));
        fires(&format!("{name}+MUL+ADD"), &norm_graph(norm, |b| vec![b.weight(ROW), b.input(X)]));
    }
}

#[test]
fn a_norm_of_width_one_fires_with_factors_of_width_one() {
    let mut b = Rig::default();
    let (x, w) = (b.input([1, 4, 1, 1]), b.weight([1, 1, 1, 1]));
    let normed = b.rms_norm(x);
    let scaled = b.op(Op::Mul, &[normed, w]);
    fires("RMS_NORM+MUL", &b.finish(&[scaled]));
}

#[test]
fn a_product_must_be_the_first_source_of_the_sum() {
    let mut b = Rig::default();
    let (x, w, residual) = (b.input(X), b.weight(ROW), b.input(X));
    let normed = b.rms_norm(x);
    let scaled = b.op(Op::Mul, &[normed, w]);
    let last = b.op(Op::Add, &[residual, scaled]);
    let rig = b.finish(&[last]);
    refuses("RMS_NORM+MUL+ADD", &rig, Decline::Check("reads_previous_first"));
    assert_eq!(count(&planned(&rig), "RMS_NORM+MUL"), 1, "the shorter row holds");
}

#[test]
fn factors_of_a_norm_have_its_width() {
    let narrow = [1, 1, 1, 1];
    refuses("RMS_NORM+MUL", &norm_graph(RMS_NORM, |b| vec![b.weight(narrow)]), Decline::Check("row_width"));
    refuses("NORM+MUL", &norm_graph(NORM, |b| vec![b.weight([32, 1, 1, 1])]), Decline::Check("row_width"));
    let shifted = norm_graph(RMS_NORM, |b| vec![b.weight(ROW), b.weight(narrow)]);
    refuses("RMS_NORM+MUL+ADD", &shifted, Decline::Check("row_width"));
    assert_eq!(count(&planned(&shifted), "RMS_NORM+MUL"), 1);
}

#[test]
fn factors_of_a_norm_have_contiguous_rows() {
    let rig = norm_graph(RMS_NORM, |b| vec![strided(b)]);
    refuses("RMS_NORM+MUL", &rig, Decline::Check("contiguous_rows"));
    let rig = norm_graph(RMS_NORM, |b| vec![b.weight(ROW), strided(b)]);
    refuses("RMS_NORM+MUL+ADD", &rig, Decline::Check("contiguous_rows"));
    // Rows that are dense may lie apart.
    let apart = |b: &mut Rig| {
        let w = b.weight([64, 8, 1, 1]);
        b.op(Op::View { ne: X, nb: [4, 512, 2048, 2048], offset: 0 }, &[w])
    };
    fires("RMS_NORM+MUL", &norm_graph(RMS_NORM, |b| vec![apart(b)]));
}

#[test]
fn factors_of_a_norm_are_f32() {
    refuses("NORM+MUL", &norm_graph(NORM, |b| vec![half(b)]), Decline::Check("f32"));
    let shifted = norm_graph(NORM, |b| vec![b.weight(ROW), half(b)]);
    refuses("NORM+MUL+ADD", &shifted, Decline::Check("f32"));
}
