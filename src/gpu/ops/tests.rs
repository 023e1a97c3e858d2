//! Every kernel in every form that its encoder asks for is sound WGSL, for adapters with and without subgroups and f16.

mod element_wise;

use crate::device::DeviceError;
use crate::fusion::{Matcher, TABLE};
use crate::gpu::caps::Caps;
use crate::gpu::compose::compose;
use crate::gpu::dispatch::{Access, Binding, Context, MAX_PARAM_BYTES};
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

/// A window whose every dimension has a stride of its own, so that nothing about it can be left out.
fn scattered(g: &mut Graph, dtype: DType, ne: [usize; 4]) -> Result<TensorId, GraphError> {
    let turned = [ne[1], ne[0], ne[2], ne[3]];
    let whole = input(g, dtype, turned.map(|n| n + 1))?;
    let nb = g.tensor(whole).nb();
    let turned = g.view(whole, turned, nb, 0)?;
    g.transpose(turned)
}

/// The float types, and the integers where an operation takes them.
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn f32(g: &mut Graph, ne: [usize; 4]) -> Result<TensorId, GraphError> {
    input(g, DType::F32, ne)
}

/// Encodes a node, or nodes that fuse, for every adapter, and checks what comes out. All leaves share a buffer.
fn check(g: &mut Graph, nodes: &[TensorId]) {
    check_on(g, nodes, &adapters(), |_| BufferId(0));
}

/// Like [`check`], for some adapters, with the leaf of each index in a buffer.
fn check_on(g: &mut Graph, nodes: &[TensorId], adapters: &[Caps], buffer: impl Fn(usize) -> BufferId) {
    nodes.iter().for_each(|&node| g.expand(node).unwrap());
    let slot = |(at, &id): (usize, &TensorId)| {
        (id, Slot { place: Place::Buffer(buffer(at)), offset: at << 24, bytes: g.tensor(id).layout().extent() })
    };
    let leaves: Leaves = g.leaves().iter().enumerate().map(slot).collect();
    let options = PlanOptions { matcher: Matcher::off(), ..PlanOptions::default() };
    let plan = plan(g, &leaves, &LIMITS, &options).unwrap();
    let kinds: Vec<_> = nodes.iter().map(|&node| g.tensor(node).kind()).collect();
    let group = Group { fusion: TABLE.iter().find(|row| row.ops == kinds), nodes: nodes.to_vec() };
    for &caps in adapters {
        let cx = Context { graph: g, placement: &plan.placement, caps: &caps, device: "TEST" };
        for dispatch in encode(&cx, &group).unwrap() {
            let label = format!("{} {:?} {caps:?}", dispatch.kernel, dispatch.switches);
            assert!(dispatch.workgroup <= caps.max_threads, "{label}");
            assert!(dispatch.params.len() * 4 <= MAX_PARAM_BYTES, "{label}: parameters");
            // wgpu refuses one buffer bound both ways.
            for one in &dispatch.bindings {
                let read_only = |binding: &Binding| binding.access == Access::Read;
                let mut same = dispatch.bindings.iter().filter(|other| other.place == one.place);
                assert!(same.all(|other| read_only(other) == read_only(one)), "{label}: {}", one.role);
            }
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
    for length in [1, 2, 100, 2048, 2049, 5000] {
        for order in [SortOrder::Ascending, SortOrder::Descending] {
            let mut g = Graph::new();
            let x = f32(&mut g, [length, 3, 1, 1]).unwrap();
            let y = g.argsort(x, order).unwrap();
            check(&mut g, &[y]);
        }
        for k in [1, length.div_ceil(2), length] {
            let mut g = Graph::new();
            let x = f32(&mut g, [length, 3, 1, 1]).unwrap();
            let y = g.top_k(x, k).unwrap();
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
                    first_dim: 0,
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

#[test]
fn moves() {
    for (from, to) in FLOATS.into_iter().flat_map(|from| FLOATS.map(|to| (from, to))) {
        let mut g = Graph::new();
        let (a, b) = (scattered(&mut g, from, [6, 4, 3, 2]).unwrap(), scattered(&mut g, to, [4, 6, 2, 3]).unwrap());
        let copied = g.cpy(a, b).unwrap();
        check(&mut g, &[copied]);
        let rows = f32(&mut g, [6, 5, 3, 2]).unwrap();
        let ids = input(&mut g, DType::I64, [5, 3, 1, 1]).unwrap();
        let table = input(&mut g, to, [6, 9, 3, 2]).unwrap();
        let stored = g.set_rows(rows, ids, table).unwrap();
        check(&mut g, &[stored]);
    }
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_quantized()) {
        let mut g = Graph::new();
        let (a, b) = (scattered(&mut g, dtype, [6, 4, 3, 2]).unwrap(), scattered(&mut g, dtype, [6, 4, 3, 2]).unwrap());
        for dim in 0..4 {
            let joined = g.concat(a, b, dim).unwrap();
            check(&mut g, &[joined]);
        }
        let dense = g.cont(a, [24, 6, 1, 1]).unwrap();
        check(&mut g, &[dense]);
        if dtype.is_float() {
            let repeated = g.repeat(a, [12, 4, 6, 2]).unwrap();
            check(&mut g, &[repeated]);
        }
        if dtype != DType::I64 {
            let table = input(&mut g, dtype, [6, 9, 3, 2]).unwrap();
            let ids = scattered(&mut g, DType::I32, [5, 3, 2, 1]).unwrap();
            let picked = g.get_rows(table, ids).unwrap();
            check(&mut g, &[picked]);
        }
    }
}

#[test]
fn sums_over_as_many_buffers_as_an_adapter_binds() {
    let roomy = adapters().into_iter().map(|caps| Caps { max_bindings: 16, ..caps }).collect::<Vec<_>>();
    for dense in [true, false] {
        // Every addend in a buffer of its own: this is the kernel with the most parameters of all.
        let mut g = Graph::new();
        let make = |g: &mut Graph, ne| if dense { input(g, DType::F32, ne) } else { scattered(g, DType::F32, ne) };
        let x = make(&mut g, [6, 4, 3, 2]).unwrap();
        let mut sum = x;
        let mut nodes = Vec::new();
        for _ in 0..7 {
            let addend = make(&mut g, if dense { [6, 4, 3, 2] } else { [3, 2, 1, 1] }).unwrap();
            sum = g.add(sum, addend).unwrap();
            nodes.push(sum);
        }
        check_on(&mut g, &nodes, &roomy, |leaf| BufferId(leaf as u32));
        check(&mut g, &nodes);
    }
}

#[test]
fn snakes() {
    for dtype in FLOATS {
        let mut g = Graph::new();
        let x = input(&mut g, dtype, [32, 5, 1, 1]).unwrap();
        let (a, inv_b) = (f32(&mut g, [1, 5, 1, 1]).unwrap(), f32(&mut g, [1, 5, 1, 1]).unwrap());
        let turned = g.mul(x, a).unwrap();
        let sine = g.sin(turned).unwrap();
        let square = g.sqr(sine).unwrap();
        let damped = g.mul(square, inv_b).unwrap();
        let sum = g.add(x, damped).unwrap();
        check(&mut g, &[turned, sine, square, damped, sum]);
    }
}

#[test]
fn a_weight_beside_what_is_written_is_bound_like_it() {
    let mut g = Graph::new();
    let x = f32(&mut g, [8, 3, 1, 1]).unwrap();
    let weight = g.leaf("", LeafKind::Weight, DType::F32, [8, 1, 1, 1]).unwrap();
    let cache = g.leaf("", LeafKind::Cache, DType::F32, [8, 3, 1, 1]).unwrap();
    let product = g.mul(x, weight).unwrap();
    let stored = g.cpy(weight, cache);
    assert!(stored.is_err(), "another number of elements");
    let norm = g.rms_norm(x, 1e-5).unwrap();
    let scaled = g.mul(norm, weight).unwrap();
    let shifted = g.add(scaled, weight).unwrap();
    let row = g.view(cache, [8, 1, 1, 1], [4, 32, 32, 32], 32).unwrap();
    let copied = g.cpy(weight, row).unwrap();
    for nodes in [&[product][..], &[norm, scaled, shifted], &[copied]] {
        check(&mut g, nodes);
        check_on(&mut g, nodes, &adapters(), |leaf| BufferId(leaf as u32));
    }
}

/// Encodes nodes that no adapter has a kernel for.
fn refuse(g: &mut Graph, nodes: &[TensorId]) {
    nodes.iter().for_each(|&node| g.expand(node).unwrap());
    let plan = plan(g, &Leaves::new(), &LIMITS, &PlanOptions::default()).unwrap();
    for (caps, &node) in adapters().iter().flat_map(|caps| nodes.iter().map(move |node| (caps, node))) {
        let cx = Context { graph: g, placement: &plan.placement, caps, device: "TEST" };
        let error = encode(&cx, &Group::single(node)).unwrap_err();
        assert!(matches!(error, DeviceError::Unsupported { op, .. } if op == g.tensor(node).kind()), "{error}");
    }
}

#[test]
fn heads_without_elements_are_refused() {
    let mut g = Graph::new();
    let [q, k, v] = [[0, 2, 2, 1], [0, 3, 2, 1], [4, 3, 2, 1]].map(|ne| f32(&mut g, ne).unwrap());
    let attn = FlashAttn { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::Default };
    let attended = g.flash_attn([q, k, v], None, None, attn).unwrap();
    refuse(&mut g, &[attended]);
}

#[test]
fn sums_and_picks() {
    for wide in [1, 300] {
        let ne = [wide, 3, 2, 2];
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let mut g = Graph::new();
            let x = scattered(&mut g, dtype, ne).unwrap();
            let sum = g.sum(x).unwrap();
            check(&mut g, &[sum]);
        }
        let mut g = Graph::new();
        let x = scattered(&mut g, DType::F32, ne).unwrap();
        let nodes = [
            g.mean(x).unwrap(),
            g.repeat_back(x, [1, 3, 2, 1]).unwrap(),
            g.l2_norm(x, 1e-5).unwrap(),
            g.group_norm(x, 2, 1e-5).unwrap(),
        ];
        let dense = f32(&mut g, ne).unwrap();
        let dense = [g.l2_norm(dense, 1e-5).unwrap(), g.group_norm(dense, 2, 1e-5).unwrap(), g.cumsum(dense).unwrap()];
        let matrix = f32(&mut g, [wide, 3, 1, 1]).unwrap();
        let largest = g.argmax(matrix).unwrap();
        let [a, b] = [(); 2].map(|()| scattered(&mut g, DType::I32, ne).unwrap());
        let equal = g.count_equal(a, b).unwrap();
        for node in nodes.into_iter().chain(dense).chain([largest, equal]) {
            check(&mut g, &[node]);
        }
    }
}

#[test]
fn gradients_and_steps() {
    for wide in [5, 300] {
        let ne = [wide, 3, 2, 2];
        let mut g = Graph::new();
        let [a, b, one] = [ne, ne, [1; 4]].map(|ne| f32(&mut g, ne).unwrap());
        let ids = input(&mut g, DType::I32, [3, 1, 1, 1]).unwrap();
        let picked = input(&mut g, DType::BF16, [wide, 3, 1, 1]).unwrap();
        let nodes = [
            g.rms_norm_back(a, b, 1e-5).unwrap(),
            g.soft_max_back(a, b, 2.0, 0.0).unwrap(),
            g.cross_entropy_loss(a, b).unwrap(),
            g.cross_entropy_loss_back(one, a, b).unwrap(),
            g.get_rows_back(picked, ids, 7).unwrap(),
        ];
        for node in nodes {
            check(&mut g, &[node]);
        }
        let mut g = Graph::new();
        let sources = [(); 4].map(|()| scattered(&mut g, DType::F32, ne).unwrap());
        let dense = [(); 4].map(|()| f32(&mut g, ne).unwrap());
        let [adamw, sgd] = [7, 2].map(|count| f32(&mut g, [count, 1, 1, 1]).unwrap());
        for [w, grad, m, v] in [sources, dense] {
            let node = g.opt_step_adamw(w, grad, [m, v], adamw).unwrap();
            check(&mut g, &[node]);
            let node = g.opt_step_sgd(w, grad, sgd).unwrap();
            check(&mut g, &[node]);
        }
    }
}

#[test]
fn linear_algebra() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let mut g = Graph::new();
        let a = input(&mut g, dtype, [33, 7, 1, 2]).unwrap();
        let b = scattered(&mut g, DType::F32, [20, 7, 3, 4]).unwrap();
        let product = g.out_prod(a, b).unwrap();
        check(&mut g, &[product]);
    }
    let mut g = Graph::new();
    let (a, b) = (f32(&mut g, [7, 7, 3, 2]).unwrap(), f32(&mut g, [5, 7, 3, 2]).unwrap());
    let solved = g.solve_tri(a, b).unwrap();
    check(&mut g, &[solved]);
}
