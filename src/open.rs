//! Finding and opening devices.

use crate::cpu::CpuDevice;
use crate::device::{Device, DeviceError, DeviceInfo};
use crate::fusion::{FusionConfig, FusionSet};
use crate::gpu::{self, GpuDevice, OpenOptions};
use std::sync::Arc;

/// The devices of this machine, the preferred one first; the CPU device is the last and always there.
pub fn list_devices() -> Vec<DeviceInfo> {
    let mut devices = gpu::list();
    devices.push(CpuDevice::new(FusionConfig::default()).info().clone());
    devices
}

/// Opens a device by its name (`VK0`, `MTL0`, `CPU`, …), or the preferred one, with everything that may fuse and what
/// the environment says about that (`WGFUSE_FUSION_DISABLE`, `WGFUSE_FUSION_DEBUG`).
///
/// # Errors
/// [`DeviceError::NoDevice`] when there is no device with this name, or the driver's failure.
pub fn open_device(name: Option<&str>) -> Result<Arc<dyn Device>, DeviceError> {
    open_device_with(name, FusionConfig::from_env(FusionSet::All))
}

/// Opens a device like [`open_device`], with this fusion.
///
/// # Errors
/// As [`open_device`].
pub fn open_device_with(name: Option<&str>, fusion: FusionConfig) -> Result<Arc<dyn Device>, DeviceError> {
    let cpu = || -> Arc<dyn Device> { Arc::new(CpuDevice::new(fusion)) };
    if name.is_some_and(|name| name.eq_ignore_ascii_case("CPU")) {
        return Ok(cpu());
    }
    let options = OpenOptions { name: name.map(str::to_owned), fusion, ..OpenOptions::default() };
    match GpuDevice::open_with(&options) {
        Ok(device) => Ok(device),
        Err(DeviceError::NoDevice { .. }) if name.is_none() => Ok(cpu()),
        Err(DeviceError::NoDevice { requested, available }) => {
            let available = if available == "none" { "CPU".to_owned() } else { format!("{available}, CPU") };
            Err(DeviceError::NoDevice { requested, available })
        }
        Err(error) => Err(error),
    }
}
