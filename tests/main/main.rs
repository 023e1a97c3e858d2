//! The integration tests, one module for each part of the crate.

mod gguf;
mod model;
mod model_golden;
