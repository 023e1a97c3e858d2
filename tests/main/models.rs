//! The dummy models on every device: as on the CPU device, fused as unfused, and nothing made twice.

use crate::devices::{cpu, devices, open_devices};
use crate::numbers::nmse;
use crate::protocol::{DECODE_STEPS, PREFILL_TOKENS, logits};
use std::sync::Arc;
use wgfuse::device::Device;
use wgfuse::fusion::Matcher;
use wgfuse::model::{Dummy, Variant, dummy_tokens};
use wgfuse::runtime::{DeviceModel, Outputs, Session, SessionOptions};

/// The largest of the errors of the prefill and of the decode.
fn worst(found: &[f32], expected: &[f32]) -> f64 {
    let split = found.len() / (PREFILL_TOKENS + DECODE_STEPS) * PREFILL_TOKENS;
    nmse(&found[..split], &expected[..split]).max(nmse(&found[split..], &expected[split..]))
}

#[test]
fn every_device_gives_the_results_of_the_cpu_device_fused_and_unfused() {
    for variant in Variant::all() {
        let judge = logits(variant, &cpu(), Matcher::off());
        let fused = logits(variant, &cpu(), Matcher::default());
        assert!(worst(&fused, &judge) <= 1e-9, "{variant} on CPU: fused differs by {:e}", worst(&fused, &judge));
        for gpu in devices() {
            let device: Arc<dyn Device> = gpu.clone();
            let unfused = logits(variant, &device, Matcher::off());
            let fused = logits(variant, &device, Matcher::default());
            let (off_cpu, off_unfused) = (worst(&unfused, &judge), worst(&fused, &unfused));
            println!("{variant} on {}: {off_cpu:e} from the CPU, {off_unfused:e} by fusion", device.info().name);
            assert!(off_cpu <= 1e-6, "{variant} on {}: {off_cpu:e} from the CPU", device.info().description);
            assert!(off_unfused <= 1e-9, "{variant} on {}: {off_unfused:e} by fusion", device.info().description);
        }
    }
}

#[test]
fn a_second_step_makes_no_plan_and_no_gpu_object() {
    // Devices of its own, since tests beside this one make objects on the shared ones.
    for gpu in open_devices() {
        for variant in Variant::all() {
            let model = Arc::new(Dummy::new(variant.arch, variant.experts, 1).unwrap().model().unwrap());
            let tokens = dummy_tokens(1, 2, DECODE_STEPS, model.hparams().n_vocab);
            let model = Arc::new(DeviceModel::upload(model, gpu.clone()).unwrap());
            let mut session = Session::new(model, SessionOptions::default()).unwrap();
            // The first step starts the sequence, the second continues it; a recurrent model has a graph for each.
            for &token in &tokens[..2] {
                session.decode(&[token], Outputs::Last).unwrap();
            }
            let (objects, plans) = (gpu.objects_created(), session.context().plan_hits_and_misses());
            for &token in &tokens[2..] {
                session.decode(&[token], Outputs::Last).unwrap();
            }
            let steps = DECODE_STEPS as u64 - 2;
            assert_eq!(gpu.objects_created(), objects, "{variant} on {}", gpu.info().name);
            assert_eq!(session.context().plan_hits_and_misses(), (plans.0 + steps, plans.1), "{variant}");
        }
    }
}
