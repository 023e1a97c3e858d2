//! Operations without their parameters.

use std::fmt;

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
    Dup = "DUP",
    MulMat = "MUL_MAT",
    MulMatId = "MUL_MAT_ID",
    OutProd = "OUT_PROD",
    SolveTri = "SOLVE_TRI",
    Add = "ADD",
    AddId = "ADD_ID",
    Sub = "SUB",
    Mul = "MUL",
    Div = "DIV",
    Scale = "SCALE",
    Repeat = "REPEAT",
    Concat = "CONCAT",
    Acc = "ACC",
    Set = "SET",
    Fill = "FILL",
    Arange = "ARANGE",
    TimestepEmbedding = "TIMESTEP_EMBEDDING",
    Tri = "TRI",
    Diag = "DIAG",
    DiagMaskInf = "DIAG_MASK_INF",
    DiagMaskZero = "DIAG_MASK_ZERO",
    Norm = "NORM",
    RmsNorm = "RMS_NORM",
    L2Norm = "L2_NORM",
    GroupNorm = "GROUP_NORM",
    SoftMax = "SOFT_MAX",
    Rope = "ROPE",
    RopeBack = "ROPE_BACK",
    FlashAttn = "FLASH_ATTN_EXT",
    SumRows = "SUM_ROWS",
    Sum = "SUM",
    Mean = "MEAN",
    CumSum = "CUMSUM",
    CountEqual = "COUNT_EQUAL",
    Argmax = "ARGMAX",
    Argsort = "ARGSORT",
    TopK = "TOP_K",
    Clamp = "CLAMP",
    Sqr = "SQR",
    Sqrt = "SQRT",
    Sin = "SIN",
    Cos = "COS",
    Log = "LOG",
    LeakyRelu = "LEAKY_RELU",
    Abs = "ABS",
    Sgn = "SGN",
    Neg = "NEG",
    Step = "STEP",
    Tanh = "TANH",
    Elu = "ELU",
    Relu = "RELU",
    Sigmoid = "SIGMOID",
    Gelu = "GELU",
    GeluQuick = "GELU_QUICK",
    Silu = "SILU",
    HardSwish = "HARDSWISH",
    HardSigmoid = "HARDSIGMOID",
    Exp = "EXP",
    Expm1 = "EXPM1",
    Softplus = "SOFTPLUS",
    GeluErf = "GELU_ERF",
    Xielu = "XIELU",
    Floor = "FLOOR",
    Ceil = "CEIL",
    Round = "ROUND",
    Trunc = "TRUNC",
    Reglu = "REGLU",
    Geglu = "GEGLU",
    Swiglu = "SWIGLU",
    SwigluOai = "SWIGLU_OAI",
    GegluErf = "GEGLU_ERF",
    GegluQuick = "GEGLU_QUICK",
    SwigluClamp = "SWIGLU_CLAMP",
    SsmConv = "SSM_CONV",
    GatedDeltaNet = "GATED_DELTA_NET",
    SiluBack = "SILU_BACK",
    GetRowsBack = "GET_ROWS_BACK",
    RepeatBack = "REPEAT_BACK",
    RmsNormBack = "RMS_NORM_BACK",
    SoftMaxBack = "SOFT_MAX_BACK",
    CrossEntropyLoss = "CROSS_ENTROPY_LOSS",
    CrossEntropyLossBack = "CROSS_ENTROPY_LOSS_BACK",
    OptStepAdamW = "OPT_STEP_ADAMW",
    OptStepSgd = "OPT_STEP_SGD",
}

impl OpKind {
    /// Whether the operation only re-reads memory and so needs no kernel ("empty" operations; a leaf is one too).
    pub const fn is_view(self) -> bool {
        matches!(self, Self::None | Self::View | Self::Reshape | Self::Permute | Self::Transpose)
    }

    /// The sources that the operation updates in place beside the one whose memory its result shares.
    pub const fn updates(self) -> &'static [usize] {
        if matches!(self, Self::OptStepAdamW) { &[2, 3] } else { &[] }
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
