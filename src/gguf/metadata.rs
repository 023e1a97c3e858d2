//! The list of metadata entries and typed access to them.

use std::collections::HashMap;
use std::sync::Arc;

use super::{ALIGNMENT_KEY, Array, DEFAULT_ALIGNMENT, Error, MAX_ALIGNMENT, MAX_ARRAY_DEPTH, Value};

/// The longest key that the format allows.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;

/// Metadata entries, in the order of the file.
#[derive(Clone, Debug)]
pub struct Metadata {
    entries: Vec<(Arc<str>, Value)>,
    positions: HashMap<Arc<str>, usize>,
    alignment: u32,
}

impl Default for Metadata {
    fn default() -> Self {
        Self { entries: Vec::new(), positions: HashMap::new(), alignment: DEFAULT_ALIGNMENT }
    }
}

impl Metadata {
    /// Adds an entry after the others.
    ///
    /// # Errors
    ///
    /// When the key is empty, too long or there already, when arrays nest too deeply, and when
    /// the key is [`ALIGNMENT_KEY`] and the value is not a `u32` that can align tensors.
    pub fn insert(&mut self, key: &str, value: Value) -> Result<(), Error> {
        self.insert_with(key, || Ok(value))
    }

    /// Adds an entry whose value is made only once the key is known to be sound, so that errors
    /// about the value can show the key.
    pub(super) fn insert_with(&mut self, key: &str, value: impl FnOnce() -> Result<Value, Error>) -> Result<(), Error> {
        let index = self.entries.len();
        if key.is_empty() {
            return Err(Error::EmptyKey { index });
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::KeyLength { index, length: key.len() });
        }
        if self.positions.contains_key(key) {
            return Err(Error::DuplicateKey { key: key.to_owned() });
        }
        let value = value()?;
        if value.as_array().is_some_and(|array| !array.nests_within(MAX_ARRAY_DEPTH)) {
            return Err(Error::ArrayDepth { place: key.to_owned() });
        }
        if key == ALIGNMENT_KEY {
            let Value::U32(alignment) = value else { return Err(wrong_type(key, "u32", &value)) };
            if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
                return Err(Error::Alignment { found: alignment });
            }
            self.alignment = alignment;
        }
        let key: Arc<str> = key.into();
        self.positions.insert(Arc::clone(&key), index);
        self.entries.push((key, value));
        Ok(())
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// The value of a key, whatever its type.
    pub fn value(&self, key: &str) -> Option<&Value> {
        let (_, value) = self.entries.get(*self.positions.get(key)?)?;
        Some(value)
    }

    /// The value of a key as a `T`, `None` when the key is not there.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`] when the value is not a `T`.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, Error> {
        self.value(key).map(|value| T::from_value(value).ok_or_else(|| wrong_type(key, T::EXPECTED, value))).transpose()
    }

    /// The value of a key as a `T`.
    ///
    /// # Errors
    ///
    /// [`Error::MissingKey`] when the key is not there, [`Error::WrongType`] when its value is not
    /// a `T`.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, Error> {
        self.get(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
    }

    /// What the tensors' bytes are aligned to.
    pub(super) fn alignment(&self) -> u32 {
        self.alignment
    }
}

fn wrong_type(key: &str, expected: &'static str, value: &Value) -> Error {
    Error::WrongType { key: key.to_owned(), expected, found: value.to_string() }
}

/// A type that [`Metadata::get`] and [`Metadata::require`] can ask for.
///
/// Integers and vectors of integers accept every width of integer that their value fits. Slices
/// accept exactly their own element type, since they borrow from the metadata.
pub trait FromValue<'a>: Sized {
    /// What the type is called in an error.
    const EXPECTED: &'static str;

    /// The value as this type, `None` when it is of another type or does not fit.
    fn from_value(value: &'a Value) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ident),*) => {$(
        impl FromValue<'_> for $integer {
            const EXPECTED: &'static str = concat!("an integer that fits ", stringify!($integer));

            fn from_value(value: &Value) -> Option<Self> {
                value.as_integer()
            }
        }

        impl FromValue<'_> for Vec<$integer> {
            const EXPECTED: &'static str = concat!("an array of integers that fit ", stringify!($integer));

            fn from_value(value: &Value) -> Option<Self> {
                value.as_array()?.as_integers()
            }
        }
    )*};
}

integers!(u32, i32, u64, i64, usize);

macro_rules! slices {
    ($($variant:ident: $item:ty),*) => {$(
        impl<'a> FromValue<'a> for &'a [$item] {
            const EXPECTED: &'static str = concat!("an array of ", stringify!($item));

            fn from_value(value: &'a Value) -> Option<Self> {
                if let Value::Array(Array::$variant(items)) = value { Some(items) } else { None }
            }
        }
    )*};
}

slices!(U32: u32, I32: i32, F32: f32, Bool: bool, String: String);

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "f32";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_f32()
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "bool";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "string";

    fn from_value(value: &'a Value) -> Option<Self> {
        value.as_str()
    }
}
