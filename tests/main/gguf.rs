//! GGUF files: what is written reads back, and what is broken is refused by name.

mod access;
mod hostile;
mod round_trip;

use wgfuse::gguf::{Array, Gguf, GgufWriter};
use wgfuse::graph::DType;

/// A file with every kind of value and tensor, the last tensor not filling its alignment.
fn sample() -> Vec<u8> {
    fn build(writer: &mut GgufWriter<'_>) -> Result<Vec<u8>, wgfuse::gguf::Error> {
        let nested = Array::Array(vec![
            Array::Array(vec![Array::U8(vec![1, 2]), Array::String(vec!["x".into(), String::new()])]),
            Array::Bool(vec![true, false]),
            Array::F64(vec![]),
        ]);
        let mut file = Vec::new();
        writer
            .set("general.architecture", "llama")?
            .alignment(16)?
            .set("u8", u8::MAX)?
            .set("i8", i8::MIN)?
            .set("u16", u16::MAX)?
            .set("i16", i16::MIN)?
            .set("u32", u32::MAX)?
            .set("i32", i32::MIN)?
            .set("f32", -0.0_f32)?
            .set("bool", true)?
            .set("string", "naïve ✓")?
            .set("u64", u64::MAX)?
            .set("i64", i64::MIN)?
            .set("f64", f64::MIN_POSITIVE)?
            .set("array.u8", vec![1_u8, 2])?
            .set("array.i8", vec![-1_i8])?
            .set("array.u16", vec![1_u16])?
            .set("array.i16", vec![-1_i16])?
            .set("array.u32", vec![1_u32])?
            .set("array.i32", vec![-1_i32])?
            .set("array.f32", vec![1.5_f32, f32::INFINITY])?
            .set("array.bool", vec![false, true])?
            .set("array.string", vec!["<s>".to_owned(), String::new(), "▁a".to_owned()])?
            .set("array.u64", vec![1_u64])?
            .set("array.i64", vec![-1_i64])?
            .set("array.f64", vec![0.1_f64])?
            .set("array.empty", Vec::<String>::new())?
            .set("array.nested", nested)?
            .tensor("a.weight", DType::F32, &[3, 2], (0..24).collect::<Vec<u8>>())?
            .tensor("a.bias", DType::F16, &[3], vec![7; 6])?
            .tensor("none", DType::F32, &[4, 0], vec![])?
            .tensor("scalar", DType::I64, &[], vec![1; 8])?
            .tensor("ids", DType::I32, &[1, 1, 1, 2], vec![2; 8])?
            .tensor("b.weight", DType::BF16, &[1, 5], vec![3; 10])?
            .write_to(&mut file)?;
        Ok(file)
    }
    build(&mut GgufWriter::new()).expect("the sample is valid")
}

fn rewrite(gguf: &Gguf) -> Vec<u8> {
    let mut file = Vec::new();
    GgufWriter::from_gguf(gguf).write_to(&mut file).expect("a vector takes any bytes");
    file
}
