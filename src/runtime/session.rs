//! Sessions: one sequence, batch by batch.

use super::inputs::Batch;
use super::weights::Packed;
use super::{DeviceModel, SessionError};
use crate::device::Context;
use crate::graph::{BufferClass, Graph, LeafKind, TensorId};
use crate::model::{GraphInputs, Input};
use crate::plan::{Leaves, PlanOptions};
use std::sync::Arc;

/// Caches are read up to a multiple of so many rows, so that graphs repeat from one step to the next.
const CACHE_STEP: usize = 256;

/// Graphs that a session remembers.
const REMEMBERED_GRAPHS: usize = 8;

/// How to run a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionOptions {
    /// Tokens that the caches hold; the model's own context length if not given.
    pub n_ctx: Option<usize>,
    /// How to plan; by the device's configuration and the environment if not given.
    pub plan: Option<PlanOptions>,
}

/// Which tokens' logits a batch gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// Those of every token.
    All,
    /// Those of the last.
    Last,
}

impl Outputs {
    pub(super) const fn count(self, n_tokens: usize) -> usize {
        match self {
            Self::All => n_tokens,
            Self::Last => 1,
        }
    }
}

/// One sequence of a model: its caches, and how far it has come.
pub struct Session {
    model: Arc<DeviceModel>,
    context: Context,
    caches: Packed,
    n_ctx: usize,
    n_past: usize,
    /// The most recently used first.
    graphs: Vec<Ready>,
    /// Bytes of the input that is being written.
    scratch: Vec<u8>,
    logits: Vec<f32>,
}

/// A graph with its leaves placed.
struct Ready {
    batch: GraphInputs,
    graph: Arc<Graph>,
    leaves: Leaves,
    inputs: Vec<Input>,
    logits: TensorId,
}

impl Session {
    /// A session at the start of a sequence.
    ///
    /// # Errors
    /// When the device has no memory for the caches.
    pub fn new(model: Arc<DeviceModel>, options: SessionOptions) -> Result<Self, SessionError> {
        let device = Arc::clone(model.device());
        let n_ctx = options.n_ctx.unwrap_or(model.model().hparams().n_ctx_train);
        let specs = model.model().caches(n_ctx).into_iter().map(|spec| (spec.name, spec.dtype, spec.ne));
        let caches = Packed::new(&device, BufferClass::Cache, specs)?;
        let context = match options.plan {
            Some(plan) => Context::with_options(device, plan),
            None => Context::new(device),
        };
        let (graphs, scratch, logits) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { model, context, caches, n_ctx, n_past: 0, graphs, scratch, logits })
    }

    /// The model.
    pub const fn model(&self) -> &Arc<DeviceModel> {
        &self.model
    }

    /// Tokens that the session has seen.
    pub const fn n_past(&self) -> usize {
        self.n_past
    }

    /// The context that runs the session's graphs.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Goes back to the start of a sequence. What the caches hold is not seen again.
    pub const fn reset(&mut self) {
        self.n_past = 0;
    }

    /// Runs a batch of tokens that follow those before, and returns logits: a row of `n_vocab` for each output.
    ///
    /// # Errors
    /// For tokens outside the vocabulary, a full context, a batch that no graph can be built or planned for, or a device
    /// that fails. Only a run that fails changes the session: it is at the start of a sequence then.
    pub fn decode(&mut self, tokens: &[i32], outputs: Outputs) -> Result<&[f32], SessionError> {
        let batch = self.batch(tokens, outputs)?;
        self.run(&batch)?;
        Ok(&self.logits)
    }

    fn batch<'a>(&self, tokens: &'a [i32], outputs: Outputs) -> Result<Batch<'a>, SessionError> {
        let n_vocab = self.model.model().hparams().n_vocab;
        let known = |token: i32| usize::try_from(token).is_ok_and(|token| token < n_vocab);
        if let Some(index) = tokens.iter().position(|&token| !known(token)) {
            return Err(SessionError::Token { index, token: tokens[index], n_vocab });
        }
        if tokens.is_empty() {
            return Err(SessionError::EmptyBatch);
        }
        let (n_past, n_ctx) = (self.n_past, self.n_ctx);
        let end = n_past + tokens.len();
        if end > n_ctx {
            return Err(SessionError::ContextFull { n_past, n_tokens: tokens.len(), n_ctx });
        }
        Ok(Batch { tokens, n_past, n_kv: end.next_multiple_of(CACHE_STEP).min(n_ctx), outputs })
    }

    fn run(&mut self, batch: &Batch<'_>) -> Result<(), SessionError> {
        let inputs = GraphInputs {
            n_tokens: batch.tokens.len(),
            n_kv: batch.n_kv,
            n_outputs: batch.n_outputs(),
            fresh: batch.n_past == 0,
            n_ctx: self.n_ctx,
        };
        let ready = ready(&mut self.graphs, &self.model, &self.caches, &inputs)?;
        let mut run = self.context.prepare(&ready.graph, &ready.leaves)?;
        for input in &ready.inputs {
            batch.fill(input.role, &mut self.scratch);
            run.write(input.id, &self.scratch)?;
        }
        // Recurrent states may be half written after a failure.
        self.n_past = 0;
        run.run()?;
        self.logits.resize(self.model.model().hparams().n_vocab * batch.n_outputs(), 0.0);
        run.read(ready.logits, bytemuck::cast_slice_mut(&mut self.logits))?;
        self.n_past = batch.n_past + batch.tokens.len();
        Ok(())
    }
}

/// The graph for a batch, built if none of `graphs` is for one like it.
fn ready<'a>(
    graphs: &'a mut Vec<Ready>,
    model: &DeviceModel,
    caches: &Packed,
    batch: &GraphInputs,
) -> Result<&'a Ready, SessionError> {
    if let Some(at) = graphs.iter().position(|ready| ready.batch == *batch) {
        graphs[..=at].rotate_right(1);
    } else {
        let built = model.model().build(batch)?;
        let slot = |&id: &TensorId| {
            let tensor = built.graph.tensor(id);
            let slot = match tensor.leaf()? {
                LeafKind::Weight => model.slot(tensor.name()),
                LeafKind::Cache => caches.slot(tensor.name()),
                LeafKind::Input => None,
            };
            Some((id, slot?))
        };
        let leaves = built.graph.leaves().iter().filter_map(slot).collect();
        let graph = Arc::new(built.graph);
        graphs.truncate(REMEMBERED_GRAPHS - 1);
        graphs.insert(0, Ready { batch: *batch, graph, leaves, inputs: built.inputs, logits: built.logits });
    }
    Ok(&graphs[0])
}
