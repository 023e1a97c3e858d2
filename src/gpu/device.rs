//! The device itself.

use super::adapter::{self, Candidate, name_of_type};
use super::buffers::{Buffers, Entry};
use super::caps::{ALIGNMENT, Caps};
use super::dispatch::{Context, Dispatch};
use super::driver::{self, Driver, OpenedAs};
use super::encode::encode;
use super::pipeline::Pipelines;
use super::record::{GpuProgram, Steps};
use super::selftest;
use crate::device::{self, Device, DeviceError, DeviceInfo, Program};
use crate::fusion::{FusionConfig, FusionState};
use crate::graph::{BufferClass, Graph, GraphError, Tensor, TensorId};
use crate::plan::{BufferId, Group, Limits, Place, Plan};
use std::sync::Arc;

/// Bytes that kernels reach: their indices are 32 bits wide, whatever an adapter can bind.
const MAX_REACH: u64 = 1 << 32;

/// Which device to open, and what it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Its name as [`list`](super::list) gives it; the preferred one by default.
    pub name: Option<String>,
    /// Use 16-bit floats where the adapter has them.
    pub f16: bool,
    /// Use subgroup operations where the adapter has them.
    pub subgroups: bool,
    /// What may fuse on it.
    pub fusion: FusionConfig,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { name: None, f16: true, subgroups: true, fusion: FusionConfig::default() }
    }
}

/// A GPU.
pub struct GpuDevice {
    info: DeviceInfo,
    fusion: Arc<FusionState>,
    caps: Caps,
    buffers: Buffers,
    pipelines: Pipelines,
    driver: Arc<Driver>,
}

impl GpuDevice {
    /// Opens a device by its name, or the preferred one.
    ///
    /// # Errors
    /// [`DeviceError::NoDevice`] when there is none, [`DeviceError::Driver`] when it cannot compute or computes wrongly.
    pub fn open(name: Option<&str>) -> Result<Arc<Self>, DeviceError> {
        Self::open_with(&OpenOptions { name: name.map(str::to_owned), ..OpenOptions::default() })
    }

    /// Opens a device.
    ///
    /// # Errors
    /// As [`GpuDevice::open`].
    pub fn open_with(options: &OpenOptions) -> Result<Arc<Self>, DeviceError> {
        let candidate = adapter::choose(options.name.as_deref())?;
        let (driver, offered) = connect(&candidate, options)?;
        let buffers = Buffers::new();
        let pipelines = Pipelines::new();
        let caps = {
            let _entered = driver.enter();
            selftest::run(&driver, &pipelines, &buffers, offered)?
        };
        let info = candidate.device_info(&abilities(&candidate, &caps));
        log::info!("{}: {}", info.name, info.description);
        let fusion = Arc::new(FusionState::new(options.fusion));
        Ok(Arc::new(Self { info, fusion, caps, buffers, pipelines, driver }))
    }

    /// What the adapter can do, as far as the self-test found it right.
    pub const fn caps(&self) -> &Caps {
        &self.caps
    }

    /// How many wgpu objects (buffers, layouts, bind groups, shader modules, pipelines) this device has made so far.
    /// Command buffers do not count: each run needs one.
    pub fn objects_created(&self) -> u64 {
        self.driver.created()
    }

    /// The dispatches of a plan's groups, in order.
    ///
    /// # Errors
    /// When an operation has no kernel here.
    pub fn encode(&self, graph: &Graph, plan: &Plan) -> Result<Vec<Dispatch>, DeviceError> {
        let cx = Context { graph, placement: &plan.placement, caps: &self.caps, device: &self.info.name };
        let mut dispatches = Vec::with_capacity(plan.groups.len());
        for group in &plan.groups {
            group.nodes.iter().try_for_each(|&node| known(graph, node).map(drop))?;
            dispatches.extend(encode(&cx, group)?);
        }
        // A kernel without work has nothing to launch.
        dispatches.retain(|dispatch| !dispatch.grid.contains(&0));
        Ok(dispatches)
    }

    /// The buffers of a plan's arenas, which must be as large as the plan says.
    fn arenas(&self, plan: &Plan, arenas: &[BufferId]) -> Result<Vec<Entry>, DeviceError> {
        let needed = plan.placement.arenas();
        if arenas.len() < needed.len() {
            let reason = format!("the plan has {} arenas, {} buffers were given", needed.len(), arenas.len());
            return Err(self.driver.failure(reason));
        }
        arenas
            .iter()
            .zip(needed)
            .map(|(&id, &bytes)| {
                let entry = self.buffers.get(id)?;
                inside(0, bytes, &entry)?;
                Ok(entry)
            })
            .collect()
    }

    /// Every tensor that a group touches must be the graph's and lie inside its buffer.
    fn check_slots(&self, graph: &Graph, plan: &Plan, arenas: &[Entry]) -> Result<(), DeviceError> {
        for &node in plan.groups.iter().flat_map(|group| &group.nodes) {
            let touched = std::iter::once(node).chain(known(graph, node)?.sources());
            for slot in touched.filter_map(|id| plan.placement.slot(graph, id)) {
                inside(slot.offset, slot.bytes, &self.entry(slot.place, arenas)?)?;
            }
        }
        Ok(())
    }

    fn entry(&self, place: Place, arenas: &[Entry]) -> Result<Entry, DeviceError> {
        match place {
            Place::Buffer(id) => self.buffers.get(id),
            Place::Arena(index) => {
                let missing = || self.driver.failure(format!("the plan names arena {index}, which it does not have"));
                arenas.get(index as usize).cloned().ok_or_else(missing)
            }
        }
    }
}

/// A tensor of a plan, which may have been made for another graph.
fn known(graph: &Graph, id: TensorId) -> Result<&Tensor, DeviceError> {
    graph.get(id).ok_or_else(|| DeviceError::Plan { reason: GraphError::Unknown(id).to_string() })
}

fn inside(start: usize, bytes: usize, entry: &Entry) -> Result<(), DeviceError> {
    let end = start.saturating_add(bytes);
    if end <= entry.bytes { Ok(()) } else { Err(DeviceError::OutOfBounds { start, end, size: entry.bytes }) }
}

impl Device for GpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> Limits {
        Limits {
            max_buffer_bytes: self.caps.max_binding_bytes.try_into().unwrap_or(usize::MAX),
            alignment: ALIGNMENT,
            max_bindings: self.caps.max_bindings as usize,
        }
    }

    fn fusion(&self) -> &Arc<FusionState> {
        &self.fusion
    }

    /// Asks the node's encoder, which has no effects, so that this and [`Device::load`] cannot disagree.
    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        let name = self.info.name.as_str();
        let Some(placement) = device::placed(name, &self.limits(), graph, node)? else { return Ok(()) };
        let cx = Context { graph, placement: &placement, caps: &self.caps, device: name };
        let encoded = encode(&cx, &Group::single(node));
        encoded.map(drop).map_err(|error| device::described(graph, node, error))
    }

    fn create_buffer(&self, class: BufferClass, bytes: usize) -> Result<BufferId, DeviceError> {
        let label = match class {
            BufferClass::Weight => "weights",
            BufferClass::Cache => "cache",
            BufferClass::Computed => "arena",
        };
        let _entered = self.driver.enter();
        self.buffers.create(&self.driver, label, bytes, self.limits().max_buffer_bytes)
    }

    fn destroy_buffer(&self, id: BufferId) {
        let _entered = self.driver.enter();
        self.buffers.destroy(id);
    }

    fn write(&self, id: BufferId, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let _entered = self.driver.enter();
        self.buffers.write(&self.driver, &self.pipelines, &self.caps, id, offset, bytes)
    }

    fn read(&self, id: BufferId, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let _entered = self.driver.enter();
        self.buffers.read(&self.driver, id, offset, bytes)
    }

    fn load(&self, graph: &Arc<Graph>, plan: &Arc<Plan>, arenas: &[BufferId]) -> Result<Box<dyn Program>, DeviceError> {
        let _entered = self.driver.enter();
        self.driver.check()?;
        let arenas = self.arenas(plan, arenas)?;
        self.check_slots(graph, plan, &arenas)?;
        let dispatches = self.encode(graph, plan)?;
        let buffers = dispatches
            .iter()
            .map(|dispatch| {
                let entries = dispatch.bindings.iter().map(|binding| self.entry(binding.place, &arenas));
                entries.map(|entry| entry.map(|entry| entry.buffer)).collect()
            })
            .collect::<Result<Vec<Vec<_>>, _>>()?;
        let kernels = self.pipelines.kernels(&self.driver, &self.caps, &dispatches)?;
        let steps = Steps::new(&self.driver, &dispatches, &kernels, &buffers)?;
        Ok(Box::new(GpuProgram::new(Arc::clone(&self.driver), steps)))
    }
}

impl Drop for GpuDevice {
    fn drop(&mut self) {
        // Buffers that outlive their wgpu device leak on some backends, and dropping is a call like any other.
        let _entered = self.driver.enter();
        self.buffers.clear();
        self.pipelines.clear();
    }
}

/// Opens the adapter with all that kernels may use.
fn connect(candidate: &Candidate, options: &OpenOptions) -> Result<(Arc<Driver>, Caps), DeviceError> {
    let Candidate { adapter, info, name, backend: _ } = candidate;
    let failed = |reason: String| DeviceError::Driver { device: name.clone(), reason };
    let optional = |wanted: bool, feature| if wanted { adapter.features() & feature } else { wgpu::Features::empty() };
    let optional =
        optional(options.f16, wgpu::Features::SHADER_F16) | optional(options.subgroups, wgpu::Features::SUBGROUP);
    if !adapter.features().contains(wgpu::Features::IMMEDIATES) {
        return Err(failed(format!("the adapter {} takes no immediates", info.name)));
    }
    if !adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
        return Err(failed(format!("the adapter {} has no compute shaders", info.name)));
    }
    let limits = adapter.limits();
    let features = optional | wgpu::Features::IMMEDIATES;
    let opened_as = OpenedAs { adapter: info.clone(), features };
    let (device, queue) = match driver::idle(&opened_as) {
        Some(opened) => opened,
        None => {
            let request = adapter.request_device(&wgpu::DeviceDescriptor {
                label: Some(name),
                required_features: features,
                required_limits: limits.clone(),
                ..Default::default()
            });
            pollster::block_on(request).map_err(|error| failed(error.to_string()))?
        }
    };
    let caps = Caps {
        f16: optional.contains(wgpu::Features::SHADER_F16),
        subgroups: optional.contains(wgpu::Features::SUBGROUP),
        min_subgroup: info.subgroup_min_size,
        max_subgroup: info.subgroup_max_size,
        max_bindings: limits.max_storage_buffers_per_shader_stage,
        max_groups: limits.max_compute_workgroups_per_dimension,
        max_threads: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x),
        max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
        max_binding_bytes: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(MAX_REACH),
    };
    Ok((Driver::new(name.clone(), device, queue, opened_as), caps))
}

fn abilities(candidate: &Candidate, caps: &Caps) -> String {
    let kind = name_of_type(candidate.info.device_type);
    let f16 = if caps.f16 { "f16" } else { "no f16" };
    let subgroups = match (caps.subgroups, caps.min_subgroup, caps.max_subgroup) {
        (false, ..) => "no subgroups".to_owned(),
        (true, min, max) if min == max => format!("subgroups of {min}"),
        (true, min, max) => format!("subgroups of {min} to {max}"),
    };
    let Caps { max_bindings, max_threads, max_workgroup_bytes, max_binding_bytes, .. } = caps;
    format!(
        "{kind}, {f16}, {subgroups}, {max_bindings} bindings of {} MiB, workgroups of {max_threads} threads and {} KiB",
        max_binding_bytes >> 20,
        max_workgroup_bytes >> 10,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::dispatch::Switch;
    use crate::gpu::list;
    use crate::graph::{DType, LeafKind};
    use crate::plan::{Leaves, PlanOptions, plan};

    fn lost(error: &DeviceError) -> bool {
        matches!(error, DeviceError::Driver { reason, .. } if reason.contains("device lost"))
    }

    #[test]
    fn a_lost_device_answers_with_errors() {
        for info in list() {
            let device = GpuDevice::open(Some(&info.name)).unwrap();
            let mut graph = Graph::new();
            let leaf = graph.leaf("x", LeafKind::Input, DType::F32, [8, 1, 1, 1]).unwrap();
            let node = graph.sqr(leaf).unwrap();
            graph.expand(node).unwrap();
            let plan = Arc::new(plan(&graph, &Leaves::new(), &device.limits(), &PlanOptions::default()).unwrap());
            let arena = device.create_buffer(BufferClass::Computed, plan.placement.arenas()[0]).unwrap();
            let graph = Arc::new(graph);
            let mut program = device.load(&graph, &plan, &[arena]).unwrap();
            program.run().unwrap();
            device.driver.device().destroy();
            // wgpu tells nobody before the next wait.
            assert!(lost(&device.read(arena, 0, &mut [0; 4]).unwrap_err()));
            assert!(lost(&program.run().unwrap_err()));
            assert!(lost(&device.read(arena, 0, &mut [0; 4]).unwrap_err()));
            assert!(lost(&device.write(arena, 0, &[0; 4]).unwrap_err()));
            assert!(lost(&device.create_buffer(BufferClass::Cache, 4).unwrap_err()));
            assert!(device.load(&graph, &plan, &[arena]).is_err());
        }
    }

    #[test]
    fn plans_of_other_graphs_are_refused() {
        for info in list() {
            let device = GpuDevice::open(Some(&info.name)).unwrap();
            let mut graph = Graph::new();
            let small = Arc::new(graph.clone());
            let leaf = graph.leaf("x", LeafKind::Input, DType::F32, [8, 1, 1, 1]).unwrap();
            let square = graph.sqr(leaf).unwrap();
            let sum = graph.add(square, leaf).unwrap();
            graph.expand(sum).unwrap();
            let planned = plan(&graph, &Leaves::new(), &device.limits(), &PlanOptions::default()).unwrap();
            let arena = device.create_buffer(BufferClass::Computed, planned.placement.arenas()[0]).unwrap();
            let refused = |graph: &Arc<Graph>, plan: &Plan| {
                let error = device.load(graph, &Arc::new(plan.clone()), &[arena]).err();
                assert!(matches!(error, Some(DeviceError::Plan { .. })), "{error:?}");
            };
            refused(&small, &planned);
            assert!(matches!(device.encode(&small, &planned), Err(DeviceError::Plan { .. })));
            // A group that claims to be a row of the table.
            let mut forged = planned.clone();
            forged.groups[0].fusion = crate::fusion::TABLE.first();
            refused(&Arc::new(graph), &forged);
        }
    }

    #[test]
    fn long_writes_arrive_whole() {
        for info in list() {
            let device = GpuDevice::open(Some(&info.name)).unwrap();
            // More than one piece, and an end inside a word.
            let bytes: Vec<u8> = (0..(65usize << 20) + 3).map(|i| (i % 251) as u8).collect();
            let id = device.create_buffer(BufferClass::Weight, bytes.len()).unwrap();
            device.write(id, 0, &bytes).unwrap();
            let mut found = vec![0; bytes.len()];
            device.read(id, 0, &mut found).unwrap();
            assert!(found == bytes, "{}", info.name);
        }
    }

    #[test]
    fn a_kernel_that_does_not_build_is_named() {
        let Some(info) = list().into_iter().next() else { return };
        let device = GpuDevice::open(Some(&info.name)).unwrap();
        let dispatch = |op| Dispatch {
            kernel: "binary",
            switches: vec![
                ("op", Switch::Str(op)),
                ("src0_dense", Switch::Bool(true)),
                ("addend", Switch::Str("dense")),
            ],
            bindings: Vec::new(),
            params: Vec::new(),
            workgroup: 64,
            grid: [1; 3],
        };
        let error = device.pipelines.kernels(&device.driver, &device.caps, &[dispatch("?")]).unwrap_err();
        let DeviceError::Driver { device: name, reason } = error else { panic!("{error}") };
        assert_eq!(name, info.name);
        assert!(reason.contains("kernel `binary`") && reason.contains("parsing error"), "{reason}");
        // The failure is the kernel's alone.
        assert_eq!(device.driver.check(), Ok(()));
    }
}
