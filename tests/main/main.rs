//! The integration tests, in one binary.

mod golden_graph;
mod golden_plans;
