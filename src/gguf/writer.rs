//! Writing files.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::tensor::Tensors;
use super::wire::{Wire, encode_str};
use super::{ALIGNMENT_KEY, Error, Gguf, MAGIC, Metadata, TensorInfo, Value};
use crate::graph::DType;

/// Collects metadata and tensors and writes them to a file.
///
/// Tensors are placed one after the other, each padded to the alignment. Reading a file that was
/// written here and writing it again gives the same bytes.
#[derive(Clone, Debug)]
pub struct GgufWriter<'a> {
    version: u32,
    metadata: Metadata,
    tensors: Tensors,
    /// The bytes of each tensor.
    data: Vec<Cow<'a, [u8]>>,
}

impl Default for GgufWriter<'_> {
    fn default() -> Self {
        Self { version: 3, metadata: Metadata::default(), tensors: Tensors::default(), data: Vec::new() }
    }
}

impl<'a> GgufWriter<'a> {
    /// A writer of an empty file of version 3.
    pub fn new() -> Self {
        Self::default()
    }

    /// A writer of what a file holds, in the same order.
    pub fn from_gguf(gguf: &'a Gguf) -> Self {
        Self {
            version: gguf.version(),
            metadata: gguf.metadata().clone(),
            tensors: gguf.tensor_list().clone(),
            data: gguf.tensors().iter().map(|tensor| gguf.data(tensor).into()).collect(),
        }
    }

    /// Sets the version of the format.
    ///
    /// # Errors
    ///
    /// [`Error::Version`] when it is neither 2 nor 3.
    pub fn version(&mut self, version: u32) -> Result<&mut Self, Error> {
        if !matches!(version, 2 | 3) {
            return Err(Error::Version { found: version });
        }
        self.version = version;
        Ok(self)
    }

    /// Aligns the tensors' bytes, and adds the metadata entry that says so.
    ///
    /// # Errors
    ///
    /// [`Error::Alignment`] when it is not a power of two or too large, [`Error::DuplicateKey`]
    /// when it was set before.
    pub fn alignment(&mut self, alignment: u32) -> Result<&mut Self, Error> {
        self.set(ALIGNMENT_KEY, alignment)
    }

    /// Adds a metadata entry.
    ///
    /// # Errors
    ///
    /// As [`Metadata::insert`].
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<&mut Self, Error> {
        self.metadata.insert(key, value.into())?;
        Ok(self)
    }

    /// Adds a tensor of `dims`, innermost first, whose bytes are `data`.
    ///
    /// # Errors
    ///
    /// When the name is empty, too long or there already, when there are too many dimensions or
    /// their product is too large, and when `data` is not as long as they say.
    pub fn tensor(
        &mut self,
        name: &str,
        dtype: DType,
        dims: &[u64],
        data: impl Into<Cow<'a, [u8]>>,
    ) -> Result<&mut Self, Error> {
        let data = data.into();
        self.tensors.insert_with(name, || {
            let info = TensorInfo::new(name, dtype, dims)?;
            if info.bytes != data.len() as u64 {
                return Err(Error::DataLength { tensor: name.to_owned(), expected: info.bytes, found: data.len() });
            }
            Ok(info)
        })?;
        self.data.push(data);
        Ok(self)
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] when `out` fails.
    pub fn write_to(&self, mut out: impl Write) -> Result<(), Error> {
        self.write(&mut out).map_err(Error::Write)
    }

    /// Writes the file to `path`, which afterwards holds either the whole file or what it held
    /// before.
    ///
    /// The bytes go to a file beside it first, so `path` may be the very file that the tensors
    /// are mapped from.
    ///
    /// # Errors
    ///
    /// [`Error::File`] when the system fails to create, write or rename.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let written = File::create(&partial).and_then(|file| {
            let mut out = BufWriter::new(file);
            self.write(&mut out)?;
            out.flush()?;
            fs::rename(&partial, path)
        });
        written.map_err(|source| {
            // What failed is reported; a leftover that cannot be removed either says no more.
            let _ = fs::remove_file(&partial);
            Error::File { path: path.to_owned(), source }
        })
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let alignment = u64::from(self.metadata.alignment());
        let header = self.header(alignment);
        out.write_all(&header)?;
        pad(out, header.len() as u64, alignment)?;
        for data in &self.data {
            out.write_all(data)?;
            pad(out, data.len() as u64, alignment)?;
        }
        Ok(())
    }

    /// Everything before the tensors' bytes.
    fn header(&self, alignment: u64) -> Vec<u8> {
        let tensors = self.tensors.as_slice();
        let mut out = MAGIC.to_vec();
        self.version.encode(&mut out);
        (tensors.len() as u64).encode(&mut out);
        (self.metadata.len() as u64).encode(&mut out);
        for (key, value) in self.metadata.iter() {
            encode_str(key, &mut out);
            value.encode(&mut out);
        }
        let mut offset = 0;
        for tensor in tensors {
            encode_str(&tensor.name, &mut out);
            (tensor.dims().len() as u32).encode(&mut out);
            tensor.dims().iter().for_each(|dim| dim.encode(&mut out));
            u32::from(tensor.dtype.id()).encode(&mut out);
            offset.encode(&mut out);
            offset += tensor.bytes.next_multiple_of(alignment);
        }
        out
    }
}

/// Writes zeros from `position` to the next multiple of the alignment.
fn pad(out: &mut impl Write, position: u64, alignment: u64) -> io::Result<()> {
    let zeros = position.next_multiple_of(alignment) - position;
    io::copy(&mut io::Read::take(io::repeat(0), zeros), out).map(drop)
}
