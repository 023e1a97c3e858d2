//! From groups to dispatches: who encodes what.

use super::dispatch::{Context, Dispatch};
use super::ops::{attention, elementwise, filling, linear, matmul, norm, recurrent, reduce, rope, rows, sort, train};
use crate::device::DeviceError;
use crate::fusion::FusionId;
use crate::graph::{Op, OpKind, TensorId};
use crate::plan::Group;

/// The dispatches that execute a group, in order.
///
/// # Errors
/// [`DeviceError::Unsupported`] when there is no kernel for it, [`DeviceError::Plan`] when its nodes are not its row's.
pub fn encode(cx: &Context<'_>, group: &Group) -> Result<Vec<Dispatch>, DeviceError> {
    match (group.fusion, group.nodes.as_slice()) {
        (Some(fusion), nodes) => {
            let kinds = nodes.iter().map(|&node| cx.tensor(node).kind());
            if !kinds.eq(fusion.ops.iter().copied()) {
                return Err(DeviceError::Plan { reason: format!("a group is not {}", fusion.label()) });
            }
            fused(cx, fusion.id, nodes)
        }
        (None, &[node]) => single(cx, node),
        (None, nodes) => {
            let op = nodes.first().map_or(OpKind::None, |&node| cx.tensor(node).kind());
            Err(cx.unsupported(op, format!("a group of {} nodes that is no fusion", nodes.len())))
        }
    }
}

fn fused(cx: &Context<'_>, id: FusionId, nodes: &[TensorId]) -> Result<Vec<Dispatch>, DeviceError> {
    match id {
        FusionId::AddChain => elementwise::add_chain(cx, nodes),
        FusionId::Snake => elementwise::snake(cx, nodes),
        FusionId::NormMul | FusionId::NormMulAdd => norm::norm(cx, nodes),
        FusionId::GdnCache => recurrent::gated_delta_net(cx, nodes),
    }
}

fn single(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let unary = |function, params: &[(&str, f32)]| elementwise::unary(cx, node, function, params);
    match *cx.tensor(node).op() {
        Op::None | Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose => Ok(Vec::new()),
        Op::Add => elementwise::binary(cx, node, "+"),
        Op::Sub => elementwise::binary(cx, node, "-"),
        Op::Mul => elementwise::binary(cx, node, "*"),
        Op::Div => elementwise::binary(cx, node, "/"),
        Op::Scale { scale, bias, in_place: _ } => unary("scale", &[("scale", scale), ("bias", bias)]),
        Op::Clamp { min, max } => unary("clamp", &[("min", min), ("max", max)]),
        Op::Sqr => unary("sqr", &[]),
        Op::Sqrt => unary("sqrt", &[]),
        Op::Sin => unary("sin", &[]),
        Op::Cos => unary("cos", &[]),
        Op::Log => unary("log", &[]),
        Op::LeakyRelu { negative_slope } => unary("leaky_relu", &[("negative_slope", negative_slope)]),
        Op::Xielu(parameters) => elementwise::xielu(cx, node, &parameters),
        Op::Unary(function) => unary(elementwise::function(function), &[]),
        Op::Glu { glu, swapped } => elementwise::glu(cx, node, glu, swapped),
        Op::SiluBack => elementwise::binary(cx, node, "silu_back"),
        Op::AddId => elementwise::add_id(cx, node),
        Op::Acc { window, in_place } => filling::window(cx, node, window, in_place, true),
        Op::Set { window, in_place } => filling::window(cx, node, window, in_place, false),
        Op::Fill { value, in_place: _ } => filling::fill(cx, node, value),
        Op::Arange { start, stop: _, step } => filling::arange(cx, node, start, step),
        Op::TimestepEmbedding { dim, max_period } => filling::timestep_embedding(cx, node, dim, max_period),
        Op::Tri { part } => filling::tri(cx, node, part),
        Op::Diag => filling::diag(cx, node),
        Op::DiagMaskInf { n_past, in_place: _ } => filling::diag_mask(cx, node, n_past, f32::NEG_INFINITY),
        Op::DiagMaskZero { n_past, in_place: _ } => filling::diag_mask(cx, node, n_past, 0.0),
        Op::GetRows => rows::get_rows(cx, node),
        Op::SetRows => rows::set_rows(cx, node),
        Op::Cpy | Op::Cont { .. } | Op::Dup => rows::copy(cx, node),
        Op::Repeat { .. } => rows::repeat(cx, node),
        Op::Concat { dim } => rows::concat(cx, node, dim),
        Op::SumRows => rows::sum_rows(cx, node),
        Op::Sum => reduce::sum(cx, node),
        Op::Mean => reduce::mean(cx, node),
        Op::CumSum => reduce::cumsum(cx, node),
        Op::CountEqual => reduce::count_equal(cx, node),
        Op::Argmax => reduce::argmax(cx, node),
        Op::TopK { .. } => sort::top_k(cx, node),
        Op::L2Norm { eps } => reduce::l2_norm(cx, node, eps),
        Op::GroupNorm { groups, eps } => reduce::group_norm(cx, node, groups, eps),
        Op::OutProd => linear::out_prod(cx, node),
        Op::SolveTri => linear::solve_tri(cx, node),
        Op::GetRowsBack { .. } => train::get_rows_back(cx, node),
        Op::RepeatBack { .. } => reduce::repeat_back(cx, node),
        Op::RmsNormBack { eps } => train::rms_norm_back(cx, node, eps),
        Op::SoftMaxBack { scale, max_bias: _ } => train::soft_max_back(cx, node, scale),
        Op::CrossEntropyLoss => train::cross_entropy_loss(cx, node),
        Op::CrossEntropyLossBack => train::cross_entropy_loss_back(cx, node),
        Op::OptStepAdamW => train::opt_step_adamw(cx, node),
        Op::OptStepSgd => train::opt_step_sgd(cx, node),
        Op::MulMat { .. } => matmul::mul_mat(cx, node),
        Op::MulMatId { .. } => matmul::mul_mat_id(cx, node),
        Op::Norm { .. } | Op::RmsNorm { .. } => norm::norm(cx, &[node]),
        Op::SoftMax { scale, max_bias } => attention::soft_max(cx, node, scale, max_bias),
        Op::FlashAttn(attn) => attention::flash(cx, node, &attn),
        Op::Rope(rope) => rope::rope(cx, node, &rope, false),
        Op::RopeBack(rope) => rope::rope(cx, node, &rope, true),
        Op::Argsort { order } => sort::argsort(cx, node, order),
        Op::SsmConv => recurrent::ssm_conv(cx, node),
        Op::GatedDeltaNet { .. } => recurrent::gated_delta_net(cx, &[node]),
    }
}
