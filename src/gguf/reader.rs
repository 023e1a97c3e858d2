//! Reading files.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::tensor::{Tensors, type_from_id};
use super::wire::{Cursor, Wire};
use super::{Error, MAGIC, MAX_DIMS, Metadata, TensorInfo};

/// The fewest bytes that a metadata entry takes: its key's length, its type and its value.
const MIN_ENTRY_BYTES: u64 = String::MIN_BYTES + u32::MIN_BYTES + u8::MIN_BYTES;

/// The fewest bytes that a tensor's description takes: its name's length, its number of
/// dimensions, its type and its offset.
const MIN_TENSOR_BYTES: u64 = String::MIN_BYTES + u32::MIN_BYTES + u32::MIN_BYTES + u64::MIN_BYTES;

/// A GGUF file whose description was read and checked.
pub struct Gguf {
    storage: Storage,
    version: u32,
    metadata: Metadata,
    tensors: Tensors,
    /// Where the tensors' bytes start; past the end of a file that has none.
    data_start: usize,
}

enum Storage {
    Bytes(Arc<[u8]>),
    Map(Mmap),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Map(map) => map,
        }
    }
}

impl Gguf {
    /// Opens a file and maps it into memory, so that only those tensors are read that are used.
    ///
    /// The file must not be changed or cut while it is open: its bytes are the mapped ones.
    ///
    /// # Errors
    ///
    /// [`Error::File`] when the system cannot open or map it, else what is wrong with it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let map = File::open(path).and_then(|file| {
            // SAFETY: the map is only ever read, and callers are told not to change the file
            // while it is open, which no program can prevent on its own.
            unsafe { Mmap::map(&file) }
        });
        let map = map.map_err(|source| Error::File { path: path.to_owned(), source })?;
        Self::parse(Storage::Map(map))
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Self, Error> {
        Self::parse(Storage::Bytes(bytes.into()))
    }

    fn parse(storage: Storage) -> Result<Self, Error> {
        let bytes = storage.bytes();
        let mut cursor = Cursor::new(bytes);
        let magic = cursor.at("magic").bytes()?;
        if magic != MAGIC {
            return Err(Error::Magic { found: magic });
        }
        let version = read_version(&mut cursor)?;
        let n_tensors = cursor.at("tensor count").count(MIN_TENSOR_BYTES)?;
        let n_entries = cursor.at("metadata count").count(MIN_ENTRY_BYTES)?;

        let mut metadata = Metadata::default();
        for _ in 0..n_entries {
            let key = cursor.at("key").str()?;
            metadata.insert_with(key, || cursor.at(key).value())?;
        }
        let mut tensors = Tensors::default();
        for _ in 0..n_tensors {
            let name = cursor.at("tensor name").str()?;
            tensors.insert_with(name, || read_tensor(cursor.at(name), name))?;
        }

        let alignment = metadata.alignment();
        let data_start = cursor.position().next_multiple_of(alignment as usize);
        let available = bytes.len().saturating_sub(data_start) as u64;
        tensors.check_places(alignment, available)?;
        Ok(Self { storage, version, metadata, tensors, data_start })
    }

    /// Version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the tensors' bytes are aligned to.
    pub fn alignment(&self) -> u32 {
        self.metadata.alignment()
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        self.tensors.as_slice()
    }

    pub(super) fn tensor_list(&self) -> &Tensors {
        &self.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.find(name)
    }

    /// The bytes of one of this file's tensors.
    ///
    /// Empty when `tensor` describes bytes that this file does not have, as a tensor of another
    /// file may.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        let range = || {
            let start = self.data_start.checked_add(usize::try_from(tensor.offset).ok()?)?;
            Some(start..start.checked_add(usize::try_from(tensor.bytes).ok()?)?)
        };
        range().and_then(|range| self.storage.bytes().get(range)).unwrap_or_default()
    }
}

impl fmt::Debug for Gguf {
    /// Leaves the bytes out, of which there may be gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.version)
            .field("metadata", &self.metadata.len())
            .field("tensors", &self.tensors().len())
            .finish_non_exhaustive()
    }
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, Error> {
    match cursor.at("version").read()? {
        version @ (2 | 3) => Ok(version),
        // No version needs the upper half of the number, unless its bytes are in reverse.
        found if found != 0 && found & 0xffff == 0 => Err(Error::BigEndian { version: found.swap_bytes() }),
        found => Err(Error::Version { found }),
    }
}

fn read_tensor(cursor: &mut Cursor<'_>, name: &str) -> Result<TensorInfo, Error> {
    let n_dims: u32 = cursor.read()?;
    let mut ne = [1; MAX_DIMS];
    let dims = usize::try_from(n_dims).ok().and_then(|n| ne.get_mut(..n));
    let dims = dims.ok_or_else(|| Error::Dimensions { tensor: name.to_owned(), found: n_dims.into() })?;
    for dim in &mut *dims {
        *dim = cursor.read()?;
    }
    let id = cursor.read()?;
    let dtype = type_from_id(id).ok_or_else(|| Error::UnsupportedType { tensor: name.to_owned(), id })?;
    let offset = cursor.read()?;
    Ok(TensorInfo { offset, ..TensorInfo::new(name, dtype, dims)? })
}
