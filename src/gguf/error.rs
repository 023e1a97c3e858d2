//! What can be wrong with a file, or with what is asked of it.

use std::io;
use std::path::PathBuf;

use super::{MAX_ALIGNMENT, MAX_ARRAY_DEPTH, MAX_DIMS, MAX_KEY_BYTES, MAX_NAME_BYTES};
use crate::graph::DType;

/// Why a file was refused, or a value of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be opened, mapped or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The destination of [`GgufWriter::write_to`](super::GgufWriter::write_to) failed.
    #[error("writing a GGUF file: {0}")]
    Write(#[source] io::Error),

    /// The file does not start with `GGUF`.
    #[error("not a GGUF file: it starts with {found:?}, expected \"GGUF\"")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The file's numbers have their most significant byte first.
    #[error("the file is big-endian (version {version}), expected little-endian")]
    BigEndian {
        /// The version, as a big-endian reader sees it.
        version: u32,
    },
    /// A version of the format that is not supported.
    #[error("GGUF version {found} is not supported, expected 2 or 3")]
    Version {
        /// The version that the file states.
        found: u32,
    },

    /// The file ends before what it describes does.
    #[error("`{place}`: {needed} bytes are needed at byte {at} of the file, {left} are left")]
    Truncated {
        /// The key, the tensor or the header field being read.
        place: String,
        /// Offset from the start of the file.
        at: u64,
        /// Bytes needed.
        needed: u64,
        /// Bytes left.
        left: u64,
    },
    /// A count states more items than the rest of the file can hold.
    #[error("`{place}`: {count} items of {each} bytes or more are stated, {left} bytes are left")]
    Count {
        /// The key, the tensor or the header field being read.
        place: String,
        /// The count that the file states.
        count: u64,
        /// The fewest bytes that one item takes.
        each: u64,
        /// Bytes left after the count.
        left: u64,
    },
    /// A string is not UTF-8.
    #[error("`{place}`: the string at byte {at} of the file is not UTF-8")]
    Utf8 {
        /// The key, the tensor or the header field being read.
        place: String,
        /// Offset of the first byte that is wrong, from the start of the file.
        at: u64,
    },
    /// A boolean is stored as a byte other than 0 and 1.
    #[error("`{place}`: a boolean is stored as {found}, expected 0 or 1")]
    Bool {
        /// The key being read.
        place: String,
        /// The byte.
        found: u8,
    },
    /// A metadata type that the format does not define.
    #[error("`{place}`: value type {id} does not exist, expected 0 to 12")]
    UnknownValueType {
        /// The key being read.
        place: String,
        /// The type's number in the file.
        id: u32,
    },
    /// Arrays are nested too deeply.
    #[error("`{place}`: arrays are nested more than {MAX_ARRAY_DEPTH} deep")]
    ArrayDepth {
        /// The key being read or set.
        place: String,
    },

    /// A metadata key has no characters.
    #[error("the key of metadata entry {index} is empty")]
    EmptyKey {
        /// Position among the metadata entries.
        index: usize,
    },
    /// A metadata key is too long.
    #[error("the key of metadata entry {index} has {length} bytes, expected at most {MAX_KEY_BYTES}")]
    KeyLength {
        /// Position among the metadata entries.
        index: usize,
        /// The key's bytes.
        length: usize,
    },
    /// Two metadata entries have the same key.
    #[error("metadata key `{key}` appears twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A metadata key that is needed is not there.
    #[error("metadata key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A metadata value is of another type than is needed, or its number does not fit that type.
    #[error("metadata key `{key}`: expected {expected}, found {found}")]
    WrongType {
        /// The key.
        key: String,
        /// What was needed.
        expected: &'static str,
        /// The value that is there, in short, with its type.
        found: String,
    },
    /// An alignment that is not a power of two, or too large.
    #[error("alignment {found}: expected a power of two of at most {MAX_ALIGNMENT}")]
    Alignment {
        /// The alignment.
        found: u32,
    },

    /// A tensor has no name.
    #[error("the name of tensor {index} is empty")]
    EmptyName {
        /// Position among the tensors.
        index: usize,
    },
    /// A tensor's name is too long.
    #[error("the name of tensor {index} has {length} bytes, expected at most {MAX_NAME_BYTES}")]
    NameLength {
        /// Position among the tensors.
        index: usize,
        /// The name's bytes.
        length: usize,
    },
    /// Two tensors have the same name.
    #[error("tensor `{tensor}` appears twice")]
    DuplicateTensor {
        /// The name.
        tensor: String,
    },
    /// A tensor has too many dimensions.
    #[error("tensor `{tensor}` has {found} dimensions, expected at most {MAX_DIMS}")]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// Its number of dimensions.
        found: u64,
    },
    /// A tensor's element type is not supported.
    #[error("tensor `{tensor}`: ggml type {id} is not supported")]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// ggml's number of the type.
        id: u32,
    },
    /// A tensor's rows are not whole blocks of its type, or its size cannot be counted.
    #[error("tensor `{tensor}`: shape {ne:?} of {dtype} is not made of whole blocks or exceeds 63 bits")]
    Shape {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: DType,
        /// Its shape, innermost dimension first.
        ne: [u64; MAX_DIMS],
    },
    /// A tensor's bytes do not start at a multiple of the alignment.
    #[error("tensor `{tensor}`: offset {offset} is not a multiple of the alignment {alignment}")]
    Unaligned {
        /// The tensor.
        tensor: String,
        /// Offset from the start of the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u32,
    },
    /// A tensor's bytes end beyond the file.
    #[error("tensor `{tensor}`: {bytes} bytes at offset {offset} of a data section of {available} bytes")]
    PastEnd {
        /// The tensor.
        tensor: String,
        /// Offset from the start of the data section.
        offset: u64,
        /// The tensor's bytes.
        bytes: u64,
        /// Bytes in the data section.
        available: u64,
    },
    /// Two tensors share bytes.
    #[error("tensors `{first}` and `{second}` overlap")]
    Overlap {
        /// The tensor that starts first.
        first: String,
        /// The tensor that starts within it.
        second: String,
    },
    /// The bytes given for a tensor are more or fewer than its shape takes.
    #[error("tensor `{tensor}`: {found} bytes were given, its shape takes {expected}")]
    DataLength {
        /// The tensor.
        tensor: String,
        /// Bytes that the shape takes.
        expected: u64,
        /// Bytes given.
        found: usize,
    },
}
