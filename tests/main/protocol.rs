//! The protocol of the golden models: 32 tokens as one batch, then, from the start, 16 one at a time.

use std::sync::Arc;
use wgfuse::device::Device;
use wgfuse::fusion::Matcher;
use wgfuse::model::{Dummy, Variant, dummy_tokens};
use wgfuse::plan::PlanOptions;
use wgfuse::runtime::{DeviceModel, Outputs, Session, SessionOptions};

/// Tokens of the prefill.
pub const PREFILL: usize = 32;
/// Steps of the decode.
pub const DECODE: usize = 16;

/// The logits of a dummy with the golden weights: those of the prefill, then those of the decode.
pub fn logits(variant: Variant, device: &Arc<dyn Device>, matcher: Matcher) -> Vec<f32> {
    let model = Dummy::new(variant.arch, variant.experts, 1).unwrap().model().unwrap();
    let n_vocab = model.hparams().n_vocab;
    let model = Arc::new(DeviceModel::upload(Arc::new(model), Arc::clone(device)).unwrap());
    let plan = Some(PlanOptions { matcher, ..PlanOptions::default() });
    let mut session = Session::new(model, SessionOptions { plan, ..SessionOptions::default() }).unwrap();
    let mut all = session.decode(&dummy_tokens(1, 1, PREFILL, n_vocab), Outputs::All).unwrap().to_vec();
    session.reset();
    for token in dummy_tokens(1, 2, DECODE, n_vocab) {
        all.extend_from_slice(session.decode(&[token], Outputs::Last).unwrap());
    }
    all
}
