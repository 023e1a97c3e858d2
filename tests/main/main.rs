//! The integration tests, in one binary.

mod fusion_rows;
mod golden_graph;
mod golden_plans;
mod invariants;
mod plan_cases;
mod plan_random;
mod support;
