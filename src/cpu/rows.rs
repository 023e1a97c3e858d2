//! Operations that move rows without computing: picks, writes, copies, concatenation, repetition.

use super::memory::{Element, Values, View, unravel, wrap};
use super::{index_error, parallel};
use crate::device::DeviceError;
use crate::graph::{DType, Layout, OpKind};

/// An index into `rows` rows.
fn checked(op: OpKind, index: i64, rows: usize) -> Result<usize, DeviceError> {
    usize::try_from(index).ok().filter(|&row| row < rows).ok_or_else(|| index_error(op, index, rows))
}

/// `[n, k, b, c]`: the rows of `a [n, r, b, c]` that `ids [k, b, c]` name.
pub(super) fn get_rows(a: &View, ids: &View) -> Result<Values, DeviceError> {
    if a.dtype().is_real() { pick::<f32>(a, ids) } else { pick::<i64>(a, ids) }
}

fn pick<T: Element>(a: &View, ids: &View) -> Result<Values, DeviceError> {
    let ne = a.ne();
    let sources = (0..ids.layout().elements())
        .map(|index| {
            let [k, b, c, _] = ids.ne();
            let (i0, i1, i2) = (index % k, index / k % b, index / k / b % c);
            Ok([checked(OpKind::GetRows, ids.int([i0, i1, i2, 0]), ne[1])?, i1, i2])
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut out = vec![T::default(); ne[0] * sources.len()];
    parallel::rows(&mut out, ne[0], ne[0], |row, out| out.copy_from_slice(&T::row(a, sources[row])));
    Ok(T::values(out))
}

/// The rows of `values [n, r, b, c]`, and the rows of the destination that `ids` name for them.
pub(super) fn set_rows(values: &View, ids: &View, destination: &Layout) -> Result<Values, DeviceError> {
    let (ne, nb) = (values.ne(), destination.nb);
    let at = (0..values.layout().rows())
        .map(|row| {
            let [i1, i2, i3] = unravel(row, ne);
            let id = ids.int([i1, i2 % ids.ne()[1], i3 % ids.ne()[2], 0]);
            Ok(checked(OpKind::SetRows, id, destination.ne[1])? * nb[1] + i2 * nb[2] + i3 * nb[3])
        })
        .collect::<Result<_, _>>()?;
    Ok(Values::Scattered { values: values.dense(), at })
}

/// All elements in row-major order, for a destination of type `to`.
pub(super) fn copy(a: &View, to: DType) -> Values {
    match a.dtype() {
        DType::Block(_) if a.dtype() == to => Values::Blocks(a.blocks()),
        DType::F32 | DType::F16 | DType::BF16 | DType::Block(_) => Values::Float(a.dense()),
        DType::I32 | DType::I64 => Values::Int(a.dense()),
    }
}

/// `a` followed by `b` along dimension `dim`.
pub(super) fn concat(a: &View, b: &View, dim: usize) -> Values {
    if a.dtype().is_float() { join::<f32>(a, b, dim) } else { join::<i64>(a, b, dim) }
}

fn join<T: Element>(a: &View, b: &View, dim: usize) -> Values {
    let mut ne = a.ne();
    ne[dim] += b.ne()[dim];
    let mut out = vec![T::default(); ne.iter().product()];
    parallel::rows(&mut out, ne[0], ne[0], |row, out| {
        let mut at = unravel(row, ne);
        if dim == 0 {
            let (first, second) = out.split_at_mut(a.ne()[0]);
            first.copy_from_slice(&T::row(a, at));
            second.copy_from_slice(&T::row(b, at));
        } else if at[dim - 1] < a.ne()[dim] {
            out.copy_from_slice(&T::row(a, at));
        } else {
            at[dim - 1] -= a.ne()[dim];
            out.copy_from_slice(&T::row(b, at));
        }
    });
    T::values(out)
}

/// `a` repeated to fill the shape `ne`.
pub(super) fn repeat(a: &View, ne: [usize; 4]) -> Values {
    if a.dtype().is_float() { repeated::<f32>(a, ne) } else { repeated::<i64>(a, ne) }
}

fn repeated<T: Element>(a: &View, ne: [usize; 4]) -> Values {
    let mut out = vec![T::default(); ne.iter().product()];
    parallel::rows(&mut out, ne[0], ne[0], |row, out| {
        let source = T::row(a, wrap(unravel(row, ne), a.ne()));
        out.chunks_mut(source.len()).for_each(|part| part.copy_from_slice(&source));
    });
    T::values(out)
}
