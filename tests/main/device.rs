//! Devices themselves: names, buffers, programs, errors, and what a steady run costs.

use crate::devices::{all, cpu, devices, gpus, open_devices, unfused};
use crate::rig::{Rig, called};
use std::collections::HashMap;
use std::sync::Arc;
use wgfuse::device::{ComputeError, Context, Device, DeviceError, Program};
use wgfuse::gpu::{self, GpuDevice};
use wgfuse::graph::{BufferClass, DType, Graph, LeafKind, Op, OpKind, TensorId};
use wgfuse::plan::{BufferId, Leaves, Place, Placement, Plan, Slot, plan};

#[test]
fn names_are_unique_and_open() {
    assert_eq!((cpu().info().name.as_str(), cpu().info().backend), ("CPU", "CPU"));
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
    for device in all() {
        for size in [0, 1, 2, 3, 4, 5, 10, 17, 64, 1000] {
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
                assert_eq!(read, mirror[at..], "{} of {size} bytes after {start}+{length}", called(&device));
            }
            device.destroy_buffer(id);
            assert_ne!(device.create_buffer(BufferClass::Cache, 0).unwrap(), id, "ids are not used again");
        }
    }
}

#[test]
fn long_reads_take_several_steps() {
    for device in all() {
        // More than one copy to the host moves.
        let size = (64 << 20) + 4099;
        let id = device.create_buffer(BufferClass::Computed, size).unwrap();
        let pattern: Vec<u8> = (0..size).map(|i| (i / 3 + i / 65_537) as u8).collect();
        device.write(id, 0, &pattern).unwrap();
        let mut bytes = vec![0; size - 3];
        device.read(id, 3, &mut bytes).unwrap();
        assert!(bytes == pattern[3..], "{}", called(&device));
        device.destroy_buffer(id);
    }
}

#[test]
fn ranges_outside_buffers_are_refused() {
    for device in all() {
        let id = device.create_buffer(BufferClass::Weight, 10).unwrap();
        let outside = |start, end| Err(DeviceError::OutOfBounds { start, end, size: 10 });
        assert_eq!(device.write(id, 8, &[0; 3]), outside(8, 11));
        assert_eq!(device.read(id, 8, &mut [0; 3]), outside(8, 11));
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
        assert_eq!(device.write(id, 0, &[0]), Err(DeviceError::UnknownBuffer(id)));
    }
}

#[test]
fn buffers_too_large_are_refused() {
    for device in all() {
        let limit = device.limits().max_buffer_bytes;
        for bytes in [limit + 1, usize::MAX] {
            let error = device.create_buffer(BufferClass::Weight, bytes).unwrap_err();
            let DeviceError::OutOfMemory { bytes: named, reason } = error else { panic!("{error}") };
            assert_eq!(named, bytes);
            assert!(reason.contains(&limit.to_string()), "{reason}");
        }
        for bytes in [isize::MAX as usize, 1 << 62] {
            let refused = device.create_buffer(BufferClass::Weight, bytes);
            assert!(matches!(refused, Err(DeviceError::OutOfMemory { .. })), "{}", called(&device));
        }
    }
}

/// A graph of one ADD, and the weight that it adds.
fn addition() -> (Rig, TensorId) {
    let mut rig = Rig::default();
    let (a, b) = (rig.input([16, 1, 1, 1]), rig.weight([16, 1, 1, 1]));
    rig.want(Op::Add, &[a, b]);
    (rig, b)
}

/// A plan whose weight is then put elsewhere, where the planner itself would refuse to have it.
fn plan_with_weight_at(device: &dyn Device, graph: &Graph, weight: TensorId, buffer: BufferId, offset: usize) -> Plan {
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
    for device in all() {
        let (rig, weight) = addition();
        let graph = Arc::new(rig.graph);
        let buffer = device.create_buffer(BufferClass::Weight, 64).unwrap();
        let planned = |buffer, offset| Arc::new(plan_with_weight_at(&*device, &graph, weight, buffer, offset));
        let load = |buffer, offset, arenas: &[BufferId]| device.load(&graph, &planned(buffer, offset), arenas).err();
        let size = planned(buffer, 0).placement.arenas()[0];
        let arena = device.create_buffer(BufferClass::Computed, size).unwrap();
        let small = device.create_buffer(BufferClass::Computed, 8).unwrap();
        let missing = BufferId(u32::MAX);

        assert_eq!(load(buffer, 0, &[arena]), None);
        assert_eq!(load(missing, 0, &[arena]), Some(DeviceError::UnknownBuffer(missing)));
        assert_eq!(load(buffer, 0, &[missing]), Some(DeviceError::UnknownBuffer(missing)));
        assert_eq!(load(buffer, 4, &[arena]), Some(DeviceError::OutOfBounds { start: 4, end: 68, size: 64 }));
        assert!(matches!(load(buffer, 0, &[small]), Some(DeviceError::OutOfBounds { start: 0, size: 8, .. })));
        assert!(matches!(load(buffer, 0, &[]), Some(DeviceError::Driver { .. } | DeviceError::Plan { .. })));
        assert!(matches!(load(buffer, 2, &[arena]), Some(DeviceError::OutOfBounds { .. })));
        [buffer, arena, small].into_iter().for_each(|id| device.destroy_buffer(id));
    }
}

#[test]
fn the_cpu_device_refuses_plans_of_other_graphs() {
    let device = cpu();
    let (rig, weight) = addition();
    let buffer = device.create_buffer(BufferClass::Weight, 64).unwrap();
    let plan = Arc::new(plan_with_weight_at(&*device, &rig.graph, weight, buffer, 0));
    let arena = device.create_buffer(BufferClass::Computed, plan.placement.arenas()[0]).unwrap();
    let refused = device.load(&Arc::new(Graph::new()), &plan, &[arena]);
    assert!(matches!(refused, Err(DeviceError::Plan { .. })));
}

#[test]
fn an_offset_within_an_element_is_unsupported() {
    for device in gpus() {
        let (rig, weight) = addition();
        let graph = Arc::new(rig.graph);
        let buffer = device.create_buffer(BufferClass::Weight, 80).unwrap();
        let plan = Arc::new(plan_with_weight_at(&*device, &graph, weight, buffer, 6));
        let arena = device.create_buffer(BufferClass::Computed, plan.placement.arenas()[0]).unwrap();
        let error = device.load(&graph, &plan, &[arena]).err();
        assert!(matches!(error, Some(DeviceError::Unsupported { op: OpKind::Add, .. })), "{error:?}");
        [buffer, arena].into_iter().for_each(|id| device.destroy_buffer(id));
    }
}

/// A cache that each run raises by one.
fn counter() -> (Rig, TensorId) {
    let mut rig = Rig::default();
    let cache = rig.given(LeafKind::Cache, DType::F32, [1000, 1, 1, 1], &[1.0; 1000]);
    let raised = rig.op(Op::Scale { scale: 1.0, bias: 1.0, in_place: true }, &[cache]);
    rig.written(raised, cache);
    (rig, cache)
}

#[test]
fn programs_keep_destroyed_buffers_and_run_again() {
    let (rig, cache) = counter();
    for device in all() {
        let mut loaded = rig.load(&device, unfused()).unwrap();
        assert_eq!(loaded.step().unwrap()[0].all, [2.0; 1000]);
        let mut run = loaded.context.prepare(&loaded.graph, &loaded.leaves).unwrap();
        run.run().unwrap();
        let mut bytes = [0; 4000];
        run.read(cache, &mut bytes).unwrap();
        assert_eq!(bytes[..4], 3f32.to_le_bytes());
        loaded.buffers.clear();
        run.run().unwrap();
        assert!(matches!(run.read(cache, &mut bytes), Err(ComputeError::Device(DeviceError::UnknownBuffer(_)))));
        let mut context = Context::with_options(device, unfused());
        let refused = context.prepare(&loaded.graph, &loaded.leaves).err();
        assert!(matches!(refused, Some(ComputeError::Device(DeviceError::UnknownBuffer(_)))), "{refused:?}");
    }
}

#[test]
fn programs_that_share_buffers_run_from_many_threads() {
    let (rig, cache) = counter();
    for device in all() {
        let mut loaded = rig.load(&device, unfused()).unwrap();
        loaded.step().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut context = Context::with_options(Arc::clone(&device), unfused());
                let (graph, leaves) = (&loaded.graph, &loaded.leaves);
                scope.spawn(move || (0..25).for_each(|_| context.prepare(graph, leaves).unwrap().run().unwrap()));
            }
        });
        let run = loaded.context.prepare(&loaded.graph, &loaded.leaves).unwrap();
        let mut bytes = [0; 4000];
        run.read(cache, &mut bytes).unwrap();
        assert_eq!(bytes, bytemuck::cast::<[f32; 1000], [u8; 4000]>([102.0; 1000]), "{}", called(&device));
    }
}

#[test]
fn threads_share_a_device() {
    for device in all() {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = &device;
                scope.spawn(move || {
                    let mut rig = Rig::default();
                    let a = rig.leaf(LeafKind::Input, DType::F16, [301, 5 + thread, 1, 1]);
                    let b = rig.input([301, 5 + thread, 1, 1]);
                    rig.want(Op::Add, &[a, b]);
                    (0..5).for_each(|_| rig.check_on(std::slice::from_ref(device)));
                });
            }
        });
    }
}

#[test]
fn a_program_outlives_its_device() {
    let Some(name) = devices().last().map(|device| device.info().name.clone()) else { return };
    let device = GpuDevice::open(Some(&name)).unwrap();
    let (rig, weight) = addition();
    let graph = Arc::new(rig.graph);
    let buffer = device.create_buffer(BufferClass::Weight, 64).unwrap();
    let plan = Arc::new(plan_with_weight_at(&*device, &graph, weight, buffer, 0));
    let arena = device.create_buffer(BufferClass::Computed, plan.placement.arenas()[0]).unwrap();
    let mut program: Box<dyn Program> = device.load(&graph, &plan, &[arena]).unwrap();
    [buffer, arena].into_iter().for_each(|id| device.destroy_buffer(id));
    drop(device);
    assert_eq!(program.run(), Ok(()));
}

#[test]
fn a_steady_run_makes_no_objects() {
    let mut rig = Rig::default();
    // Odd counts of halves are written in parts of words.
    let x = rig.leaf(LeafKind::Input, DType::F16, [7, 3, 1, 1]);
    let (weight, cache) = (rig.weight([7, 1, 1, 1]), rig.cache([7, 3, 1, 1]));
    let product = rig.op(Op::Mul, &[x, weight]);
    let copy = rig.op(Op::Cpy, &[product, cache]);
    rig.written(copy, cache);
    rig.want(Op::SumRows, &[cache]);
    // Devices of its own: other tests make objects on the shared ones meanwhile.
    for gpu in open_devices() {
        let device: Arc<dyn Device> = gpu.clone();
        let mut loaded = rig.load(&device, unfused()).unwrap();
        let first = loaded.step().unwrap();
        let objects = gpu.objects_created();
        for _ in 0..3 {
            assert!(loaded.step().unwrap() == first, "{}", called(&device));
        }
        assert_eq!(gpu.objects_created(), objects, "{}", called(&device));
    }
}

#[test]
fn loading_again_compiles_nothing() {
    let (rig, _) = addition();
    for gpu in open_devices() {
        let device: Arc<dyn Device> = gpu.clone();
        let objects = || {
            let before = gpu.objects_created();
            drop(rig.load(&device, unfused()).unwrap());
            gpu.objects_created() - before
        };
        let (first, second) = (objects(), objects());
        // Two buffers and a bind group, which belong to the load.
        assert!(first > 3 && second == 3, "{}: {first}, then {second}", called(&device));
    }
}

#[test]
fn a_dispatch_prints_as_one_line() {
    let Some(device) = devices().first() else { return };
    let (rig, weight) = addition();
    let plan = plan_with_weight_at(&**device, &rig.graph, weight, BufferId(7), 0);
    let dispatches = device.encode(&rig.graph, &plan).unwrap();
    assert_eq!(
        dispatches[0].to_string(),
        "binary op=+ src0_dense=true addend=dense | src0 f32 arena 0 shared, src1 f32 buffer 7 read, dst f32 arena 0 \
         write | src0_offset=0 src1_offset=0 dst_offset=32 count=16 | 1x1x1 of 64"
    );
}
