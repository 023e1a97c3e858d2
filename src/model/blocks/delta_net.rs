//! The gated delta net: linear attention with a matrix per head for its state (Yang et al. 2024, arXiv 2412.06464).

use super::norm::Normalizer;
use super::{Block, state};
use crate::graph::{TensorId, Unary};
use crate::model::builder::Builder;
use crate::model::hparams::{Facts, Hparams};
use crate::model::weights::{Need, Part, Site, Stem, Wants};
use crate::model::{CacheSpec, ModelError};

/// A gated delta net; it has no switches.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct DeltaNet;

/// [`DeltaNet`] with its numbers.
#[derive(Clone, Debug)]
pub(in crate::model) struct GatedDelta {
    layer: usize,
    norm: Normalizer,
    n_embd: usize,
    /// Length of a key, and of a value: states are square.
    state: usize,
    /// Heads of queries and keys, each of which serves several heads of values.
    heads_k: usize,
    heads_v: usize,
    /// Width of the convolution's kernel.
    kernel: usize,
}

impl DeltaNet {
    pub(in crate::model) fn read(
        self,
        facts: &Facts<'_>,
        hparams: &Hparams,
        norm: Normalizer,
        layer: usize,
    ) -> Result<GatedDelta, ModelError> {
        let state = facts.size("ssm.state_size")?;
        let heads_k = facts.size("ssm.group_count")?;
        let heads_v = facts.size("ssm.time_step_rank")?;
        if facts.size("ssm.inner_size")? != state * heads_v {
            return Err(facts.wrong("ssm.inner_size", format!("{heads_v} heads of {state}")));
        }
        if !heads_v.is_multiple_of(heads_k) {
            return Err(facts.wrong("ssm.group_count", format!("a divisor of {heads_v}")));
        }
        let kernel = facts.size("ssm.conv_kernel")?;
        Ok(GatedDelta { layer, norm, n_embd: hparams.n_embd, state, heads_k, heads_v, kernel })
    }
}

impl GatedDelta {
    fn site(&self) -> Site {
        Site::Layer(self.layer)
    }

    /// Width of the values of all heads.
    fn inner(&self) -> usize {
        self.state * self.heads_v
    }

    /// Channels of the convolution: queries, keys and values of all heads.
    fn channels(&self) -> usize {
        2 * self.state * self.heads_k + self.inner()
    }

    fn conv_cache(&self) -> CacheSpec {
        state::spec("cache_r_l", self.layer, (self.kernel - 1) * self.channels())
    }

    fn state_cache(&self) -> CacheSpec {
        state::spec("cache_s_l", self.layer, self.state * self.inner())
    }

    /// The inputs of the convolution, `[kernel - 1 + n_tokens, channels]`, the last of which stay for the next batch.
    fn conv_input(&self, b: &mut Builder<'_>, x: TensorId) -> Result<TensorId, ModelError> {
        let n_tokens = b.graph.tensor(x).ne()[1];
        let (channels, before) = (self.channels(), self.kernel - 1);
        let cache = b.cache(self.conv_cache())?;
        let past = state::gather(b, cache)?;
        let past = b.graph.reshape(past, [before, channels, 1, 1])?;
        let mixed = b.linear(self.site(), Stem::AttnQkv, x, &[])?;
        let mixed = b.graph.reshape(mixed, [channels, n_tokens, 1, 1])?;
        let mixed = b.graph.transpose(mixed)?;
        let input = b.graph.concat(past, mixed, 0)?;
        let nb = b.graph.tensor(input).nb();
        let last = b.view_3d(input, [before, channels, 1], [nb[1], nb[2]], n_tokens * nb[0])?;
        state::scatter(b, last, cache)?;
        Ok(input)
    }

    /// Queries or keys `[state, heads_k, n_tokens]` of length 1, one for each head of values.
    fn unit(&self, b: &mut Builder<'_>, x: TensorId) -> Result<TensorId, ModelError> {
        let Self { state, heads_k, heads_v, .. } = *self;
        let n_tokens = b.graph.tensor(x).ne()[2];
        // x / sqrt(sum of squares + eps) by the kernel that divides by the root of the mean.
        let x = b.graph.rms_norm(x, self.norm.eps / state as f32)?;
        let x = b.graph.scale(x, 1.0 / (state as f32).sqrt(), 0.0)?;
        if heads_k == heads_v {
            return Ok(x);
        }
        // Neighbouring heads of values share a head of keys, while the operation would deal them out in turn.
        let group = heads_v / heads_k;
        let x = b.graph.reshape(x, [state, 1, heads_k * n_tokens, 1])?;
        let x = b.graph.repeat(x, [state, group, heads_k * n_tokens, 1])?;
        Ok(b.graph.reshape(x, [state, heads_v, n_tokens, 1])?)
    }

    /// Log decay and learning rate of every head and token, each `[1, heads_v, n_tokens]`.
    fn rates(&self, b: &mut Builder<'_>, x: TensorId) -> Result<[TensorId; 2], ModelError> {
        let Self { heads_k, heads_v, .. } = *self;
        let n_tokens = b.graph.tensor(x).ne()[1];
        let group = heads_v / heads_k;
        let both = b.linear(self.site(), Stem::SsmBa, x, &[])?;
        let both = b.graph.reshape(both, [2 * group, heads_k, n_tokens, 1])?;
        let nb = b.graph.tensor(both).nb();
        let rate = b.view_3d(both, [group, heads_k, n_tokens], [nb[1], nb[2]], 0)?;
        let decay = b.view_3d(both, [group, heads_k, n_tokens], [nb[1], nb[2]], group * nb[0])?;

        let decay = b.graph.cont(decay, [heads_v, n_tokens, 1, 1])?;
        let bias = b.weight(self.site(), Stem::SsmDt, Part::Bias)?;
        let decay = b.graph.add(decay, bias)?;
        let decay = b.graph.unary(decay, Unary::Softplus)?;
        let factor = b.weight(self.site(), Stem::SsmA, Part::Bare)?;
        let decay = b.graph.mul(decay, factor)?;
        let decay = b.graph.reshape(decay, [1, heads_v, n_tokens, 1])?;

        let rate = b.graph.cont(rate, [group, heads_k, n_tokens, 1])?;
        let rate = b.graph.unary(rate, Unary::Sigmoid)?;
        let rate = b.graph.reshape(rate, [1, heads_v, n_tokens, 1])?;
        Ok([decay, rate])
    }
}

impl Block for GatedDelta {
    fn wants(&self, wants: &mut Wants) {
        let Self { n_embd, state, heads_v, kernel, .. } = *self;
        let (inner, channels, site) = (self.inner(), self.channels(), self.site());
        // The reference applies no scales in this block.
        wants.linear(site, Stem::AttnQkv, &[n_embd, channels], None, Need::Unread);
        wants.linear(site, Stem::AttnGate, &[n_embd, inner], None, Need::Unread);
        wants.tensor(site, Stem::SsmConv1d, Part::Weight, &[kernel, channels], Need::Required);
        wants.tensor(site, Stem::SsmDt, Part::Bias, &[heads_v], Need::Required);
        wants.tensor(site, Stem::SsmA, Part::Bare, &[heads_v], Need::Required);
        wants.tensor(site, Stem::SsmBa, Part::Weight, &[n_embd, 2 * heads_v], Need::Required);
        self.norm.wants(wants, site, Stem::SsmNorm, state, Need::Required);
        wants.linear(site, Stem::SsmOut, &[inner, n_embd], None, Need::Unread);
        // An older form of attn_qkv and attn_gate in one.
        for part in [Part::Weight, Part::Scale, Part::InputScale] {
            let ne: &[usize] = if part == Part::Weight { &[n_embd, channels + inner] } else { &[1] };
            wants.tensor(site, Stem::SsmIn, part, ne, Need::Unread);
        }
    }

    fn caches(&self, _n_ctx: usize) -> Vec<CacheSpec> {
        vec![self.conv_cache(), self.state_cache()]
    }

    fn build(&self, b: &mut Builder<'_>, x: TensorId) -> Result<TensorId, ModelError> {
        let Self { state, heads_k, heads_v, .. } = *self;
        let n_tokens = b.graph.tensor(x).ne()[1];
        b.graph.expand(x)?;
        let conv = self.conv_input(b, x)?;
        let cache = b.cache(self.state_cache())?;
        let past = state::gather(b, cache)?;
        let kernel = b.weight(self.site(), Stem::SsmConv1d, Part::Weight)?;
        let conv = b.graph.ssm_conv(conv, kernel)?;
        let conv = b.graph.unary(conv, Unary::Silu)?;

        let nb = b.graph.tensor(conv).nb();
        let head = state * nb[0];
        let q = b.view_3d(conv, [state, heads_k, n_tokens], [head, nb[1]], 0)?;
        let k = b.view_3d(conv, [state, heads_k, n_tokens], [head, nb[1]], heads_k * head)?;
        let v = b.view_3d(conv, [state, heads_v, n_tokens], [head, nb[1]], 2 * heads_k * head)?;
        let (q, k) = (self.unit(b, q)?, self.unit(b, k)?);
        let [decay, rate] = self.rates(b, x)?;
        let past = b.graph.reshape(past, [state, state, heads_v, 1])?;
        let both = b.graph.gated_delta_net([q, k, v, decay, rate, past], 1)?;

        let nb = b.graph.tensor(both).nb();
        let row = state * nb[0];
        let after = b.view_3d(both, [state, state, heads_v], [row, row * state], n_tokens * nb[1])?;
        state::scatter(b, after, cache)?;
        let y = b.view_3d(both, [state, heads_v, n_tokens], [row, row * heads_v], 0)?;
        let y = self.norm.build(b, self.site(), Stem::SsmNorm, y)?;
        let gate = b.linear(self.site(), Stem::AttnGate, x, &[])?;
        let gate = b.graph.reshape(gate, [state, heads_v, n_tokens, 1])?;
        let gate = b.graph.unary(gate, Unary::Silu)?;
        let y = b.graph.mul(y, gate)?;
        let y = b.graph.reshape(y, [self.inner(), n_tokens, 1, 1])?;
        let y = b.linear(self.site(), Stem::SsmOut, y, &[])?;
        Ok(b.graph.reshape(y, [self.n_embd, n_tokens, 1, 1])?)
    }
}
