//! Builders of sums, counts, picks, norms, products, gradients and the steps of optimizers.

use super::{Made, builders};
use crate::graph::{Graph, Op, TensorId};

builders! {
    /// Sum of all elements, `[1]` of the type of `a`: [`Op::Sum`].
    fn sum(a) = Op::Sum;
    /// Mean of each row: [`Op::Mean`].
    fn mean(a) = Op::Mean;
    /// Running sum along each row: [`Op::CumSum`].
    fn cumsum(a) = Op::CumSum;
    /// Number of places at which i32 `a` and `b` are equal, one i64: [`Op::CountEqual`].
    fn count_equal(a, b) = Op::CountEqual;
    /// Index of the largest element of each row of `a [n, rows]`, giving i32 `[rows]`: [`Op::Argmax`].
    fn argmax(a) = Op::Argmax;
    /// Indices of the `k` largest elements of each row, largest first: [`Op::TopK`].
    fn top_k(a; k: usize) = Op::TopK { k };
    /// Rows scaled to length 1: [`Op::L2Norm`].
    fn l2_norm(a; eps: f32) = Op::L2Norm { eps };
    /// Layer normalisation of groups of channels of `a [w, h, channels, batch]`: [`Op::GroupNorm`].
    fn group_norm(a; groups: u32, eps: f32) = Op::GroupNorm { groups, eps };
    /// `a [m, k, …]` times f32 `b [n, k, …]` transposed, giving `[m, n, …]`: [`Op::OutProd`].
    fn out_prod(a, b) = Op::OutProd;
    /// `x [columns, n, …]` with lower triangular `a [n, n, …]` times `x` equal to `b [columns, n, …]`: [`Op::SolveTri`].
    fn solve_tri(a, b) = Op::SolveTri;
    /// Gradient of `get_rows` of a matrix of so many rows, from that of its result and its i32 `ids`: [`Op::GetRowsBack`].
    fn get_rows_back(grad, ids; rows: usize) = Op::GetRowsBack { rows };
    /// Gradient of `repeat` of a tensor of shape `ne`: [`Op::RepeatBack`].
    fn repeat_back(grad; ne: [usize; 4]) = Op::RepeatBack { ne };
    /// Gradient of `rms_norm` of `x`: [`Op::RmsNormBack`].
    fn rms_norm_back(grad, x; eps: f32) = Op::RmsNormBack { eps };
    /// Gradient of `soft_max`, whose result was `y`: [`Op::SoftMaxBack`].
    fn soft_max_back(grad, y; scale: f32, max_bias: f32) = Op::SoftMaxBack { scale, max_bias };
    /// Mean over rows of the cross entropy of `labels` and `softmax(logits)`: [`Op::CrossEntropyLoss`].
    fn cross_entropy_loss(logits, labels) = Op::CrossEntropyLoss;
    /// Gradient of `cross_entropy_loss` with respect to its logits: [`Op::CrossEntropyLossBack`].
    fn cross_entropy_loss_back(grad, logits, labels) = Op::CrossEntropyLossBack;
    /// One step of gradient descent on `a`, with `[alpha, weight decay]`, giving a view of `a`: [`Op::OptStepSgd`].
    fn opt_step_sgd(a, grad, parameters) = Op::OptStepSgd;
}

impl Graph {
    /// One step of AdamW on `a` with first moments `m` and second moments `v`, all of one shape and updated in place,
    /// giving a view of `a`: [`Op::OptStepAdamW`], which says what the seven parameters are.
    ///
    /// # Errors
    /// When the sources do not fit; see [`infer`](crate::graph::infer).
    pub fn opt_step_adamw(&mut self, a: TensorId, grad: TensorId, [m, v]: [TensorId; 2], parameters: TensorId) -> Made {
        self.push(Op::OptStepAdamW, &[a, grad, m, v, parameters].map(Some))
    }
}
