//! Mixtures of experts: a router sends each token through some of many feed-forward networks.

use super::Block;
use super::feed_forward::{Act, Dense, FeedForward, Stems};
use crate::graph::{Glu, SortOrder, TensorId, Unary};
use crate::model::builder::Builder;
use crate::model::hparams::{Facts, Hparams};
use crate::model::weights::{Need, Part, Site, Stem, Wants, tensor_name};
use crate::model::{CacheSpec, ModelError};

/// The smallest sum of router weights that they are divided by: the smallest normal f16.
const MIN_WEIGHT_SUM: f32 = 6.103_515_6e-5;

/// Switches of a mixture of experts.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Moe {
    pub act: Glu,
    pub width: ExpertWidth,
    /// Whether the weights of the chosen experts are brought to a sum of 1.
    pub normalize: bool,
    /// Whether graphs apply the weights' scales, those of the shared expert included.
    pub scales: bool,
    /// Dummies keep gate and up in one tensor; files may do either.
    pub joined: bool,
    pub shared: Option<Shared>,
}

/// Which key has an expert's width.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) enum ExpertWidth {
    /// The one of dense networks.
    Dense,
    /// Their own.
    Own,
}

/// An expert that every token passes.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Shared {
    pub gate: SharedGate,
}

/// How the sigmoid of the shared expert's gate is computed.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) enum SharedGate {
    Sigmoid,
    /// As `silu(x) / x`.
    SiluRatio,
}

/// [`Moe`] with its numbers.
#[derive(Clone, Debug)]
pub(in crate::model) struct Experts {
    row: Moe,
    site: Site,
    n_embd: usize,
    /// Experts, and how many of them a token passes.
    count: usize,
    used: usize,
    /// Width of an expert.
    width: usize,
    /// Whether gate and up are one tensor.
    joined: bool,
    shared: Option<(SharedGate, FeedForward)>,
}

impl Moe {
    pub(in crate::model) fn read(
        self,
        facts: &Facts<'_>,
        hparams: &Hparams,
        layer: usize,
    ) -> Result<Experts, ModelError> {
        let site = Site::Layer(layer);
        let count = facts.size("expert_count")?;
        let used = facts.size("expert_used_count")?;
        if used > count {
            return Err(facts.wrong("expert_used_count", format!("at most {count} experts")));
        }
        let width = match self.width {
            ExpertWidth::Dense => facts.layer_size("feed_forward_length", layer)?,
            ExpertWidth::Own => facts.size("expert_feed_forward_length")?,
        };
        let joined = facts.has_tensor(&tensor_name(site, Stem::FfnGateUpExps, Part::Weight), self.joined);
        let shared = match self.shared {
            Some(Shared { gate }) => {
                let network = FeedForward {
                    row: Dense { act: Act::Gated(self.act), bias: None, scales: self.scales },
                    site,
                    stems: Stems { gate: Stem::FfnGateShexp, up: Stem::FfnUpShexp, down: Stem::FfnDownShexp },
                    n_embd: hparams.n_embd,
                    width: facts.size("expert_shared_feed_forward_length")?,
                };
                Some((gate, network))
            }
            None => None,
        };
        Ok(Experts { row: self, site, n_embd: hparams.n_embd, count, used, width, joined, shared })
    }
}

/// Which experts a batch goes through.
struct Routing {
    /// `[used, n_tokens]`.
    chosen: TensorId,
    /// `[1, used, n_tokens]`.
    weights: TensorId,
}

impl Experts {
    /// Chooses experts for `x [n_embd, n_tokens]`.
    fn route(&self, b: &mut Builder<'_>, x: TensorId) -> Result<Routing, ModelError> {
        let n_tokens = b.graph.tensor(x).ne()[1];
        let router = b.weight(self.site, Stem::FfnGateInp, Part::Weight)?;
        let logits = b.graph.mul_mat(router, x)?;
        let probs = b.graph.soft_max(logits, None, None, 1.0, 0.0)?;
        let sorted = b.graph.argsort(probs, SortOrder::Descending)?;
        let row = b.graph.tensor(sorted).nb()[1];
        let chosen = b.view_2d(sorted, [self.used, n_tokens], row, 0)?;
        let probs = b.graph.reshape(probs, [1, self.count, n_tokens, 1])?;
        let mut weights = b.graph.get_rows(probs, chosen)?;
        if self.row.normalize {
            weights = b.graph.reshape(weights, [self.used, n_tokens, 1, 1])?;
            let sum = b.graph.sum_rows(weights)?;
            let sum = b.graph.clamp(sum, MIN_WEIGHT_SUM, f32::INFINITY)?;
            weights = b.graph.div(weights, sum)?;
            weights = b.graph.reshape(weights, [1, self.used, n_tokens, 1])?;
        }
        // The routing stays together in the execution order.
        b.graph.expand(weights)?;
        Ok(Routing { chosen, weights })
    }

    /// `x [k, used or 1, n_tokens]` through one matrix of each chosen expert: `[m, used, n_tokens]`.
    fn linear(&self, b: &mut Builder<'_>, stem: Stem, x: TensorId, routing: &Routing) -> Result<TensorId, ModelError> {
        let matrices = b.weight(self.site, stem, Part::Weight)?;
        let y = b.graph.mul_mat_id(matrices, x, routing.chosen)?;
        let scale = if self.row.scales { b.optional(self.site, stem, Part::Scale)? } else { None };
        let Some(scale) = scale else { return Ok(y) };
        let n_tokens = b.graph.tensor(y).ne()[2];
        let scale = b.graph.reshape(scale, [1, self.count, 1, 1])?;
        let scale = b.graph.repeat(scale, [1, self.count, n_tokens, 1])?;
        let scale = b.graph.get_rows(scale, routing.chosen)?;
        Ok(b.graph.mul(y, scale)?)
    }

    /// `act(gate(x)) · up(x)`, `[width, used, n_tokens]`.
    fn hidden(&self, b: &mut Builder<'_>, x: TensorId, routing: &Routing) -> Result<TensorId, ModelError> {
        let (gate, up) = if self.joined {
            let both = self.linear(b, Stem::FfnGateUpExps, x, routing)?;
            let t = b.graph.tensor(both);
            let ([_, used, n_tokens, _], nb) = (t.ne(), t.nb());
            let half = [self.width, used, n_tokens];
            (b.view_3d(both, half, [nb[1], nb[2]], 0)?, b.view_3d(both, half, [nb[1], nb[2]], self.width * nb[0])?)
        } else {
            let gate = self.linear(b, Stem::FfnGateExps, x, routing)?;
            (gate, self.linear(b, Stem::FfnUpExps, x, routing)?)
        };
        Ok(b.graph.glu(gate, up, self.row.act)?)
    }

    /// The sum of `y [n_embd, used, n_tokens]` over the used experts.
    fn sum(&self, b: &mut Builder<'_>, y: TensorId) -> Result<TensorId, ModelError> {
        let t = b.graph.tensor(y);
        let ([n_embd, _, n_tokens, _], nb) = (t.ne(), t.nb());
        let mut part = |expert: usize| {
            let part = b.view_2d(y, [n_embd, n_tokens], nb[2], expert * nb[1])?;
            b.graph.expand(part)?;
            Ok::<_, ModelError>(part)
        };
        let mut sum = part(0)?;
        let others: Vec<TensorId> = (1..self.used).map(part).collect::<Result<_, _>>()?;
        if others.is_empty() {
            return Ok(b.graph.cont(sum, [n_embd, n_tokens, 1, 1])?);
        }
        for other in others {
            sum = b.graph.add(sum, other)?;
            b.graph.expand(sum)?;
        }
        Ok(sum)
    }
}

impl Block for Experts {
    fn wants(&self, wants: &mut Wants) {
        let Self { site, n_embd, count, width, .. } = *self;
        let scale = if self.row.scales { Need::Optional } else { Need::Unread };
        wants.tensor(site, Stem::FfnGateInp, Part::Weight, &[n_embd, count], Need::Required);
        if self.joined {
            wants.tensor(site, Stem::FfnGateUpExps, Part::Weight, &[n_embd, 2 * width, count], Need::Required);
        } else {
            wants.linear(site, Stem::FfnGateExps, &[n_embd, width, count], None, scale);
            wants.linear(site, Stem::FfnUpExps, &[n_embd, width, count], None, scale);
        }
        wants.linear(site, Stem::FfnDownExps, &[width, n_embd, count], None, scale);
        if let Some((_, network)) = &self.shared {
            wants.tensor(site, Stem::FfnGateInpShexp, Part::Weight, &[n_embd], Need::Required);
            network.wants(wants);
        }
    }

    fn caches(&self, _n_ctx: usize) -> Vec<CacheSpec> {
        Vec::new()
    }

    fn build(&self, b: &mut Builder<'_>, x: TensorId) -> Result<TensorId, ModelError> {
        let n_tokens = b.graph.tensor(x).ne()[1];
        let routing = self.route(b, x)?;
        let rows = b.graph.reshape(x, [self.n_embd, 1, n_tokens, 1])?;
        let hidden = self.hidden(b, rows, &routing)?;
        let y = self.linear(b, Stem::FfnDownExps, hidden, &routing)?;
        let y = b.graph.mul(y, routing.weights)?;
        let y = self.sum(b, y)?;
        let Some((gate, network)) = &self.shared else { return Ok(y) };
        let shared = network.build(b, x)?;
        let router = b.weight(self.site, Stem::FfnGateInpShexp, Part::Weight)?;
        let logit = b.graph.mul_mat(router, x)?;
        let share = match gate {
            SharedGate::Sigmoid => b.graph.unary(logit, Unary::Sigmoid)?,
            SharedGate::SiluRatio => {
                let silu = b.graph.unary(logit, Unary::Silu)?;
                b.graph.div(silu, logit)?
            }
        };
        let shared = b.graph.mul(shared, share)?;
        Ok(b.graph.add(y, shared)?)
    }
}
