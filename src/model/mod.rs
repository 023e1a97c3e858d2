//! Models: a table of architectures, the blocks they are made of, and the graphs that both give.
//!
//! A [`Model`] knows its tensors and caches and builds graphs; it owns no device memory. It is made of a file
//! ([`Model::from_gguf`]), of a [`Dummy`], or of any metadata and tensors ([`Model::new`]).
//!
//! ```
//! use wgfuse::model::{Dummy, GraphInputs};
//!
//! # fn main() -> Result<(), wgfuse::model::ModelError> {
//! let model = Dummy::new("gemma2", false, 1)?.model()?;
//! let built = model.build(&GraphInputs { n_tokens: 4, n_kv: 256, n_outputs: 1, fresh: true, n_ctx: 256 })?;
//! assert_eq!(built.graph.tensor(built.logits).ne(), [model.hparams().n_vocab, 1, 1, 1]);
//! assert_eq!(model.caches(256).len(), 4);
//! # Ok(())
//! # }
//! ```

mod arch;
mod blocks;
mod builder;
mod dummy;
mod error;
mod hparams;
mod structure;
mod weights;

pub use builder::{BuiltGraph, GraphInputs, Input, InputRole};
pub use dummy::{Dummy, Variant, dummy_tokens};
pub use error::ModelError;
pub use hparams::Hparams;
pub use weights::TensorSpec;

use crate::gguf::{Gguf, Metadata};
use crate::graph::DType;
use arch::Arch;
use hparams::Facts;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use structure::Structure;

/// The most cache rows that a graph is built for.
pub const MAX_CONTEXT: usize = i32::MAX as usize;

/// The key that names the architecture.
const ARCHITECTURE_KEY: &str = "general.architecture";

/// Where the bytes of a model's tensors come from.
pub trait TensorSource: Send + Sync {
    /// The bytes of a tensor, `None` where there are none.
    fn data(&self, tensor: &TensorSpec) -> Option<Cow<'_, [u8]>>;
}

impl TensorSource for Gguf {
    fn data(&self, tensor: &TensorSpec) -> Option<Cow<'_, [u8]>> {
        self.tensor(&tensor.name).map(|info| Gguf::data(self, info).into())
    }
}

/// What a cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheKind {
    /// A row for each position, of keys or of values.
    Rows,
    /// The state of a sequence after its last token.
    State,
}

/// Memory that a model keeps between runs; a leaf of its graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    /// Name of the leaf.
    pub name: String,
    /// What it keeps.
    pub kind: CacheKind,
    /// Element type.
    pub dtype: DType,
    /// Shape: `[row, n_ctx]`, or `[state]`.
    pub ne: [usize; 4],
}

/// A model: its structure and its tensors.
pub struct Model {
    structure: Structure,
    tensors: Vec<TensorSpec>,
    /// Those that graphs read.
    weights: HashMap<String, TensorSpec>,
    source: Arc<dyn TensorSource>,
}

impl Model {
    /// A model from metadata and the tensors it has; their bytes are read from `source` when asked for.
    ///
    /// # Errors
    /// [`ModelError::UnknownArch`], a missing or wrong key, or a tensor that is missing, has another shape than the
    /// metadata asks for, or does not belong to the architecture.
    pub fn new(
        metadata: &Metadata,
        tensors: Vec<TensorSpec>,
        source: Arc<dyn TensorSource>,
    ) -> Result<Self, ModelError> {
        let arch = architecture(metadata)?;
        let structure = Structure::read(arch, &Facts::of_file(arch.name, metadata, &tensors))?;
        let weights = structure.wants().check(arch.name, &tensors)?;
        Ok(Self { structure, tensors, weights, source })
    }

    /// A model from a file at this path, which stays mapped into memory.
    ///
    /// # Errors
    /// [`ModelError::Gguf`] when it is no GGUF file, else as [`Model::new`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::from_gguf(Gguf::open(path)?)
    }

    /// A model from a file.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn from_gguf(gguf: impl Into<Arc<Gguf>>) -> Result<Self, ModelError> {
        let gguf = gguf.into();
        let tensors = gguf.tensors().iter().map(|info| {
            // Only an empty tensor can have a size beyond the address space, and no model wants that shape.
            let ne = info.ne.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
            TensorSpec { name: info.name.clone(), dtype: info.dtype, ne }
        });
        Self::new(gguf.metadata(), tensors.collect(), Arc::clone(&gguf) as Arc<dyn TensorSource>)
    }

    /// Name of the architecture.
    pub fn arch(&self) -> &'static str {
        self.structure.arch.name
    }

    /// The sizes that all blocks share.
    pub fn hparams(&self) -> &Hparams {
        &self.structure.hparams
    }

    /// The tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// The tensors that graphs read, in the order of the file.
    pub fn weights(&self) -> impl Iterator<Item = &TensorSpec> {
        self.tensors.iter().filter(|spec| self.weights.contains_key(&spec.name))
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    /// [`ModelError::UnknownTensor`].
    pub fn data(&self, name: &str) -> Result<Cow<'_, [u8]>, ModelError> {
        let spec = self.tensors.iter().find(|spec| spec.name == name);
        spec.and_then(|spec| self.source.data(spec))
            .ok_or_else(|| ModelError::UnknownTensor { tensor: name.to_owned() })
    }

    /// The caches that the model keeps between runs, for a context of `n_ctx` rows, in the order of layers.
    pub fn caches(&self, n_ctx: usize) -> Vec<CacheSpec> {
        self.structure.caches(n_ctx)
    }

    /// The graph for a batch.
    ///
    /// # Errors
    /// [`ModelError::Batch`] when the numbers contradict each other, [`ModelError::Graph`] when a tensor has a type
    /// that an operation does not take.
    pub fn build(&self, batch: &GraphInputs) -> Result<BuiltGraph, ModelError> {
        builder::build(self, batch)
    }
}

/// The architecture that metadata names.
fn architecture(metadata: &Metadata) -> Result<&'static Arch, ModelError> {
    let key = || ARCHITECTURE_KEY.to_owned();
    let value = metadata.value(ARCHITECTURE_KEY).ok_or_else(|| ModelError::MissingKey { key: key() })?;
    let wrong = || ModelError::WrongValue { key: key(), found: value.to_string(), expected: "string".to_owned() };
    arch::find(value.as_str().ok_or_else(wrong)?)
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("arch", &self.structure.arch.name)
            .field("hparams", &self.structure.hparams)
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}
