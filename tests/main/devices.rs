//! The devices that tests run on.

use std::sync::{Arc, OnceLock};
use wgfuse::cpu::CpuDevice;
use wgfuse::device::Device;
use wgfuse::fusion::{FusionConfig, Matcher};
use wgfuse::gpu::{self, GpuDevice, OpenOptions};
use wgfuse::plan::PlanOptions;

/// The CPU device; buffers are its own.
pub fn cpu() -> Arc<dyn Device> {
    Arc::new(CpuDevice::new(FusionConfig::default()))
}

/// The CPU device and every GPU.
pub fn all() -> Vec<Arc<dyn Device>> {
    [cpu()].into_iter().chain(gpus()).collect()
}

/// Every GPU of [`devices`].
pub fn gpus() -> Vec<Arc<dyn Device>> {
    devices().iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect()
}

/// Every adapter once as it is, and Vulkan ones once more without what GL lacks; shared by all tests.
pub fn devices() -> &'static [Arc<GpuDevice>] {
    static DEVICES: OnceLock<Vec<Arc<GpuDevice>>> = OnceLock::new();
    let devices = DEVICES.get_or_init(|| {
        let devices = open_devices();
        for device in &devices {
            println!("{}: {}", device.info().name, device.info().description);
        }
        devices
    });
    if devices.is_empty() {
        println!("skipped: no GPU adapter here");
        assert!(std::env::var_os("WGFUSE_REQUIRE_GPU").is_none_or(|v| v != "1"), "WGFUSE_REQUIRE_GPU=1 and no GPU");
    }
    devices
}

/// The same devices, opened anew.
pub fn open_devices() -> Vec<Arc<GpuDevice>> {
    let open = |options: &OpenOptions| GpuDevice::open_with(options).expect("a listed device opens");
    let mut devices = Vec::new();
    for info in gpu::list() {
        let whole = OpenOptions { name: Some(info.name), ..OpenOptions::default() };
        devices.push(open(&whole));
        if info.backend == "VK" {
            devices.push(open(&OpenOptions { f16: false, subgroups: false, ..whole }));
        }
    }
    devices
}

/// One group for each node.
pub fn unfused() -> PlanOptions {
    PlanOptions { matcher: Matcher::off(), ..PlanOptions::default() }
}
