//! The numbers of a model, read from metadata keys.
//!
//! Every block reads its own numbers, so a key takes effect exactly where a row has a block that names it.

use super::{ModelError, TensorSpec};
use crate::gguf::{Array, Metadata, Value};
use std::collections::HashSet;

/// The largest size that is believed. Products of three such sizes fit a `usize`.
const MAX_SIZE: u64 = 1 << 20;

/// The largest context length that is believed: positions are i32.
const MAX_POSITIONS: u64 = i32::MAX as u64;

/// The most layers that are believed.
const MAX_LAYERS: u64 = 4096;

/// The sizes that all blocks share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hparams {
    /// Tokens in the vocabulary.
    pub n_vocab: usize,
    /// Context length of the training.
    pub n_ctx_train: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Layers.
    pub n_layer: usize,
    /// Experts of a mixture; 0 in a dense model.
    pub n_expert: usize,
}

impl Hparams {
    pub(super) fn read(facts: &Facts<'_>) -> Result<Self, ModelError> {
        let n_vocab = match facts.optional_size("vocab_size")? {
            Some(n) => n,
            None => facts.vocabulary()?,
        };
        Ok(Self {
            n_vocab,
            n_ctx_train: facts.integer("context_length", None, 1..=MAX_POSITIONS)?,
            n_embd: facts.size("embedding_length")?,
            n_layer: facts.integer("block_count", None, 1..=MAX_LAYERS)?,
            n_expert: facts.count("expert_count")?,
        })
    }
}

/// What is known of a model when its blocks are read: metadata, and which tensors there are.
pub(super) struct Facts<'a> {
    arch: &'static str,
    metadata: &'a Metadata,
    /// `None` for a dummy, whose tensors follow from the blocks.
    tensors: Option<HashSet<&'a str>>,
}

impl<'a> Facts<'a> {
    pub(super) fn of_dummy(arch: &'static str, metadata: &'a Metadata) -> Self {
        Self { arch, metadata, tensors: None }
    }

    pub(super) fn of_file(arch: &'static str, metadata: &'a Metadata, tensors: &'a [TensorSpec]) -> Self {
        Self { arch, metadata, tensors: Some(tensors.iter().map(|spec| spec.name.as_str()).collect()) }
    }

    /// Whether the model keeps something in the form that has the tensor `name`; a dummy does as it `prefers`.
    pub(super) fn has_tensor(&self, name: &str, prefers: bool) -> bool {
        self.tensors.as_ref().map_or(prefers, |tensors| tensors.contains(name))
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    /// The error for a key whose value is not `expected`.
    pub(super) fn wrong(&self, key: &str, expected: impl Into<String>) -> ModelError {
        let key = self.key(key);
        let found = self.metadata.value(&key).map_or_else(|| "missing".to_owned(), Value::to_string);
        ModelError::WrongValue { key, found, expected: expected.into() }
    }

    fn missing(&self, key: &str) -> ModelError {
        ModelError::MissingKey { key: self.key(key) }
    }

    fn value<T>(&self, key: &str, expected: &str, take: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, ModelError> {
        match self.metadata.value(&self.key(key)) {
            Some(value) => take(value).map(Some).ok_or_else(|| self.wrong(key, expected)),
            None => Ok(None),
        }
    }

    /// An integer in a range: the key's value, or where it has one for each layer, the layer's.
    fn optional_integer(
        &self,
        key: &str,
        layer: Option<usize>,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<usize>, ModelError> {
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        self.value(key, &expected, |value| {
            let n = match (value, layer) {
                (Value::Array(items), Some(layer)) => believed(items)?.as_integers::<u64>()?.get(layer).copied(),
                (_, Some(_) | None) => value.as_u64(),
            };
            usize::try_from(n.filter(|n| range.contains(n))?).ok()
        })
    }

    fn integer(
        &self,
        key: &str,
        layer: Option<usize>,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<usize, ModelError> {
        self.optional_integer(key, layer, range)?.ok_or_else(|| self.missing(key))
    }

    /// A size, which is at least 1.
    pub(super) fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.integer(key, None, 1..=MAX_SIZE)
    }

    /// A size that may be left out.
    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.optional_integer(key, None, 1..=MAX_SIZE)
    }

    /// A layer's size: the model's, or the layer's own where the key has one for each.
    pub(super) fn layer_size(&self, key: &str, layer: usize) -> Result<usize, ModelError> {
        self.integer(key, Some(layer), 1..=MAX_SIZE)
    }

    /// [`Self::layer_size`] that may be left out.
    pub(super) fn optional_layer_size(&self, key: &str, layer: usize) -> Result<Option<usize>, ModelError> {
        self.optional_integer(key, Some(layer), 1..=MAX_SIZE)
    }

    /// How many there are of something that a model may do without.
    pub(super) fn count(&self, key: &str) -> Result<usize, ModelError> {
        Ok(self.optional_integer(key, None, 0..=MAX_SIZE)?.unwrap_or(0))
    }

    /// A number of positions.
    pub(super) fn optional_positions(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.optional_integer(key, None, 1..=MAX_POSITIONS)
    }

    /// A window in positions.
    pub(super) fn window(&self, key: &str) -> Result<u32, ModelError> {
        let n = self.optional_positions(key)?.ok_or_else(|| self.missing(key))?;
        u32::try_from(n).map_err(|_| self.wrong(key, "a u32"))
    }

    /// A number.
    pub(super) fn number(&self, key: &str) -> Result<f32, ModelError> {
        self.value(key, "f32", Value::as_f32)?.ok_or_else(|| self.missing(key))
    }

    /// A number that may be left out.
    pub(super) fn number_or(&self, key: &str, default: f32) -> Result<f32, ModelError> {
        Ok(self.value(key, "f32", Value::as_f32)?.unwrap_or(default))
    }

    /// Text that may be left out.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, ModelError> {
        self.value(key, "string", |value| value.as_str().map(str::to_owned))
    }

    /// Whether a list of flags has one for this layer that is not zero; `None` without a list. A single integer, which
    /// some files have under the keys of such lists, is no list.
    pub(super) fn listed(&self, key: &str, layer: usize) -> Result<Option<bool>, ModelError> {
        let list = self.value(key, "a list with a flag for every layer", |value| match value.as_array() {
            Some(Array::Bool(flags)) => flags.get(layer).map(|&flag| Some(flag)),
            Some(items) => believed(items)?.as_integers::<i64>()?.get(layer).map(|&flag| Some(flag != 0)),
            None => value.as_u64().map(|_| None),
        })?;
        Ok(list.flatten())
    }

    fn vocabulary(&self) -> Result<usize, ModelError> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let tokens = self.metadata.value(TOKENS).ok_or_else(|| self.missing("vocab_size"))?;
        let n = tokens.as_array().map_or(0, Array::len);
        if (1..=MAX_SIZE).contains(&(n as u64)) {
            return Ok(n);
        }
        let expected = format!("1 to {MAX_SIZE} strings");
        Err(ModelError::WrongValue { key: TOKENS.to_owned(), found: tokens.to_string(), expected })
    }
}

/// A list with an entry for each layer, unless it is longer than any: every layer looks through the whole of it.
fn believed(items: &Array) -> Option<&Array> {
    (items.len() as u64 <= MAX_LAYERS).then_some(items)
}
