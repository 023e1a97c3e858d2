//! Builders of element-wise functions and of sums with picked rows.

use super::{Made, builders};
use crate::graph::{Graph, Op, TensorId, Xielu};

builders! {
    /// `√a`: [`Op::Sqrt`].
    fn sqrt(a) = Op::Sqrt;
    /// `cos a`: [`Op::Cos`].
    fn cos(a) = Op::Cos;
    /// `ln a`: [`Op::Log`].
    fn log(a) = Op::Log;
    /// `a` above 0, `a · negative_slope` below: [`Op::LeakyRelu`].
    fn leaky_relu(a; negative_slope: f32) = Op::LeakyRelu { negative_slope };
    /// Expanded integral of ELU, for the weights that a model learns: [`Op::Xielu`], [`Xielu::of_weights`].
    fn xielu(a; alpha_n: f32, alpha_p: f32, beta: f32, eps: f32) = Op::Xielu(Xielu::of_weights(alpha_n, alpha_p, beta, eps));
    /// Gradient of `silu` of `x`: [`Op::SiluBack`].
    fn silu_back(grad, x) = Op::SiluBack;
    /// f32 `a [n, used, tokens, …]` plus the rows of `b [n, m]` at the i32 `ids [used, tokens]`: [`Op::AddId`].
    fn add_id(a, b, ids) = Op::AddId;
}
