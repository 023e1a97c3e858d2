//! Builds the graph of a case together with the contents of its leaves.

use std::collections::HashMap;
use wgfuse::graph::{BlockFormat, DType, Graph, GraphError, LeafKind, Op, TensorId};
use wgfuse::quant::{can_quantize, dequantize, quantize};

pub type Made = Result<TensorId, GraphError>;

/// What a leaf holds.
#[derive(Clone, Debug)]
pub enum Fill {
    /// Numbers between two bounds.
    Range(f64, f64),
    /// Whole numbers from the first, below the second.
    Whole(i64, i64),
    /// Numbers no two of which are equal, in any order.
    Distinct,
    /// These numbers, again and again.
    Given(Vec<f64>),
}

/// Numbers between -1 and 1.
pub const UNIT: Fill = Fill::Range(-1.0, 1.0);
/// Zero.
pub const ZERO: Fill = Fill::Range(0.0, 0.0);

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Dense,
    /// Gaps after each row, plane and cube, from an odd element on.
    Padded,
    /// Dimensions 1 and 2 exchanged in memory.
    Swapped,
    /// Dimensions 0 and 1 exchanged in memory.
    Transposed,
}

pub const FORMS: [Form; 4] = [Form::Dense, Form::Padded, Form::Swapped, Form::Transposed];
pub const DENSE_ROWS: [Form; 3] = [Form::Dense, Form::Padded, Form::Swapped];

/// Numbers that look random (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// From 0, below 1.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A graph under construction.
pub struct Builder {
    pub graph: Graph,
    pub contents: HashMap<TensorId, Vec<u8>>,
    /// Tensors whose memory is compared after the run.
    pub wanted: Vec<TensorId>,
    random: Random,
    /// Whether leaves get contents; who only asks about the graph has no use for them.
    fills: bool,
}

impl Builder {
    pub fn new(seed: u64) -> Self {
        Self { graph: Graph::new(), contents: HashMap::new(), wanted: Vec::new(), random: Random(seed), fills: true }
    }

    /// A graph without contents.
    pub fn empty() -> Self {
        Self { fills: false, ..Self::new(0) }
    }

    pub fn leaf_of(&mut self, kind: LeafKind, dtype: DType, ne: [usize; 4], fill: &Fill) -> Made {
        let id = self.graph.leaf(format!("leaf {}", self.graph.tensors().len()), kind, dtype, ne)?;
        if !self.fills {
            return Ok(id);
        }
        let elements = self.graph.tensor(id).layout().elements();
        let values = self.values(elements, fill);
        let bytes = match dtype {
            DType::Block(format) => self.blocks(format, &values),
            DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::I64 => encode(dtype, &values),
        };
        self.contents.insert(id, bytes);
        Ok(id)
    }

    /// A leaf of one kind after the other.
    pub fn leaf(&mut self, dtype: DType, ne: [usize; 4], fill: &Fill) -> Made {
        let kinds = [LeafKind::Input, LeafKind::Weight, LeafKind::Cache];
        self.leaf_of(kinds[self.graph.tensors().len() % 3], dtype, ne, fill)
    }

    /// A tensor of shape `ne` that lies in a leaf as `form` says.
    pub fn source(&mut self, form: Form, dtype: DType, ne: [usize; 4], fill: &Fill) -> Made {
        let kinds = [LeafKind::Input, LeafKind::Weight, LeafKind::Cache];
        self.source_of(kinds[self.graph.tensors().len() % 3], form, dtype, ne, fill)
    }

    pub fn source_of(&mut self, kind: LeafKind, form: Form, dtype: DType, ne: [usize; 4], fill: &Fill) -> Made {
        let [a, b, c, d] = ne;
        match if ne.contains(&0) { Form::Dense } else { form } {
            Form::Dense => self.leaf_of(kind, dtype, ne, fill),
            Form::Padded => {
                let gap = if dtype.is_quantized() { dtype.block_size() } else { 3 };
                let leaf = self.leaf_of(kind, dtype, [a + gap, b + 1, c + 1, d + 1], fill)?;
                let nb = self.graph.tensor(leaf).nb();
                self.op(Op::View { ne, nb, offset: nb[0] + nb[1] + nb[2] + nb[3] }, &[leaf])
            }
            Form::Swapped => {
                let leaf = self.leaf_of(kind, dtype, [a, c, b, d], fill)?;
                self.op(Op::Permute { axes: [0, 2, 1, 3] }, &[leaf])
            }
            Form::Transposed => {
                let leaf = self.leaf_of(kind, dtype, [b, a, c, d], fill)?;
                self.op(Op::Transpose, &[leaf])
            }
        }
    }

    pub fn op(&mut self, op: Op, sources: &[TensorId]) -> Made {
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        self.graph.push(op, &sources)
    }

    /// A dense window.
    pub fn view(&mut self, a: TensorId, ne: [usize; 4], offset: usize) -> Made {
        let unit = self.graph.tensor(a).dtype().block_bytes();
        let nb = [unit, unit * ne[0], unit * ne[0] * ne[1], unit * ne[0] * ne[1] * ne[2]];
        self.op(Op::View { ne, nb, offset }, &[a])
    }

    /// The result of a node is compared.
    pub fn output(&mut self, id: TensorId) -> Result<(), GraphError> {
        self.graph.expand(id)?;
        self.graph.set_output(id)?;
        self.wanted.push(id);
        Ok(())
    }

    /// The result of an operation is compared.
    pub fn want(&mut self, op: Op, sources: &[TensorId]) -> Result<(), GraphError> {
        let id = self.op(op, sources)?;
        self.output(id)
    }

    /// What a node leaves in a cache is compared.
    pub fn written(&mut self, node: TensorId, cache: TensorId) -> Result<(), GraphError> {
        self.graph.expand(node)?;
        self.wanted.push(self.graph.root(cache));
        Ok(())
    }

    fn values(&mut self, elements: usize, fill: &Fill) -> Vec<f64> {
        let random = &mut self.random;
        match fill {
            Fill::Range(low, high) => (0..elements).map(|_| low + (high - low) * random.unit()).collect(),
            Fill::Whole(low, high) => {
                let count = (high - low).max(1) as u64;
                (0..elements).map(|_| (low + (random.word() % count) as i64) as f64).collect()
            }
            Fill::Distinct => {
                let mut values: Vec<f64> = (0..elements).map(|i| (i as f64 - elements as f64 / 2.0) / 64.0).collect();
                (1..elements).for_each(|i| values.swap(i, (random.word() % (i as u64 + 1)) as usize));
                values
            }
            Fill::Given(values) => values.iter().copied().cycle().take(elements).collect(),
        }
    }

    /// Quantized numbers, or, in formats that need more than numbers to be made, any blocks with a scale of 1/16.
    fn blocks(&mut self, format: BlockFormat, values: &[f64]) -> Vec<u8> {
        let mut bytes = vec![0; values.len() / format.elements() * format.bytes()];
        if can_quantize(format) {
            let numbers: Vec<f32> = values.iter().map(|&x| x as f32).collect();
            // Whole blocks: the leaf has a layout.
            let _ = quantize(format, &numbers, &mut bytes);
            return bytes;
        }
        bytes.iter_mut().for_each(|byte| *byte = self.random.word() as u8);
        for block in bytes.chunks_exact_mut(format.bytes()) {
            if format == BlockFormat::Iq1M {
                // The scale is spread over the upper four bits of the last four words.
                [0x00, 0x00, 0xc0, 0x20].into_iter().zip([49, 51, 53, 55]).for_each(|(bits, at)| {
                    block[at] = (block[at] & 0x0f) | bits;
                });
            } else {
                block[..2].copy_from_slice(&0x2c00u16.to_le_bytes());
            }
        }
        bytes
    }
}

fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F32 => values.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|&x| half::f16::from_f64(x).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|&x| half::bf16::from_f64(x).to_le_bytes()).collect(),
        DType::I32 => values.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect(),
        DType::I64 => values.iter().flat_map(|&x| (x as i64).to_le_bytes()).collect(),
        DType::Block(_) => Vec::new(),
    }
}

/// The numbers in a tensor's memory, gaps included.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|chunk| number(*chunk)).collect()
    }
    match dtype {
        DType::F32 => each(bytes, |b| f32::from_le_bytes(b).into()),
        DType::F16 => each(bytes, |b| half::f16::from_le_bytes(b).into()),
        DType::BF16 => each(bytes, |b| half::bf16::from_le_bytes(b).into()),
        DType::I32 => each(bytes, |b| i32::from_le_bytes(b).into()),
        DType::I64 => each(bytes, |b| i64::from_le_bytes(b) as f64),
        DType::Block(format) => {
            let mut numbers = vec![0.0; bytes.len() / format.bytes() * format.elements()];
            let _ = dequantize(format, bytes, &mut numbers);
            numbers.into_iter().map(f64::from).collect()
        }
    }
}
