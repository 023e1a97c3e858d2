//! How numbers, texts and arrays are laid out in a file.

use super::value::for_payload;
use super::{Array, Error, MAX_ARRAY_DEPTH, Value, ValueType};

/// Reads a file from front to back, never past its end.
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    length: usize,
    place: &'a str,
    array_depth: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len(), place: "header", array_depth: 0 }
    }

    /// Names what is read next, for errors.
    pub(super) fn at(&mut self, place: &'a str) -> &mut Self {
        self.place = place;
        self
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    pub(super) fn read<T: Wire>(&mut self) -> Result<T, Error> {
        T::decode(self)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(Error::Truncated {
                place: self.place.to_owned(),
                at: self.position() as u64,
                needed: N as u64,
                left: self.rest.len() as u64,
            });
        };
        self.rest = rest;
        Ok(*bytes)
    }

    /// Reads a count of items that take at least `each` bytes, all of them after the count.
    pub(super) fn count(&mut self, each: u64) -> Result<usize, Error> {
        let count: u64 = self.read()?;
        let left = self.rest.len() as u64;
        match usize::try_from(count) {
            Ok(fits) if count <= left / each => Ok(fits),
            Ok(_) | Err(_) => Err(Error::Count { place: self.place.to_owned(), count, each, left }),
        }
    }

    pub(super) fn str(&mut self) -> Result<&'a str, Error> {
        let length = self.count(1)?;
        let start = self.position();
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        str::from_utf8(text)
            .map_err(|error| Error::Utf8 { place: self.place.to_owned(), at: (start + error.valid_up_to()) as u64 })
    }

    pub(super) fn value_type(&mut self) -> Result<ValueType, Error> {
        let id = self.read()?;
        ValueType::from_id(id).ok_or_else(|| Error::UnknownValueType { place: self.place.to_owned(), id })
    }

    pub(super) fn value(&mut self) -> Result<Value, Error> {
        Ok(match self.value_type()? {
            ValueType::U8 => Value::U8(self.read()?),
            ValueType::I8 => Value::I8(self.read()?),
            ValueType::U16 => Value::U16(self.read()?),
            ValueType::I16 => Value::I16(self.read()?),
            ValueType::U32 => Value::U32(self.read()?),
            ValueType::I32 => Value::I32(self.read()?),
            ValueType::F32 => Value::F32(self.read()?),
            ValueType::Bool => Value::Bool(self.read()?),
            ValueType::String => Value::String(self.read()?),
            ValueType::Array => Value::Array(self.read()?),
            ValueType::U64 => Value::U64(self.read()?),
            ValueType::I64 => Value::I64(self.read()?),
            ValueType::F64 => Value::F64(self.read()?),
        })
    }
}

/// A type that has one layout in files.
pub(super) trait Wire: Sized {
    /// The fewest bytes that a value takes.
    const MIN_BYTES: u64;

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, Error>;

    fn encode(&self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            const MIN_BYTES: u64 = size_of::<$number>() as u64;

            fn decode(cursor: &mut Cursor<'_>) -> Result<Self, Error> {
                cursor.bytes().map(<$number>::from_le_bytes)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
    )*};
}

numbers!(u8, i8, u16, i16, u32, i32, f32, u64, i64, f64);

impl Wire for bool {
    const MIN_BYTES: u64 = 1;

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, Error> {
        match cursor.read::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(Error::Bool { place: cursor.place.to_owned(), found }),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Wire for String {
    const MIN_BYTES: u64 = 8;

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, Error> {
        cursor.str().map(str::to_owned)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_str(self, out);
    }
}

impl Wire for Array {
    const MIN_BYTES: u64 = 12;

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, Error> {
        if cursor.array_depth == MAX_ARRAY_DEPTH {
            return Err(Error::ArrayDepth { place: cursor.place.to_owned() });
        }
        cursor.array_depth += 1;
        let array = match cursor.value_type()? {
            ValueType::U8 => Self::U8(items(cursor)?),
            ValueType::I8 => Self::I8(items(cursor)?),
            ValueType::U16 => Self::U16(items(cursor)?),
            ValueType::I16 => Self::I16(items(cursor)?),
            ValueType::U32 => Self::U32(items(cursor)?),
            ValueType::I32 => Self::I32(items(cursor)?),
            ValueType::F32 => Self::F32(items(cursor)?),
            ValueType::Bool => Self::Bool(items(cursor)?),
            ValueType::String => Self::String(items(cursor)?),
            ValueType::Array => Self::Array(items(cursor)?),
            ValueType::U64 => Self::U64(items(cursor)?),
            ValueType::I64 => Self::I64(items(cursor)?),
            ValueType::F64 => Self::F64(items(cursor)?),
        };
        cursor.array_depth -= 1;
        Ok(array)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.element_type().id().encode(out);
        for_payload!(Array, self, items => {
            (items.len() as u64).encode(out);
            for item in items {
                item.encode(out);
            }
        });
    }
}

impl Value {
    /// Writes the value after its type.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.value_type().id().encode(out);
        for_payload!(Value, self, payload => payload.encode(out));
    }
}

/// Writes text after its length.
pub(super) fn encode_str(text: &str, out: &mut Vec<u8>) {
    (text.len() as u64).encode(out);
    out.extend_from_slice(text.as_bytes());
}

/// Reads a count and as many items.
///
/// The vector grows as items are read, because an item may take more memory than bytes of the
/// file: reserving for the count would let a small file ask for a multiple of its size at each
/// level of nested arrays.
fn items<T: Wire>(cursor: &mut Cursor<'_>) -> Result<Vec<T>, Error> {
    let count = cursor.count(T::MIN_BYTES)?;
    (0..count).map(|_| cursor.read()).collect()
}
