//! Operations that carry a state from token to token.

use super::matmul::dot;
use super::memory::{View, unravel};
use super::parallel;

/// `[channels, t, sequences]`: `Σ_w x[t + w, channel] · c[w, channel]` for `x [width − 1 + t, channels, sequences]` and
/// `c [width, channels]`.
pub(super) fn ssm_conv(x: &View, c: &View) -> Vec<f32> {
    let [length, channels, sequences, _] = x.ne();
    let width = c.ne()[0];
    let tokens = length + 1 - width;
    let (inputs, kernels) = (x.rows(), c.rows());
    let mut out = vec![0.0; channels * tokens * sequences];
    parallel::rows(&mut out, channels, channels * (width + 4), |row, out| {
        let [token, sequence, _] = unravel(row, [channels, tokens, sequences, 1]);
        for (channel, out) in out.iter_mut().enumerate() {
            let window = &inputs.get([channel, sequence, 0])[token..token + width];
            *out = window.iter().zip(kernels.get([channel, 0, 0])).map(|(x, c)| x * c).sum();
        }
    });
    out
}

/// How many of the last states the gated delta rule keeps for values `v [s, heads, t, b]`: there is one per token.
pub(super) fn kept(snapshots: u32, v: [usize; 4]) -> usize {
    v[2].min(snapshots as usize)
}

/// What the gated delta rule leaves behind.
pub(super) struct DeltaNet {
    /// `[s, heads, t, b]`.
    pub(super) attention: Vec<f32>,
    /// `[s, s, heads, b, kept]`: the last states, the newest first.
    pub(super) snapshots: Vec<f32>,
}

/// The gated delta rule (Yang et al. 2024, arXiv 2412.06464) over `q, k, v, g, beta, state`, shaped as
/// [`Graph::gated_delta_net`](crate::graph::Graph::gated_delta_net) says.
///
/// Row `i` of a head's state holds what value channel `i` remembers of each key channel. Per token: the state decays by
/// `exp(g)`; `d = (v − state·k) · beta` is what the state gets wrong about `k`; `state += d ⊗ k` corrects it; the result is
/// `state·q / √s`. The `kept` last states are returned; `kept` is at most the number of tokens.
pub(super) fn gated_delta_net(sources: [&View; 6], kept: usize) -> DeltaNet {
    let [size, heads, tokens, batch] = sources[2].ne();
    let [q, k, v, g, beta, state] = sources.map(View::rows);
    let heads_k = sources[0].ne()[1].max(1);
    let scale = 1.0 / (size as f32).sqrt();
    let cell = size * size;
    let run = |unit: usize| {
        let (head, b) = (unit % heads, unit / heads);
        let mut state: Vec<f32> = (0..size).flat_map(|row| state.get([row, head, b])).copied().collect();
        let mut attention = Vec::with_capacity(size * tokens);
        let mut snapshots = vec![0.0; cell * kept];
        for token in 0..tokens {
            let query = q.get([head % heads_k, token, b]);
            let key = k.get([head % heads_k, token, b]);
            let decay: Vec<f32> = g.get([head, token, b]).iter().map(|g| g.exp()).collect();
            let beta = beta.get([head, token, b])[0];
            for (row, value) in state.chunks_exact_mut(size).zip(v.get([head, token, b])) {
                super::elementwise::combine(row, &decay, |state, decay| state * decay);
                let correction = (value - dot(row, key)) * beta;
                row.iter_mut().zip(key).for_each(|(state, key)| *state += key * correction);
                attention.push(dot(row, query) * scale);
            }
            let age = tokens - 1 - token;
            if age < kept {
                snapshots[age * cell..][..cell].copy_from_slice(&state);
            }
        }
        (attention, snapshots)
    };
    let units = parallel::map(heads * batch, cell.saturating_mul(tokens * 6), run);

    let mut result = DeltaNet {
        attention: vec![0.0; size * heads * tokens * batch],
        snapshots: vec![0.0; cell * heads * batch * kept],
    };
    for (unit, (attention, snapshots)) in units.iter().enumerate() {
        let (head, b) = (unit % heads, unit / heads);
        for (token, row) in attention.chunks_exact(size).enumerate() {
            result.attention[((b * tokens + token) * heads + head) * size..][..size].copy_from_slice(row);
        }
        for (age, state) in snapshots.chunks_exact(cell).enumerate() {
            result.snapshots[((age * batch + b) * heads + head) * cell..][..cell].copy_from_slice(state);
        }
    }
    result
}
