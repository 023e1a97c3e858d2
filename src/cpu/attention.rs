//! Attention over keys and values.

use super::matmul::dot;
use super::memory::{View, unravel};
use super::parallel;
use crate::graph::FlashAttn;

/// Factor of the mask for a head: attention with linear biases (Press et al. 2022, arXiv 2108.12409), a geometric
/// sequence over the heads, interleaved with a second one when their number is no power of two; 1 without a bias.
pub(super) fn alibi_slope(max_bias: f32, head: usize, heads: usize) -> f32 {
    if max_bias <= 0.0 {
        return 1.0;
    }
    let whole = 1usize << heads.max(1).ilog2();
    let bias = f64::from(max_bias) / whole as f64;
    let exponent = if head < whole { -bias * (head + 1) as f64 } else { -bias / 2.0 * (2 * (head - whole) + 1) as f64 };
    exponent.exp2() as f32
}

/// Turns scores into weights that sum to 1, or to less where a sink (a score without a value) takes its share. Scores of
/// nothing but −∞ give zeros.
pub(super) fn soft_max_row(scores: &mut [f32], sink: Option<f32>) {
    let largest = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, |max, x| if x <= max { max } else { x });
    if largest == f32::NEG_INFINITY {
        scores.fill(0.0);
        return;
    }
    let mut sum = sink.map_or(0.0, |sink| f64::from((sink - largest).exp()));
    for score in scores.iter_mut() {
        *score = (*score - largest).exp();
        sum += f64::from(*score);
    }
    let scale = (1.0 / sum) as f32;
    scores.iter_mut().for_each(|score| *score *= scale);
}

/// `[dv, heads, n, b]`: for each row of `q [d, n, heads, b]` the rows of `v [dv, kv, heads_kv, b]` weighted by
/// `softmax(scale · q·k + slope · mask)` over the rows of `k [d, kv, heads_kv, b]`.
///
/// Masked positions (−∞) are not read, so that whatever a cache holds there does not matter.
pub(super) fn flash_attn(
    attn: &FlashAttn,
    [q, k, v]: [&View; 3],
    mask: Option<&View>,
    sinks: Option<&View>,
) -> Vec<f32> {
    let [width, tokens, heads, batch] = q.ne();
    let [width_v, cells, heads_kv, batch_kv] = v.ne();
    let share = [heads / heads_kv, batch / batch_kv];
    let (keys, values) = (k.rows(), v.rows());
    let mask = mask.map(|mask| (mask.rows(), mask.ne()));
    let sinks = sinks.map(View::rows);
    let cap = attn.logit_softcap;
    let mut out = vec![0.0; width_v * heads * tokens * batch];
    parallel::rows(&mut out, width_v, cells * (width + width_v + 16), |row, out| {
        let [head, token, b] = unravel(row, [width_v, heads, tokens, batch]);
        let query = q.row([token, head, b]);
        let slope = alibi_slope(attn.max_bias, head, heads);
        let bias = mask.as_ref().map(|(mask, ne)| mask.get([token, head % ne[2], b % ne[3]]));
        let score = |cell: usize| {
            let bias = bias.map_or(0.0, |bias| bias[cell]);
            if bias == f32::NEG_INFINITY {
                return bias;
            }
            let score = attn.scale * dot(keys.get([cell, head / share[0], b / share[1]]), &query);
            let score = if cap == 0.0 { score } else { cap * (score / cap).tanh() };
            score + slope * bias
        };
        let mut weights: Vec<f32> = (0..cells).map(score).collect();
        soft_max_row(&mut weights, sinks.as_ref().map(|sinks| sinks.get([0; 3])[head]));
        for (cell, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            for (out, value) in out.iter_mut().zip(values.get([cell, head / share[0], b / share[1]])) {
                *out += weight * value;
            }
        }
    });
    out
}
