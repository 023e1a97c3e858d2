//! Normalisation with weights.

use crate::graph::TensorId;
use crate::model::ModelError;
use crate::model::builder::Builder;
use crate::model::hparams::Facts;
use crate::model::weights::{Need, Part, Site, Stem, Wants};

/// Which normalisation an architecture has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Norm {
    /// Root mean square, with a weight.
    Rms,
    /// Mean and variance, with a weight and a bias.
    Layer,
}

impl Norm {
    /// The key of its epsilon.
    pub(in crate::model) const fn eps_key(self) -> &'static str {
        match self {
            Self::Rms => "attention.layer_norm_rms_epsilon",
            Self::Layer => "attention.layer_norm_epsilon",
        }
    }
}

/// A [`Norm`] with its epsilon.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Normalizer {
    norm: Norm,
    pub(in crate::model) eps: f32,
}

impl Normalizer {
    pub(in crate::model) fn read(norm: Norm, facts: &Facts<'_>) -> Result<Self, ModelError> {
        Ok(Self { norm, eps: facts.number(norm.eps_key())? })
    }

    /// States the tensors of the norm called `stem`, over rows of `width`.
    pub(in crate::model) fn wants(&self, wants: &mut Wants, site: Site, stem: Stem, width: usize, need: Need) {
        wants.tensor(site, stem, Part::Weight, &[width], need);
        if self.norm == Norm::Layer {
            wants.tensor(site, stem, Part::Bias, &[width], need);
        }
    }

    /// `x` normalised by the weights called `stem`.
    pub(in crate::model) fn build(
        &self,
        b: &mut Builder<'_>,
        site: Site,
        stem: Stem,
        x: TensorId,
    ) -> Result<TensorId, ModelError> {
        let mut y = match self.norm {
            Norm::Rms => b.graph.rms_norm(x, self.eps)?,
            Norm::Layer => b.graph.norm(x, self.eps)?,
        };
        let weight = b.weight(site, stem, Part::Weight)?;
        y = b.graph.mul(y, weight)?;
        if let Some(bias) = b.optional(site, stem, Part::Bias)? {
            y = b.graph.add(y, bias)?;
        }
        Ok(y)
    }
}
