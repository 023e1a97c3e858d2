//! The integration tests, one module for each part of the crate.

mod cpu;
mod cpu_fused;
mod devices;
mod gguf;
mod golden_graph;
mod golden_models;
mod golden_plans;
mod gpu;
mod kernels;
mod model;
mod model_golden;
mod models;
mod protocol;
mod rig;
