//! Parameters of operations that have more than one or two.

/// Parameters of [`Op::Rope`](super::Op::Rope) and its gradient; YaRN as in Peng et al. 2023, arXiv 2309.00071.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Elements of each row that turn, even; [`RopeMode::Vision`] turns twice as many.
    pub n_dims: u32,
    /// The first of them, even.
    pub first_dim: u32,
    /// Which elements form a pair, and which position it turns by.
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

impl Rope {
    /// Pairs of each row that turn.
    pub const fn pairs(&self) -> usize {
        match self.mode {
            RopeMode::Vision { .. } => self.n_dims as usize,
            RopeMode::Normal | RopeMode::Neox | RopeMode::Mrope { .. } | RopeMode::Imrope { .. } => {
                self.n_dims as usize / 2
            }
        }
    }

    /// The sections of a mode whose tokens have four positions each.
    pub const fn sections(&self) -> Option<[u32; 4]> {
        match self.mode {
            RopeMode::Normal | RopeMode::Neox => None,
            RopeMode::Mrope { sections } | RopeMode::Imrope { sections } | RopeMode::Vision { sections } => {
                Some(sections)
            }
        }
    }
}

/// How [`Op::Rope`](super::Op::Rope) pairs the elements of a row and chooses their positions.
///
/// With sections, a token has four positions (time, height, width, one more), all first positions coming before all
/// second ones; the pairs of a row take turns in runs of as many pairs as the sections have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeMode {
    /// Neighbours: `(0, 1), (2, 3), …`.
    Normal,
    /// Halves: `(0, n/2), (1, n/2 + 1), …`.
    Neox,
    /// Halves; the first `sections[0]` pairs of a run turn by the first position, and so on (Wang et al. 2024,
    /// arXiv 2409.12191).
    Mrope {
        /// Pairs for each position.
        sections: [u32; 4],
    },
    /// Halves; the first three positions alternate from pair to pair, each as long as its section lasts, and the fourth
    /// takes what is left.
    Imrope {
        /// Pairs for each position.
        sections: [u32; 4],
    },
    /// Halves of the whole row, whose first `sections[0]` pairs turn by the first position, and so on; the frequencies
    /// start anew in each section.
    Vision {
        /// Pairs for each position.
        sections: [u32; 4],
    },
}

/// Parameters of [`Op::FlashAttn`](super::Op::FlashAttn).
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

impl Precision {
    /// The number by which ggml stores it.
    pub const fn word(self) -> u32 {
        match self {
            Self::Default => 0,
            Self::F32 => 10,
        }
    }
}

/// What the caller of [`Op::MulMat`](super::Op::MulMat) knows about its matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixHint {
    /// Nothing.
    None,
    /// It is a Hadamard matrix: all elements are of one size, and its rows are orthogonal.
    Hadamard,
}

/// Order of [`Op::Argsort`](super::Op::Argsort).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}
