//! Functions of one or two numbers.

use crate::graph::{Glu, Unary, Xielu};

/// The element-wise function itself.
pub(super) fn unary(unary: Unary) -> fn(f32) -> f32 {
    match unary {
        Unary::Abs => f32::abs,
        Unary::Sgn => sign,
        Unary::Neg => |x| -x,
        Unary::Step => |x| if x > 0.0 { 1.0 } else { 0.0 },
        Unary::Tanh => f32::tanh,
        Unary::Elu => |x| if x > 0.0 { x } else { x.exp_m1() },
        Unary::Relu => relu,
        Unary::Sigmoid => sigmoid,
        Unary::Gelu => gelu,
        Unary::GeluQuick => gelu_quick,
        Unary::Silu => silu,
        Unary::HardSwish => |x| x * hard_sigmoid(x),
        Unary::HardSigmoid => hard_sigmoid,
        Unary::Exp => f32::exp,
        Unary::Expm1 => f32::exp_m1,
        Unary::Softplus => softplus,
        Unary::GeluErf => gelu_erf,
        Unary::Floor => f32::floor,
        Unary::Ceil => f32::ceil,
        Unary::Round => f32::round,
        Unary::Trunc => f32::trunc,
    }
}

/// A gated unit itself.
pub(super) fn gated(glu: Glu, gate: f32, value: f32) -> f32 {
    let most = |limit| hold(gate, f32::NEG_INFINITY, limit);
    match glu {
        Glu::Reglu => relu(gate) * value,
        Glu::Geglu => gelu(gate) * value,
        Glu::Swiglu => silu(gate) * value,
        Glu::SwigluOai { alpha, limit } => {
            let gate = most(limit);
            gate / (1.0 + (-alpha * gate).exp()) * (hold(value, -limit, limit) + 1.0)
        }
        Glu::GegluErf => gelu_erf(gate) * value,
        Glu::GegluQuick => gelu_quick(gate) * value,
        Glu::SwigluClamp { limit } => silu(most(limit)) * hold(value, -limit, limit),
    }
}

/// `x` held to `[min, max]`; NaN stays NaN, and of contradicting bounds the lower one wins.
pub(super) fn hold(x: f32, min: f32, max: f32) -> f32 {
    let lowered = if x > max { max } else { x };
    if lowered < min { min } else { lowered }
}

/// The parts above and below 0 by themselves, so that NaN is neither.
pub(super) fn leaky_relu(x: f32, negative_slope: f32) -> f32 {
    relu(x) + negative_slope * if x < 0.0 { x } else { 0.0 }
}

pub(super) fn xielu(x: f32, &Xielu { alpha_n, alpha_p, beta, eps }: &Xielu) -> f32 {
    if x > 0.0 { alpha_p * x * x + beta * x } else { (x.min(eps).exp_m1() - x) * alpha_n + beta * x }
}

/// The derivative of `silu` at `x` times `grad`. Infinity is no place to take it at.
pub(super) fn silu_back(grad: f32, x: f32) -> f32 {
    let s = sigmoid(x);
    grad * s * (1.0 + x * (1.0 - s))
}

fn sign(x: f32) -> f32 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        0.0
    }
}

/// Not `max`, whose zero might be a negative one.
fn relu(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.0 }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// 0 of NaN, as ggml has it.
fn hard_sigmoid(x: f32) -> f32 {
    let y = (x + 3.0) / 6.0;
    if y > 0.0 { y.min(1.0) } else { 0.0 }
}

fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`: Hendrycks and Gimpel 2016, arXiv 1606.08415.
fn gelu(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * x * (1.0 + 0.044_715 * x * x)).tanh())
}

fn gelu_quick(x: f32) -> f32 {
    x * (1.0 / (1.0 + (-1.702 * x).exp()))
}

/// `x/2 · (1 + erf(x / √2)) = x/2 · erfc(-x / √2)`, which does not cancel for negative x.
fn gelu_erf(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2)) as f32
}

/// `1 - erf x`, within 4e-8 of its size.
///
/// `(1 + 2x) · e^(x²) · erfc x` is a smooth function of `t = (x - 3.75) / (x + 3.75)`, so that few powers of `t` are
/// enough: Shepherd and Laframboise 1981, Mathematics of Computation 36. These are the first twelve terms of its
/// Chebyshev series, written as powers and rounded to f32, as `wgsl/special.wgsl` has them, too.
fn erfc(x: f64) -> f64 {
    const POWERS: [f64; 12] = [
        1.237_512_6,
        -0.140_240_65,
        0.003_586_270_4,
        0.082_278_42,
        -0.108_814_27,
        0.092_290_77,
        -0.058_646_858,
        0.028_409_252,
        -0.009_844_495,
        0.001_675_912_2,
        0.000_396_307_6,
        -0.000_224_116_75,
    ];
    let size = x.abs();
    // Beyond, it is nothing; and infinity has no place in the fraction.
    if size > 27.0 {
        return if x > 0.0 { 0.0 } else { 2.0 };
    }
    let t = (size - 3.75) / (size + 3.75);
    let series = POWERS.iter().rev().fold(0.0, |sum, power| sum * t + power);
    let above = series * (-size * size).exp() / (1.0 + 2.0 * size);
    if x < 0.0 { 2.0 - above } else { above }
}

fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
