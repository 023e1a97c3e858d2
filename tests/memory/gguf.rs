//! How much memory reading a broken file takes.

use crate::{HELD, PEAK};
use wgfuse::gguf::{Error, Gguf};

/// Reads a file and returns how many bytes were held at most beyond those held before.
fn peak(file: Vec<u8>) -> (Result<Gguf, Error>, usize) {
    let bytes: std::sync::Arc<[u8]> = file.into();
    let before = HELD.get();
    PEAK.set(before);
    let result = Gguf::from_bytes(bytes);
    (result, (PEAK.get() - before) as usize)
}

/// A file of one metadata entry `k`, whose type and value are `parts`.
fn entry(parts: &[&[u8]]) -> Vec<u8> {
    [header(0, 1), 1_u64.to_le_bytes().to_vec(), b"k".to_vec(), parts.concat()].concat()
}

fn header(tensors: u64, entries: u64) -> Vec<u8> {
    [b"GGUF\x03\0\0\0".as_slice(), &tensors.to_le_bytes(), &entries.to_le_bytes()].concat()
}

const STRING: [u8; 4] = [8, 0, 0, 0];
const ARRAY: [u8; 4] = [9, 0, 0, 0];

#[test]
fn the_counter_counts() {
    PEAK.set(HELD.get());
    let before = HELD.get();
    drop(std::hint::black_box(vec![0_u8; 1 << 20]));
    assert!(PEAK.get() - before >= 1 << 20);
    assert_eq!(HELD.get(), before);
}

#[test]
fn huge_counts_allocate_nothing_to_speak_of() {
    for count in [500_000_000, u64::MAX / 64, u64::MAX] {
        let huge = count.to_le_bytes();
        let room = vec![0; 1 << 20];
        let mut files = vec![
            [header(count, 0), room.clone()].concat(),
            [header(0, count), room.clone()].concat(),
            [header(0, 1), huge.to_vec(), room.clone()].concat(),
            [header(1, 0), huge.to_vec(), room.clone()].concat(),
            entry(&[&STRING, &huge, &room]),
            entry(&[&ARRAY, &ARRAY, &1_u64.to_le_bytes(), &STRING, &huge, &room]),
        ];
        files.extend((0..13_u32).map(|element| entry(&[&ARRAY, &element.to_le_bytes(), &huge, &room])));
        for file in files {
            let (result, peak) = peak(file);
            assert!(matches!(result, Err(Error::Count { .. })), "{result:?}");
            assert!(peak < 4096, "{peak} bytes for a count of {count}");
        }
    }
}

#[test]
fn counts_that_the_file_could_hold_reserve_nothing() {
    // Each level states as many arrays as would fit in the file; the innermost is broken.
    let mut parts = ARRAY.to_vec();
    for _ in 0..3 {
        parts.extend([&ARRAY[..], &80_000_u64.to_le_bytes()].concat());
    }
    parts.extend([0xff; 4]);
    let (result, peak) = peak(entry(&[&parts, &vec![0; 1 << 20]]));
    assert!(matches!(result, Err(Error::UnknownValueType { .. })), "{result:?}");
    assert!(peak < 4096, "{peak} bytes");
}

#[test]
fn small_items_take_a_small_multiple_of_the_file() {
    let many = |element: &[u8; 4], item: &[u8]| {
        let count = (1 << 20) / item.len();
        entry(&[&ARRAY, element, &(count as u64).to_le_bytes(), &item.repeat(count)])
    };
    let entries = 40_000_u32;
    let mut distinct = header(0, entries.into());
    for index in 0..entries {
        distinct.extend([&4_u64.to_le_bytes()[..], format!("{index:04x}").as_bytes()].concat());
        distinct.extend([0; 5]);
    }
    let files = [
        many(&STRING, &[0; 8]),
        many(&STRING, &[&1_u64.to_le_bytes()[..], b"a"].concat()),
        many(&ARRAY, &[0; 12]),
        many(&ARRAY, &[&[0; 4][..], &1_u64.to_le_bytes(), b"a"].concat()),
        distinct,
    ];
    for file in files {
        let length = file.len();
        let (result, peak) = peak(file);
        assert!(result.is_ok(), "{result:?}");
        assert!(peak < 16 * length, "{peak} bytes for a file of {length}");
    }
}
