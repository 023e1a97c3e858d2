//! Graphs: what every operation gives and refuses, how views share memory, and the order in which graphs run.

mod accepts;
mod order;
mod random;
mod refuses;
mod refuses_pointwise;
mod refuses_reductions;
mod views;

use wgfuse::graph::{DType, FlashAttn, Graph, LeafKind, Precision, Rope, RopeMode, TensorId};

/// How a source lies in memory.
#[derive(Clone, Copy, Debug)]
enum Form {
    Dense,
    /// Its rows are dense, but lie apart.
    Apart,
    /// Its elements lie apart.
    Sparse,
}

/// A source of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    dtype: DType,
    ne: [usize; 4],
    form: Form,
}

impl Source {
    const fn apart(self) -> Self {
        Self { form: Form::Apart, ..self }
    }

    const fn sparse(self) -> Self {
        Self { form: Form::Sparse, ..self }
    }

    fn make(self, graph: &mut Graph) -> TensorId {
        let [n0, n1, n2, n3] = self.ne;
        let leaf = |graph: &mut Graph, ne| graph.leaf("", LeafKind::Input, self.dtype, ne).expect("a leaf");
        let unit = self.dtype.block_bytes();
        let (row, step) = match self.form {
            Form::Dense => return leaf(graph, self.ne),
            Form::Apart => (n0 + 1, unit),
            Form::Sparse => (2 * n0, 2 * unit),
        };
        let base = leaf(graph, [row, n1, n2, n3]);
        let mut nb = graph.tensor(base).nb();
        nb[0] = step;
        graph.view(base, self.ne, nb, 0).expect("a view")
    }
}

/// Leaves for sources, in their slots.
fn make(graph: &mut Graph, sources: &[Option<Source>]) -> Vec<Option<TensorId>> {
    sources.iter().map(|source| source.map(|source| source.make(graph))).collect()
}

const fn of(dtype: DType, ne: [usize; 4]) -> Option<Source> {
    Some(Source { dtype, ne, form: Form::Dense })
}

const fn f32(ne: [usize; 4]) -> Option<Source> {
    of(DType::F32, ne)
}

const fn f16(ne: [usize; 4]) -> Option<Source> {
    of(DType::F16, ne)
}

const fn i32(ne: [usize; 4]) -> Option<Source> {
    of(DType::I32, ne)
}

const fn i64(ne: [usize; 4]) -> Option<Source> {
    of(DType::I64, ne)
}

const fn apart(source: Option<Source>) -> Option<Source> {
    match source {
        Some(source) => Some(source.apart()),
        None => None,
    }
}

const fn sparse(source: Option<Source>) -> Option<Source> {
    match source {
        Some(source) => Some(source.sparse()),
        None => None,
    }
}

const ROPE: Rope = Rope {
    n_dims: 4,
    first_dim: 0,
    mode: RopeMode::Neox,
    n_ctx_orig: 512,
    freq_base: 10_000.0,
    freq_scale: 0.5,
    ext_factor: 0.25,
    attn_factor: 1.5,
    beta_fast: 32.0,
    beta_slow: 2.0,
};

const ATTN: FlashAttn = FlashAttn { scale: 0.125, max_bias: 8.0, logit_softcap: 30.0, precision: Precision::F32 };
