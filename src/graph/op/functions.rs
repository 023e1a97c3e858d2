//! Element-wise functions, activations of gated units, and the shapes that filling operations know.

use super::OpKind;

/// Element-wise functions without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `|x|`.
    Abs,
    /// The sign, -1 or 1; 0 of zeros and of NaN.
    Sgn,
    /// `-x`.
    Neg,
    /// 1 above 0, else 0.
    Step,
    /// Hyperbolic tangent.
    Tanh,
    /// `x` above 0, else `e^x - 1` (Clevert et al. 2015, arXiv 1511.07289).
    Elu,
    /// `x` above 0, else 0; 0 of NaN, too.
    Relu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x · Φ(x)` by its tanh approximation (Hendrycks and Gimpel 2016, arXiv 1606.08415).
    Gelu,
    /// `x · sigmoid(1.702 x)`, the other approximation of the same paper.
    GeluQuick,
    /// `x · sigmoid(x)`.
    Silu,
    /// `x · hardsigmoid(x)` (Howard et al. 2019, arXiv 1905.02244).
    HardSwish,
    /// `(x + 3) / 6` held to `[0, 1]`.
    HardSigmoid,
    /// `e^x`.
    Exp,
    /// `e^x - 1`, without cancellation for small `x`.
    Expm1,
    /// `ln(1 + e^x)`; `x` itself above 20, where f32 cannot tell the difference.
    Softplus,
    /// `x · Φ(x)` itself: `x/2 · (1 + erf(x / √2))`.
    GeluErf,
    /// The next whole number towards -∞.
    Floor,
    /// The next whole number towards ∞.
    Ceil,
    /// The nearest whole number; halves go away from zero.
    Round,
    /// The next whole number towards zero.
    Trunc,
}

impl Unary {
    /// Every function there is.
    pub const ALL: [Self; 21] = [
        Self::Abs,
        Self::Sgn,
        Self::Neg,
        Self::Step,
        Self::Tanh,
        Self::Elu,
        Self::Relu,
        Self::Sigmoid,
        Self::Gelu,
        Self::GeluQuick,
        Self::Silu,
        Self::HardSwish,
        Self::HardSigmoid,
        Self::Exp,
        Self::Expm1,
        Self::Softplus,
        Self::GeluErf,
        Self::Floor,
        Self::Ceil,
        Self::Round,
        Self::Trunc,
    ];

    /// The kind of operation that applies it.
    pub const fn kind(self) -> OpKind {
        match self {
            Self::Abs => OpKind::Abs,
            Self::Sgn => OpKind::Sgn,
            Self::Neg => OpKind::Neg,
            Self::Step => OpKind::Step,
            Self::Tanh => OpKind::Tanh,
            Self::Elu => OpKind::Elu,
            Self::Relu => OpKind::Relu,
            Self::Sigmoid => OpKind::Sigmoid,
            Self::Gelu => OpKind::Gelu,
            Self::GeluQuick => OpKind::GeluQuick,
            Self::Silu => OpKind::Silu,
            Self::HardSwish => OpKind::HardSwish,
            Self::HardSigmoid => OpKind::HardSigmoid,
            Self::Exp => OpKind::Exp,
            Self::Expm1 => OpKind::Expm1,
            Self::Softplus => OpKind::Softplus,
            Self::GeluErf => OpKind::GeluErf,
            Self::Floor => OpKind::Floor,
            Self::Ceil => OpKind::Ceil,
            Self::Round => OpKind::Round,
            Self::Trunc => OpKind::Trunc,
        }
    }

    /// The number by which ggml stores it.
    pub const fn word(self) -> u32 {
        match self {
            Self::Abs => 0,
            Self::Sgn => 1,
            Self::Neg => 2,
            Self::Step => 3,
            Self::Tanh => 4,
            Self::Elu => 5,
            Self::Relu => 6,
            Self::Sigmoid => 7,
            Self::Gelu => 8,
            Self::GeluQuick => 9,
            Self::Silu => 10,
            Self::HardSwish => 11,
            Self::HardSigmoid => 12,
            Self::Exp => 13,
            Self::Expm1 => 14,
            Self::Softplus => 15,
            Self::GeluErf => 16,
            Self::Floor => 18,
            Self::Ceil => 19,
            Self::Round => 20,
            Self::Trunc => 21,
        }
    }
}

/// Parameters of [`Op::Xielu`](super::Op::Xielu), as they enter its formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xielu {
    /// Factor of `e^x - 1 - x` up to 0.
    pub alpha_n: f32,
    /// Factor of `x²` above 0.
    pub alpha_p: f32,
    /// Factor of `x` everywhere.
    pub beta: f32,
    /// The largest argument of `e^x - 1`.
    pub eps: f32,
}

impl Xielu {
    /// The number by which ggml stores the function.
    pub(super) const WORD: u32 = 17;

    /// The parameters for the weights that a model learns: those of the squares go through `ln(1 + e^x)`, which keeps
    /// them positive, and the slopes at 0 are equal.
    pub fn of_weights(alpha_n: f32, alpha_p: f32, beta: f32, eps: f32) -> Self {
        let softplus = |x: f32| if x > 20.0 { x } else { (1.0 + x.exp()).ln() };
        Self { alpha_n: beta + softplus(alpha_n), alpha_p: softplus(alpha_p), beta, eps }
    }
}

/// Gated units: what becomes of a gate and a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Glu {
    /// [`Unary::Relu`] of the gate times the value.
    Reglu,
    /// [`Unary::Gelu`] of the gate times the value.
    Geglu,
    /// [`Unary::Silu`] of the gate times the value.
    Swiglu,
    /// `g · sigmoid(alpha · g) · (v + 1)` of the gate held to at most `limit` and the value held to `[-limit, limit]`.
    SwigluOai {
        /// Factor in the sigmoid.
        alpha: f32,
        /// From 0.
        limit: f32,
    },
    /// [`Unary::GeluErf`] of the gate times the value.
    GegluErf,
    /// [`Unary::GeluQuick`] of the gate times the value.
    GegluQuick,
    /// [`Unary::Silu`] of the gate held to at most `limit`, times the value held to `[-limit, limit]`.
    SwigluClamp {
        /// From 0.
        limit: f32,
    },
}

impl Glu {
    /// The kind of operation that applies it.
    pub const fn kind(self) -> OpKind {
        match self {
            Self::Reglu => OpKind::Reglu,
            Self::Geglu => OpKind::Geglu,
            Self::Swiglu => OpKind::Swiglu,
            Self::SwigluOai { .. } => OpKind::SwigluOai,
            Self::GegluErf => OpKind::GegluErf,
            Self::GegluQuick => OpKind::GegluQuick,
            Self::SwigluClamp { .. } => OpKind::SwigluClamp,
        }
    }

    /// The number by which ggml stores it, `alpha` and `limit` (0 where it has none).
    pub(super) const fn words(self) -> (u32, f32, f32) {
        match self {
            Self::Reglu => (0, 0.0, 0.0),
            Self::Geglu => (1, 0.0, 0.0),
            Self::Swiglu => (2, 0.0, 0.0),
            Self::SwigluOai { alpha, limit } => (3, alpha, limit),
            Self::GegluErf => (4, 0.0, 0.0),
            Self::GegluQuick => (5, 0.0, 0.0),
            Self::SwigluClamp { limit } => (6, 0.0, limit),
        }
    }
}

/// The part of a matrix that [`Op::Tri`](super::Op::Tri) keeps; columns run along dimension 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Triangle {
    /// Where the column is at least the row.
    UpperDiag,
    /// Where the column is greater than the row.
    Upper,
    /// Where the column is at most the row.
    LowerDiag,
    /// Where the column is less than the row.
    Lower,
}

impl Triangle {
    /// Every part there is.
    pub const ALL: [Self; 4] = [Self::UpperDiag, Self::Upper, Self::LowerDiag, Self::Lower];

    /// The number by which ggml stores it.
    pub const fn word(self) -> u32 {
        match self {
            Self::UpperDiag => 0,
            Self::Upper => 1,
            Self::LowerDiag => 2,
            Self::Lower => 3,
        }
    }
}

/// The part of source 0 that [`Op::Acc`](super::Op::Acc) and [`Op::Set`](super::Op::Set) change: it has the shape of
/// source 1, and its elements are dense along dimension 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Strides in bytes of dimensions 1 to 3.
    pub nb: [usize; 3],
    /// Bytes from the start of source 0.
    pub offset: usize,
}
