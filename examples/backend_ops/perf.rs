//! How fast operations are, beside how fast the device copies.

use crate::builder::{Builder, Fill, Form, UNIT};
use crate::cases::recurrent_sources;
use crate::report::csv;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use wgfuse::device::{Context, Device, DeviceBuffer};
use wgfuse::fusion::Matcher;
use wgfuse::graph::{BufferClass, DType, FlashAttn, GraphError, LeafKind, Op, Precision, Rope, RopeMode, TensorId};
use wgfuse::plan::{Leaves, Place, PlanOptions, Slot};

/// Something to measure.
struct Load {
    label: &'static str,
    params: String,
    /// Multiplications and additions; 0 for what only moves memory.
    operations: f64,
    build: Box<Build>,
}

/// The operation that is repeated, and its sources.
type Repeated = (Op, Vec<Option<TensorId>>);

type Build = dyn Fn(&mut Builder) -> Result<Repeated, GraphError>;

fn load(
    label: &'static str,
    params: String,
    operations: usize,
    build: impl Fn(&mut Builder) -> Result<Repeated, GraphError> + 'static,
) -> Load {
    Load { label, params, operations: operations as f64, build: Box::new(build) }
}

fn given(op: Op, sources: &[TensorId]) -> Repeated {
    (op, sources.iter().copied().map(Some).collect())
}

fn loads() -> Vec<Load> {
    let f32s = DType::F32;
    let mut all = vec![load("CPY", "f32 [4096, 4096, 1, 1]".to_owned(), 0, move |b| {
        let from = b.leaf_of(LeafKind::Weight, f32s, [4096, 4096, 1, 1], &UNIT)?;
        let into = b.leaf_of(LeafKind::Cache, f32s, [4096, 4096, 1, 1], &UNIT)?;
        Ok(given(Op::Cpy, &[from, into]))
    })];
    for (dtype, n) in
        DType::ALL.into_iter().filter(|dtype| dtype.is_real()).flat_map(|dtype| [(dtype, 1), (dtype, 512)])
    {
        all.push(load("MUL_MAT", format!("{dtype} 4096x4096 by {n}"), 2 * 4096 * 4096 * n, move |b| {
            // A row again and again: quantizing is slow, and no kernel looks at the numbers.
            let row = Fill::Given((0..256).map(|i| f64::from(i % 17) / 8.0 - 1.0).collect());
            let a = b.leaf_of(LeafKind::Weight, dtype, [4096, 4096, 1, 1], &row)?;
            let x = b.leaf_of(LeafKind::Weight, f32s, [4096, n, 1, 1], &UNIT)?;
            let node = b.graph.mul_mat(a, x)?;
            Ok(given(*b.graph.tensor(node).op(), &[a, x]))
        }));
    }
    for dtype in [DType::F32, DType::F16] {
        all.push(load("GET_ROWS", format!("{dtype} [4096, 8192] 512 rows"), 0, move |b| {
            // Only the rows that are read are memory that cannot be done without.
            let a = b.leaf_of(LeafKind::Weight, dtype, [4096, 512, 1, 1], &UNIT)?;
            let ids = b.leaf_of(LeafKind::Weight, DType::I32, [512, 1, 1, 1], &Fill::Whole(0, 512))?;
            Ok(given(Op::GetRows, &[a, ids]))
        }));
    }
    let rows = [4096, 512, 1, 1];
    for (label, op) in
        [("RMS_NORM", Op::RmsNorm { eps: 1e-5 }), ("SOFT_MAX", Op::SoftMax { scale: 1.0, max_bias: 0.0 })]
    {
        all.push(load(label, format!("f32 {rows:?}"), 0, move |b| {
            Ok(given(op, &[b.leaf_of(LeafKind::Weight, f32s, rows, &UNIT)?]))
        }));
    }
    all.push(load("ADD", format!("f32 {rows:?}"), 0, move |b| {
        let [a, c] = [b.leaf_of(LeafKind::Weight, f32s, rows, &UNIT)?, b.leaf_of(LeafKind::Weight, f32s, rows, &UNIT)?];
        Ok(given(Op::Add, &[a, c]))
    }));
    all.push(load("ROPE", "f32 [128, 32, 512, 1]".to_owned(), 0, move |b| {
        let x = b.leaf_of(LeafKind::Weight, f32s, [128, 32, 512, 1], &UNIT)?;
        let positions = b.leaf_of(LeafKind::Weight, DType::I32, [512, 1, 1, 1], &Fill::Whole(0, 512))?;
        Ok(given(
            Op::Rope(Rope {
                n_dims: 128,
                first_dim: 0,
                mode: RopeMode::Neox,
                n_ctx_orig: 4096,
                freq_base: 10_000.0,
                freq_scale: 1.0,
                ext_factor: 0.0,
                attn_factor: 1.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
            }),
            &[x, positions],
        ))
    }));
    for (queries, cells) in [(1, 4096), (512, 512)] {
        let operations = 4 * 128 * 32 * queries * cells;
        all.push(load("FLASH_ATTN_EXT", format!("f16 128, 32/8 heads, {queries} on {cells}"), operations, move |b| {
            let q = b.leaf_of(LeafKind::Weight, f32s, [128, queries, 32, 1], &UNIT)?;
            let k = b.leaf_of(LeafKind::Weight, DType::F16, [128, cells, 8, 1], &UNIT)?;
            let v = b.leaf_of(LeafKind::Weight, DType::F16, [128, cells, 8, 1], &UNIT)?;
            let (scale, precision) = (0.088, Precision::F32);
            let attn = FlashAttn { scale, max_bias: 0.0, logit_softcap: 0.0, precision };
            Ok(given(Op::FlashAttn(attn), &[q, k, v]))
        }));
    }
    for tokens in [1, 64] {
        all.push(load("GATED_DELTA_NET", format!("32 heads of 128, {tokens} tokens"), 0, move |b| {
            let sources = recurrent_sources(b, Form::Dense, [32, 32, 128, tokens, 1], false)?;
            Ok(given(Op::GatedDeltaNet { snapshots: 1 }, &sources))
        }));
    }
    all
}

/// Measures everything on every device.
pub fn run(devices: &[Arc<dyn Device>], ops: &[String], as_csv: bool) -> ExitCode {
    if as_csv {
        println!("device,op,params,microseconds,gb_per_s,gflop_per_s,copy_gb_per_s,reason");
    }
    let mut good = true;
    for device in devices {
        let name = &device.info().name;
        let mut copy = 0.0;
        for load in loads() {
            let wanted = ops.is_empty() || ops.iter().any(|op| load.label.eq_ignore_ascii_case(op));
            if !wanted && load.label != "CPY" {
                continue;
            }
            match measure(device, &load) {
                Ok((seconds, bytes)) => {
                    let (rate, flops) = (bytes / seconds / 1e9, load.operations / seconds / 1e9);
                    if load.label == "CPY" {
                        copy = rate;
                    }
                    let (time, share) = (seconds * 1e6, 100.0 * rate / copy);
                    let text = [time, rate, flops, copy].map(|x| format!("{x:.2}"));
                    if as_csv {
                        let [time, rate, flops, copy] = &text;
                        println!("{}", csv(&[name, load.label, &load.params, time, rate, flops, copy, ""]));
                    } else {
                        println!(
                            "{name:<6} {:<16} {:<34} {time:>11.1} us {rate:>8.1} GB/s ({share:>3.0}% of a copy) \
                             {flops:>9.1} GFLOP/s",
                            load.label, load.params
                        );
                    }
                }
                Err(reason) if as_csv => {
                    println!("{}", csv(&[name, load.label, &load.params, "", "", "", "", &reason]));
                    good &= reason.contains("not supported");
                }
                Err(reason) => {
                    println!("{name:<6} {:<16} {:<34} {reason}", load.label, load.params);
                    good &= reason.contains("not supported");
                }
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Seconds of one repetition, and the bytes that it reads and writes at least.
fn measure(device: &Arc<dyn Device>, load: &Load) -> Result<(f64, f64), String> {
    let once = timed(device, load, 1)?;
    // As many in one submission as last a quarter of a second, so that the launch does not matter.
    let repetitions = (0.25 / once.0).clamp(1.0, 200.0) as usize;
    let many = timed(device, load, repetitions)?;
    Ok((many.0 / repetitions as f64, many.1))
}

fn timed(device: &Arc<dyn Device>, load: &Load, repetitions: usize) -> Result<(f64, f64), String> {
    let mut built = Builder::new(1);
    let (op, sources) = (load.build)(&mut built).map_err(|error| error.to_string())?;
    let mut bytes = 0;
    let mut node = None;
    for _ in 0..repetitions {
        let id = built.graph.push(op, &sources).and_then(|id| built.graph.expand(id).map(|()| id));
        node = Some(id.map_err(|error| error.to_string())?);
    }
    let Some(node) = node else { return Err("nothing to repeat".to_owned()) };
    for id in built.graph.tensor(node).sources().chain([node]) {
        // The destination of a copy is written, not read.
        let written = op == Op::Cpy && id == node;
        bytes += if written { 0 } else { built.graph.tensor(id).layout().extent() };
    }
    device.supports(&built.graph, node).map_err(|error| error.to_string())?;
    let graph = Arc::new(built.graph.clone());
    let mut buffers = Vec::new();
    let mut leaves = Leaves::new();
    for &id in graph.leaves() {
        let bytes = graph.tensor(id).layout().extent();
        let class = graph.class(id);
        if class != BufferClass::Computed {
            let buffer = DeviceBuffer::new(device, class, bytes).map_err(|error| error.to_string())?;
            leaves.insert(id, Slot { place: Place::Buffer(buffer.id()), offset: 0, bytes });
            buffers.push(buffer);
        }
    }
    let options = PlanOptions { matcher: Matcher::off(), ..PlanOptions::default() };
    let mut context = Context::with_options(Arc::clone(device), options);
    let mut run = context.prepare(&graph, &leaves).map_err(|error| error.to_string())?;
    for &id in graph.leaves() {
        run.write(id, &built.contents[&id]).map_err(|error| error.to_string())?;
    }
    // A read waits for everything before it; inputs cannot be read.
    let kept = graph.leaves().iter().filter(|&&id| graph.class(id) != BufferClass::Computed);
    let sync = kept.min_by_key(|&&id| graph.tensor(id).layout().extent()).copied().unwrap_or(node);
    let mut waiting = vec![0; graph.tensor(sync).layout().extent()];
    let mut best = f64::INFINITY;
    for round in 0..3 {
        let start = Instant::now();
        run.run().map_err(|error| error.to_string())?;
        run.read(sync, &mut waiting).map_err(|error| error.to_string())?;
        // The first run warms up.
        if round > 0 || repetitions == 1 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    Ok((best, bytes as f64))
}
