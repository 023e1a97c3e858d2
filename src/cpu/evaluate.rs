//! From an operation and its sources' memory to its result.

use super::memory::{Values, View};
use super::norm::{Norm, norm};
use super::{
    attention, elementwise, filling, functions, linear, matmul, norm as norms, recurrent, reduce, rope, rows, sums,
    train,
};
use crate::device::DeviceError;
use crate::graph::Op;

/// The memory that one step reads, by position.
pub(super) struct Sources<'a>(pub(super) Vec<Option<View<'a>>>);

impl<'a> Sources<'a> {
    /// The first `N` sources, all of which must be there.
    fn take<const N: usize>(&self) -> Result<[&View<'a>; N], DeviceError> {
        let present: Vec<_> = self.0.iter().take(N).flatten().collect();
        present.try_into().map_err(|_| DeviceError::Plan { reason: format!("one of the first {N} sources is missing") })
    }

    fn optional(&self, index: usize) -> Option<&View<'a>> {
        self.0.get(index)?.as_ref()
    }
}

/// What a step computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kernel {
    /// One node.
    Op(Op),
    /// A normalisation of source 0, scaled by source 1, shifted by the optional source 2.
    Norm(Norm),
    /// The sum of all sources.
    Sum,
    /// `x + sin²(a·x)·inv_b` of sources 0 to 2.
    Snake,
}

/// The results of a step, one for each range that it writes.
pub(super) fn evaluate(kernel: &Kernel, sources: &Sources) -> Result<Vec<Values>, DeviceError> {
    let floats = match *kernel {
        Kernel::Op(op) => return evaluate_op(op, sources),
        Kernel::Norm(parameters) => {
            let [x, weight] = sources.take()?;
            norm(parameters, x, Some(weight), sources.optional(2))
        }
        Kernel::Sum => {
            let [first] = sources.take()?;
            let addends: Vec<View> = sources.0.iter().skip(1).flatten().copied().collect();
            elementwise::sum(first, &addends)
        }
        Kernel::Snake => {
            let [x, a, inv_b] = sources.take()?;
            elementwise::snake(x, a, inv_b)
        }
    };
    Ok(vec![Values::Float(floats)])
}

fn evaluate_op(op: Op, sources: &Sources) -> Result<Vec<Values>, DeviceError> {
    let map = |f: fn(f32) -> f32| sources.take().map(|[a]| elementwise::map(a, f));
    let binary = |f: fn(f32, f32) -> f32| sources.take().map(|[a, b]| elementwise::binary(a, b, f));
    let floats = match op {
        Op::None | Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose => return Ok(Vec::new()),
        Op::GetRows => {
            let [a, ids] = sources.take()?;
            return Ok(vec![rows::get_rows(a, ids)?]);
        }
        Op::SetRows => {
            let [values, ids, destination] = sources.take()?;
            return Ok(vec![rows::set_rows(values, ids, destination.layout())?]);
        }
        Op::Cpy => {
            let [a, destination] = sources.take()?;
            return Ok(vec![rows::copy(a, destination.dtype())]);
        }
        Op::Cont { .. } | Op::Dup => {
            let [a] = sources.take()?;
            return Ok(vec![rows::copy(a, a.dtype())]);
        }
        Op::MulMat { .. } => {
            let [a, b] = sources.take()?;
            matmul::mul_mat(a, b)
        }
        Op::MulMatId { .. } => {
            let [a, b, ids] = sources.take()?;
            return Ok(vec![matmul::mul_mat_id(a, b, ids)?]);
        }
        Op::OutProd => {
            let [a, b] = sources.take()?;
            linear::out_prod(a, b)
        }
        Op::SolveTri => {
            let [a, b] = sources.take()?;
            linear::solve_tri(a, b)
        }
        Op::Add => binary(|a, b| a + b)?,
        Op::Sub => binary(|a, b| a - b)?,
        Op::Mul => binary(|a, b| a * b)?,
        Op::Div => binary(|a, b| a / b)?,
        Op::Scale { scale, bias, in_place: _ } => {
            let [a] = sources.take()?;
            elementwise::map(a, |x| x * scale + bias)
        }
        Op::Repeat { ne } => {
            let [a] = sources.take()?;
            return Ok(vec![rows::repeat(a, ne)]);
        }
        Op::Concat { dim } => {
            let [a, b] = sources.take()?;
            return Ok(vec![rows::concat(a, b, dim.into())]);
        }
        Op::Norm { eps } => {
            let [a] = sources.take()?;
            norm(Norm { centred: true, eps }, a, None, None)
        }
        Op::RmsNorm { eps } => {
            let [a] = sources.take()?;
            norm(Norm { centred: false, eps }, a, None, None)
        }
        Op::L2Norm { eps } => norms::l2_norm(sources.take::<1>()?[0], eps),
        Op::GroupNorm { groups, eps } => norms::group_norm(sources.take::<1>()?[0], groups, eps),
        Op::SoftMax { scale, max_bias } => {
            let [a] = sources.take()?;
            reduce::soft_max(a, sources.optional(1), sources.optional(2), scale, max_bias)
        }
        Op::Rope(parameters) => {
            let [a, positions] = sources.take()?;
            rope::rope(&parameters, a, positions, sources.optional(2), false)
        }
        Op::RopeBack(parameters) => {
            let [grad, positions] = sources.take()?;
            rope::rope(&parameters, grad, positions, sources.optional(2), true)
        }
        Op::FlashAttn(parameters) => {
            let [q, k, v] = sources.take()?;
            attention::flash_attn(&parameters, [q, k, v], sources.optional(3), sources.optional(4))
        }
        Op::SumRows => {
            let [a] = sources.take()?;
            reduce::sum_rows(a)
        }
        Op::Argsort { order } => {
            let [a] = sources.take()?;
            return Ok(vec![Values::Int(reduce::argsort(a, order))]);
        }
        Op::Sum => sums::sum(sources.take::<1>()?[0]),
        Op::Mean => sums::mean(sources.take::<1>()?[0]),
        Op::CumSum => sums::cumsum(sources.take::<1>()?[0]),
        Op::CountEqual => {
            let [a, b] = sources.take()?;
            return Ok(vec![Values::Int(vec![sums::count_equal(a, b)])]);
        }
        Op::Argmax => return Ok(vec![Values::Int(reduce::argmax(sources.take::<1>()?[0]))]),
        Op::TopK { k } => return Ok(vec![Values::Int(reduce::top_k(sources.take::<1>()?[0], k))]),
        Op::Clamp { min, max } => {
            let [a] = sources.take()?;
            elementwise::map(a, |x| functions::hold(x, min, max))
        }
        Op::Sqr => map(|x| x * x)?,
        Op::Sqrt => map(f32::sqrt)?,
        Op::Sin => map(f32::sin)?,
        Op::Cos => map(f32::cos)?,
        Op::Log => map(f32::ln)?,
        Op::LeakyRelu { negative_slope } => {
            let [a] = sources.take()?;
            elementwise::map(a, |x| functions::leaky_relu(x, negative_slope))
        }
        Op::Xielu(parameters) => {
            let [a] = sources.take()?;
            elementwise::map(a, |x| functions::xielu(x, &parameters))
        }
        Op::Unary(unary) => map(functions::unary(unary))?,
        Op::SiluBack => binary(functions::silu_back)?,
        Op::AddId => {
            let [a, b, ids] = sources.take()?;
            elementwise::add_id(a, b, ids)?
        }
        Op::Acc { window, in_place: _ } => {
            let [a, b] = sources.take()?;
            filling::acc(a, b, window)
        }
        Op::Set { window, in_place: _ } => {
            let [a, b] = sources.take()?;
            return Ok(vec![filling::set(a, b, window)]);
        }
        Op::Fill { value, in_place: _ } => {
            let [a] = sources.take()?;
            vec![value; a.layout().elements()]
        }
        Op::Arange { start, stop, step } => filling::arange(start, stop, step),
        Op::TimestepEmbedding { dim, max_period } => {
            let [times] = sources.take()?;
            filling::timestep_embedding(times, dim as usize, max_period)
        }
        Op::Tri { part } => {
            let [a] = sources.take()?;
            filling::tri(a, part)
        }
        Op::Diag => filling::diag(sources.take::<1>()?[0]),
        Op::DiagMaskInf { n_past, in_place: _ } => {
            let [a] = sources.take()?;
            filling::diag_mask(a, n_past, f32::NEG_INFINITY)
        }
        Op::DiagMaskZero { n_past, in_place: _ } => {
            let [a] = sources.take()?;
            filling::diag_mask(a, n_past, 0.0)
        }
        Op::Glu { glu, swapped } => {
            let [a] = sources.take()?;
            elementwise::gated(glu, swapped, a, sources.optional(1))
        }
        Op::SsmConv => {
            let [x, c] = sources.take()?;
            recurrent::ssm_conv(x, c)
        }
        Op::GatedDeltaNet { snapshots } => {
            let inputs: [&View; 6] = sources.take()?;
            let kept = recurrent::kept(snapshots, inputs[2].ne());
            let result = recurrent::gated_delta_net(inputs, kept);
            return Ok(vec![Values::Float(result.attention), Values::Float(result.snapshots)]);
        }
        Op::GetRowsBack { rows } => {
            let [grad, ids] = sources.take()?;
            train::get_rows_back(grad, ids, rows)?
        }
        Op::RepeatBack { ne } => sums::repeat_back(sources.take::<1>()?[0], ne),
        Op::RmsNormBack { eps } => {
            let [grad, x] = sources.take()?;
            train::rms_norm_back(grad, x, eps)
        }
        Op::SoftMaxBack { scale, max_bias: _ } => {
            let [grad, y] = sources.take()?;
            train::soft_max_back(grad, y, scale)
        }
        Op::CrossEntropyLoss => {
            let [logits, labels] = sources.take()?;
            vec![train::cross_entropy_loss(logits, labels)]
        }
        Op::CrossEntropyLossBack => {
            let [grad, logits, labels] = sources.take()?;
            train::cross_entropy_loss_back(grad, logits, labels)
        }
        Op::OptStepAdamW => {
            let [a, grad, m, v, parameters] = sources.take()?;
            return Ok(train::adamw([a, grad, m, v], parameters).map(Values::Float).into());
        }
        Op::OptStepSgd => {
            let [a, grad, parameters] = sources.take()?;
            train::sgd(a, grad, parameters)
        }
    };
    Ok(vec![Values::Float(floats)])
}
