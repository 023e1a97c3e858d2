//! A row of the table with a model's numbers.

use super::arch::{Arch, Layer, Place};
use super::blocks::{Block, Embedding, Logits, Normalizer};
use super::hparams::{Facts, Hparams};
use super::weights::{Need, Part, Site, Stem, Wants, tensor_name};
use super::{CacheSpec, ModelError};

/// A model's blocks and their numbers.
#[derive(Debug)]
pub(super) struct Structure {
    pub arch: &'static Arch,
    pub hparams: Hparams,
    pub norm: Normalizer,
    pub embedding: Embedding,
    pub layers: Vec<LayerBlocks>,
    pub logits: Logits,
    /// Whether some layers see a window.
    pub has_windows: bool,
}

/// A layer's blocks and their numbers.
#[derive(Debug)]
pub(super) struct LayerBlocks {
    pub row: Layer,
    /// Whether the mixer of a parallel layer has a norm of its own.
    pub second_norm: bool,
    pub mixer: Box<dyn Block>,
    pub network: Box<dyn Block>,
}

impl Structure {
    pub(super) fn read(arch: &'static Arch, facts: &Facts<'_>) -> Result<Self, ModelError> {
        let hparams = Hparams::read(facts)?;
        let norm = Normalizer::read(arch.norm, facts)?;
        let layer = |index| LayerBlocks::read(arch.layer(facts, index)?, facts, &hparams, norm, index);
        let layers = (0..hparams.n_layer).map(|index| layer(index).map_err(|error| error.in_layer(index)));
        Ok(Self {
            arch,
            norm,
            embedding: Embedding::new(arch.embed, arch.head, &hparams),
            layers: layers.collect::<Result<_, _>>()?,
            logits: Logits::read(arch.head, facts, &hparams)?,
            has_windows: arch.has_windows(),
            hparams,
        })
    }

    /// The tensors of a model.
    pub(super) fn wants(&self) -> Wants {
        let mut wants = Wants::default();
        self.embedding.wants(&mut wants);
        self.logits.wants(&mut wants, &self.norm);
        for (index, layer) in self.layers.iter().enumerate() {
            layer.wants(&mut wants, Site::Layer(index), &self.norm, self.hparams.n_embd);
        }
        wants
    }

    /// The caches of a model, in the order of layers.
    pub(super) fn caches(&self, n_ctx: usize) -> Vec<CacheSpec> {
        let blocks = self.layers.iter().flat_map(|layer| [&layer.mixer, &layer.network]);
        blocks.flat_map(|block| block.caches(n_ctx)).collect()
    }
}

impl LayerBlocks {
    fn read(
        row: Layer,
        facts: &Facts<'_>,
        hparams: &Hparams,
        norm: Normalizer,
        index: usize,
    ) -> Result<Self, ModelError> {
        let second_norm = match row.place {
            Place::Pre | Place::Sandwich => false,
            Place::Parallel { second_norm, network_first: _ } => {
                let name = tensor_name(Site::Layer(index), Stem::AttnNorm2, Part::Weight);
                second_norm && facts.has_tensor(&name, true)
            }
        };
        let mixer = row.mix.read(facts, hparams, norm, index)?;
        let network = row.ffn.read(facts, hparams, index)?;
        Ok(Self { row, second_norm, mixer, network })
    }

    fn wants(&self, wants: &mut Wants, site: Site, norm: &Normalizer, n_embd: usize) {
        let mut norms = vec![Stem::AttnNorm];
        match self.row.place {
            Place::Pre => norms.push(self.row.ffn_norm),
            Place::Sandwich => norms.extend([self.row.ffn_norm, Stem::PostAttentionNorm, Stem::PostFfwNorm]),
            Place::Parallel { .. } => norms.extend(self.second_norm.then_some(Stem::AttnNorm2)),
        }
        norms.into_iter().for_each(|stem| norm.wants(wants, site, stem, n_embd, Need::Required));
        self.mixer.wants(wants);
        self.network.wants(wants);
    }
}
