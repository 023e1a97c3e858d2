//! The GPU device on every adapter here: its operations against naive references, its errors, and what a run costs.

use crate::devices::{devices, unfused};
use half::{bf16, f16};
use std::collections::HashMap;
use std::sync::Arc;
use wgfuse::device::{Device, DeviceError};
use wgfuse::gpu::GpuDevice;
use wgfuse::graph::{BufferClass, DType, Graph, LeafKind, Op, TensorId};
use wgfuse::plan::{BufferId, Group, Leaves, Slot, plan};

type Coords = [usize; 4];

fn encode(dtype: DType, x: f64) -> Vec<u8> {
    match dtype {
        DType::F32 => (x as f32).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(x).to_le_bytes().to_vec(),
        DType::I32 => (x as i32).to_le_bytes().to_vec(),
        DType::I64 => (x as i64).to_le_bytes().to_vec(),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::I32 => i32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::I64 => i64::from_le_bytes(bytes.try_into().unwrap()) as f64,
    }
}

/// Relative to `1 + |x|`.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 1.5e-3,
        DType::BF16 => 1.2e-2,
        DType::I32 | DType::I64 => 0.0,
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
    fn run(&self, device: &GpuDevice, groups: Option<Vec<Group>>) -> Result<HashMap<TensorId, Vec<u8>>, DeviceError> {
        let limits = device.limits();
        let mut leaves = Leaves::new();
        let mut buffers = Vec::new();
        for &id in self.graph.leaves() {
            let class = match self.graph.tensor(id).leaf() {
                Some(LeafKind::Weight) => BufferClass::Weight,
                Some(LeafKind::Cache) => BufferClass::Cache,
                Some(LeafKind::Input) | None => continue,
            };
            let bytes = self.memory[&id].len();
            let buffer = device.create_buffer(class, bytes)?;
            buffers.push(buffer);
            leaves.insert(id, Slot { place: wgfuse::plan::Place::Buffer(buffer), offset: 0, bytes });
        }
        let mut plan = plan(&self.graph, &leaves, &limits, &unfused()).unwrap();
        if let Some(groups) = groups {
            plan.groups = groups;
        }
        let arenas = plan.placement.arenas().iter().map(|&bytes| device.create_buffer(BufferClass::Computed, bytes));
        let arenas = arenas.collect::<Result<Vec<_>, _>>()?;
        for (&id, bytes) in &self.memory {
            if let Some(slot) = plan.placement.slot(&self.graph, id) {
                device.write(buffer_of(slot.place, &arenas), slot.offset, bytes)?;
            }
        }
        let plan = Arc::new(plan);
        let mut program = device.load(&Arc::new(self.graph.clone()), &plan, &arenas)?;
        program.run()?;
        let mut results = HashMap::new();
        let roots = self.graph.nodes().iter().chain(self.graph.leaves()).map(|&id| self.graph.root(id));
        for id in roots {
            if let Some(slot) = plan.placement.slot(&self.graph, id) {
                let mut bytes = vec![0; slot.bytes];
                device.read(buffer_of(slot.place, &arenas), slot.offset, &mut bytes)?;
                results.insert(id, bytes);
            }
        }
        buffers.iter().chain(&arenas).for_each(|&id| device.destroy_buffer(id));
        Ok(results)
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
            let results =
                self.run(device, groups.map(<[Group]>::to_vec)).unwrap_or_else(|error| panic!("{what}: {error}"));
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

fn buffer_of(place: wgfuse::plan::Place, arenas: &[BufferId]) -> BufferId {
    match place {
        wgfuse::plan::Place::Buffer(id) => id,
        wgfuse::plan::Place::Arena(index) => arenas[index as usize],
    }
}

fn element(graph: &Graph, id: TensorId, root: &[u8], c: Coords) -> f64 {
    let tensor = graph.tensor(id);
    let offset = tensor.view().map_or(0, |view| view.offset);
    let at = offset + (0..4).map(|dim| c[dim] * tensor.nb()[dim]).sum::<usize>();
    decode(tensor.dtype(), &root[at..at + tensor.dtype().block_bytes()])
}

#[test]
fn arithmetic() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (ne, of) in [([7, 3, 2, 2], [7, 3, 2, 2]), ([8, 5, 2, 3], [8, 1, 1, 1]), ([6, 4, 2, 2], [3, 2, 1, 2])] {
            for (op, f) in [
                (Op::Add, (|a, b| a + b) as fn(f64, f64) -> f64),
                (Op::Sub, |a, b| a - b),
                (Op::Mul, |a, b| a * b),
                (Op::Div, |a, b| a / b),
            ] {
                let mut case = Case::default();
                let a = case.input(dtype, ne);
                let count = of.iter().product::<usize>();
                let divisors: Vec<f64> = (0..count).map(|_| 0.5 + case.random()).collect();
                let b = case.leaf_of(LeafKind::Weight, DType::F32, of, &divisors);
                let node = case.graph.push(op, &[Some(a), Some(b)]).unwrap();
                let what = format!("{} {dtype} {ne:?} by {of:?}", op.kind());
                case.check(&what, node, |case, c| {
                    let d = [0, 1, 2, 3].map(|dim| c[dim] % of[dim]);
                    f(case.at(a, c), case.at(b, d))
                });
            }
        }
    }
}
