//! Builds a graph with known contents, runs it on any device, and compares what comes out with the reference.

use crate::devices::{all, unfused};
use crate::numbers::{Nd, Random, encode, rounded};
use crate::reference::{Memory, Tolerance};
use std::collections::HashMap;
use std::sync::Arc;
use wgfuse::device::{ComputeError, Context, Device, DeviceBuffer, DeviceError, DeviceInfo, Program};
use wgfuse::fusion::{FusionState, TABLE};
use wgfuse::graph::{BlockFormat, BufferClass, DType, Graph, LeafKind, Op, OpKind, TensorId};
use wgfuse::plan::{BufferId, Group, Leaves, Limits, Place, Plan, PlanOptions, Slot};
use wgfuse::quant::dequantize;

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Dense,
    /// Dense rows with gaps after each row, plane and cube, starting inside the leaf on an odd element.
    Padded,
    /// Dimensions 1 and 2 exchanged in memory; rows are dense.
    Swapped,
    /// Dimensions 1 to 3 turned round in memory; rows are dense.
    Turned,
    /// Dimensions 0 and 1 exchanged in memory; rows are not dense.
    Transposed,
}

pub const DENSE_ROWS: [Form; 4] = [Form::Dense, Form::Padded, Form::Swapped, Form::Turned];
pub const FORMS: [Form; 5] = [Form::Dense, Form::Padded, Form::Swapped, Form::Turned, Form::Transposed];
pub const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
/// The types whose elements stand alone.
pub const PLAIN: [DType; 5] = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64];
pub const KINDS: [LeafKind; 3] = [LeafKind::Input, LeafKind::Weight, LeafKind::Cache];

/// A graph under construction whose every step must succeed, with the contents of its leaves: random numbers in
/// [-1, 1), or integers of any size, unless others are given.
#[derive(Clone, Default)]
pub struct Rig {
    pub graph: Graph,
    one_buffer: bool,
    given: HashMap<TensorId, Vec<f64>>,
    blocks: HashMap<TensorId, Vec<u8>>,
    wanted: Vec<TensorId>,
    allowed: Option<Tolerance>,
}

impl Rig {
    /// A rig whose weights and caches share one buffer instead of having one each.
    pub fn in_one_buffer() -> Self {
        Self { one_buffer: true, ..Self::default() }
    }

    /// A dense leaf of random numbers.
    pub fn leaf(&mut self, kind: LeafKind, dtype: DType, ne: [usize; 4]) -> TensorId {
        let name = format!("leaf {}", self.graph.tensors().len());
        self.graph.leaf(name, kind, dtype, ne).expect("a leaf")
    }

    pub fn weight(&mut self, ne: [usize; 4]) -> TensorId {
        self.leaf(LeafKind::Weight, DType::F32, ne)
    }

    pub fn input(&mut self, ne: [usize; 4]) -> TensorId {
        self.leaf(LeafKind::Input, DType::F32, ne)
    }

    pub fn cache(&mut self, ne: [usize; 4]) -> TensorId {
        self.leaf(LeafKind::Cache, DType::F32, ne)
    }

    /// A dense leaf of these numbers.
    pub fn given(&mut self, kind: LeafKind, dtype: DType, ne: [usize; 4], values: &[f64]) -> TensorId {
        let id = self.leaf(kind, dtype, ne);
        assert_eq!(values.len(), ne.iter().product::<usize>());
        self.give(id, values.to_vec());
        id
    }

    /// A dense leaf of these blocks.
    pub fn blocks(&mut self, kind: LeafKind, format: BlockFormat, ne: [usize; 4], blocks: Vec<u8>) -> TensorId {
        let id = self.leaf(kind, format.into(), ne);
        assert_eq!(blocks.len(), self.graph.tensor(id).layout().extent());
        self.blocks.insert(id, blocks);
        id
    }

    /// Other contents for the leaf that a tensor looks at.
    pub fn give(&mut self, id: TensorId, values: Vec<f64>) {
        let dtype = self.graph.tensor(id).dtype();
        let values = values.into_iter().map(|x| rounded(dtype, x)).collect();
        self.given.insert(self.graph.root(id), values);
    }

    /// The same contents with each number changed.
    pub fn map(&mut self, id: TensorId, change: impl Fn(f64) -> f64) -> TensorId {
        let values = self.contents(self.graph.root(id)).into_iter().map(change).collect();
        self.give(id, values);
        id
    }

    /// What a leaf holds before a run.
    pub fn contents(&self, id: TensorId) -> Vec<f64> {
        if let Some(values) = self.given.get(&id) {
            return values.clone();
        }
        let layout = self.graph.tensor(id).layout();
        if let DType::Block(format) = layout.dtype {
            let mut elements = vec![0.0; layout.elements()];
            dequantize(format, &self.blocks[&id], &mut elements).expect("whole blocks");
            return elements.into_iter().map(f64::from).collect();
        }
        let mut random = Random((id.index() as u64 + 1) << 32);
        let value = |_| match layout.dtype {
            DType::F32 | DType::F16 | DType::BF16 => rounded(layout.dtype, random.float()),
            DType::I32 | DType::I64 => (random.word() as i32).into(),
            DType::Block(_) => unreachable!("blocks are given"),
        };
        (0..layout.elements()).map(value).collect()
    }

    /// A tensor of shape `ne` that lies in memory as `form` says.
    pub fn source_of(&mut self, kind: LeafKind, form: Form, dtype: DType, ne: [usize; 4]) -> TensorId {
        let [a, b, c, d] = ne;
        match if ne.contains(&0) { Form::Dense } else { form } {
            Form::Dense => self.leaf(kind, dtype, ne),
            Form::Padded => {
                let leaf = self.leaf(kind, dtype, [a + 3, b + 1, c + 1, d + 1]);
                let nb = self.graph.tensor(leaf).nb();
                let outer = nb[1] + nb[2] + nb[3];
                let offset = outer + nb[0] * (1 + outer / nb[0] % 2);
                self.op(Op::View { ne, nb, offset }, &[leaf])
            }
            Form::Swapped => {
                let leaf = self.leaf(kind, dtype, [a, c, b, d]);
                self.op(Op::Permute { axes: [0, 2, 1, 3] }, &[leaf])
            }
            Form::Turned => {
                let leaf = self.leaf(kind, dtype, [a, d, b, c]);
                self.op(Op::Permute { axes: [0, 3, 1, 2] }, &[leaf])
            }
            Form::Transposed => {
                let leaf = self.leaf(kind, dtype, [b, a, c, d]);
                self.op(Op::Transpose, &[leaf])
            }
        }
    }

    /// The same over leaves of each kind in turn.
    pub fn source(&mut self, form: Form, dtype: DType, ne: [usize; 4]) -> TensorId {
        self.source_of(KINDS[self.graph.tensors().len() % 3], form, dtype, ne)
    }

    pub fn op(&mut self, op: Op, sources: &[TensorId]) -> TensorId {
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        self.graph.push(op, &sources).expect("an operation that fits")
    }

    pub fn rms_norm(&mut self, a: TensorId) -> TensorId {
        self.op(Op::RmsNorm { eps: 1e-5 }, &[a])
    }

    /// A dense view.
    pub fn view(&mut self, a: TensorId, ne: [usize; 4], offset: usize) -> TensorId {
        let unit = self.graph.tensor(a).dtype().block_bytes();
        let nb = [unit, unit * ne[0], unit * ne[0] * ne[1], unit * ne[0] * ne[1] * ne[2]];
        self.op(Op::View { ne, nb, offset }, &[a])
    }

    /// The result of an operation is computed and compared.
    pub fn want(&mut self, op: Op, sources: &[TensorId]) -> TensorId {
        let id = self.op(op, sources);
        self.output(id);
        id
    }

    /// A tensor is computed and compared.
    pub fn output(&mut self, id: TensorId) {
        self.graph.expand(id).expect("a tensor of this graph");
        self.graph.set_output(id).expect("a tensor of this graph");
        self.wanted.push(id);
    }

    /// A node is computed, and what it leaves in a cache is compared.
    pub fn written(&mut self, node: TensorId, cache: TensorId) {
        self.graph.expand(node).expect("a tensor of this graph");
        self.wanted.push(cache);
    }

    /// With these tensors computed; the last of them and what is written into caches is compared.
    pub fn finish(mut self, computed: &[TensorId]) -> Self {
        computed.iter().for_each(|&id| self.graph.expand(id).expect("a tensor of this graph"));
        computed.last().into_iter().for_each(|&id| self.output(id));
        let stores = |id: &&TensorId| !self.graph.tensor(**id).kind().is_view();
        let roots = self.graph.nodes().iter().filter(stores).map(|&id| self.graph.root(id));
        let cache = |id: &TensorId| self.graph.tensor(*id).leaf() == Some(LeafKind::Cache);
        let caches: Vec<TensorId> = roots.filter(cache).collect();
        self.wanted.extend(caches);
        self
    }

    /// The graph that computes these tensors, the last of which is its output.
    pub fn done(self, wanted: &[TensorId]) -> Graph {
        self.finish(wanted).graph
    }

    /// Results may be off by so much, for a reason that the test gives.
    pub fn allow(&mut self, each: f64, nmse: f64) {
        self.allowed = Some(Tolerance::new(each, nmse));
    }

    /// What the reference makes of everything wanted.
    pub fn expected(&self) -> Vec<(TensorId, Nd)> {
        let memory = Memory::new(&self.graph, |id| self.contents(id)).run();
        self.wanted.iter().map(|&id| (id, memory.read(id))).collect()
    }

    /// A device that is ready to run the graph.
    pub fn load(&self, device: &Arc<dyn Device>, options: PlanOptions) -> Result<Loaded, ComputeError> {
        Loaded::new(self, device, options, &[])
    }

    pub fn run(&self, device: &Arc<dyn Device>, options: PlanOptions) -> Result<Vec<Nd>, ComputeError> {
        self.load(device, options)?.step()
    }

    /// The memory of everything wanted, gaps included.
    pub fn run_bytes(&self, device: &Arc<dyn Device>, options: PlanOptions) -> Result<Vec<Vec<u8>>, ComputeError> {
        self.load(device, options)?.step_bytes()
    }

    /// Runs the graph with one group for each node, but `merged` as one group even if the planner would refuse that.
    pub fn run_merged(&self, device: &Arc<dyn Device>, merged: &[TensorId]) -> Result<Vec<Nd>, ComputeError> {
        let mut rig = self.clone();
        // Merged nodes read their sources later than the plan thinks: everything keeps its memory.
        self.graph.leaves().iter().for_each(|&id| rig.graph.set_output(id).expect("a leaf"));
        Loaded::new(&rig, device, unfused(), merged)?.step()
    }

    /// Runs the nodes one by one on every device and compares everything wanted with the reference.
    pub fn check(&self) {
        self.check_on(&all());
    }

    pub fn check_on(&self, devices: &[Arc<dyn Device>]) {
        let expected = self.expected();
        for device in devices {
            let found = self.run(device, unfused()).unwrap_or_else(|error| panic!("{}: {error}", called(device)));
            self.compare(&called(device), &found, &expected);
        }
    }

    /// Compares what a device found with what the reference expects.
    pub fn compare(&self, what: &str, found: &[Nd], expected: &[(TensorId, Nd)]) {
        for (found, (id, expected)) in found.iter().zip(expected) {
            let tolerance = Tolerance::of_tensor(&self.graph, *id).or(self.allowed.unwrap_or(Tolerance::EXACT));
            let compared = found.compare(expected, self.graph.tensor(*id).dtype(), tolerance);
            compared.unwrap_or_else(|error| panic!("{what}: {}: {error}", self.described(*id)));
        }
    }

    fn described(&self, id: TensorId) -> String {
        let tensor = self.graph.tensor(id);
        let sources: Vec<String> = tensor.sources().map(|id| self.graph.tensor(id).layout().to_string()).collect();
        format!("{:?} of {} giving {}", tensor.op(), sources.join(", "), tensor.layout())
    }
}

/// How a device is called in reports.
pub fn called(device: &Arc<dyn Device>) -> String {
    format!("{} ({})", device.info().name, device.info().description)
}

/// A graph with its leaves on a device.
pub struct Loaded {
    pub context: Context,
    pub graph: Arc<Graph>,
    pub leaves: Leaves,
    pub buffers: Vec<DeviceBuffer>,
    contents: Vec<(TensorId, Vec<u8>)>,
    wanted: Vec<TensorId>,
}

impl Loaded {
    fn new(
        rig: &Rig,
        device: &Arc<dyn Device>,
        options: PlanOptions,
        merged: &[TensorId],
    ) -> Result<Self, ComputeError> {
        let device: Arc<dyn Device> = Arc::new(Dirty { device: Arc::clone(device), merged: merged.to_vec() });
        let graph = Arc::new(rig.graph.clone());
        let alignment = device.limits().alignment;
        let persistent = graph.leaves().iter().filter(|&&id| graph.class(id) != BufferClass::Computed);
        let size = |id: TensorId| graph.tensor(id).layout().extent();
        let mut buffers = Vec::new();
        let mut leaves = Leaves::new();
        let whole: usize = persistent.clone().map(|&id| size(id).next_multiple_of(alignment)).sum();
        let mut offset = 0;
        for &id in persistent {
            if !rig.one_buffer || buffers.is_empty() {
                let bytes = if rig.one_buffer { whole } else { size(id) };
                buffers.push(DeviceBuffer::new(&device, graph.class(id), bytes)?);
            }
            let place = Place::Buffer(buffers[buffers.len() - 1].id());
            leaves.insert(id, Slot { place, offset, bytes: size(id) });
            offset += if rig.one_buffer { size(id).next_multiple_of(alignment) } else { 0 };
        }
        let bytes = |id: TensorId| match rig.blocks.get(&id) {
            Some(blocks) => blocks.clone(),
            None => encode(graph.tensor(id).dtype(), &rig.contents(id)),
        };
        let contents = graph.leaves().iter().map(|&id| (id, bytes(id))).collect();
        let context = Context::with_options(device, options);
        let mut loaded = Self { context, graph, leaves, buffers, contents, wanted: rig.wanted.clone() };
        let prepared = loaded.context.prepare(&loaded.graph, &loaded.leaves).map(drop);
        if options.matcher.is_off() && merged.is_empty() {
            let supported =
                loaded.graph.nodes().iter().try_for_each(|&id| loaded.context.device().supports(&loaded.graph, id));
            let agree = prepared.is_ok() == supported.is_ok();
            assert!(agree, "{}: {supported:?}, but {prepared:?}", called(loaded.context.device()));
        }
        prepared?;
        Ok(loaded)
    }

    pub fn plan(&mut self) -> Plan {
        self.context.prepare(&self.graph, &self.leaves).expect("it is prepared").plan().clone()
    }

    /// Writes all leaves, runs, and reads everything wanted.
    pub fn step(&mut self) -> Result<Vec<Nd>, ComputeError> {
        let all = self.step_bytes()?;
        let layouts = self.wanted.iter().map(|&id| self.graph.tensor(id).layout());
        Ok(layouts.zip(&all).map(|(layout, bytes)| Nd::decode(layout, bytes)).collect())
    }

    /// The same without making numbers of it.
    pub fn step_bytes(&mut self) -> Result<Vec<Vec<u8>>, ComputeError> {
        let mut run = self.context.prepare(&self.graph, &self.leaves)?;
        self.contents.iter().try_for_each(|(id, bytes)| run.write(*id, bytes))?;
        run.run()?;
        let read = |&id: &TensorId| {
            let mut bytes = vec![0; self.graph.tensor(id).layout().extent()];
            run.read(id, &mut bytes)?;
            Ok(bytes)
        };
        self.wanted.iter().map(read).collect()
    }
}

/// A device whose arenas are full of NaN at first, so that what is read without having been written shows in results.
struct Dirty {
    device: Arc<dyn Device>,
    /// Nodes to run as one group, whatever the plan says.
    merged: Vec<TensorId>,
}

impl Device for Dirty {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn fusion(&self) -> &Arc<FusionState> {
        self.device.fusion()
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        self.device.supports(graph, node)
    }

    fn create_buffer(&self, class: BufferClass, bytes: usize) -> Result<BufferId, DeviceError> {
        let id = self.device.create_buffer(class, bytes)?;
        if class == BufferClass::Computed {
            self.device.write(id, 0, &vec![0xff; bytes])?;
        }
        Ok(id)
    }

    fn destroy_buffer(&self, id: BufferId) {
        self.device.destroy_buffer(id);
    }

    fn write(&self, id: BufferId, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.write(id, offset, bytes)
    }

    fn read(&self, id: BufferId, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(id, offset, bytes)
    }

    fn load(&self, graph: &Arc<Graph>, plan: &Arc<Plan>, arenas: &[BufferId]) -> Result<Box<dyn Program>, DeviceError> {
        if self.merged.is_empty() {
            return self.device.load(graph, plan, arenas);
        }
        let mut plan = Plan::clone(plan);
        merge(&mut plan, graph, &self.merged);
        self.device.load(graph, &Arc::new(plan), arenas)
    }
}

/// Replaces the groups of single nodes by one of all of them, at the place of the last.
fn merge(plan: &mut Plan, graph: &Graph, nodes: &[TensorId]) {
    let kinds: Vec<OpKind> = nodes.iter().map(|&node| graph.tensor(node).kind()).collect();
    let fusion = TABLE.iter().find(|row| row.ops == kinds).expect("a row of the table");
    let last = nodes[nodes.len() - 1];
    plan.groups.retain(|group| group.nodes == [last] || !nodes.contains(&group.nodes[0]));
    let at = plan.groups.iter().position(|group| group.nodes == [last]).expect("a group of the last node");
    plan.groups[at] = Group { fusion: Some(fusion), nodes: nodes.to_vec() };
}
