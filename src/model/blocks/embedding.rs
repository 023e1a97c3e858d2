//! The two ends of a model: tokens to rows, and rows to logits.

use super::attention::Cap;
use super::norm::Normalizer;
use crate::graph::{TensorId, Unary};
use crate::model::ModelError;
use crate::model::builder::{Builder, InputRole};
use crate::model::hparams::{Facts, Hparams};
use crate::model::weights::{Need, Part, Site, Stem, Wants, tensor_name};

/// Switches of the embedding.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Embed {
    /// Whether a learned row for each position is added.
    pub positions: bool,
    /// Whether rows are multiplied by the square root of their width.
    pub scaled: bool,
}

/// Switches of the head.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Head {
    /// The output matrix is the token embedding. Where it is not, it still is in files without an output matrix.
    pub tied: bool,
    pub bias: Option<Need>,
    /// Where rows without wanted logits leave.
    pub rows: OutputRows,
    pub cap: Option<Cap>,
}

/// Where the rows whose logits are wanted are picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum OutputRows {
    /// In the last layer, before its feed-forward network.
    LastLayer,
    /// After the last norm, so that all normalised rows are there for a layer that predicts further tokens.
    Head,
}

/// [`Embed`] with its numbers.
#[derive(Clone, Debug)]
pub(in crate::model) struct Embedding {
    row: Embed,
    n_embd: usize,
    n_vocab: usize,
    n_ctx_train: usize,
    /// Whether the head has the token embedding.
    tied: bool,
}

impl Embedding {
    pub(in crate::model) fn new(row: Embed, head: Head, hparams: &Hparams) -> Self {
        let Hparams { n_vocab, n_ctx_train, n_embd, n_layer: _, n_expert: _ } = *hparams;
        Self { row, n_embd, n_vocab, n_ctx_train, tied: head.tied }
    }

    pub(in crate::model) fn wants(&self, wants: &mut Wants) {
        if self.tied {
            wants.tied(&[self.n_embd, self.n_vocab]);
        } else {
            let ne = [self.n_embd, self.n_vocab];
            wants.tensor(Site::Model, Stem::TokenEmbd, Part::Weight, &ne, Need::Required);
        }
        if self.row.positions {
            let ne = [self.n_embd, self.n_ctx_train];
            wants.tensor(Site::Model, Stem::PositionEmbd, Part::Weight, &ne, Need::Required);
        }
    }

    /// `[n_embd, n_tokens]`.
    pub(in crate::model) fn build(&self, b: &mut Builder<'_>) -> Result<TensorId, ModelError> {
        let table = b.weight(Site::Model, Stem::TokenEmbd, Part::Weight)?;
        let tokens = b.input(InputRole::Tokens)?;
        let mut x = b.graph.get_rows(table, tokens)?;
        if self.row.scaled {
            x = b.graph.scale(x, (self.n_embd as f32).sqrt(), 0.0)?;
        }
        if self.row.positions {
            if b.batch.n_ctx > self.n_ctx_train {
                return Err(ModelError::Positions { n_ctx: b.batch.n_ctx, learned: self.n_ctx_train });
            }
            let table = b.weight(Site::Model, Stem::PositionEmbd, Part::Weight)?;
            let positions = b.input(InputRole::Positions)?;
            let rows = b.graph.get_rows(table, positions)?;
            x = b.graph.add(x, rows)?;
        }
        Ok(x)
    }
}

/// [`Head`] with its numbers.
#[derive(Clone, Debug)]
pub(in crate::model) struct Logits {
    row: Head,
    n_embd: usize,
    n_vocab: usize,
    /// Whether the output matrix is the token embedding.
    tied: bool,
    cap: Option<f32>,
}

impl Logits {
    pub(in crate::model) fn read(row: Head, facts: &Facts<'_>, hparams: &Hparams) -> Result<Self, ModelError> {
        let Hparams { n_vocab, n_ctx_train: _, n_embd, n_layer: _, n_expert: _ } = *hparams;
        let own = !row.tied && facts.has_tensor(&tensor_name(Site::Model, Stem::Output, Part::Weight), true);
        Ok(Self { row, n_embd, n_vocab, tied: !own, cap: Cap::read(row.cap, facts)? })
    }

    pub(in crate::model) fn wants(&self, wants: &mut Wants, norm: &Normalizer) {
        norm.wants(wants, Site::Model, Stem::OutputNorm, self.n_embd, Need::Required);
        if !self.tied {
            let ne = [self.n_embd, self.n_vocab];
            wants.tensor(Site::Model, Stem::Output, Part::Weight, &ne, Need::Required);
        }
        if let Some(need) = self.row.bias {
            wants.tensor(Site::Model, Stem::Output, Part::Bias, &[self.n_vocab], need);
        }
    }

    /// Where the rows whose logits are wanted are picked.
    pub(in crate::model) const fn rows(&self) -> OutputRows {
        self.row.rows
    }

    /// `x [n_embd, rows]` to logits `[n_vocab, n_outputs]`.
    pub(in crate::model) fn build(
        &self,
        b: &mut Builder<'_>,
        norm: &Normalizer,
        x: TensorId,
    ) -> Result<TensorId, ModelError> {
        let mut x = norm.build(b, Site::Model, Stem::OutputNorm, x)?;
        b.graph.set_output(x)?;
        match self.row.rows {
            OutputRows::LastLayer => {}
            OutputRows::Head => {
                x = b.output_rows(x)?;
                b.graph.set_output(x)?;
            }
        }
        b.graph.set_name(x, "result_norm")?;
        let stem = if self.tied { Stem::TokenEmbd } else { Stem::Output };
        let matrix = b.weight(Site::Model, stem, Part::Weight)?;
        let mut logits = b.graph.mul_mat(matrix, x)?;
        if let Some(bias) = b.optional(Site::Model, Stem::Output, Part::Bias)? {
            logits = b.graph.add(logits, bias)?;
        }
        if let Some(cap) = self.cap {
            logits = b.graph.scale(logits, 1.0 / cap, 0.0)?;
            logits = b.graph.unary(logits, Unary::Tanh)?;
            logits = b.graph.scale(logits, cap, 0.0)?;
        }
        b.graph.set_output(logits)?;
        b.graph.set_name(logits, "result_output")?;
        Ok(logits)
    }
}
