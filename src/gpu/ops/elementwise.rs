//! One thread per element: arithmetic, functions, gated units, and the fusions of these.

use super::{ALL, OUTER};
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Encoder, Switch};
use crate::graph::{Glu, OpKind, TensorId, Unary, Xielu};
use crate::plan::Place;

/// `src0 op src1`, source 1 repeated to fill source 0; `op` is an operator, or `silu_back`.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn binary(cx: &Context<'_>, node: TensorId, op: &'static str) -> Result<Vec<Dispatch>, DeviceError> {
    let (a, b) = (cx.source(node, 0)?, cx.source(node, 1)?);
    let dense = cx.tensor(a).layout().is_contiguous();
    let addend = Addend::of(cx, a, b);
    let encoder = cx
        .kernel("binary", node)
        .switch("op", Switch::Str(op))
        .switch("src0_dense", Switch::Bool(dense))
        .input("src0", a)
        .input("src1", b)
        .output("dst", node)
        .threads(cx.tensor(node).layout().elements());
    let encoder = if dense { encoder } else { encoder.strides("src0", a, &ALL) };
    let encoder = if dense && addend == Addend::Dense { encoder } else { encoder.shape("dst", node, &OUTER) };
    Ok(vec![addend.describe(encoder, "src1", b).finish()?])
}

/// How a second operand is read beside a first one that it fills.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addend {
    /// Element by element.
    Dense,
    /// By strides; its one-wide dimensions stand still.
    Strided,
    /// By strides, and starting over where it ends.
    Repeated,
}

impl Addend {
    fn of(cx: &Context<'_>, filled: TensorId, id: TensorId) -> Self {
        let (to, layout) = (cx.tensor(filled).ne(), cx.tensor(id).layout());
        if layout.ne == to && layout.is_contiguous() {
            Self::Dense
        } else if (0..4).all(|dim| layout.ne[dim] == 1 || layout.ne[dim] == to[dim]) {
            Self::Strided
        } else {
            Self::Repeated
        }
    }

    fn describe<'a>(self, encoder: Encoder<'a>, role: &'static str, id: TensorId) -> Encoder<'a> {
        let name = match self {
            Self::Dense => "dense",
            Self::Strided => "strided",
            Self::Repeated => "repeated",
        };
        let encoder = encoder.switch("addend", Switch::Str(name));
        match self {
            Self::Dense => encoder,
            Self::Strided => encoder.broadcast_strides(role, id, &ALL),
            Self::Repeated => encoder.shape(role, id, &ALL).strides(role, id, &ALL),
        }
    }
}

/// A sum of several tensors of one layout, in the order in which they were added one by one.
///
/// Addends that share a buffer share a binding, so that a chain over few large buffers needs few of them.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn add_chain(cx: &Context<'_>, nodes: &[TensorId]) -> Result<Vec<Dispatch>, DeviceError> {
    const ROLES: [&str; 8] = ["adds0", "adds1", "adds2", "adds3", "adds4", "adds5", "adds6", "adds7"];
    let Some((&first, &last)) = nodes.first().zip(nodes.last()) else {
        return Err(cx.unsupported(OpKind::Add, "an empty chain"));
    };
    let start = cx.source(first, 0)?;
    let addends = nodes.iter().map(|&node| cx.source(node, 1)).collect::<Result<Vec<_>, _>>()?;
    let slots = addends
        .iter()
        .map(|&id| {
            let missing = || cx.unsupported(OpKind::Add, "an addend that has no memory");
            cx.placement.slot(cx.graph, id).map(|slot| (slot.place, slot.offset, id)).ok_or_else(missing)
        })
        .collect::<Result<Vec<_>, _>>()?;
    // For each buffer, the addend that lies first in it; the others are so many elements further.
    let mut places: Vec<(Place, usize, TensorId)> = Vec::new();
    for &slot in &slots {
        match places.iter_mut().find(|(place, ..)| *place == slot.0) {
            Some(known) if known.1 > slot.1 => *known = slot,
            Some(_) => {}
            None => places.push(slot),
        }
    }
    if places.len() > ROLES.len() {
        return Err(cx.unsupported(OpKind::Add, format!("a chain over {} buffers", places.len())));
    }

    let dense = cx.tensor(start).layout().is_contiguous();
    let addend = Addend::of(cx, start, addends[0]);
    let encoder = cx
        .kernel("add_chain", last)
        .switch("src0_dense", Switch::Bool(dense))
        .input("src0", start)
        .output("dst", last)
        .threads(cx.tensor(last).layout().elements());
    let encoder = if dense { encoder } else { encoder.strides("src0", start, &ALL) };
    let encoder = if dense && addend == Addend::Dense { encoder } else { encoder.shape("dst", last, &OUTER) };
    let encoder = addend.describe(encoder, "add", addends[0]);
    let encoder = places.iter().zip(ROLES).fold(encoder, |encoder, (&(.., id), role)| encoder.input(role, id));
    let unit = cx.tensor(addends[0]).dtype().block_bytes();
    let mut terms = Vec::new();
    let encoder = slots.iter().enumerate().fold(encoder, |encoder, (index, (place, offset, _))| {
        let at = places.iter().position(|(known, ..)| known == place).unwrap_or(0);
        terms.push(at as u32);
        encoder.size(format!("delta{index}"), (offset - places[at].1) / unit)
    });
    Ok(vec![encoder.switch("terms", Switch::Ints(terms)).finish()?])
}

/// One of the functions in `wgsl/activation.wgsl`, with its parameters.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn unary(
    cx: &Context<'_>,
    node: TensorId,
    function: &'static str,
    params: &[(&str, f32)],
) -> Result<Vec<Dispatch>, DeviceError> {
    let source = cx.source(node, 0)?;
    let layout = cx.tensor(node).layout();
    let dense = layout.is_contiguous() && cx.tensor(source).layout().is_contiguous();
    let encoder = cx
        .kernel("unary", node)
        .switch("op", Switch::Str(function))
        .switch("dense", Switch::Bool(dense))
        .input("src", source)
        .output("dst", node)
        .threads(layout.elements());
    let encoder = params.iter().fold(encoder, |encoder, &(name, value)| encoder.float(name, value));
    let encoder = if dense {
        encoder
    } else {
        encoder.shape("dst", node, &OUTER).strides("src", source, &ALL).strides("dst", node, &ALL)
    };
    Ok(vec![encoder.finish()?])
}

/// The function of an element-wise operation.
pub const fn function(unary: Unary) -> &'static str {
    match unary {
        Unary::Abs => "abs",
        Unary::Sgn => "sgn",
        Unary::Neg => "neg",
        Unary::Step => "step",
        Unary::Tanh => "tanh",
        Unary::Elu => "elu",
        Unary::Relu => "relu",
        Unary::Sigmoid => "sigmoid",
        Unary::Gelu => "gelu",
        Unary::GeluQuick => "gelu_quick",
        Unary::Silu => "silu",
        Unary::HardSwish => "hard_swish",
        Unary::HardSigmoid => "hard_sigmoid",
        Unary::Exp => "exp",
        Unary::Expm1 => "expm1",
        Unary::Softplus => "softplus",
        Unary::GeluErf => "gelu_erf",
        Unary::Floor => "floor",
        Unary::Ceil => "ceil",
        Unary::Round => "round",
        Unary::Trunc => "trunc",
    }
}

/// XIELU.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn xielu(cx: &Context<'_>, node: TensorId, parameters: &Xielu) -> Result<Vec<Dispatch>, DeviceError> {
    let &Xielu { alpha_n, alpha_p, beta, eps } = parameters;
    unary(cx, node, "xielu", &[("alpha_n", alpha_n), ("alpha_p", alpha_p), ("beta", beta), ("eps", eps)])
}

/// A gated unit, of two sources or of the halves of one.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn glu(cx: &Context<'_>, node: TensorId, glu: Glu, swapped: bool) -> Result<Vec<Dispatch>, DeviceError> {
    let tensor = cx.tensor(node);
    let (a, b) = (cx.source(node, 0)?, tensor.src(1));
    let (op, unit, params): (_, _, &[(&str, f32)]) = match glu {
        Glu::Reglu => ("relu", "plain", &[]),
        Glu::Geglu => ("gelu", "plain", &[]),
        Glu::Swiglu => ("silu", "plain", &[]),
        Glu::SwigluOai { alpha, limit } => ("swish", "oai", &[("alpha", alpha), ("limit", limit)]),
        Glu::GegluErf => ("gelu_erf", "plain", &[]),
        Glu::GegluQuick => ("gelu_quick", "plain", &[]),
        Glu::SwigluClamp { limit } => ("silu", "clamp", &[("limit", limit)]),
    };
    let rows = [1, 2, 3];
    let half = tensor.ne()[0];
    let encoder = cx
        .kernel("glu", node)
        .switch("op", Switch::Str(op))
        .switch("unit", Switch::Str(unit))
        .input("a", a)
        .strides("a", a, &rows)
        .output("dst", node)
        .shape("dst", node, &OUTER)
        .threads(tensor.layout().elements());
    let encoder = params.iter().fold(encoder, |encoder, &(name, value)| encoder.float(name, value));
    let encoder = match b {
        Some(b) => encoder.switch("halves", Switch::Bool(false)).input("b", b).strides("b", b, &rows),
        None => encoder
            .switch("halves", Switch::Bool(true))
            .size("act_at", if swapped { half } else { 0 })
            .size("gate_at", if swapped { 0 } else { half }),
    };
    Ok(vec![encoder.finish()?])
}

/// ADD_ID. Where the id is out of range, nothing is added: a kernel has no way to refuse.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn add_id(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let (a, b, ids) = (cx.source(node, 0)?, cx.source(node, 1)?, cx.source(node, 2)?);
    cx.kernel("add_id", node)
        .input("a", a)
        .strides("a", a, &[1, 2, 3])
        .input("b", b)
        .strides("b", b, &[1])
        .shape("b", b, &[1])
        .input("ids", ids)
        .strides("ids", ids, &[0, 1])
        .output("dst", node)
        .shape("dst", node, &OUTER)
        .threads(cx.tensor(node).layout().elements())
        .single()
}

/// `x + sin²(a·x) · inv_b` for MUL, SIN, SQR, MUL, ADD over contiguous `x [t, c]` and factors `[1, c]`.
///
/// # Errors
/// See [`encode`](crate::gpu::encode()).
pub fn snake(cx: &Context<'_>, nodes: &[TensorId]) -> Result<Vec<Dispatch>, DeviceError> {
    let &[turned, _sin, squared, damped, sum] = nodes else {
        return Err(cx.unsupported(OpKind::Mul, format!("a snake of {} nodes", nodes.len())));
    };
    let other = |node, known| -> Result<TensorId, DeviceError> {
        let first = cx.source(node, 0)?;
        if first == known { cx.source(node, 1) } else { Ok(first) }
    };
    let x = other(sum, damped)?;
    let encoder = cx
        .kernel("snake", sum)
        .input("x", x)
        .input("a", other(turned, x)?)
        .input("inv_b", other(damped, squared)?)
        .output("dst", sum)
        .size("row", cx.tensor(x).ne()[0])
        .threads(cx.tensor(sum).layout().elements());
    Ok(vec![encoder.finish()?])
}
