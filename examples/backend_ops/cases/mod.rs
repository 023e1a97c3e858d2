//! The cases: a grid of types, shapes and layouts for each operation, one file for each family.

mod attention;
mod copies;
mod filling;
mod fused;
mod gradients;
mod norms;
mod pointwise;
mod products;
mod recurrent;
mod rope;
mod sorts;

use crate::builder::Builder;
pub use recurrent::delta_net as recurrent_sources;
use std::collections::BTreeMap;
use wgfuse::graph::{DType, GraphError, OpKind};

pub type Built = Result<(), GraphError>;

pub const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Sizes of one, odd ones, none, more than a workgroup and more rows than a dispatch has workgroups.
pub const SHAPES: [[usize; 4]; 8] = [
    [64, 5, 3, 2],
    [1, 1, 1, 1],
    [7, 1, 1, 1],
    [33, 3, 1, 1],
    [259, 2, 3, 1],
    [5, 0, 2, 1],
    [1100, 1, 1, 2],
    [2, 66_000, 1, 1],
];

/// One graph to be compared.
pub struct Case {
    /// The operation, or the pattern.
    pub label: String,
    /// The type that the case is about.
    pub dtype: DType,
    /// What else is particular to it.
    pub params: String,
    /// Whether the pattern must fire.
    pub fuses: bool,
    /// Makes the graph.
    pub build: Box<dyn Fn(&mut Builder) -> Built + Send + Sync>,
}

/// A list of cases under construction.
#[derive(Default)]
pub struct Cases(Vec<Case>);

impl Cases {
    /// A case of an operation.
    pub fn op(
        &mut self,
        kind: OpKind,
        dtype: DType,
        params: String,
        build: impl Fn(&mut Builder) -> Built + Send + Sync + 'static,
    ) {
        let (label, params) = (kind.label().to_owned(), format!("type={dtype},{params}"));
        self.0.push(Case { label, dtype, params, fuses: false, build: Box::new(build) });
    }

    /// A case of a pattern.
    pub fn pattern(
        &mut self,
        label: String,
        dtype: DType,
        params: String,
        build: impl Fn(&mut Builder) -> Built + Send + Sync + 'static,
    ) {
        let params = format!("type={dtype},{params}");
        self.0.push(Case { label, dtype, params, fuses: true, build: Box::new(build) });
    }
}

/// Every case.
pub fn all() -> Vec<Case> {
    let mut cases = Cases::default();
    copies::add(&mut cases);
    pointwise::add(&mut cases);
    filling::add(&mut cases);
    products::add(&mut cases);
    norms::add(&mut cases);
    rope::add(&mut cases);
    attention::add(&mut cases);
    recurrent::add(&mut cases);
    sorts::add(&mut cases);
    gradients::add(&mut cases);
    fused::add(&mut cases);
    cases.0
}

/// The first cases of every operation and type: for a quick run.
pub fn subset(cases: &[Case]) -> Vec<&Case> {
    let mut taken: BTreeMap<(&str, DType), usize> = BTreeMap::new();
    let mut chosen = Vec::new();
    for case in cases {
        let count = taken.entry((&case.label, case.dtype)).or_default();
        *count += 1;
        if *count <= 2 {
            chosen.push(case);
        }
    }
    chosen
}

/// Operations for which there is no case.
pub fn missing(cases: &[Case]) -> Vec<OpKind> {
    let has = |kind: &OpKind| cases.iter().any(|case| case.label == kind.label());
    OpKind::ALL.iter().copied().filter(|kind| !has(kind)).collect()
}
