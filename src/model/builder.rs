//! Graphs of models: what blocks use to add their nodes, and how a layer's blocks are joined.

use super::arch::Place;
use super::blocks::OutputRows;
use super::structure::{LayerBlocks, Structure};
use super::weights::{Part, Site, Stem, tensor_name};
use super::{CacheSpec, MAX_CONTEXT, Model, ModelError};
use crate::graph::{DType, Graph, LeafKind, TensorId};
use std::collections::HashMap;

/// What a graph is built for: a batch of tokens of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphInputs {
    /// Tokens.
    pub n_tokens: usize,
    /// Cache rows that attention reads, from the first on; the mask hides those that do not count.
    pub n_kv: usize,
    /// Tokens whose logits are wanted.
    pub n_outputs: usize,
    /// The batch starts its sequence, so that recurrent states are cleared first.
    pub fresh: bool,
    /// Cache rows.
    pub n_ctx: usize,
}

impl GraphInputs {
    fn check(self) -> Result<Self, ModelError> {
        let Self { n_tokens, n_kv, n_outputs, fresh: _, n_ctx } = self;
        let holds = (1..=n_ctx).contains(&n_tokens)
            && (1..=n_ctx).contains(&n_kv)
            && n_outputs <= n_tokens
            && n_ctx <= MAX_CONTEXT;
        if holds { Ok(self) } else { Err(ModelError::Batch { n_tokens, n_outputs, n_kv, n_ctx }) }
    }
}

/// What an input holds, so that whoever fills it needs to know nothing of architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InputRole {
    /// i32 `[n_tokens]`: the tokens.
    Tokens,
    /// i32 `[n_tokens]`: their positions.
    Positions,
    /// i64 `[n_tokens]`: the cache row for each token's key, in the layers with this window.
    KeyRows {
        /// See [`InputRole::Mask`].
        window: Option<u32>,
    },
    /// i64 `[n_tokens]`: the cache row for each token's value, in the layers with this window.
    ValueRows {
        /// See [`InputRole::Mask`].
        window: Option<u32>,
    },
    /// f16 `[n_kv, n_tokens]`: 0 where a token sees a cache row, -inf where it does not. A token sees the rows of its
    /// sequence at its own position and before.
    Mask {
        /// How many positions a token sees, its own included; all without one.
        window: Option<u32>,
    },
    /// i32 `[n_outputs]`: which tokens' logits are wanted.
    OutIds,
    /// i32 `[1]`: the slot that the sequence's recurrent state is read from.
    StateCopy,
}

impl InputRole {
    const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "inp_tokens",
            Self::Positions => "inp_pos",
            Self::KeyRows { window: None } => "attn_inp_k_idxs",
            Self::KeyRows { window: Some(_) } => "attn_inp_k_idxs_swa",
            Self::ValueRows { window: None } => "attn_inp_v_idxs",
            Self::ValueRows { window: Some(_) } => "attn_inp_v_idxs_swa",
            Self::Mask { window: None } => "attn_inp_kq_mask",
            Self::Mask { window: Some(_) } => "attn_inp_kq_mask_swa",
            Self::OutIds => "out_ids",
            Self::StateCopy => "rs_s_copy",
        }
    }

    const fn layout(self, batch: &GraphInputs) -> (DType, [usize; 4]) {
        match self {
            Self::Tokens | Self::Positions => (DType::I32, [batch.n_tokens, 1, 1, 1]),
            Self::KeyRows { window: _ } | Self::ValueRows { window: _ } => (DType::I64, [batch.n_tokens, 1, 1, 1]),
            Self::Mask { window: _ } => (DType::F16, [batch.n_kv, batch.n_tokens, 1, 1]),
            Self::OutIds => (DType::I32, [batch.n_outputs, 1, 1, 1]),
            Self::StateCopy => (DType::I32, [1, 1, 1, 1]),
        }
    }
}

/// A leaf that the caller fills before each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// What it holds.
    pub role: InputRole,
    /// The leaf.
    pub id: TensorId,
}

/// A model's graph. Its weights and caches are leaves with the names of [`Model::tensors`] and [`Model::caches`].
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltGraph {
    /// The graph, expanded.
    pub graph: Graph,
    /// f32 `[n_vocab, n_outputs]`.
    pub logits: TensorId,
    /// What the caller fills, each role once.
    pub inputs: Vec<Input>,
}

/// What may follow a product with a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    /// Adding the matrix's bias.
    Bias,
    /// Multiplying by the matrix's scale.
    Scale,
}

/// A graph while blocks add to it.
pub(super) struct Builder<'m> {
    pub(super) graph: Graph,
    pub(super) batch: GraphInputs,
    model: &'m Model,
    /// Weights and caches that the graph has so far.
    leaves: HashMap<String, TensorId>,
    inputs: Vec<Input>,
    /// See [`Self::state_ids`].
    state_ids: Option<[TensorId; 2]>,
}

impl Builder<'_> {
    /// A weight.
    pub(super) fn weight(&mut self, site: Site, stem: Stem, part: Part) -> Result<TensorId, ModelError> {
        match self.optional(site, stem, part)? {
            Some(id) => Ok(id),
            None => Err(ModelError::MissingTensor { tensor: tensor_name(site, stem, part) }),
        }
    }

    /// A weight, if the model has it.
    pub(super) fn optional(&mut self, site: Site, stem: Stem, part: Part) -> Result<Option<TensorId>, ModelError> {
        let name = tensor_name(site, stem, part);
        let Some(spec) = self.model.weights.get(&name) else { return Ok(None) };
        self.leaf(name, LeafKind::Weight, spec.dtype, spec.ne).map(Some)
    }

    /// A cache.
    pub(super) fn cache(&mut self, spec: CacheSpec) -> Result<TensorId, ModelError> {
        self.leaf(spec.name, LeafKind::Cache, spec.dtype, spec.ne)
    }

    fn leaf(&mut self, name: String, kind: LeafKind, dtype: DType, ne: [usize; 4]) -> Result<TensorId, ModelError> {
        if let Some(&id) = self.leaves.get(&name) {
            return Ok(id);
        }
        let id = self.graph.leaf(name.as_str(), kind, dtype, ne)?;
        self.leaves.insert(name, id);
        Ok(id)
    }

    /// An input.
    pub(super) fn input(&mut self, role: InputRole) -> Result<TensorId, ModelError> {
        if let Some(input) = self.inputs.iter().find(|input| input.role == role) {
            return Ok(input.id);
        }
        let (dtype, ne) = role.layout(&self.batch);
        let id = self.graph.leaf(role.name(), LeafKind::Input, dtype, ne)?;
        self.inputs.push(Input { role, id });
        Ok(id)
    }

    /// The two parts of [`InputRole::StateCopy`], which all layers share: the slots of the batch's sequences, and those
    /// of the others, which move; with one sequence there are none.
    pub(super) fn state_ids(&mut self) -> Result<[TensorId; 2], ModelError> {
        if let Some(parts) = self.state_ids {
            return Ok(parts);
        }
        let ids = self.input(InputRole::StateCopy)?;
        let end = self.graph.tensor(ids).nb()[1];
        let parts = [self.view_1d(ids, 1, 0)?, self.view_1d(ids, 0, end)?];
        self.state_ids = Some(parts);
        Ok(parts)
    }

    /// Whether some layer of the model has a window.
    pub(super) const fn has_windows(&self) -> bool {
        self.model.structure.has_windows
    }

    /// `x [k, n]` by the matrix of a stem `[k, m]`, then what comes `after`, as far as the model has it: `[m, n]`.
    pub(super) fn linear(
        &mut self,
        site: Site,
        stem: Stem,
        x: TensorId,
        after: &[After],
    ) -> Result<TensorId, ModelError> {
        let matrix = self.weight(site, stem, Part::Weight)?;
        let mut y = self.graph.mul_mat(matrix, x)?;
        for step in after {
            y = match step {
                After::Bias => match self.optional(site, stem, Part::Bias)? {
                    Some(bias) => self.graph.add(y, bias)?,
                    None => y,
                },
                After::Scale => match self.optional(site, stem, Part::Scale)? {
                    Some(scale) => self.graph.mul(y, scale)?,
                    None => y,
                },
            };
        }
        Ok(y)
    }

    /// The rows of `x [n, n_tokens]` whose logits are wanted: `[n, n_outputs]`.
    pub(super) fn output_rows(&mut self, x: TensorId) -> Result<TensorId, ModelError> {
        let ids = self.input(InputRole::OutIds)?;
        Ok(self.graph.get_rows(x, ids)?)
    }

    /// `n` neighbouring elements of `a`, from byte `offset` on.
    pub(super) fn view_1d(&mut self, a: TensorId, n: usize, offset: usize) -> Result<TensorId, ModelError> {
        let unit = self.graph.tensor(a).nb()[0];
        let row = unit * n;
        self.view(a, [n, 1, 1, 1], [unit, row, row, row], offset)
    }

    /// Rows of `a`, `row` bytes apart, from byte `offset` on.
    pub(super) fn view_2d(
        &mut self,
        a: TensorId,
        [n, rows]: [usize; 2],
        row: usize,
        offset: usize,
    ) -> Result<TensorId, ModelError> {
        let unit = self.graph.tensor(a).nb()[0];
        let plane = row * rows;
        self.view(a, [n, rows, 1, 1], [unit, row, plane, plane], offset)
    }

    /// Planes of `a`, with the strides of rows and planes in bytes, from byte `offset` on.
    pub(super) fn view_3d(
        &mut self,
        a: TensorId,
        [n, rows, planes]: [usize; 3],
        [row, plane]: [usize; 2],
        offset: usize,
    ) -> Result<TensorId, ModelError> {
        let unit = self.graph.tensor(a).nb()[0];
        self.view(a, [n, rows, planes, 1], [unit, row, plane, plane * planes], offset)
    }

    /// A view; an empty one of a batch without outputs may be asked to start past the end of what it looks at.
    fn view(&mut self, a: TensorId, ne: [usize; 4], nb: [usize; 4], offset: usize) -> Result<TensorId, ModelError> {
        let end = self.graph.tensor(a).layout().extent();
        let offset = if ne.contains(&0) { offset.min(end) } else { offset };
        Ok(self.graph.view(a, ne, nb, offset)?)
    }

    /// One layer: `x [n_embd, n_tokens]` to `[n_embd, n_tokens]`, or `[n_embd, n_outputs]` where `last`.
    fn layer(&mut self, index: usize, layer: &LayerBlocks, x: TensorId, last: bool) -> Result<TensorId, ModelError> {
        let (site, norm) = (Site::Layer(index), self.model.structure.norm);
        let normed = norm.build(self, site, Stem::AttnNorm, x)?;
        match layer.row.place {
            Place::Pre | Place::Sandwich => {
                let mut y = layer.mixer.build(self, normed)?;
                let mut x = x;
                if last {
                    (y, x) = (self.output_rows(y)?, self.output_rows(x)?);
                }
                if layer.row.place == Place::Sandwich {
                    y = norm.build(self, site, Stem::PostAttentionNorm, y)?;
                }
                let x = self.graph.add(y, x)?;
                let y = norm.build(self, site, layer.row.ffn_norm, x)?;
                let mut y = layer.network.build(self, y)?;
                if layer.row.place == Place::Sandwich {
                    y = norm.build(self, site, Stem::PostFfwNorm, y)?;
                }
                Ok(self.graph.add(y, x)?)
            }
            Place::Parallel { second_norm: _, network_first } => {
                let mut rows = normed;
                let own = layer.second_norm.then(|| norm.build(self, site, Stem::AttnNorm2, x)).transpose()?;
                let mut y = layer.mixer.build(self, own.unwrap_or(normed))?;
                let mut x = x;
                if last {
                    (y, x, rows) = (self.output_rows(y)?, self.output_rows(x)?, self.output_rows(rows)?);
                }
                let z = layer.network.build(self, rows)?;
                let sum = if network_first { self.graph.add(z, y)? } else { self.graph.add(y, z)? };
                Ok(self.graph.add(sum, x)?)
            }
        }
    }
}

/// The graph of a model for a batch.
pub(super) fn build(model: &Model, batch: &GraphInputs) -> Result<BuiltGraph, ModelError> {
    let batch = batch.check()?;
    let mut b =
        Builder { graph: Graph::new(), batch, model, leaves: HashMap::new(), inputs: Vec::new(), state_ids: None };
    let Structure { norm, embedding, layers, logits, .. } = &model.structure;
    let mut x = embedding.build(&mut b)?;
    for (index, layer) in layers.iter().enumerate() {
        let last = index + 1 == layers.len() && logits.rows() == OutputRows::LastLayer;
        x = b.layer(index, layer, x, last).map_err(|error| error.in_layer(index))?;
    }
    let logits = logits.build(&mut b, norm, x)?;
    b.graph.expand(logits)?;
    Ok(BuiltGraph { graph: b.graph, logits, inputs: b.inputs })
}
