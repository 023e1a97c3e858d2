//! Every kernel in every form that its encoder asks for is sound WGSL, for adapters with and without subgroups and f16.

use crate::fusion::Matcher;
use crate::fusion::TABLE;
use crate::gpu::caps::Caps;
use crate::gpu::compose::compose;
use crate::gpu::dispatch::Context;
use crate::gpu::encode::encode;
use crate::graph::{DType, FlashAttn, Graph, GraphError, LeafKind, Precision, Rope, RopeMode, SortOrder, TensorId};
use crate::plan::{BufferId, Group, Leaves, Limits, Place, PlanOptions, Slot, plan};

const LIMITS: Limits = Limits { max_buffer_bytes: 1 << 30, alignment: 256, max_bindings: 8 };

/// What the smallest adapters of each kind can do.
fn adapters() -> Vec<Caps> {
    let minimal = Caps {
        f16: false,
        subgroups: false,
        min_subgroup: 4,
        max_subgroup: 128,
        max_bindings: 8,
        max_groups: 65535,
        max_threads: 256,
        max_workgroup_bytes: 16384,
        max_binding_bytes: 1 << 27,
    };
    vec![
        minimal,
        Caps { subgroups: true, ..minimal },
        Caps { f16: true, ..minimal },
        Caps { subgroups: true, f16: true, ..minimal },
        Caps { max_threads: 128, ..minimal },
    ]
}

fn input(g: &mut Graph, dtype: DType, ne: [usize; 4]) -> Result<TensorId, GraphError> {
    g.leaf("", LeafKind::Input, dtype, ne)
}

fn f32(g: &mut Graph, ne: [usize; 4]) -> Result<TensorId, GraphError> {
    input(g, DType::F32, ne)
}

/// Encodes a node, or nodes that fuse, for every adapter, and checks what comes out.
fn check(g: &mut Graph, nodes: &[TensorId]) {
    nodes.iter().for_each(|&node| g.expand(node).unwrap());
    let slot = |(at, &id): (usize, &TensorId)| {
        let bytes = g.tensor(id).layout().extent();
        (id, Slot { place: Place::Buffer(BufferId(0)), offset: at << 24, bytes })
    };
    let leaves: Leaves = g.leaves().iter().enumerate().map(slot).collect();
    let plan = plan(g, &leaves, &LIMITS, &PlanOptions { matcher: Matcher::off(), ..PlanOptions::default() }).unwrap();
    let kinds: Vec<_> = nodes.iter().map(|&node| g.tensor(node).kind()).collect();
    let group = Group { fusion: TABLE.iter().find(|row| row.ops == kinds), nodes: nodes.to_vec() };
    for caps in adapters() {
        let cx = Context { graph: g, placement: &plan.placement, caps: &caps, device: "TEST" };
        for dispatch in encode(&cx, &group).unwrap() {
            let label = format!("{} {:?} {caps:?}", dispatch.kernel, dispatch.switches);
            assert!(dispatch.workgroup <= caps.max_threads, "{label}");
            let source = compose(&dispatch, &caps).unwrap_or_else(|error| panic!("{label}: {error:#}"));
            let workgroup_bytes = validate(&source, caps).unwrap_or_else(|error| panic!("{label}: {error}\n{source}"));
            assert!(
                workgroup_bytes <= caps.max_workgroup_bytes,
                "{label}: {workgroup_bytes} bytes of workgroup memory"
            );
        }
    }
}

/// Parses and validates; gives the bytes of workgroup memory.
fn validate(source: &str, caps: Caps) -> Result<u32, String> {
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let module = naga::front::wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let mut allowed = Capabilities::IMMEDIATES | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    allowed.set(Capabilities::SUBGROUP, caps.subgroups);
    allowed.set(Capabilities::SHADER_FLOAT16, caps.f16);
    let mut validator = Validator::new(ValidationFlags::all(), allowed);
    validator
        .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
        .subgroup_operations(naga::valid::SubgroupOperationSet::all());
    validator.validate(&module).map_err(|error| error.emit_to_string(source))?;
    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).map_err(|error| error.to_string())?;
    let shared = module.global_variables.iter().filter(|(_, var)| var.space == naga::AddressSpace::WorkGroup);
    Ok(shared.map(|(_, var)| layouter[var.ty].size.next_multiple_of(16)).sum())
}

#[test]
fn norms() {
    for centred in [false, true] {
        for steps in 0..3 {
            let mut g = Graph::new();
            let x = f32(&mut g, [300, 3, 2, 1]).unwrap();
            let weight = f32(&mut g, [300, 1, 1, 1]).unwrap();
            let norm = if centred { g.norm(x, 1e-5) } else { g.rms_norm(x, 1e-5) }.unwrap();
            let mul = g.mul(norm, weight).unwrap();
            let add = g.add(mul, weight).unwrap();
            check(&mut g, &[norm, mul, add][..=steps]);
        }
    }
}

#[test]
fn soft_maxes() {
    for mask in [None, Some(DType::F16), Some(DType::F32)] {
        for sinks in [false, true] {
            let mut g = Graph::new();
            let x = f32(&mut g, [33, 3, 6, 1]).unwrap();
            let mask = mask.map(|dtype| input(&mut g, dtype, [33, 3, 1, 1]).unwrap());
            let sinks = sinks.then(|| f32(&mut g, [6, 1, 1, 1]).unwrap());
            let y = g.soft_max(x, mask, sinks, 0.5, 8.0).unwrap();
            check(&mut g, &[y]);
        }
    }
}

#[test]
fn sorts() {
    for length in [1, 2, 100, 2048, 2049] {
        for order in [SortOrder::Ascending, SortOrder::Descending] {
            let mut g = Graph::new();
            let x = f32(&mut g, [length, 3, 1, 1]).unwrap();
            let y = g.argsort(x, order).unwrap();
            check(&mut g, &[y]);
        }
    }
}

#[test]
fn products() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (m, n) in [(7, 1), (7, 8), (7, 9), (100, 100)] {
            let mut g = Graph::new();
            let a = input(&mut g, dtype, [70, m, 2, 1]).unwrap();
            let b = f32(&mut g, [70, n, 4, 3]).unwrap();
            let y = g.mul_mat(a, b).unwrap();
            check(&mut g, &[y]);

            let mut g = Graph::new();
            let a = input(&mut g, dtype, [70, m, 4, 1]).unwrap();
            let b = f32(&mut g, [70, 1, 2 * n, 1]).unwrap();
            let ids = input(&mut g, DType::I32, [2, 2 * n, 1, 1]).unwrap();
            let y = g.mul_mat_id(a, b, ids).unwrap();
            check(&mut g, &[y]);
        }
    }
}

#[test]
fn ropes() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (mode, n_dims) in [(RopeMode::Normal, 2), (RopeMode::Neox, 64), (RopeMode::Normal, 512)] {
            for (factors, ext_factor) in [(false, 0.0), (true, 0.0), (false, 1.0), (true, 1.0)] {
                let mut g = Graph::new();
                let x = input(&mut g, dtype, [512, 3, 2, 2]).unwrap();
                let positions = input(&mut g, DType::I32, [2, 1, 1, 1]).unwrap();
                let factors = factors.then(|| f32(&mut g, [n_dims / 2, 1, 1, 1]).unwrap());
                let rope = Rope {
                    n_dims: n_dims as u32,
                    mode,
                    n_ctx_orig: 256,
                    freq_base: 10000.0,
                    freq_scale: 0.5,
                    ext_factor,
                    attn_factor: 1.0,
                    beta_fast: 32.0,
                    beta_slow: 1.0,
                };
                let y = g.rope(x, positions, factors, rope).unwrap();
                check(&mut g, &[y]);
            }
        }
    }
}

#[test]
fn attentions() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (mask, sinks, logit_softcap) in [(false, false, 0.0), (true, false, 50.0), (true, true, 0.0)] {
            for (d, dv, keys, tokens) in [(64, 64, 32, 1), (576, 512, 300, 5), (80, 72, 70, 1), (12, 8, 1, 2)] {
                let mut g = Graph::new();
                let q = f32(&mut g, [d, tokens, 6, 2]).unwrap();
                let k = input(&mut g, dtype, [d, keys, 2, 1]).unwrap();
                let v = input(&mut g, dtype, [dv, keys, 2, 1]).unwrap();
                let mask = mask.then(|| input(&mut g, DType::F16, [keys, tokens, 1, 1]).unwrap());
                let sinks = sinks.then(|| f32(&mut g, [6, 1, 1, 1]).unwrap());
                let attn = FlashAttn { scale: 0.1, max_bias: 8.0, logit_softcap, precision: Precision::Default };
                let y = g.flash_attn([q, k, v], mask, sinks, attn).unwrap();
                check(&mut g, &[y]);
            }
        }
    }
}

#[test]
fn convolutions() {
    let mut g = Graph::new();
    let x = f32(&mut g, [10, 5, 2, 1]).unwrap();
    let c = f32(&mut g, [4, 5, 1, 1]).unwrap();
    let y = g.ssm_conv(x, c).unwrap();
    check(&mut g, &[y]);
}

#[test]
fn delta_nets() {
    for size in [4, 16, 24, 32, 64, 128, 256] {
        for per_channel in [false, true] {
            for write_through in [false, true] {
                let (heads, tokens, batch, snapshots) = (4, 3, 2, 2);
                let mut g = Graph::new();
                let key = f32(&mut g, [size, 2, tokens, batch]).unwrap();
                let value = f32(&mut g, [size, heads, tokens, batch]).unwrap();
                let gate = f32(&mut g, [if per_channel { size } else { 1 }, heads, tokens, batch]).unwrap();
                let beta = f32(&mut g, [1, heads, tokens, batch]).unwrap();
                let state = f32(&mut g, [size, size, heads, batch]).unwrap();
                let net = g.gated_delta_net([key, key, value, gate, beta, state], snapshots).unwrap();
                let d = size * size * heads;
                let cache = g.leaf("", LeafKind::Cache, DType::F32, [d, batch, 2, 1]).unwrap();
                let nb = g.tensor(cache).nb();
                let tail = g.view(net, [d, batch, 2, 1], nb, 4 * size * heads * tokens * batch).unwrap();
                let copy = g.cpy(tail, cache).unwrap();
                let nodes = [net, copy];
                check(&mut g, &nodes[..=usize::from(write_through)]);
            }
        }
    }
}
