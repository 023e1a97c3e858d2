//! Recurrent states: cleared when a sequence starts, gathered for the batch, written back.

use crate::graph::{DType, TensorId};
use crate::model::builder::Builder;
use crate::model::{CacheKind, CacheSpec, ModelError};

/// A state of `size` numbers for each sequence.
pub(super) fn spec(prefix: &str, layer: usize, size: usize) -> CacheSpec {
    CacheSpec { name: format!("{prefix}{layer}"), kind: CacheKind::State, dtype: DType::F32, ne: [size, 1, 1, 1] }
}

/// The states of the batch's sequences, `[size, sequences]`, gathered by [`Builder::state_ids`]. At the start of a
/// sequence the cache is cleared first; else that step is there with nothing to clear, so that both graphs have the
/// same nodes. The states of the other sequences are copied to where the cache keeps them.
pub(super) fn gather(b: &mut Builder<'_>, cache: TensorId) -> Result<TensorId, ModelError> {
    let layout = *b.graph.tensor(cache).layout();
    let size = layout.ne[0];
    let row = layout.nb[1];
    let states = b.graph.reshape(cache, [size, 1, 1, 1])?;
    let cleared = b.view_1d(states, if b.batch.fresh { size } else { 0 }, 0)?;
    let cleared = b.graph.scale_in_place(cleared, 0.0, 0.0)?;
    b.graph.expand(cleared)?;
    let [main, others] = b.state_ids()?;
    let gathered = b.graph.get_rows(states, main)?;
    b.graph.expand(gathered)?;
    let others = b.graph.get_rows(states, others)?;
    let kept = b.view_2d(cache, [size, 0], row, row)?;
    let moved = b.graph.cpy(others, kept)?;
    b.graph.expand(moved)?;
    Ok(gathered)
}

/// Writes the batch's new states back to the cache.
pub(super) fn scatter(b: &mut Builder<'_>, states: TensorId, cache: TensorId) -> Result<(), ModelError> {
    let size = b.graph.tensor(cache).ne()[0];
    let slot = b.view_1d(cache, size, 0)?;
    let written = b.graph.cpy(states, slot)?;
    Ok(b.graph.expand(written)?)
}
