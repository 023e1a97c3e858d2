//! Opening files and asking them for values.

use std::fs;
use std::path::PathBuf;

use wgfuse::gguf::{Error, Gguf, GgufWriter, Value};
use wgfuse::graph::DType;

use super::{rewrite, sample};

/// A path in the temporary directory, removed with what is there.
struct TempPath(PathBuf);

impl TempPath {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("wgfuse-{}-{name}", std::process::id())))
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn opened() -> Gguf {
    Gguf::from_bytes(sample()).expect("the sample is valid")
}

#[test]
fn tensors_are_described_and_found() {
    let gguf = opened();
    assert_eq!((gguf.version(), gguf.alignment()), (3, 16));
    let names: Vec<_> = gguf.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["a.weight", "a.bias", "none", "scalar", "ids", "b.weight"]);

    let weight = gguf.tensor("a.weight").expect("it is there");
    assert_eq!((weight.dtype, weight.ne, weight.n_dims), (DType::F32, [3, 2, 1, 1], 2));
    assert_eq!((weight.offset, weight.bytes), (0, 24));
    assert_eq!(gguf.data(weight), (0..24).collect::<Vec<u8>>());

    let bias = gguf.tensor("a.bias").expect("it is there");
    assert_eq!((bias.offset, gguf.data(bias)), (32, &[7; 6][..]));

    let scalar = gguf.tensor("scalar").expect("it is there");
    assert_eq!((scalar.dims(), scalar.ne, gguf.data(scalar)), (&[][..], [1; 4], &[1; 8][..]));
    assert!(gguf.tensor("a").is_none());
}

#[test]
fn data_of_another_files_tensor_is_empty_or_bytes_of_this_file() {
    let gguf = opened();
    let mut tensor = gguf.tensors()[0].clone();
    for (offset, bytes) in [(0, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX), (1 << 40, 24)] {
        (tensor.offset, tensor.bytes) = (offset, bytes);
        assert!(gguf.data(&tensor).is_empty());
    }
    tensor.n_dims = 9;
    assert_eq!(tensor.dims(), tensor.ne);
}

#[test]
fn metadata_keeps_its_order() {
    let gguf = opened();
    let keys: Vec<_> = gguf.metadata().iter().map(|(key, _)| key).collect();
    assert_eq!(keys[..4], ["general.architecture", "general.alignment", "u8", "i8"]);
    assert_eq!(keys.len(), gguf.metadata().len());
    assert!(!gguf.metadata().is_empty());
}

#[test]
fn typed_values() -> Result<(), Error> {
    let gguf = opened();
    let metadata = gguf.metadata();
    assert_eq!(metadata.require::<&str>("general.architecture")?, "llama");
    assert_eq!(metadata.require::<u32>("u8")?, 255);
    assert_eq!(metadata.require::<i32>("i16")?, i32::from(i16::MIN));
    assert_eq!(metadata.require::<u64>("u64")?, u64::MAX);
    assert_eq!(metadata.require::<i64>("i64")?, i64::MIN);
    assert_eq!(metadata.require::<usize>("u32")?, u32::MAX as usize);
    assert!(metadata.require::<bool>("bool")?);
    assert_eq!(metadata.require::<f32>("f32")?.to_bits(), (-0.0_f32).to_bits());
    assert_eq!(metadata.require::<&[f32]>("array.f32")?, [1.5, f32::INFINITY]);
    assert_eq!(metadata.require::<&[i32]>("array.i32")?, [-1]);
    assert_eq!(metadata.require::<&[u32]>("array.u32")?, [1]);
    assert_eq!(metadata.require::<&[bool]>("array.bool")?, [false, true]);
    assert_eq!(metadata.require::<&[String]>("array.string")?, ["<s>", "", "▁a"]);
    assert_eq!(metadata.require::<Vec<u32>>("array.u8")?, [1, 2]);
    assert_eq!(metadata.require::<Vec<i32>>("array.i64")?, [-1]);
    assert_eq!(metadata.get::<u32>("absent")?, None);
    assert_eq!(metadata.get::<u32>("u16")?, Some(65535));
    assert_eq!(metadata.value("f64").and_then(Value::as_f64), Some(f64::MIN_POSITIVE));
    Ok(())
}

#[test]
fn a_missing_key_is_named() {
    let error = opened().metadata().require::<u32>("llama.block_count").unwrap_err();
    assert!(matches!(&error, Error::MissingKey { key } if key == "llama.block_count"));
    assert_eq!(error.to_string(), "metadata key `llama.block_count` is missing");
}

#[test]
fn a_wrong_type_says_what_was_found() {
    let gguf = opened();
    let metadata = gguf.metadata();
    let errors = [
        (metadata.get::<u32>("string").map(drop), "expected an integer that fits u32, found string \"naïve ✓\""),
        (metadata.get::<u32>("u64").map(drop), "found u64 18446744073709551615"),
        (metadata.get::<u64>("i8").map(drop), "expected an integer that fits u64, found i8 -128"),
        (metadata.get::<f32>("f64").map(drop), "expected f32, found f64"),
        (metadata.get::<f32>("u8").map(drop), "expected f32, found u8 255"),
        (metadata.get::<bool>("u8").map(drop), "expected bool, found u8 255"),
        (metadata.get::<&str>("array.string").map(drop), "expected string, found array of 3 string"),
        (metadata.get::<&[f32]>("array.f64").map(drop), "expected an array of f32, found array of 1 f64"),
        (metadata.get::<&[String]>("string").map(drop), "expected an array of String, found string"),
        (metadata.get::<Vec<u32>>("array.i32").map(drop), "an array of integers that fit u32, found array of 1 i32"),
        (metadata.get::<Vec<u32>>("u32").map(drop), "found u32 4294967295"),
    ];
    for (result, text) in errors {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::WrongType { .. }), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_mapped_file_reads_like_its_bytes() -> Result<(), Error> {
    let path = TempPath::new("mapped.gguf");
    let gguf = opened();
    GgufWriter::from_gguf(&gguf).write_file(&path.0)?;
    let mapped = Gguf::open(&path.0)?;
    assert_eq!(mapped.tensors(), gguf.tensors());
    assert_eq!(rewrite(&mapped), sample());
    Ok(())
}

#[test]
fn a_file_can_be_written_over_the_one_it_is_read_from() -> Result<(), Error> {
    let path = TempPath::new("over.gguf");
    GgufWriter::from_gguf(&opened()).write_file(&path.0)?;
    let mapped = Gguf::open(&path.0)?;
    GgufWriter::from_gguf(&mapped).set("added", 1_u8)?.write_file(&path.0)?;
    assert_eq!(rewrite(&mapped), sample());
    assert_eq!(Gguf::open(&path.0)?.metadata().require::<u32>("added")?, 1);
    Ok(())
}

#[test]
fn a_file_that_cannot_be_opened_or_written_is_named() {
    let path = std::env::temp_dir().join("wgfuse-no-such-directory").join("model.gguf");
    let opening = Gguf::open(&path).unwrap_err();
    let writing = GgufWriter::new().write_file(&path).unwrap_err();
    for error in [opening, writing] {
        assert!(matches!(&error, Error::File { path: named, .. } if *named == path), "{error}");
        assert!(error.to_string().contains("model.gguf"), "{error}");
    }
}

#[test]
fn an_empty_file_is_truncated() -> std::io::Result<()> {
    let path = TempPath::new("empty.gguf");
    fs::write(&path.0, [])?;
    assert!(matches!(Gguf::open(&path.0), Err(Error::Truncated { at: 0, needed: 4, left: 0, .. })));
    Ok(())
}
