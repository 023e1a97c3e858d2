//! Kernels: composed, compiled in parallel, and kept for the life of the device.

use super::caps::Caps;
use super::compose::compose;
use super::dispatch::{Access, Dispatch, ParamType, Switch};
use super::driver::{Driver, describe, lock};
use crate::device::DeviceError;
use crate::graph::DType;
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A compiled kernel and what its bind groups look like.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

/// All of a dispatch that decides its source; the rest (buffers, values, grid) changes from launch to launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    kernel: &'static str,
    switches: Vec<(&'static str, Switch)>,
    bindings: Vec<(&'static str, DType, Access)>,
    params: Vec<(String, ParamType)>,
    workgroup: u32,
}

impl Key {
    fn of(dispatch: &Dispatch) -> Self {
        let Dispatch { kernel, switches, bindings, params, workgroup, grid: _ } = dispatch;
        Self {
            kernel,
            switches: switches.clone(),
            bindings: bindings.iter().map(|binding| (binding.role, binding.dtype, binding.access)).collect(),
            params: params.iter().map(|param| (param.name.clone(), param.kind)).collect(),
            workgroup: *workgroup,
        }
    }
}

/// Which bindings are read-only.
type ReadOnly = Vec<bool>;

/// The kernels of a device.
pub(super) struct Pipelines {
    groups: Mutex<HashMap<ReadOnly, wgpu::BindGroupLayout>>,
    layouts: Mutex<HashMap<(ReadOnly, u32), wgpu::PipelineLayout>>,
    kernels: Mutex<HashMap<Key, Arc<Kernel>>>,
    /// Where composed sources go, from `WGFUSE_SHADER_DUMP`.
    dump: Option<PathBuf>,
}

impl Pipelines {
    pub(super) fn new() -> Self {
        let dump = std::env::var_os("WGFUSE_SHADER_DUMP").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        Self { groups: Mutex::default(), layouts: Mutex::default(), kernels: Mutex::default(), dump }
    }

    /// Forgets everything; programs keep what they use.
    pub(super) fn clear(&self) {
        lock(&self.kernels).clear();
        lock(&self.layouts).clear();
        lock(&self.groups).clear();
    }

    /// The kernels of these dispatches, in their order; what is not there yet is compiled. The caller has entered.
    pub(super) fn kernels(
        &self,
        driver: &Driver,
        caps: &Caps,
        dispatches: &[Dispatch],
    ) -> Result<Vec<Arc<Kernel>>, DeviceError> {
        let keys: Vec<_> = dispatches.iter().map(Key::of).collect();
        let mut missing: HashMap<&Key, &Dispatch> = HashMap::new();
        {
            let known = lock(&self.kernels);
            missing.extend(keys.iter().zip(dispatches).filter(|(key, _)| !known.contains_key(*key)));
        }
        let build = |(key, dispatch): (&Key, &Dispatch)| Ok((key.clone(), self.build(driver, caps, dispatch)?));
        let built: Vec<_> = if driver.is_serial() {
            missing.into_iter().map(build).collect::<Result<_, DeviceError>>()?
        } else {
            missing.into_par_iter().map(build).collect::<Result<_, DeviceError>>()?
        };
        let mut known = lock(&self.kernels);
        for (key, kernel) in built {
            // Another load may have been faster; all its programs and ours then share one.
            known.entry(key).or_insert(kernel);
        }
        let kernel =
            |key: &Key| known.get(key).cloned().ok_or_else(|| driver.failure("a kernel that was just built is gone"));
        keys.iter().map(kernel).collect()
    }

    fn build(&self, driver: &Driver, caps: &Caps, dispatch: &Dispatch) -> Result<Arc<Kernel>, DeviceError> {
        let name = dispatch.kernel;
        let failed = |reason: String| driver.failure(format!("kernel `{name}`: {reason}"));
        let source = compose(dispatch, caps).map_err(|error| failed(format!("{error:#}")))?;
        if let Some(folder) = &self.dump {
            write_source(folder, name, &source);
        }
        let read_only: ReadOnly = dispatch.bindings.iter().map(|binding| binding.access == Access::Read).collect();
        let immediate_size = (dispatch.params.len() * size_of::<u32>()) as u32;
        let built = driver.scoped(|| {
            let layout = self.group_layout(driver, &read_only);
            let pipeline_layout = self.pipeline_layout(driver, read_only, &layout, immediate_size);
            driver.count_created(2);
            let module = driver.device().create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(name),
                source: wgpu::ShaderSource::Wgsl(source.into()),
            });
            let pipeline = driver.device().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: None,
                compilation_options: wgpu::PipelineCompilationOptions {
                    // Our kernels write workgroup memory before they read it.
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            });
            Kernel { pipeline, layout }
        });
        built.map(Arc::new).map_err(|error| failed(describe(&error)))
    }

    fn group_layout(&self, driver: &Driver, read_only: &ReadOnly) -> wgpu::BindGroupLayout {
        let mut groups = lock(&self.groups);
        if let Some(layout) = groups.get(read_only) {
            return layout.clone();
        }
        let entries: Vec<_> = (0..)
            .zip(read_only)
            .map(|(binding, &read_only)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        driver.count_created(1);
        let layout = driver
            .device()
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        groups.insert(read_only.clone(), layout.clone());
        layout
    }

    fn pipeline_layout(
        &self,
        driver: &Driver,
        read_only: ReadOnly,
        group: &wgpu::BindGroupLayout,
        immediate_size: u32,
    ) -> wgpu::PipelineLayout {
        match lock(&self.layouts).entry((read_only, immediate_size)) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => {
                driver.count_created(1);
                let descriptor =
                    wgpu::PipelineLayoutDescriptor { label: None, bind_group_layouts: &[Some(group)], immediate_size };
                entry.insert(driver.device().create_pipeline_layout(&descriptor)).clone()
            }
        }
    }
}

/// Writes a source for somebody who asked to see it. That it cannot be written must not stop the program.
fn write_source(folder: &Path, name: &str, source: &str) {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    let path = folder.join(format!("{name}-{:016x}.wgsl", hasher.finish()));
    if let Err(error) = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, source)) {
        log::warn!("cannot write {}: {error}", path.display());
    }
}
