//! Reads bytes as a GGUF file; one that is accepted must be whole, and must read back the same
//! once written.

#![no_main]

use std::hint::black_box;

use libfuzzer_sys::fuzz_target;
use wgfuse::gguf::{Gguf, GgufWriter};

fn rewrite(gguf: &Gguf) -> Vec<u8> {
    let mut file = Vec::new();
    GgufWriter::from_gguf(gguf).write_to(&mut file).expect("a vector takes any bytes");
    file
}

fuzz_target!(|bytes: &[u8]| {
    let gguf = match Gguf::from_bytes(bytes) {
        Ok(gguf) => gguf,
        Err(error) => {
            black_box(error.to_string());
            return;
        }
    };
    for (key, value) in gguf.metadata().iter() {
        assert!(gguf.metadata().value(key).is_some());
        black_box((value.to_string(), value.as_u64(), value.as_f64(), value.as_str()));
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
        assert_eq!(gguf.data(tensor).len() as u64, tensor.bytes);
        black_box(gguf.data(tensor).iter().fold(0_u8, |sum, byte| sum ^ byte));
    }

    // Compared by bytes, because a NaN in the metadata does not equal itself.
    let written = rewrite(&gguf);
    let again = Gguf::from_bytes(written.as_slice()).expect("what was written is valid");
    assert_eq!(rewrite(&again), written);
    assert_eq!(again.metadata().len(), gguf.metadata().len());
    assert_eq!(again.tensors().len(), gguf.tensors().len());
    for (before, after) in gguf.tensors().iter().zip(again.tensors()) {
        assert_eq!((&before.name, before.dtype, before.dims()), (&after.name, after.dtype, after.dims()));
        assert_eq!(gguf.data(before), again.data(after));
    }
});
