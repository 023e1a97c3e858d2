//! Builders of copies with parts replaced, of constants and of numbers made from positions.

use super::{Made, builders};
use crate::graph::{Graph, Op, TensorId, Triangle, Window};

builders! {
    /// A dense copy of `a`: [`Op::Dup`].
    fn dup(a) = Op::Dup;
    /// `a` with `b` added to a window of it: [`Op::Acc`].
    fn acc(a, b; window: Window) = Op::Acc { window, in_place: false };
    /// `a ← a` with `b` added to a window of it: [`Op::Acc`] in place.
    fn acc_in_place(a, b; window: Window) = Op::Acc { window, in_place: true };
    /// `a` with `b` in the place of a window of it: [`Op::Set`].
    fn set(a, b; window: Window) = Op::Set { window, in_place: false };
    /// `a ← a` with `b` in the place of a window of it: [`Op::Set`] in place.
    fn set_in_place(a, b; window: Window) = Op::Set { window, in_place: true };
    /// `value` everywhere, in the type and shape of `a`: [`Op::Fill`].
    fn fill(a; value: f32) = Op::Fill { value, in_place: false };
    /// `a ← value` everywhere: [`Op::Fill`] in place.
    fn fill_in_place(a; value: f32) = Op::Fill { value, in_place: true };
    /// `times [n]` as rows of waves, giving `[dim, n]`: [`Op::TimestepEmbedding`].
    fn timestep_embedding(times; dim: u32, max_period: u32) = Op::TimestepEmbedding { dim, max_period };
    /// A triangle of the square matrices `a`, and zeros: [`Op::Tri`].
    fn tri(a; part: Triangle) = Op::Tri { part };
    /// Diagonal matrices `[n, n, …]` of `a [n, 1, …]`: [`Op::Diag`].
    fn diag(a) = Op::Diag;
    /// `a` with -∞ where the column is past the row by more than `n_past`: [`Op::DiagMaskInf`].
    fn diag_mask_inf(a; n_past: u32) = Op::DiagMaskInf { n_past, in_place: false };
    /// `a ← a` with -∞ where the column is past the row by more than `n_past`: [`Op::DiagMaskInf`] in place.
    fn diag_mask_inf_in_place(a; n_past: u32) = Op::DiagMaskInf { n_past, in_place: true };
    /// `a` with 0 where the column is past the row by more than `n_past`: [`Op::DiagMaskZero`].
    fn diag_mask_zero(a; n_past: u32) = Op::DiagMaskZero { n_past, in_place: false };
    /// `a ← a` with 0 where the column is past the row by more than `n_past`: [`Op::DiagMaskZero`] in place.
    fn diag_mask_zero_in_place(a; n_past: u32) = Op::DiagMaskZero { n_past, in_place: true };
}

impl Graph {
    /// f32 `start, start + step, …` below `stop`: [`Op::Arange`].
    ///
    /// # Errors
    /// When the parameters do not fit; see [`infer`](crate::graph::infer).
    pub fn arange(&mut self, start: f32, stop: f32, step: f32) -> Made {
        self.push(Op::Arange { start, stop, step }, &[])
    }
}
