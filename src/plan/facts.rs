//! What planning knows about operations: which may move, and whose memory they write.

use crate::graph::{OpKind, Tensor, TensorId};

/// Whose memory an operation's result takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// Memory of its own; for a view, none.
    Own,
    /// The memory of this source, which is not read.
    Over(usize),
    /// Its own, or that of this source, each element read before the same one is written.
    InPlace(usize),
}

/// Facts about one kind of operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Whether reordering may run it earlier.
    pub movable: bool,
    /// Where its result goes.
    pub result: Memory,
    /// Further sources that it updates, each element read before the same one is written.
    pub updates: &'static [usize],
}

/// The facts about a kind.
pub(super) const fn facts(kind: OpKind) -> Facts {
    let (movable, result) = match kind {
        OpKind::None | OpKind::View | OpKind::Reshape | OpKind::Permute | OpKind::Transpose => (true, Memory::Own),
        OpKind::SetRows => (true, Memory::Over(2)),
        OpKind::Cpy => (true, Memory::Over(1)),
        OpKind::Scale | OpKind::Set => (true, Memory::InPlace(0)),
        OpKind::GetRows
        | OpKind::Cont
        | OpKind::MulMat
        | OpKind::MulMatId
        | OpKind::Add
        | OpKind::Sub
        | OpKind::Mul
        | OpKind::Div
        | OpKind::Repeat
        | OpKind::Norm
        | OpKind::RmsNorm
        | OpKind::L2Norm
        | OpKind::GroupNorm
        | OpKind::Rope
        | OpKind::SumRows
        | OpKind::Clamp
        | OpKind::Abs
        | OpKind::Sgn
        | OpKind::Neg
        | OpKind::Step
        | OpKind::Tanh
        | OpKind::Elu
        | OpKind::Relu
        | OpKind::Sigmoid
        | OpKind::Gelu
        | OpKind::GeluQuick
        | OpKind::Silu
        | OpKind::HardSwish
        | OpKind::HardSigmoid
        | OpKind::Exp
        | OpKind::Expm1
        | OpKind::Softplus
        | OpKind::GeluErf
        | OpKind::Xielu
        | OpKind::Floor
        | OpKind::Ceil
        | OpKind::Round
        | OpKind::Trunc
        | OpKind::Reglu
        | OpKind::Geglu
        | OpKind::Swiglu
        | OpKind::SwigluOai
        | OpKind::GegluErf
        | OpKind::GegluQuick
        | OpKind::SwigluClamp
        | OpKind::Tri
        | OpKind::Diag
        | OpKind::SsmConv => (true, Memory::Own),
        OpKind::OptStepAdamW
        | OpKind::OptStepSgd
        | OpKind::Acc
        | OpKind::Fill
        | OpKind::DiagMaskInf
        | OpKind::DiagMaskZero => (false, Memory::InPlace(0)),
        OpKind::Sum
        | OpKind::Mean
        | OpKind::CumSum
        | OpKind::CountEqual
        | OpKind::Argmax
        | OpKind::TopK
        | OpKind::OutProd
        | OpKind::SolveTri
        | OpKind::GetRowsBack
        | OpKind::RepeatBack
        | OpKind::RmsNormBack
        | OpKind::RopeBack
        | OpKind::SoftMaxBack
        | OpKind::CrossEntropyLoss
        | OpKind::CrossEntropyLossBack => (false, Memory::Own),
        OpKind::Concat
        | OpKind::SoftMax
        | OpKind::FlashAttn
        | OpKind::Argsort
        | OpKind::Sqr
        | OpKind::Sqrt
        | OpKind::Sin
        | OpKind::Cos
        | OpKind::Log
        | OpKind::LeakyRelu
        | OpKind::SiluBack
        | OpKind::Dup
        | OpKind::AddId
        | OpKind::Arange
        | OpKind::TimestepEmbedding
        | OpKind::GatedDeltaNet => (false, Memory::Own),
    };
    Facts { movable, result, updates: kind.updates() }
}

/// The sources whose memory an operation writes beside that of its result.
pub(super) fn updated(tensor: &Tensor) -> impl Iterator<Item = TensorId> + '_ {
    updated_slots(tensor).map(|(_, source)| source)
}

/// The same with their slots.
pub(super) fn updated_slots(tensor: &Tensor) -> impl Iterator<Item = (usize, TensorId)> + '_ {
    facts(tensor.kind()).updates.iter().filter_map(|&slot| Some((slot, tensor.src(slot)?)))
}

/// The sources that an operation reads: all but one that it only overwrites.
pub(super) fn reads(tensor: &Tensor) -> impl Iterator<Item = TensorId> + '_ {
    read_slots(tensor).map(|(_, source)| source)
}

/// The same with their slots.
pub(super) fn read_slots(tensor: &Tensor) -> impl Iterator<Item = (usize, TensorId)> + '_ {
    let over = match facts(tensor.kind()).result {
        Memory::Over(slot) => Some(slot),
        Memory::Own | Memory::InPlace(_) => None,
    };
    let slots = tensor.source_slots().iter().enumerate();
    slots.filter(move |(slot, _)| Some(*slot) != over).filter_map(|(slot, source)| Some((slot, (*source)?)))
}
