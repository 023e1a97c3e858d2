//! What is written reads back, and is written again byte for byte.

use std::collections::HashSet;

use proptest::prelude::*;
use wgfuse::gguf::{Array, Error, Gguf, GgufWriter, MAX_ARRAY_DEPTH, Value};
use wgfuse::graph::DType;

use super::{rewrite, sample};

#[test]
fn the_sample_is_byte_stable() -> Result<(), Error> {
    assert_eq!(rewrite(&Gguf::from_bytes(sample())?), sample());
    Ok(())
}

#[test]
fn both_versions_keep_their_number() -> Result<(), Error> {
    for version in [2, 3] {
        let mut file = Vec::new();
        GgufWriter::new().version(version)?.set("k", 1_u8)?.write_to(&mut file)?;
        let gguf = Gguf::from_bytes(file.clone())?;
        assert_eq!(gguf.version(), version);
        assert_eq!(rewrite(&gguf), file);
    }
    Ok(())
}

#[test]
fn an_empty_file_is_a_padded_header() -> Result<(), Error> {
    let mut file = Vec::new();
    GgufWriter::new().write_to(&mut file)?;
    assert_eq!(file, [b"GGUF\x03\0\0\0".as_slice(), &[0; 24]].concat());
    let gguf = Gguf::from_bytes(file)?;
    assert!(gguf.metadata().is_empty() && gguf.tensors().is_empty());
    assert_eq!(gguf.alignment(), 32);
    Ok(())
}

#[test]
fn a_file_is_laid_out_as_the_format_says() -> Result<(), Error> {
    let mut file = Vec::new();
    GgufWriter::new().set("k", -2_i16)?.tensor("t", DType::F16, &[1, 2], vec![9; 4])?.write_to(&mut file)?;
    let expected: [&[u8]; 13] = [
        b"GGUF\x03\0\0\0",
        b"\x01\0\0\0\0\0\0\0",
        b"\x01\0\0\0\0\0\0\0",
        b"\x01\0\0\0\0\0\0\0k",
        b"\x03\0\0\0\xfe\xff",
        b"\x01\0\0\0\0\0\0\0t",
        b"\x02\0\0\0",
        b"\x01\0\0\0\0\0\0\0",
        b"\x02\0\0\0\0\0\0\0",
        b"\x01\0\0\0",
        b"\0\0\0\0\0\0\0\0",
        &[0; 16],
        &[9; 4],
    ];
    let mut expected = expected.concat();
    expected.resize(expected.len() + 28, 0);
    assert_eq!(file, expected);
    Ok(())
}

#[test]
fn an_explicit_default_alignment_stays_explicit() -> Result<(), Error> {
    let mut file = Vec::new();
    GgufWriter::new().set("k", 1_u8)?.alignment(32)?.write_to(&mut file)?;
    let gguf = Gguf::from_bytes(file.clone())?;
    assert_eq!(gguf.metadata().require::<u32>("general.alignment")?, 32);
    assert_eq!(rewrite(&gguf), file);
    Ok(())
}

#[test]
fn the_number_of_dimensions_is_kept() -> Result<(), Error> {
    let mut file = Vec::new();
    let mut writer = GgufWriter::new();
    for n_dims in 0..=4 {
        writer.tensor(&n_dims.to_string(), DType::F32, &vec![1; n_dims], vec![0; 4])?;
    }
    writer.write_to(&mut file)?;
    let gguf = Gguf::from_bytes(file.clone())?;
    for (n_dims, tensor) in gguf.tensors().iter().enumerate() {
        assert_eq!((tensor.n_dims, tensor.dims().len(), tensor.ne), (n_dims, n_dims, [1; 4]));
    }
    assert_eq!(rewrite(&gguf), file);
    Ok(())
}

#[test]
fn the_payload_of_a_nan_is_kept() -> Result<(), Error> {
    let mut file = Vec::new();
    let (single, double) = (f32::from_bits(0x7fa0_1234), f64::from_bits(0xfff4_0000_0000_0001));
    GgufWriter::new().set("single", vec![single])?.set("double", double)?.write_to(&mut file)?;
    assert_eq!(rewrite(&Gguf::from_bytes(file.clone())?), file);
    Ok(())
}

#[test]
fn a_failing_destination_is_an_error() {
    let mut small = [0; 10];
    assert!(matches!(GgufWriter::new().write_to(&mut small[..]), Err(Error::Write(_))));
}

fn items<T: std::fmt::Debug>(item: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(item, 0..5)
}

fn array() -> impl Strategy<Value = Array> {
    let flat = prop_oneof![
        items(any::<u8>()).prop_map(Array::U8),
        items(any::<i8>()).prop_map(Array::I8),
        items(any::<u16>()).prop_map(Array::U16),
        items(any::<i16>()).prop_map(Array::I16),
        items(any::<u32>()).prop_map(Array::U32),
        items(any::<i32>()).prop_map(Array::I32),
        items(any::<f32>()).prop_map(Array::F32),
        items(any::<bool>()).prop_map(Array::Bool),
        items(".{0,8}").prop_map(Array::String),
        items(any::<u64>()).prop_map(Array::U64),
        items(any::<i64>()).prop_map(Array::I64),
        items(any::<f64>()).prop_map(Array::F64),
    ];
    let levels = MAX_ARRAY_DEPTH as u32 - 1;
    flat.prop_recursive(levels, 20, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Array::Array))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        ".{0,20}".prop_map(Value::String),
        array().prop_map(Value::Array),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
    ]
}

type Tensor = (DType, Vec<u64>, u8);

fn tensor() -> impl Strategy<Value = Tensor> {
    let parts = (prop::sample::select(DType::ALL.to_vec()), prop::collection::vec(0_u64..5, 0..=4), any::<u8>());
    parts.prop_map(|(dtype, mut dims, fill)| {
        // Rows are whole blocks.
        let block = dtype.block_size() as u64;
        match dims.first_mut() {
            Some(row) => *row *= block,
            None if block > 1 => dims.push(block),
            None => {}
        }
        (dtype, dims, fill)
    })
}

proptest! {
    #[test]
    fn random_files_read_back(
        version in 2_u32..=3,
        alignment in prop::option::of(0_u32..10),
        entries in prop::collection::vec((".{1,12}", value()), 0..8),
        tensors in prop::collection::vec((".{1,15}", tensor()), 0..6),
    ) {
        let mut keys = HashSet::new();
        let entries: Vec<_> = entries.into_iter().filter(|(key, _)| keys.insert(key.clone())).collect();
        let mut names = HashSet::new();
        let tensors: Vec<_> = tensors.into_iter().filter(|(name, _)| names.insert(name.clone())).collect();

        let mut writer = GgufWriter::new();
        writer.version(version).expect("both versions are supported");
        if let Some(log2) = alignment {
            writer.alignment(1 << log2).expect("it is a power of two");
        }
        for (key, value) in &entries {
            writer.set(key, value.clone()).expect("the entry is valid");
        }
        let bytes = |(dtype, dims, fill): &Tensor| {
            vec![*fill; dims.iter().product::<u64>() as usize / dtype.block_size() * dtype.block_bytes()]
        };
        for (name, tensor) in &tensors {
            writer.tensor(name, tensor.0, &tensor.1, bytes(tensor)).expect("the tensor is valid");
        }
        let mut file = Vec::new();
        writer.write_to(&mut file).expect("a vector takes any bytes");

        let gguf = Gguf::from_bytes(file.clone()).expect("what was written is valid");
        prop_assert_eq!(gguf.version(), version);
        prop_assert_eq!(gguf.alignment(), alignment.map_or(32, |log2| 1 << log2));
        let read = gguf.metadata().iter().skip(usize::from(alignment.is_some()));
        prop_assert!(read.eq(entries.iter().map(|(key, value)| (key.as_str(), value))));
        prop_assert_eq!(gguf.tensors().len(), tensors.len());
        for (info, (name, tensor)) in gguf.tensors().iter().zip(&tensors) {
            prop_assert_eq!((&info.name, info.dtype, info.dims()), (name, tensor.0, &tensor.1[..]));
            prop_assert_eq!(gguf.data(info), bytes(tensor));
        }
        prop_assert_eq!(rewrite(&gguf), file);
    }
}
