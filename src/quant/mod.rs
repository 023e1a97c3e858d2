//! Block formats: rows of quantized elements to f32 and back.
//!
//! [`dequantize`] gives bit for bit what ggml's `dequantize_row_*` gives, and [`quantize`] what its `quantize_row_*_ref`
//! gives where a compiler does not fuse products and sums; exceptions are named where they are made. A NaN is a NaN,
//! whatever its bits.

mod block;
mod grid_search;
mod grids;
mod iq;
mod k;
mod mxfp4;
mod search;
mod simple;
mod ternary;

use crate::graph::BlockFormat;
use block::{Block, Encode, decode_row, encode_row};

/// Why a row was not converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    /// The format has no quantizer: ggml's needs an importance matrix.
    #[error("{0} cannot be made from f32 alone")]
    NoQuantizer(BlockFormat),
    /// Elements that are no whole number of blocks.
    #[error("{elements} elements of {format}, whose blocks have {}", format.elements())]
    Elements {
        /// The format.
        format: BlockFormat,
        /// Elements given.
        elements: usize,
    },
    /// Bytes that do not match the elements.
    #[error("{given} bytes of {format} given, expected {expected}")]
    Bytes {
        /// The format.
        format: BlockFormat,
        /// Bytes given.
        given: usize,
        /// Bytes that the elements take.
        expected: usize,
    },
}

/// Converts blocks to the elements that they hold.
///
/// # Errors
/// [`QuantError::Elements`] or [`QuantError::Bytes`] when one is no whole number of blocks or has not as many as the
/// other.
pub fn dequantize(format: BlockFormat, blocks: &[u8], elements: &mut [f32]) -> Result<(), QuantError> {
    check(format, blocks.len(), elements.len())?;
    decode(format, blocks, elements);
    Ok(())
}

/// Converts elements to blocks.
///
/// Elements should be finite: what becomes of others, and of the block they are in, is not defined, as in ggml.
///
/// # Errors
/// [`QuantError::NoQuantizer`], else as [`dequantize`].
pub fn quantize(format: BlockFormat, elements: &[f32], blocks: &mut [u8]) -> Result<(), QuantError> {
    let encode = codec(format).encode.ok_or(QuantError::NoQuantizer(format))?;
    check(format, blocks.len(), elements.len())?;
    encode(elements, blocks);
    Ok(())
}

/// Whether [`quantize`] makes this format.
pub fn can_quantize(format: BlockFormat) -> bool {
    codec(format).encode.is_some()
}

/// Converts the whole blocks that both have room for.
pub(crate) fn decode(format: BlockFormat, blocks: &[u8], elements: &mut [f32]) {
    (codec(format).decode)(blocks, elements);
}

fn check(format: BlockFormat, bytes: usize, elements: usize) -> Result<(), QuantError> {
    if !elements.is_multiple_of(format.elements()) {
        return Err(QuantError::Elements { format, elements });
    }
    let expected = elements / format.elements() * format.bytes();
    if bytes != expected {
        return Err(QuantError::Bytes { format, given: bytes, expected });
    }
    Ok(())
}

type Decoder = fn(&[u8], &mut [f32]);
type Encoder = fn(&[f32], &mut [u8]);

/// What converts a format.
#[derive(Clone, Copy)]
struct Codec {
    decode: Decoder,
    encode: Option<Encoder>,
}

/// A format that can only be read.
const fn reads<B: Block<N>, const N: usize>() -> Codec {
    Codec { decode: decode_row::<B, N>, encode: None }
}

/// A format that can be read and made.
const fn converts<B: Encode<N>, const N: usize>() -> Codec {
    Codec { decode: decode_row::<B, N>, encode: Some(encode_row::<B, N>) }
}

const fn codec(format: BlockFormat) -> Codec {
    match format {
        BlockFormat::Q4_0 => converts::<simple::Q4_0, _>(),
        BlockFormat::Q4_1 => converts::<simple::Q4_1, _>(),
        BlockFormat::Q5_0 => converts::<simple::Q5_0, _>(),
        BlockFormat::Q5_1 => converts::<simple::Q5_1, _>(),
        BlockFormat::Q8_0 => converts::<simple::Q8_0, _>(),
        BlockFormat::Q2K => converts::<k::Q2K, _>(),
        BlockFormat::Q3K => converts::<k::Q3K, _>(),
        BlockFormat::Q4K => converts::<k::Q4K, _>(),
        BlockFormat::Q5K => converts::<k::Q5K, _>(),
        BlockFormat::Q6K => converts::<k::Q6K, _>(),
        BlockFormat::Iq2Xxs => reads::<iq::Iq2Xxs, _>(),
        BlockFormat::Iq2Xs => reads::<iq::Iq2Xs, _>(),
        BlockFormat::Iq3Xxs => converts::<iq::Iq3Xxs, _>(),
        BlockFormat::Iq1S => reads::<iq::Iq1S, _>(),
        BlockFormat::Iq4Nl => converts::<iq::Iq4Nl, _>(),
        BlockFormat::Iq3S => converts::<iq::Iq3S, _>(),
        BlockFormat::Iq2S => converts::<iq::Iq2S, _>(),
        BlockFormat::Iq4Xs => converts::<iq::Iq4Xs, _>(),
        BlockFormat::Iq1M => reads::<iq::Iq1M, _>(),
        BlockFormat::Tq1_0 => converts::<ternary::Tq1_0, _>(),
        BlockFormat::Tq2_0 => converts::<ternary::Tq2_0, _>(),
        BlockFormat::Mxfp4 => converts::<mxfp4::Mxfp4, _>(),
    }
}
