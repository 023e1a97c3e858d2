//! Element types and how many bytes their elements take.

use super::BlockFormat;
use std::fmt;

/// The type of a tensor's elements.
///
/// Every type is described as blocks of [`DType::block_size`] elements that take
/// [`DType::block_bytes`] bytes, so that quantized formats (many elements to a block) and plain
/// numbers (one element to a block) are measured by the same arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of an IEEE 754 single ("brain float").
    BF16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// Quantized blocks.
    Block(BlockFormat),
}

impl DType {
    /// Every type there is.
    pub const ALL: [Self; 5 + BlockFormat::ALL.len()] = {
        let mut all = [Self::F32; 5 + BlockFormat::ALL.len()];
        (all[1], all[2], all[3], all[4]) = (Self::F16, Self::BF16, Self::I32, Self::I64);
        let mut index = 0;
        while index < BlockFormat::ALL.len() {
            all[5 + index] = Self::Block(BlockFormat::ALL[index]);
            index += 1;
        }
        all
    };

    /// Elements in one block; a row's length is a multiple of it.
    pub const fn block_size(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 | Self::I32 | Self::I64 => 1,
            Self::Block(format) => format.elements(),
        }
    }

    /// Bytes that one block takes.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I64 => 8,
            Self::Block(format) => format.bytes(),
        }
    }

    /// Bytes that `elements` consecutive elements take.
    ///
    /// `None` when `elements` is not a whole number of blocks or the size does not fit a `usize`.
    pub const fn row_bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_size()) {
            return None;
        }
        (elements / self.block_size()).checked_mul(self.block_bytes())
    }

    /// ggml's name of the type, as files and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Block(format) => format.name(),
        }
    }

    /// ggml's number of the type, as files spell it.
    pub const fn id(self) -> u8 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::I32 => 26,
            Self::I64 => 27,
            Self::BF16 => 30,
            Self::Block(format) => format.id(),
        }
    }

    /// Whether elements are floating-point numbers of their own, not quantized.
    pub const fn is_float(self) -> bool {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => true,
            Self::I32 | Self::I64 | Self::Block(_) => false,
        }
    }

    /// Whether elements lie in blocks that share scales.
    pub const fn is_quantized(self) -> bool {
        match self {
            Self::Block(_) => true,
            Self::F32 | Self::F16 | Self::BF16 | Self::I32 | Self::I64 => false,
        }
    }

    /// Whether elements read as f32: floating-point numbers, quantized or not.
    pub const fn is_real(self) -> bool {
        self.is_float() || self.is_quantized()
    }
}

impl From<BlockFormat> for DType {
    fn from(format: BlockFormat) -> Self {
        Self::Block(format)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
