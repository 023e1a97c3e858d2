//! The integration tests, one module for each part of the crate.

mod gguf;
mod golden_graph;
mod golden_plans;
mod model_golden;
