//! The GPU device on every adapter here: its operations against naive references, its errors, and what a run costs.

mod device;
mod operations;

use crate::devices::{devices, open_devices, unfused};
use half::{bf16, f16};
use std::collections::HashMap;
use std::sync::Arc;
use wgfuse::device::{Device, DeviceError, Program};
use wgfuse::gpu::GpuDevice;
use wgfuse::graph::{BufferClass, DType, Graph, LeafKind, TensorId};
use wgfuse::plan::{BufferId, Group, Leaves, Place, Plan, Slot, plan};

type Coords = [usize; 4];

fn encode(dtype: DType, x: f64) -> Vec<u8> {
    match dtype {
        DType::F32 => (x as f32).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(x).to_le_bytes().to_vec(),
        DType::I32 => (x as i32).to_le_bytes().to_vec(),
        DType::I64 => (x as i64).to_le_bytes().to_vec(),
        DType::Block(_) => unreachable!("blocks hold no single elements"),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::I32 => i32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::I64 => i64::from_le_bytes(bytes.try_into().unwrap()) as f64,
        DType::Block(_) => unreachable!("blocks hold no single elements"),
    }
}

/// Relative to `1 + |x|`.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 1.5e-3,
        DType::BF16 => 1.2e-2,
        DType::I32 | DType::I64 | DType::Block(_) => 0.0,
    }
}

fn coords(ne: Coords) -> impl Iterator<Item = Coords> {
    (0..ne.iter().product())
        .map(move |i: usize| [i % ne[0], i / ne[0] % ne[1], i / (ne[0] * ne[1]) % ne[2], i / (ne[0] * ne[1] * ne[2])])
}

/// A graph and the bytes of its leaves.
#[derive(Default)]
struct Case {
    graph: Graph,
    memory: HashMap<TensorId, Vec<u8>>,
    /// Whether weights and caches share one buffer instead of having one each.
    one_buffer: bool,
    seed: u64,
}

impl Case {
    /// A dense leaf of numbers between -2 and 2.
    fn leaf(&mut self, kind: LeafKind, dtype: DType, ne: Coords) -> TensorId {
        let count: usize = ne.iter().product();
        let values: Vec<f64> = (0..count).map(|_| self.random() * 4.0 - 2.0).collect();
        self.leaf_of(kind, dtype, ne, &values)
    }

    fn leaf_of(&mut self, kind: LeafKind, dtype: DType, ne: Coords, values: &[f64]) -> TensorId {
        let name = format!("leaf {}", self.graph.tensors().len());
        let id = self.graph.leaf(name, kind, dtype, ne).unwrap();
        self.memory.insert(id, values.iter().flat_map(|&x| encode(dtype, x)).collect());
        id
    }

    fn input(&mut self, dtype: DType, ne: Coords) -> TensorId {
        self.leaf(LeafKind::Input, dtype, ne)
    }

    /// Numbers from 0 to 1 (xorshift64*).
    fn random(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An element of a leaf or of a view of one, as it was before the run.
    fn at(&self, id: TensorId, c: Coords) -> f64 {
        element(&self.graph, id, &self.memory[&self.graph.root(id)], c)
    }

    /// Runs the nodes one by one, or as the given groups, and gives the bytes of every tensor that has memory.
    fn run(&self, device: &GpuDevice, groups: Option<&[Group]>) -> Result<HashMap<TensorId, Vec<u8>>, DeviceError> {
        let mut loaded = Loaded::new(self, device, groups)?;
        loaded.write(self)?;
        loaded.program.run()?;
        loaded.read(self)
    }

    /// Expands `node`, runs it on every device, and compares it with `expected`.
    fn check(&mut self, what: &str, node: TensorId, expected: impl Fn(&Self, Coords) -> f64) {
        self.graph.expand(node).unwrap();
        self.check_groups(what, node, None, expected);
    }

    fn check_groups(
        &self,
        what: &str,
        node: TensorId,
        groups: Option<&[Group]>,
        expected: impl Fn(&Self, Coords) -> f64,
    ) {
        let tensor = self.graph.tensor(node);
        let tolerance = tolerance(tensor.dtype());
        for device in devices() {
            let results = self.run(device, groups).unwrap_or_else(|error| panic!("{what}: {error}"));
            for c in coords(tensor.ne()) {
                let result = element(&self.graph, node, &results[&self.graph.root(node)], c);
                let wanted = expected(self, c);
                let near = (result - wanted).abs() <= tolerance * (1.0 + wanted.abs());
                let same = result == wanted || (result.is_nan() && wanted.is_nan());
                assert!(near || same, "{}: {what} at {c:?} gives {result}, not {wanted}", device.info().name);
            }
        }
    }
}

/// A case on a device.
struct Loaded<'a> {
    device: &'a GpuDevice,
    plan: Arc<Plan>,
    buffers: Vec<BufferId>,
    arenas: Vec<BufferId>,
    program: Box<dyn Program>,
}

impl<'a> Loaded<'a> {
    fn new(case: &Case, device: &'a GpuDevice, groups: Option<&[Group]>) -> Result<Self, DeviceError> {
        let limits = device.limits();
        let mut leaves = Leaves::new();
        let mut buffers = Vec::new();
        let mut shared = None;
        for &id in case.graph.leaves() {
            let class = match case.graph.tensor(id).leaf() {
                Some(LeafKind::Weight) => BufferClass::Weight,
                Some(LeafKind::Cache) => BufferClass::Cache,
                Some(LeafKind::Input) | None => continue,
            };
            let bytes = case.memory[&id].len();
            let (buffer, offset) = match &mut shared {
                Some((buffer, end)) => {
                    (*buffer, std::mem::replace(end, *end + bytes.next_multiple_of(limits.alignment)))
                }
                None => {
                    let size = if case.one_buffer { 1 << 16 } else { bytes };
                    buffers.push(device.create_buffer(class, size)?);
                    let buffer = buffers[buffers.len() - 1];
                    if case.one_buffer {
                        shared = Some((buffer, bytes.next_multiple_of(limits.alignment)));
                    }
                    (buffer, 0)
                }
            };
            leaves.insert(id, Slot { place: Place::Buffer(buffer), offset, bytes });
        }
        // Groups formed by hand read their sources later than the plan thinks: everything keeps its memory.
        let mut graph = case.graph.clone();
        case.graph.leaves().iter().for_each(|&id| graph.set_output(id).unwrap());
        let mut plan = plan(&graph, &leaves, &limits, &unfused()).unwrap();
        if let Some(groups) = groups {
            plan.groups = groups.to_vec();
        }
        let plan = Arc::new(plan);
        let arenas = plan.placement.arenas().iter().map(|&bytes| device.create_buffer(BufferClass::Computed, bytes));
        let arenas = arenas.collect::<Result<Vec<_>, _>>()?;
        let program = device.load(&Arc::new(graph), &plan, &arenas)?;
        Ok(Self { device, plan, buffers, arenas, program })
    }

    fn write(&self, case: &Case) -> Result<(), DeviceError> {
        for (&id, bytes) in &case.memory {
            if let Some(slot) = self.plan.placement.slot(&case.graph, id) {
                self.device.write(self.buffer(slot.place), slot.offset, bytes)?;
            }
        }
        Ok(())
    }

    fn read(&self, case: &Case) -> Result<HashMap<TensorId, Vec<u8>>, DeviceError> {
        let mut results = HashMap::new();
        let roots = case.graph.nodes().iter().chain(case.graph.leaves()).map(|&id| case.graph.root(id));
        for id in roots {
            if let Some(slot) = self.plan.placement.slot(&case.graph, id) {
                let mut bytes = vec![0; slot.bytes];
                self.device.read(self.buffer(slot.place), slot.offset, &mut bytes)?;
                results.insert(id, bytes);
            }
        }
        Ok(results)
    }

    fn buffer(&self, place: Place) -> BufferId {
        match place {
            Place::Buffer(id) => id,
            Place::Arena(index) => self.arenas[index as usize],
        }
    }
}

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        self.buffers.iter().chain(&self.arenas).for_each(|&id| self.device.destroy_buffer(id));
    }
}

fn element(graph: &Graph, id: TensorId, root: &[u8], c: Coords) -> f64 {
    let tensor = graph.tensor(id);
    let offset = tensor.view().map_or(0, |view| view.offset);
    let at = offset + (0..4).map(|dim| c[dim] * tensor.nb()[dim]).sum::<usize>();
    decode(tensor.dtype(), &root[at..at + tensor.dtype().block_bytes()])
}
