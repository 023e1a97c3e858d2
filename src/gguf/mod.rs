//! GGUF files: metadata and tensors, read without trusting them and written so that they read
//! back the same.
//!
//! [`Gguf`] checks a whole file's description (everything but the tensors' bytes) when it is
//! opened, so that what it hands out afterwards holds: every tensor's bytes lie in the file, and
//! no two tensors share any. A file is never believed beyond its size: each count it states is
//! compared with the bytes that are left before anything is allocated for it.
//!
//! [`GgufWriter`] applies the same checks, so it cannot write a file that [`Gguf`] refuses.
//!
//! ```
//! use wgfuse::gguf::{Gguf, GgufWriter};
//! use wgfuse::graph::DType;
//!
//! # fn main() -> Result<(), wgfuse::gguf::Error> {
//! let mut file = Vec::new();
//! GgufWriter::new()
//!     .set("general.architecture", "llama")?
//!     .set("llama.block_count", 22_u32)?
//!     .tensor("output_norm.weight", DType::F32, &[2], vec![0; 8])?
//!     .write_to(&mut file)?;
//!
//! let gguf = Gguf::from_bytes(file)?;
//! assert_eq!(gguf.metadata().require::<u32>("llama.block_count")?, 22);
//! assert_eq!(gguf.tensors()[0].name, "output_norm.weight");
//! # Ok(())
//! # }
//! ```

mod error;
mod metadata;
mod reader;
mod tensor;
mod value;
mod wire;
mod writer;

pub use error::Error;
pub use metadata::{FromValue, MAX_KEY_BYTES, Metadata};
pub use reader::Gguf;
pub use tensor::{MAX_DIMS, MAX_NAME_BYTES, TensorInfo};
pub use value::{Array, MAX_ARRAY_DEPTH, Value, ValueType};
pub use writer::GgufWriter;

/// The four bytes that every file starts with.
const MAGIC: [u8; 4] = *b"GGUF";

/// The key whose `u32` value aligns the tensors' bytes.
pub const ALIGNMENT_KEY: &str = "general.alignment";

/// Alignment of a file that does not state one.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// The largest alignment that is believed: beyond any page size, and small enough that padding
/// cannot make a file many times larger than what it holds.
pub const MAX_ALIGNMENT: u32 = 1 << 20;
