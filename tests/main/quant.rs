//! Block formats: conversions bit for bit as ggml's, and the CPU device's operations on quantized tensors.

use crate::devices::{cpu, devices, unfused};
use crate::numbers::{Random, encode, pairs};
use crate::rig::{FLOATS, Rig};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use wgfuse::device::{Device, DeviceError};
use wgfuse::gguf::{Gguf, GgufWriter};
use wgfuse::graph::{BlockFormat, BufferClass, DType, FlashAttn, Graph, GraphError, LeafKind, Op, Precision, TensorId};
use wgfuse::plan::{Leaves, Place, PlanOptions, Slot, plan};
use wgfuse::quant::{QuantError, can_quantize, dequantize, quantize};

const DEQUANTIZED: &str = include_str!("../data/quant/dequantize.txt");
const QUANTIZED: &str = include_str!("../data/quant/quantize.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let (pairs, _) = hex.as_bytes().as_chunks::<2>();
    pairs.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn floats(hex: &str) -> Vec<f32> {
    let bytes = bytes(hex);
    bytes.as_chunks().0.iter().map(|&word| f32::from_be_bytes(word)).collect()
}

fn format(name: &str) -> BlockFormat {
    BlockFormat::ALL.into_iter().find(|format| format.name() == name).unwrap()
}

fn writable() -> impl Iterator<Item = BlockFormat> {
    BlockFormat::ALL.into_iter().filter(|format| format.is_writable())
}

fn decoded(format: BlockFormat, blocks: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; blocks.len() / format.bytes() * format.elements()];
    dequantize(format, blocks, &mut out).unwrap();
    out
}

fn encoded(format: BlockFormat, values: &[f32]) -> Vec<u8> {
    let mut out = vec![0; values.len() / format.elements() * format.bytes()];
    quantize(format, values, &mut out).unwrap();
    out
}

/// Equal bits; a NaN is as good as any other.
#[track_caller]
fn assert_same_bits(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(same, "{what}, element {at}: {found:e} instead of {expected:e}");
    }
}

#[test]
fn every_format_reads_as_in_ggml() {
    let mut seen: HashMap<BlockFormat, usize> = HashMap::new();
    for (number, line) in DEQUANTIZED.lines().enumerate() {
        let [name, block, elements] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let format = format(name);
        assert_same_bits(&format!("line {}: {name}", number + 1), &decoded(format, &bytes(block)), &floats(elements));
        *seen.entry(format).or_default() += 1;
    }
    assert!(BlockFormat::ALL.iter().all(|format| seen[format] >= 7));
}

#[test]
fn quantizers_give_the_blocks_that_ggmls_give() {
    let mut rows = Vec::new();
    let mut seen: HashMap<BlockFormat, usize> = HashMap::new();
    for line in QUANTIZED.lines() {
        match line.split_once(' ').unwrap() {
            ("x", row) => rows.push(floats(row)),
            (name, blocks) => {
                let format = format(name);
                let row = seen.entry(format).or_default();
                assert_eq!(encoded(format, &rows[*row]), bytes(blocks), "{name}, row {row}");
                *row += 1;
            }
        }
    }
    for format in BlockFormat::ALL {
        assert_eq!(seen.get(&format).copied(), can_quantize(format).then_some(rows.len()), "{format}");
    }
}

/// What a format may lose of numbers from -1 to 1: its root mean square error.
fn loss(format: BlockFormat) -> f64 {
    match format {
        BlockFormat::Q8_0 => 0.004,
        BlockFormat::Q6K => 0.015,
        BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q5K => 0.025,
        BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q4K => 0.05,
        BlockFormat::Iq4Nl | BlockFormat::Iq4Xs => 0.06,
        BlockFormat::Q3K => 0.1,
        BlockFormat::Mxfp4 => 0.12,
        BlockFormat::Iq3Xxs | BlockFormat::Iq3S => 0.15,
        BlockFormat::Q2K => 0.2,
        BlockFormat::Iq2S => 0.25,
        BlockFormat::Tq1_0 | BlockFormat::Tq2_0 => 0.3,
        BlockFormat::Iq2Xxs | BlockFormat::Iq2Xs | BlockFormat::Iq1S | BlockFormat::Iq1M => {
            unreachable!("{format} has no quantizer")
        }
    }
}

#[test]
fn what_is_quantized_reads_back_nearly() {
    let mut random = Random(5);
    let row: Vec<f32> = (0..4096).map(|_| random.float() as f32).collect();
    for format in BlockFormat::ALL.into_iter().filter(|&format| can_quantize(format)) {
        for scale in [1e-3f32, 1.0, 300.0] {
            let row: Vec<f32> = row.iter().map(|x| x * scale).collect();
            let back = decoded(format, &encoded(format, &row));
            let squares = row.iter().zip(&back).map(|(a, b)| f64::from((a - b) / scale).powi(2));
            let error = (squares.sum::<f64>() / row.len() as f64).sqrt();
            assert!(error < loss(format), "{format}: {error}");
        }
        let zeros = decoded(format, &encoded(format, &[0.0; 256]));
        assert!(zeros.iter().all(|&x| x == 0.0), "{format}");
    }
}

#[test]
fn zeros_do_not_move_what_follows() {
    let mut random = Random(3);
    let mut row: Vec<f32> = (0..256).map(|_| random.float() as f32).collect();
    row[64..96].fill(0.0);
    for format in BlockFormat::ALL.into_iter().filter(|&format| can_quantize(format)) {
        let back = decoded(format, &encoded(format, &row));
        let squares = row.iter().zip(&back).map(|(a, b)| f64::from(a - b).powi(2));
        assert!((squares.sum::<f64>() / 256.0).sqrt() < 1.1 * loss(format), "{format}");
    }
}

#[test]
fn ternary_numbers_survive() {
    let mut random = Random(9);
    let row: Vec<f32> = (0..512).map(|_| (random.word() % 3) as f32 * 0.75 - 0.75).collect();
    for format in [BlockFormat::Tq1_0, BlockFormat::Tq2_0] {
        assert_eq!(decoded(format, &encoded(format, &row)), row, "{format}");
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    for format in BlockFormat::ALL {
        let (elements, bytes) = (format.elements(), format.bytes());
        let (mut x, mut blocks) = (vec![1.0; 2 * elements], vec![0; 2 * bytes]);
        let wrong = Err(QuantError::Elements { format, elements: elements + 1 });
        assert_eq!(dequantize(format, &blocks, &mut x[..elements + 1]), wrong);
        let short = Err(QuantError::Bytes { format, given: bytes - 1, expected: bytes });
        assert_eq!(dequantize(format, &blocks[..bytes - 1], &mut x[..elements]), short);
        let long = Err(QuantError::Bytes { format, given: 2 * bytes, expected: bytes });
        assert_eq!(dequantize(format, &blocks, &mut x[..elements]), long);
        assert_eq!(dequantize(format, &[], &mut []), Ok(()));
        if can_quantize(format) {
            assert_eq!(quantize(format, &x[..elements + 1], &mut blocks), wrong);
            assert_eq!(quantize(format, &x[..elements], &mut blocks[..bytes - 1]), short);
            assert_eq!(quantize(format, &x[..elements], &mut blocks), long);
            assert_eq!(quantize(format, &[], &mut []), Ok(()));
        } else {
            assert_eq!(quantize(format, &x, &mut blocks), Err(QuantError::NoQuantizer(format)));
        }
    }
}

#[test]
fn what_graphs_write_can_be_quantized() {
    assert!(writable().all(can_quantize));
}

proptest! {
    #[test]
    fn any_bytes_are_numbers(seed in any::<u64>()) {
        let mut random = Random(seed);
        for format in BlockFormat::ALL {
            let blocks: Vec<u8> = (0..2 * format.bytes()).map(|_| random.word() as u8).collect();
            prop_assert_eq!(decoded(format, &blocks).len(), 2 * format.elements());
        }
    }

    /// Infinities, NaNs and the largest and smallest numbers among them.
    #[test]
    fn any_numbers_are_blocks(seed in any::<u64>(), wild in prop::collection::vec(any::<f32>(), 1..40)) {
        let mut random = Random(seed);
        let row: Vec<f32> = (0..512).map(|_| wild[random.word() as usize % wild.len()]).collect();
        for format in BlockFormat::ALL.into_iter().filter(|&format| can_quantize(format)) {
            prop_assert_eq!(decoded(format, &encoded(format, &row)).len(), row.len());
        }
    }
}

#[test]
fn files_hold_every_format() {
    let data = |format: BlockFormat| vec![format.id(); 6 * format.bytes()];
    let mut writer = GgufWriter::new();
    for format in BlockFormat::ALL {
        writer.tensor(format.name(), format.into(), &[2 * format.elements() as u64, 3], data(format)).unwrap();
    }
    let mut file = Vec::new();
    writer.write_to(&mut file).unwrap();
    let gguf = Gguf::from_bytes(file).unwrap();
    for format in BlockFormat::ALL {
        let info = gguf.tensor(format.name()).unwrap();
        assert_eq!((info.dtype, info.bytes), (DType::Block(format), 6 * format.bytes() as u64));
        assert_eq!(gguf.data(info), data(format));
    }
    let part = [BlockFormat::Q4K.elements() as u64 + 32];
    assert!(GgufWriter::new().tensor("part", BlockFormat::Q4K.into(), &part, vec![0; 162]).is_err());
}

/// Blocks with scales as models have them, and their elements.
fn sample(format: BlockFormat, blocks: usize, seed: usize) -> (Vec<u8>, Vec<f32>) {
    let lines = DEQUANTIZED.lines().filter(|line| line.starts_with(&format!("{format} ")));
    // The first two of a format are of that kind.
    let known: Vec<Vec<u8>> = lines.take(2).map(|line| bytes(line.split(' ').nth(1).unwrap())).collect();
    let all: Vec<u8> = (0..blocks).flat_map(|i| known[(i * i + seed) % 2].clone()).collect();
    let elements = decoded(format, &all);
    (all, elements)
}

/// A quantized leaf, and the same numbers as f32.
fn twins(rig: &mut Rig, kind: LeafKind, format: BlockFormat, ne: [usize; 4]) -> [TensorId; 2] {
    let (blocks, elements) = sample(format, ne.iter().product::<usize>() / format.elements(), 1);
    let elements: Vec<f64> = elements.into_iter().map(f64::from).collect();
    [rig.blocks(kind, format, ne, blocks), rig.given(kind, DType::F32, ne, &elements)]
}

/// What the CPU device leaves in memory.
fn ran(rig: &Rig) -> Vec<Vec<u8>> {
    rig.run_bytes(&cpu(), unfused()).unwrap()
}

/// Results come in pairs: a quantized twin's is the plain one's, bit for bit, and both are what they should be.
#[track_caller]
fn assert_twins(rig: &Rig) {
    rig.check_on(&[cpu()]);
    for pair in ran(rig).chunks(2) {
        assert_eq!(pair[0], pair[1]);
        assert!(!pair[0].is_empty());
    }
}

/// What a leaf holds, as f32.
fn elements(rig: &Rig, id: TensorId) -> Vec<f32> {
    rig.contents(id).into_iter().map(|x| x as f32).collect()
}

#[test]
fn products_and_picks_read_every_format() {
    for format in BlockFormat::ALL {
        let width = 2 * format.elements();
        let mut rig = Rig::default();
        let twins = twins(&mut rig, LeafKind::Weight, format, [width, 5, 2, 1]);
        let b = rig.input([width, 3, 4, 1]);
        let columns = rig.input([width, 1, 3, 1]);
        let experts = rig.given(LeafKind::Input, DType::I32, [2, 3, 1, 1], &[0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
        let ids = rig.given(LeafKind::Input, DType::I32, [3, 2, 1, 1], &[4.0, 0.0, 4.0, 1.0, 2.0, 3.0]);
        let one = rig.given(LeafKind::Input, DType::I32, [1; 4], &[2.0]);
        for a in twins {
            rig.want(Op::MUL_MAT, &[a, b]);
        }
        for a in twins {
            rig.want(Op::MUL_MAT_ID, &[a, columns, experts]);
        }
        for a in twins {
            rig.want(Op::GetRows, &[a, ids]);
        }
        for a in twins {
            // Rows 1 to 3 of the second matrix.
            let nb = rig.graph.tensor(a).nb();
            let part = rig.op(Op::View { ne: [width, 3, 1, 1], nb, offset: nb[2] + nb[1] }, &[a]);
            rig.want(Op::GetRows, &[part, one]);
        }
        assert_twins(&rig);
    }
}

#[test]
fn attention_reads_quantized_keys_and_values() {
    for format in BlockFormat::ALL {
        let width = format.elements();
        let mut rig = Rig::default();
        let q = rig.input([width, 3, 4, 1]);
        // As caches lie: heads beside each other in a row of the cache.
        let keys = twins(&mut rig, LeafKind::Cache, format, [width, 2, 7, 1]);
        let values = twins(&mut rig, LeafKind::Cache, format, [width, 2, 7, 1]);
        let attn = FlashAttn { scale: 0.1, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::F32 };
        for kv in keys.into_iter().zip(values) {
            let [k, v] = [kv.0, kv.1].map(|t| rig.op(Op::Permute { axes: [0, 2, 1, 3] }, &[t]));
            rig.want(Op::FlashAttn(attn), &[q, k, v]);
        }
        assert_twins(&rig);
    }
}

#[test]
fn rows_are_quantized_into_caches() {
    for format in writable() {
        let mut rig = Rig::default();
        let cache = rig.blocks(LeafKind::Cache, format, [64, 5, 2, 1], sample(format, 20, 0).0);
        let values = rig.input([64, 2, 2, 1]);
        let ids = rig.given(LeafKind::Input, DType::I64, [2, 1, 1, 1], &[3.0, 0.0]);
        let node = rig.op(Op::SetRows, &[values, ids, cache]);
        rig.written(node, cache);
        let row_bytes = 2 * format.bytes();
        let mut expected = sample(format, 20, 0).0;
        for (row, values) in elements(&rig, values).chunks(64).enumerate() {
            let at = row / 2 * 5 + [3, 0][row % 2];
            expected[at * row_bytes..][..row_bytes].copy_from_slice(&encoded(format, values));
        }
        assert_eq!(ran(&rig), [expected], "{format}");
    }
}

#[test]
fn copies_quantize() {
    for (format, from) in pairs(writable(), FLOATS) {
        let mut rig = Rig::default();
        let a = rig.leaf(LeafKind::Input, from, [64, 3, 1, 1]);
        let cache = rig.blocks(LeafKind::Cache, format, [96, 4, 1, 1], vec![0; 12 * format.bytes()]);
        let nb = rig.graph.tensor(cache).nb();
        // Other rows than the source's, and gaps between them.
        let (ne, offset) = ([32, 3, 2, 1], nb[1] + nb[0]);
        let part = rig.op(Op::View { ne, nb: [nb[0], nb[1], nb[0], nb[3]], offset }, &[cache]);
        let node = rig.op(Op::Cpy, &[a, part]);
        rig.written(node, cache);
        let mut expected = vec![0; 12 * format.bytes()];
        for (block, values) in elements(&rig, a).chunks(32).enumerate() {
            let at = (1 + block % 3) * 3 + 1 + block / 3;
            expected[at * format.bytes()..][..format.bytes()].copy_from_slice(&encoded(format, values));
        }
        assert_eq!(ran(&rig), [expected], "{format} from {from}");
    }
}

#[test]
fn copies_dequantize_and_keep_blocks() {
    for format in BlockFormat::ALL {
        let (n, bytes) = (format.elements(), format.bytes());
        let mut rig = Rig::default();
        let a = rig.blocks(LeafKind::Weight, format, [n, 3, 2, 1], sample(format, 6, 1).0);
        let swapped = rig.op(Op::Permute { axes: [0, 2, 1, 3] }, &[a]);
        let plain = rig.cache([n, 6, 1, 1]);
        let twin = rig.blocks(LeafKind::Cache, format, [2 * n, 3, 1, 1], vec![0; 6 * bytes]);
        for cache in [plain, twin] {
            let node = rig.op(Op::Cpy, &[swapped, cache]);
            rig.written(node, cache);
        }
        rig.want(Op::Cont { ne: [n, 2, 3, 1] }, &[swapped]);
        let blocks = sample(format, 6, 1).0;
        let blocks: Vec<u8> = [0, 3, 1, 4, 2, 5].iter().flat_map(|&i| &blocks[i * bytes..][..bytes]).copied().collect();
        let numbers: Vec<f64> = decoded(format, &blocks).into_iter().map(f64::from).collect();
        assert_eq!(ran(&rig), [encode(DType::F32, &numbers), blocks.clone(), blocks], "{format}");
    }
}

#[test]
fn graphs_refuse_what_blocks_cannot_do() {
    let mut g = Graph::new();
    let mut leaf = |dtype: DType, ne| g.leaf("", LeafKind::Cache, dtype, ne).unwrap();
    let q4 = leaf(BlockFormat::Q4_0.into(), [64, 4, 2, 1]);
    let q8 = leaf(BlockFormat::Q8_0.into(), [64, 4, 2, 1]);
    let q6 = leaf(BlockFormat::Q6K.into(), [256, 2, 1, 1]);
    let x = leaf(DType::F32, [64, 4, 2, 1]);
    let half = leaf(DType::F16, [64, 4, 2, 1]);
    let rows = leaf(DType::F32, [256, 1, 1, 1]);
    let ids = leaf(DType::I32, [1, 1, 1, 1]);
    let numbers = leaf(DType::I32, [64, 4, 2, 1]);
    let refused = |op: Op, sources: &[TensorId]| {
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        let error = g.clone().push(op, &sources).unwrap_err();
        assert!(matches!(error, GraphError::Source { .. } | GraphError::Parameter { .. }), "{error}");
        error.to_string()
    };
    for op in [Op::Add, Op::Mul, Op::MUL_MAT, Op::Concat { dim: 1 }] {
        refused(op, &[x, q4]);
    }
    for op in [Op::Add, Op::Concat { dim: 1 }] {
        refused(op, &[q4, q4]);
    }
    for op in [Op::Sqr, Op::SumRows, Op::Repeat { ne: [64, 8, 2, 1] }, Op::Transpose] {
        refused(op, &[q4]);
    }
    refused(Op::Permute { axes: [1, 0, 2, 3] }, &[q4]);
    assert!(g.clone().permute(q4, [0, 2, 1, 3]).is_ok());

    let message = refused(Op::Cpy, &[q4, q8]);
    assert_eq!(message, "CPY: source 1 is q8_0 [64, 4, 2, 1], expected f32 or q4_0");
    refused(Op::Cpy, &[q4, half]);
    refused(Op::Cpy, &[numbers, q4]);
    refused(Op::Cpy, &[q4, numbers]);
    refused(Op::SetRows, &[rows, ids, q6]);

    let view = |ne, nb, offset| refused(Op::View { ne, nb, offset }, &[q4]);
    view([64, 2, 1, 1], [18, 36, 144, 288], 1);
    view([64, 2, 1, 1], [18, 37, 144, 288], 0);
    view([64, 2, 1, 1], [36, 36, 144, 288], 0);
    view([48, 2, 1, 1], [18, 36, 144, 288], 0);
    assert!(matches!(
        g.leaf("", LeafKind::Weight, BlockFormat::Q4K.into(), [64, 4, 1, 1]),
        Err(GraphError::Size { .. })
    ));
}

#[test]
fn gpus_say_that_they_have_no_kernel() {
    for device in devices() {
        let mut graph = Graph::new();
        let weight = graph.leaf("w", LeafKind::Weight, BlockFormat::Q4_0.into(), [32, 2, 1, 1]).unwrap();
        let x = graph.leaf("x", LeafKind::Input, DType::F32, [32, 1, 1, 1]).unwrap();
        let y = graph.mul_mat(weight, x).unwrap();
        graph.expand(y).unwrap();
        let buffer = device.create_buffer(BufferClass::Weight, 36).unwrap();
        let leaves = Leaves::from([(weight, Slot { place: Place::Buffer(buffer), offset: 0, bytes: 36 })]);
        let plan = Arc::new(plan(&graph, &leaves, &device.limits(), &PlanOptions::default()).unwrap());
        let arenas: Vec<_> =
            plan.placement.arenas().iter().map(|&n| device.create_buffer(BufferClass::Computed, n).unwrap()).collect();
        let error = device.load(&Arc::new(graph), &plan, &arenas).map(|_| ()).unwrap_err();
        assert!(matches!(&error, DeviceError::Unsupported { detail, .. } if detail.contains("q4_0")), "{error}");
    }
}
