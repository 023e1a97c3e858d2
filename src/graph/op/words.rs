//! Parameters as ggml stores them.

use super::{MatrixHint, Op, RopeMode, SortOrder, Xielu};

/// Length of [`Op::words`].
pub const PARAM_WORDS: usize = 16;

impl Op {
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
            | Self::Add
            | Self::Sub
            | Self::Mul
            | Self::Div
            | Self::Repeat { .. }
            | Self::SumRows
            | Self::Sum
            | Self::Mean
            | Self::CumSum
            | Self::CountEqual
            | Self::Argmax
            | Self::TopK { .. }
            | Self::OutProd
            | Self::SolveTri
            | Self::GetRowsBack { .. }
            | Self::RepeatBack { .. }
            | Self::CrossEntropyLoss
            | Self::CrossEntropyLossBack
            | Self::OptStepAdamW
            | Self::OptStepSgd
            | Self::Sqr
            | Self::Sqrt
            | Self::Sin
            | Self::Cos
            | Self::Log
            | Self::Dup
            | Self::AddId
            | Self::Diag
            | Self::SiluBack
            | Self::SsmConv => {}
            Self::View { offset, .. } => put(&[offset as u32, (offset as u64 >> 32) as u32]),
            Self::Permute { axes } => put(&axes.map(u32::from)),
            Self::Scale { scale, bias, in_place: _ } => put(&[scale.to_bits(), bias.to_bits()]),
            Self::MulMat { precision, hint } => put(&[
                precision.word(),
                match hint {
                    MatrixHint::None => 0,
                    MatrixHint::Hadamard => 1,
                },
            ]),
            Self::MulMatId { precision } => put(&[0, 0, 0, precision.word()]),
            Self::Concat { dim } => put(&[dim.into()]),
            Self::Norm { eps } | Self::RmsNorm { eps } => put(&[eps.to_bits()]),
            Self::L2Norm { eps } | Self::RmsNormBack { eps } => put(&[eps.to_bits()]),
            Self::GroupNorm { groups, eps } => put(&[groups, eps.to_bits()]),
            Self::SoftMax { scale, max_bias } => put(&[scale.to_bits(), max_bias.to_bits()]),
            Self::SoftMaxBack { scale, max_bias } => put(&[scale.to_bits(), max_bias.to_bits()]),
            Self::Rope(rope) | Self::RopeBack(rope) => {
                let [time, height, width, extra] = rope.sections().unwrap_or([0; 4]);
                put(&[
                    0,
                    rope.n_dims,
                    match rope.mode {
                        RopeMode::Normal => 0,
                        RopeMode::Neox => 2,
                        RopeMode::Mrope { .. } => 8,
                        RopeMode::Vision { .. } => 24,
                        RopeMode::Imrope { .. } => 40,
                    },
                    0,
                    rope.n_ctx_orig,
                    rope.freq_base.to_bits(),
                    rope.freq_scale.to_bits(),
                    rope.ext_factor.to_bits(),
                    rope.attn_factor.to_bits(),
                    rope.beta_fast.to_bits(),
                    rope.beta_slow.to_bits(),
                    time,
                    height,
                    width,
                    extra,
                    rope.first_dim,
                ]);
            }
            Self::FlashAttn(attn) => put(&[
                attn.scale.to_bits(),
                attn.max_bias.to_bits(),
                attn.logit_softcap.to_bits(),
                attn.precision.word(),
            ]),
            Self::Argsort { order } => put(&[match order {
                SortOrder::Ascending => 0,
                SortOrder::Descending => 1,
            }]),
            Self::Clamp { min, max } => put(&[min.to_bits(), max.to_bits()]),
            Self::Unary(unary) => put(&[unary.word()]),
            Self::Xielu(Xielu { alpha_n, alpha_p, beta, eps }) => {
                put(&[Xielu::WORD, alpha_n.to_bits(), alpha_p.to_bits(), beta.to_bits(), eps.to_bits()]);
            }
            Self::LeakyRelu { negative_slope } => put(&[negative_slope.to_bits()]),
            Self::Glu { glu, swapped } => {
                let (word, alpha, limit) = glu.words();
                put(&[word, swapped.into(), alpha.to_bits(), limit.to_bits()]);
            }
            Self::Acc { window, in_place } | Self::Set { window, in_place } => {
                let [nb1, nb2, nb3] = window.nb.map(|stride| stride as u32);
                put(&[nb1, nb2, nb3, window.offset as u32, in_place.into()]);
            }
            Self::Fill { value, in_place: _ } => put(&[value.to_bits()]),
            Self::Arange { start, stop, step } => put(&[start.to_bits(), stop.to_bits(), step.to_bits()]),
            Self::TimestepEmbedding { dim, max_period } => put(&[dim, max_period]),
            Self::Tri { part } => put(&[part.word()]),
            Self::DiagMaskInf { n_past, in_place: _ } | Self::DiagMaskZero { n_past, in_place: _ } => put(&[n_past]),
            Self::GatedDeltaNet { snapshots } => put(&[snapshots]),
        }
        words
    }
}
