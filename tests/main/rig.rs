//! Builds a graph with known contents, runs it on the CPU device, and reads results back as numbers.

use crate::devices::unfused;
use half::{bf16, f16};
use std::sync::Arc;
use wgfuse::cpu::CpuDevice;
use wgfuse::device::{Device, DeviceError};
use wgfuse::fusion::{FusionConfig, FusionId, TABLE};
use wgfuse::graph::{BufferClass, DType, Graph, LeafKind, TensorId};
use wgfuse::plan::{self, BufferId, Group, Leaves, Place, Plan, Slot};

/// Numbers in row-major order with their shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Nd {
    pub ne: [usize; 4],
    pub all: Vec<f64>,
}

impl Nd {
    pub fn from_fn(ne: [usize; 4], value: impl FnMut([usize; 4]) -> f64) -> Self {
        Self { ne, all: indices(ne).map(value).collect() }
    }

    pub fn at(&self, [i0, i1, i2, i3]: [usize; 4]) -> f64 {
        let ne = self.ne;
        self.all[((i3 * ne[2] + i2) * ne[1] + i1) * ne[0] + i0]
    }

    /// The element that, when the tensor is repeated, is at these indices.
    pub fn wrapped(&self, at: [usize; 4]) -> f64 {
        self.at(std::array::from_fn(|dim| at[dim] % self.ne[dim]))
    }
}

pub fn indices(ne: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    let count: usize = ne.iter().product();
    (0..count).map(move |i| [i % ne[0], i / ne[0] % ne[1], i / ne[0] / ne[1] % ne[2], i / ne[0] / ne[1] / ne[2]])
}

/// Whether both are equal up to `tolerance` times the largest expected magnitude.
#[track_caller]
pub fn assert_close(found: &Nd, expected: &Nd, tolerance: f64) {
    assert_eq!(found.ne, expected.ne);
    let largest = expected.all.iter().filter(|x| x.is_finite()).fold(1e-6f64, |max, x| max.max(x.abs()));
    for (at, (&found, &expected)) in indices(expected.ne).zip(found.all.iter().zip(&expected.all)) {
        let same = found == expected || (found.is_nan() && expected.is_nan());
        assert!(
            same || (found - expected).abs() <= tolerance * largest,
            "at {at:?}: {found} instead of {expected}, largest {largest}"
        );
    }
}

/// A repeatable sequence in [-1, 1).
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn float(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }
}

pub fn encode(dtype: DType, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    let one = |v: f64| match dtype {
        DType::F32 => (v as f32).to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f32(v as f32).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(v as f32).to_ne_bytes().to_vec(),
        DType::I32 => (v as i32).to_ne_bytes().to_vec(),
        DType::I64 => (v as i64).to_ne_bytes().to_vec(),
        DType::Block(_) => unreachable!("blocks hold no single elements"),
    };
    values.into_iter().flat_map(one).collect()
}

fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()).into(),
        DType::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        DType::BF16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        DType::I32 => i32::from_ne_bytes(bytes.try_into().unwrap()).into(),
        DType::I64 => i64::from_ne_bytes(bytes.try_into().unwrap()) as f64,
        DType::Block(_) => unreachable!("blocks hold no single elements"),
    }
}

/// How a source lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Dense,
    /// Dense rows with gaps between them, starting inside the leaf.
    Padded,
    /// Dimensions 1 and 2 exchanged in memory; rows are dense.
    Swapped,
    /// Dimensions 0 and 1 exchanged in memory; rows are not dense.
    Transposed,
}

pub const DENSE_ROWS: [Form; 3] = [Form::Dense, Form::Padded, Form::Swapped];
pub const ALL_FORMS: [Form; 4] = [Form::Dense, Form::Padded, Form::Swapped, Form::Transposed];
pub const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// A graph under construction, with the contents of its leaves.
#[derive(Default)]
pub struct Rig {
    pub graph: Graph,
    contents: Vec<(TensorId, Vec<u8>)>,
    random: u64,
}

impl Rig {
    /// A leaf with these values in memory order; an empty list leaves it zero.
    pub fn leaf(&mut self, kind: LeafKind, dtype: DType, ne: [usize; 4], values: &[f64]) -> TensorId {
        self.raw(kind, dtype, ne, encode(dtype, values.iter().copied()))
    }

    /// A leaf with these bytes.
    pub fn raw(&mut self, kind: LeafKind, dtype: DType, ne: [usize; 4], bytes: Vec<u8>) -> TensorId {
        let name = format!("leaf {}", self.contents.len());
        let id = self.graph.leaf(name, kind, dtype, ne).unwrap();
        self.contents.push((id, bytes));
        id
    }

    pub fn input(&mut self, dtype: DType, ne: [usize; 4], values: &[f64]) -> TensorId {
        self.leaf(LeafKind::Input, dtype, ne, values)
    }

    /// A leaf with values in [-1, 1).
    pub fn random(&mut self, kind: LeafKind, dtype: DType, ne: [usize; 4]) -> TensorId {
        self.random += 1;
        let mut random = Random(self.random << 32);
        let values: Vec<f64> = (0..ne.iter().product()).map(|_| random.float().into()).collect();
        self.leaf(kind, dtype, ne, &values)
    }

    /// A tensor of shape `ne` with values in [-1, 1) that lies in memory as `form` says.
    pub fn source(&mut self, form: Form, dtype: DType, ne: [usize; 4]) -> TensorId {
        let [a, b, c, d] = ne;
        match form {
            Form::Dense => self.random(LeafKind::Input, dtype, ne),
            Form::Padded => {
                let leaf = self.random(LeafKind::Weight, dtype, [a + 3, b + 1, c, d]);
                let nb = self.graph.tensor(leaf).nb();
                let inside = if c * d == 0 { 0 } else { nb[0] * 3 };
                self.graph.view(leaf, ne, nb, inside).unwrap()
            }
            Form::Swapped => {
                let leaf = self.random(LeafKind::Cache, dtype, [a, c, b, d]);
                self.graph.permute(leaf, [0, 2, 1, 3]).unwrap()
            }
            Form::Transposed => {
                let leaf = self.random(LeafKind::Input, dtype, [b, a, c, d]);
                self.graph.transpose(leaf).unwrap()
            }
        }
    }

    pub fn run(self, outputs: &[TensorId]) -> Ran {
        self.try_run(outputs, |_| {}).unwrap()
    }

    /// Runs with the plan's groups changed.
    pub fn try_run(mut self, outputs: &[TensorId], change: impl FnOnce(&mut Plan)) -> Result<Ran, DeviceError> {
        for &id in outputs {
            self.graph.expand(id).unwrap();
            self.graph.set_output(id).unwrap();
        }
        let device = CpuDevice::new(FusionConfig::default());
        let mut leaves = Leaves::new();
        for &id in self.graph.leaves() {
            let class = self.graph.class(id);
            if class != BufferClass::Computed {
                let bytes = self.graph.tensor(id).layout().extent();
                let buffer = device.create_buffer(class, bytes)?;
                leaves.insert(id, Slot { place: Place::Buffer(buffer), offset: 0, bytes });
            }
        }
        let mut plan = plan::plan(&self.graph, &leaves, &device.limits(), &unfused()).unwrap();
        change(&mut plan);
        let arenas: Vec<BufferId> = plan
            .placement
            .arenas()
            .iter()
            .map(|&bytes| device.create_buffer(BufferClass::Computed, bytes).unwrap())
            .collect();
        let ran = Ran { graph: Arc::new(self.graph), plan: Arc::new(plan), device, arenas };
        for (id, bytes) in &self.contents {
            if let Some(slot) = ran.plan.placement.slot(&ran.graph, *id) {
                ran.device.write(ran.buffer(&slot), slot.offset, bytes)?;
            }
        }
        ran.device.load(&ran.graph, &ran.plan, &ran.arenas)?.run()?;
        Ok(ran)
    }
}

/// A graph that has run.
pub struct Ran {
    pub graph: Arc<Graph>,
    pub plan: Arc<Plan>,
    pub device: CpuDevice,
    pub arenas: Vec<BufferId>,
}

impl Ran {
    pub fn buffer(&self, slot: &Slot) -> BufferId {
        match slot.place {
            Place::Arena(index) => self.arenas[index as usize],
            Place::Buffer(id) => id,
        }
    }

    /// A tensor's memory.
    pub fn bytes(&self, id: TensorId) -> Vec<u8> {
        let slot = self.plan.placement.slot(&self.graph, id).unwrap();
        let mut bytes = vec![0; slot.bytes];
        self.device.read(self.buffer(&slot), slot.offset, &mut bytes).unwrap();
        bytes
    }

    /// A tensor's elements, whatever its layout.
    pub fn nd(&self, id: TensorId) -> Nd {
        let bytes = self.bytes(id);
        let tensor = self.graph.tensor(id);
        let (nb, size) = (tensor.nb(), tensor.dtype().block_bytes());
        Nd::from_fn(tensor.ne(), |at| {
            let start: usize = (0..4).map(|dim| at[dim] * nb[dim]).sum();
            decode(tensor.dtype(), &bytes[start..start + size])
        })
    }
}

/// Replaces the groups of `nodes` by one fused group at the place of the last of them.
pub fn fuse(plan: &mut Plan, graph: &Graph, id: FusionId, nodes: &[TensorId]) {
    let kinds: Vec<_> = nodes.iter().map(|&node| graph.tensor(node).kind()).collect();
    let fusion = TABLE.iter().find(|row| row.id == id && row.ops == kinds).unwrap();
    let last = nodes[nodes.len() - 1];
    plan.groups.retain(|group| group.nodes == [last] || !nodes.contains(&group.nodes[0]));
    let at = plan.groups.iter().position(|group| group.nodes == [last]).unwrap();
    plan.groups[at] = Group { fusion: Some(fusion), nodes: nodes.to_vec() };
}
