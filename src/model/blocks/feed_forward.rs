//! The dense feed-forward network.

use super::Block;
use crate::graph::{Glu, TensorId, Unary};
use crate::model::builder::{After, Builder};
use crate::model::hparams::{Facts, Hparams};
use crate::model::weights::{Need, Site, Stem, Wants};
use crate::model::{CacheSpec, ModelError};

/// The activation between the projections up and down.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) enum Act {
    /// `act(up(x))`.
    Plain(Unary),
    /// `act(gate(x)) · up(x)`.
    Gated(Glu),
}

/// Switches of a dense feed-forward network.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Dense {
    pub act: Act,
    /// Whether the projections may have a bias.
    pub bias: Option<Need>,
    /// Whether graphs apply the weights' scales.
    pub scales: bool,
}

impl Dense {
    pub(in crate::model) fn read(
        self,
        facts: &Facts<'_>,
        hparams: &Hparams,
        layer: usize,
    ) -> Result<FeedForward, ModelError> {
        Ok(FeedForward {
            row: self,
            site: Site::Layer(layer),
            stems: Stems { gate: Stem::FfnGate, up: Stem::FfnUp, down: Stem::FfnDown },
            n_embd: hparams.n_embd,
            width: facts.layer_size("feed_forward_length", layer)?,
        })
    }
}

/// What the three matrices are called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stems {
    pub gate: Stem,
    pub up: Stem,
    pub down: Stem,
}

/// [`Dense`] with its numbers.
#[derive(Clone, Debug)]
pub(in crate::model) struct FeedForward {
    pub(super) row: Dense,
    pub(super) site: Site,
    pub(super) stems: Stems,
    pub(super) n_embd: usize,
    /// Width between the projections.
    pub(super) width: usize,
}

impl FeedForward {
    /// `x [n_embd, n_tokens]` by one of the matrices. Bias first: the scale of these matrices is on the whole sum.
    fn linear(&self, b: &mut Builder<'_>, stem: Stem, x: TensorId) -> Result<TensorId, ModelError> {
        let after: &[After] = if self.row.scales { &[After::Bias, After::Scale] } else { &[After::Bias] };
        b.linear(self.site, stem, x, after)
    }
}

impl Block for FeedForward {
    fn wants(&self, wants: &mut Wants) {
        let scale = if self.row.scales { Need::Optional } else { Need::Unread };
        let mut linear = |stem, from, to| wants.linear(self.site, stem, &[from, to], self.row.bias, scale);
        match self.row.act {
            Act::Plain(_) => {}
            Act::Gated(_) => linear(self.stems.gate, self.n_embd, self.width),
        }
        linear(self.stems.up, self.n_embd, self.width);
        linear(self.stems.down, self.width, self.n_embd);
    }

    fn caches(&self, _n_ctx: usize) -> Vec<CacheSpec> {
        Vec::new()
    }

    fn build(&self, b: &mut Builder<'_>, x: TensorId) -> Result<TensorId, ModelError> {
        let up = self.linear(b, self.stems.up, x)?;
        let hidden = match self.row.act {
            Act::Plain(unary) => b.graph.unary(up, unary)?,
            Act::Gated(glu) => {
                let gate = self.linear(b, self.stems.gate, x)?;
                b.graph.glu(gate, up, glu)?
            }
        };
        self.linear(b, self.stems.down, hidden)
    }
}
