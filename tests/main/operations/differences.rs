//! Where devices differ by design: what the CPU device refuses with an error and a kernel cannot, or the other way round.

use super::recurrent::delta_sources;
use crate::devices::{all, cpu, gpus, unfused};
use crate::numbers::pairs;
use crate::rig::{FLOATS, Form, Rig, called};
use wgfuse::device::{ComputeError, DeviceError};
use wgfuse::graph::{DType, FlashAttn, LeafKind, Op, OpKind, Precision, Rope, RopeMode, TensorId};

const F32: DType = DType::F32;
const INPUT: LeafKind = LeafKind::Input;

fn refusal(rig: &Rig) -> Option<DeviceError> {
    match rig.run(&cpu(), unfused()) {
        Err(ComputeError::Device(error)) => Some(error),
        other => panic!("{other:?}"),
    }
}

/// An index that names nothing: a typed error on the CPU; on a GPU, rows read are zeros, rows written go nowhere, and a
/// matrix product is zero.
#[test]
fn indices_outside() {
    for bad in [-1.0, 4.0, 2e9, -2_147_483_648.0, 2_147_483_647.0] {
        for (op, dtype) in pairs([Op::GetRows, Op::SetRows, Op::MUL_MAT_ID], FLOATS) {
            let mut rig = Rig::default();
            let a = rig.leaf(LeafKind::Cache, dtype, [3, 4, 4, 1]);
            let ids = [0.0, 3.0, 0.0, bad, 0.0, 1.0, 1.0, 0.0];
            let ids = rig.given(INPUT, DType::I32, [2, 4, 1, 1], &ids);
            let b = rig.input([3, 2, 4, 1]);
            let sources: &[TensorId] = if op == Op::MUL_MAT_ID {
                &[a, b, ids]
            } else if op == Op::SetRows {
                &[b, ids, a]
            } else {
                &[a, ids]
            };
            rig.want(op, sources);
            assert_eq!(refusal(&rig), Some(DeviceError::Index { op: op.kind(), index: bad as i64, count: 4 }));
            rig.check_on(&gpus());
        }
    }
    // Integers of both widths keep their type and their range.
    for bad in [4_294_967_296.0, -1.0] {
        let mut rig = Rig::default();
        let (values, cache) = (rig.input([3, 2, 1, 1]), rig.cache([3, 4, 1, 1]));
        let ids = rig.given(INPUT, DType::I64, [2, 1, 1, 1], &[bad, 2.0]);
        rig.want(Op::SetRows, &[values, ids, cache]);
        assert_eq!(refusal(&rig), Some(DeviceError::Index { op: OpKind::SetRows, index: bad as i64, count: 4 }));
        rig.check_on(&gpus());
    }
    let mut rig = Rig::default();
    let a = rig.leaf(LeafKind::Weight, DType::I32, [2, 3, 1, 1]);
    let ids = rig.given(INPUT, DType::I32, [3, 1, 1, 1], &[2.0, 3.0, -1.0]);
    rig.want(Op::GetRows, &[a, ids]);
    rig.check_on(&gpus());
}

/// Experts that do not exist, in products of every kernel.
#[test]
fn products_with_no_matrix_are_zero_on_a_gpu() {
    let mut rig = Rig::default();
    for (k, m, experts, used, tokens) in [(5, 3, 2, 1, 1), (40, 70, 8, 3, 7), (33, 35, 3, 2, 40), (64, 40, 2, 2, 600)] {
        for (dtype, columns) in [(F32, 1), (DType::F16, used), (DType::BF16, used)] {
            let a = rig.leaf(LeafKind::Weight, dtype, [k, m, experts, 1]);
            let b = rig.input([k, columns, tokens, 1]);
            let id = |i: usize| match i % 11 {
                7 => -1.0,
                9 => experts as f64,
                _ => (i * i % experts) as f64,
            };
            let ids: Vec<f64> = (0..used * tokens).map(id).collect();
            let ids = rig.given(INPUT, DType::I32, [used, tokens, 1, 1], &ids);
            rig.want(Op::MUL_MAT_ID, &[a, b, ids]);
        }
    }
    rig.check_on(&gpus());
}

/// On a GPU the order in which rows are written is not defined.
#[test]
fn of_rows_set_twice_the_last_stays_on_the_cpu() {
    let mut rig = Rig::default();
    let cache = rig.cache([1, 3, 1, 1]);
    let values = rig.input([1, 3, 1, 1]);
    let ids = rig.given(INPUT, DType::I32, [3, 1, 1, 1], &[1.0, 2.0, 1.0]);
    rig.want(Op::SetRows, &[values, ids, cache]);
    rig.check_on(&[cpu()]);
}

/// A row that no id names: a typed error on the CPU, nothing added on a GPU.
#[test]
fn ids_of_no_row() {
    for bad in [-1.0, 4.0, 2e9, -2_147_483_648.0] {
        let mut rig = Rig::default();
        let (a, b) = (rig.input([3, 2, 2, 1]), rig.weight([3, 4, 1, 1]));
        let ids = rig.given(INPUT, DType::I32, [2, 2, 1, 1], &[0.0, bad, 3.0, 1.0]);
        rig.want(Op::AddId, &[a, b, ids]);
        assert_eq!(refusal(&rig), Some(DeviceError::Index { op: OpKind::AddId, index: bad as i64, count: 4 }));
        rig.check_on(&gpus());
    }
}

#[test]
fn clamping_keeps_nan_on_the_cpu() {
    let mut rig = Rig::default();
    let a = rig.given(INPUT, F32, [3, 1, 1, 1], &[f64::NAN, f64::NEG_INFINITY, f64::INFINITY]);
    rig.want(Op::Clamp { min: 1.0, max: 2.0 }, &[a]);
    rig.check_on(&[cpu()]);
}

/// What no kernel computes is an error there, and right on the CPU.
#[test]
fn shapes_without_a_kernel() {
    let attn = FlashAttn { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::Default };
    let rope = Rope {
        n_dims: 6,
        first_dim: 0,
        mode: RopeMode::Normal,
        n_ctx_orig: 128,
        freq_base: 0.5,
        freq_scale: 1.0,
        ext_factor: 0.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
    };
    let mut cases = Vec::new();
    for (heads, times) in [([6, 1, 1], [1, 1]), ([5, 3, 3], [2, 2])] {
        let mut rig = Rig::default();
        let [q, k, v, g, beta] = delta_sources(&mut rig, Form::Padded, heads, times, true);
        let state = rig.input([heads[0], heads[0], heads[2], times[1]]);
        rig.want(Op::GatedDeltaNet { snapshots: 4 }, &[q, k, v, g, beta, state]);
        cases.push((rig, OpKind::GatedDeltaNet));
    }
    let mut rig = Rig::default();
    let x = rig.input([6, 1, 1, 1]);
    let position = rig.given(INPUT, DType::I32, [1, 1, 1, 1], &[1.0]);
    rig.want(Op::Rope(rope), &[x, position]);
    cases.push((rig, OpKind::Rope));
    let mut rig = Rig::default();
    let long = rig.input([20_000, 1, 1, 1]);
    rig.want(Op::FlashAttn(attn), &[long, long, long]);
    cases.push((rig, OpKind::FlashAttn));
    for (rig, op) in cases {
        rig.check_on(&[cpu()]);
        for device in gpus() {
            let error = rig.run(&device, unfused()).err();
            let named = |error: &ComputeError| matches!(error, ComputeError::Device(DeviceError::Unsupported { op: found, .. }) if *found == op);
            assert!(error.as_ref().is_some_and(named), "{}: {error:?}", called(&device));
        }
    }
}

#[test]
fn empty_results_need_nothing() {
    let mut rig = Rig::default();
    let (a, b) = (rig.input([4, 0, 2, 1]), rig.weight([4, 1, 1, 1]));
    let sum = rig.op(Op::Add, &[a, b]);
    let norm = rig.rms_norm(sum);
    rig.want(Op::MUL_MAT, &[b, norm]);
    for device in all() {
        assert!(rig.run(&device, unfused()).unwrap()[0].all.is_empty(), "{}", called(&device));
    }
}
