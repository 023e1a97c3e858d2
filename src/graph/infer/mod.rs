//! Shape and type rules: what an operation takes and what it gives, in one place.

mod filling;
mod linear;
mod pointwise;
mod positions;
mod reduce;
mod sources;
mod train;

use super::tensor::{Layout, count};
use super::{DType, GraphError, Op, OpKind, Tensor};
use sources::Sources;

pub use sources::Inferred;

/// Checks an operation's sources and gives the layout of its result.
///
/// # Errors
/// Says which source or parameter does not fit and what would.
pub fn infer(op: &Op, given: &[Option<&Tensor>]) -> Result<Inferred, GraphError> {
    let s = Sources { op: op.kind(), given };
    match *op {
        Op::None => Err(GraphError::Arity { op: OpKind::None, given: given.len(), expected: "a leaf".to_owned() }),
        Op::View { ne, nb, offset } => {
            let [a] = s.required(0)?;
            view(&s, a, ne, nb, offset)
        }
        Op::Reshape { ne } => {
            let [a] = s.required(0)?;
            s.contiguous(0)?;
            s.parameter(count(ne) == Some(a.layout.elements()), "ne", format!("{ne:?}"), "as many elements")?;
            Ok(Inferred::shared(Layout::contiguous(a.dtype(), ne)?, 0, 0))
        }
        Op::Permute { axes } => {
            let [a] = s.required(0)?;
            let mut seen = [false; 4];
            axes.iter().for_each(|&axis| {
                if let Some(slot) = seen.get_mut(usize::from(axis)) {
                    *slot = true;
                }
            });
            s.parameter(seen == [true; 4], "axes", format!("{axes:?}"), "each of 0 to 3 once")?;
            s.check(0, a.dtype().block_size() == 1 || axes[0] == 0, || "an unquantized type".to_owned())?;
            Ok(Inferred::shared(permuted(&a.layout, axes), 0, 0))
        }
        Op::Transpose => {
            let [a] = s.required(0)?;
            s.check(0, a.dtype().block_size() == 1, || "an unquantized type".to_owned())?;
            Ok(Inferred::shared(permuted(&a.layout, [1, 0, 2, 3]), 0, 0))
        }
        Op::GetRows => {
            let [a, ids] = s.required(0)?;
            s.typed(1, DType::I32)?;
            s.dense_rows(0)?;
            let (n, i) = (a.ne(), ids.ne());
            s.check(1, n[2] == i[1] && n[3] == i[2] && i[3] == 1, || format!("ids [n, {}, {}, 1]", n[2], n[3]))?;
            let dtype = if a.dtype() == DType::I32 { DType::I32 } else { DType::F32 };
            s.check(0, a.dtype() != DType::I64, || "a floating-point type, quantized or not, or i32".to_owned())?;
            Inferred::fresh(dtype, [n[0], i[0], i[1], i[2]])
        }
        Op::SetRows => {
            let [values, ids, dst] = s.required(0)?;
            s.typed(0, DType::F32)?;
            s.dense_rows(0)?;
            s.check(1, matches!(ids.dtype(), DType::I32 | DType::I64), || "i32 or i64".to_owned())?;
            let (v, i, d) = (values.ne(), ids.ne(), dst.ne());
            s.check(2, dst.dtype().is_float() || is_writable(dst.dtype()), || WRITABLE.to_owned())?;
            s.dense_rows(2)?;
            s.apart(2)?;
            s.check(2, v[0] == d[0] && v[2] == d[2] && v[3] == d[3], || format!("[{}, n, {}, {}]", v[0], v[2], v[3]))?;
            let fits = v[1] == i[0]
                && i[1] != 0
                && v[2].is_multiple_of(i[1])
                && i[2] != 0
                && v[3].is_multiple_of(i[2])
                && i[3] == 1;
            s.check(1, fits, || format!("[{}, a divisor of {}, a divisor of {}, 1]", v[1], v[2], v[3]))?;
            Ok(Inferred::shared(dst.layout, 2, 0))
        }
        Op::Cpy => {
            let [a, b] = s.required(0)?;
            s.check(1, a.layout.elements() == b.layout.elements(), || format!("{} elements", a.layout.elements()))?;
            let (from, to) = (a.dtype(), b.dtype());
            let converts = match (from.is_quantized(), to.is_quantized()) {
                (false, false) => from.is_float() == to.is_float(),
                (true, false) => to == DType::F32,
                (false, true) => from.is_float() && is_writable(to),
                (true, true) => from == to,
            };
            s.check(1, converts, || match from {
                DType::Block(_) => format!("f32 or {from}"),
                DType::F32 | DType::F16 | DType::BF16 => WRITABLE.to_owned(),
                DType::I32 | DType::I64 => "an integer type".to_owned(),
            })?;
            let narrows = a.dtype() == DType::I64 && b.dtype() != DType::I64;
            s.check(1, !narrows, || "i64, since nothing else holds every i64".to_owned())?;
            s.apart(1)?;
            Ok(Inferred::shared(b.layout, 1, 0))
        }
        Op::Cont { ne } => {
            let [a] = s.required(0)?;
            s.parameter(count(ne) == Some(a.layout.elements()), "ne", format!("{ne:?}"), "as many elements")?;
            Inferred::fresh(a.dtype(), ne)
        }
        Op::MulMat { .. } => {
            let [a, b] = s.required(0)?;
            s.real(0)?;
            s.dense_rows(0)?;
            s.typed(1, DType::F32)?;
            let (m, n) = (a.ne(), b.ne());
            let fits = m[0] == n[0] && m[2] != 0 && m[3] != 0 && n[2].is_multiple_of(m[2]) && n[3].is_multiple_of(m[3]);
            s.check(1, fits, || format!("[{}, n, a multiple of {}, a multiple of {}]", m[0], m[2], m[3]))?;
            Inferred::fresh(DType::F32, [m[1], n[1], n[2], n[3]])
        }
        Op::MulMatId { .. } => {
            let [a, b, ids] = s.required(0)?;
            s.real(0)?;
            s.dense_rows(0)?;
            s.typed(1, DType::F32)?;
            s.typed(2, DType::I32)?;
            let (m, n, i) = (a.ne(), b.ne(), ids.ne());
            s.check(0, m[3] == 1, || "three dimensions".to_owned())?;
            s.check(1, m[0] == n[0] && n[3] == 1, || format!("[{}, columns, tokens, 1]", m[0]))?;
            s.check(2, i[1] == n[2] && i[2] == 1 && i[3] == 1, || format!("[used, {}, 1, 1]", n[2]))?;
            s.check(1, n[1] != 0 && i[0].is_multiple_of(n[1]), || format!("columns that divide {}", i[0]))?;
            Inferred::fresh(DType::F32, [m[1], i[0], n[2], 1])
        }
        Op::OutProd => linear::out_prod(&s),
        Op::SolveTri => linear::solve_tri(&s),
        Op::Add | Op::Sub | Op::Mul | Op::Div => {
            let [a, b] = s.required(0)?;
            s.float(0)?;
            s.float(1)?;
            s.check(1, b.layout.repeats_into(&a.layout), || format!("a shape that divides {:?}", a.ne()))?;
            Inferred::fresh(a.dtype(), a.ne())
        }
        Op::Scale { in_place, .. } => {
            let [a] = s.required(0)?;
            s.typed(0, DType::F32)?;
            if !in_place {
                return Inferred::fresh(DType::F32, a.ne());
            }
            s.apart(0)?;
            Ok(Inferred::shared(a.layout, 0, 0))
        }
        Op::Repeat { ne } => {
            let [a] = s.required(0)?;
            let repeats = a.dtype().is_float() || a.dtype() == DType::I32;
            s.check(0, repeats, || "a floating-point type or i32".to_owned())?;
            let result = Layout::contiguous(a.dtype(), ne)?;
            s.parameter(a.layout.repeats_into(&result), "ne", format!("{ne:?}"), format!("multiples of {:?}", a.ne()))?;
            Ok(Inferred { layout: result, shares: None })
        }
        Op::Concat { dim } => {
            let [a, b] = s.required(0)?;
            s.check(0, !a.dtype().is_quantized(), || "an unquantized type".to_owned())?;
            let axis = usize::from(dim);
            s.parameter(axis < 4, "dim", dim, "0 to 3")?;
            let same = (0..4).all(|other| other == axis || a.ne()[other] == b.ne()[other]);
            s.check(1, same && a.dtype() == b.dtype(), || format!("{} but along dimension {axis}", a.layout))?;
            let mut ne = a.ne();
            ne[axis] = ne[axis].checked_add(b.ne()[axis]).ok_or(GraphError::Size { dtype: a.dtype(), ne })?;
            Inferred::fresh(a.dtype(), ne)
        }
        Op::Norm { eps } | Op::RmsNorm { eps } => {
            let [a] = s.required(0)?;
            s.typed(0, DType::F32)?;
            s.dense_rows(0)?;
            s.parameter(eps >= 0.0, "eps", eps, "a number from 0")?;
            Inferred::fresh(DType::F32, a.ne())
        }
        Op::SoftMax { .. } => {
            let [a] = s.required(2)?;
            s.typed(0, DType::F32)?;
            s.dense_rows(0)?;
            if let Some(mask) = s.optional(1) {
                attention_mask(&s, 1, mask, a.ne()[0], a.ne()[1], a.ne()[2], a.ne()[3])?;
            }
            if let Some(sinks) = s.optional(2) {
                attention_sinks(&s, 2, sinks, a.ne()[2])?;
            }
            Inferred::fresh(DType::F32, a.ne())
        }
        Op::L2Norm { eps } => reduce::l2_norm(&s, eps),
        Op::GroupNorm { groups, eps } => reduce::group_norm(&s, groups, eps),
        Op::Rope(rope) | Op::RopeBack(rope) => positions::rope(&s, &rope),
        Op::FlashAttn(_) => {
            let [q, k, v] = s.required(2)?;
            s.typed(0, DType::F32)?;
            (0..3).try_for_each(|index| s.real(index).and_then(|()| s.dense_rows(index)))?;
            let (nq, nk, nv) = (q.ne(), k.ne(), v.ne());
            let shares_heads =
                |n: [usize; 4]| n[2] != 0 && n[3] != 0 && nq[2].is_multiple_of(n[2]) && nq[3].is_multiple_of(n[3]);
            s.check(1, nk[0] == nq[0] && shares_heads(nk), || {
                format!("[{}, n, a divisor of {}, a divisor of {}]", nq[0], nq[2], nq[3])
            })?;
            s.check(2, nv[1] == nk[1] && nv[2..] == nk[2..], || format!("[n, {}, {}, {}]", nk[1], nk[2], nk[3]))?;
            if let Some(mask) = s.optional(3) {
                s.typed(3, DType::F16)?;
                attention_mask(&s, 3, mask, nk[1], nq[1], nq[2], nq[3])?;
            }
            if let Some(sinks) = s.optional(4) {
                attention_sinks(&s, 4, sinks, nq[2])?;
            }
            Inferred::fresh(DType::F32, [nv[0], nq[2], nq[1], nq[3]])
        }
        Op::SumRows => {
            let [a] = s.required(0)?;
            s.typed(0, DType::F32)?;
            let n = a.ne();
            Inferred::fresh(DType::F32, [1, n[1], n[2], n[3]])
        }
        Op::Argsort { .. } => {
            let [a] = s.required(0)?;
            s.typed(0, DType::F32)?;
            s.dense_rows(0)?;
            s.check(0, a.ne()[0] <= i32::MAX as usize, || "rows that i32 can index".to_owned())?;
            Inferred::fresh(DType::I32, a.ne())
        }
        Op::Sum => reduce::sum(&s),
        Op::Mean => reduce::mean(&s),
        Op::CumSum => reduce::cumsum(&s),
        Op::CountEqual => reduce::count_equal(&s),
        Op::Argmax => reduce::argmax(&s),
        Op::TopK { k } => reduce::top_k(&s, k),
        Op::Clamp { .. } => {
            let [a] = s.required(0)?;
            s.typed(0, DType::F32)?;
            Inferred::fresh(DType::F32, a.ne())
        }
        Op::Sqr | Op::Sqrt | Op::Sin | Op::Cos | Op::Log | Op::LeakyRelu { .. } | Op::Xielu(_) | Op::Unary(_) => {
            pointwise::function(&s)
        }
        Op::Glu { glu, swapped: _ } => pointwise::glu(&s, glu),
        Op::SiluBack => pointwise::silu_back(&s),
        Op::Dup => filling::dup(&s),
        Op::AddId => pointwise::add_id(&s),
        Op::Acc { window, in_place } => filling::acc(&s, window, in_place),
        Op::Set { window, in_place } => filling::set(&s, window, in_place),
        Op::Fill { value: _, in_place } => filling::fill(&s, in_place),
        Op::Arange { start, stop, step } => filling::arange(&s, start, stop, step),
        Op::TimestepEmbedding { dim, max_period } => filling::timestep_embedding(&s, dim, max_period),
        Op::Tri { part: _ } => filling::tri(&s),
        Op::Diag => filling::diag(&s),
        Op::DiagMaskInf { n_past, in_place } | Op::DiagMaskZero { n_past, in_place } => {
            filling::diag_mask(&s, n_past, in_place)
        }
        Op::SsmConv => {
            let [x, c] = s.required(0)?;
            s.typed(0, DType::F32)?;
            s.typed(1, DType::F32)?;
            s.dense_rows(0)?;
            s.contiguous(1)?;
            let (x, c) = (x.ne(), c.ne());
            s.check(1, c[0] > 0 && c[1] == x[1] && c[2..] == [1, 1], || format!("[width, {}, 1, 1]", x[1]))?;
            s.check(0, x[0] + 1 >= c[0] && x[3] == 1, || format!("[at least {}, channels, sequences, 1]", c[0] - 1))?;
            Inferred::fresh(DType::F32, [x[1], x[0] + 1 - c[0], x[2], 1])
        }
        Op::GatedDeltaNet { snapshots } => {
            let sources: [&Tensor; 6] = s.required(0)?;
            (0..6).try_for_each(|index| s.typed(index, DType::F32))?;
            (0..3).try_for_each(|index| s.dense_rows(index))?;
            (3..6).try_for_each(|index| s.contiguous(index))?;
            let [q, k, v, g, beta, state] = sources.map(|t| t.ne());
            let [size, heads, tokens, batch] = v;
            s.check(0, q[0] == size && q[2..] == [tokens, batch] && q[1] != 0 && heads.is_multiple_of(q[1]), || {
                format!("[{size}, a divisor of {heads}, {tokens}, {batch}]")
            })?;
            s.check(1, k == q, || format!("{q:?}"))?;
            s.check(3, (g[0] == 1 || g[0] == size) && g[1..] == [heads, tokens, batch], || {
                format!("[1 or {size}, {heads}, {tokens}, {batch}]")
            })?;
            s.check(4, beta == [1, heads, tokens, batch], || format!("[1, {heads}, {tokens}, {batch}]"))?;
            s.check(5, state == [size, size, heads, batch], || format!("[{size}, {size}, {heads}, {batch}]"))?;
            s.parameter(snapshots > 0, "snapshots", snapshots, "at least 1")?;
            let kept = count([size, snapshots as usize, batch, 1]);
            let rows = kept.and_then(|kept| kept.checked_add(tokens.checked_mul(batch)?));
            s.parameter(rows.is_some(), "snapshots", snapshots, "a result whose size fits")?;
            Inferred::fresh(DType::F32, [size * heads, rows.unwrap_or(0), 1, 1])
        }
        Op::GetRowsBack { rows } => train::get_rows_back(&s, rows),
        Op::RepeatBack { ne } => train::repeat_back(&s, ne),
        Op::RmsNormBack { eps } => train::rms_norm_back(&s, eps),
        Op::SoftMaxBack { .. } => train::soft_max_back(&s),
        Op::CrossEntropyLoss => train::cross_entropy_loss(&s),
        Op::CrossEntropyLossBack => train::cross_entropy_loss_back(&s),
        Op::OptStepAdamW => train::opt_step_adamw(&s),
        Op::OptStepSgd => train::opt_step_sgd(&s),
    }
}

fn permuted(layout: &Layout, axes: [u8; 4]) -> Layout {
    let mut result = *layout;
    for (axis, &to) in axes.iter().enumerate() {
        result.ne[usize::from(to)] = layout.ne[axis];
        result.nb[usize::from(to)] = layout.nb[axis];
    }
    result
}

/// What SET_ROWS and CPY can write.
const WRITABLE: &str = "a floating-point type, or a quantized one that can be written";

fn is_writable(dtype: DType) -> bool {
    match dtype {
        DType::Block(format) => format.is_writable(),
        DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::I64 => false,
    }
}

/// A view's elements must start on a whole element; its end is checked against the root by the graph, which knows it.
fn view(s: &Sources<'_>, a: &Tensor, ne: [usize; 4], nb: [usize; 4], offset: usize) -> Result<Inferred, GraphError> {
    let unit = a.dtype().block_bytes();
    s.parameter(offset.is_multiple_of(unit), "offset", offset, format!("a multiple of {unit} bytes"))?;
    let whole = nb.iter().all(|stride| stride.is_multiple_of(unit));
    s.parameter(whole, "nb", format!("{nb:?}"), format!("multiples of {unit} bytes"))?;
    let blocks = ne[0].is_multiple_of(a.dtype().block_size());
    s.parameter(blocks, "ne", format!("{ne:?}"), format!("rows of whole blocks of {}", a.dtype().block_size()))?;
    // Nothing strides through the blocks of a row, so that rows of quantized tensors are dense everywhere.
    let dense = !a.dtype().is_quantized() || nb[0] == unit;
    s.parameter(dense, "nb", format!("{nb:?}"), format!("blocks {unit} bytes apart"))?;
    s.parameter(count(ne).is_some(), "ne", format!("{ne:?}"), "a product that fits")?;
    let layout = Layout { dtype: a.dtype(), ne, nb };
    s.parameter(layout.checked_extent().is_some(), "nb", format!("{nb:?}"), "an extent that fits")?;
    Ok(Inferred::shared(layout, 0, offset))
}

fn attention_mask(
    s: &Sources<'_>,
    index: usize,
    mask: &Tensor,
    kv: usize,
    rows: usize,
    heads: usize,
    batch: usize,
) -> Result<(), GraphError> {
    s.check(index, matches!(mask.dtype(), DType::F16 | DType::F32), || "f16 or f32".to_owned())?;
    s.dense_rows(index)?;
    let n = mask.ne();
    let fits = n[0] == kv
        && n[1] >= rows
        && n[2] != 0
        && heads.is_multiple_of(n[2])
        && n[3] != 0
        && batch.is_multiple_of(n[3]);
    s.check(index, fits, || format!("[{kv}, at least {rows}, a divisor of {heads}, a divisor of {batch}]"))
}

fn attention_sinks(s: &Sources<'_>, index: usize, sinks: &Tensor, heads: usize) -> Result<(), GraphError> {
    s.typed(index, DType::F32)?;
    s.contiguous(index)?;
    s.check(index, sinks.ne() == [heads, 1, 1, 1], || format!("[{heads}, 1, 1, 1]"))
}
