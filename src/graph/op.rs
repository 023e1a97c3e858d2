//! The operations: what each computes and with which parameters.

use std::fmt;

/// An operation together with its parameters.
///
/// Names and semantics are ggml's. Sources are named in the order in which a [`Tensor`](super::Tensor) lists them; the
/// rules for their shapes stand in [`infer`](super::infer).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// A leaf: memory that the graph reads and does not compute.
    None,
    /// Another window on the memory of source 0.
    View {
        /// Shape of the window.
        ne: [usize; 4],
        /// Strides in bytes.
        nb: [usize; 4],
        /// Bytes from the start of source 0.
        offset: usize,
    },
    /// Source 0, which is contiguous, with another shape of as many elements.
    Reshape {
        /// The new shape.
        ne: [usize; 4],
    },
    /// Source 0 with its axes exchanged: axis `i` of the source becomes axis `axes[i]`.
    Permute {
        /// Where each axis goes.
        axes: [u8; 4],
    },
    /// Source 0 with its first two axes exchanged.
    Transpose,
    /// Rows of source 0 picked by the indices in source 1, as f32 (i32 rows stay i32).
    GetRows,
    /// Writes each row of source 0 to the row of source 2 that source 1 names, converting the type.
    SetRows,
    /// Writes source 0 into source 1, element by element in row-major order, converting the type.
    Cpy,
    /// A contiguous copy of source 0 with the shape `ne`.
    Cont {
        /// Shape of the copy; as many elements as source 0 has.
        ne: [usize; 4],
    },
    /// `dst[i, j] = Σ_k src0[k, i] · src1[k, j]`, source 0 broadcast over the outer axes of source 1.
    MulMat,
    /// [`Op::MulMat`] with the matrix of source 0 that the ids in source 2 pick for each column.
    MulMatId,
    /// `src0 + src1`, source 1 broadcast.
    Add,
    /// `src0 - src1`, source 1 broadcast.
    Sub,
    /// `src0 · src1`, source 1 broadcast.
    Mul,
    /// `src0 / src1`, source 1 broadcast.
    Div,
    /// `src0 · scale + bias`.
    Scale {
        /// Factor.
        scale: f32,
        /// Added after scaling.
        bias: f32,
        /// The result overwrites source 0 and shares its memory.
        in_place: bool,
    },
    /// Source 0 repeated to fill the shape `ne`.
    Repeat {
        /// Shape of the result; a multiple of the source's in every dimension.
        ne: [usize; 4],
    },
    /// Source 0 followed by source 1 along one axis.
    Concat {
        /// The axis.
        dim: u8,
    },
    /// Each row minus its mean, divided by `sqrt(variance + eps)`.
    Norm {
        /// Added to the variance.
        eps: f32,
    },
    /// Each row divided by `sqrt(mean of squares + eps)`.
    RmsNorm {
        /// Added to the mean of squares.
        eps: f32,
    },
    /// `softmax(src0 · scale + slope · mask)` over rows; source 1 is the optional mask, source 2 the optional sinks.
    SoftMax {
        /// Factor before the exponential.
        scale: f32,
        /// Largest ALiBi bias; 0 turns the slopes off (slope 1).
        max_bias: f32,
    },
    /// Rotary position embedding; source 1 holds positions, source 2 optional frequency factors.
    Rope(Rope),
    /// Attention of q (source 0) over k and v (1, 2) with optional mask (3) and sinks (4).
    FlashAttn(FlashAttn),
    /// The sum of each row.
    SumRows,
    /// The indices that sort each row.
    Argsort {
        /// Which end comes first.
        order: SortOrder,
    },
    /// Every element held to `[min, max]`.
    Clamp {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
    /// `x²`.
    Sqr,
    /// `sin x`.
    Sin,
    /// An element-wise function.
    Unary(Unary),
    /// A gated unit: `act(a) · b`, where `a` and `b` are two sources or the halves of one source's rows.
    Glu {
        /// The activation.
        glu: Glu,
        /// With one source: the gate is the second half. With two it is always the first of them.
        swapped: bool,
    },
    /// Depth-wise causal convolution of the rows of source 0 with the kernels in source 1.
    SsmConv,
    /// Gated delta rule over `q, k, v, g, beta, state`; the result holds the attention rows, then the state snapshots.
    GatedDeltaNet {
        /// How many of the last states are kept; slot 0 is the newest.
        snapshots: u32,
    },
}

/// Parameters of [`Op::Rope`]; YaRN as in Peng et al. 2023, arXiv 2309.00071.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Elements of each row that turn; even.
    pub n_dims: u32,
    /// Which elements form a pair.
    pub mode: RopeMode,
    /// Context length of the original training, for YaRN.
    pub n_ctx_orig: u32,
    /// Base of the frequencies.
    pub freq_base: f32,
    /// Factor on positions.
    pub freq_scale: f32,
    /// YaRN: how much to extrapolate; 0 turns YaRN off.
    pub ext_factor: f32,
    /// Factor on the result.
    pub attn_factor: f32,
    /// YaRN: rotations below which a dimension is extrapolated.
    pub beta_fast: f32,
    /// YaRN: rotations above which a dimension is interpolated.
    pub beta_slow: f32,
}

/// How [`Op::Rope`] pairs the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeMode {
    /// Neighbours: `(0, 1), (2, 3), …`.
    Normal,
    /// Halves: `(0, n/2), (1, n/2 + 1), …`.
    Neox,
}

/// Parameters of [`Op::FlashAttn`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashAttn {
    /// Factor on `q · k`.
    pub scale: f32,
    /// Largest ALiBi bias; 0 turns the slopes off (slope 1).
    pub max_bias: f32,
    /// `s ← cap · tanh(s / cap)` before the mask; 0 turns it off.
    pub logit_softcap: f32,
    /// Precision the caller asks for.
    pub precision: Precision,
}

/// Precision of a product's accumulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Whatever is fastest.
    Default,
    /// At least f32.
    F32,
}

/// Order of [`Op::Argsort`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}

/// Element-wise functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x · Φ(x)` by its tanh approximation (Hendrycks and Gimpel 2016, arXiv 1606.08415).
    Gelu,
    /// `x · sigmoid(x)`.
    Silu,
    /// `ln(1 + e^x)`; `x` itself above 20, where f32 cannot tell the difference.
    Softplus,
}

/// Activations of gated units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Glu {
    /// [`Unary::Gelu`].
    Geglu,
    /// [`Unary::Silu`].
    Swiglu,
}

macro_rules! op_kinds {
    ($($(#[$doc:meta])* $kind:ident = $label:literal,)+) => {
        /// Which operation, without its parameters: the alphabet of patterns, labels and tables.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum OpKind { $(#[doc = concat!("`", $label, "`")] $kind,)+ }

        impl OpKind {
            /// Every kind there is.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+];

            /// ggml's name of the operation.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$kind => $label,)+ }
            }
        }
    };
}

op_kinds! {
    None = "NONE",
    View = "VIEW",
    Reshape = "RESHAPE",
    Permute = "PERMUTE",
    Transpose = "TRANSPOSE",
    GetRows = "GET_ROWS",
    SetRows = "SET_ROWS",
    Cpy = "CPY",
    Cont = "CONT",
    MulMat = "MUL_MAT",
    MulMatId = "MUL_MAT_ID",
    Add = "ADD",
    Sub = "SUB",
    Mul = "MUL",
    Div = "DIV",
    Scale = "SCALE",
    Repeat = "REPEAT",
    Concat = "CONCAT",
    Norm = "NORM",
    RmsNorm = "RMS_NORM",
    SoftMax = "SOFT_MAX",
    Rope = "ROPE",
    FlashAttn = "FLASH_ATTN_EXT",
    SumRows = "SUM_ROWS",
    Argsort = "ARGSORT",
    Clamp = "CLAMP",
    Sqr = "SQR",
    Sin = "SIN",
    Tanh = "TANH",
    Sigmoid = "SIGMOID",
    Gelu = "GELU",
    Silu = "SILU",
    Softplus = "SOFTPLUS",
    Geglu = "GEGLU",
    Swiglu = "SWIGLU",
    SsmConv = "SSM_CONV",
    GatedDeltaNet = "GATED_DELTA_NET",
}

impl OpKind {
    /// Whether the operation only re-reads memory and so needs no kernel ("empty" operations; a leaf is one too).
    pub const fn is_view(self) -> bool {
        matches!(self, Self::None | Self::View | Self::Reshape | Self::Permute | Self::Transpose)
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl Op {
    /// Which operation this is.
    pub const fn kind(&self) -> OpKind {
        match self {
            Self::None => OpKind::None,
            Self::View { .. } => OpKind::View,
            Self::Reshape { .. } => OpKind::Reshape,
            Self::Permute { .. } => OpKind::Permute,
            Self::Transpose => OpKind::Transpose,
            Self::GetRows => OpKind::GetRows,
            Self::SetRows => OpKind::SetRows,
            Self::Cpy => OpKind::Cpy,
            Self::Cont { .. } => OpKind::Cont,
            Self::MulMat => OpKind::MulMat,
            Self::MulMatId => OpKind::MulMatId,
            Self::Add => OpKind::Add,
            Self::Sub => OpKind::Sub,
            Self::Mul => OpKind::Mul,
            Self::Div => OpKind::Div,
            Self::Scale { .. } => OpKind::Scale,
            Self::Repeat { .. } => OpKind::Repeat,
            Self::Concat { .. } => OpKind::Concat,
            Self::Norm { .. } => OpKind::Norm,
            Self::RmsNorm { .. } => OpKind::RmsNorm,
            Self::SoftMax { .. } => OpKind::SoftMax,
            Self::Rope(_) => OpKind::Rope,
            Self::FlashAttn(_) => OpKind::FlashAttn,
            Self::SumRows => OpKind::SumRows,
            Self::Argsort { .. } => OpKind::Argsort,
            Self::Clamp { .. } => OpKind::Clamp,
            Self::Sqr => OpKind::Sqr,
            Self::Sin => OpKind::Sin,
            Self::Unary(Unary::Tanh) => OpKind::Tanh,
            Self::Unary(Unary::Sigmoid) => OpKind::Sigmoid,
            Self::Unary(Unary::Gelu) => OpKind::Gelu,
            Self::Unary(Unary::Silu) => OpKind::Silu,
            Self::Unary(Unary::Softplus) => OpKind::Softplus,
            Self::Glu { glu: Glu::Geglu, .. } => OpKind::Geglu,
            Self::Glu { glu: Glu::Swiglu, .. } => OpKind::Swiglu,
            Self::SsmConv => OpKind::SsmConv,
            Self::GatedDeltaNet { .. } => OpKind::GatedDeltaNet,
        }
    }

    /// The parameters as the 32-bit words that ggml stores beside an operation (floats by their bits), trailing zeros
    /// included. Shapes, strides and view offsets of whole tensors are not parameters and are not part of it, except
    /// for the offset of a view.
    pub fn words(&self) -> [u32; PARAM_WORDS] {
        let mut words = [0; PARAM_WORDS];
        let mut put = |values: &[u32]| words[..values.len()].copy_from_slice(values);
        match *self {
            Self::None
            | Self::Reshape { .. }
            | Self::Transpose
            | Self::GetRows
            | Self::SetRows
            | Self::Cpy
            | Self::Cont { .. }
            | Self::MulMat
            | Self::MulMatId
            | Self::Add
            | Self::Sub
            | Self::Mul
            | Self::Div
            | Self::Repeat { .. }
            | Self::SumRows
            | Self::Sqr
            | Self::Sin
            | Self::SsmConv => {}
            Self::View { offset, .. } => put(&[offset as u32, (offset as u64 >> 32) as u32]),
            Self::Permute { axes } => put(&axes.map(u32::from)),
            Self::Scale { scale, bias, in_place: _ } => put(&[scale.to_bits(), bias.to_bits()]),
            Self::Concat { dim } => put(&[dim.into()]),
            Self::Norm { eps } | Self::RmsNorm { eps } => put(&[eps.to_bits()]),
            Self::SoftMax { scale, max_bias } => put(&[scale.to_bits(), max_bias.to_bits()]),
            Self::Rope(rope) => put(&[
                0,
                rope.n_dims,
                match rope.mode {
                    RopeMode::Normal => 0,
                    RopeMode::Neox => 2,
                },
                0,
                rope.n_ctx_orig,
                rope.freq_base.to_bits(),
                rope.freq_scale.to_bits(),
                rope.ext_factor.to_bits(),
                rope.attn_factor.to_bits(),
                rope.beta_fast.to_bits(),
                rope.beta_slow.to_bits(),
            ]),
            Self::FlashAttn(attn) => put(&[
                attn.scale.to_bits(),
                attn.max_bias.to_bits(),
                attn.logit_softcap.to_bits(),
                match attn.precision {
                    Precision::Default => 0,
                    Precision::F32 => 10,
                },
            ]),
            Self::Argsort { order } => put(&[match order {
                SortOrder::Ascending => 0,
                SortOrder::Descending => 1,
            }]),
            Self::Clamp { min, max } => put(&[min.to_bits(), max.to_bits()]),
            Self::Unary(unary) => put(&[match unary {
                Unary::Tanh => 4,
                Unary::Sigmoid => 7,
                Unary::Gelu => 8,
                Unary::Silu => 10,
                Unary::Softplus => 15,
            }]),
            Self::Glu { glu, swapped } => put(&[
                match glu {
                    Glu::Geglu => 1,
                    Glu::Swiglu => 2,
                },
                swapped.into(),
            ]),
            Self::GatedDeltaNet { snapshots } => put(&[snapshots]),
        }
        words
    }
}

/// Length of [`Op::words`].
pub const PARAM_WORDS: usize = 16;
