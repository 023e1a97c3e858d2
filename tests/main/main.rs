//! The integration tests, one module for each part of the crate.

mod device;
mod devices;
mod fusions;
mod gguf;
mod golden;
mod invariants;
mod model;
mod models;
mod numbers;
mod operations;
mod plan_cases;
mod plan_random;
mod protocol;
mod reference;
mod rig;
mod support;
