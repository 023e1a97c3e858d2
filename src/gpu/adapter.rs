//! Which adapters there are, what we call them, and which comes first.

use crate::device::{DeviceError, DeviceInfo};
use std::collections::HashMap;
use std::sync::LazyLock;

/// An adapter under the name it has on this machine.
pub(super) struct Candidate {
    pub(super) adapter: wgpu::Adapter,
    pub(super) info: wgpu::AdapterInfo,
    pub(super) name: String,
    pub(super) backend: &'static str,
}

/// The GPU devices of this machine, the preferred one first; empty on a machine without any.
///
/// wgpu's own environment variables apply: `WGPU_BACKEND` limits the backends, `WGPU_ADAPTER_NAME` keeps the adapters
/// whose names contain it, `WGPU_POWER_PREF=low` puts integrated before discrete adapters.
pub fn list() -> Vec<DeviceInfo> {
    candidates(true).iter().map(|candidate| candidate.device_info(&features(&candidate.adapter))).collect()
}

fn features(adapter: &wgpu::Adapter) -> String {
    let features = adapter.features();
    let has = |name, feature| if features.contains(feature) { name } else { "" };
    let f16 = has(", f16", wgpu::Features::SHADER_F16);
    let subgroups = has(", subgroups", wgpu::Features::SUBGROUP);
    format!("{}{f16}{subgroups}", name_of_type(adapter.get_info().device_type))
}

impl Candidate {
    /// What is public about it; `abilities` ends the description.
    pub(super) fn device_info(&self, abilities: &str) -> DeviceInfo {
        let wgpu::AdapterInfo { name, driver, driver_info, .. } = &self.info;
        let driver = [driver.as_str(), driver_info.as_str()].join(" ");
        let description = format!("{name} ({}): {abilities}", driver.trim());
        DeviceInfo { name: self.name.clone(), backend: self.backend, description }
    }
}

/// The instance of every backend but GL. GL is asked only when nothing else will do: once EGL is loaded, NVIDIA's driver
/// (580.159) can lock up a process in which one thread destroys a Vulkan device while others end or submit.
static INSTANCE: LazyLock<wgpu::Instance> = LazyLock::new(|| instance(!wgpu::Backends::GL));

/// The adapters of GL, found once; they name what there is and are never opened.
static FOUND_ON_GL: LazyLock<Vec<wgpu::Adapter>> = LazyLock::new(find_on_gl);

/// An instance of those of these backends that the environment allows.
fn instance(backends: wgpu::Backends) -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    descriptor.backends &= backends;
    wgpu::Instance::new(descriptor)
}

/// The adapters of GL, in an instance of their own: devices on GL share no context, which only one thread at a time can
/// use.
fn find_on_gl() -> Vec<wgpu::Adapter> {
    let found = pollster::block_on(instance(wgpu::Backends::GL).enumerate_adapters(wgpu::Backends::GL));
    found.into_iter().filter(|adapter| computes(&adapter.get_info().driver_info)).collect()
}

/// Every adapter, or every one but those of GL, the preferred one first.
fn candidates(with_gl: bool) -> Vec<Candidate> {
    if wgpu::Instance::enabled_backend_features().is_empty() {
        return Vec::new();
    }
    let mut found: Vec<_> = pollster::block_on(INSTANCE.enumerate_adapters(!wgpu::Backends::GL))
        .into_iter()
        .chain(if with_gl { FOUND_ON_GL.clone() } else { Vec::new() })
        .filter_map(|adapter| {
            let info = adapter.get_info();
            base_name(info.backend).map(|backend| (adapter, info, backend))
        })
        .collect();
    let low_power = wgpu::PowerPreference::from_env() == Some(wgpu::PowerPreference::LowPower);
    found.sort_by_key(|(_, info, _)| (type_rank(info.device_type, low_power), info.backend == wgpu::Backend::Gl));
    let wanted = std::env::var("WGPU_ADAPTER_NAME").map(|name| name.to_lowercase()).unwrap_or_default();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    found
        .into_iter()
        .map(|(adapter, info, backend)| {
            let count = counts.entry(backend).or_default();
            let name = device_name(backend, *count);
            *count += 1;
            Candidate { adapter, info, name, backend }
        })
        .filter(|candidate| candidate.info.name.to_lowercase().contains(&wanted))
        .collect()
}

/// The adapter with this name, or the preferred one.
pub(super) fn choose(name: Option<&str>) -> Result<Candidate, DeviceError> {
    let mut others = candidates(false);
    let enough = |candidate: &Candidate| match name {
        Some(name) => candidate.name.eq_ignore_ascii_case(name),
        None => candidate.info.device_type != wgpu::DeviceType::Cpu,
    };
    if let Some(index) = others.iter().position(enough) {
        return Ok(others.swap_remove(index));
    }
    let mut all = candidates(true);
    let named = |candidate: &Candidate| name.is_none_or(|name| candidate.name.eq_ignore_ascii_case(name));
    let Some(index) = all.iter().position(named) else {
        let names: Vec<_> = all.iter().map(|candidate| candidate.name.as_str()).collect();
        let available = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(DeviceError::NoDevice { requested: name.unwrap_or("any GPU").to_owned(), available });
    };
    let chosen = all.swap_remove(index);
    if chosen.info.backend != wgpu::Backend::Gl {
        return Ok(chosen);
    }
    let same = |adapter: &wgpu::Adapter| adapter.get_info() == chosen.info;
    match find_on_gl().into_iter().find(same) {
        Some(adapter) => Ok(Candidate { adapter, ..chosen }),
        None => Err(DeviceError::NoDevice { requested: chosen.name, available: "none of GL any more".to_owned() }),
    }
}

/// Whether a GL of this version has compute shaders: 4.3, or ES 3.1. wgpu takes a context of an older version where a
/// driver offers no newer one by default (NVIDIA's), says that it computes, and then loses the device.
fn computes(version: &str) -> bool {
    let (number, least) = match version.strip_prefix("OpenGL ES ") {
        Some(rest) => (rest, (3, 1)),
        None => (version, (4, 3)),
    };
    let mut parts = number.split(|other: char| !other.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= least,
        // Better to try than to leave out a driver that counts otherwise.
        _ => true,
    }
}

const fn base_name(backend: wgpu::Backend) -> Option<&'static str> {
    match backend {
        wgpu::Backend::Vulkan => Some("VK"),
        wgpu::Backend::Metal => Some("MTL"),
        wgpu::Backend::Dx12 => Some("DX12"),
        wgpu::Backend::Gl => Some("GL"),
        // The first computes nothing; the second exists in browsers only.
        wgpu::Backend::Noop | wgpu::Backend::BrowserWebGpu => None,
    }
}

/// `VK0`, but `DX12_0`: the number must not run into a digit.
fn device_name(backend: &str, index: usize) -> String {
    let separator = if backend.ends_with(|last: char| last.is_ascii_digit()) { "_" } else { "" };
    format!("{backend}{separator}{index}")
}

const fn type_rank(device_type: wgpu::DeviceType, low_power: bool) -> u8 {
    match device_type {
        wgpu::DeviceType::DiscreteGpu => 1,
        wgpu::DeviceType::IntegratedGpu => {
            if low_power {
                0
            } else {
                2
            }
        }
        wgpu::DeviceType::VirtualGpu => 3,
        wgpu::DeviceType::Other => 4,
        wgpu::DeviceType::Cpu => 5,
    }
}

/// What to call a kind of adapter in a description.
pub(super) const fn name_of_type(device_type: wgpu::DeviceType) -> &'static str {
    match device_type {
        wgpu::DeviceType::DiscreteGpu => "discrete GPU",
        wgpu::DeviceType::IntegratedGpu => "integrated GPU",
        wgpu::DeviceType::VirtualGpu => "virtual GPU",
        wgpu::DeviceType::Other => "unknown kind",
        wgpu::DeviceType::Cpu => "software",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_of_gl_are_left_out() {
        let versions =
            ["4.5 (Core Profile) Mesa 22.3.6", "4.3.0", "OpenGL ES 3.2 Mesa 22.3.6", "OpenGL ES 3.1", "Metal"];
        assert!(versions.iter().all(|version| computes(version)));
        let versions = ["3.3.0 NVIDIA 580.159.04", "4.2", "OpenGL ES 3.0 Mesa 22.3.6"];
        assert!(!versions.iter().any(|version| computes(version)));
    }

    #[test]
    fn a_number_never_runs_into_a_digit() {
        assert_eq!(["VK", "GL", "MTL", "DX12"].map(|base| device_name(base, 1)), ["VK1", "GL1", "MTL1", "DX12_1"]);
    }

    #[test]
    fn discrete_comes_first_unless_low_power_is_asked_for() {
        let ranks = |low_power| {
            use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};
            let mut types = [Cpu, Other, VirtualGpu, IntegratedGpu, DiscreteGpu];
            types.sort_by_key(|&kind| type_rank(kind, low_power));
            types.map(name_of_type)
        };
        assert_eq!(ranks(false), ["discrete GPU", "integrated GPU", "virtual GPU", "unknown kind", "software"]);
        assert_eq!(ranks(true)[..2], ["integrated GPU", "discrete GPU"]);
    }
}
