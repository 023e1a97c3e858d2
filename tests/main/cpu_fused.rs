//! Fused groups of the CPU device against the same nodes one by one.

use crate::rig::{FLOATS, Form, Nd, Ran, Rig, assert_close, fuse};
use wgfuse::device::DeviceError;
use wgfuse::fusion::FusionId;
use wgfuse::graph::{DType, LeafKind, TensorId};

/// Runs a graph as it is and with `nodes` fused; `build` gives the nodes to fuse and the tensors to compare.
fn both(id: FusionId, build: impl Fn(&mut Rig) -> (Vec<TensorId>, Vec<TensorId>)) -> [Vec<Nd>; 2] {
    [false, true].map(|fused| {
        let mut rig = Rig::default();
        let (nodes, compared) = build(&mut rig);
        let graph = rig.graph.clone();
        let change = |plan: &mut _| {
            if fused {
                fuse(plan, &graph, id, &nodes)
            }
        };
        let ran: Ran = rig.try_run(&nodes, change).unwrap();
        compared.iter().map(|&tensor| ran.nd(tensor)).collect()
    })
}

#[track_caller]
fn assert_same(id: FusionId, tolerance: f64, build: impl Fn(&mut Rig) -> (Vec<TensorId>, Vec<TensorId>)) {
    let [unfused, fused] = both(id, build);
    for (unfused, fused) in unfused.iter().zip(&fused) {
        assert_close(fused, unfused, tolerance);
    }
}

#[test]
fn norms_with_weight_and_bias() {
    let ne = [40, 3, 2, 2];
    for rms in [true, false] {
        for eps in [1e-6, 0.3] {
            for form in [Form::Dense, Form::Padded, Form::Swapped] {
                for weight in [[40, 1, 1, 1], [40, 3, 1, 2]] {
                    for bias in [None, Some([40, 1, 1, 1]), Some(ne)] {
                        let id = if bias.is_some() { FusionId::NormMulAdd } else { FusionId::NormMul };
                        assert_same(id, 0.0, |rig| {
                            let x = rig.source(form, DType::F32, ne);
                            let w = rig.source(Form::Padded, DType::F32, weight);
                            let norm = if rms { rig.graph.rms_norm(x, eps) } else { rig.graph.norm(x, eps) }.unwrap();
                            let mut nodes = vec![norm, rig.graph.mul(norm, w).unwrap()];
                            if let Some(bias) = bias {
                                let bias = rig.source(Form::Dense, DType::F32, bias);
                                nodes.push(rig.graph.add(nodes[1], bias).unwrap());
                            }
                            let last = *nodes.last().unwrap();
                            (nodes, vec![last])
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn chains_of_additions() {
    for count in 2..=7 {
        for dtype in FLOATS {
            for addend in [[12, 3, 2, 1], [12, 1, 1, 1], [1, 3, 1, 1]] {
                // One by one each sum is rounded to the type, fused only the last.
                let tolerance = match dtype {
                    DType::F32 => 0.0,
                    DType::F16 => 2e-3,
                    DType::BF16 | DType::I32 | DType::I64 | DType::Block(_) => 2e-2,
                };
                assert_same(FusionId::AddChain, tolerance, |rig| {
                    let mut sum = rig.source(Form::Padded, dtype, [12, 3, 2, 1]);
                    let nodes: Vec<TensorId> = (0..count)
                        .map(|_| {
                            let addend = rig.source(Form::Dense, dtype, addend);
                            sum = rig.graph.add(sum, addend).unwrap();
                            sum
                        })
                        .collect();
                    (nodes, vec![sum])
                });
            }
        }
    }
}

#[test]
fn snake_in_every_operand_order() {
    for dtype in FLOATS {
        for orders in 0..8 {
            for ne in [[30, 4, 1, 1], [1, 5, 1, 1]] {
                let tolerance = match dtype {
                    DType::F32 => 1e-6,
                    DType::F16 => 3e-3,
                    DType::BF16 | DType::I32 | DType::I64 | DType::Block(_) => 2e-2,
                };
                // A factor comes first only where its shape and type are the result's.
                let [a_first, b_first, x_first] = [1, 2, 4].map(|bit| orders & bit != 0);
                if (a_first || b_first) && (ne[0] > 1 || dtype != DType::F32) {
                    continue;
                }
                assert_same(FusionId::Snake, tolerance, |rig| {
                    let x = rig.source(Form::Dense, dtype, ne);
                    let [a, inv_b] = [(); 2].map(|()| rig.random(LeafKind::Weight, DType::F32, [1, ne[1], 1, 1]));
                    let g = &mut rig.graph;
                    let product = if a_first { g.mul(a, x) } else { g.mul(x, a) }.unwrap();
                    let sine = g.sin(product).unwrap();
                    let square = g.sqr(sine).unwrap();
                    let bump = if b_first { g.mul(inv_b, square) } else { g.mul(square, inv_b) }.unwrap();
                    let sum = if x_first { g.add(x, bump) } else { g.add(bump, x) }.unwrap();
                    (vec![product, sine, square, bump, sum], vec![sum])
                });
            }
        }
    }
}

#[test]
fn delta_net_that_writes_its_snapshots_into_the_cache() {
    for size in [32, 64, 128] {
        for tokens in [1, 2, 4, 8] {
            for batch in [1, 2] {
                for snapshots in [1, 2, 4] {
                    for wide_gate in [false, true] {
                        check_delta_net(size, tokens, batch, snapshots, wide_gate);
                    }
                }
            }
        }
    }
}

fn check_delta_net(size: usize, tokens: usize, batch: usize, snapshots: usize, wide_gate: bool) {
    let heads = 2;
    let state = size * size * heads;
    let kept = tokens.min(snapshots);
    // A slot has room for one sequence more than the batch has, so slots lie apart.
    let cache_ne = [state, batch + 1, snapshots, 1];
    let [unfused, fused] = both(FusionId::GdnCache, |rig| {
        let q = rig.random(LeafKind::Input, DType::F32, [size, 1, tokens, batch]);
        let k = rig.random(LeafKind::Input, DType::F32, [size, 1, tokens, batch]);
        let k = rig.graph.rms_norm(k, 1e-6).unwrap();
        let k = rig.graph.scale(k, 1.0 / (size as f32).sqrt(), 0.0).unwrap();
        let v = rig.random(LeafKind::Input, DType::F32, [size, heads, tokens, batch]);
        let gate = if wide_gate { size } else { 1 };
        let g = rig.random(LeafKind::Input, DType::F32, [gate, heads, tokens, batch]);
        let beta = rig.random(LeafKind::Input, DType::F32, [1, heads, tokens, batch]);
        let cache = rig.random(LeafKind::Cache, DType::F32, cache_ne);
        let nb = rig.graph.tensor(cache).nb();
        // The newest state of the cache is both read and overwritten.
        let before = rig.graph.view(cache, [state, batch, 1, 1], nb, 0).unwrap();
        let before = rig.graph.reshape(before, [size, size, heads, batch]).unwrap();
        let net = rig.graph.gated_delta_net([q, k, v, g, beta, before], snapshots as u32).unwrap();
        let attention = size * heads * tokens * batch;
        let dense = [4, size * 4, size * size * 4, state * batch * 4];
        let tail = rig.graph.view(net, [size, size, heads * batch, kept], dense, attention * 4).unwrap();
        let into = rig.graph.view(cache, [state, batch, kept, 1], nb, 0).unwrap();
        let copy = rig.graph.cpy(tail, into).unwrap();
        let nb = [4, size * 4, size * heads * 4, attention * 4];
        let rows = rig.graph.view(net, [size, heads, tokens, batch], [4, nb[1], nb[2], nb[2] * tokens], 0).unwrap();
        (vec![net, copy], vec![rows, cache])
    });
    let what = format!("size {size}, {tokens} tokens, batch {batch}, {snapshots} snapshots");
    assert_eq!(unfused, fused, "{what}");

    let mut untouched = Rig::default();
    // The cache is the sixth random leaf of the graph above.
    (0..5).for_each(|_| _ = untouched.random(LeafKind::Input, DType::F32, [0; 4]));
    let before = untouched.random(LeafKind::Cache, DType::F32, cache_ne);
    let read = untouched.graph.sqr(before).unwrap();
    let before = untouched.run(&[read]).nd(before);
    for (at, (now, before)) in crate::rig::indices(cache_ne).zip(fused[1].all.iter().zip(&before.all)) {
        let written = at[1] < batch && at[2] < kept;
        assert_eq!(now == before, !written, "{what}: at {at:?}");
    }
}

#[test]
fn groups_that_are_not_the_rows_pattern_are_refused() {
    // The second addition reads the first one twice, so one addend has no memory.
    let mut rig = Rig::default();
    let x = rig.random(LeafKind::Input, DType::F32, [4, 1, 1, 1]);
    let sum = rig.graph.add(x, x).unwrap();
    let twice = rig.graph.add(sum, sum).unwrap();
    let graph = rig.graph.clone();
    let refused = rig.try_run(&[twice], |plan| fuse(plan, &graph, FusionId::AddChain, &[sum, twice]));
    assert!(matches!(refused, Err(DeviceError::Plan { .. })));

    // The product scales something else than the norm.
    let mut rig = Rig::default();
    let x = rig.random(LeafKind::Input, DType::F32, [4, 1, 1, 1]);
    let norm = rig.graph.rms_norm(x, 1e-6).unwrap();
    let product = rig.graph.mul(x, norm).unwrap();
    let graph = rig.graph.clone();
    let refused = rig.try_run(&[product], |plan| fuse(plan, &graph, FusionId::NormMul, &[norm, product]));
    assert!(matches!(refused, Err(DeviceError::Plan { .. })));

    // The copy takes the attention rows.
    let mut rig = Rig::default();
    let [q, k, v] = [(); 3].map(|()| rig.random(LeafKind::Input, DType::F32, [4, 1, 4, 1]));
    let [g, beta] = [(); 2].map(|()| rig.random(LeafKind::Input, DType::F32, [1, 1, 4, 1]));
    let state = rig.random(LeafKind::Cache, DType::F32, [4, 4, 1, 1]);
    let net = rig.graph.gated_delta_net([q, k, v, g, beta, state], 1).unwrap();
    let rows = rig.graph.view(net, [16, 1, 1, 1], [4, 64, 64, 64], 0).unwrap();
    let copy = rig.graph.cpy(rows, state).unwrap();
    let graph = rig.graph.clone();
    let refused = rig.try_run(&[copy], |plan| fuse(plan, &graph, FusionId::GdnCache, &[net, copy]));
    assert!(matches!(refused, Err(DeviceError::Plan { .. })));
}
