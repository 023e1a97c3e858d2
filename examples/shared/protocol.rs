//! How a model is run to be compared: 32 tokens as one batch, then, from an empty context, 16 one at a time.

use wgfuse::model::dummy_tokens;
use wgfuse::runtime::{Outputs, Session, SessionError};

/// Tokens of the prefill.
pub const PREFILL_TOKENS: usize = 32;
/// Steps of the decode.
pub const DECODE_STEPS: usize = 16;

/// The logits of every token of the prefill.
pub fn prefill(session: &mut Session, seed: u64) -> Result<Vec<f32>, SessionError> {
    let n_vocab = session.model().model().hparams().n_vocab;
    session.reset();
    Ok(session.decode(&dummy_tokens(seed, 1, PREFILL_TOKENS, n_vocab), Outputs::All)?.to_vec())
}

/// The logits of every step of the decode.
pub fn decode(session: &mut Session, seed: u64) -> Result<Vec<f32>, SessionError> {
    let n_vocab = session.model().model().hparams().n_vocab;
    session.reset();
    let mut logits = Vec::with_capacity(DECODE_STEPS * n_vocab);
    for token in dummy_tokens(seed, 2, DECODE_STEPS, n_vocab) {
        logits.extend_from_slice(session.decode(&[token], Outputs::Last)?);
    }
    Ok(logits)
}

/// Normalised mean square error: the squared error over the square of what is expected.
pub fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    let error: f64 = found.iter().zip(expected).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    let scale: f64 = expected.iter().map(|&x| f64::from(x).powi(2)).sum();
    if error == 0.0 { 0.0 } else { error / scale }
}
