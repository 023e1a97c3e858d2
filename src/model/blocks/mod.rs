//! The blocks that architectures are made of.
//!
//! A block has two halves: its switches, which a row of the table sets, and its numbers, which it reads from metadata.
//! Together they say which tensors and caches it has and which nodes it adds to a graph.

mod attention;
mod delta_net;
mod embedding;
mod experts;
mod feed_forward;
mod norm;
mod state;

pub(super) use attention::{Attn, Cap, Mask, Pos, Projection, Scale};
pub(super) use delta_net::DeltaNet;
pub(super) use embedding::{Embed, Embedding, Head, Logits, OutputRows};
pub(super) use experts::{ExpertWidth, Moe, Shared, SharedGate};
pub(super) use feed_forward::{Act, Dense};
pub(super) use norm::{Norm, Normalizer};

use super::builder::Builder;
use super::weights::Wants;
use super::{CacheSpec, ModelError};
use crate::graph::TensorId;
use std::fmt::Debug;

/// A block of one layer, with its numbers: `[n_embd, n_tokens]` in, `[n_embd, n_tokens]` out.
pub(super) trait Block: Debug + Send + Sync {
    /// States which tensors it has.
    fn wants(&self, wants: &mut Wants);

    /// The caches it keeps between runs, for a context of `n_ctx` rows.
    fn caches(&self, n_ctx: usize) -> Vec<CacheSpec>;

    /// Adds its nodes.
    fn build(&self, b: &mut Builder<'_>, x: TensorId) -> Result<TensorId, ModelError>;
}
