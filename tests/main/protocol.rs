//! The protocol of the golden models, as the examples run it.

#[path = "../../examples/shared/protocol.rs"]
mod shared;

pub use shared::{DECODE_STEPS, PREFILL_TOKENS, decode, nmse, prefill};
use std::sync::Arc;
use wgfuse::device::Device;
use wgfuse::fusion::Matcher;
use wgfuse::model::{Dummy, Variant};
use wgfuse::plan::PlanOptions;
use wgfuse::runtime::{DeviceModel, Session, SessionOptions};

/// The seed of the golden models.
const SEED: u64 = 1;

/// The logits of a dummy with the golden weights: those of the prefill, then those of the decode.
pub fn logits(variant: Variant, device: &Arc<dyn Device>, matcher: Matcher) -> Vec<f32> {
    let model = Dummy::new(variant.arch, variant.experts, SEED).unwrap().model().unwrap();
    let model = Arc::new(DeviceModel::upload(Arc::new(model), Arc::clone(device)).unwrap());
    let plan = Some(PlanOptions { matcher, ..PlanOptions::default() });
    let mut session = Session::new(model, SessionOptions { plan, ..SessionOptions::default() }).unwrap();
    let mut all = prefill(&mut session, SEED).unwrap();
    all.extend(decode(&mut session, SEED).unwrap());
    all
}
