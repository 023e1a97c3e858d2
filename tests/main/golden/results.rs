//! The dummy models on the CPU device against the results of another implementation: every node, and the logits.

use super::{Model as Golden, dummies};
use crate::devices::{cpu, unfused};
use crate::numbers::nmse;
use crate::protocol::{DECODE_STEPS, PREFILL_TOKENS, logits};
use half::f16;
use std::collections::HashMap;
use std::sync::Arc;
use wgfuse::device::{Context, DeviceBuffer};
use wgfuse::fusion::Matcher;
use wgfuse::graph::{BufferClass, DType, Graph, Layout, OpKind, TensorId};
use wgfuse::model::{BuiltGraph, Dummy, GraphInputs, InputRole, Model, Variant};
use wgfuse::plan::{Leaves, Place, Slot};

const N_CTX: usize = 256;

/// A model with memory of its own for every leaf, run with every intermediate result kept.
struct Probe {
    model: Model,
    context: Context,
    memory: HashMap<String, DeviceBuffer>,
}

impl Probe {
    fn new(variant: Variant) -> Self {
        let device = cpu();
        let model = Dummy::new(variant.arch, variant.experts, 1).unwrap().model().unwrap();
        let mut memory = HashMap::new();
        for spec in model.weights() {
            let data = model.data(&spec.name).unwrap();
            let buffer = DeviceBuffer::new(&device, BufferClass::Weight, data.len()).unwrap();
            device.write(buffer.id(), 0, &data).unwrap();
            memory.insert(spec.name.clone(), buffer);
        }
        for spec in model.caches(N_CTX) {
            let bytes = Layout::contiguous(spec.dtype, spec.ne).unwrap().extent();
            memory.insert(spec.name, DeviceBuffer::new(&device, BufferClass::Cache, bytes).unwrap());
        }
        Self { model, context: Context::with_options(device, unfused()), memory }
    }

    /// Runs one batch and calls `see` with every f32 node and its values, in order of execution.
    fn run(&mut self, tokens: &[i32], n_past: usize, mut see: impl FnMut(&Graph, TensorId, Option<Vec<f32>>)) {
        let n_tokens = tokens.len();
        let batch = GraphInputs { n_tokens, n_kv: N_CTX, n_outputs: n_tokens, fresh: n_past == 0, n_ctx: N_CTX };
        let BuiltGraph { mut graph, inputs, .. } = self.model.build(&batch).unwrap();
        for id in graph.nodes().to_vec() {
            graph.set_output(id).unwrap();
        }
        let graph = Arc::new(graph);
        let mut leaves = Leaves::new();
        for &id in graph.leaves() {
            if let Some(buffer) = self.memory.get(graph.tensor(id).name()) {
                let place = Place::Buffer(buffer.id());
                leaves.insert(id, Slot { place, offset: 0, bytes: buffer.bytes() });
            }
        }
        let mut run = self.context.prepare(&graph, &leaves).unwrap();
        for input in &inputs {
            run.write(input.id, &contents(input.role, tokens, n_past)).unwrap();
        }
        run.run().unwrap();
        for &id in graph.nodes() {
            let tensor = graph.tensor(id);
            // What lies in a cache before the run is gone after it.
            let overwritten =
                graph.class(id) == BufferClass::Cache && (tensor.kind().is_view() || tensor.kind() == OpKind::Scale);
            let readable = tensor.dtype() == DType::F32 && tensor.layout().is_contiguous() && !overwritten;
            let values = readable.then(|| {
                let mut values = vec![0.0; tensor.layout().elements()];
                run.read(id, bytemuck::cast_slice_mut(&mut values)).unwrap();
                values
            });
            see(&graph, id, values);
        }
    }
}

/// What a batch of a lone sequence puts into an input; written apart from the session's own.
fn contents(role: InputRole, tokens: &[i32], n_past: usize) -> Vec<u8> {
    let places = 0..tokens.len();
    match role {
        InputRole::Tokens => tokens.iter().flat_map(|token| token.to_le_bytes()).collect(),
        InputRole::Positions => places.flat_map(|i| ((n_past + i) as i32).to_le_bytes()).collect(),
        InputRole::KeyRows { .. } | InputRole::ValueRows { .. } => {
            places.flat_map(|i| ((n_past + i) as i64).to_le_bytes()).collect()
        }
        InputRole::Mask { window } => places
            .flat_map(|i| (0..N_CTX).map(move |row| (n_past + i, row)))
            .flat_map(|(at, row)| {
                let seen = row <= at && window.is_none_or(|window| at - row < window as usize);
                (if seen { f16::ZERO } else { f16::NEG_INFINITY }).to_le_bytes()
            })
            .collect(),
        InputRole::OutIds => places.flat_map(|i| (i as i32).to_le_bytes()).collect(),
        InputRole::StateCopy => vec![0; 4],
    }
}

/// The largest deviations from golden nodes.
#[derive(Debug, Default)]
struct Deviations {
    compared: usize,
    /// Of a result's root mean square, relative.
    rms: f64,
    /// Of single values, in units of the result's root mean square, before the first attention or GELU.
    early: f64,
    /// The same, after it.
    late: f64,
}

/// Compares the nodes of a run with those of a golden graph.
fn compare(golden: &Golden, mode: &str, probe: &mut Probe, tokens: &[i32], n_past: usize) -> Deviations {
    let mut worst = Deviations::default();
    let mut expected = golden.json[mode]["nodes"].as_array().unwrap().iter().filter(|entry| entry["op"].is_string());
    let mut rounded = false;
    let mut rms_of: HashMap<TensorId, f64> = HashMap::new();
    let weight = weights(&probe.model);
    probe.run(tokens, n_past, |graph, id, values| {
        let entry = expected.next().unwrap();
        let kind = graph.tensor(id).kind();
        assert_eq!(entry["op"], kind.label());
        // From here on the reference itself is rough: it sums values in f16 and has a table for GELU.
        rounded |= matches!(kind, OpKind::FlashAttn | OpKind::Gelu | OpKind::Geglu);
        let (Some(values), Some(rms)) = (values, entry["rms"].as_f64()) else { return };
        let name = format!("{} {mode}: {kind} {}", golden.name, entry["name"]);
        let found = (values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
        let off = (found - rms).abs() / rms.max(f64::MIN_POSITIVE);
        assert!(off <= 1e-3, "{name}: rms {found} instead of {rms}");
        rms_of.insert(id, rms);
        worst.rms = worst.rms.max(off);
        worst.compared += 1;
        for (index, first) in entry["first"].as_array().unwrap().iter().enumerate() {
            let first = first.as_f64().unwrap();
            // Golden values are printed with six digits.
            let printed = 5e-6 * first.abs();
            let off = ((f64::from(values[index]) - first).abs() - printed).max(0.0) / rms.max(f64::MIN_POSITIVE);
            // A weight that is large for its row enlarges what its factor was allowed to be off by.
            let tensor = graph.tensor(id);
            let enlarged = tensor.sources().nth(1).filter(|_| kind == OpKind::Mul).and_then(|factor| {
                let values = weight.get(graph.tensor(factor).name())?;
                Some(f64::from(values[index % values.len()].abs()) * rms_of.get(&tensor.src(0)?)? / rms)
            });
            // The reference rounds to f16, so that a value is off by a share of itself, not only of its row.
            let limit = if rounded { 1e-3 * (first.abs() / rms).max(1.0) } else { 1e-5 };
            let limit = limit * enlarged.unwrap_or(1.0).max(1.0);
            assert!(off <= limit, "{name}: value {index} is {} instead of {first}, rms {rms}", values[index]);
            let deviation = if rounded { &mut worst.late } else { &mut worst.early };
            *deviation = deviation.max(off);
        }
    });
    assert!(expected.next().is_none(), "{} {mode}: the golden graph has more nodes", golden.name);
    worst
}

/// The weights that are a row or less, by name.
fn weights(model: &Model) -> HashMap<String, Vec<f32>> {
    let rows = model.weights().filter(|spec| spec.dtype == DType::F32 && spec.ne[1..] == [1, 1, 1]);
    rows.map(|spec| (spec.name.clone(), bytemuck::pod_collect_to_vec(&model.data(&spec.name).unwrap()))).collect()
}

#[test]
fn every_node_is_as_golden() {
    for (variant, golden) in dummies() {
        let prefill = compare(&golden, "prefill", &mut Probe::new(variant), &golden.tokens("prefill"), 0);
        let mut probe = Probe::new(variant);
        let tokens = golden.tokens("decode");
        probe.run(&tokens[..1], 0, |_, _, _| {});
        let decode = compare(&golden, "decode", &mut probe, &tokens[1..2], 1);
        println!("{}: prefill {prefill:?}, decode {decode:?}", golden.name);
    }
}

#[test]
fn logits_are_as_golden() {
    for (variant, golden) in dummies() {
        let found = logits(variant, &cpu(), Matcher::off());
        let expected = golden.logits();
        assert_eq!(found.len(), expected.len());
        let split = found.len() / (PREFILL_TOKENS + DECODE_STEPS) * PREFILL_TOKENS;
        for (mode, range) in [("prefill", 0..split), ("decode", split..found.len())] {
            let error = nmse(&found[range.clone()], &expected[range]);
            println!("{} {mode}: NMSE {error:e}", golden.name);
            assert!(error <= 1e-6, "{} {mode}: logits are off by an NMSE of {error:e}", golden.name);
        }
    }
}
