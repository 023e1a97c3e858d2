//! Writes a few valid files for the fuzzer to start from, into the folder that is named.

use std::path::PathBuf;

use wgfuse::gguf::{Array, Error, GgufWriter};
use wgfuse::graph::DType;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder: PathBuf = std::env::args_os().nth(1).ok_or("expected a folder to write to")?.into();
    std::fs::create_dir_all(&folder)?;
    for (name, writer) in [("empty", empty()?), ("values", values()?), ("arrays", arrays()?), ("tensors", tensors()?)] {
        writer.write_file(folder.join(name))?;
    }
    Ok(())
}

fn empty() -> Result<GgufWriter<'static>, Error> {
    let mut writer = GgufWriter::new();
    writer.version(2)?;
    Ok(writer)
}

fn values() -> Result<GgufWriter<'static>, Error> {
    let mut writer = GgufWriter::new();
    writer
        .set("a", 1_u8)?
        .set("b", -1_i8)?
        .set("c", 1_u16)?
        .set("d", -1_i16)?
        .set("e", 1_u32)?
        .set("f", -1_i32)?
        .set("g", 1.0_f32)?
        .set("h", true)?
        .set("i", "text")?
        .set("j", 1_u64)?
        .set("k", -1_i64)?
        .set("l", 1.0_f64)?;
    Ok(writer)
}

fn arrays() -> Result<GgufWriter<'static>, Error> {
    let mut writer = GgufWriter::new();
    writer
        .set("a", vec![1_u8, 2])?
        .set("b", vec![true, false])?
        .set("c", vec!["x".to_owned(), String::new()])?
        .set("d", vec![1.0_f32])?
        .set("e", vec![Array::from(vec![1_u16]), Array::from(vec![Array::from(vec![1_i64])])])?;
    Ok(writer)
}

fn tensors() -> Result<GgufWriter<'static>, Error> {
    let mut writer = GgufWriter::new();
    writer
        .alignment(8)?
        .tensor("a", DType::F32, &[2, 3], vec![1; 24])?
        .tensor("b", DType::F16, &[1, 1, 1, 3], vec![2; 6])?
        .tensor("c", DType::BF16, &[0], vec![])?
        .tensor("d", DType::I32, &[], vec![3; 4])?
        .tensor("e", DType::I64, &[1], vec![4; 8])?;
    Ok(writer)
}
