//! One model on one device: how often each pattern fires, and whether that changes the results.

use super::protocol::{self, DECODE_STEPS, PREFILL_TOKENS, nmse};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use wgfuse::cpu::CpuDevice;
use wgfuse::device::Device;
use wgfuse::fusion::{FusionConfig, FusionState, Matcher};
use wgfuse::graph::{LeafKind, TensorId};
use wgfuse::model::{GraphInputs, Model};
use wgfuse::plan::{BufferId, Leaves, Limits, Place, PlanOptions, Slot, plan};
use wgfuse::runtime::{DeviceModel, Session, SessionError, SessionOptions};

/// How often each pattern fired.
pub type Fired = BTreeMap<String, u64>;

/// What one of the two graphs gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Fusions per graph.
    pub fused: Fired,
    /// Fusions with fusion turned off, which must be none.
    pub unfused: u64,
    /// Error of the fused results against the unfused ones; none when nothing ran.
    pub against_unfused: Option<f64>,
    /// Error of the fused results against the CPU device's unfused ones; none when nothing ran.
    pub against_cpu: Option<f64>,
}

/// The prefill and the decode of a model.
pub struct Pair<T> {
    pub prefill: T,
    pub decode: T,
}

/// Runs a model on a device fused and unfused, and on the CPU device.
pub fn run(model: Model, device: &Arc<dyn Device>, seed: u64) -> Result<Pair<Measured>, String> {
    let text = |error: SessionError| error.to_string();
    let model = Arc::new(model);
    let cpu: Arc<dyn Device> =
        Arc::new(CpuDevice::new(FusionConfig { matcher: Matcher::off(), ..FusionConfig::default() }));
    let judge = DeviceModel::upload(Arc::clone(&model), cpu).map_err(text)?;
    let judge = counted(&Arc::new(judge), seed)?;

    let uploaded = Arc::new(DeviceModel::upload(model, Arc::clone(device)).map_err(text)?);
    device.fusion().set_enabled(true);
    let fused = counted(&uploaded, seed)?;
    device.fusion().set_enabled(false);
    let unfused = counted(&uploaded, seed);
    device.fusion().set_enabled(true);
    let unfused = unfused?;

    let measured = |fused: Counted, unfused: &Counted, judge: &Counted| Measured {
        unfused: unfused.fired.values().sum(),
        against_unfused: Some(nmse(&fused.logits, &unfused.logits)),
        against_cpu: Some(nmse(&fused.logits, &judge.logits)),
        fused: fused.fired,
    };
    Ok(Pair {
        prefill: measured(fused.prefill, &unfused.prefill, &judge.prefill),
        decode: measured(fused.decode, &unfused.decode, &judge.decode),
    })
}

struct Counted {
    fired: Fired,
    logits: Vec<f32>,
}

/// Runs the protocol in a new session and counts what its device fuses.
fn counted(model: &Arc<DeviceModel>, seed: u64) -> Result<Pair<Counted>, String> {
    let text = |error: SessionError| error.to_string();
    let fusion = model.device().fusion();
    let mut session = Session::new(Arc::clone(model), SessionOptions::default()).map_err(text)?;
    fusion.stats_init();
    let logits = protocol::prefill(&mut session, seed).map_err(text)?;
    let prefill = Counted { fired: per_graph(fusion, 1)?, logits };
    fusion.stats_reset();
    let logits = protocol::decode(&mut session, seed).map_err(text)?;
    let decode = Counted { fired: per_graph(fusion, DECODE_STEPS as u64)?, logits };
    Ok(Pair { prefill, decode })
}

fn per_graph(fusion: &FusionState, graphs: u64) -> Result<Fired, String> {
    let fired = fusion.stats().into_iter().filter(|(_, count)| *count > 0);
    fired
        .map(|(label, count)| {
            if !count.is_multiple_of(graphs) {
                return Err(format!("{label} fired {count} times in {graphs} graphs that are alike"));
            }
            Ok((label, count / graphs))
        })
        .collect()
}

/// Counts from plans alone, for a device that is not here.
pub fn plan_only(model: &Model, limits: &Limits, matcher: Matcher) -> Result<Pair<Measured>, String> {
    let n_ctx = model.hparams().n_ctx_train;
    let graph = |n_tokens, fresh| {
        let batch = GraphInputs { n_tokens, n_kv: n_ctx.min(256), n_outputs: n_tokens, fresh, n_ctx };
        let fused = fired(model, &batch, limits, matcher)?;
        let unfused = fired(model, &batch, limits, Matcher::off())?.values().sum();
        Ok::<_, String>(Measured { fused, unfused, ..Measured::default() })
    };
    Ok(Pair { prefill: graph(PREFILL_TOKENS, true)?, decode: graph(1, false)? })
}

fn fired(model: &Model, batch: &GraphInputs, limits: &Limits, matcher: Matcher) -> Result<Fired, String> {
    let graph = model.build(batch).map_err(|error| error.to_string())?.graph;
    // Any place will do, as long as no two leaves share one.
    let placed = graph.leaves().iter().filter(|&&id| graph.tensor(id).leaf() != Some(LeafKind::Input));
    let slot = |(number, &id): (usize, &TensorId)| {
        let bytes = graph.tensor(id).layout().extent();
        (id, Slot { place: Place::Buffer(BufferId(number as u32)), offset: 0, bytes })
    };
    let leaves: Leaves = placed.enumerate().map(slot).collect::<HashMap<_, _>>();
    let plan = plan(&graph, &leaves, limits, &PlanOptions::from_env(matcher)).map_err(|error| error.to_string())?;
    let mut fired = Fired::new();
    plan.fusions().for_each(|row| *fired.entry(row.label()).or_default() += 1);
    Ok(fired)
}
