//! Runs a case on a device and on the CPU device and compares what they leave in memory.

use crate::builder::{Builder, decode};
use crate::cases::Case;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use wgfuse::device::{Context, Device, DeviceBuffer};
use wgfuse::fusion::Matcher;
use wgfuse::graph::{BufferClass, DType, OpKind};
use wgfuse::plan::{Leaves, Place, PlanOptions, Slot};

/// How a case ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With this normalised mean square error.
    Passed(f64),
    /// For this reason.
    Failed(String),
    /// The device says that it does not have this.
    Unsupported(String),
}

/// The largest normalised mean square error that an operation may have in a result of a type.
pub fn tolerance(case: &Case, dtype: DType) -> f64 {
    let rounding: f64 = match dtype {
        DType::F32 => 0.0,
        DType::F16 => 1e-6,
        DType::BF16 => 1e-4,
        DType::I32 | DType::I64 => return 0.0,
        DType::Block(_) => return 1e-5,
    };
    let moves = [
        OpKind::Cpy,
        OpKind::Cont,
        OpKind::Dup,
        OpKind::GetRows,
        OpKind::SetRows,
        OpKind::Repeat,
        OpKind::Concat,
        OpKind::Set,
        OpKind::Fill,
        OpKind::Tri,
        OpKind::Diag,
        OpKind::DiagMaskInf,
        OpKind::DiagMaskZero,
    ];
    let kind = OpKind::ALL.iter().find(|kind| kind.label() == case.label);
    match kind {
        Some(kind) if moves.contains(kind) || kind.is_view() => 0.0,
        Some(OpKind::FlashAttn | OpKind::MulMat | OpKind::MulMatId | OpKind::GatedDeltaNet) => rounding.max(1e-6),
        Some(_) => rounding.max(1e-8),
        None => rounding.max(1e-6),
    }
}

/// Runs a graph once and reads what is compared.
fn run(device: &Arc<dyn Device>, built: &Builder, matcher: Matcher) -> Result<(Vec<Vec<u8>>, Vec<String>), String> {
    let text = |error: &dyn std::fmt::Display| format!("{}: {error}", device.info().name);
    let graph = Arc::new(built.graph.clone());
    let mut buffers = Vec::new();
    let mut leaves = Leaves::new();
    for &id in graph.leaves().iter().filter(|&&id| graph.class(id) != BufferClass::Computed) {
        let bytes = graph.tensor(id).layout().extent();
        let buffer = DeviceBuffer::new(device, graph.class(id), bytes).map_err(|error| text(&error))?;
        leaves.insert(id, Slot { place: Place::Buffer(buffer.id()), offset: 0, bytes });
        buffers.push(buffer);
    }
    let options = PlanOptions { matcher, ..PlanOptions::default() };
    let mut context = Context::with_options(Arc::clone(device), options);
    let mut run = context.prepare(&graph, &leaves).map_err(|error| text(&error))?;
    for &id in graph.leaves() {
        run.write(id, &built.contents[&id]).map_err(|error| text(&error))?;
    }
    run.run().map_err(|error| text(&error))?;
    let fused = run.plan().fusions().map(|row| row.label()).collect();
    let read = built.wanted.iter().map(|&id| {
        let mut bytes = vec![0; graph.tensor(id).layout().extent()];
        run.read(id, &mut bytes).map(|()| bytes).map_err(|error| text(&error))
    });
    Ok((read.collect::<Result<_, _>>()?, fused))
}

/// Why a device does not have a case.
pub fn refusal(device: &Arc<dyn Device>, built: &Builder) -> Option<String> {
    built
        .graph
        .nodes()
        .iter()
        .find_map(|&node| device.supports(&built.graph, node).err())
        .map(|error| error.to_string())
}

/// Runs a case on a device and judges it.
pub fn judge(device: &Arc<dyn Device>, cpu: &Arc<dyn Device>, case: &Case, seed: u64) -> Outcome {
    let mut built = Builder::empty();
    if let Err(error) = (case.build)(&mut built) {
        return Outcome::Failed(format!("the graph is refused: {error}"));
    }
    if let Some(reason) = refusal(device, &built).or_else(|| refusal(cpu, &built)) {
        return Outcome::Unsupported(reason);
    }
    // Only now: contents of block formats take long to make.
    let mut built = Builder::new(seed);
    if let Err(error) = (case.build)(&mut built) {
        return Outcome::Failed(format!("the graph is refused: {error}"));
    }
    let judged = (|| {
        let (expected, _) = run(cpu, &built, Matcher::off())?;
        let matcher = if case.fuses { Matcher::default() } else { Matcher::off() };
        let (found, fused) = run(device, &built, matcher)?;
        if case.fuses && !fused.contains(&case.label) {
            return Err(format!("did not fuse; fused {fused:?}"));
        }
        let mut worst: f64 = 0.0;
        for ((found, expected), &id) in found.iter().zip(&expected).zip(&built.wanted) {
            let dtype = built.graph.tensor(id).dtype();
            if found != expected {
                let error = nmse(&decode(dtype, found), &decode(dtype, expected))?;
                let allowed = tolerance(case, dtype);
                if error > allowed {
                    return Err(format!("NMSE {error:.1e}, at most {allowed:.0e} is right"));
                }
                worst = worst.max(error);
            }
        }
        Ok(worst)
    })();
    judged.map_or_else(Outcome::Failed, Outcome::Passed)
}

/// The squared error over the square of what is expected. Numbers that are not finite must be the same.
fn nmse(found: &[f64], expected: &[f64]) -> Result<f64, String> {
    let (mut error, mut scale) = (0.0, 0.0);
    for (at, (&a, &b)) in found.iter().zip(expected).enumerate() {
        if a.is_finite() && b.is_finite() {
            error += (a - b) * (a - b);
            scale += b * b;
        } else if a != b && !(a.is_nan() && b.is_nan()) {
            return Err(format!("element {at} is {a}, expected {b}"));
        }
    }
    Ok(if error == 0.0 { 0.0 } else { error / scale })
}

/// Judges all cases on two threads; outcomes in the order of the cases.
pub fn judge_all(device: &Arc<dyn Device>, cpu: &Arc<dyn Device>, cases: &[&Case], seed: u64) -> Vec<Outcome> {
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(vec![None; cases.len()]));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(case) = cases.get(at) else { break };
                    let outcome = judge(device, cpu, case, seed);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes[at] = Some(outcome);
                    }
                }
            });
        }
    });
    let missing = || Outcome::Failed("the case did not end".to_owned());
    let outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect()
}
