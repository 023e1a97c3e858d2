//! Typed windows on raw memory: reading any layout as numbers, and storing numbers in any layout.
//!
//! A window's bytes are as long as its layout's extent, which the loader has checked, so no index inside the shape can
//! leave them.

use super::parallel;
use crate::graph::{DType, Layout};
use crate::quant;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::borrow::Cow;

/// Elements of the largest blocks.
const LARGEST_BLOCK: usize = 256;

/// A tensor's memory, read-only.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

/// A computed result, dense in row-major order, before it is converted to the destination's type.
pub(super) enum Values {
    /// Floating-point numbers.
    Float(Vec<f32>),
    /// Integers.
    Int(Vec<i64>),
    /// Blocks of the destination's own format, row by row.
    Blocks(Vec<u8>),
    /// Rows of floating-point numbers that go to chosen rows of the destination.
    Scattered {
        /// The rows, one after another.
        values: Vec<f32>,
        /// Where each row starts, in bytes from the destination's start; later rows overwrite earlier ones.
        at: Vec<usize>,
    },
}

/// A number type in which kernels compute.
pub(super) trait Element: Copy + Default + Send + Sync + 'static {
    /// One row of a view.
    fn row<'a>(view: &View<'a>, at: [usize; 3]) -> Cow<'a, [Self]>;

    /// A finished result.
    fn values(all: Vec<Self>) -> Values;
}

impl Element for f32 {
    fn row<'a>(view: &View<'a>, at: [usize; 3]) -> Cow<'a, [Self]> {
        view.row(at)
    }

    fn values(all: Vec<Self>) -> Values {
        Values::Float(all)
    }
}

impl Element for i64 {
    fn row<'a>(view: &View<'a>, [i1, i2, i3]: [usize; 3]) -> Cow<'a, [Self]> {
        (0..view.ne()[0]).map(|i0| view.int([i0, i1, i2, i3])).collect()
    }

    fn values(all: Vec<Self>) -> Values {
        Values::Int(all)
    }
}

impl<'a> View<'a> {
    /// The window of `layout` that starts where `bytes` does and ends with its last element.
    pub(super) fn new(bytes: &'a [u8], layout: Layout) -> Self {
        Self { bytes, layout }
    }

    /// Shape.
    pub(super) const fn ne(&self) -> [usize; 4] {
        self.layout.ne
    }

    /// Element type.
    pub(super) const fn dtype(&self) -> DType {
        self.layout.dtype
    }

    /// Type, shape and strides.
    pub(super) const fn layout(&self) -> &Layout {
        &self.layout
    }

    fn read<T: bytemuck::AnyBitPattern>(&self, byte: usize) -> T {
        bytemuck::pod_read_unaligned(&self.bytes[byte..byte + size_of::<T>()])
    }

    fn offset(&self, [i0, i1, i2, i3]: [usize; 4]) -> usize {
        let nb = self.layout.nb;
        i0 / self.layout.dtype.block_size() * nb[0] + i1 * nb[1] + i2 * nb[2] + i3 * nb[3]
    }

    /// One element as f32.
    pub(super) fn float(&self, at: [usize; 4]) -> f32 {
        let byte = self.offset(at);
        match self.layout.dtype {
            DType::F32 => self.read(byte),
            DType::F16 => self.read::<f16>(byte).to_f32(),
            DType::BF16 => self.read::<bf16>(byte).to_f32(),
            DType::I32 => self.read::<i32>(byte) as f32,
            DType::I64 => self.read::<i64>(byte) as f32,
            DType::Block(format) => {
                let mut block = [0.0; LARGEST_BLOCK];
                quant::decode(format, &self.bytes[byte..byte + format.bytes()], &mut block);
                block[at[0] % format.elements()]
            }
        }
    }

    /// One element as an integer.
    pub(super) fn int(&self, at: [usize; 4]) -> i64 {
        let byte = self.offset(at);
        match self.layout.dtype {
            DType::I32 => self.read::<i32>(byte).into(),
            DType::I64 => self.read(byte),
            DType::F32 | DType::F16 | DType::BF16 | DType::Block(_) => self.float(at) as i64,
        }
    }

    /// One row as f32: borrowed when it lies in memory as such, else converted.
    pub(super) fn row(&self, [i1, i2, i3]: [usize; 3]) -> Cow<'a, [f32]> {
        let width = self.layout.ne[0];
        // Rows without elements have strides, but no memory to stride through.
        if width == 0 {
            return Cow::Borrowed(&[]);
        }
        if self.layout.has_contiguous_rows() {
            let start = self.offset([0, i1, i2, i3]);
            let blocks = width / self.layout.dtype.block_size();
            let bytes = &self.bytes[start..start + blocks * self.layout.dtype.block_bytes()];
            let dense = match self.layout.dtype {
                DType::F32 => bytemuck::try_cast_slice(bytes).ok().map(Cow::Borrowed),
                DType::F16 => bytemuck::try_cast_slice::<_, f16>(bytes).ok().map(|row| row.to_f32_vec().into()),
                DType::BF16 => bytemuck::try_cast_slice::<_, bf16>(bytes).ok().map(|row| row.to_f32_vec().into()),
                DType::I32 | DType::I64 => None,
                DType::Block(format) => {
                    let mut row = vec![0.0; width];
                    quant::decode(format, bytes, &mut row);
                    Some(row.into())
                }
            };
            if let Some(row) = dense {
                return row;
            }
        }
        (0..width).map(|i0| self.float([i0, i1, i2, i3])).collect()
    }

    /// All rows as f32, for kernels that read rows more than once.
    pub(super) fn rows(&self) -> Rows<'a> {
        let Layout { dtype, ne, nb } = self.layout;
        let unit = size_of::<f32>();
        if dtype == DType::F32
            && self.layout.has_contiguous_rows()
            && let Ok(data) = bytemuck::try_cast_slice(self.bytes)
        {
            return Rows { data: Cow::Borrowed(data), len: ne[0], strides: [nb[1] / unit, nb[2] / unit, nb[3] / unit] };
        }
        Rows { data: self.dense::<f32>().into(), len: ne[0], strides: [ne[0], ne[0] * ne[1], ne[0] * ne[1] * ne[2]] }
    }

    /// All blocks of a quantized tensor, whose rows are dense, in row-major order.
    pub(super) fn blocks(&self) -> Vec<u8> {
        let Layout { dtype, ne, nb: _ } = self.layout;
        let row_bytes = ne[0] / dtype.block_size() * dtype.block_bytes();
        let rows = if row_bytes == 0 { 0 } else { self.layout.rows() };
        let starts = (0..rows).map(|row| {
            let [i1, i2, i3] = unravel(row, ne);
            self.offset([0, i1, i2, i3])
        });
        starts.flat_map(|start| &self.bytes[start..start + row_bytes]).copied().collect()
    }

    /// All elements in row-major order.
    pub(super) fn dense<T: Element>(&self) -> Vec<T> {
        let ne = self.layout.ne;
        let mut all = vec![T::default(); self.layout.elements()];
        parallel::rows(&mut all, ne[0], ne[0], |row, out| out.copy_from_slice(&T::row(self, unravel(row, ne))));
        all
    }
}

/// All rows of a view as f32.
pub(super) struct Rows<'a> {
    data: Cow<'a, [f32]>,
    len: usize,
    /// In elements.
    strides: [usize; 3],
}

impl Rows<'_> {
    /// One row.
    pub(super) fn get(&self, [i1, i2, i3]: [usize; 3]) -> &[f32] {
        if self.len == 0 {
            return &[];
        }
        let start = i1 * self.strides[0] + i2 * self.strides[1] + i3 * self.strides[2];
        &self.data[start..start + self.len]
    }
}

/// The outer indices of row `row` of a shape.
pub(super) const fn unravel(row: usize, ne: [usize; 4]) -> [usize; 3] {
    [row % ne[1], row / ne[1] % ne[2], row / ne[1] / ne[2]]
}

/// The row of a smaller shape that, repeated, covers the row `at`.
pub(super) const fn wrap([i1, i2, i3]: [usize; 3], ne: [usize; 4]) -> [usize; 3] {
    [i1 % ne[1], i2 % ne[2], i3 % ne[3]]
}

/// Writes a result into memory, converted to the type of `layout`.
pub(super) fn store(bytes: &mut [u8], layout: &Layout, values: &Values) {
    let Layout { dtype, ne, nb } = *layout;
    let width = ne[0].max(1);
    let strided = |row: usize| {
        let [i1, i2, i3] = unravel(row, ne);
        i1 * nb[1] + i2 * nb[2] + i3 * nb[3]
    };
    match values {
        Values::Float(all) => {
            for (row, values) in all.chunks_exact(width).enumerate() {
                store_floats(&mut bytes[strided(row)..], dtype, nb[0], values);
            }
        }
        Values::Int(all) => {
            for (row, values) in all.chunks_exact(width).enumerate() {
                store_ints(&mut bytes[strided(row)..], dtype, nb[0], values);
            }
        }
        Values::Blocks(all) => {
            let row_bytes = width.div_ceil(dtype.block_size()) * dtype.block_bytes();
            for (row, blocks) in all.chunks_exact(row_bytes).enumerate() {
                bytes[strided(row)..][..row_bytes].copy_from_slice(blocks);
            }
        }
        Values::Scattered { values, at } => {
            for (values, &start) in values.chunks_exact(width).zip(at) {
                store_floats(&mut bytes[start..], dtype, nb[0], values);
            }
        }
    }
}

fn store_floats(bytes: &mut [u8], dtype: DType, stride: usize, values: &[f32]) {
    match dtype {
        DType::F32 if stride == size_of::<f32>() => {
            bytes[..size_of_val(values)].copy_from_slice(bytemuck::cast_slice(values));
        }
        DType::F32 => put(bytes, stride, values.iter().map(|v| v.to_ne_bytes())),
        DType::F16 => put(bytes, stride, values.iter().map(|&v| f16::from_f32(v).to_ne_bytes())),
        DType::BF16 => put(bytes, stride, values.iter().map(|&v| bf16::from_f32(v).to_ne_bytes())),
        DType::I32 => put(bytes, stride, values.iter().map(|&v| (v as i32).to_ne_bytes())),
        DType::I64 => put(bytes, stride, values.iter().map(|&v| (v as i64).to_ne_bytes())),
        DType::Block(format) => {
            let len = values.len() / format.elements() * format.bytes();
            let written = quant::quantize(format, values, &mut bytes[..len]);
            // A graph has only operations that write whole blocks of formats with a quantizer.
            debug_assert_eq!(written, Ok(()));
        }
    }
}

fn store_ints(bytes: &mut [u8], dtype: DType, stride: usize, values: &[i64]) {
    match dtype {
        DType::I32 => put(bytes, stride, values.iter().map(|&v| (v as i32).to_ne_bytes())),
        DType::I64 => put(bytes, stride, values.iter().map(|v| v.to_ne_bytes())),
        DType::F32 => put(bytes, stride, values.iter().map(|&v| (v as f32).to_ne_bytes())),
        DType::F16 => put(bytes, stride, values.iter().map(|&v| f16::from_f32(v as f32).to_ne_bytes())),
        DType::BF16 => put(bytes, stride, values.iter().map(|&v| bf16::from_f32(v as f32).to_ne_bytes())),
        DType::Block(_) => store_floats(bytes, dtype, stride, &values.iter().map(|&v| v as f32).collect::<Vec<_>>()),
    }
}

fn put<const N: usize>(bytes: &mut [u8], stride: usize, elements: impl Iterator<Item = [u8; N]>) {
    for (index, element) in elements.enumerate() {
        bytes[index * stride..][..N].copy_from_slice(&element);
    }
}
