//! Moving rows and elements about, and summing rows.

use super::{ALL, OUTER};
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Switch};
use crate::graph::{DType, TensorId};

/// GET_ROWS. A row whose index is out of range comes out as zeros: a kernel has no way to refuse.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn get_rows(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (source, ids) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let encoder = cx
        .kernel("get_rows", node)
        .input("src", source)
        .strides("src", source, &[1, 2, 3])
        .shape("src", source, &[1])
        .input("ids", ids)
        .strides("ids", ids, &[0, 1, 2])
        .output("dst", node)
        .shape("dst", node, &OUTER)
        .threads(cx.tensor(node).layout().elements());
    Ok(vec![encoder.finish()?])
}

/// SET_ROWS. A row whose index is out of range is written nowhere; what two rows with one index leave is not defined.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn set_rows(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (source, ids) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let encoder = cx
        .kernel("set_rows", node)
        .switch("wide", Switch::Bool(cx.tensor(ids).dtype() == DType::I64))
        .input("src", source)
        .strides("src", source, &[1, 2, 3])
        .shape("src", source, &OUTER)
        .input("ids", ids)
        .strides("ids", ids, &[0, 1, 2])
        .shape("ids", ids, &[1, 2])
        .output("dst", node)
        .strides("dst", node, &[1, 2, 3])
        .shape("dst", node, &[1])
        .threads(cx.tensor(source).layout().elements());
    Ok(vec![encoder.finish()?])
}

/// CPY, CONT: element by element in row-major order, whatever both shapes are.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn copy(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    let (from, to) = (cx.tensor(source).layout(), cx.tensor(node).layout());
    let dense = from.is_contiguous() && to.is_contiguous();
    let encoder = cx
        .kernel("copy", node)
        .switch("dense", Switch::Bool(dense))
        .switch("wide", Switch::Bool(from.dtype == DType::I64 && to.dtype == DType::I64))
        .input("src", source)
        .output("dst", node)
        .threads(to.elements());
    let encoder = if dense {
        encoder
    } else {
        encoder
            .shape("src", source, &OUTER)
            .strides("src", source, &ALL)
            .shape("dst", node, &OUTER)
            .strides("dst", node, &ALL)
    };
    Ok(vec![encoder.finish()?])
}

/// REPEAT.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn repeat(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    let encoder = cx
        .kernel("repeat", node)
        .input("src", source)
        .shape("src", source, &ALL)
        .strides("src", source, &ALL)
        .output("dst", node)
        .shape("dst", node, &OUTER)
        .threads(cx.tensor(node).layout().elements());
    Ok(vec![encoder.finish()?])
}

/// CONCAT.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn concat(cx: &Context<'_>, node: TensorId, dim: u8) -> Result<Vec<Dispatch>, DeviceError> {
    let (a, b) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let tensor = cx.tensor(node);
    let dim = usize::from(dim);
    let axis = ["x", "y", "z", "w"].get(dim).ok_or_else(|| cx.unsupported(tensor.kind(), format!("axis {dim}")))?;
    let encoder = cx
        .kernel("concat", node)
        .switch("axis", Switch::Str(axis))
        .switch("wide", Switch::Bool(tensor.dtype() == DType::I64))
        .input("a", a)
        .strides("a", a, &ALL)
        .size("split", cx.tensor(a).ne()[dim])
        .input("b", b)
        .strides("b", b, &ALL)
        .output("dst", node)
        .shape("dst", node, &OUTER)
        .threads(tensor.layout().elements());
    Ok(vec![encoder.finish()?])
}

/// SUM_ROWS: a workgroup per row.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn sum_rows(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    let rows = cx.tensor(source).layout().rows();
    let encoder = cx
        .kernel("sum_rows", node)
        .input("src", source)
        .shape("src", source, &OUTER)
        .strides("src", source, &ALL)
        .output("dst", node)
        .size("rows", rows)
        .groups(rows);
    Ok(vec![encoder.finish()?])
}
