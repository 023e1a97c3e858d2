//! Devices that fail on demand, and fusion that is switched while contexts live.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use wgfuse::cpu::CpuDevice;
use wgfuse::device::{ComputeError, Context, Device, DeviceError, DeviceInfo, Program};
use wgfuse::fusion::{FusionConfig, FusionState, Matcher};
use wgfuse::graph::{BufferClass, DType, Graph, LeafKind, TensorId};
use wgfuse::model::{Dummy, dummy_tokens};
use wgfuse::plan::{BufferId, Leaves, Limits, Plan, PlanOptions};
use wgfuse::runtime::{DeviceModel, Outputs, Session, SessionError, SessionOptions};

/// What fails from now on.
#[derive(Default)]
struct Faults {
    load: AtomicBool,
    run: AtomicBool,
}

/// The CPU device, until it fails.
struct Fragile {
    cpu: CpuDevice,
    faults: Arc<Faults>,
}

struct FragileProgram {
    program: Box<dyn Program>,
    faults: Arc<Faults>,
}

fn fault(armed: &AtomicBool) -> Result<(), DeviceError> {
    let error = || DeviceError::Driver { device: "CPU".to_owned(), reason: "told to fail".to_owned() };
    if armed.load(Relaxed) { Err(error()) } else { Ok(()) }
}

impl Device for Fragile {
    fn info(&self) -> &DeviceInfo {
        self.cpu.info()
    }

    fn limits(&self) -> Limits {
        self.cpu.limits()
    }

    fn fusion(&self) -> &Arc<FusionState> {
        self.cpu.fusion()
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        self.cpu.supports(graph, node)
    }

    fn create_buffer(&self, class: BufferClass, bytes: usize) -> Result<BufferId, DeviceError> {
        self.cpu.create_buffer(class, bytes)
    }

    fn destroy_buffer(&self, id: BufferId) {
        self.cpu.destroy_buffer(id);
    }

    fn write(&self, id: BufferId, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.cpu.write(id, offset, bytes)
    }

    fn read(&self, id: BufferId, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.cpu.read(id, offset, bytes)
    }

    fn load(&self, graph: &Arc<Graph>, plan: &Arc<Plan>, arenas: &[BufferId]) -> Result<Box<dyn Program>, DeviceError> {
        fault(&self.faults.load)?;
        let program = self.cpu.load(graph, plan, arenas)?;
        Ok(Box::new(FragileProgram { program, faults: Arc::clone(&self.faults) }))
    }
}

impl Program for FragileProgram {
    fn run(&mut self) -> Result<(), DeviceError> {
        fault(&self.faults.run)?;
        self.program.run()
    }
}

fn session(arch: &str, device: Arc<dyn Device>) -> Session {
    let model = Dummy::new(arch, arch.contains("next"), 1).unwrap().model().unwrap();
    let model = DeviceModel::upload(Arc::new(model), device).unwrap();
    Session::new(Arc::new(model), SessionOptions::default()).unwrap()
}

#[test]
fn only_a_run_that_fails_changes_a_session() {
    for arch in ["llama", "qwen3next"] {
        let faults = Arc::new(Faults::default());
        let cpu = CpuDevice::new(FusionConfig::default());
        let mut fragile = session(arch, Arc::new(Fragile { cpu, faults: Arc::clone(&faults) }));
        let mut sound = session(arch, Arc::new(CpuDevice::new(FusionConfig::default())));
        let tokens = dummy_tokens(1, 1, 12, 64);
        for session in [&mut fragile, &mut sound] {
            session.decode(&tokens[..5], Outputs::Last).unwrap();
        }
        // A batch of another length needs a program of its own, which cannot be had now.
        faults.load.store(true, Relaxed);
        let error = fragile.decode(&tokens[5..8], Outputs::All).unwrap_err();
        assert!(matches!(error, SessionError::Compute(ComputeError::Device(DeviceError::Driver { .. }))), "{error}");
        assert_eq!(fragile.n_past(), 5, "nothing ran");
        faults.load.store(false, Relaxed);
        let expected = sound.decode(&tokens[5..8], Outputs::All).unwrap();
        assert_eq!(fragile.decode(&tokens[5..8], Outputs::All).unwrap(), expected);
        assert_eq!(fragile.n_past(), 8);

        faults.run.store(true, Relaxed);
        assert!(fragile.decode(&tokens[8..9], Outputs::Last).is_err());
        assert_eq!(fragile.n_past(), 0, "what the caches hold is not known");
        faults.run.store(false, Relaxed);
        sound.reset();
        let expected = sound.decode(&tokens, Outputs::All).unwrap();
        assert_eq!(fragile.decode(&tokens, Outputs::All).unwrap(), expected, "{arch} starts afresh");
    }
}

#[test]
fn fusion_is_switched_for_contexts_that_live() {
    let device: Arc<dyn Device> = Arc::new(CpuDevice::new(FusionConfig::default()));
    let mut graph = Graph::new();
    let x = graph.leaf("x", LeafKind::Input, DType::F32, [8, 2, 1, 1]).unwrap();
    let w = graph.leaf("w", LeafKind::Input, DType::F32, [8, 1, 1, 1]).unwrap();
    let norm = graph.rms_norm(x, 1e-5).unwrap();
    let y = graph.mul(norm, w).unwrap();
    graph.expand(y).unwrap();
    let graph = Arc::new(graph);
    let fused = |context: &mut Context| context.prepare(&graph, &Leaves::new()).unwrap().plan().fusions().count();
    let mut context = Context::with_options(Arc::clone(&device), PlanOptions::default());
    let plain = PlanOptions { matcher: Matcher::off(), ..PlanOptions::default() };
    let mut without = Context::with_options(Arc::clone(&device), plain);
    assert_eq!((fused(&mut context), fused(&mut without)), (1, 0));
    device.fusion().set_enabled(false);
    assert_eq!((fused(&mut context), fused(&mut without)), (0, 0));
    // A context that is made meanwhile fuses as soon as it may.
    let mut late = Context::new(Arc::clone(&device));
    assert_eq!(fused(&mut late), 0);
    device.fusion().set_enabled(true);
    assert_eq!((fused(&mut context), fused(&mut without), fused(&mut late)), (1, 0, 1));
    assert_eq!(context.plan_hits_and_misses(), (1, 2), "both plans are remembered");
}

#[test]
fn tensors_without_names_are_named_by_number() {
    let device: Arc<dyn Device> = Arc::new(CpuDevice::new(FusionConfig::default()));
    let mut graph = Graph::new();
    let x = graph.leaf("", LeafKind::Input, DType::F32, [8, 1, 1, 1]).unwrap();
    let y = graph.sqr(x).unwrap();
    let z = graph.sqr(y).unwrap();
    graph.expand(z).unwrap();
    let graph = Arc::new(graph);
    let mut context = Context::with_options(device, PlanOptions::default());
    let run = context.prepare(&graph, &Leaves::new()).unwrap();
    let error = run.read(y, &mut [0; 32]).unwrap_err();
    assert!(error.to_string().contains("`#1`"), "{error}");
    let error = run.write(x, &[0; 3]).unwrap_err();
    assert_eq!(error.to_string(), "tensor `#0` takes 32 bytes, given 3");
}
