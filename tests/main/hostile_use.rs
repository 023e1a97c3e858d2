//! Misuse of the public interface: every answer is a result or a typed error.

use crate::devices::{devices, open_devices};
use crate::rig::Rig;
use crate::support::{LIMITS, leaves};
use std::sync::Arc;
use std::thread;
use wgfuse::cpu::CpuDevice;
use wgfuse::device::{ComputeError, Context, Device, DeviceBuffer, DeviceError};
use wgfuse::fusion::{FusionConfig, Matcher, Mode, Sequence};
use wgfuse::graph::{BufferClass, DType, Graph, GraphError, LeafKind, Op, OpKind, TensorId};
use wgfuse::model::{Dummy, GraphInputs, ModelError};
use wgfuse::plan::{
    BufferId, Fault, Group, Leaves, Place, Placement, Plan, PlanError, PlanOptions, Slot, plan, plan_placed, prove,
};
use wgfuse::runtime::{DeviceModel, Outputs, Session, SessionError, SessionOptions};

const ROW: [usize; 4] = [64, 1, 1, 1];

fn cpu() -> Arc<dyn Device> {
    Arc::new(CpuDevice::new(FusionConfig::default()))
}

/// The CPU device and every GPU here.
fn all_devices() -> Vec<Arc<dyn Device>> {
    std::iter::once(cpu()).chain(devices().iter().map(|gpu| gpu.clone() as Arc<dyn Device>)).collect()
}

/// `rms_norm(x) · w + w + … + w` of so many elements, with the ids of `x`, `w` and the result.
fn sum(elements: usize, terms: usize) -> (Arc<Graph>, [TensorId; 3]) {
    let mut b = Rig::default();
    let ne = [elements, 1, 1, 1];
    let (x, w) = (b.input(ne), b.weight(ne));
    let normed = b.rms_norm(x);
    let mut sum = b.op(Op::Mul, &[normed, w]);
    for _ in 0..terms {
        sum = b.op(Op::Add, &[sum, w]);
    }
    (Arc::new(b.done(&[sum])), [x, w, sum])
}

/// Weights and caches, each in a buffer of its own, filled with `value`.
fn place(device: &Arc<dyn Device>, graph: &Graph, value: f32) -> (Leaves, Vec<DeviceBuffer>) {
    let mut leaves = Leaves::new();
    let mut buffers = Vec::new();
    for &id in graph.leaves().iter().filter(|&&id| graph.class(id) != BufferClass::Computed) {
        let bytes = graph.tensor(id).layout().extent();
        let buffer = DeviceBuffer::new(device, graph.class(id), bytes).unwrap();
        if graph.tensor(id).dtype() == DType::F32 {
            device.write(buffer.id(), 0, bytemuck::cast_slice(&vec![value; bytes / 4])).unwrap();
        }
        leaves.insert(id, Slot { place: Place::Buffer(buffer.id()), offset: 0, bytes });
        buffers.push(buffer);
    }
    (leaves, buffers)
}

/// Runs a [`sum`] of equal weights and checks every element.
fn check_sum(context: &mut Context, leaves: &Leaves, (graph, [x, _, result]): &(Arc<Graph>, [TensorId; 3]), w: f32) {
    let elements = graph.tensor(*x).ne()[0];
    let terms = graph.nodes().len() as f32 - 2.0;
    let mut run = context.prepare(graph, leaves).unwrap();
    run.write(*x, bytemuck::cast_slice(&vec![3.0f32; elements])).unwrap();
    run.run().unwrap();
    let mut found = vec![0f32; elements];
    run.read(*result, bytemuck::cast_slice_mut(&mut found)).unwrap();
    // Equal elements have a norm of one.
    let expected = w * (1.0 + terms);
    assert!(found.iter().all(|&y| (y - expected).abs() < 1e-4 * expected.abs()), "{} instead of {expected}", found[0]);
}

/// An id that only a larger graph has.
fn foreign() -> TensorId {
    let mut b = Rig::default();
    (0..500).map(|_| b.weight(ROW)).last().unwrap()
}

fn refused<T>(result: Result<T, GraphError>) -> GraphError {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error,
    }
}

#[test]
fn foreign_ids_are_refused_by_graphs() {
    let mut b = Rig::default();
    let x = b.input(ROW);
    let unknown = GraphError::Unknown(foreign());
    assert_eq!(refused(b.graph.add(x, foreign())), unknown);
    assert_eq!(refused(b.graph.view(foreign(), ROW, [4, 256, 256, 256], 0)), unknown);
    assert_eq!(b.graph.expand(foreign()), Err(unknown.clone()));
    assert_eq!(b.graph.set_output(foreign()), Err(unknown.clone()));
    assert_eq!(b.graph.set_name(foreign(), "x"), Err(unknown));
    assert_eq!((b.graph.get(foreign()), b.graph.uses(foreign())), (None, 0));
    assert!(!b.graph.is_expanded(foreign()));
}

#[test]
fn foreign_ids_are_refused_by_plans() {
    let (graph, [_, w, _]) = sum(64, 2);
    let given = leaves(&graph);
    let mut with_foreign = given.clone();
    with_foreign.insert(foreign(), given[&w]);
    let plan = plan(&graph, &with_foreign, &LIMITS, &PlanOptions::default()).unwrap();
    assert_eq!(plan.placement.slot(&graph, foreign()), None);
    assert_eq!(plan.placement.slot(&Graph::new(), w), None);

    let lost = Group::single(foreign());
    let inside = Group { fusion: plan.groups[0].fusion, nodes: vec![foreign(); plan.groups[0].nodes.len()] };
    for group in [lost, inside] {
        let faults = prove(&graph, &plan.placement, &[group]);
        assert!(matches!(faults[..], [Fault::Unstored { node, .. }] if node == foreign()), "{faults:?}");
    }
    // A listing for another graph says nothing of use, but says it.
    assert!(plan.listing(&Graph::new()).contains("NONE"));
    assert!(Sequence::new(&graph, &[foreign()], Mode::Full).nodes().is_empty());

    let slots = [(foreign(), given[&w])].into_iter().collect();
    let elsewhere = Placement::new(&graph, &slots, vec![]);
    let error = plan_placed(&graph, &elsewhere, &LIMITS, &PlanOptions::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error, PlanError::Unstored { .. }), "{error}");
}

#[test]
fn foreign_ids_and_plans_are_refused_by_devices() {
    for device in all_devices() {
        let case = sum(64, 3);
        let (graph, [x, _, result]) = &case;
        let (mut given, _buffers) = place(&device, graph, 0.5);
        given.insert(foreign(), given.values().next().copied().unwrap());
        let mut context = Context::new(Arc::clone(&device));
        let mut run = context.prepare(graph, &given).unwrap();
        let inaccessible = |error: ComputeError| matches!(error, ComputeError::NotAccessible { .. });
        assert!(inaccessible(run.write(foreign(), &[0; 256]).unwrap_err()));
        assert!(inaccessible(run.read(foreign(), &mut [0; 256]).unwrap_err()));
        assert!(inaccessible(run.write(*result, &[0; 256]).unwrap_err()));
        assert!(inaccessible(run.read(*x, &mut [0; 256]).unwrap_err()));
        assert!(matches!(run.write(*x, &[0; 255]), Err(ComputeError::Length { expected: 256, given: 255, .. })));
        run.run().unwrap();
        assert!(matches!(run.read(*result, &mut [0; 260]), Err(ComputeError::Length { .. })));
        check_sum(&mut context, &given, &case, 0.5);

        // The plan of another graph: of a larger one, and of one whose nodes are others.
        let plan = Arc::new(plan(graph, &given, &device.limits(), &PlanOptions::default()).unwrap());
        let arenas = plan.placement.arenas().iter();
        let arenas = arenas.map(|&bytes| DeviceBuffer::new(&device, BufferClass::Computed, bytes).unwrap());
        let arenas: Vec<DeviceBuffer> = arenas.collect();
        let ids: Vec<BufferId> = arenas.iter().map(DeviceBuffer::id).collect();
        let refused = device.load(&Arc::new(Graph::new()), &plan, &ids).err();
        assert!(matches!(refused, Some(DeviceError::Plan { .. })), "{}: {refused:?}", device.info().name);
        let mut other = Rig::default();
        let (a, b) = (other.input([8, 8, 1, 1]), other.input([8, 1, 1, 1]));
        let products: Vec<TensorId> = (0..8).map(|_| other.op(Op::MUL_MAT, &[a, b])).collect();
        let refused = device.load(&Arc::new(other.done(&products)), &plan, &ids).err();
        assert!(refused.is_some(), "{}", device.info().name);
    }
}

/// Graphs share memory, so that what another left there must not pass for a result.
#[test]
fn results_cannot_be_read_before_a_run() {
    for device in all_devices() {
        let cases = [sum(64, 3), sum(48, 2)];
        let mut context = Context::new(Arc::clone(&device));
        for (graph, [_, _, result]) in cases.iter().cycle().take(4) {
            let (given, _buffers) = place(&device, graph, 0.5);
            let mut bytes = vec![0; graph.tensor(*result).layout().extent()];
            let mut run = context.prepare(graph, &given).unwrap();
            assert!(matches!(run.read(*result, &mut bytes), Err(ComputeError::NotRun { .. })));
            run.run().unwrap();
            assert_eq!(run.read(*result, &mut bytes), Ok(()));
        }
    }
}

#[test]
fn a_view_that_is_not_run_cannot_be_read() {
    for device in all_devices() {
        let mut b = Rig::default();
        let x = b.input(ROW);
        let square = b.op(Op::Sqr, &[x]);
        let unseen = b.view(square, [32, 1, 1, 1], 0);
        let mut last = square;
        for _ in 0..4 {
            last = b.op(Op::Sqr, &[last]);
        }
        b.graph.set_output(unseen).unwrap();
        let graph = Arc::new(b.done(&[last]));
        let mut context = Context::new(Arc::clone(&device));
        let mut run = context.prepare(&graph, &Leaves::new()).unwrap();
        run.write(x, &[0; 256]).unwrap();
        run.run().unwrap();
        // The owner's memory holds something else by now.
        assert!(matches!(run.read(unseen, &mut [0; 128]), Err(ComputeError::NotAccessible { .. })));
        assert_eq!(run.read(last, &mut [0; 256]), Ok(()));
    }
}

#[test]
fn sizes_that_overflow_are_refused() {
    let huge = usize::MAX / 8 * 4;
    let mut b = Rig::default();
    assert!(matches!(b.graph.leaf("x", LeafKind::Input, DType::F32, [huge; 4]), Err(GraphError::Size { .. })));
    assert!(matches!(b.graph.leaf("x", LeafKind::Input, DType::F16, [huge, 1, 1, 1]), Err(GraphError::Size { .. })));
    let x = b.input(ROW);
    assert!(b.graph.repeat(x, [64, huge, 1, 1]).is_err());
    assert!(b.graph.reshape(x, [huge, huge, huge, 0]).is_err());
    assert!(b.graph.cont(x, [huge, 2, 2, 2]).is_err());
    let far = [4, huge, huge, huge];
    assert!(matches!(b.graph.view(x, ROW, far, huge), Err(GraphError::OutOfBounds { .. })));
    assert!(b.graph.view(x, [64, 2, 2, 2], far, 0).is_err());
    assert!(matches!(b.graph.view(x, ROW, [4, 256, 256, 256], 4), Err(GraphError::OutOfBounds { .. })));
    assert!(matches!(b.graph.view(x, ROW, [4, 256, 256, 256], 2), Err(GraphError::Parameter { .. })));
    // Without strides, a few bytes would stand for any number of elements.
    for ne in [[65, 1, 1, 1], [64, 2, 1, 1], [1, 1, 1, 1 << 40], [1 << 60, 1, 1, 1]] {
        assert!(matches!(b.graph.view(x, ne, [0; 4], 0), Err(GraphError::Parameter { name: "ne", .. })), "{ne:?}");
    }
    assert!(b.graph.view(x, [8, 8, 1, 1], [4, 0, 0, 0], 0).is_ok());
    // A view of a view cannot leave the owner's memory either.
    let inner = b.view(x, [32, 1, 1, 1], 128);
    assert!(matches!(b.graph.view(inner, ROW, [4, 256, 256, 256], 0), Err(GraphError::OutOfBounds { .. })));
}

#[test]
fn more_memory_than_there_is_is_refused() {
    // Beyond what any machine maps for one process.
    let rows = 1 << 44;
    for device in all_devices() {
        let mut b = Rig::default();
        let x = b.input(ROW);
        let wide = b.op(Op::Repeat { ne: [64, rows, 1, 1] }, &[x]);
        let last = b.op(Op::SumRows, &[wide]);
        let graph = Arc::new(b.done(&[last]));
        let error = Context::new(Arc::clone(&device)).prepare(&graph, &Leaves::new()).err();
        let typed = matches!(
            error,
            Some(
                ComputeError::Plan(PlanError::TooLarge { .. }) | ComputeError::Device(DeviceError::OutOfMemory { .. })
            )
        );
        assert!(typed, "{}: {error:?}", device.info().name);
    }
}

#[test]
fn weights_are_never_written() {
    let constant = |error: GraphError, expected: OpKind| {
        assert!(matches!(error, GraphError::Constant { op, .. } if op == expected), "{error}");
    };
    let mut b = Rig::default();
    let (x, w) = (b.input(ROW), b.weight(ROW));
    let part = b.view(w, ROW, 0);
    let ids = b.leaf(LeafKind::Input, DType::I64, [1; 4]);
    for target in [w, part] {
        constant(refused(b.graph.cpy(x, target)), OpKind::Cpy);
        constant(refused(b.graph.set_rows(x, ids, target)), OpKind::SetRows);
        constant(refused(b.graph.scale_in_place(target, 2.0, 0.0)), OpKind::Scale);
    }
    // Reading them in every way is what they are for.
    assert!(b.graph.scale(w, 2.0, 0.0).is_ok() && b.graph.cpy(w, x).is_ok());
    for kind in [LeafKind::Input, LeafKind::Cache] {
        let leaf = b.leaf(kind, DType::F32, ROW);
        assert!(b.graph.cpy(x, leaf).is_ok() && b.graph.scale_in_place(leaf, 2.0, 0.0).is_ok());
    }
}

#[test]
fn overlapping_elements_are_never_written() {
    let mut b = Rig::default();
    let x = b.input([8, 8, 1, 1]);
    let cache = b.cache([64, 1, 1, 1]);
    let ids = b.leaf(LeafKind::Input, DType::I64, [8, 1, 1, 1]);
    let mut view = |nb: [usize; 4]| b.graph.view(cache, [8, 8, 1, 1], nb, 0).unwrap();
    let (same_row, shifted) = (view([4, 0, 0, 0]), view([4, 16, 0, 0]));
    let (dense, turned) = (view([4, 32, 0, 0]), view([32, 4, 0, 0]));
    for target in [same_row, shifted] {
        assert!(matches!(b.graph.cpy(x, target), Err(GraphError::Source { op: OpKind::Cpy, index: 1, .. })));
        assert!(matches!(b.graph.set_rows(x, ids, target), Err(GraphError::Source { index: 2, .. })));
        assert!(matches!(b.graph.scale_in_place(target, 2.0, 0.0), Err(GraphError::Source { index: 0, .. })));
        assert!(b.graph.cont(target, [64, 1, 1, 1]).is_ok(), "it may be read");
    }
    for target in [dense, turned] {
        assert!(b.graph.cpy(x, target).is_ok() && b.graph.scale_in_place(target, 2.0, 0.0).is_ok());
    }
}

#[test]
fn copies_never_cut_integers() {
    let mut b = Rig::default();
    let (wide, narrow) = (b.leaf(LeafKind::Cache, DType::I64, ROW), b.leaf(LeafKind::Cache, DType::I32, ROW));
    assert!(matches!(b.graph.cpy(wide, narrow), Err(GraphError::Source { op: OpKind::Cpy, index: 1, .. })));
    assert!(b.graph.cpy(narrow, wide).is_ok());
}

#[test]
fn leaves_must_have_fitting_memory() {
    for device in all_devices() {
        let case = sum(64, 2);
        let (graph, [_, w, _]) = &case;
        let (good, buffers) = place(&device, graph, 1.0);
        let slot = good[w];
        let mut context = Context::new(Arc::clone(&device));
        let mut refused = |slot: Option<Slot>| {
            let leaves = slot.map(|slot| (*w, slot)).into_iter().collect();
            context.prepare(graph, &leaves).map(|_| ()).unwrap_err()
        };
        use ComputeError::{Device as Failed, Plan as NoPlan};
        assert!(matches!(refused(None), NoPlan(PlanError::Unplaced { .. })));
        assert!(matches!(refused(Some(Slot { bytes: 252, ..slot })), NoPlan(PlanError::SlotSize { .. })));
        assert!(matches!(refused(Some(Slot { offset: 4, ..slot })), NoPlan(PlanError::SlotAlignment { .. })));
        assert!(matches!(refused(Some(Slot { offset: usize::MAX - 255, ..slot })), NoPlan(PlanError::SlotSize { .. })));
        let in_arena = Slot { place: Place::Arena(0), ..slot };
        assert!(matches!(refused(Some(in_arena)), NoPlan(PlanError::LeafInArena { .. })));
        let outside = refused(Some(Slot { offset: 256, ..slot }));
        assert!(matches!(outside, Failed(DeviceError::OutOfBounds { .. })), "{outside}");
        let nowhere = refused(Some(Slot { place: Place::Buffer(BufferId(u32::MAX)), ..slot }));
        assert!(matches!(nowhere, Failed(DeviceError::UnknownBuffer(_))), "{nowhere}");

        // None of this is remembered, and a buffer that is given back is gone for new plans only.
        check_sum(&mut context, &good, &case, 1.0);
        drop(buffers);
        check_sum(&mut context, &good, &case, 1.0);
        let refused = Context::new(Arc::clone(&device)).prepare(graph, &good).map(|_| ());
        assert!(matches!(refused, Err(Failed(DeviceError::UnknownBuffer(_)))), "{refused:?}");
    }
}

#[test]
fn written_leaves_may_not_share_memory() {
    let mut b = Rig::default();
    let x = b.input(ROW);
    let (one, two, w) = (b.cache(ROW), b.cache(ROW), b.weight(ROW));
    let written = b.op(Op::Cpy, &[x, one]);
    let read = b.op(Op::Add, &[two, w]);
    let graph = b.done(&[written, read]);
    let at = |offset| Slot { place: Place::Buffer(BufferId(0)), offset, bytes: 256 };
    let plan = |places: [usize; 3]| {
        let leaves = [one, two, w].into_iter().zip(places.map(at)).collect();
        plan(&graph, &leaves, &LIMITS, &PlanOptions::default()).map(|_: Plan| ())
    };
    assert_eq!(plan([0, 256, 512]), Ok(()));
    assert_eq!(plan([0, 256, 256]), Ok(()), "what is only read may be shared");
    for places in [[0, 0, 512], [256, 512, 256]] {
        assert!(matches!(plan(places), Err(PlanError::SharedLeaves { .. })), "{places:?}");
    }
}

#[test]
fn outputs_may_share_memory() {
    for device in all_devices() {
        let mut b = Rig::default();
        let x = b.input(ROW);
        let square = b.op(Op::Sqr, &[x]);
        let halves = [0, 128].map(|offset| b.view(square, [32, 1, 1, 1], offset));
        let scaled = b.op(Op::Scale { scale: 2.0, bias: 0.0, in_place: true }, &[halves[1]]);
        [square, halves[0], halves[1]].into_iter().for_each(|id| b.graph.set_output(id).unwrap());
        let graph = Arc::new(b.done(&[halves[0], scaled]));
        let mut context = Context::new(Arc::clone(&device));
        let mut run = context.prepare(&graph, &Leaves::new()).unwrap();
        run.write(x, bytemuck::cast_slice(&[3f32; 64])).unwrap();
        run.run().unwrap();
        let read = |id: TensorId| {
            let mut found = vec![0f32; graph.tensor(id).layout().elements()];
            run.read(id, bytemuck::cast_slice_mut(&mut found)).unwrap();
            found
        };
        assert_eq!(read(square), [[9f32; 32], [18.0; 32]].concat(), "{}", device.info().name);
        assert_eq!((read(halves[0]), read(halves[1]), read(scaled)), (vec![9.0; 32], vec![18.0; 32], vec![18.0; 32]));
    }
}

#[test]
fn graphs_without_anything_run() {
    for device in all_devices() {
        let mut context = Context::new(Arc::clone(&device));
        let empty = Arc::new(Graph::new());
        assert_eq!(context.prepare(&empty, &Leaves::new()).unwrap().run(), Ok(()));
        let mut b = Rig::default();
        let x = b.input([64, 0, 1, 1]);
        let y = b.rms_norm(x);
        let graph = Arc::new(b.done(&[y]));
        let mut run = context.prepare(&graph, &Leaves::new()).unwrap();
        assert_eq!((run.write(x, &[]), run.run(), run.read(y, &mut [])), (Ok(()), Ok(()), Ok(())));
    }
}

#[test]
fn more_graphs_than_a_context_remembers() {
    for device in all_devices() {
        // Each larger than the one before, so that arenas grow while older programs live.
        let cases: Vec<_> = (1..=24).map(|size| sum(64 * size, size)).collect();
        let placed: Vec<_> = cases.iter().zip(1u8..).map(|(case, w)| place(&device, &case.0, w.into())).collect();
        let mut context = Context::new(Arc::clone(&device));
        for order in [(0..24).collect::<Vec<_>>(), (0..24).rev().collect(), vec![0, 23, 1, 0, 23, 1]] {
            for at in order {
                check_sum(&mut context, &placed[at].0, &cases[at], at as f32 + 1.0);
            }
        }
        let (hits, misses) = context.plan_hits_and_misses();
        // The second pass finds the last sixteen, the third all but graphs 23 and 1 once.
        assert_eq!(hits + misses, 54);
        assert!(hits >= 16 && misses >= 32, "{hits} {misses}");
    }
}

#[test]
fn many_contexts_share_a_device() {
    for device in all_devices() {
        let case = sum(128, 4);
        let placed: Vec<_> = (1u8..=40).map(|w| place(&device, &case.0, w.into())).collect();
        let mut contexts: Vec<Context> = placed.iter().map(|_| Context::new(Arc::clone(&device))).collect();
        for _ in 0..2 {
            for ((context, (leaves, _)), w) in contexts.iter_mut().zip(&placed).zip(1u8..) {
                check_sum(context, leaves, &case, w.into());
            }
        }
        drop(contexts.drain(..20));
        check_sum(&mut contexts[0], &placed[20].0, &case, 21.0);
    }
}

fn model(arch: &str) -> Arc<wgfuse::model::Model> {
    Arc::new(Dummy::new(arch, arch.contains("3next"), 1).unwrap().model().unwrap())
}

fn session(device: &Arc<dyn Device>, arch: &str, n_ctx: usize) -> Result<Session, SessionError> {
    let model = DeviceModel::upload(model(arch), Arc::clone(device))?;
    Session::new(Arc::new(model), SessionOptions { n_ctx: Some(n_ctx), plan: None })
}

#[test]
fn tokens_and_batches_that_do_not_fit_are_refused() {
    for device in all_devices() {
        let mut session = session(&device, "llama", 4).unwrap();
        let n_vocab = model("llama").hparams().n_vocab as i32;
        let first = session.decode(&[1], Outputs::Last).unwrap().to_vec();
        let second = session.decode(&[2], Outputs::Last).unwrap().to_vec();
        session.reset();
        assert_eq!(session.decode(&[1], Outputs::Last).unwrap(), first);
        for (tokens, at) in [(vec![-1], 0), (vec![0, n_vocab], 1), (vec![i32::MAX; 9], 0), (vec![i32::MIN], 0)] {
            let error = session.decode(&tokens, Outputs::All).unwrap_err();
            assert!(matches!(error, SessionError::Token { index, .. } if index == at), "{error}");
        }
        assert!(matches!(session.decode(&[], Outputs::Last), Err(SessionError::EmptyBatch)));
        let full = session.decode(&[0; 4], Outputs::All).map(|_| ());
        assert!(matches!(full, Err(SessionError::ContextFull { n_past: 1, n_tokens: 4, n_ctx: 4 })), "{full:?}");
        // None of it moved the session.
        assert_eq!(session.n_past(), 1);
        assert_eq!(session.decode(&[2], Outputs::Last).unwrap(), second);
        assert!(session.decode(&[3, 4], Outputs::All).is_ok());
        assert!(matches!(session.decode(&[5], Outputs::Last), Err(SessionError::ContextFull { .. })));
    }
}

#[test]
fn a_batch_too_large_for_the_device_changes_nothing() {
    for device in all_devices().into_iter().skip(1) {
        let mut session = session(&device, "llama", 1 << 17).unwrap();
        session.decode(&[1], Outputs::Last).unwrap();
        let expected = session.decode(&[2], Outputs::Last).unwrap().to_vec();
        session.reset();
        session.decode(&[1], Outputs::Last).unwrap();
        // A mask of so many tokens by so many cells has more bytes than any device binds.
        let error = session.decode(&vec![0; 1 << 16], Outputs::Last).unwrap_err();
        let typed = matches!(
            error,
            SessionError::Compute(
                ComputeError::Plan(PlanError::TooLarge { .. }) | ComputeError::Device(DeviceError::OutOfMemory { .. })
            )
        );
        assert!(typed, "{}: {error}", device.info().name);
        assert_eq!(session.n_past(), 1);
        assert_eq!(session.decode(&[2], Outputs::Last).unwrap(), expected);
    }
}

#[test]
fn contexts_of_every_length() {
    for device in all_devices() {
        let mut none = session(&device, "llama", 0).unwrap();
        assert!(matches!(none.decode(&[1], Outputs::Last), Err(SessionError::ContextFull { n_ctx: 0, .. })));
        let mut one = session(&device, "qwen3next", 1).unwrap();
        assert!(one.decode(&[1], Outputs::All).is_ok());
        assert!(matches!(one.decode(&[1], Outputs::All), Err(SessionError::ContextFull { .. })));
        let learned = model("gpt2").hparams().n_ctx_train;
        assert!(session(&device, "gpt2", learned).unwrap().decode(&[1], Outputs::Last).is_ok());
        let beyond = session(&device, "gpt2", learned + 1).and_then(|mut s| s.decode(&[1], Outputs::Last).map(|_| ()));
        assert!(matches!(beyond, Err(SessionError::Model(ModelError::Positions { .. }))), "{beyond:?}");
        for n_ctx in [1 << 40, i32::MAX as usize + 1, usize::MAX / 64, usize::MAX] {
            for arch in ["llama", "qwen3next"] {
                let error = session(&device, arch, n_ctx).err().map(|error| error.to_string());
                assert!(error.is_some(), "{}: {n_ctx} tokens", device.info().name);
            }
        }
    }
}

#[test]
fn a_batch_without_outputs_runs() {
    for device in all_devices() {
        for arch in ["llama", "gemma2", "qwen3next"] {
            let batch = GraphInputs { n_tokens: 3, n_kv: 8, n_outputs: 0, fresh: true, n_ctx: 8 };
            let built = model(arch).build(&batch).unwrap();
            let graph = Arc::new(built.graph);
            let (leaves, _buffers) = place(&device, &graph, 0.1);
            let mut context = Context::new(Arc::clone(&device));
            let mut run = context.prepare(&graph, &leaves).unwrap();
            for input in &built.inputs {
                let bytes = graph.tensor(input.id).layout().extent();
                run.write(input.id, &vec![0; bytes]).unwrap();
            }
            assert_eq!((run.run(), run.read(built.logits, &mut [])), (Ok(()), Ok(())), "{}", device.info().name);
        }
    }
}

#[test]
fn sessions_on_one_device_in_several_threads() {
    for device in all_devices() {
        let model = Arc::new(DeviceModel::upload(model("gemma2"), Arc::clone(&device)).unwrap());
        let run = |seed: i32| {
            let mut session = Session::new(Arc::clone(&model), SessionOptions::default()).unwrap();
            let mut all = Vec::new();
            for step in 0..4 {
                all.extend_from_slice(session.decode(&[seed + step, step], Outputs::Last).unwrap());
            }
            all
        };
        let alone = [run(1), run(40)];
        let together: Vec<_> = thread::scope(|scope| {
            let run = &run;
            let threads = [1, 40].map(|seed| scope.spawn(move || run(seed)));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        assert!(alone[..] == together[..], "{}", device.info().name);
    }
}

#[test]
fn everything_may_be_dropped_in_any_order() {
    let fresh = || std::iter::once(cpu()).chain(open_devices().into_iter().map(|gpu| gpu as Arc<dyn Device>));
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for device in fresh() {
            let case = sum(64, 2);
            let (leaves, buffers) = place(&device, &case.0, 2.0);
            let mut context = Context::new(Arc::clone(&device));
            check_sum(&mut context, &leaves, &case, 2.0);
            let (mut device, mut buffers, mut context) = (Some(device), Some(buffers), Some(context));
            for part in order {
                match part {
                    0 => drop(device.take()),
                    1 => drop(buffers.take()),
                    _ => drop(context.take()),
                }
                if let Some(context) = &mut context {
                    check_sum(context, &leaves, &case, 2.0);
                }
            }
        }
    }
    for device in fresh() {
        let model = Arc::new(DeviceModel::upload(model("llama"), Arc::clone(&device)).unwrap());
        let mut session = Session::new(Arc::clone(&model), SessionOptions::default()).unwrap();
        session.decode(&[1, 2], Outputs::Last).unwrap();
        drop((device, model));
        // The last owner may be on another thread than the one that made it all.
        thread::spawn(move || session.decode(&[3], Outputs::Last).map(|_| ())).join().unwrap().unwrap();
    }
}

#[test]
fn options_that_make_no_sense_change_nothing() {
    for device in all_devices() {
        let case = sum(64, 20);
        let (leaves, _buffers) = place(&device, &case.0, 1.0);
        for options in [
            PlanOptions { chunks: usize::MAX, ..PlanOptions::default() },
            PlanOptions { chunks: 0, matcher: Matcher::off(), ..PlanOptions::default() },
        ] {
            check_sum(&mut Context::with_options(Arc::clone(&device), options), &leaves, &case, 1.0);
        }
    }
}
