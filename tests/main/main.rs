//! The integration tests, one module for each part of the crate.

mod check;
mod device;
mod devices;
mod failures;
mod fusions;
mod gguf;
mod golden;
mod graph;
mod hostile_use;
mod invariants;
mod model;
mod models;
mod numbers;
mod operations;
mod plan_cases;
mod plan_random;
mod precision;
mod protocol;
mod quant;
mod random_graphs;
mod reference;
mod rig;
mod support;
mod supports;
mod tidy;
