//! A graph that is like one before allocates nothing for its plan.

use crate::CALLS;
use std::sync::Arc;
use wgfuse::cpu::CpuDevice;
use wgfuse::device::{Context, Device, DeviceBuffer};
use wgfuse::fusion::FusionConfig;
use wgfuse::graph::{Graph, LeafKind, TensorId};
use wgfuse::model::{Dummy, GraphInputs, Model};
use wgfuse::plan::{Leaves, Place, Slot};

fn step(model: &Model) -> Arc<Graph> {
    let batch = GraphInputs { n_tokens: 1, n_kv: 256, n_outputs: 1, fresh: false, n_ctx: 256 };
    Arc::new(model.build(&batch).unwrap().graph)
}

fn leaves(graph: &Graph, buffers: &[(TensorId, DeviceBuffer)]) -> Leaves {
    let slot = |(id, buffer): &(TensorId, DeviceBuffer)| {
        (*id, Slot { place: Place::Buffer(buffer.id()), offset: 0, bytes: graph.tensor(*id).layout().extent() })
    };
    buffers.iter().map(slot).collect()
}

/// Allocations of this thread while `run` runs.
fn calls(run: impl FnOnce()) -> usize {
    let before = CALLS.get();
    run();
    CALLS.get() - before
}

#[test]
fn a_plan_is_found_without_allocating() {
    let device: Arc<dyn Device> = Arc::new(CpuDevice::new(FusionConfig::default()));
    let model = Dummy::new("qwen3next", true, 1).unwrap().model().unwrap();
    let first = step(&model);
    let placed = first.leaves().iter().filter(|&&id| first.tensor(id).leaf() != Some(LeafKind::Input));
    let buffers: Vec<(TensorId, DeviceBuffer)> = placed
        .map(|&id| (id, DeviceBuffer::new(&device, first.class(id), first.tensor(id).layout().extent()).unwrap()))
        .collect();
    let leaves = leaves(&first, &buffers);
    let mut context = Context::new(device);
    assert!(calls(|| context.prepare(&first, &leaves).map(|_| ()).unwrap()) > 0);
    assert_eq!(calls(|| context.prepare(&first, &leaves).map(|_| ()).unwrap()), 0);
    // The next step's graph is another one, but alike.
    let second = step(&model);
    assert_eq!(calls(|| context.prepare(&second, &leaves).map(|_| ()).unwrap()), 0);
    assert_eq!(context.plan_hits_and_misses(), (2, 1));
}
