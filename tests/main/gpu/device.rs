//! The device itself: names, buffers, errors, and what a steady run costs.

use super::{Case, Loaded, devices, open_devices};
use crate::devices::unfused;
use std::collections::HashMap;
use std::sync::Arc;
use wgfuse::device::{Device, DeviceError};
use wgfuse::gpu::{self, GpuDevice};
use wgfuse::graph::{BufferClass, DType, Graph, LeafKind, OpKind, TensorId};
use wgfuse::plan::{BufferId, Leaves, Place, Placement, Plan, Slot, plan};

#[test]
fn names_are_unique_and_open() {
    let infos = gpu::list();
    for (index, info) in infos.iter().enumerate() {
        assert!(info.name.starts_with(info.backend), "{info:?}");
        assert!(infos[..index].iter().all(|other| other.name != info.name), "{info:?}");
    }
    for device in devices() {
        assert!(infos.iter().any(|info| info.name == device.info().name && info.backend == device.info().backend));
        let caps = device.caps();
        let f16 = if caps.f16 { " f16" } else { "no f16" };
        assert!(device.info().description.contains(f16), "{:?}", device.info());
    }
    if let Some(first) = infos.first() {
        assert_eq!(GpuDevice::open(None).unwrap().info().name, first.name);
        assert_eq!(GpuDevice::open(Some(&first.name.to_lowercase())).unwrap().info().name, first.name);
    }
}

#[test]
fn a_wrong_name_lists_the_right_ones() {
    let Err(error) = GpuDevice::open(Some("VK99")) else { panic!("there is no VK99") };
    let DeviceError::NoDevice { requested, available } = error else { panic!("{error}") };
    assert_eq!(requested, "VK99");
    let names: Vec<_> = gpu::list().into_iter().map(|info| info.name).collect();
    assert_eq!(available, if names.is_empty() { "none".to_owned() } else { names.join(", ") });
}

#[test]
fn buffers_are_zeroed_and_bytes_come_back() {
    for device in devices() {
        for size in [0, 1, 2, 3, 4, 5, 17, 64, 1000] {
            let id = device.create_buffer(BufferClass::Cache, size).unwrap();
            let mut bytes = vec![1; size];
            device.read(id, 0, &mut bytes).unwrap();
            assert_eq!(bytes, vec![0; size]);
            // Any start and any length: neither is a whole number of words.
            let mut mirror = bytes;
            for round in 0..if size < 20 { size + 2 } else { 12 } {
                let start = (round * 7) % (size + 1);
                let length = (round * 5 + 1).min(size - start);
                let part: Vec<u8> = (0..length).map(|i| (round * 31 + i + 1) as u8).collect();
                device.write(id, start, &part).unwrap();
                mirror[start..start + length].copy_from_slice(&part);
                let at = (round * 3) % (size + 1);
                let mut read = vec![0; size - at];
                device.read(id, at, &mut read).unwrap();
                assert_eq!(read, mirror[at..], "{} of {size} bytes after {start}+{length}", device.info().name);
            }
            device.destroy_buffer(id);
        }
    }
}

#[test]
fn long_reads_take_several_steps() {
    for device in devices() {
        // More than one copy to the host moves.
        let size = (64 << 20) + 4099;
        let id = device.create_buffer(BufferClass::Computed, size).unwrap();
        let pattern: Vec<u8> = (0..size).map(|i| (i / 3 + i / 65_537) as u8).collect();
        device.write(id, 0, &pattern).unwrap();
        let mut bytes = vec![0; size - 3];
        device.read(id, 3, &mut bytes).unwrap();
        assert!(bytes == pattern[3..], "{}", device.info().name);
        device.destroy_buffer(id);
    }
}

#[test]
fn ranges_outside_buffers_are_refused() {
    for device in devices() {
        let id = device.create_buffer(BufferClass::Weight, 10).unwrap();
        let outside = |start, end| Err(DeviceError::OutOfBounds { start, end, size: 10 });
        assert_eq!(device.write(id, 8, &[0; 3]), outside(8, 11));
        assert_eq!(device.read(id, 0, &mut [0; 11]), outside(0, 11));
        assert_eq!(device.write(id, usize::MAX, &[0; 2]), outside(usize::MAX, usize::MAX));
        assert_eq!(device.write(id, 10, &[]), Ok(()));
        let missing = BufferId(u32::MAX);
        assert_eq!(device.write(missing, 0, &[]), Err(DeviceError::UnknownBuffer(missing)));
        assert_eq!(device.read(missing, 0, &mut []), Err(DeviceError::UnknownBuffer(missing)));
        device.destroy_buffer(missing);
        device.destroy_buffer(id);
        device.destroy_buffer(id);
        assert_eq!(device.read(id, 0, &mut []), Err(DeviceError::UnknownBuffer(id)));
    }
}

#[test]
fn buffers_too_large_are_refused() {
    for device in devices() {
        let limit = device.limits().max_buffer_bytes;
        for bytes in [limit + 1, usize::MAX] {
            let error = device.create_buffer(BufferClass::Weight, bytes).unwrap_err();
            let DeviceError::OutOfMemory { bytes: named, reason } = error else { panic!("{error}") };
            assert_eq!(named, bytes);
            assert!(reason.contains(&limit.to_string()), "{reason}");
        }
    }
}

/// A graph of one ADD and where its parts lie.
fn addition() -> (Case, TensorId) {
    let mut case = Case::default();
    let a = case.input(DType::F32, [16, 1, 1, 1]);
    let b = case.leaf(LeafKind::Weight, DType::F32, [16, 1, 1, 1]);
    let node = case.graph.add(a, b).unwrap();
    case.graph.expand(node).unwrap();
    (case, b)
}

/// A plan whose weight is then put elsewhere, where the planner itself would refuse to have it.
fn plan_with_weight_at(device: &GpuDevice, graph: &Graph, weight: TensorId, buffer: BufferId, offset: usize) -> Plan {
    let slot = Slot { place: Place::Buffer(buffer), offset: 0, bytes: 64 };
    let mut plan = plan(graph, &Leaves::from([(weight, slot)]), &device.limits(), &unfused()).unwrap();
    let tensors = graph.leaves().iter().chain(graph.nodes());
    let mut slots: HashMap<_, _> = tensors.filter_map(|&id| Some((id, plan.placement.slot(graph, id)?))).collect();
    slots.insert(weight, Slot { offset, ..slot });
    plan.placement = Placement::new(graph, &slots, plan.placement.arenas().to_vec());
    plan
}

#[test]
fn plans_that_do_not_fit_are_refused() {
    for device in devices() {
        let (case, weight) = addition();
        let graph = Arc::new(case.graph.clone());
        let buffer = device.create_buffer(BufferClass::Weight, 64).unwrap();
        let planned = |buffer, offset| Arc::new(plan_with_weight_at(device, &graph, weight, buffer, offset));
        let load = |buffer, offset, arenas: &[BufferId]| device.load(&graph, &planned(buffer, offset), arenas).err();
        let size = planned(buffer, 0).placement.arenas()[0];
        let arena = device.create_buffer(BufferClass::Computed, size).unwrap();
        let small = device.create_buffer(BufferClass::Computed, size - 4).unwrap();
        let missing = BufferId(u32::MAX);

        assert_eq!(load(buffer, 0, &[arena]), None);
        assert_eq!(load(missing, 0, &[arena]), Some(DeviceError::UnknownBuffer(missing)));
        assert_eq!(load(buffer, 0, &[missing]), Some(DeviceError::UnknownBuffer(missing)));
        assert_eq!(load(buffer, 4, &[arena]), Some(DeviceError::OutOfBounds { start: 4, end: 68, size: 64 }));
        assert_eq!(load(buffer, 0, &[small]), Some(DeviceError::OutOfBounds { start: 0, end: size, size: size - 4 }));
        assert!(matches!(load(buffer, 0, &[]), Some(DeviceError::Driver { .. })));
        assert!(matches!(load(buffer, 2, &[arena]), Some(DeviceError::OutOfBounds { .. })));
        [buffer, arena, small].into_iter().for_each(|id| device.destroy_buffer(id));
    }
}

#[test]
fn an_offset_within_an_element_is_unsupported() {
    for device in devices() {
        let (case, weight) = addition();
        let graph = Arc::new(case.graph);
        let buffer = device.create_buffer(BufferClass::Weight, 80).unwrap();
        let plan = Arc::new(plan_with_weight_at(device, &graph, weight, buffer, 6));
        let arena = device.create_buffer(BufferClass::Computed, plan.placement.arenas()[0]).unwrap();
        let error = device.load(&graph, &plan, &[arena]).err();
        assert!(matches!(error, Some(DeviceError::Unsupported { op: OpKind::Add, .. })), "{error:?}");
        [buffer, arena].into_iter().for_each(|id| device.destroy_buffer(id));
    }
}

#[test]
fn a_buffer_outlives_its_id_in_a_program() {
    for device in devices() {
        let (case, _) = addition();
        let mut loaded = Loaded::new(&case, device, None).unwrap();
        loaded.write(&case).unwrap();
        std::mem::take(&mut loaded.buffers).into_iter().for_each(|id| device.destroy_buffer(id));
        assert_eq!(loaded.program.run(), Ok(()));
    }
}

#[test]
fn a_steady_run_makes_no_objects() {
    let mut case = Case::default();
    // Odd counts of halves are written in parts of words.
    let x = case.input(DType::F16, [7, 3, 1, 1]);
    let weight = case.leaf(LeafKind::Weight, DType::F32, [7, 1, 1, 1]);
    let cache = case.leaf(LeafKind::Cache, DType::F32, [7, 3, 1, 1]);
    let product = case.graph.mul(x, weight).unwrap();
    let sum = case.graph.sum_rows(cache).unwrap();
    let copy = case.graph.cpy(product, cache).unwrap();
    [copy, sum].into_iter().for_each(|id| case.graph.expand(id).unwrap());
    // Devices of its own: other tests make objects on the shared ones meanwhile.
    for device in open_devices() {
        let mut loaded = Loaded::new(&case, &device, None).unwrap();
        let mut step = || {
            loaded.write(&case).unwrap();
            loaded.program.run().unwrap();
            loaded.read(&case).unwrap()
        };
        let first = step();
        let objects = device.objects_created();
        for _ in 0..3 {
            assert!(step() == first, "{}", device.info().name);
        }
        assert_eq!(device.objects_created(), objects, "{}", device.info().name);
    }
}

#[test]
fn loading_again_compiles_nothing() {
    let (case, _) = addition();
    for device in open_devices() {
        let objects = |name: &str| {
            let before = device.objects_created();
            let loaded = Loaded::new(&case, &device, None).expect(name);
            drop(loaded);
            device.objects_created() - before
        };
        let (first, second) = (objects("the first load"), objects("the second load"));
        // Two buffers and a bind group, which belong to the load.
        assert!(first > 3 && second == 3, "{}: {first}, then {second}", device.info().name);
    }
}

#[test]
fn threads_share_a_device() {
    for device in devices() {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let mut case = Case { seed: thread, ..Case::default() };
                    let a = case.input(DType::F16, [301, 5, 1, 1]);
                    let b = case.input(DType::F32, [301, 5, 1, 1]);
                    let node = case.graph.add(a, b).unwrap();
                    case.graph.expand(node).unwrap();
                    for _ in 0..5 {
                        let results = case.run(device, None).unwrap();
                        for x in 0..301 {
                            let expected = case.at(a, [x, 2, 0, 0]) + case.at(b, [x, 2, 0, 0]);
                            let result = super::element(&case.graph, node, &results[&node], [x, 2, 0, 0]);
                            assert!((result - expected).abs() < 5e-3, "{result} {expected}");
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn a_program_outlives_its_device() {
    let Some(name) = devices().last().map(|device| device.info().name.clone()) else { return };
    let device = GpuDevice::open(Some(&name)).unwrap();
    let (case, _) = addition();
    let graph: Arc<Graph> = Arc::new(case.graph.clone());
    let loaded = Loaded::new(&case, &device, None).unwrap();
    let mut program = device.load(&graph, &loaded.plan, &loaded.arenas).unwrap();
    drop(loaded);
    drop(device);
    assert_eq!(program.run(), Ok(()));
}

#[test]
fn a_dispatch_prints_as_one_line() {
    let Some(device) = devices().first() else { return };
    let (case, _) = addition();
    let loaded = Loaded::new(&case, device, None).unwrap();
    let dispatches = device.encode(&case.graph, &loaded.plan).unwrap();
    let buffer = loaded.buffers[0].0;
    assert_eq!(
        dispatches[0].to_string(),
        format!(
            "binary op=+ src0_dense=true addend=dense | src0 f32 arena 0 shared, src1 f32 buffer {buffer} read, \
             dst f32 arena 0 write | src0_offset=0 src1_offset=0 dst_offset=32 count=16 | 1x1x1 of 64"
        )
    );
}
