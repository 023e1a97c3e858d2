//! Rules of rotary positions.

use super::sources::{Inferred, Sources};
use crate::graph::{DType, GraphError, Rope, RopeMode};

pub(super) fn rope(s: &Sources<'_>, rope: &Rope) -> Result<Inferred, GraphError> {
    let [a, positions] = s.required(1)?;
    s.float(0)?;
    s.dense_rows(0)?;
    s.typed(1, DType::I32)?;
    let [width, _, tokens, _] = a.ne();
    let per_token = if rope.sections().is_some() { 4 } else { 1 };
    let expected = tokens.saturating_mul(per_token);
    s.check(1, positions.ne() == [expected, 1, 1, 1], || format!("[{expected}, 1, 1, 1]"))?;
    s.contiguous(1)?;
    let n_dims = rope.n_dims as usize;
    let even = n_dims > 0 && n_dims.is_multiple_of(2) && n_dims <= width;
    s.parameter(even, "n_dims", n_dims, format!("even, 2 to {width}"))?;
    let first = rope.first_dim as usize;
    if let RopeMode::Vision { .. } = rope.mode {
        s.parameter(n_dims.checked_mul(2) == Some(width), "n_dims", n_dims, format!("half of {width}"))?;
        s.parameter(first == 0, "first_dim", first, "0, since the whole row turns")?;
    }
    let inside = first.is_multiple_of(2) && first <= width - n_dims;
    s.parameter(inside, "first_dim", first, format!("even, 0 to {}", width - n_dims))?;
    if let Some(sections) = rope.sections() {
        let sum: usize = sections.iter().map(|&pairs| pairs as usize).sum();
        let named = sections[..3].iter().any(|&pairs| pairs > 0);
        let expected = || format!("at most {width} pairs, some of them in the first three");
        s.parameter(named && sum <= width, "sections", format!("{sections:?}"), expected())?;
    }
    if let Some(factors) = s.optional(2) {
        s.typed(2, DType::F32)?;
        s.contiguous(2)?;
        s.check(2, factors.ne()[0] >= rope.pairs(), || format!("{} factors", rope.pairs()))?;
    }
    Inferred::fresh(a.dtype(), a.ne())
}
