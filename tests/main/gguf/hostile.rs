//! Files that lie: every kind is refused with the error that names it.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use wgfuse::gguf::{Array, Error, Gguf, GgufWriter, MAX_ALIGNMENT, MAX_ARRAY_DEPTH, MAX_KEY_BYTES, MAX_NAME_BYTES};
use wgfuse::graph::DType;

use super::{rewrite, sample};

const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const F32_TENSOR: u32 = 0;

/// Builds files without any of the writer's checks.
#[derive(Clone)]
struct Raw(Vec<u8>);

impl Raw {
    fn new(tensors: u64, entries: u64) -> Self {
        Self::of_version(3, tensors, entries)
    }

    fn of_version(version: u32, tensors: u64, entries: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(version).u64(tensors).u64(entries)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn u64(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn text(self, text: impl AsRef<[u8]>) -> Self {
        self.u64(text.as_ref().len() as u64).bytes(text.as_ref())
    }

    fn key(self, key: &str, value_type: u32) -> Self {
        self.text(key).u32(value_type)
    }

    fn tensor(self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> Self {
        let start = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(start, |raw, &dim| raw.u64(dim)).u32(type_id).u64(offset)
    }

    /// Pads to the default alignment and adds bytes of tensors.
    fn data(mut self, bytes: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + bytes, 0xab);
        self
    }

    fn read(&self) -> Result<Gguf, Error> {
        let start = Instant::now();
        let result = Gguf::from_bytes(self.0.clone());
        assert!(start.elapsed() < Duration::from_secs(1), "reading took {:?}", start.elapsed());
        result
    }

    fn error(&self) -> Error {
        self.read().expect_err("the file must be refused")
    }
}

/// Asserts that a file is refused with an error of this pattern.
macro_rules! refused {
    ($raw:expr, $pattern:pat $(if $guard:expr)?) => {{
        let error = $raw.error();
        assert!(matches!(&error, $pattern $(if $guard)?), "{error:?}");
    }};
}

const HUGE_COUNTS: [u64; 6] = [1_000, 500_000_000, u64::MAX / 64, i64::MAX as u64, 1 << 63, u64::MAX];

#[test]
fn magic() {
    refused!(Raw(b"GGML\x03\0\0\0".to_vec()), Error::Magic { found } if found == b"GGML");
}

#[test]
fn version_1_and_unknown_versions() {
    for version in [0, 1, 4, 99] {
        refused!(Raw::of_version(version, 0, 0), Error::Version { found } if *found == version);
    }
}

#[test]
fn big_endian() {
    refused!(Raw::of_version(3_u32.swap_bytes(), 0, 0), Error::BigEndian { version: 3 });
}

#[test]
fn huge_tensor_count() {
    for count in HUGE_COUNTS {
        refused!(Raw::new(count, 0).data(64), Error::Count { place, count: stated, .. }
            if place == "tensor count" && *stated == count);
    }
}

#[test]
fn huge_metadata_count() {
    for count in HUGE_COUNTS {
        refused!(Raw::new(0, count).data(64), Error::Count { place, count: stated, .. }
            if place == "metadata count" && *stated == count);
    }
}

#[test]
fn huge_key_length() {
    for count in HUGE_COUNTS {
        refused!(Raw::new(0, 1).u64(count).data(64), Error::Count { place, .. } if place == "key");
    }
}

#[test]
fn huge_string_length() {
    for count in HUGE_COUNTS {
        refused!(Raw::new(0, 1).key("k", STRING).u64(count).data(64), Error::Count { place, .. } if place == "k");
    }
}

#[test]
fn huge_tensor_name_length() {
    for count in HUGE_COUNTS {
        refused!(Raw::new(1, 0).u64(count).data(64), Error::Count { place, .. } if place == "tensor name");
    }
}

#[test]
fn huge_array_length_of_every_type() {
    for count in HUGE_COUNTS {
        for element in 0..13 {
            let raw = Raw::new(0, 1).key("k", ARRAY).u32(element).u64(count).data(64);
            refused!(raw, Error::Count { place, count: stated, .. } if place == "k" && *stated == count);
        }
    }
}

#[test]
fn array_length_one_beyond_the_file() {
    let raw = |count| Raw::new(0, 1).key("k", ARRAY).u32(U32).u64(count).u32(1).u32(2);
    assert!(raw(2).read().is_ok());
    refused!(raw(3), Error::Count { count: 3, each: 4, left: 8, .. });
}

#[test]
fn huge_array_length_inside_an_array() {
    let raw = Raw::new(0, 1).key("k", ARRAY).u32(ARRAY).u64(2).u32(U8).u64(1).bytes(&[0]).u32(U8).u64(1 << 40);
    refused!(raw, Error::Count { left: 0, .. });
}

#[test]
fn nested_arrays() {
    let raw = |depth: usize| {
        let start = Raw::new(0, 1).key("k", ARRAY);
        (1..depth).fold(start, |raw, _| raw.u32(ARRAY).u64(1)).u32(U8).u64(1).bytes(&[5])
    };
    assert!(raw(MAX_ARRAY_DEPTH).read().is_ok());
    for depth in [MAX_ARRAY_DEPTH + 1, 100, 1_000_000] {
        refused!(raw(depth), Error::ArrayDepth { place } if place == "k");
    }
}

#[test]
fn nested_arrays_are_not_deep_because_they_are_many() {
    let inner = |raw: Raw| raw.u32(U8).u64(0);
    let start = Raw::new(0, 1).key("k", ARRAY).u32(ARRAY).u64(100);
    assert!((0..100).fold(start, |raw, _| inner(raw)).read().is_ok());
}

#[test]
fn more_than_four_dimensions() {
    refused!(Raw::new(1, 0).tensor("t", &[1; 5], F32_TENSOR, 0).data(64), Error::Dimensions { found: 5, .. });
    let raw = Raw::new(1, 0).text("t").u32(u32::MAX).data(64);
    refused!(raw, Error::Dimensions { tensor, found: 0xffff_ffff } if tensor == "t");
}

#[test]
fn dimension_products_that_wrap() {
    // The second wraps to 16 elements, the third to none.
    let shapes = [
        vec![u64::MAX, 2],
        vec![(1 << 60) + 1, 16],
        vec![1 << 32, 1 << 32],
        vec![1 << 16; 4],
        vec![u64::MAX; 4],
        vec![1, 1, 1, u64::MAX],
    ];
    for dims in shapes {
        refused!(Raw::new(1, 0).tensor("t", &dims, F32_TENSOR, 0).data(64), Error::Shape { tensor, .. } if tensor == "t");
    }
}

#[test]
fn byte_sizes_that_wrap() {
    for elements in [1 << 62, (1 << 62) + 4, 1 << 61, u64::MAX] {
        refused!(Raw::new(1, 0).tensor("t", &[elements], F32_TENSOR, 0).data(64), Error::Shape { .. });
    }
}

#[test]
fn offsets_and_sizes_whose_sum_wraps() {
    let raw = Raw::new(1, 0).tensor("t", &[16], F32_TENSOR, u64::MAX - 31).data(64);
    refused!(raw, Error::PastEnd { offset, bytes: 64, available: 64, .. } if *offset == u64::MAX - 31);
}

#[test]
fn tensor_sizes_whose_sum_wraps() {
    let half = 1 << 60;
    let raw = (0..4).fold(Raw::new(4, 0), |raw, i| raw.tensor(&format!("t{i}"), &[half], F32_TENSOR, i * half * 4));
    refused!(raw.data(64), Error::PastEnd { .. });
}

#[test]
fn zero_dimensions_are_empty_tensors() -> Result<(), Error> {
    let raw = Raw::new(3, 0)
        .tensor("first", &[0], F32_TENSOR, 0)
        .tensor("full", &[8], F32_TENSOR, 0)
        .tensor("last", &[4, 0, 2, 1], F32_TENSOR, 32)
        .data(32);
    let gguf = raw.read()?;
    for name in ["first", "last"] {
        let tensor = gguf.tensor(name).expect("it is there");
        assert_eq!((tensor.bytes, gguf.data(tensor)), (0, &[][..]));
    }
    assert_eq!(gguf.tensor("last").map(|tensor| tensor.ne), Some([4, 0, 2, 1]));
    Ok(())
}

#[test]
fn zero_dimensions_do_not_hide_products_that_wrap() {
    for dims in [[0, 1 << 40, 1 << 40], [1 << 62, 0, 1], [1 << 40, 1 << 40, 0]] {
        refused!(Raw::new(1, 0).tensor("t", &dims, F32_TENSOR, 0).data(64), Error::Shape { .. });
    }
}

#[test]
fn empty_tensor_past_the_end() {
    refused!(Raw::new(1, 0).tensor("t", &[0], F32_TENSOR, 128).data(64), Error::PastEnd { bytes: 0, .. });
}

#[test]
fn alignment_zero_not_a_power_of_two_or_huge() {
    for alignment in [0, 3, 31, 48, MAX_ALIGNMENT + 1, MAX_ALIGNMENT * 2, 1 << 31, u32::MAX] {
        let raw = Raw::new(0, 1).key("general.alignment", U32).u32(alignment);
        refused!(raw, Error::Alignment { found } if *found == alignment);
    }
    for alignment in [1, 2, 8, 4096, MAX_ALIGNMENT] {
        let gguf = Raw::new(0, 1).key("general.alignment", U32).u32(alignment).read().expect("it is valid");
        assert_eq!(gguf.alignment(), alignment);
    }
}

#[test]
fn alignment_of_the_wrong_type() {
    let raw = Raw::new(0, 1).key("general.alignment", 10).u64(32);
    refused!(raw, Error::WrongType { key, expected: "u32", found } if key == "general.alignment" && found == "u64 32");
}

#[test]
fn empty_key() {
    refused!(Raw::new(0, 2).key("k", U8).bytes(&[0]).key("", U8).bytes(&[0]), Error::EmptyKey { index: 1 });
}

#[test]
fn duplicate_key() {
    let raw = Raw::new(0, 2).key("k", U8).bytes(&[0]).key("k", U32).u32(0);
    refused!(raw, Error::DuplicateKey { key } if key == "k");
}

#[test]
fn key_longer_than_the_format_allows() {
    let raw = |length| Raw::new(0, 1).key(&"k".repeat(length), U8).bytes(&[0]);
    assert!(raw(MAX_KEY_BYTES).read().is_ok());
    refused!(raw(MAX_KEY_BYTES + 1), Error::KeyLength { index: 0, length: 65536 });
}

#[test]
fn empty_tensor_name() {
    refused!(Raw::new(1, 0).tensor("", &[1], F32_TENSOR, 0).data(64), Error::EmptyName { index: 0 });
}

#[test]
fn duplicate_tensor_name() {
    let raw = Raw::new(2, 0).tensor("t", &[1], F32_TENSOR, 0).tensor("t", &[1], F32_TENSOR, 32).data(64);
    refused!(raw, Error::DuplicateTensor { tensor } if tensor == "t");
}

#[test]
fn tensor_names_of_64_bytes_and_more() {
    let raw = |length| Raw::new(1, 0).tensor(&"n".repeat(length), &[1], F32_TENSOR, 0).data(64);
    assert!(raw(MAX_NAME_BYTES).read().is_ok());
    for length in [64, 65, 1000] {
        refused!(raw(length), Error::NameLength { index: 0, length: found } if *found == length);
    }
}

#[test]
fn unsupported_tensor_types() {
    for id in [4, 9, 15, 24, 31, 40, 1000, u32::MAX] {
        let raw = Raw::new(1, 0).tensor("t", &[32], id, 0).data(256);
        refused!(raw, Error::UnsupportedType { tensor, id: found } if tensor == "t" && *found == id);
    }
}

#[test]
fn offset_zero_is_valid() -> Result<(), Error> {
    let gguf = Raw::new(1, 0).tensor("t", &[16], F32_TENSOR, 0).data(64).read()?;
    assert_eq!(gguf.data(&gguf.tensors()[0]), [0xab; 64]);
    Ok(())
}

#[test]
fn offset_past_the_end() {
    for offset in [32, 64, 1 << 20, 1 << 62] {
        let raw = Raw::new(1, 0).tensor("t", &[16], F32_TENSOR, offset).data(64);
        refused!(raw, Error::PastEnd { tensor, available: 64, .. } if tensor == "t");
    }
}

#[test]
fn data_section_that_is_missing() {
    refused!(Raw::new(1, 0).tensor("t", &[1], F32_TENSOR, 0), Error::PastEnd { available: 0, .. });
}

#[test]
fn offset_that_is_not_aligned() {
    for offset in [1, 16, 33, u64::MAX] {
        let raw = Raw::new(1, 0).tensor("t", &[1], F32_TENSOR, offset).data(64);
        refused!(raw, Error::Unaligned { offset: found, alignment: 32, .. } if *found == offset);
    }
}

#[test]
fn tensors_that_overlap() {
    let raw = Raw::new(2, 0).tensor("b", &[4], F32_TENSOR, 32).tensor("a", &[16], F32_TENSOR, 0).data(64);
    refused!(raw, Error::Overlap { first, second } if first == "a" && second == "b");
    let raw = Raw::new(2, 0).tensor("a", &[4], F32_TENSOR, 0).tensor("b", &[4], F32_TENSOR, 0).data(64);
    refused!(raw, Error::Overlap { .. });
}

#[test]
fn tensors_in_any_order_and_with_gaps_are_valid() -> Result<(), Error> {
    let raw = Raw::new(2, 0).tensor("b", &[4], F32_TENSOR, 96).tensor("a", &[8], F32_TENSOR, 0).data(128);
    let gguf = raw.read()?;
    assert_eq!(gguf.tensors()[0].name, "b");
    let packed = Gguf::from_bytes(rewrite(&gguf))?;
    assert_eq!(packed.tensors()[1].offset, 32);
    Ok(())
}

#[test]
fn text_that_is_not_utf8() {
    let broken = [b'a', 0xff];
    refused!(Raw::new(0, 1).text(broken).u32(U32).u32(0), Error::Utf8 { place, at: 33 } if place == "key");
    refused!(Raw::new(0, 1).key("k", STRING).text(broken), Error::Utf8 { place, .. } if place == "k");
    let strings = Raw::new(0, 1).key("k", ARRAY).u32(STRING).u64(2).text("a").text(broken);
    refused!(strings, Error::Utf8 { place, .. } if place == "k");
    let tensor = Raw::new(1, 0).text(broken).u32(0).u32(F32_TENSOR).u64(0).data(32);
    refused!(tensor, Error::Utf8 { place, .. } if place == "tensor name");
}

#[test]
fn booleans_other_than_0_and_1() {
    for found in [2, 0x7f, 0xff] {
        refused!(Raw::new(0, 1).key("k", BOOL).bytes(&[found]), Error::Bool { found: byte, .. } if *byte == found);
        let raw = Raw::new(0, 1).key("k", ARRAY).u32(BOOL).u64(3).bytes(&[0, 1, found]);
        refused!(raw, Error::Bool { place, .. } if place == "k");
    }
}

#[test]
fn unknown_value_types() {
    for id in [13, 255, u32::MAX] {
        refused!(Raw::new(0, 1).key("k", id).u64(0), Error::UnknownValueType { id: found, .. } if *found == id);
        let raw = Raw::new(0, 1).key("k", ARRAY).u32(id).u64(0);
        refused!(raw, Error::UnknownValueType { place, .. } if place == "k");
    }
}

#[test]
fn truncated_anywhere() {
    let file = sample();
    let gguf = Gguf::from_bytes(file.clone()).expect("the sample is valid");
    let last = gguf.tensors().last().expect("the sample has tensors");
    let padding = (16 - last.bytes % 16) as usize;
    for length in 0..file.len() - padding {
        let error = Raw(file[..length].to_vec()).error();
        let cut = matches!(error, Error::Truncated { .. } | Error::Count { .. } | Error::PastEnd { .. });
        assert!(cut, "{length}: {error:?}");
    }
    for length in file.len() - padding..file.len() {
        assert!(Raw(file[..length].to_vec()).read().is_ok(), "only padding is missing");
    }
}

#[test]
fn errors_say_what_was_given_and_what_was_expected() {
    let errors = [
        (Raw::of_version(1, 0, 0), "GGUF version 1 is not supported, expected 2 or 3"),
        (Raw(b"GG".to_vec()), "`magic`: 4 bytes are needed at byte 0 of the file, 2 are left"),
        (Raw::new(9, 0), "`tensor count`: 9 items of 24 bytes or more are stated, 8 bytes are left"),
        (
            Raw::new(1, 0).tensor("t", &[16], F32_TENSOR, 64).data(64),
            "tensor `t`: 64 bytes at offset 64 of a data section of 64 bytes",
        ),
        (Raw::new(1, 0).tensor("t", &[32], 9, 0).data(64), "tensor `t`: ggml type 9 is not supported"),
    ];
    for (raw, text) in errors {
        assert_eq!(raw.error().to_string(), text);
    }
}

#[test]
fn the_writer_refuses_what_the_reader_refuses() {
    let mut deep = Array::U8(vec![]);
    for _ in 0..MAX_ARRAY_DEPTH {
        deep = Array::Array(vec![deep]);
    }
    let mut writer = GgufWriter::new();
    writer.set("k", 1_u8).and_then(|writer| writer.tensor("t", DType::F32, &[1], vec![0; 4])).expect("both are valid");

    assert!(matches!(writer.version(1), Err(Error::Version { found: 1 })));
    assert!(matches!(writer.alignment(0), Err(Error::Alignment { found: 0 })));
    assert!(matches!(writer.set("general.alignment", 32_u64), Err(Error::WrongType { .. })));
    assert!(matches!(writer.set("", 1_u8), Err(Error::EmptyKey { index: 1 })));
    assert!(matches!(writer.set("k", 2_u8), Err(Error::DuplicateKey { .. })));
    assert!(matches!(writer.set(&"k".repeat(65536), 2_u8), Err(Error::KeyLength { .. })));
    assert!(matches!(writer.set("deep", deep), Err(Error::ArrayDepth { .. })));

    let zero = vec![0; 4];
    let tensor = |name: &str, dims: &[u64]| writer.clone().tensor(name, DType::F32, dims, &zero).map(drop);
    assert!(matches!(tensor("", &[1]), Err(Error::EmptyName { index: 1 })));
    assert!(matches!(tensor("t", &[1]), Err(Error::DuplicateTensor { .. })));
    assert!(matches!(tensor(&"n".repeat(64), &[1]), Err(Error::NameLength { length: 64, .. })));
    assert!(matches!(tensor("u", &[1; 5]), Err(Error::Dimensions { found: 5, .. })));
    assert!(matches!(tensor("u", &[u64::MAX, 2]), Err(Error::Shape { .. })));
    assert!(matches!(tensor("u", &[2]), Err(Error::DataLength { expected: 8, found: 4, .. })));

    let mut file = Vec::new();
    writer.write_to(&mut file).expect("a vector takes any bytes");
    let gguf = Gguf::from_bytes(file).expect("what was refused left nothing behind");
    assert_eq!((gguf.metadata().len(), gguf.tensors().len()), (1, 1));
}

/// Reads a file that may be broken; one that is accepted must stand up to use.
fn survive(file: Vec<u8>) -> Result<(), TestCaseError> {
    let start = Instant::now();
    if let Ok(gguf) = Gguf::from_bytes(file) {
        for tensor in gguf.tensors() {
            prop_assert_eq!(gguf.data(tensor).len() as u64, tensor.bytes);
        }
        let first = rewrite(&gguf);
        let again = Gguf::from_bytes(first.clone()).expect("what was written is valid");
        prop_assert_eq!(rewrite(&again), first);
    }
    prop_assert!(start.elapsed() < Duration::from_secs(1));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn mutated_files_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        length in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut file = sample();
        for (at, byte) in edits {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if cut {
            file.truncate(length.index(file.len()));
        }
        survive(file)?;
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), entries in 0_u64..4) {
        survive(Raw::new(1, entries).bytes(&bytes).0)?;
    }
}
