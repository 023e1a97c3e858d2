//! What devices say about single nodes before there is a plan. That it is what loading says, too, is asserted wherever
//! the [`Rig`] runs a graph node by node.

use crate::devices::{all, gpus, unfused};
use crate::rig::{Rig, called};
use wgfuse::device::{ComputeError, DeviceError};
use wgfuse::graph::{BlockFormat, DType, Graph, LeafKind, Op, OpKind};

#[test]
fn a_refusal_names_types_shapes_and_the_reason() {
    let mut rig = Rig::default();
    let w = rig.blocks(LeafKind::Weight, BlockFormat::Iq2Xxs, [256, 1, 1, 1], vec![0; 66]);
    let into = rig.cache([256, 1, 1, 1]);
    let view = rig.op(Op::Reshape { ne: [128, 2, 1, 1] }, &[into]);
    let [q, v, g, state] = [[6, 1, 1, 1], [6, 1, 1, 1], [1; 4], [6, 6, 1, 1]].map(|ne| rig.input(ne));
    let net = rig.op(Op::GatedDeltaNet { snapshots: 1 }, &[q, q, v, g, g, state]);
    for device in gpus() {
        let supports = |id| device.supports(&rig.graph, id);
        // Views and leaves need no kernel, whatever their type.
        assert_eq!([supports(view), supports(into), supports(w)], [Ok(()), Ok(()), Ok(())], "{}", called(&device));
        let refused = supports(net).unwrap_err();
        let expected = "f32 [6, 1, 1, 1], f32 [6, 1, 1, 1], f32 [6, 1, 1, 1], f32 [1, 1, 1, 1], f32 [1, 1, 1, 1], \
                        f32 [6, 6, 1, 1] to f32 [6, 7, 1, 1]: heads of 6";
        let named = matches!(&refused, DeviceError::Unsupported { device: name, op: OpKind::GatedDeltaNet, detail }
            if *name == device.info().name && detail == expected);
        assert!(named, "{refused}");
    }
}

#[test]
fn a_node_of_another_graph_is_refused() {
    let foreign = Rig::default().input([4; 4]);
    for device in all() {
        let refused = device.supports(&Graph::new(), foreign);
        assert!(matches!(refused, Err(DeviceError::Plan { .. })), "{}: {refused:?}", called(&device));
    }
}

#[test]
fn tensors_that_fit_no_buffer_are_refused() {
    for device in gpus() {
        let limit = device.limits().max_buffer_bytes;
        let elements = limit / 4 + 32;
        let mut rig = Rig::default();
        let x = rig.leaf(LeafKind::Input, DType::F32, [elements, 1, 1, 1]);
        let node = rig.op(Op::SumRows, &[x]);
        let small = rig.input([4; 4]);
        let sum = rig.op(Op::SumRows, &[small]);
        let refused = device.supports(&rig.graph, node);
        assert!(matches!(refused, Err(DeviceError::Unsupported { op: OpKind::SumRows, .. })), "{refused:?}");
        assert_eq!(device.supports(&rig.graph, sum), Ok(()), "another node of the same graph");
    }
}

#[test]
fn a_node_that_overwrites_what_it_reads_is_refused_as_its_plan_is() {
    let mut rig = Rig::default();
    let cache = rig.cache([64, 1, 1, 1]);
    let (from, to) = (rig.view(cache, [32, 1, 1, 1], 0), rig.view(cache, [32, 1, 1, 1], 64));
    let copy = rig.op(Op::Cpy, &[from, to]);
    rig.written(copy, cache);
    for device in all() {
        let refused = device.supports(&rig.graph, copy);
        assert!(matches!(refused, Err(DeviceError::Unsupported { op: OpKind::Cpy, .. })), "{refused:?}");
        let planned = rig.run(&device, unfused()).err();
        assert!(matches!(planned, Some(ComputeError::Plan(_))), "{planned:?}");
    }
}
