//! The operations: what each computes and with which parameters.

mod functions;
mod kind;
mod params;
mod words;

pub use functions::{Glu, Triangle, Unary, Window, Xielu};
pub use kind::OpKind;
pub use params::{FlashAttn, MatrixHint, Precision, Rope, RopeMode, SortOrder};
pub use words::PARAM_WORDS;

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
    /// A contiguous copy of source 0.
    Dup,
    /// `dst[i, j] = Σ_k src0[k, i] · src1[k, j]`, source 0 broadcast over the outer axes of source 1. [`Op::MUL_MAT`] asks
    /// for nothing in particular.
    MulMat {
        /// Precision the caller asks for. Every device here sums in f32, which serves both.
        precision: Precision,
        /// What the caller knows about source 0. No device here makes use of it: the plain product is right, too.
        hint: MatrixHint,
    },
    /// [`Op::MulMat`] with the matrix of source 0 that the ids in source 2 pick for each column. [`Op::MUL_MAT_ID`] asks
    /// for nothing in particular.
    MulMatId {
        /// Precision the caller asks for. Every device here sums in f32, which serves both.
        precision: Precision,
    },
    /// `dst[i, j] = Σ_k src0[i, k] · src1[j, k]`, source 0 broadcast over the outer axes of source 1.
    OutProd,
    /// The `x` for which the lower triangle of source 0 times `x` is source 1, matrix by matrix. A zero on the diagonal
    /// gives what dividing by it gives.
    SolveTri,
    /// `src0 + src1`, source 1 broadcast.
    Add,
    /// Source 0 plus rows of source 1, the ids in source 2 say which: `dst[i, j, k] = src0[i, j, k] + src1[i, ids[j, k]]`.
    AddId,
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
    /// Source 0 with source 1 added to a window of it.
    Acc {
        /// Which part of source 0.
        window: Window,
        /// The result overwrites source 0 and shares its memory.
        in_place: bool,
    },
    /// Source 0 with source 1 in the place of a window of it.
    Set {
        /// Which part of source 0.
        window: Window,
        /// The result overwrites source 0 and shares its memory.
        in_place: bool,
    },
    /// One number everywhere, in the type and shape of source 0, which is not read.
    Fill {
        /// The number.
        value: f32,
        /// The result overwrites source 0 and shares its memory.
        in_place: bool,
    },
    /// `start, start + step, …` up to but not including `stop`; it has no sources.
    Arange {
        /// The first number.
        start: f32,
        /// Where to end; above `start`.
        stop: f32,
        /// From one number to the next; above 0.
        step: f32,
    },
    /// Each time `t` of source 0 as a row of `cos(t f_j)` and then `sin(t f_j)` for `j` in `0..dim/2`, with
    /// `f_j = max_period^(-j / (dim/2))` (Ho et al. 2020, arXiv 2006.11239); an odd `dim` leaves a 0 at the end.
    TimestepEmbedding {
        /// Length of a row.
        dim: u32,
        /// Base of the frequencies; at least 1.
        max_period: u32,
    },
    /// Square matrices with zeros outside of a triangle.
    Tri {
        /// The part that is kept.
        part: Triangle,
    },
    /// Matrices with the rows of source 0 on their diagonals and zeros elsewhere.
    Diag,
    /// Source 0 with -∞ where the column is past the row by more than `n_past`.
    DiagMaskInf {
        /// Columns that every row keeps.
        n_past: u32,
        /// The result overwrites source 0 and shares its memory.
        in_place: bool,
    },
    /// [`Op::DiagMaskInf`] with 0 instead of -∞.
    DiagMaskZero {
        /// Columns that every row keeps.
        n_past: u32,
        /// The result overwrites source 0 and shares its memory.
        in_place: bool,
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
    /// Each row divided by its length `sqrt(sum of squares)`, or by `eps` if that is larger.
    L2Norm {
        /// The least that a row is divided by.
        eps: f32,
    },
    /// Groups of consecutive channels (dimension 2), each group of one batch (dimension 3) minus its mean, divided by
    /// `sqrt(variance + eps)`: Wu and He 2018, arXiv 1803.08494. Where the number of groups does not divide the
    /// channels, each but the last takes one more than their quotient.
    GroupNorm {
        /// How many groups.
        groups: u32,
        /// Added to the variance.
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
    /// The gradient of [`Op::Rope`] with the same parameters and sources 1 and 2, from that of its result (source 0): the
    /// turn back.
    RopeBack(Rope),
    /// Attention of q (source 0) over k and v (1, 2) with optional mask (3) and sinks (4).
    FlashAttn(FlashAttn),
    /// The sum of each row.
    SumRows,
    /// The sum of all elements, as one element of their type.
    Sum,
    /// The mean of each row.
    Mean,
    /// Each element of a row plus all before it.
    CumSum,
    /// How many elements of sources 0 and 1 are equal, place by place, as one i64.
    CountEqual,
    /// The index of the largest element of each row of a matrix, the first of equals; NaN counts as larger than any
    /// number.
    Argmax,
    /// The indices that sort each row.
    Argsort {
        /// Which end comes first.
        order: SortOrder,
    },
    /// The indices of the `k` largest elements of each row, largest first, of equals the first; NaN counts as larger
    /// than any number. So it is the start of a descending [`Op::Argsort`]; ggml leaves the order open.
    TopK {
        /// How many.
        k: usize,
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
    /// `√x`.
    Sqrt,
    /// `sin x`.
    Sin,
    /// `cos x`.
    Cos,
    /// `ln x`.
    Log,
    /// `x` above 0, `x · negative_slope` below.
    LeakyRelu {
        /// Slope below 0.
        negative_slope: f32,
    },
    /// `alpha_p x² + beta x` above 0, else `alpha_n (e^min(x, eps) - 1 - x) + beta x` (Huang and Schlag 2024,
    /// arXiv 2411.13010).
    Xielu(Xielu),
    /// An element-wise function.
    Unary(Unary),
    /// A gated unit of a gate and a value, which are two sources or the halves of one source's rows.
    Glu {
        /// What becomes of them.
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
    /// The gradient of [`Unary::Silu`], from that of its result (source 0) and its source (source 1).
    SiluBack,
    /// The gradient of [`Op::GetRows`]: row `r` of the result is the sum of those rows of source 0 whose index in
    /// source 1 is `r`.
    GetRowsBack {
        /// Rows of the result.
        rows: usize,
    },
    /// The gradient of [`Op::Repeat`]: the sum of all parts of source 0 that have the shape `ne`.
    RepeatBack {
        /// Shape of the result; it divides the source's in every dimension.
        ne: [usize; 4],
    },
    /// The gradient of [`Op::RmsNorm`], from that of its result (source 0) and its source (source 1).
    RmsNormBack {
        /// Added to the mean of squares.
        eps: f32,
    },
    /// The gradient of [`Op::SoftMax`] with respect to its first source, from that of its result (source 0) and its
    /// result `y` (source 1): `scale · y · (src0 - Σ src0 · y)` over rows.
    SoftMaxBack {
        /// Factor before the exponential.
        scale: f32,
        /// Largest ALiBi bias. It is added before the exponential, so that no gradient depends on it.
        max_bias: f32,
    },
    /// `-Σ src1 · ln softmax(src0)` over all rows, divided by their number; a label of 0 adds nothing.
    CrossEntropyLoss,
    /// The gradient of [`Op::CrossEntropyLoss`] with respect to the logits, from that of the loss (source 0, one
    /// element), the logits (source 1) and the labels (source 2): `(softmax(src1) - src2) · src0 / rows`.
    CrossEntropyLossBack,
    /// One step of AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101): updates the weights (source 0) and the first
    /// and second moments (sources 2 and 3) in place, from the gradient (source 1) and the parameters
    /// `[alpha, beta1, beta2, eps, weight decay, 1 / (1 - beta1^t), 1 / (1 - beta2^t)]` (source 4). The result is a
    /// view of the weights.
    OptStepAdamW,
    /// One step of gradient descent with weight decay: updates the weights (source 0) in place, from the gradient
    /// (source 1) and the parameters `[alpha, weight decay]` (source 2). The result is a view of the weights.
    OptStepSgd,
}

impl Op {
    /// [`Op::MulMat`] of any precision and without a hint.
    pub const MUL_MAT: Self = Self::MulMat { precision: Precision::Default, hint: MatrixHint::None };

    /// [`Op::MulMatId`] of any precision.
    pub const MUL_MAT_ID: Self = Self::MulMatId { precision: Precision::Default };

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
            Self::MulMat { .. } => OpKind::MulMat,
            Self::MulMatId { .. } => OpKind::MulMatId,
            Self::OutProd => OpKind::OutProd,
            Self::SolveTri => OpKind::SolveTri,
            Self::Add => OpKind::Add,
            Self::Sub => OpKind::Sub,
            Self::Mul => OpKind::Mul,
            Self::Div => OpKind::Div,
            Self::Scale { .. } => OpKind::Scale,
            Self::Repeat { .. } => OpKind::Repeat,
            Self::Concat { .. } => OpKind::Concat,
            Self::Norm { .. } => OpKind::Norm,
            Self::RmsNorm { .. } => OpKind::RmsNorm,
            Self::L2Norm { .. } => OpKind::L2Norm,
            Self::GroupNorm { .. } => OpKind::GroupNorm,
            Self::SoftMax { .. } => OpKind::SoftMax,
            Self::Rope(_) => OpKind::Rope,
            Self::RopeBack(_) => OpKind::RopeBack,
            Self::FlashAttn(_) => OpKind::FlashAttn,
            Self::SumRows => OpKind::SumRows,
            Self::Sum => OpKind::Sum,
            Self::Mean => OpKind::Mean,
            Self::CumSum => OpKind::CumSum,
            Self::CountEqual => OpKind::CountEqual,
            Self::Argmax => OpKind::Argmax,
            Self::TopK { .. } => OpKind::TopK,
            Self::Argsort { .. } => OpKind::Argsort,
            Self::Clamp { .. } => OpKind::Clamp,
            Self::Sqr => OpKind::Sqr,
            Self::Sin => OpKind::Sin,
            Self::Sqrt => OpKind::Sqrt,
            Self::Cos => OpKind::Cos,
            Self::Log => OpKind::Log,
            Self::LeakyRelu { .. } => OpKind::LeakyRelu,
            Self::Xielu(_) => OpKind::Xielu,
            Self::Unary(unary) => unary.kind(),
            Self::Glu { glu, swapped: _ } => glu.kind(),
            Self::Dup => OpKind::Dup,
            Self::AddId => OpKind::AddId,
            Self::Acc { .. } => OpKind::Acc,
            Self::Set { .. } => OpKind::Set,
            Self::Fill { .. } => OpKind::Fill,
            Self::Arange { .. } => OpKind::Arange,
            Self::TimestepEmbedding { .. } => OpKind::TimestepEmbedding,
            Self::Tri { .. } => OpKind::Tri,
            Self::Diag => OpKind::Diag,
            Self::DiagMaskInf { .. } => OpKind::DiagMaskInf,
            Self::DiagMaskZero { .. } => OpKind::DiagMaskZero,
            Self::SiluBack => OpKind::SiluBack,
            Self::SsmConv => OpKind::SsmConv,
            Self::GatedDeltaNet { .. } => OpKind::GatedDeltaNet,
            Self::GetRowsBack { .. } => OpKind::GetRowsBack,
            Self::RepeatBack { .. } => OpKind::RepeatBack,
            Self::RmsNormBack { .. } => OpKind::RmsNormBack,
            Self::SoftMaxBack { .. } => OpKind::SoftMaxBack,
            Self::CrossEntropyLoss => OpKind::CrossEntropyLoss,
            Self::CrossEntropyLossBack => OpKind::CrossEntropyLossBack,
            Self::OptStepAdamW => OpKind::OptStepAdamW,
            Self::OptStepSgd => OpKind::OptStepSgd,
        }
    }
}
