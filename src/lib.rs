#![doc = include_str!("../README.md")]

pub mod cpu;
pub mod device;
pub mod fusion;
pub mod gguf;
pub mod gpu;
pub mod graph;
pub mod model;
mod open;
pub mod plan;
pub mod quant;
pub mod runtime;

pub use open::{list_devices, open_device, open_device_with};
