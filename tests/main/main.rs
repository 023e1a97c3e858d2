//! The integration tests, one module for each part of the crate.

mod check;
mod cpu;
mod cpu_fused;
mod devices;
mod fusion_rows;
mod gguf;
mod golden_graph;
mod golden_models;
mod golden_plans;
mod gpu;
mod invariants;
mod kernels;
mod model;
mod model_golden;
mod models;
mod plan_cases;
mod plan_random;
mod protocol;
mod quant;
mod rig;
mod support;
