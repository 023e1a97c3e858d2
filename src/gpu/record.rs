//! From dispatches to wgpu commands.

use super::dispatch::Dispatch;
use super::driver::{Driver, describe};
use super::pipeline::Kernel;
use crate::device::{DeviceError, Program};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// One launch, with everything looked up.
struct Step {
    kernel: usize,
    group: usize,
    params: Range<usize>,
    grid: [u32; 3],
}

/// Dispatches made executable: pipelines, bind groups and parameters, so that a run only records and submits.
#[derive(Default)]
pub(super) struct Steps {
    kernels: Vec<Arc<Kernel>>,
    groups: Vec<wgpu::BindGroup>,
    params: Vec<u8>,
    steps: Vec<Step>,
}

impl Steps {
    #[expect(clippy::mutable_key_type, reason = "wgpu compares and hashes its handles by identity")]
    /// Looks everything up; `buffers` are those of each dispatch, in binding order. The caller has entered.
    pub(super) fn new(
        driver: &Driver,
        dispatches: &[Dispatch],
        kernels: &[Arc<Kernel>],
        buffers: &[Vec<wgpu::Buffer>],
    ) -> Result<Self, DeviceError> {
        let mut this = Self::default();
        let mut kernel_of: HashMap<*const Kernel, usize> = HashMap::new();
        let mut group_of: HashMap<(&wgpu::BindGroupLayout, &[wgpu::Buffer]), usize> = HashMap::new();
        for ((dispatch, kernel), buffers) in dispatches.iter().zip(kernels).zip(buffers) {
            let kernel_at = *kernel_of.entry(Arc::as_ptr(kernel)).or_insert_with(|| {
                this.kernels.push(Arc::clone(kernel));
                this.kernels.len() - 1
            });
            let group_at = match group_of.get(&(&kernel.layout, buffers.as_slice())) {
                Some(&at) => at,
                None => {
                    let group = driver.scoped(|| bind_group(driver, kernel, buffers)).map_err(|error| {
                        driver.failure(format!("kernel `{}`: {}", dispatch.kernel, describe(&error)))
                    })?;
                    this.groups.push(group);
                    group_of.insert((&kernel.layout, buffers), this.groups.len() - 1);
                    this.groups.len() - 1
                }
            };
            let start = this.params.len();
            this.params.extend(param_bytes(dispatch));
            let params = start..this.params.len();
            this.steps.push(Step { kernel: kernel_at, group: group_at, params, grid: dispatch.grid });
        }
        Ok(this)
    }

    /// Takes new values for all parameters, from the same dispatches with nothing else changed.
    pub(super) fn set_params(&mut self, dispatches: &[Dispatch]) {
        self.params.clear();
        self.params.extend(dispatches.iter().flat_map(param_bytes));
    }

    /// Records and submits every step. The caller has entered.
    pub(super) fn submit(&self, driver: &Driver) -> Result<wgpu::SubmissionIndex, DeviceError> {
        let mut encoder = driver.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        // One pass for all: a pass of its own costs a dispatch ten times its own overhead.
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let (mut kernel, mut group) = (usize::MAX, usize::MAX);
        for step in &self.steps {
            if step.kernel != kernel {
                pass.set_pipeline(&self.kernels[step.kernel].pipeline);
                kernel = step.kernel;
            }
            if step.group != group {
                pass.set_bind_group(0, &self.groups[step.group], &[]);
                group = step.group;
            }
            if !step.params.is_empty() {
                pass.set_immediates(0, &self.params[step.params.clone()]);
            }
            let [x, y, z] = step.grid;
            pass.dispatch_workgroups(x, y, z);
        }
        drop(pass);
        let submission = driver.queue().submit([encoder.finish()]);
        driver.check()?;
        Ok(submission)
    }
}

fn param_bytes(dispatch: &Dispatch) -> impl Iterator<Item = u8> + '_ {
    dispatch.params.iter().flat_map(|param| param.bits.to_ne_bytes())
}

/// Whole buffers, in binding order.
fn bind_group(driver: &Driver, kernel: &Kernel, buffers: &[wgpu::Buffer]) -> wgpu::BindGroup {
    let entries: Vec<_> = (0..)
        .zip(buffers)
        .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
        .collect();
    driver.count_created(1);
    driver.device().create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &kernel.layout,
        entries: &entries,
    })
}

/// A plan made executable on a GPU.
pub struct GpuProgram {
    driver: Arc<Driver>,
    steps: Steps,
}

impl GpuProgram {
    pub(super) const fn new(driver: Arc<Driver>, steps: Steps) -> Self {
        Self { driver, steps }
    }
}

impl Program for GpuProgram {
    fn run(&mut self) -> Result<(), DeviceError> {
        let _entered = self.driver.enter();
        self.driver.check()?;
        self.steps.submit(&self.driver).map(drop)
    }
}

impl Drop for GpuProgram {
    fn drop(&mut self) {
        let _entered = self.driver.enter();
        self.steps = Steps::default();
    }
}
