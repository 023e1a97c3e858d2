//! Functions of single elements, gated units and sums with picked rows, from their definitions.

use super::chosen;
use crate::numbers::Nd;
use std::f64::consts::{FRAC_1_SQRT_2, PI};
use wgfuse::graph::{Glu, Unary, Xielu};

pub fn unary(unary: Unary, x: f64) -> f64 {
    match unary {
        Unary::Abs => x.abs(),
        Unary::Sgn => f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
        Unary::Neg => -x,
        Unary::Step => f64::from(u8::from(x > 0.0)),
        Unary::Tanh => x.tanh(),
        Unary::Elu => {
            if x > 0.0 {
                x
            } else {
                x.exp_m1()
            }
        }
        Unary::Relu => x.max(0.0),
        Unary::Sigmoid => sigmoid(x),
        Unary::Gelu => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
        Unary::GeluQuick => x * sigmoid(1.702 * x),
        Unary::Silu => x * sigmoid(x),
        Unary::HardSwish => x * ((x + 3.0) / 6.0).clamp(0.0, 1.0),
        Unary::HardSigmoid => ((x + 3.0) / 6.0).clamp(0.0, 1.0),
        Unary::Exp => x.exp(),
        Unary::Expm1 => x.exp_m1(),
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Unary::GeluErf => 0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2)),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => (x.abs() + 0.5).floor().copysign(x),
        Unary::Trunc => x.trunc(),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `2/√π · e^(-x²) · Σ (2x²)^n x / (1 · 3 · 5 … (2n + 1))`, none of whose terms cancel.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

#[test]
fn erf_is_the_published_one() {
    // Abramowitz and Stegun, table 7.1.
    for (x, expected) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)] {
        assert!((erf(x) - expected).abs() < 1e-10 && (erf(-x) + expected).abs() < 1e-10, "{x}: {}", erf(x));
    }
}

pub fn leaky_relu(x: f64, slope: f64) -> f64 {
    if x < 0.0 { slope * x } else { x }
}

pub fn xielu(x: f64, xielu: Xielu) -> f64 {
    let [alpha_n, alpha_p, beta, eps] = [xielu.alpha_n, xielu.alpha_p, xielu.beta, xielu.eps].map(f64::from);
    if x > 0.0 { alpha_p * x * x + beta * x } else { alpha_n * (x.min(eps).exp_m1() - x) + beta * x }
}

/// The derivative of `x · sigmoid(x)` is `s + x · s'`, and `s' = s · (1 - s)`.
pub fn silu_back(grad: f64, x: f64) -> f64 {
    let s = sigmoid(x);
    grad * (s + x * s * sigmoid(-x))
}

pub fn gated(glu: Glu, gate: f64, value: f64) -> f64 {
    match glu {
        Glu::Reglu => unary(Unary::Relu, gate) * value,
        Glu::Geglu => unary(Unary::Gelu, gate) * value,
        Glu::Swiglu => unary(Unary::Silu, gate) * value,
        Glu::SwigluOai { alpha, limit } => {
            let (alpha, limit) = (f64::from(alpha), f64::from(limit));
            let gate = gate.min(limit);
            gate * sigmoid(alpha * gate) * (value.clamp(-limit, limit) + 1.0)
        }
        Glu::GegluErf => unary(Unary::GeluErf, gate) * value,
        Glu::GegluQuick => unary(Unary::GeluQuick, gate) * value,
        Glu::SwigluClamp { limit } => {
            let limit = f64::from(limit);
            unary(Unary::Silu, gate.min(limit)) * value.clamp(-limit, limit)
        }
    }
}

/// A row that no id names adds nothing.
pub fn add_id([a, b, ids]: [&Nd; 3]) -> Nd {
    Nd::from_fn(a.ne, |at| {
        let row = chosen(ids.at([at[1], at[2], 0, 0]), b.ne[1]);
        a.at(at) + row.map_or(0.0, |row| b.at([at[0], row, 0, 0]))
    })
}
