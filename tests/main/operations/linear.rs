//! Outer products and triangular systems.

use crate::devices::{cpu, gpus, unfused};
use crate::numbers::{Random, pairs};
use crate::rig::{DENSE_ROWS, FLOATS, FORMS, Rig, called};
use wgfuse::device::{ComputeError, DeviceError};
use wgfuse::graph::{BlockFormat, DType, LeafKind, Op, OpKind, TensorId};
use wgfuse::quant::quantize;

const F32: DType = DType::F32;
const INPUT: LeafKind = LeafKind::Input;

#[test]
fn by_hand() {
    let mut rig = Rig::default();
    let a = rig.given(INPUT, F32, [3, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let b = rig.given(INPUT, F32, [2, 2, 1, 1], &[1.0, -1.0, 10.0, 100.0]);
    rig.want(Op::OutProd, &[a, b]);
    // What is above the diagonal is not looked at.
    let l = rig.given(INPUT, F32, [2, 2, 1, 1], &[2.0, f64::NAN, 3.0, 4.0]);
    let c = rig.given(INPUT, F32, [2, 2, 1, 1], &[2.0, 4.0, 7.0, 2.0]);
    rig.want(Op::SolveTri, &[l, c]);
    let expected: Vec<Vec<f64>> = rig.expected().into_iter().map(|(_, found)| found.all).collect();
    assert_eq!(expected[0], [41.0, 52.0, 63.0, 399.0, 498.0, 597.0]);
    assert_eq!(expected[1], [1.0, 2.0, 1.0, -1.0]);
    rig.check();
}

#[test]
fn outer_products_over_types_forms_and_broadcasts() {
    let mut rig = Rig::default();
    for (at, (dtype, form)) in pairs(FLOATS, DENSE_ROWS).enumerate() {
        for (m, n, k, outer, times) in [
            (1, 1, 1, [1, 1], [1, 1]),
            (5, 3, 7, [2, 3], [1, 1]),
            (17, 16, 33, [1, 2], [3, 2]),
            (31, 1, 2, [2, 1], [2, 2]),
            (16, 35, 16, [1, 1], [1, 4]),
        ] {
            let a = rig.source(form, dtype, [m, k, outer[0], outer[1]]);
            let b = rig.source(FORMS[at % 5], F32, [n, k, outer[0] * times[0], outer[1] * times[1]]);
            rig.want(Op::OutProd, &[a, b]);
        }
    }
    rig.check();
}

#[test]
fn outer_products_of_unusual_sizes() {
    let mut rig = Rig::default();
    let shapes = [
        ([3, 5000, 1, 1], [2, 5000, 1, 1]),
        ([2, 1, 1, 1], [1, 1, 70_001, 1]),
        ([300, 2, 1, 1], [200, 2, 1, 1]),
        ([4, 0, 1, 1], [3, 0, 1, 1]),
        ([0, 4, 1, 1], [3, 4, 1, 1]),
        ([4, 2, 1, 1], [3, 2, 0, 1]),
    ];
    for (a, b) in shapes {
        let sources = [rig.input(a), rig.input(b)];
        rig.want(Op::OutProd, &sources);
    }
    rig.check();
}

/// No kernel reads blocks in an outer product.
#[test]
fn outer_products_of_blocks() {
    for format in [BlockFormat::Q4_0, BlockFormat::Q8_0, BlockFormat::Q6K] {
        let mut rig = Rig::default();
        let ne = [512, 3, 2, 1];
        let mut random = Random(7);
        let values: Vec<f32> = (0..512 * 6).map(|_| random.float() as f32).collect();
        let mut blocks = vec![0; values.len() / format.elements() * format.bytes()];
        quantize(format, &values, &mut blocks).expect("whole blocks");
        let a = rig.blocks(LeafKind::Weight, format, ne, blocks);
        let b = rig.input([5, 3, 4, 3]);
        rig.want(Op::OutProd, &[a, b]);
        rig.check_on(&[cpu()]);
        for device in gpus() {
            let error = rig.run(&device, unfused()).expect_err("no kernel");
            let named = matches!(&error, ComputeError::Device(DeviceError::Unsupported { op: OpKind::OutProd, .. }));
            assert!(named, "{}: {error}", called(&device));
        }
    }
}

/// Triangles whose diagonal outweighs the rest, so that solutions do not grow; above it is nothing that counts.
fn triangle(rig: &mut Rig, size: usize, outer: [usize; 2]) -> TensorId {
    let a = rig.source(crate::rig::Form::Dense, F32, [size, size, outer[0], outer[1]]);
    let values = rig.contents(a).into_iter().enumerate().map(|(i, x)| {
        let (column, row) = (i % size, i / size % size);
        match column.cmp(&row) {
            std::cmp::Ordering::Less => x / (size as f64).sqrt(),
            std::cmp::Ordering::Equal => 1.5 + x / 2.0,
            std::cmp::Ordering::Greater => 1e30,
        }
    });
    let values = values.collect();
    rig.give(a, values);
    a
}

#[test]
fn triangular_systems_of_every_size() {
    let mut rig = Rig::default();
    for size in (1..20).chain([31, 32, 33, 64, 65, 100]) {
        for (columns, outer) in [(1, [1, 1]), (3, [2, 3]), (70, [1, 2])] {
            let a = triangle(&mut rig, size, outer);
            let b = rig.source(crate::rig::Form::Dense, F32, [columns, size, outer[0], outer[1]]);
            rig.want(Op::SolveTri, &[a, b]);
        }
    }
    for (columns, size, outer) in [(2, 300, [2, 1]), (1, 1500, [1, 1]), (1, 2, [70_001, 1])] {
        let a = triangle(&mut rig, size, outer);
        let b = rig.input([columns, size, outer[0], outer[1]]);
        rig.want(Op::SolveTri, &[a, b]);
    }
    for (columns, size, outer) in [(0, 3, [1, 1]), (3, 0, [1, 1]), (3, 3, [0, 1])] {
        let a = triangle(&mut rig, size, outer);
        let b = rig.input([columns, size, outer[0], outer[1]]);
        rig.want(Op::SolveTri, &[a, b]);
    }
    rig.check();
}
