//! Metadata values and their types.

use std::fmt;

/// How deep arrays may be nested: an array of numbers is one deep.
///
/// Known files stop at one. The limit keeps a hostile file from exhausting the stack.
pub const MAX_ARRAY_DEPTH: usize = 4;

/// The type of a metadata value; its discriminant is the format's number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// 8-bit unsigned integer.
    U8 = 0,
    /// 8-bit signed integer.
    I8 = 1,
    /// 16-bit unsigned integer.
    U16 = 2,
    /// 16-bit signed integer.
    I16 = 3,
    /// 32-bit unsigned integer.
    U32 = 4,
    /// 32-bit signed integer.
    I32 = 5,
    /// IEEE 754 single precision.
    F32 = 6,
    /// A byte that is 0 or 1.
    Bool = 7,
    /// UTF-8 text.
    String = 8,
    /// Values of one type.
    Array = 9,
    /// 64-bit unsigned integer.
    U64 = 10,
    /// 64-bit signed integer.
    I64 = 11,
    /// IEEE 754 double precision.
    F64 = 12,
}

impl ValueType {
    /// Every type there is, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The format's number of the type.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The type that has the number `id`.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The type's name, as error messages spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A metadata value.
///
/// `Display` shows it in short: text is cut after a few characters, and of an array only the
/// length and the element type are shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// 8-bit unsigned integer.
    U8(u8),
    /// 8-bit signed integer.
    I8(i8),
    /// 16-bit unsigned integer.
    U16(u16),
    /// 16-bit signed integer.
    I16(i16),
    /// 32-bit unsigned integer.
    U32(u32),
    /// 32-bit signed integer.
    I32(i32),
    /// IEEE 754 single precision.
    F32(f32),
    /// Truth value.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// Values of one type.
    Array(Array),
    /// 64-bit unsigned integer.
    U64(u64),
    /// 64-bit signed integer.
    I64(i64),
    /// IEEE 754 double precision.
    F64(f64),
}

/// Metadata values of one type.
///
/// Arrays in an [`Array::Array`] may differ from each other in type and in length.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// 8-bit unsigned integers.
    U8(Vec<u8>),
    /// 8-bit signed integers.
    I8(Vec<i8>),
    /// 16-bit unsigned integers.
    U16(Vec<u16>),
    /// 16-bit signed integers.
    I16(Vec<i16>),
    /// 32-bit unsigned integers.
    U32(Vec<u32>),
    /// 32-bit signed integers.
    I32(Vec<i32>),
    /// IEEE 754 single precision numbers.
    F32(Vec<f32>),
    /// Truth values.
    Bool(Vec<bool>),
    /// UTF-8 texts.
    String(Vec<String>),
    /// Arrays.
    Array(Vec<Array>),
    /// 64-bit unsigned integers.
    U64(Vec<u64>),
    /// 64-bit signed integers.
    I64(Vec<i64>),
    /// IEEE 754 double precision numbers.
    F64(Vec<f64>),
}

/// Evaluates one expression for the payload of whichever variant of `$of` a value is.
macro_rules! for_payload {
    ($of:ident, $value:expr, $payload:ident => $result:expr) => {
        match $value {
            $of::U8($payload) => $result,
            $of::I8($payload) => $result,
            $of::U16($payload) => $result,
            $of::I16($payload) => $result,
            $of::U32($payload) => $result,
            $of::I32($payload) => $result,
            $of::F32($payload) => $result,
            $of::Bool($payload) => $result,
            $of::String($payload) => $result,
            $of::Array($payload) => $result,
            $of::U64($payload) => $result,
            $of::I64($payload) => $result,
            $of::F64($payload) => $result,
        }
    };
}
pub(super) use for_payload;

impl Value {
    /// The value's type.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// An integer of any width, as the type asked for; `None` when it does not fit.
    pub fn as_integer<T: TryFrom<i128>>(&self) -> Option<T> {
        let wide = match *self {
            Self::U8(n) => i128::from(n),
            Self::I8(n) => i128::from(n),
            Self::U16(n) => i128::from(n),
            Self::I16(n) => i128::from(n),
            Self::U32(n) => i128::from(n),
            Self::I32(n) => i128::from(n),
            Self::U64(n) => i128::from(n),
            Self::I64(n) => i128::from(n),
            Self::F32(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) | Self::F64(_) => return None,
        };
        T::try_from(wide).ok()
    }

    /// An integer of any width that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_integer()
    }

    /// An integer of any width that fits 64 bits with a sign.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_integer()
    }

    /// A single precision number.
    pub fn as_f32(&self) -> Option<f32> {
        if let Self::F32(x) = *self { Some(x) } else { None }
    }

    /// A floating-point number of either width.
    pub fn as_f64(&self) -> Option<f64> {
        if let Self::F64(x) = *self { Some(x) } else { self.as_f32().map(f64::from) }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(b) = *self { Some(b) } else { None }
    }

    /// Text.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(s) = self { Some(s) } else { None }
    }

    /// An array of any type.
    pub fn as_array(&self) -> Option<&Array> {
        if let Self::Array(array) = self { Some(array) } else { None }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 40;
        let value_type = self.value_type();
        match self {
            Self::String(s) => match s.char_indices().nth(SHOWN) {
                Some((cut, _)) => write!(f, "{value_type} {:?}… of {} bytes", &s[..cut], s.len()),
                None => write!(f, "{value_type} {s:?}"),
            },
            Self::Array(array) => write!(f, "{value_type} of {} {}", array.len(), array.element_type()),
            Self::U8(n) => write!(f, "{value_type} {n}"),
            Self::I8(n) => write!(f, "{value_type} {n}"),
            Self::U16(n) => write!(f, "{value_type} {n}"),
            Self::I16(n) => write!(f, "{value_type} {n}"),
            Self::U32(n) => write!(f, "{value_type} {n}"),
            Self::I32(n) => write!(f, "{value_type} {n}"),
            Self::F32(x) => write!(f, "{value_type} {x}"),
            Self::Bool(b) => write!(f, "{value_type} {b}"),
            Self::U64(n) => write!(f, "{value_type} {n}"),
            Self::I64(n) => write!(f, "{value_type} {n}"),
            Self::F64(x) => write!(f, "{value_type} {x}"),
        }
    }
}

impl Array {
    /// The type of the elements.
    pub const fn element_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        for_payload!(Array, self, items => items.len())
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Integers of any width, as the type asked for; `None` when one does not fit or they are not
    /// integers.
    pub fn as_integers<T: TryFrom<i128>>(&self) -> Option<Vec<T>> {
        fn fit<T: TryFrom<i128>, N: Copy + Into<i128>>(items: &[N]) -> Option<Vec<T>> {
            items.iter().map(|&n| T::try_from(n.into()).ok()).collect()
        }
        match self {
            Self::U8(items) => fit(items),
            Self::I8(items) => fit(items),
            Self::U16(items) => fit(items),
            Self::I16(items) => fit(items),
            Self::U32(items) => fit(items),
            Self::I32(items) => fit(items),
            Self::U64(items) => fit(items),
            Self::I64(items) => fit(items),
            Self::F32(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) | Self::F64(_) => None,
        }
    }

    /// Whether arrays nest at most `limit` deep, this one included.
    ///
    /// Stops at the limit, so that the depth of a value never becomes depth of the stack.
    pub(super) fn nests_within(&self, limit: usize) -> bool {
        match (limit.checked_sub(1), self) {
            (None, _) => false,
            (Some(rest), Self::Array(items)) => items.iter().all(|item| item.nests_within(rest)),
            (Some(_), _) => true,
        }
    }
}

macro_rules! from_payload {
    ($($variant:ident: $payload:ty),* $(,)?) => {$(
        impl From<$payload> for Value {
            fn from(value: $payload) -> Self {
                Self::$variant(value)
            }
        }

        impl From<Vec<$payload>> for Array {
            fn from(items: Vec<$payload>) -> Self {
                Self::$variant(items)
            }
        }

        impl From<Vec<$payload>> for Value {
            fn from(items: Vec<$payload>) -> Self {
                Self::Array(Array::$variant(items))
            }
        }
    )*};
}

from_payload! {
    U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, F32: f32, Bool: bool,
    String: String, Array: Array, U64: u64, I64: i64, F64: f64,
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_numbers_are_the_positions_in_all() {
        for (id, value_type) in (0..).zip(ValueType::ALL) {
            assert_eq!(value_type.id(), id);
            assert_eq!(ValueType::from_id(id), Some(value_type));
        }
        assert_eq!(ValueType::from_id(13), None);
        assert_eq!(ValueType::from_id(u32::MAX), None);
    }

    #[test]
    fn integers_widen_and_narrow_only_when_they_fit() {
        assert_eq!(Value::U8(200).as_u64(), Some(200));
        assert_eq!(Value::I8(-1).as_i64(), Some(-1));
        assert_eq!(Value::I64(-1).as_u64(), None);
        assert_eq!(Value::U64(u64::MAX).as_i64(), None);
        assert_eq!(Value::U64(1 << 32).as_integer::<u32>(), None);
        assert_eq!(Value::F32(1.0).as_u64(), None);
        assert_eq!(Value::Bool(true).as_u64(), None);
        assert_eq!(Array::I16(vec![1, 2]).as_integers::<u32>(), Some(vec![1, 2]));
        assert_eq!(Array::I16(vec![1, -2]).as_integers::<u32>(), None);
        assert_eq!(Array::F32(vec![1.0]).as_integers::<u32>(), None);
    }

    #[test]
    fn display_is_short() {
        assert_eq!(Value::from(7_u16).to_string(), "u16 7");
        assert_eq!(Value::from("llama").to_string(), "string \"llama\"");
        assert_eq!(Value::from(vec![1.0_f32; 9]).to_string(), "array of 9 f32");
        let long = Value::from("é".repeat(1000)).to_string();
        assert!(long.ends_with("of 2000 bytes") && long.len() < 120, "{long}");
    }

    #[test]
    fn nesting_is_measured_without_following_it() {
        let mut array = Array::U8(vec![1]);
        for depth in 1..20 {
            assert_eq!(array.nests_within(MAX_ARRAY_DEPTH), depth <= MAX_ARRAY_DEPTH, "{depth}");
            array = Array::Array(vec![array]);
        }
    }
}
